/**
 * `sternpost suppression import`: the pieces of a file one after the other, and one result for all of them.
 *
 * Lines are counted as the file has them. When a piece fails, the ones before it are in: the error says how far it got,
 * and importing the file again adds the rest.
 */
import type { ImportedSuppressionsJson } from '../../api/suppression.ts'
import { ProcessExit } from '../../base/errors.ts'
import type { CsvPiece } from './csv-pieces.ts'
import { readAnswer } from '../shared/verb.ts'

interface ImportPiecesOptions {
  pieces: AsyncIterable<CsvPiece>
  send: (csv: string) => Promise<unknown>
  /** After each piece, with the lines of the file that are in. */
  onProgress: (lines: number) => void
}

const MOST_ERRORS = 100
const HEADER_LINES = 1

export async function importPieces({
  pieces,
  send,
  onProgress,
}: ImportPiecesOptions): Promise<ImportedSuppressionsJson> {
  const total: ImportedSuppressionsJson = { added: 0, existing: 0, rejected: 0, errors: [] }
  let lastLine = 0
  for await (const piece of pieces) {
    const result = await sendPiece(piece, send, lastLine)
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

async function sendPiece(
  { csv }: CsvPiece,
  send: ImportPiecesOptions['send'],
  linesBefore: number,
): Promise<ImportedSuppressionsJson> {
  try {
    return readAnswer<ImportedSuppressionsJson>(await send(csv), 'added', 'existing', 'rejected', 'errors')
  } catch (thrown) {
    if (!(thrown instanceof ProcessExit) || linesBefore === 0) throw thrown
    const text = `${thrown.message} Lines 1 to ${linesBefore} are in; importing the file again adds the rest.`
    throw new ProcessExit(thrown.exitCode, text, { cause: thrown })
  }
}

/** The server counts from the header line of the piece. */
function withLineOfFile(error: string, { firstLine }: CsvPiece): string {
  return error.replace(/^line (\d+)/, (_, line: string) => `line ${Number(line) - HEADER_LINES - 1 + firstLine}`)
}
