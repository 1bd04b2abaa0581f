/**
 * Lines of the log as `sternpost logs` shows them: which are meant, and how they read (base/README.md "Logging"). Pure.
 */
import { printable } from '../shared/print.ts'

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const
export type ShownLevel = (typeof LOG_LEVELS)[number]

export interface LogFilter {
  /** At least this. */
  level: ShownLevel
  /** An identifier that one of the fields is, or holds; null: every line. */
  identifier: string | null
}

/** The text of a line to print, or null: it is not meant. `isJson`: the same JSON, of printable characters alone. */
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
