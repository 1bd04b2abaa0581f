/**
 * Whether the machine's clock can be trusted just now (test/README.md "Clock"): what must not happen because of a jump
 * waits until the clock was steady for a while. Never throws.
 */
import { DAY, HOUR, MINUTE, SECOND, type Clock } from './clock.ts'
import { RestartNeeded } from './errors.ts'
import type { Logger } from './logger.ts'

interface ClockWatchOptions {
  clock: Clock
  /** Milliseconds of a clock that no one can set. */
  monotonic: () => number
  logger: Logger
  /** Waits in memory would end as much later. A new start reads every time again. */
  onSetBack: (reason: Error) => void
}

const LOOK_EVERY = 5 * SECOND
const JUMP = 5 * SECOND
const LARGE_JUMP = 5 * MINUTE
const STEADY_AFTER = 10 * MINUTE
/** At a start: further from the newest mail than a server is idle, and as long as a machine may need for its time. */
const LONG_SILENCE = 30 * DAY
const TIME_IS_SET_WITHIN = HOUR

/**
 * False for a while after a jump of the machine's clock: nothing may end by time. A jump counts for ten minutes, or so
 * many milliseconds.
 */
export type IsClockSteady = (since?: number) => boolean

export function createClockWatch({ clock, monotonic, logger, onSetBack }: ClockWatchOptions) {
  let last = { wall: 0, monotonic: 0 }
  let jumpedAt = -Infinity
  let doubtedUntil = -Infinity
  let cancel = (): void => {}

  function look(): void {
    const now = { wall: clock.now(), monotonic: monotonic() }
    const jump = now.wall - last.wall - (now.monotonic - last.monotonic)
    last = now
    if (Math.abs(jump) > JUMP) logger.error({ jump_ms: Math.round(jump) }, 'the clock of this machine has jumped')
    if (Math.abs(jump) > LARGE_JUMP) jumpedAt = now.monotonic
    if (jump < -LARGE_JUMP)
      onSetBack(new RestartNeeded('the clock of this machine was set back: the server has to start again'))
  }
  function lookAgain(): void {
    cancel = clock.after(LOOK_EVERY, () => {
      look()
      lookAgain()
    })
  }

  return {
    /** `newestAt`: the time of the newest mail that is stored; null: there is none. */
    start(newestAt: number | null = null): void {
      last = { wall: clock.now(), monotonic: monotonic() }
      const ahead = newestAt === null ? 0 : last.wall - newestAt
      if (Math.abs(ahead) > LONG_SILENCE) {
        const days = Math.round(ahead / DAY)
        logger.warn({ days }, 'the clock is far from the newest mail: for an hour nothing ends by time')
        doubtedUntil = last.monotonic + TIME_IS_SET_WITHIN
      }
      lookAgain()
    },
    /** Without a large jump for so many milliseconds, up to now. */
    isSteady(since = STEADY_AFTER): boolean {
      look()
      return last.monotonic >= Math.max(jumpedAt + since, doubtedUntil)
    },
    stop: (): void => cancel(),
  }
}
