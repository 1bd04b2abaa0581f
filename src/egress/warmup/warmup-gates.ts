/**
 * The gates of the warmup: what the figures of a day, or of the last hour, say (egress/README.md "Gates"). A limit
 * counts as reached from the limit itself on. A rate of nothing reaches no limit. Pure.
 */
import type { WarmupCurve } from '../../config/settings/warmup-settings.ts'
import type { IpHealth, WarmupDay } from '../../store/records/warmup-records.ts'

/** Of messages first tried on the day; `deliveredBefore`: delivered of the two days before. */
export type DayFigures = Omit<WarmupDay, 'ip' | 'day' | 'isp' | 'refunded'> & {
  deliveredBefore: number
  /** It was paused or suspended for a part of the day. */
  hadPause: boolean
}

export interface DayVerdict {
  kind: 'demote' | 'hold' | 'advance'
  /**
   * Null with advance; else a first word and figures. Of health: `hard_bounce`, `complaint`, `deferral`; `delivery`:
   * too much of what ended was not delivered; `pause`; `idle`: no mail; `volume`: too little mail to judge by;
   * `utilization`: too little of the cap was used.
   */
  reason: string | null
  /** Nothing speaks against the mail itself: too little of it is no fault. */
  isHealthy: boolean
  rates: Rates
}

interface Rates {
  utilization: number
  delivery: number | null
  hardBounce: number
  complaint: number
  deferral: number
}

type Gates = Pick<WarmupCurve, 'advance' | 'hold' | 'demote'>

export function judgeDay(figures: DayFigures, gates: Gates): DayVerdict {
  const rates = ratesOf(figures)
  for (const kind of ['demote', 'hold'] as const) {
    const reason = reachedLimit(figures, rates, gates[kind])
    if (reason !== null) return { kind, reason, isHealthy: false, rates }
  }
  const unready = whyNotAdvance(figures, rates, gates.advance)
  if (unready === null) return { kind: 'advance', reason: null, isHealthy: true, rates }
  const isHealthy = !unready.startsWith('delivery') && !unready.startsWith('pause')
  return { kind: 'hold', reason: unready, isHealthy, rates }
}

/** Of the reason for which a day was held, as the audit has it: too little mail, and nothing of its health. */
export function isLackOfMail(reason: string | null): boolean {
  return /^(stall: [^;]*; )?(idle|volume|utilization|target):/.test(reason ?? '')
}

/** Why the last hour pauses the IP, or null. */
export function judgeHour(health: IpHealth, limits: WarmupCurve['pause']): string | null {
  const { firstAttempts, hard, complained, delivered } = health
  if (firstAttempts < limits.min_events) return null
  const causes = [
    { kind: 'hard_bounce', count: hard, of: firstAttempts, whom: 'first attempts', limit: limits.hard_bounce },
    { kind: 'complaint', count: complained, of: delivered, whom: 'delivered', limit: limits.complaint },
  ]
  const found = causes.find(
    (each) => each.count >= limits.min_count && reaches(shareOf(each.count, each.of), each.limit),
  )
  if (found === undefined) return null
  return `${found.kind}: ${found.count} of ${found.of} ${found.whom} in an hour, limit ${percent(found.limit)}`
}

function ratesOf(figures: DayFigures): Rates {
  const { cap, granted, firstAttempts, delivered, hard, soft, block, undetermined, deferred, complained } = figures
  const ended = delivered + hard + soft + block + undetermined
  return {
    utilization: shareOf(granted, cap),
    delivery: ended === 0 ? null : delivered / ended,
    hardBounce: shareOf(hard, firstAttempts),
    complaint: shareOf(complained, delivered + figures.deliveredBefore),
    deferral: shareOf(deferred, firstAttempts),
  }
}

type HealthLimits = Pick<WarmupCurve['hold'], 'hard_bounce' | 'complaint' | 'deferral' | 'min_count'>

function reachedLimit(figures: DayFigures, rates: Rates, limits: HealthLimits): string | null {
  const causes = [
    { kind: 'hard_bounce', count: figures.hard, rate: rates.hardBounce, limit: limits.hard_bounce },
    { kind: 'complaint', count: figures.complained, rate: rates.complaint, limit: limits.complaint },
    { kind: 'deferral', count: figures.deferred, rate: rates.deferral, limit: limits.deferral },
  ] as const
  const reached = causes.find(({ count, rate, limit }) => count >= limits.min_count && reaches(rate, limit))
  return reached === undefined ? null : `${reached.kind}: ${percent(reached.rate)}, limit ${percent(reached.limit)}`
}

function whyNotAdvance(figures: DayFigures, rates: Rates, limits: WarmupCurve['advance']): string | null {
  const { granted, cap, hadPause } = figures
  if (hadPause) return 'pause: it was paused for a part of the day'
  if (granted === 0) return 'idle: no mail'
  if (granted < limits.min_events) return `volume: ${granted} messages, at least ${limits.min_events} are needed`
  if (!reaches(rates.utilization, limits.min_utilization)) {
    return `utilization: ${granted} of ${cap}, at least ${percent(limits.min_utilization)} is needed`
  }
  if (rates.delivery === null) return 'delivery: nothing has ended yet'
  if (!reaches(rates.delivery, limits.min_delivery_rate)) {
    return `delivery: ${percent(rates.delivery)}, at least ${percent(limits.min_delivery_rate)} is needed`
  }
  return null
}

function shareOf(count: number, of: number): number {
  return count === 0 ? 0 : count / Math.max(of, 1)
}

/** Quotients of whole numbers and decimal limits differ in the last binary digit. */
function reaches(rate: number, limit: number): boolean {
  return rate >= limit - 1e-12
}

function percent(rate: number): string {
  return `${Number((rate * 100).toFixed(2))} %`
}
