/**
 * Why a process ends, on standard error. In the journal each line has the priority of an error, so that `journalctl -p
 * err` shows what ended a server; elsewhere it is plain text. Never throws.
 */
import { isJournal, PRIORITY } from './logger.ts'

const STANDARD_ERROR = 2

/** `text` ends with a line end. */
export function printProblem(text: string): void {
  process.stderr.write(problemText(text, isJournal(process.env['JOURNAL_STREAM'], STANDARD_ERROR)))
}

export function problemText(text: string, isForJournal: boolean): string {
  // At the start of each line that holds something.
  return isForJournal ? text.replace(/^(?=.)/gm, `<${PRIORITY.error}>`) : text
}
