/**
 * What is left of the warmup allowance, as far as this process remembers: how many messages may hope for a grant now,
 * and when the next one can be given (egress/README.md "Smoothing"). The store alone grants; its answers teach what is
 * here. A guess too high costs an empty reservation, one too low a short wait. The counts of the day are read at the
 * start and again each minute.
 */
import { DAY, HOUR, type Clock } from '../../base/clock.ts'
import { afterGrants, conforming, nextConforming, type Pace } from '../../base/pace.ts'
import { dayAfter, utcDay } from '../../base/utc-day.ts'
import type { WarmupCurve } from '../../config/settings/warmup-settings.ts'
import { paceOf as storedPace } from '../../store/allowance-decision.ts'
import type { AllowanceRule, Reservation } from '../../store/records/warmup-records.ts'
import type { IpRegistry } from './ip-registry.ts'
import type { KnownIp } from './known-ip.ts'
import { ALL_ISPS, allowanceRule, hourlyLimitOf, windowOf } from '../warmup/warmup-curve.ts'
import type { EgressOutside } from './outside.ts'

/** Messages that want allowance of an IP for one isp. */
export interface AllowanceAsk {
  ip: string
  isp: string
  count: number
}

interface Hope {
  count: number
  /** When it rises above 0; null: it is not 0. */
  nextAt: number | null
  waitingFor: NonNullable<Reservation['reason']> | null
}

/** Of one IP on one day. */
export interface DayCount {
  rule: AllowanceRule
  /** Net of refunds. */
  granted: number
  grantedByIsp: ReadonlyMap<string, number>
}

export type Allowance = ReturnType<typeof createAllowance>

/** What those work with who choose an IP, show it or move it. */
export interface IpParts extends EgressOutside {
  registry: IpRegistry
  allowance: Allowance
}

interface KnownPace {
  /** The theoretical arrival time of the GCRA, as far as it is known. */
  arrivalAt: number
  /** Nothing is granted before. */
  blockedUntil: number
  reason: Hope['waitingFor']
}

interface IpDay {
  day: string
  /** Of the record, and its curve: others have other limits, and what was refused is asked again. */
  version: number
  curve: WarmupCurve
  /** What the curve allows on the day, and in an hour of it: made once, asked for each message. */
  rule: AllowanceRule
  hourly: number
  granted: Map<string, number>
  paces: Map<string, KnownPace>
}

export function createAllowance({ registry, store, clock }: EgressOutside & { registry: IpRegistry }) {
  const days = createIpDays(clock)

  function hopeOf(known: KnownIp, isp: string): Hope {
    const now = clock.now()
    const day = days.of(known)
    const total = hopeAt(day, ALL_ISPS, now)
    const ofIsp = hopeAt(day, isp, now)
    // Of two that are used up, the one that stays so for longer is the reason.
    if (total.count === 0 && ofIsp.count === 0) return (ofIsp.nextAt ?? 0) > (total.nextAt ?? 0) ? ofIsp : total
    return total.count <= ofIsp.count ? total : ofIsp
  }

  function note({ isp, granted, nextAt, reason, at, day: date }: Reservation, known: KnownIp): void {
    const day = days.of(known)
    // It was midnight in between.
    if (day.day !== date) return
    for (const key of [ALL_ISPS, isp]) {
      const { arrivalAt } = afterGrants(at, paceOf(day, key), granted)
      knownPaceOf(day, key).arrivalAt = arrivalAt
      day.granted.set(key, (day.granted.get(key) ?? 0) + granted)
    }
    if (nextAt === null || reason === null) return
    const refused = knownPaceOf(day, reason === 'provider_share' ? isp : ALL_ISPS)
    refused.blockedUntil = nextAt
    refused.reason = reason
  }

  return {
    hope(ip: string, isp: string): Hope {
      const known = registry.find(ip)
      return known === undefined ? { count: 0, nextAt: null, waitingFor: null } : hopeOf(known, isp)
    },
    /** One answer for each ask in its order; an IP that left the files grants nothing. */
    async reserve(asks: readonly AllowanceAsk[]): Promise<Reservation[]> {
      const now = clock.now()
      const known = asks.map((ask) => registry.find(ask.ip))
      const rules = asks.flatMap((ask, index) => {
        const found = known[index]
        return found === undefined ? [] : [{ ...ask, rule: days.of(found).rule }]
      })
      const reservations = rules.length === 0 ? [] : await store.reserveAllowance({ now, asks: rules })
      for (const reservation of reservations) {
        const found = registry.find(reservation.ip)
        if (found !== undefined) note(reservation, found)
      }
      const left = [...reservations]
      return asks.map((ask, index) => (known[index] === undefined ? undefined : left.shift()) ?? nothing(ask, now))
    },
    noteRefund(ip: string, isp: string): void {
      const day = days.kept(ip)
      if (day === undefined) return
      for (const key of [ALL_ISPS, isp]) {
        day.granted.set(key, Math.max(0, (day.granted.get(key) ?? 0) - 1))
        day.paces.delete(key)
      }
    },
    /** undefined: this IP has no warmup. */
    today(ip: string): DayCount | undefined {
      const known = registry.find(ip)
      if (known === undefined || known.record.stage === null) return undefined
      const day = days.of(known)
      return { rule: day.rule, granted: day.granted.get(ALL_ISPS) ?? 0, grantedByIsp: day.granted }
    },
    /** Reads the counts again; rejects when the store does. */
    async refresh(): Promise<void> {
      const warming = registry.known().filter(({ record }) => record.stage !== null && record.state !== 'warmed')
      for (const known of warming) {
        const day = days.of(known)
        const rows = await store.warmupDays(known.ip.address, day.day)
        day.granted = new Map(rows.filter((row) => row.day === day.day).map((row) => [row.isp, row.granted]))
      }
    },
  }
}

