/**
 * How much is logged: `log.level`, or for a while more of it, as an administrator asked for, without a restart. A
 * reload that changes `log.level` ends what was asked for. Never throws.
 */
import type { Clock } from '../base/clock.ts'
import type { Logger, LogLevel } from '../base/logger.ts'
import type { LiveConfiguration } from '../config/live-configuration.ts'

export type LogLevelKeeper = ReturnType<typeof createLogLevelKeeper>

interface LogLevelOptions {
  setLevel: (level: LogLevel) => void
  live: LiveConfiguration
  /** Of the real world: somebody looks on. */
  clock: Clock
  logger: Logger
}

const LEVELS: readonly LogLevel[] = ['debug', 'info', 'warn', 'error', 'silent']

export function createLogLevelKeeper({ setLevel, live, clock, logger }: LogLevelOptions) {
  let configured = live.current().server.log.level
  let cancel = (): void => {}

  function restore(): void {
    cancel()
    setLevel(configured)
  }

  live.onChange(() => {
    const { level } = live.current().server.log
    if (level === configured) return
    configured = level
    restore()
  })

  return {
    /**
     * A second call takes the place of the first. Who asks for less than `log.level` gets that: nobody can hide what
     * the configuration wants kept. Returns what is in force now, and its end in Unix milliseconds.
     */
    raise(asked: LogLevel, milliseconds: number): { level: LogLevel; until: number } {
      const level = LEVELS.find((each) => each === asked || each === configured) ?? configured
      cancel()
      setLevel(level)
      const until = clock.now() + milliseconds
      logger.info({ log_level: level, until }, 'log level changed for a while')
      cancel = clock.after(milliseconds, () => {
        restore()
        logger.info({ log_level: configured }, 'log level as configured again')
      })
      return { level, until }
    },
    stop: (): void => cancel(),
  }
}
