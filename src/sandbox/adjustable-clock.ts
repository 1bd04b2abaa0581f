/**
 * Application time: it runs faster than real time when told to, can jump ahead, and never goes back, not even when the
 * system's clock does. When speed or time changes, every timer is armed anew; those that fell due are called in the
 * order of their times. ServiceError for a speed that cannot be.
 */
import { MINUTE } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'

export type AdjustableClock = ReturnType<typeof createAdjustableClock>

interface AdjustableClockOptions {
  speed: number
  /** How far ahead of the system's clock it starts, in milliseconds: as far as it was when it was last looked at. */
  ahead: number
  /** Unix milliseconds of real time. */
  systemNow?: () => number
}

interface Timer {
  /** Application time. */
  at: number
  callback: () => void
  handle?: NodeJS.Timeout
}

/** sandbox/README.md "The sandbox". */
export const LOWEST_SPEED = 1
const HIGHEST_SPEED = 100_000
/** No wait of setTimeout is longer, so that a system clock that jumps, or a machine that slept, is seen soon. */
const LONGEST_TIMEOUT = MINUTE

export function createAdjustableClock(options: AdjustableClockOptions) {
  const { systemNow = () => Date.now() } = options
  const timers = new Set<Timer>()
  let { speed } = options
  /** Application time was `shown` when the system's clock said `systemAt`. */
  let systemAt = systemNow()
  let shown = systemAt + options.ahead
  let latest = shown

  const timeAt = (system: number): number => {
    latest = Math.max(latest, Math.floor(shown + (system - systemAt) * speed))
    return latest
  }
  const now = (): number => timeAt(systemNow())
  const arm = (timer: Timer): void => {
    clearTimeout(timer.handle)
    const milliseconds = Math.ceil((timer.at - now()) / speed)
    timer.handle = setTimeout(() => fire(timer), Math.min(Math.max(0, milliseconds), LONGEST_TIMEOUT))
  }
  function fire(timer: Timer): void {
    if (timer.at > now()) return arm(timer)
    timers.delete(timer)
    timer.callback()
  }
  const change = (jump: number, newSpeed: number): void => {
    const system = systemNow()
    shown = timeAt(system) + jump
    systemAt = system
    speed = newSpeed
    // Timers of equal delay are called in the order in which they were set.
    for (const timer of [...timers].sort((left, right) => left.at - right.at)) arm(timer)
  }

  return {
    now,
    /** Application seconds in one real second. */
    speed: () => speed,
    /** How far application time is ahead of the system's clock, in milliseconds; never negative. */
    ahead(): number {
      const system = systemNow()
      return Math.max(0, timeAt(system) - system)
    },
    after(delayMilliseconds: number, callback: () => void): () => void {
      const timer: Timer = { at: now() + Math.max(0, delayMilliseconds), callback }
      timers.add(timer)
      arm(timer)
      return () => {
        clearTimeout(timer.handle)
        timers.delete(timer)
      }
    },
    /** From now on; LOWEST_SPEED to HIGHEST_SPEED. */
    setSpeed(wanted: number): void {
      if (wanted < 0) throw new ServiceError('conflict', 'speed: time never goes backwards')
      if (!(wanted >= LOWEST_SPEED && wanted <= HIGHEST_SPEED)) {
        throw new ServiceError('invalid_request', `speed: must be a number from ${LOWEST_SPEED} to ${HIGHEST_SPEED}`)
      }
      change(0, wanted)
    },
    /** Jumps ahead by so many milliseconds; a negative number does nothing. */
    advance: (milliseconds: number) => change(Math.max(0, milliseconds), speed),
  }
}
