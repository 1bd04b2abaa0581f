/**
 * HMAC-SHA-256 (RFC 2104), of which every message has several. Made of two one-shot hashes: Node's Hmac objects take
 * nearly three times as long for a few bytes. The key in both its paddings is kept as long as the key is.
 */
import { hash, type KeyObject } from 'node:crypto'

const BLOCK_BYTES = 64
const HASH_BYTES = 32
const MOST_BYTES = 64
const INNER_PADDING = 0x36
const OUTER_PADDING = 0x5c

interface PaddedKey {
  /** Followed by room for what is signed. */
  inner: Buffer
  /** Followed by room for the hash of that. */
  outer: Buffer
}

const paddedKeys = new WeakMap<KeyObject, PaddedKey>()

/** Over a purpose in US-ASCII and the bytes behind it; in hexadecimal digits. RangeError for more than 64 bytes. */
export function hmacSha256(key: KeyObject, purpose: string, bytes: Uint8Array): string {
  if (purpose.length + bytes.length > MOST_BYTES) throw new RangeError(`more than ${MOST_BYTES} bytes to sign`)
  const { inner, outer } = paddedKeyOf(key)
  const start = BLOCK_BYTES + inner.write(purpose, BLOCK_BYTES, 'latin1')
  inner.set(bytes, start)
  return outerHash(outer, inner.subarray(0, start + bytes.length))
}

/** Over a text of any length in UTF-8; in hexadecimal digits. */
export function hmacSha256OfText(key: KeyObject, text: string): string {
  const { inner, outer } = paddedKeyOf(key)
  const signed = Buffer.allocUnsafe(BLOCK_BYTES + Buffer.byteLength(text))
  inner.copy(signed, 0, 0, BLOCK_BYTES)
  signed.write(text, BLOCK_BYTES, 'utf8')
  return outerHash(outer, signed)
}

function outerHash(outer: Buffer, signed: Buffer): string {
  outer.write(hash('sha256', signed, 'hex'), BLOCK_BYTES, 'hex')
  return hash('sha256', outer, 'hex')
}

function paddedKeyOf(key: KeyObject): PaddedKey {
  const known = paddedKeys.get(key)
  if (known !== undefined) return known
  const exported = key.export()
  const bytes = exported.length > BLOCK_BYTES ? hash('sha256', exported, 'buffer') : exported
  const padded = { inner: padWith(bytes, INNER_PADDING, MOST_BYTES), outer: padWith(bytes, OUTER_PADDING, HASH_BYTES) }
  paddedKeys.set(key, padded)
  return padded
}

function padWith(key: Buffer, padding: number, room: number): Buffer {
  const padded = Buffer.alloc(BLOCK_BYTES + room, padding)
  key.forEach((byte, index) => {
    padded[index] = byte ^ padding
  })
  return padded
}
