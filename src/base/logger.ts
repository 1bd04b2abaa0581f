/**
 * The log: one JSON line per fact on standard output (base/README.md "Logging"). Lines of a moment are one write; what
 * is gathered is written when the process exits, also after an uncaught error. A kill loses it, and so does an exit
 * while the pipe is full. A log that cannot take its lines never stops or fills the server.
 */
import { closeSync, fstatSync, openSync, writeSync } from 'node:fs'
import { isatty } from 'node:tty'
import { pino, type Logger } from 'pino'
import { errorCode } from './errors.ts'
import { escapeOf } from './unprintable.ts'

export type { Logger } from 'pino'
export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent'

/** syslog priorities that journald reads from a `<N>` in front of the line. */
const PRIORITY = { debug: 7, info: 6, warn: 4, error: 3, fatal: 2 } as const
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

export function createLogger(options: LoggerOptions): Logger {
  return createAdjustableLogger(options).logger
}

/** A logger whose level can change while it and its children are in use. */
export function createAdjustableLogger(options: LoggerOptions) {
  // A child copies the level that its parent has when it is made.
  const all: Logger[] = []
  const logger = createPino(options, (child) => void all.push(child))
  all.push(logger)
  return {
    logger,
    setLevel(level: LogLevel): void {
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

/** What JSON leaves as it is and a terminal may obey, take for the end of a line, or for a change of direction. */
const LEFT_BY_JSON = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

function printable(line: string): string {
  // Nearly always there is nothing to replace.
  if (line.search(LEFT_BY_JSON) === -1) return line
  return line.replace(LEFT_BY_JSON, escapeOf)
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

const writeToStdout = gatherLines(toStdout())

function toStdout(): (bytes: Buffer) => void {
  let write: ((bytes: Buffer) => void) | undefined
  return (bytes) => {
    write ??= isFile(STANDARD_OUTPUT) ? droppingLines(toOpenFile, diskWasFull) : droppingLines(toReader, wasNotRead)
    try {
      write(bytes)
    } catch (thrown) {
      // As the stream would tell it.
      process.stdout.emit('error', thrown)
    }
  }
}

const toOpenFile = (bytes: Buffer): number => unlessFull(() => writeSync(STANDARD_OUTPUT, bytes))

/** Bytes that wait in memory for whoever reads the log, which are some ten thousand lines. */
const MOST_UNREAD = 16 * 1024 * 1024

/** What a pipe or socket does not take is kept by the stream, without an end. */
function toReader(bytes: Buffer): number {
  if (process.stdout.writableLength > MOST_UNREAD) return 0
  process.stdout.write(bytes)
  return bytes.length
}

function isFile(descriptor: number): boolean {
  if (isatty(descriptor)) return false
  try {
    return fstatSync(descriptor).isFile()
  } catch (thrown) {
    if (errorCode(thrown) === 'EBADF') return false
    throw thrown
  }
}

/** Lines to the end of a file, which is made where there is none; a full disk is no error (`droppingLines`). */
export function linesToFile(path: string): (line: string) => void {
  const appendBytes = (bytes: Buffer): number => {
    const descriptor = openSync(path, 'a')
    try {
      return writeSync(descriptor, bytes)
    } finally {
      closeSync(descriptor)
    }
  }
  const append = droppingLines((bytes) => unlessFull(() => appendBytes(bytes)), diskWasFull)
  return (line) => append(Buffer.from(line))
}

/** The disk, the quota of the user, the limit of a file. */
const FULL = ['ENOSPC', 'EDQUOT', 'EFBIG']

function unlessFull(write: () => number): number {
  try {
    return write()
  } catch (thrown) {
    if (FULL.includes(errorCode(thrown))) return 0
    throw thrown
  }
}

const LINE_END = 10

function diskWasFull(lines: number): string {
  return droppedLine(lines, 'the disk of the log was full: lines were dropped')
}

function wasNotRead(lines: number): string {
  const line = droppedLine(lines, 'nobody read the log for a while: lines were dropped')
  return isJournal(process.env['JOURNAL_STREAM'], STANDARD_OUTPUT) ? withPriority(line) : line
}

function droppedLine(lines: number, msg: string): string {
  return JSON.stringify({ level: 'warn', time: new Date().toISOString(), lines, msg })
}

/**
 * A disk that is full, or a reader that stands still, must not end the server: what does not fit is dropped and counted,
 * and the number is the first line once there is room again. `write` returns how many bytes it wrote; 0: there is none.
 */
function droppingLines(write: (bytes: Buffer) => number, told: (lines: number) => string): (lines: Buffer) => void {
  let dropped = 0
  let isCut = false
  /** False: not all of it fits. */
  const fits = (lines: Buffer): boolean => {
    let end = 0
    while (end < lines.length) {
      const written = write(lines.subarray(end))
      if (written === 0) {
        dropped += countLines(lines.subarray(end))
        if (end > 0) isCut = lines[end - 1] !== LINE_END
        return false
      }
      end += written
    }
    return true
  }
  return (lines) => {
    if (dropped > 0) {
      const count = dropped
      if (!fits(Buffer.from(`${isCut ? '\n' : ''}${told(count)}\n`))) {
        dropped = count + countLines(lines)
        return
      }
      dropped = 0
      isCut = false
    }
    fits(lines)
  }
}

function countLines(bytes: Buffer): number {
  let count = 0
  for (const byte of bytes) if (byte === LINE_END) count += 1
  return count
}

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

/*
 * The second fence against secrets: fields with such names are not written, at whatever depth, and of an error only what
 * says what went wrong; errors of libraries carry requests, headers and bodies with them. Costs a look at each field
 * name; only a line that has something to hide, or to look into, is copied.
 */

const SECRET_NAMES = new Set([
  'key',
  'secret',
  'secrets',
  'password',
  'token',
  'authorization',
  'Authorization',
  'cookie',
  'private_key',
  'privateKey',
  'master_key',
  'masterKey',
  'apiKey',
  'sealedSecret',
  'body',
  'html',
  'text',
  'variables',
])
const CENSORED = '[redacted]'
/** What lies deeper is no field of a log line. */
const DEEPEST = 4

function redactFields(fields: Record<string, unknown>): Record<string, unknown> {
  for (const name in fields) {
    if (SECRET_NAMES.has(name) || isMap(fields[name])) return redactedCopy(fields, 1)
  }
  return fields
}

function redactedCopy(fields: Record<string, unknown>, depth: number): Record<string, unknown> {
  const copy: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(fields)) {
    if (SECRET_NAMES.has(name)) copy[name] = CENSORED
    else copy[name] = redactedValue(value, depth)
  }
  return copy
}

function redactedValue(value: unknown, depth: number): unknown {
  if (Array.isArray(value)) return value.map((item) => redactedValue(item, depth))
  if (!isMap(value)) return value
  return depth < DEEPEST ? redactedCopy(value, depth + 1) : CENSORED
}

/** An error has its own serializer; dates and the like write themselves. */
function isMap(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return Array.isArray(value) || prototype === Object.prototype || prototype === null
}

function errorFields(thrown: unknown, depth = 1): unknown {
  if (!(thrown instanceof Error)) return typeof thrown === 'object' ? CENSORED : thrown
  const code = errorCode(thrown)
  const hasCause = thrown.cause !== undefined && depth < DEEPEST
  const cause = hasCause ? { cause: errorFields(thrown.cause, depth + 1) } : {}
  return { type: thrown.name, message: thrown.message, ...(code === '' ? {} : { code }), ...cause, stack: thrown.stack }
}

const STANDARD_ERROR = 2

/**
 * Why a process ends, on standard error; `text` ends with a line end. In the journal each line has the priority of an
 * error, so that `journalctl -p err` shows what ended a server.
 */
export function printProblem(text: string): void {
  process.stderr.write(problemText(text, isJournal(process.env['JOURNAL_STREAM'], STANDARD_ERROR)))
}

export function problemText(text: string, isForJournal: boolean): string {
  // At the start of each line that holds something.
  return isForJournal ? text.replace(/^(?=.)/gm, `<${PRIORITY.error}>`) : text
}
