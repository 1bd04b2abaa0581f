/**
 * A clock moved by hand. Timers fire in order of their time while it advances, and after each one the event loop gets
 * a turn, so that what a timer started can set the next timer.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Clock } from '../../src/base/clock.ts'

export interface ManualClock extends Clock {
  advance(milliseconds: number): Promise<void>
  /** It is set to another time: timers know nothing of it, as those of a machine. */
  set(milliseconds: number): void
}

const SOME_DAY = Date.UTC(2026, 10, 21, 12)

export function manualClock(startMilliseconds: number = SOME_DAY): ManualClock {
  let now = startMilliseconds
  let timers: { at: number; callback: () => void }[] = []

  const nextDue = (end: number): { at: number; callback: () => void } | undefined =>
    timers.filter((timer) => timer.at <= end).sort((left, right) => left.at - right.at)[0]

  return {
    now: () => now,
    after(delayMilliseconds, callback) {
      const timer = { at: now + Math.max(0, delayMilliseconds), callback }
      timers.push(timer)
      return () => {
        timers = timers.filter((other) => other !== timer)
      }
    },
    set(milliseconds) {
      timers = timers.map((timer) => Object.assign(timer, { at: timer.at + milliseconds - now }))
      now = milliseconds
    },
    async advance(milliseconds) {
      const end = now + milliseconds
      for (let due = nextDue(end); due !== undefined; due = nextDue(end)) {
        const fired = due
        timers = timers.filter((other) => other !== fired)
        now = Math.max(now, fired.at)
        fired.callback()
        await nextTurn()
      }
      now = end
      await nextTurn()
    },
  }
}
