/**
 * `sternpost logs`: what the server wrote, from the journal of its unit, or from a file or standard input.
 *
 * With `--for` the running server logs at the given level for so long. Ends with 69 where there is neither a journal
 * nor a file, with 74 for a file that cannot be read, with 1 for a journal that cannot.
 */
import { spawn } from 'node:child_process'
import { createReadStream, existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { Option, type Command } from 'commander'
import { LOG_LEVELS, raisedLogLevelSchema } from '../../api/server.ts'
import { MINUTE, SECOND, systemClock } from '../../base/clock.ts'
import { errorCode, EXIT, ProcessExit } from '../../base/errors.ts'
import { identifierToBytes } from '../../base/identifier.ts'
import { ask } from '../shared/api-client.ts'
import { durationFlag, misuse, timeFlag } from '../shared/flag-values.ts'
import { printNote, printPiece } from '../shared/print.ts'
import { localTime, printable } from '../shared/text.ts'
import { untilInterrupted, addVerb, type Given, type VerbFlags } from '../shared/verb.ts'
import { followFile } from './follow-file.ts'

type ShownLevel = (typeof LOG_LEVELS)[number]

type LogsFlags = VerbFlags &
  Given<'message' | 'for' | 'since' | 'file'> & { follow?: boolean; level?: ShownLevel; unit: string }

const STANDARD_INPUT = '-'
const SYSTEMD = '/run/systemd/system'
/** The first bytes of an identifier: when it was made. */
const TIME_BYTES = 6
/** syslog priorities, as journalctl filters by them. */
const PRIORITIES: Readonly<Record<ShownLevel, string>> = { debug: 'debug', info: 'info', warn: 'warning', error: 'err' }
const EXAMPLES = `--follow --level warn
--message msg_01kapg6t3vq8x2m5r7w9y4c6de
--level debug --for 10m --follow
--file /var/log/sternpost.log`

export function addLogsCommand(program: Command): void {
  addVerb(program, 'logs', 'print the log of the server, from the journal or a file', EXAMPLES)
    .option('--follow', 'go on with what is written from now on, until interrupted')
    .option('--message <id>', 'lines about this message (or batch, request, delivery, event, IP …)')
    .addOption(new Option('--level <level>', 'lines of this level and above (default: info)').choices(LOG_LEVELS))
    .option('--for <duration>', 'let the server log at this level, where that is more, for so long, e.g. 10m')
    .option('--since <time>', 'written since then: 24h, 2026-11-21, 2026-11-21T12:00 (journal alone)')
    .option('--file <path>', 'read this file in place of the journal; - is standard input')
    .option('--unit <name>', 'unit whose journal is read', 'sternpost')
    .action(logs)
}

async function logs(flags: LogsFlags): Promise<void> {
  await raiseLevel(flags)
  const filter: LogFilter = { level: flags.level ?? 'info', identifier: flags.message ?? null }
  const signal = untilInterrupted()
  const lines = flags.file === undefined ? journalLines(flags, filter, signal) : fileLines(flags.file, flags, signal)
  let shown = 0
  for await (const line of lines) {
    const text = shownLine(line, filter, flags.json === true)
    if (text === null) continue
    shown++
    await printPiece(`${text}\n`)
  }
  if (shown === 0 && !signal.aborted) printNote(flags, 'There are no such lines.')
}

async function raiseLevel(flags: LogsFlags): Promise<void> {
  if (flags.for === undefined) return
  if (flags.level === undefined) throw misuse('--for needs a level: add --level debug')
  const seconds = Math.ceil(durationFlag('--for', flags.for) / SECOND)
  const body = { level: flags.level, for_seconds: seconds }
  const { level, until } = await ask(flags, raisedLogLevelSchema, 'POST /v1/admin/log-level', body)
  printNote(flags, `The server logs at level ${level} until ${localTime(until)}.`)
}

async function* journalLines(flags: LogsFlags, filter: LogFilter, signal: AbortSignal): AsyncGenerator<string> {
  if (!existsSync(SYSTEMD)) {
    const fix = 'name the file that the server writes to with --file, or pipe it: … | sternpost logs --file -'
    const text = `sternpost: systemd does not run here, so there is no journal. Fix: ${fix}.`
    throw new ProcessExit(EXIT.unreachable, text)
  }
  const words = ['--unit', flags.unit, '--output', 'cat', '--no-pager', '--priority', PRIORITIES[filter.level]]
  const since = sinceOf(flags)
  if (since !== null) words.push('--since', `@${since}`)
  if (flags.follow === true) words.push('--follow', ...(since === null ? ['--lines', '20'] : ['--no-tail']))
  const journal = spawn('journalctl', words, { stdio: ['ignore', 'pipe', 'inherit'], signal })
  const ended = new Promise<void>((resolve, reject) => {
    journal.once('error', (error) => (signal.aborted ? resolve() : reject(journalProblem(error))))
    journal.once('close', (code) => (code === 0 || signal.aborted ? resolve() : reject(unread(code))))
  })
  // Told when the lines have come to their end.
  ended.catch(() => undefined)
  yield* linesOf(journal.stdout)
  await ended
}

/** journalctl has said why on standard error. */
function unread(code: number | null): Error {
  const fix = 'run it as root, or as a member of the group systemd-journal'
  return new ProcessExit(EXIT.failed, `sternpost: journalctl ended with ${code ?? 'a signal'}. Fix: ${fix}.`)
}

function journalProblem(cause: Error): Error {
  if (errorCode(cause) !== 'ENOENT') return cause
  const text = 'sternpost: there is no journalctl. Fix: install systemd, or name a file with --file.'
  return new ProcessExit(EXIT.unreachable, text, { cause })
}

/** Unix seconds, or null: from the start. A message has no lines before it was made. */
function sinceOf({ since, message }: LogsFlags): string | null {
  if (since !== undefined) return timeFlag('--since', since)
  const made = message === undefined ? undefined : identifierToBytes('msg', message)
  return made === undefined ? null : String(Math.floor((made.readUIntBE(0, TIME_BYTES) - MINUTE) / SECOND))
}

function fileLines(path: string, { follow }: LogsFlags, signal: AbortSignal): AsyncIterable<string> {
  if (path === STANDARD_INPUT) return linesOf(process.stdin)
  return follow === true ? followFile(path, systemClock, signal) : linesOf(createReadStream(path))
}

function linesOf(input: Readable): AsyncIterable<string> {
  return createInterface({ input, crlfDelay: Infinity })
}

/** `level`: at least this. `identifier`: one of the fields is it, or holds it; null: every line. */
interface LogFilter {
  level: ShownLevel
  identifier: string | null
}

/**
 * The text of a line to print (base/README.md "Logging"), or null: it is not meant. `isJson`: the same JSON, of
 * printable characters alone.
 */
export function shownLine(line: string, filter: LogFilter, isJson: boolean): string | null {
  // The priority for the journal.
  const text = line.replace(/^<\d>/, '').trimEnd()
  const fields = fieldsOf(text)
  if (fields === null) {
    // What others wrote into the same journal, such as systemd itself.
    const isMeant = !isJson && filter.identifier === null && filter.level !== 'error' && text !== ''
    return isMeant ? printable(text) : null
  }
  const level = LOG_LEVELS.indexOf(fields['level'] as ShownLevel)
  if (level !== -1 && level < LOG_LEVELS.indexOf(filter.level)) return null
  if (filter.identifier !== null && !isAbout(fields, filter.identifier)) return null
  return isJson ? printable(text) : readable(fields)
}

function fieldsOf(line: string): Record<string, unknown> | null {
  try {
    const fields: unknown = JSON.parse(line)
    return typeof fields === 'object' && fields !== null && 'msg' in fields ? { ...fields } : null
  } catch {
    // No line of ours.
    return null
  }
}

function isAbout(fields: Record<string, unknown>, identifier: string): boolean {
  return Object.values(fields).some(
    (value) => value === identifier || (Array.isArray(value) && value.includes(identifier)),
  )
}

const HEAD = ['level', 'time', 'part', 'msg']

/** `2026-11-21T12:00:00.000Z warn  delivery  message deferred  message_id=msg_… reply="451 4.3.0 later"` */
function readable(fields: Record<string, unknown>): string {
  const { time, level, part, msg } = fields
  const head = [String(time), String(level).padEnd(5), String(part ?? '').padEnd(10), String(msg)].join(' ')
  const rest = Object.entries(fields)
    .filter(([name, value]) => !HEAD.includes(name) && value !== null && value !== undefined)
    .map(([name, value]) => `${name}=${fieldText(value)}`)
  return printable([head, ...rest].join('  '))
}

function fieldText(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  // What cannot be taken for two fields needs no quotes.
  return /^[^\s="]+$/.test(text) ? text : JSON.stringify(text)
}
