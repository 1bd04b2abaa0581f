/**
 * HMAC-SHA-256 (RFC 2104) of a few bytes, of which every message has several. Made of two one-shot hashes: Node's Hmac
 * objects take nearly three times as long. The key in both its paddings is kept as long as the key is.
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
  outer.write(hash('sha256', inner.subarray(0, start + bytes.length), 'hex'), BLOCK_BYTES, 'hex')
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
