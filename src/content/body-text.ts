/**
 * The text of one body part on its way into a message: strings, and lines that are the same in many messages and were
 * encoded once.
 *
 * Written piece by piece it is, byte for byte, what its text comes to when it is encoded as a whole: each piece begins
 * where a line begins, and quoted-printable knows nothing of other lines. Never throws. RFC 2045 §6.7 and §6.8.
 */
import { mostEscapedBytes, mostQuotedPrintableBytes, writeQuotedPrintable } from './quoted-printable.ts'
import type { WriteLimits, WrittenText } from './quoted-printable.ts'
import { foldBase64 } from './transfer-encoding.ts'

export type BodyEncoding = 'quoted-printable' | 'base64'

/** Each piece but the last one ends with a line end that is no half of CRLF. */
export type BodyText = readonly (string | FixedLines)[]

export interface FixedLines {
  text: string
  /** In UTF-8. */
  bytes: number
  /** As quoted-printable; what is told of it is as `writeQuotedPrintable` tells it. */
  encoded: Buffer
  escaped: number
  runs: readonly number[]
}

/** Texts that may be longer in UTF-8 have memory of their own. */
const SCRATCH_BYTES = 256 * 1024
/** Each string is written here first. */
const scratch = Buffer.allocUnsafe(SCRATCH_BYTES)
/** A UTF-16 unit in UTF-8. */
const MOST_BYTES_PER_UNIT = 3
/** Share of bytes: a number takes eight of them, so that those of a text take no more memory than the text. */
const MOST_RUN_NUMBERS = 1 / 8

export function textOf(body: BodyText): string {
  let text = ''
  for (const piece of body) text += typeof piece === 'string' ? piece : piece.text
  return text
}

/** Whole lines, encoded; or as they are where that would take much memory: shorter as base64, or full of tabs. */
export function fixedLines(text: string): FixedLines | string {
  const source = toBytes(text)
  const bytes = source.length
  const target = Buffer.allocUnsafe(mostQuotedPrintableBytes(bytes))
  const runs: number[] = []
  const written = writeQuotedPrintable(source, target, 0, { mostEscaped: mostEscapedBytes(bytes), runs })
  if (written === undefined || runs.length > bytes * MOST_RUN_NUMBERS) return text
  return { text, bytes, encoded: Buffer.from(target.subarray(0, written.end)), escaped: written.escaped, runs }
}

/** In UTF-8. */
export function bytesOf(body: BodyText): number {
  let bytes = 0
  for (const piece of body) bytes += typeof piece === 'string' ? Buffer.byteLength(piece) : piece.bytes
  return bytes
}

/** Room for a text of so many bytes in either encoding. */
export function mostEncodedBytes(bytes: number): number {
  return mostQuotedPrintableBytes(bytes)
}

/** Returns where it ends; undefined: more bytes than `mostEscaped` have to be escaped. */
export function writeReadable(
  body: BodyText, target: Buffer, at: number, { mostEscaped, runs }: WriteLimits,
): number | undefined {
  let end = at
  let escaped = 0
  for (const piece of body) {
    const written = typeof piece === 'string'
      ? writeQuotedPrintable(toBytes(piece), target, end, { mostEscaped: mostEscaped - escaped, runs })
      : copyLines(piece, target, end, runs)
    if (written === undefined) return undefined
    end = written.end
    escaped += written.escaped
  }
  return escaped > mostEscaped ? undefined : end
}

/** Any line end, also a lone CR or LF, becomes CRLF. Returns where it ends. */
export function writeBase64(body: BodyText, target: Buffer, at: number): number {
  const lines = Buffer.from(textOf(body).replace(/\r\n|\r|\n/g, '\r\n'))
  return at + target.write(foldBase64(lines.toString('base64')), at, 'latin1')
}

function copyLines(lines: FixedLines, target: Buffer, at: number, runs: number[] | null): WrittenText {
  if (runs !== null) for (const position of lines.runs) runs.push(at + position)
  return { end: at + lines.encoded.copy(target, at), escaped: lines.escaped }
}

/** Good until the next call. */
function toBytes(text: string): Uint8Array {
  if (text.length * MOST_BYTES_PER_UNIT > SCRATCH_BYTES) return Buffer.from(text)
  return scratch.subarray(0, scratch.write(text))
}
