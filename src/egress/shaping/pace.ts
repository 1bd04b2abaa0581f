/**
 * A rate as GCRA: one number, the theoretical arrival time (TAT) of the next token, says everything (egress/README.md
 * "Rates").
 *
 * Never faster than the rate: in any time t at most `burst + t × rate` tokens. A clock that goes back, or a rate that
 * rises, costs at most one burst of waiting. Pure; times are Unix milliseconds.
 */
import { SECOND } from '../../base/clock.ts'
import type { Rate } from '../../config/settings/field-types.ts'
import type { Tokens } from './shaping.ts'

export interface Pace {
  /** Milliseconds between two tokens. */
  interval: number
  /** Tokens that may go at once after a rest; whole, at least 1. */
  burst: number
}

/** TAT; 0: nothing was taken yet. */
export interface PaceState {
  arrivalAt: number
}

const MOST_MESSAGES_AT_ONCE = 100
/** Milliseconds: sums of intervals never come out exactly even. */
const ROUNDING = 1e-3

/** A second's worth at once, 1 to 100 messages. */
export function messagePace({ count, per_milliseconds }: Rate): Pace {
  const interval = per_milliseconds / count
  return { interval, burst: Math.min(Math.max(1, Math.floor((SECOND + ROUNDING) / interval)), MOST_MESSAGES_AT_ONCE) }
}

/** How many tokens there are now. */
export function tokensAt(state: PaceState, { interval, burst }: Pace, now: number): number {
  const arrivalAt = arrivalOf(state, { interval, burst }, now)
  return Math.max(0, Math.floor((now + ROUNDING - arrivalAt) / interval + burst))
}

/** Takes as many of `count` as there are. */
export function takeTokens(state: PaceState, pace: Pace, now: number, count: number): Tokens {
  const granted = Math.min(count, tokensAt(state, pace, now))
  state.arrivalAt = arrivalOf(state, pace, now) + granted * pace.interval
  return { granted, nextAt: granted < count ? nextTokenAt(state, pace, now) : null }
}

/** When there is a token: now, or a whole millisecond later. */
export function nextTokenAt(state: PaceState, pace: Pace, now: number): number {
  const arrivalAt = arrivalOf(state, pace, now)
  const whole = Math.max(now, Math.ceil(arrivalAt - (pace.burst - 1) * pace.interval - ROUNDING))
  // Two ways to the same sum may differ in the last bit, which decides where the time is just at the rounding.
  return tokensAt({ arrivalAt }, pace, whole) > 0 ? whole : whole + 1
}

export function giveTokensBack(state: PaceState, pace: Pace, count: number): void {
  state.arrivalAt -= count * pace.interval
}

/** Never in the past, and never further ahead than a burst reaches. */
function arrivalOf(state: PaceState, { interval, burst }: Pace, now: number): number {
  return Math.min(Math.max(state.arrivalAt, now), now + burst * interval)
}
