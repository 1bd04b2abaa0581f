/**
 * Text as quoted-printable (RFC 2045 §6.7): any line end becomes CRLF, no line is longer than 76 characters, white
 * space at a line end is written as an escape, and so is a dot at the start of a line: SMTP has nothing to double there
 * (RFC 5321 §4.5.2). Linear, one pass over bytes; never throws.
 */

/** With the equals sign of a soft line break behind it, RFC 2045 §6.7 (5). */
const MOST_BEFORE_BREAK = 75
const ESCAPE_CHARACTERS = 3
/** An escape of three characters for each byte, and a soft break of three for every 73 of those at most. */
const MOST_GROWTH = 3.2
/** Share of bytes written as three above which base64 is shorter: 3x + (1 - x) = 4/3 at x = 1/6. */
const BASE64_SHARE = 1 / 6
const HEX = Buffer.from('0123456789ABCDEF')
const TAB = 0x09
const LF = 0x0a
const CR = 0x0d
const SPACE = 0x20
const DOT = 0x2e
const EQUALS = 0x3d
const TILDE = 0x7e

/** By byte: 1 for one that is written as it is in any place of a line, a dot but for its start. */
const LITERALS = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte > SPACE && byte <= TILDE && byte !== EQUALS ? 1 : 0,
)

/** A text that was written into a buffer. */
export interface WrittenText {
  /** Behind its last byte there. */
  end: number
  /** Bytes that are written as three, not counting dots. */
  escaped: number
}

export interface WriteLimits {
  /** With more bytes to escape nothing of use is written. */
  mostEscaped: number
  /**
   * Gets start and end, in the buffer, of each stretch of white space of which DKIM's relaxed form makes one space, in
   * order; none is at a line end. null: nobody asks.
   */
  runs: number[] | null
}

export function quotedPrintable(text: Uint8Array): Buffer {
  const encoded = Buffer.allocUnsafe(mostQuotedPrintableBytes(text.length))
  const written = writeQuotedPrintable(text, encoded, 0, { mostEscaped: text.length, runs: null })
  return encoded.subarray(0, written?.end ?? 0)
}

/** Room for any text of so many bytes. */
export function mostQuotedPrintableBytes(length: number): number {
  return Math.ceil(length * MOST_GROWTH) + MOST_BEFORE_BREAK
}

/** With more of them a text of so many bytes is shorter as base64. */
export function mostEscapedBytes(length: number): number {
  return length * BASE64_SHARE
}

/** undefined: more bytes than `mostEscaped` have to be escaped. */
export function writeQuotedPrintable(
  text: Uint8Array,
  target: Uint8Array,
  at: number,
  { mostEscaped, runs }: WriteLimits,
): WrittenText | undefined {
  const { length } = text
  let end = at
  let column = 0
  let escaped = 0
  for (let index = 0; index < length; index++) {
    if (column > 0 || text[index] !== DOT) {
      const most = Math.min(length - 1 - index, MOST_BEFORE_BREAK - column)
      const copied = copyOrdinary({ text, index, target, end, most })
      index += copied
      end += copied
      column += copied
    }
    const byte = text[index] ?? 0
    if (byte === LF || byte === CR) {
      if (byte === CR && text[index + 1] === LF) index++
      end = writeLineEnd(target, end)
      column = 0
      continue
    }
    const isPlain = isPlainAt(text, index)
    if (column + (isPlain ? 1 : ESCAPE_CHARACTERS) > MOST_BEFORE_BREAK) {
      target[end++] = EQUALS
      end = writeLineEnd(target, end)
      column = 0
    }
    if (isPlain && (byte !== DOT || column > 0)) {
      target[end] = byte
      const most = MOST_BEFORE_BREAK - column
      const copied = isWhiteSpace(byte) ? copyWhiteSpace({ text, index, target, end, most }) : 1
      if (copied > 1 || byte === TAB) runs?.push(end, end + copied)
      index += copied - 1
      end += copied
      column += copied
      continue
    }
    if (byte !== DOT) escaped++
    if (escaped > mostEscaped) return undefined
    end = writeEscape(target, end, byte)
    column += ESCAPE_CHARACTERS
  }
  return { end, escaped }
}

interface Stretch {
  text: Uint8Array
  index: number
  target: Uint8Array
  end: number
  most: number
}

/** Nearly all bytes: literal ones, and a space in front of a word. Returns how many; another byte is behind them. */
function copyOrdinary({ text, index, target, end, most }: Stretch): number {
  const stop = index + most
  let at = index
  let to = end
  while (at < stop) {
    const byte = text[at] ?? 0
    if (!LITERALS[byte] && (byte !== SPACE || !LITERALS[text[at + 1] ?? 0])) break
    target[to++] = byte
    at++
  }
  return at - index
}

/** What follows a space or tab and is such as well, up to the end of the line. Returns how many with the first one. */
function copyWhiteSpace({ text, index, target, end, most }: Stretch): number {
  let count = 1
  for (; count < most && isWhiteSpace(text[index + count]) && isPlainAt(text, index + count); count++) {
    target[end + count] = text[index + count] ?? 0
  }
  return count
}

function writeLineEnd(target: Uint8Array, end: number): number {
  target[end] = CR
  target[end + 1] = LF
  return end + 2
}

function writeEscape(target: Uint8Array, end: number, byte: number): number {
  target[end] = EQUALS
  target[end + 1] = HEX[byte >> 4] ?? 0
  target[end + 2] = HEX[byte & 0xf] ?? 0
  return end + ESCAPE_CHARACTERS
}

/** Anywhere in a line, a dot but at its start. */
function isPlainAt(text: Uint8Array, index: number): boolean {
  const byte = text[index] ?? 0
  if (byte !== SPACE && byte !== TAB) return LITERALS[byte] === 1
  const next = text[index + 1]
  return next !== undefined && next !== CR && next !== LF
}

function isWhiteSpace(byte: number | undefined): boolean {
  return byte === SPACE || byte === TAB
}
