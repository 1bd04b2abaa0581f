/**
 * The text of one body part on its way into a message: strings, and lines that are the same in many messages and were
 * encoded once. Pieces come to the same bytes as their text encoded as a whole, since each begins where a line begins.
 * Never throws. RFC 2045 §6.7 and §6.8.
 */
import {
  mostEscapedBytes,
  mostQuotedPrintableBytes,
  writeQuotedPrintable,
  type WriteLimits,
  type WrittenText,
} from './quoted-printable.ts'
import { foldBase64 } from './transfer-encoding.ts'

export type BodyEncoding = 'quoted-printable' | 'base64'

/** What stands in front of fixed lines ends with a line end that is no half of CRLF; no character is cut in two. */
export type BodyText = readonly (string | FixedLines)[]

/** The same in UTF-8. */
interface BodyBytes {
  /** Bytes are good until the memory is used anew that was given to `toUtf8`. */
  pieces: readonly (Uint8Array | FixedLines)[]
  bytes: number
}

export interface FixedLines {
  text: string
  /** In UTF-8. */
  bytes: number
  /** As quoted-printable; what is told of it is as `writeQuotedPrintable` tells it. */
  encoded: Buffer
  escaped: number
  runs: readonly number[]
}

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
  const source = Buffer.from(text)
  const bytes = source.length
  const target = Buffer.allocUnsafe(mostQuotedPrintableBytes(bytes))
  const runs: number[] = []
  const written = writeQuotedPrintable(source, target, 0, { mostEscaped: mostEscapedBytes(bytes), runs })
  if (written === undefined || runs.length > bytes * MOST_RUN_NUMBERS) return text
  // In memory of its own: it is kept, and a part of the pool that small buffers share would keep 64 KiB of that.
  const encoded = Buffer.allocUnsafeSlow(written.end)
  target.copy(encoded, 0, 0, written.end)
  return { text, bytes, encoded, escaped: written.escaped, runs }
}

export function hasText(body: BodyText): boolean {
  return body.some((piece) => typeof piece !== 'string' || piece !== '')
}

/** Written into `memory` where that is sure to be long enough, and else into memory of its own. */
export function toUtf8(body: BodyText, memory: Buffer): BodyBytes {
  const pieces: (Uint8Array | FixedLines)[] = []
  const target = memory.length >= mostUtf8Bytes(body) ? memory : Buffer.allocUnsafe(mostUtf8Bytes(body))
  let bytes = 0
  let start = 0
  let end = 0
  const closeStretch = (): void => {
    if (end > start) pieces.push(target.subarray(start, end))
    bytes += end - start
    start = end
  }
  for (const piece of body) {
    if (typeof piece === 'string') {
      end += target.write(piece, end)
    } else {
      closeStretch()
      pieces.push(piece)
      bytes += piece.bytes
    }
  }
  closeStretch()
  return { pieces, bytes }
}

/** Fixed lines not counted. */
function mostUtf8Bytes(body: BodyText): number {
  let units = 0
  for (const piece of body) units += typeof piece === 'string' ? piece.length : 0
  return MOST_BYTES_PER_UNIT * units
}

/** Returns where it ends; undefined: more bytes than `mostEscaped` have to be escaped. */
export function writeReadable(
  { pieces }: BodyBytes,
  target: Buffer,
  at: number,
  { mostEscaped, runs }: WriteLimits,
): number | undefined {
  let end = at
  let escaped = 0
  for (const piece of pieces) {
    const written =
      'encoded' in piece
        ? copyLines(piece, target, end, runs)
        : writeQuotedPrintable(piece, target, end, { mostEscaped: mostEscaped - escaped, runs })
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
