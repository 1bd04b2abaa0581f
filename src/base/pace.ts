/**
 * Paces with bursts, by the generic cell rate algorithm (GCRA): one number, the theoretical arrival time (TAT) of the
 * next grant, says how far a pace has been used.
 *
 *   T    interval between two grants
 *   B    burst: a grant conforms while TAT is at most (B − 1) × T ahead; each grant moves TAT by T
 *
 * `SteadyPace` has one interval for ever (egress/README.md "Rates"). `Pace` spreads what is left over the time that is
 * left, so that its interval follows what is still allowed (egress/README.md "Smoothing"). Pure; times in milliseconds.
 */

/** T, and B: whole, at least 1. */
export interface SteadyPace {
  interval: number
  burst: number
}

/** TAT; 0: nothing was taken yet. */
export interface PaceState {
  arrivalAt: number
}

/** How many may go now, and when the next one may if those are fewer than asked for. */
export interface Tokens {
  granted: number
  /** null: all were granted. */
  nextAt: number | null
}

/** What one pace over the rest of a time is bound by at a moment. */
export interface Pace {
  /** Grants left until the end; never negative. */
  left: number
  /** B, at least 1. */
  burst: number
  /** TAT; 0 before the first grant. */
  arrivalAt: number
  /** When the time is over in which the rest may go. */
  endsAt: number
  /** T is never shorter. */
  shortestInterval: number
}

/** Milliseconds that sums and quotients may lose: no grant fails or succeeds by the last bit of a number. */
const ROUNDING = 1e-3

/** How many conform now. */
export function tokensAt({ arrivalAt }: PaceState, { interval, burst }: SteadyPace, now: number): number {
  return countAt(arrivalAt, interval, burst, now)
}

/** Takes as many of `count` as there are. */
export function takeTokens(state: PaceState, pace: SteadyPace, now: number, count: number): Tokens {
  const granted = Math.min(count, tokensAt(state, pace, now))
  state.arrivalAt = usableArrival(state, pace, now) + granted * pace.interval
  return { granted, nextAt: granted < count ? nextTokenAt(state, pace, now) : null }
}

/** When one conforms: now, or a whole millisecond later. */
export function nextTokenAt(state: PaceState, pace: SteadyPace, now: number): number {
  const arrivalAt = usableArrival(state, pace, now)
  const whole = Math.max(now, Math.ceil(arrivalAt - (pace.burst - 1) * pace.interval - ROUNDING))
  // Two ways to the same sum may differ in the last bit, which decides where the time is just at the rounding.
  return countAt(arrivalAt, pace.interval, pace.burst, whole) > 0 ? whole : whole + 1
}

export function giveTokensBack(state: PaceState, pace: SteadyPace, count: number): void {
  state.arrivalAt -= count * pace.interval
}

/** T of a pace over the rest of a time; Infinity when nothing is left. */
export function intervalOf(now: number, { left, endsAt, shortestInterval }: Pace): number {
  return left <= 0 ? Infinity : Math.max(shortestInterval, (endsAt - now) / left)
}

/** How many conform now. A clock that went back grants nothing until it has caught up. */
export function conforming(now: number, pace: Pace): number {
  if (pace.left <= 0) return 0
  return Math.min(pace.left, countAt(pace.arrivalAt, intervalOf(now, pace), pace.burst, now))
}

/** The pace after so many grants. */
export function afterGrants(now: number, pace: Pace, count: number): Pace {
  if (count === 0) return pace
  const arrivalAt = Math.max(pace.arrivalAt, now) + count * intervalOf(now, pace)
  return { ...pace, arrivalAt, left: pace.left - count }
}

/**
 * When the next one conforms, in whole milliseconds: `now`, later, or null when not before the end. T shrinks while
 * nothing is granted, and with it the tolerance: what is solved is TAT − t = (B − 1) × T(t).
 */
export function nextConforming(now: number, pace: Pace): number | null {
  const { left, burst, arrivalAt, endsAt, shortestInterval } = pace
  if (left <= 0 || now >= endsAt) return null
  if (conforming(now, pace) > 0) return now
  const ahead = burst - 1
  // T cannot shrink below the shortest: from then on only the distance to TAT falls.
  const atShortest = arrivalAt - ahead * shortestInterval
  // With fewer left than a burst the tolerance falls faster than the distance: waiting for it is in vain.
  const atShrinking = left > ahead ? (arrivalAt * left - ahead * endsAt) / (left - ahead) : Infinity
  const at = Math.max(now + 1, Math.ceil(Math.min(atShortest, atShrinking)))
  return at < endsAt ? at : null
}

function countAt(arrivalAt: number, interval: number, burst: number, now: number): number {
  return Math.max(0, Math.floor((now + ROUNDING - Math.max(arrivalAt, now)) / interval + burst))
}

/** Never in the past, nor further ahead than a burst reaches: a clock that goes back costs at most one burst. */
function usableArrival({ arrivalAt }: PaceState, { interval, burst }: SteadyPace, now: number): number {
  return Math.min(Math.max(arrivalAt, now), now + burst * interval)
}
