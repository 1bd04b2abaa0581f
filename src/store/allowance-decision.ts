/**
 * How much of what was asked a warming IP may send now, and when the rest: by the day's cap and pace, the rolling hour
 * and the active part of the day (egress/README.md "Smoothing" and "Provider shares"). Pure. Whoever writes the grant
 * down must do it together with the reading it was decided by.
 */
import { DAY, HOUR } from '../base/clock.ts'
import { afterGrants, conforming, intervalOf, nextConforming, type Pace } from '../base/pace.ts'
import type { AllowanceRule, Reservation } from './records/warmup-records.ts'

/** A row of the day: of the IP, or of one of its providers. */
export interface DayAllowance {
  cap: number
  granted: number
  /** Theoretical arrival time of the next grant (base/pace.ts). */
  arrivalAt: number
}

/** Grants of the last 60 minutes. */
export interface HourAllowance {
  granted: number
  /** When the oldest of them is an hour old; null: there are none. */
  freesAt: number | null
}

export interface AllowanceState {
  total: DayAllowance
  provider: DayAllowance
  hour: HourAllowance
}

export interface AllowanceDecision extends Pick<Reservation, 'granted' | 'nextAt' | 'interval' | 'reason'> {
  /** By which each grant moves the arrival time. */
  totalInterval: number
  providerInterval: number
}

/** An hour of grants is never limited below this (egress/README.md "Smoothing"). */
const SMALLEST_HOUR = 5

/** Messages an IP with this cap may be granted in any hour. */
export function hourlyLimit(cap: number, hourlyFraction: number): number {
  return roundUp(Math.max(SMALLEST_HOUR, cap * hourlyFraction))
}

/** Most that go at once. */
export function burstOf(cap: number, rule: Pick<AllowanceRule, 'burstFraction' | 'minBurst' | 'maxBurst'>): number {
  return Math.min(rule.maxBurst, Math.max(rule.minBurst, roundUp(cap * rule.burstFraction)))
}

/** Fractions of ten are not exact in binary: 7 % of 100 must not become 8. */
export function roundUp(value: number): number {
  return Math.ceil(value - 1e-9)
}

/** `hourNow`: when a grant of this moment is an hour old. */
export function decideAllowance(
  { now, count, rule, hourNow }: { now: number; count: number; rule: AllowanceRule; hourNow: number },
  { total, provider, hour }: AllowanceState,
): AllowanceDecision {
  const limit = hourlyLimit(total.cap, rule.hourlyFraction)
  const totalPace = paceOf(total, rule, limit)
  const providerPace = paceOf(provider, rule, limit)
  const isActive = now >= rule.windowFrom && now < rule.windowTo
  const granted = isActive
    ? Math.max(0, Math.min(count, limit - hour.granted, conforming(now, totalPace), conforming(now, providerPace)))
    : 0
  const totalAfter = afterGrants(now, totalPace, granted)
  const providerAfter = afterGrants(now, providerPace, granted)
  const hourAfter = { isFull: hour.granted + granted >= limit, freesAt: hour.freesAt ?? hourNow }
  const after = { total: totalAfter, provider: providerAfter, hour: hourAfter }
  const wait = granted < count ? nextTime(now, rule, after) : null
  return {
    granted,
    // With less left than a burst one more may conform by the new interval: at the next look, never in the same moment.
    nextAt: wait === null ? null : Math.max(now + 1, wait.at),
    reason: wait?.reason ?? null,
    interval: intervalAfter(now, rule, total.cap, [totalAfter, providerAfter]),
    totalInterval: intervalOf(now, totalPace),
    providerInterval: intervalOf(now, providerPace),
  }
}

/** `limit`: of the rolling hour. */
export function paceOf({ cap, granted, arrivalAt }: DayAllowance, rule: AllowanceRule, limit: number): Pace {
  const burst = burstOf(cap, rule)
  return { left: cap - granted, burst, arrivalAt, endsAt: rule.windowTo, shortestInterval: HOUR / limit }
}

/** Of the slower one; when the day is used up, of a whole new one. */
function intervalAfter(now: number, rule: AllowanceRule, cap: number, paces: readonly Pace[]): number {
  const slower = Math.max(...paces.map((pace) => intervalOf(now, pace)))
  return Number.isFinite(slower) ? slower : (rule.windowTo - rule.windowFrom) / Math.max(1, cap)
}

interface Wait {
  at: number
  reason: NonNullable<Reservation['reason']>
}

/** When the first one more can be granted, by the guard that lets it go last. */
function nextTime(
  now: number,
  { windowFrom, windowTo }: AllowanceRule,
  { total, provider, hour }: { total: Pace; provider: Pace; hour: { isFull: boolean; freesAt: number } },
): Wait {
  if (now < windowFrom) return { at: windowFrom, reason: 'warmup_day' }
  const nextDay = windowFrom + DAY
  if (now >= windowTo || total.left <= 0) return { at: nextDay, reason: 'warmup_day' }
  if (provider.left <= 0) return { at: nextDay, reason: 'provider_share' }
  let latest: Wait = { at: nextConforming(now, total) ?? nextDay, reason: 'warmup_hour' }
  if (hour.isFull && hour.freesAt > latest.at) latest = { at: hour.freesAt, reason: 'warmup_hour' }
  const providerAt = nextConforming(now, provider) ?? nextDay
  if (providerAt > latest.at) latest = { at: providerAt, reason: 'provider_share' }
  if (latest.at < windowTo) return latest
  return { at: nextDay, reason: latest.reason === 'provider_share' ? 'provider_share' : 'warmup_day' }
}
