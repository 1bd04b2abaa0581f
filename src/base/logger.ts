/**
 * The log: one JSON line per fact on standard output (base/README.md "Logging"). `log-redaction.ts` is the second fence
 * against secrets. Lines of a moment are one write; what is gathered is written when the process exits, also after an
 * uncaught error. A kill loses it, and so does an exit while the pipe is full.
 */
import { fstatSync } from 'node:fs'
import { pino, type Logger } from 'pino'
import { errorCode } from './errors.ts'
import { errorFields, redactFields } from './log-redaction.ts'

export type { Logger } from 'pino'
export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent'

/** syslog priorities that journald reads from a `<N>` in front of the line. */
export const PRIORITY = { debug: 7, info: 6, warn: 4, error: 3, fatal: 2 } as const
/** Milliseconds: a line is seen so much later at the most, unless the thread is busy. */
const LONGEST_GATHERED = 10
/** Bytes. */
const MOST_GATHERED = 64 * 1024
/** A UTF-16 unit in UTF-8. */
const MOST_BYTES_PER_UNIT = 3
const STANDARD_OUTPUT = 1

interface LoggerOptions {
  level: LogLevel
  /** Left out: standard output. */
  write?: (line: string) => void
}

/** A logger whose level can change while it and its children are in use. */
interface AdjustableLogger {
  logger: Logger
  setLevel(level: LogLevel): void
}

export function createLogger(options: LoggerOptions): Logger {
  return createAdjustableLogger(options).logger
}

export function createAdjustableLogger(options: LoggerOptions): AdjustableLogger {
  // A child copies the level that its parent has when it is made.
  const all: Logger[] = []
  const logger = createPino(options, (child) => void all.push(child))
  all.push(logger)
  return {
    logger,
    setLevel(level) {
      for (const each of all) each.level = level
    },
  }
}

function createPino(options: LoggerOptions, onChild: (child: Logger) => void): Logger {
  const write = options.write ?? writeToStdout
  const toJournal = options.write === undefined && isJournal(process.env['JOURNAL_STREAM'], STANDARD_OUTPUT)
  return pino(
    {
      level: options.level,
      onChild,
      base: null,
      messageKey: 'msg',
      timestamp: createTimeField(),
      formatters: { level: (label) => ({ level: label }), log: redactFields },
      serializers: { err: (thrown: unknown) => errorFields(thrown) },
    },
    { write: (line: string) => write(toJournal ? withPriority(printable(line)) : printable(line)) },
  )
}

/** Of a busy server many lines share a millisecond. */
function createTimeField(): () => string {
  let at = 0
  let text = ''
  return () => {
    const now = Date.now()
    if (now === at) return text
    at = now
    text = `,"time":"${new Date(now).toISOString()}"`
    return text
  }
}

/** What JSON leaves as it is and a terminal may obey, or take for the end of a line. */
const UNPRINTABLE = /[\u007f-\u009f\u2028\u2029]/g

function printable(line: string): string {
  // Nearly always there is nothing to replace.
  if (line.search(UNPRINTABLE) === -1) return line
  return line.replace(UNPRINTABLE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/**
 * Whether a descriptor leads to the journal: systemd names device and inode of what it connected, and a child whose
 * output goes elsewhere has the variable too (systemd.exec(5)).
 */
export function isJournal(journalStream: string | undefined, descriptor: number): boolean {
  if (journalStream === undefined) return false
  try {
    const { dev, ino } = fstatSync(descriptor, { bigint: true })
    return journalStream === `${dev}:${ino}`
  } catch (thrown) {
    // Closed: nothing is written at all.
    if (errorCode(thrown) === 'EBADF') return false
    throw thrown
  }
}

function withPriority(line: string): string {
  const level = /^\{"level":"(\w+)"/.exec(line)?.[1] ?? ''
  return `<${isLevel(level) ? PRIORITY[level] : PRIORITY.info}>${line}`
}

function isLevel(word: string): word is keyof typeof PRIORITY {
  return Object.hasOwn(PRIORITY, word)
}

const writeToStdout = gatherLines((bytes) => void process.stdout.write(bytes))

/** Writes a moment later, or when much has come together. */
function gatherLines(write: (bytes: Buffer) => void): (line: string) => void {
  const gathered = Buffer.allocUnsafeSlow(MOST_GATHERED)
  let end = 0
  let timer: NodeJS.Timeout | undefined
  const flush = (): void => {
    clearTimeout(timer)
    timer = undefined
    // Not the block itself: a pipe that is full keeps what it is given.
    const lines = Buffer.from(gathered.subarray(0, end))
    end = 0
    if (lines.length > 0) write(lines)
  }
  let isFirst = true
  return (line) => {
    // On Linux `write` to standard output returns when it is written (Node.js, "A note on process I/O"), or when a pipe
    // or socket is full.
    if (isFirst) process.on('exit', flush)
    isFirst = false
    const mostBytes = line.length * MOST_BYTES_PER_UNIT
    if (end + mostBytes > MOST_GATHERED) flush()
    if (mostBytes > MOST_GATHERED) return write(Buffer.from(line))
    end += gathered.write(line, end)
    timer ??= setTimeout(flush, LONGEST_GATHERED)
  }
}
