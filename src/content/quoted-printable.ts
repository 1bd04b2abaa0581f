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

const LITERAL = 1
/** By byte: what is written as it is in any place of a line. */
const LITERALS = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte > SPACE && byte <= TILDE && byte !== EQUALS && byte !== DOT ? LITERAL : 0)

/** Longer results have memory of their own. */
const SCRATCH_BYTES = 256 * 1024
/** Each text is written here first, and copied out when its length is known. */
const scratch = Buffer.allocUnsafe(SCRATCH_BYTES)

export function quotedPrintable(text: Uint8Array): Buffer {
  return encode(text, text.length) ?? Buffer.alloc(0)
}

/** undefined: the text is shorter as base64. */
export function quotedPrintableIfShort(text: Uint8Array): Buffer | undefined {
  return encode(text, text.length * BASE64_SHARE)
}

/** undefined: more bytes than `mostEscaped`, not counting dots, have to be written as three. */
function encode(text: Uint8Array, mostEscaped: number): Buffer | undefined {
  const most = Math.ceil(text.length * MOST_GROWTH) + MOST_BEFORE_BREAK
  const encoded = most <= SCRATCH_BYTES ? scratch : Buffer.allocUnsafe(most)
  let length = 0
  let column = 0
  let escaped = 0
  for (let index = 0; index < text.length; index++) {
    // Nearly all bytes: literal ones, and a space in front of a word.
    const stretchEnd = Math.min(text.length, index + MOST_BEFORE_BREAK - column)
    const stretchStart = index
    let byte = text[index] ?? 0
    while (index < stretchEnd && (LITERALS[byte] === LITERAL || (byte === SPACE && (text[index + 1] ?? 0) > SPACE))) {
      encoded[length++] = byte
      byte = text[++index] ?? 0
    }
    column += index - stretchStart
    if (index >= text.length) break
    if (byte === LF || byte === CR) {
      if (byte === CR && text[index + 1] === LF) index++
      encoded[length++] = CR
      encoded[length++] = LF
      column = 0
      continue
    }
    const isPlain = isPlainAt(text, index)
    if (column + (isPlain ? 1 : ESCAPE_CHARACTERS) > MOST_BEFORE_BREAK) {
      encoded[length++] = EQUALS
      encoded[length++] = CR
      encoded[length++] = LF
      column = 0
    }
    if (isPlain && (byte !== DOT || column > 0)) {
      encoded[length++] = byte
      column++
      continue
    }
    if (byte !== DOT) escaped++
    if (escaped > mostEscaped) return undefined
    encoded[length++] = EQUALS
    encoded[length++] = HEX[byte >> 4] ?? 0
    encoded[length++] = HEX[byte & 0xf] ?? 0
    column += ESCAPE_CHARACTERS
  }
  return Buffer.from(encoded.subarray(0, length))
}

/** Anywhere in a line but at its start. */
function isPlainAt(text: Uint8Array, index: number): boolean {
  const byte = text[index] ?? 0
  if (byte !== SPACE && byte !== TAB) return LITERALS[byte] === LITERAL || byte === DOT
  const next = text[index + 1]
  return next !== undefined && next !== CR && next !== LF
}
