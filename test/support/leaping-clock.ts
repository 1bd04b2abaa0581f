/**
 * A clock that runs with real time and can be moved ahead: for the whole program over hours and days, while its sockets
 * and threads go on.
 */
import type { Clock } from '../../src/base/clock.ts'

export interface LeapingClock extends Clock {
  /** Moves ahead at once; timers that fall due are called back. */
  leap(milliseconds: number): void
}

interface Timer {
  at: number
  callback: () => void
  handle?: NodeJS.Timeout
}

/** setTimeout turns longer delays into 1 ms; a timer that is called too early is armed again. */
const LONGEST_TIMEOUT_MILLISECONDS = 2 ** 31 - 1

/** `ahead`: by so many milliseconds it is before the time of this machine at its start. */
export function leapingClock(ahead = 0): LeapingClock {
  const timers = new Set<Timer>()
  const now = (): number => Date.now() + ahead

  function arm(timer: Timer): void {
    clearTimeout(timer.handle)
    timer.handle = setTimeout(() => fire(timer), Math.min(Math.max(0, timer.at - now()), LONGEST_TIMEOUT_MILLISECONDS))
  }
  function fire(timer: Timer): void {
    if (timer.at > now()) {
      arm(timer)
      return
    }
    timers.delete(timer)
    timer.callback()
  }

  return {
    now,
    after(delayMilliseconds, callback) {
      const timer: Timer = { at: now() + delayMilliseconds, callback }
      timers.add(timer)
      arm(timer)
      return () => {
        clearTimeout(timer.handle)
        timers.delete(timer)
      }
    },
    leap(milliseconds) {
      ahead += milliseconds
      for (const timer of timers) arm(timer)
    },
  }
}
