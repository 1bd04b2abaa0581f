/**
 * base32, five bits a character, most significant first. Where the bits do not fill the characters, the first one
 * starts with zero bits, so texts sort as the bytes do; a text with ones there, or a character of no alphabet, decodes
 * to undefined.
 */

const BITS_PER_CHARACTER = 5
const HIGHEST_VALUE = 31
const BITS_PER_BYTE = 8
/** In a table of values: no character of the alphabet. */
const NONE = 255
const CHARACTERS_IN_TABLE = 128

/** Crockford's, in lower case: no i, l, o, u. */
export const CROCKFORD = base32('0123456789abcdefghjkmnpqrstvwxyz')
/** RFC 4648 §6, in lower case. */
export const RFC_4648 = base32('abcdefghijklmnopqrstuvwxyz234567')

function base32(alphabet: string) {
  const codes = Buffer.from(alphabet, 'latin1')
  const values = new Uint8Array(CHARACTERS_IN_TABLE).fill(NONE)
  for (const [value, code] of codes.entries()) values[code] = value
  return {
    encode: (bytes: Uint8Array): string => encode(bytes, codes),
    decode: (text: string): Buffer | undefined => decode(text, values),
  }
}

function encode(bytes: Uint8Array, characters: Uint8Array): string {
  const text = Buffer.allocUnsafe(Math.ceil((bytes.length * BITS_PER_BYTE) / BITS_PER_CHARACTER))
  let buffer = 0
  const spare = (bytes.length * BITS_PER_BYTE) % BITS_PER_CHARACTER
  let bits = spare === 0 ? 0 : BITS_PER_CHARACTER - spare
  let position = 0
  for (let index = 0; index < bytes.length; index += 1) {
    buffer = (buffer << BITS_PER_BYTE) | (bytes[index] ?? 0)
    bits += BITS_PER_BYTE
    while (bits >= BITS_PER_CHARACTER) {
      bits -= BITS_PER_CHARACTER
      text[position++] = characters[(buffer >> bits) & HIGHEST_VALUE] ?? 0
    }
  }
  return text.toString('latin1')
}

function decode(text: string, values: Uint8Array): Buffer | undefined {
  const spare = (text.length * BITS_PER_CHARACTER) % BITS_PER_BYTE
  const bytes = Buffer.allocUnsafe((text.length * BITS_PER_CHARACTER - spare) / BITS_PER_BYTE)
  let buffer = 0
  let bits = -spare
  let position = 0
  for (let index = 0; index < text.length; index += 1) {
    const value = values[text.charCodeAt(index)] ?? NONE
    if (value === NONE) return undefined
    buffer = (buffer << BITS_PER_CHARACTER) | value
    bits += BITS_PER_CHARACTER
    if (bits < 0) continue
    // The spare bits are in front of the first byte.
    if (position === 0 && buffer >> Math.max(bits, BITS_PER_BYTE) !== 0) return undefined
    if (bits < BITS_PER_BYTE) continue
    bits -= BITS_PER_BYTE
    bytes[position++] = buffer >> bits
    buffer &= (1 << bits) - 1
  }
  return bytes
}
