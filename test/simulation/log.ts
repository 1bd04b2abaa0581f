/**
 * The log of a simulated process: nothing is written, warnings and errors are heard.
 */
import type { Logger } from '../../src/base/logger.ts'

export type HearLog = (phrase: string, fields: Record<string, unknown>) => void

export function quietLogger(hear: HearLog): Logger {
  const nothing = (): void => {}
  const tell = (fields: Record<string, unknown>, phrase: string): void => hear(phrase, fields)
  const logger = {
    debug: nothing,
    info: nothing,
    trace: nothing,
    warn: tell,
    error: tell,
    fatal: tell,
    level: 'warn',
    child: () => logger,
  }
  return logger as unknown as Logger
}
