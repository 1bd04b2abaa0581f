/**
 * Time as an argument: every schedule (retry, expiry, lease, webhook delay, upkeep) reads the clock it was given.
 * Socket timeouts do not use it: they run in real time. Never throws.
 */
export const SECOND = 1_000
export const MINUTE = 60 * SECOND
export const HOUR = 60 * MINUTE
export const DAY = 24 * HOUR

export interface Clock {
  /** Unix time in milliseconds. */
  now(): number
  /** Calls back once when `delayMilliseconds` have passed on this clock; the returned function cancels. */
  after(delayMilliseconds: number, callback: () => void): () => void
}

/** setTimeout turns longer delays into 1 ms; a longer wait is taken in several steps. */
const LONGEST_TIMEOUT_MILLISECONDS = 2 ** 31 - 1

export const systemClock: Clock = {
  now: () => Date.now(),
  after(delayMilliseconds, callback) {
    let timer: NodeJS.Timeout
    const wait = (left: number): void => {
      const step = Math.min(Math.max(left, 0), LONGEST_TIMEOUT_MILLISECONDS)
      timer = setTimeout(() => (left > step ? wait(left - step) : callback()), step)
    }
    wait(delayMilliseconds)
    return () => clearTimeout(timer)
  },
}

/** Milliseconds to whole Unix seconds, the unit of the API. */
export function toUnixSeconds(milliseconds: number): number {
  return Math.floor(milliseconds / SECOND)
}

/** The same of a time that may not be there. */
export function secondsOrNull(milliseconds: number | null): number | null {
  return milliseconds === null ? null : toUnixSeconds(milliseconds)
}
