/**
 * Whether the machine's clock can be trusted just now (test/README.md "Clock"): what must not happen because of a jump
 * waits until the clock was steady for a while. Never throws.
 */
import { MINUTE, SECOND, type Clock } from './clock.ts'
import type { Logger } from './logger.ts'

interface ClockWatchOptions {
  clock: Clock
  /** Milliseconds of a clock that no one can set. */
  monotonic: () => number
  logger: Logger
}

const LOOK_EVERY = 5 * SECOND
const JUMP = 5 * SECOND
const LARGE_JUMP = 5 * MINUTE
const STEADY_AFTER = 10 * MINUTE

export function createClockWatch({ clock, monotonic, logger }: ClockWatchOptions) {
  let last = { wall: 0, monotonic: 0 }
  let unsteadyUntil = -Infinity
  let cancel = (): void => {}

  function look(): void {
    const now = { wall: clock.now(), monotonic: monotonic() }
    const jump = now.wall - last.wall - (now.monotonic - last.monotonic)
    last = now
    if (Math.abs(jump) > JUMP) logger.error({ jump_ms: Math.round(jump) }, 'the clock of this machine has jumped')
    if (Math.abs(jump) > LARGE_JUMP) unsteadyUntil = now.monotonic + STEADY_AFTER
    cancel = clock.after(LOOK_EVERY, look)
  }

  return {
    start(): void {
      last = { wall: clock.now(), monotonic: monotonic() }
      cancel = clock.after(LOOK_EVERY, look)
    },
    isSteady: (): boolean => monotonic() >= unsteadyUntil,
    stop: (): void => cancel(),
  }
}
