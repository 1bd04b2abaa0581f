/**
 * How long a path is left alone after its hosts did not answer (egress/README.md "Back-off of a path"): open, waiting,
 * then probing with one message, until a host answers. Pure; times are Unix milliseconds.
 */
import { MINUTE } from '../../base/clock.ts'

export interface BackOff {
  failures: number
  /** Waits since it worked; above 0 while it waits or probes. */
  step: number
  since: number
  until: number
  reason: string
  hasWorked: boolean
}

/** Waits between tries of a path that does not answer; the last repeats. */
export const PATH_WAITS = [1, 2, 5, 10, 15, 30, 60].map((minutes) => minutes * MINUTE)
/** A path that never worked since the start is left alone sooner. */
const FAILURES_OF_NEW_PATH = 3

export function newBackOff(): BackOff {
  return { failures: 0, step: 0, since: 0, until: 0, reason: '', hasWorked: false }
}

export function waitLeft({ until }: BackOff, now: number): number {
  return Math.max(0, until - now)
}

export function isProbing(state: BackOff, now: number): boolean {
  return state.step > 0 && waitLeft(state, now) === 0
}

/** `allowed`: `failures` of providers.yaml; `usable`: connections the path may have now, with this failure. */
type PathTrouble = { now: number; reason: string; allowed: number; usable: number }

/** True: it waits now, longer than before. */
export function noteFailure(state: BackOff, { now, reason, allowed, usable }: PathTrouble): boolean {
  // Connections that were under way when the wait began bring no news.
  if (waitLeft(state, now) > 0) return false
  state.failures++
  state.reason = reason
  const enough = state.hasWorked ? allowed : Math.min(allowed, FAILURES_OF_NEW_PATH)
  if (state.failures < enough || usable > 1) return false
  state.since = now
  state.until = now + (PATH_WAITS[Math.min(state.step, PATH_WAITS.length - 1)] ?? 0)
  state.step++
  return true
}

/** A host answered: all is forgotten. True: something was. */
export function noteAnswer(state: BackOff): boolean {
  const hadTrouble = state.failures > 0
  Object.assign(state, newBackOff(), { hasWorked: true })
  return hadTrouble
}
