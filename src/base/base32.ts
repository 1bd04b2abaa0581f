/**
 * base32 with a given alphabet of 32 characters: five bits a character, most significant first.
 *
 * Where the bits do not fill the characters, the first character starts with zero bits (so texts sort as the bytes do);
 * a text that has ones there, or a character that is not in the alphabet, is none of ours and decodes to undefined.
 */

/** Crockford's, in lower case: no i, l, o, u. */
export const CROCKFORD = '0123456789abcdefghjkmnpqrstvwxyz'
/** RFC 4648 §6, in lower case. */
export const RFC_4648 = 'abcdefghijklmnopqrstuvwxyz234567'

const BITS_PER_CHARACTER = 5
const BITS_PER_BYTE = 8

export function encodeBase32(bytes: Uint8Array, alphabet: string): string {
  let text = ''
  let buffer = 0
  const spare = (bytes.length * BITS_PER_BYTE) % BITS_PER_CHARACTER
  let bits = spare === 0 ? 0 : BITS_PER_CHARACTER - spare
  for (const byte of bytes) {
    buffer = (buffer << BITS_PER_BYTE) | byte
    bits += BITS_PER_BYTE
    while (bits >= BITS_PER_CHARACTER) {
      bits -= BITS_PER_CHARACTER
      text += alphabet[buffer >> bits]
      buffer &= (1 << bits) - 1
    }
  }
  return text
}

export function decodeBase32(text: string, alphabet: string): Buffer | undefined {
  const spare = (text.length * BITS_PER_CHARACTER) % BITS_PER_BYTE
  const bytes = Buffer.alloc((text.length * BITS_PER_CHARACTER - spare) / BITS_PER_BYTE)
  let buffer = 0
  let bits = -spare
  let position = 0
  for (const character of text) {
    const value = alphabet.indexOf(character)
    if (value < 0) return undefined
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
