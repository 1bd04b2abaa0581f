/**
 * A CSV file of any size for `sternpost suppression import`: cut into pieces that a server takes (http/README.md
 * "Suppressions": at most 10 MiB), which are sent one after the other, and have one result.
 */
import { createReadStream } from 'node:fs'
import { importedSuppressionsSchema, type ImportedSuppressionsJson } from '../../api/suppression.ts'
import { ProcessExit } from '../../base/errors.ts'
import { readAnswer } from '../shared/api-client.ts'

interface ImportPiecesOptions {
  pieces: AsyncIterable<CsvPiece>
  send: (csv: string) => Promise<unknown>
  /** After each piece, with the lines of the file that are in. */
  onProgress: (lines: number) => void
}

const MOST_ERRORS = 100

/**
 * Lines are counted as the file has them. When a piece fails, the ones before it are in: the error says how far it got,
 * and importing the file again adds the rest.
 */
export async function importPieces(options: ImportPiecesOptions): Promise<ImportedSuppressionsJson> {
  const { pieces, send, onProgress } = options
  const total: ImportedSuppressionsJson = { added: 0, existing: 0, rejected: 0, errors: [] }
  let lastLine = 0
  for await (const piece of pieces) {
    const answer = await send(piece.csv).catch((thrown: unknown) => {
      if (!(thrown instanceof ProcessExit) || lastLine === 0) throw thrown
      const text = `${thrown.message} Lines 1 to ${lastLine} are in; importing the file again adds the rest.`
      throw new ProcessExit(thrown.exitCode, text, { cause: thrown })
    })
    const result = readAnswer(importedSuppressionsSchema, answer)
    total.added += result.added
    total.existing += result.existing
    total.rejected += result.rejected
    const errors = result.errors.map((error) => withLineOfFile(error, piece))
    total.errors.push(...errors.slice(0, MOST_ERRORS - total.errors.length))
    lastLine = piece.lastLine
    onProgress(lastLine)
  }
  return total
}

/** The server counts from the header line of the piece, which is its first. */
function withLineOfFile(error: string, { firstLine }: CsvPiece): string {
  return error.replace(/^line (\d+)/, (_, line: string) => `line ${Number(line) - 2 + firstLine}`)
}

interface CsvPiece {
  csv: string
  /** Line of the file that its first row begins at. */
  firstLine: number
  /** Line of the file that its last row ends at. */
  lastLine: number
}

/** Small enough to show progress, large enough to be quick. */
const USUAL_CHARACTERS = 1_048_576
/** A character has at most three bytes, those of four count as two: with a last line below 10 MiB in any case. */
const MOST_CHARACTERS = 3 * USUAL_CHARACTERS
/** What is longer is no row of addresses, and cut. */
const LONGEST_LINE = 65_536

/**
 * Each piece has the header line of the file, is cut between rows, and is read as it is needed. A row may go on over
 * several lines in quotes (RFC 4180 §2); where quotes are not closed for MiBs, the file is cut at the next line end:
 * such a row is faulty anyway. Throws the error of the file system.
 */
export async function* csvPieces(file: string, usualCharacters = USUAL_CHARACTERS): AsyncGenerator<CsvPiece> {
  let header: string | null = null
  let rows = ''
  let quotes = 0
  let [firstLine, line] = [2, 0]
  for await (const text of linesOf(file)) {
    line += 1
    if (header === null) {
      header = text
      continue
    }
    rows += text
    quotes += text.split('"').length - 1
    const isBetweenRows = quotes % 2 === 0
    if (rows.length < usualCharacters || (!isBetweenRows && rows.length < MOST_CHARACTERS)) continue
    yield { csv: header + rows, firstLine, lastLine: line }
    rows = ''
    quotes = 0
    firstLine = line + 1
  }
  // Also a file without a row, or without a line: the server says what it lacks.
  if (rows !== '' || firstLine === 2) yield { csv: (header ?? '') + rows, firstLine, lastLine: line }
}

/** The lines with their ends, of any system. */
async function* linesOf(file: string): AsyncGenerator<string> {
  let rest = ''
  for await (const piece of createReadStream(file, { encoding: 'utf8' })) {
    rest += String(piece)
    let from = 0
    // A CR at the very end may be half of a line end.
    for (const { index, 0: lineEnd } of rest.matchAll(/\r\n|\n|\r(?!$)/g)) {
      const end = index + lineEnd.length
      yield rest.slice(from, end)
      from = end
    }
    rest = rest.slice(from)
    if (rest.length <= LONGEST_LINE) continue
    yield rest
    rest = ''
  }
  if (rest !== '') yield rest
}
