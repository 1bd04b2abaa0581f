/**
 * Failures of a database that may pass by themselves, so that another start is worth it (systemd/README.md "The unit").
 * Pure.
 */
import { errorCode, errorText, EXIT, ProcessExit, ServiceError } from '../base/errors.ts'
import type { Store } from './store.ts'

const OF_THE_DISK = /^SQLITE_(?:FULL|IOERR)/
// A shell of SQLite may hold its lock; a server of PostgreSQL may be away.
const OF_OTHERS = /^(?:SQLITE_BUSY|unavailable$)/

/** The store has said in the log why it fails: what is tried every few seconds need not repeat it. */
export function isSaidByStore(store: Pick<Store, 'problem' | 'refusal'>, thrown: unknown): boolean {
  const isOfStore = thrown instanceof ServiceError && thrown.code === 'unavailable'
  return isOfStore && (store.problem() ?? store.refusal()) !== null
}

/** undefined: it does not pass by itself. */
export function passingExitCode(thrown: unknown): number | undefined {
  const code = errorCode(thrown)
  if (OF_THE_DISK.test(code)) return EXIT.disk
  return OF_OTHERS.test(code) ? EXIT.tryAgain : undefined
}

/** Of a start whose store had opened: a ProcessExit where the failure may pass, else the failure itself. */
export function startProblem(thrown: unknown): unknown {
  const exitCode = passingExitCode(thrown)
  if (exitCode === undefined) return thrown
  const text = errorText(thrown)
  const sentence =
    exitCode === EXIT.disk
      ? `the database cannot be written: ${errorCode(thrown)}: ${text}; look at the space on its disk`
      : `the database cannot be used yet: ${text}`
  return new ProcessExit(exitCode, sentence, { cause: thrown })
}
