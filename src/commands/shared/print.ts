/** How verbs print (commands/README.md "The command line"): results on standard output, the rest on standard error. */
import { once } from 'node:events'
import { columnsText, jsonText, printableLines, type Columns } from './text.ts'

export interface OutputFlags {
  json?: boolean
  quiet?: boolean
}

/** One JSON document with --json, else the text. */
export function printResult({ json }: OutputFlags, document: unknown, text: () => string): void {
  process.stdout.write(json === true ? jsonText(document) : text())
}

/** What a person should know beside the result, such as the next command. */
export function printNote({ quiet }: OutputFlags, text: string): void {
  if (quiet !== true) process.stderr.write(`${printableLines(text)}\n`)
}

/** Waits where the reader is slower than we are. */
export async function printPiece(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain')
}

export function printList<Row>(
  flags: OutputFlags,
  columns: Columns<Row>,
  rows: readonly Row[],
  whenNone: string,
): void {
  printResult(flags, rows, () => columnsText(columns, rows))
  if (rows.length === 0) printNote(flags, whenNone)
}

/** How far a long work is, on one line of a terminal that is written over and wiped at the end; nothing elsewhere. */
export function progressLine({ quiet }: OutputFlags) {
  const isShown = process.stderr.isTTY && quiet !== true
  let width = 0
  const write = (text: string): void => {
    if (!isShown) return
    process.stderr.write(`\r${text.padEnd(width)}`)
    width = text.length
  }
  return {
    /** False: nobody sees it. */
    isShown,
    show: write,
    /** Wipes it. */
    end(): void {
      write('')
      if (isShown) process.stderr.write('\r')
    },
  }
}
