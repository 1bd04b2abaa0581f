/**
 * Suspensions that grow while blocks come back, with a half-open time after each: of a path, of a lane, of an IP
 * (egress/README.md "Suspension ladder"). The step falls by one for every 24 h without a block. Pure; times are Unix
 * milliseconds.
 */
import { DAY, HOUR, MINUTE } from '../../base/clock.ts'

export interface Suspension {
  since: number
  until: number
  /** Id of the reply rule; null: blocks that no rule knows. */
  rule: string | null
  cause: string
  /** It counts for the suspension of the whole IP. */
  isBlock: boolean
}

export interface Ladder {
  /** 0: none. */
  step: number
  blockedAt: number
  /** Also while half-open: then its time is over. */
  suspension: Suspension | null
  /** Messages that passed since it became half-open. */
  passed: number
}

/** Steps of a path: what the n-th suspension lasts, unless a rule says it. */
export const PATH_STEPS = [15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR]
export const LANE_STEPS = [HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR]
export const IP_STEPS = [HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, DAY]
/** Messages that pass one at a time before it is open. */
const PROBES = 3

export function newLadder(): Ladder {
  return { step: 0, blockedAt: 0, suspension: null, passed: 0 }
}

export function stepAt({ step, blockedAt }: Ladder, now: number): number {
  return Math.max(0, step - Math.floor(Math.max(0, now - blockedAt) / DAY))
}

export function isSuspended({ suspension }: Ladder, now: number): boolean {
  return suspension !== null && suspension.until > now
}

export function isHalfOpen({ suspension }: Ladder, now: number): boolean {
  return suspension !== null && suspension.until <= now
}

export interface Block extends Pick<Suspension, 'rule' | 'cause' | 'isBlock'> {
  now: number
  steps: readonly number[]
  /** What the rule says; null: by the ladder. */
  duration: number | null
}

/** Suspends, for longer than last time when it was half-open. Nothing while it is suspended: that is the same block. */
export function suspend(ladder: Ladder, block: Block): Suspension | null {
  const { now, steps, rule, cause, isBlock } = block
  if (isSuspended(ladder, now)) return null
  const former = ladder.suspension
  const duration = former === null ? firstDuration(ladder, block) : nextDuration(former, steps)
  ladder.step = Math.max(stepAt(ladder, now), stepFor(duration, steps))
  ladder.blockedAt = now
  ladder.passed = 0
  ladder.suspension = { since: now, until: now + duration, rule, cause, isBlock }
  return ladder.suspension
}

/** A message went through while half-open; true: it is open now. */
export function notePassed(ladder: Ladder): boolean {
  ladder.passed++
  if (ladder.passed < PROBES) return false
  lift(ladder)
  return true
}

export function lift(ladder: Ladder): void {
  ladder.suspension = null
  ladder.passed = 0
}

function firstDuration(ladder: Ladder, { now, steps, duration }: Block): number {
  return duration ?? steps[Math.min(stepAt(ladder, now), steps.length - 1)] ?? 0
}

/** The first step that is longer; what is longer than all of them stays as it is. */
function nextDuration({ since, until }: Suspension, steps: readonly number[]): number {
  const former = until - since
  return steps.find((step) => step > former) ?? Math.max(former, steps.at(-1) ?? 0)
}

/** The highest step that lasts no longer, at least the first. */
function stepFor(duration: number, steps: readonly number[]): number {
  return Math.max(1, steps.filter((step) => step <= duration).length)
}
