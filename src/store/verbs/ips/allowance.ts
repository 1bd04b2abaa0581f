/**
 * The allowance of warming IPs: reserving and giving back (egress/README.md "Smoothing" and "Provider shares").
 * Reading, deciding and writing are one verb of the only connection that writes. The day's cap stands once more in the
 * statement that grants, and in a check of the table; it throws when that guard had to act: a fault of this file.
 */
import type { Database, RunResult } from '../../engine/database.ts'
import { DAY, HOUR, MINUTE } from '../../../base/clock.ts'
import {
  decideAllowance,
  type AllowanceDecision,
  type AllowanceState,
  type DayAllowance,
  type HourAllowance,
} from '../../allowance-decision.ts'
import type { Grant } from '../../records/queue-records.ts'
import type { AllowanceRule, Reservation, ReserveRequest } from '../../records/warmup-records.ts'
import { oneColumn } from '../tools/statements.ts'
import type { Verb } from '../tools/verb-types.ts'

type Ask = ReserveRequest['asks'][number]

/** The row of a day, hour or slot for all isps together. */
export const TOGETHER = '*'
/** The rolling hour moves in steps of this; a slot counts whole until its end is an hour old. */
const SLOT = 5 * MINUTE
/** How long slots stay: longer than any clock is set back. */
const SLOTS_KEPT = 2 * DAY

/** The beginning of the slot that a time is in. */
export const slotOf = (at: number): number => Math.floor(at / SLOT) * SLOT

export function createReserveAllowance(database: Database): Verb<'reserveAllowance'> {
  const read = createStateReader(database)
  const write = createGrantWriter(database)
  return ({ now, asks }) =>
    asks.map((ask) => {
      const state = read(ask, now)
      const decision = decide(ask, now, state)
      if (decision.granted > 0) write(ask, now, decision, state)
      return reservationOf(ask, now, decision)
    })
}

/**
 * One unit goes back, to the day and the five minutes it was granted in. Never below zero: what an operator's change of
 * the day has taken away is not there to come back.
 */
export function createAllowanceRefund(database: Database): (grant: Grant) => void {
  const refundDay = database.prepare<[string, string, string]>(`
    update warmup_days
    set granted = granted - 1, refunded = refunded + 1, arrival_at = max(0, arrival_at - interval_milliseconds)
    where ip = ? and day = ? and isp = ? and granted > 0`)
  const refundSlot = database.prepare<[string, number]>(`
    update ip_slots set granted = granted - 1 where ip = ? and slot_at = ? and granted > 0`)
  return ({ ip, isp, day, at }) => {
    refundDay.run(ip, day, isp)
    refundDay.run(ip, day, TOGETHER)
    refundSlot.run(ip, slotOf(at))
  }
}

function decide({ count, rule }: Ask, now: number, state: AllowanceState): AllowanceDecision {
  return decideAllowance({ now, count, rule, hourNow: hourOldAt(slotOf(now)) }, state)
}

/** When nothing of a slot lies within the last 60 minutes any more. */
const hourOldAt = (slotAt: number): number => slotAt + SLOT + HOUR

function reservationOf({ ip, isp, rule }: Ask, now: number, decision: AllowanceDecision): Reservation {
  const { granted, nextAt, interval, reason } = decision
  return { ip, isp, day: rule.day, at: now, granted, nextAt, interval, reason }
}

function createStateReader(database: Database): (ask: Ask, now: number) => AllowanceState {
  const findDay = database.prepare<[string, string, string], DayAllowance>(`
    select cap, granted, arrival_at as arrivalAt from warmup_days where ip = ? and day = ? and isp = ?`)
  // Also those ahead of a clock that was set back.
  const findHour = database.prepare<[string, number], { granted: number; oldest: number | null }>(`
    select coalesce(sum(granted), 0) as granted, min(slot_at) as oldest
    from ip_slots
    where ip = ? and slot_at > ? and granted > 0`)
  const hourOf = (ip: string, now: number): HourAllowance => {
    const row = findHour.get(ip, now - HOUR - SLOT)
    const oldest = row?.oldest ?? null
    return { granted: row?.granted ?? 0, freesAt: oldest === null ? null : hourOldAt(oldest) }
  }
  return ({ ip, isp, rule }, now) => ({
    total: findDay.get(ip, rule.day, TOGETHER) ?? { cap: rule.cap, granted: 0, arrivalAt: 0 },
    provider: findDay.get(ip, rule.day, isp) ?? { cap: providerCap(rule, isp), granted: 0, arrivalAt: 0 },
    hour: hourOf(ip, now),
  })
}

export function providerCap(
  { providerCaps, defaultProviderCap }: Pick<AllowanceRule, 'providerCaps' | 'defaultProviderCap'>,
  isp: string,
): number {
  return Object.hasOwn(providerCaps, isp) ? (providerCaps[isp] ?? defaultProviderCap) : defaultProviderCap
}

function createGrantWriter(
  database: Database,
): (ask: Ask, now: number, decision: AllowanceDecision, state: AllowanceState) => void {
  const grantDay = database.prepare(`
    insert into warmup_days (ip, day, isp, cap, granted, arrival_at, interval_milliseconds)
    values (@ip, @day, @isp, @cap, @count, @first, @interval)
    on conflict (ip, day, isp) do update
    set granted = warmup_days.granted + @count, arrival_at = max(warmup_days.arrival_at, @now) + @advance,
      interval_milliseconds = @interval
    where warmup_days.granted + @count <= warmup_days.cap`)
  const grantSlot = oneColumn(database)<[string, number, number], number>(`
    insert into ip_slots (ip, slot_at, granted)
    values (?, ?, ?)
    on conflict (ip, slot_at) do update set granted = ip_slots.granted + excluded.granted
    returning granted`)
  const forgetSlots = createSlotRemoval(database)
  const noteSent = createLastSentNote(database)

  return ({ ip, isp, rule }, now, { granted: count, totalInterval, providerInterval }, { total, provider }) => {
    const grant = (of: string, { cap }: DayAllowance, interval: number): RunResult => {
      const advance = count * interval
      return grantDay.run({ ip, day: rule.day, isp: of, cap, now, count, interval, advance, first: now + advance })
    }
    const both = [grant(TOGETHER, total, totalInterval), grant(isp, provider, providerInterval)]
    if (both.some(({ changes }) => changes !== 1)) throw new Error(`the allowance of ${ip} on ${rule.day} is used up`)
    const slotAt = slotOf(now)
    if (grantSlot.get(ip, slotAt, count) === count) forgetSlots(ip, slotAt)
    noteSent(ip, now)
  }
}

/** Called when an IP gets a new slot. */
export function createSlotRemoval(database: Database): (ip: string, slotAt: number) => void {
  const remove = database.prepare<[string, number]>('delete from ip_slots where ip = ? and slot_at < ?')
  return (ip, slotAt) => void remove.run(ip, slotAt - SLOTS_KEPT)
}

/** To within a minute, never back. */
export function createLastSentNote(database: Database): (ip: string, at: number) => void {
  const note = database.prepare<[number, string, number]>(`
    update egress_ips set last_sent_at = ? where ip = ? and coalesce(last_sent_at, 0) < ?`)
  return (ip, at) => void note.run(at, ip, at - MINUTE)
}
