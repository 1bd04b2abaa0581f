/**
 * The log: one JSON line per fact on standard output (operations.md 9).
 *
 * The message is a fixed phrase; all that varies is a field named as in the database. Secrets never reach a log call;
 * the redaction list is the second fence. Control characters are escaped by JSON, so one fact is one line. Under
 * journald each line carries its priority. The lines of one turn of the event loop are one write; what is gathered is
 * written when the process exits, also by `process.exit` and after an uncaught error, so that only a kill can lose it.
 */
import { pino } from 'pino'
import type { Logger } from 'pino'

export type { Logger } from 'pino'
export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent'

/** syslog priorities that journald reads from a `<N>` in front of the line. */
const PRIORITY: Record<string, number> = { debug: 7, info: 6, warn: 4, error: 3, fatal: 2 }
/** Characters. */
const MOST_GATHERED = 64 * 1024
const REDACTED = ['key', 'secret', 'authorization', 'password', 'private_key', 'token', '*.secret', '*.authorization']

export function createLogger(options: { level: LogLevel; write?: (line: string) => void }): Logger {
  const write = options.write ?? writeToStdout
  const underJournald = process.env['JOURNAL_STREAM'] !== undefined && options.write === undefined
  return pino(
    {
      level: options.level,
      base: null,
      messageKey: 'msg',
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: REDACTED, censor: '[redacted]' },
    },
    { write: (line: string) => write(underJournald ? withPriority(line) : line) },
  )
}

function withPriority(line: string): string {
  const level = /^\{"level":"(\w+)"/.exec(line)?.[1] ?? 'info'
  return `<${PRIORITY[level] ?? 6}>${line}`
}

const writeToStdout = gatherLines((text) => void process.stdout.write(text))

/** Writes at the end of the turn of the event loop, or when this much has come together. */
function gatherLines(write: (text: string) => void): (line: string) => void {
  let gathered = ''
  const flush = (): void => {
    const text = gathered
    gathered = ''
    if (text !== '') write(text)
  }
  let isFirst = true
  return (line) => {
    // On Linux `write` to standard output returns when it is written (Node.js, "A note on process I/O").
    if (isFirst) process.on('exit', flush)
    isFirst = false
    if (gathered === '') setImmediate(flush)
    gathered += line
    if (gathered.length >= MOST_GATHERED) flush()
  }
}
