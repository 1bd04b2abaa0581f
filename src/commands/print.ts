/**
 * How the verbs print (operations.md 6): results on standard output, everything else on standard error, nothing that a
 * terminal would obey.
 */

export interface OutputFlags {
  json?: boolean
  quiet?: boolean
}

/** One JSON document with --json, else the text. */
export function printResult({ json }: OutputFlags, document: unknown, text: () => string): void {
  process.stdout.write(json === true ? `${JSON.stringify(document)}\n` : text())
}

/** What a person should know beside the result, such as the next command. */
export function printNote({ quiet }: OutputFlags, text: string): void {
  if (quiet !== true) process.stderr.write(`${text}\n`)
}

/** Rows with aligned columns on a terminal; else one line per row with tabs between, and no heads. */
export function tableText(heads: readonly string[], rows: readonly (readonly string[])[], isTerminal: boolean): string {
  const cells = rows.map((row) => row.map(printable))
  if (!isTerminal) return cells.map((row) => `${row.join('\t')}\n`).join('')
  const widths = heads.map((head, column) => Math.max(head.length, ...cells.map((row) => row[column]?.length ?? 0)))
  return [heads, ...cells]
    .map((row) => `${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ').trimEnd()}\n`)
    .join('')
}

/** Control characters, and those that change the direction of the text around them. */
const UNPRINTABLE = /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** Text from outside, such as what the DNS holds, made harmless for a terminal. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** Unix seconds in the local time of the reader. */
export function localTime(seconds: number | null): string {
  if (seconds === null) return 'never'
  // The Swedish form is the one that reads 2026-11-21 12:00.
  return new Date(seconds * MILLISECONDS_PER_SECOND).toLocaleString('sv-SE', { dateStyle: 'short', timeStyle: 'short' })
}

const MILLISECONDS_PER_SECOND = 1_000
