/**
 * What the verbs print, as text (commands/README.md "The command line"): tables and sheets, times and sizes; nothing
 * that a terminal would obey.
 */
import { SECOND } from '../../base/clock.ts'
import { escapeOf, UNPRINTABLE } from '../../base/unprintable.ts'

const BAR_WIDTH = 30
const DEFAULT_WIDTH = 80
/** Characters. What is longer, such as a subject of a thousand, does not push all other rows apart. */
const MOST_ALIGNED = 60

export function isTerminal(): boolean {
  return process.stdout.isTTY
}

/** A terminal that draws anew and has colours. */
export function obeysEscapes(): boolean {
  return isTerminal() && process.env['TERM'] !== 'dumb'
}

/** Columns; 80 where nobody says. */
export function terminalWidth(): number {
  return process.stdout.columns ?? DEFAULT_WIDTH
}

/** What is known of one thing: a head, then a labelled line for each part that is there. */
export function sheetText(head: string, parts: readonly (readonly [label: string, text: string | null])[]): string {
  const known = parts.filter(([, text]) => text !== null && text !== '')
  const width = Math.max(...known.map(([label]) => label.length))
  const lines = known.map(([label, text]) => `  ${label.padEnd(width)}  ${text}`)
  return linesText([head, ...lines])
}

/** Rows with aligned columns on a terminal; else one line per row with tabs between, and no heads. */
export function tableText(heads: readonly string[], rows: readonly (readonly string[])[], isTerminal: boolean): string {
  const cells = rows.map((row) => row.map(printable))
  if (!isTerminal) return cells.map((row) => `${row.join('\t')}\n`).join('')
  const widths = heads.map((head, column) => {
    const longest = Math.max(head.length, ...cells.map((row) => row[column]?.length ?? 0))
    return Math.min(longest, MOST_ALIGNED)
  })
  const lines = [heads, ...cells].map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '))
  return lines.map((line) => `${line.trimEnd()}\n`).join('')
}

/** A column of a table: its head, and its cell in a row; null: empty. */
export type Columns<Row> = Readonly<Record<string, (row: Row) => string | number | null>>

export function rowOf<Row>(columns: Columns<Row>, row: Row): string[] {
  return Object.values(columns).map((cell) => String(cell(row) ?? ''))
}

export function columnsText<Row>(columns: Columns<Row>, rows: readonly Row[], isOnTerminal = isTerminal()): string {
  const cells = rows.map((row) => rowOf(columns, row))
  return tableText(Object.keys(columns), cells, isOnTerminal)
}

/** Lines of text from outside. */
export function linesText(lines: readonly string[]): string {
  return lines.map((line) => `${printable(line)}\n`).join('')
}

/** Text from outside, such as what the DNS holds, made harmless for a terminal. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, escapeOf)
}

/** The same for what is said in several lines. */
export function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n')
}

/** A document of JSON, in which the same stands as escapes of JSON. */
export function jsonText(document: unknown, indent = 0): string {
  return `${printableLines(JSON.stringify(document, null, indent))}\n`
}

/** Unix seconds in the local time of the reader. */
export function localTime(seconds: number | null): string {
  return seconds === null ? 'never' : localText(seconds, 'short')
}

/** To the second. */
export function preciseTime(seconds: number): string {
  return localText(seconds, 'medium')
}

/** `2026-11-21 12:00`, or with seconds: the Swedish form. */
function localText(seconds: number, timeStyle: 'short' | 'medium'): string {
  return new Date(seconds * SECOND).toLocaleString('sv-SE', { dateStyle: 'short', timeStyle })
}

const SIZE_UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'] as const

const SIZE_STEP = 1_024

/** `11.7 MiB` */
export function byteText(bytes: number): string {
  const exact = Math.log(Math.max(1, Math.abs(bytes))) / Math.log(SIZE_STEP)
  const power = Math.min(SIZE_UNITS.length - 1, Math.floor(exact))
  const value = bytes / SIZE_STEP ** power
  return `${power === 0 ? value : value.toFixed(1)} ${SIZE_UNITS[power]}`
}

/** `1 message`, `2 messages` */
export function countOf(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`
}

/** `[#####     ]  45 %`; `share` from 0 to 1. */
export function progressBar(share: number): string {
  const done = Math.min(1, Math.max(0, share))
  const bar = '#'.repeat(Math.round(done * BAR_WIDTH)).padEnd(BAR_WIDTH)
  return `[${bar}] ${String(Math.floor(done * 100)).padStart(3)} %`
}