function createIpDays(clock: Clock) {
  const days = new Map<string, IpDay>()
  let date = { number: 0, day: '' }

  function today(): string {
    const number = Math.floor(clock.now() / DAY)
    if (number !== date.number) date = { number, day: utcDay(clock.now()) }
    return date.day
  }

  return {
    kept: (ip: string): IpDay | undefined => days.get(ip),
    /** The day of now; a new one begins with what is known of it. */
    of({ ip: { address }, record: { version, stage }, curve: { curve } }: KnownIp): IpDay {
      const day = today()
      const kept = days.get(address)
      if (kept?.day === day && kept.version === version && kept.curve === curve) return kept
      const granted = kept?.day === day ? kept.granted : new Map<string, number>()
      const rule = allowanceRule(curve, stage ?? 1, day)
      const hourly = hourlyLimitOf(curve, rule.cap)
      const fresh: IpDay = { day, version, curve, rule, hourly, granted, paces: new Map() }
      days.set(address, fresh)
      return fresh
    },
  }
}

function knownPaceOf({ paces }: IpDay, isp: string): KnownPace {
  const pace = paces.get(isp) ?? { arrivalAt: 0, blockedUntil: 0, reason: null }
  paces.set(isp, pace)
  return pace
}

function hopeAt(day: IpDay, isp: string, now: number): Hope {
  const { rule } = day
  const refused = day.paces.get(isp)
  if (refused !== undefined && now < refused.blockedUntil) {
    return { count: 0, nextAt: refused.blockedUntil, waitingFor: refused.reason }
  }
  const isTotal = isp === ALL_ISPS
  if (now < rule.windowFrom) return { count: 0, nextAt: rule.windowFrom, waitingFor: 'warmup_day' }
  const pace = paceOf(day, isp)
  const isOver = now >= rule.windowTo
  const count = isOver ? 0 : conforming(now, pace)
  if (count > 0) return { count, nextAt: null, waitingFor: null }
  const nextAt = nextConforming(now, pace)
  if (nextAt !== null) return { count: 0, nextAt, waitingFor: isTotal ? 'warmup_hour' : 'provider_share' }
  const { from } = windowOf(day.curve, dayAfter(day.day, 1))
  return { count: 0, nextAt: from, waitingFor: isTotal || isOver ? 'warmup_day' : 'provider_share' }
}

/** As the store has it (egress/README.md "Smoothing"): a slower one would leave grants of the day behind. */
function paceOf({ rule, hourly, granted, paces }: IpDay, isp: string): Pace {
  const cap = isp === ALL_ISPS ? rule.cap : (rule.providerCaps[isp] ?? rule.defaultProviderCap)
  const arrivalAt = paces.get(isp)?.arrivalAt ?? 0
  return storedPace({ cap, granted: granted.get(isp) ?? 0, arrivalAt }, rule, hourly)
}

function nothing({ ip, isp }: AllowanceAsk, now: number): Reservation {
  return { ip, isp, day: utcDay(now), at: now, granted: 0, nextAt: null, interval: HOUR, reason: null }
}
