/**
 * An even pace over what is left of a time, with bursts: the generic cell rate algorithm (GCRA) whose interval follows
 * what is still allowed (egress/README.md "Smoothing").
 *
 *   T    interval between two grants: the time left over the grants left, but never shorter than a given one
 *   TAT  theoretical arrival time of the next grant; a grant moves it by T
 *   B    burst: a grant conforms while TAT is at most (B − 1) × T ahead
 *
 * Pure numbers; times in milliseconds of one clock. A clock that goes back grants nothing until it has caught up.
 */

/** What one pace is bound by at a moment. */
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

/** What a division may lose: no grant fails or succeeds by the last bit of a number. */
const ROUNDING = 1e-9

/** T; Infinity when nothing is left. */
export function intervalOf(now: number, { left, endsAt, shortestInterval }: Pace): number {
  return left <= 0 ? Infinity : Math.max(shortestInterval, (endsAt - now) / left)
}

/** How many conform now. */
export function conforming(now: number, pace: Pace): number {
  if (pace.left <= 0) return 0
  const interval = intervalOf(now, pace)
  const tolerance = (pace.burst - 1) * interval
  const count = Math.floor((now + tolerance - Math.max(pace.arrivalAt, now)) / interval + ROUNDING) + 1
  return Math.max(0, Math.min(pace.left, count))
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
