/**
 * Sortable identifiers (base/README.md "Identifiers"): a prefix and 26 characters of Crockford's base32, 48 bits of
 * time and 80 random bits. Lower case, because they may pass through systems that fold case. Nothing here throws for
 * input.
 */
import { randomFillSync } from 'node:crypto'
import { CROCKFORD } from './base32.ts'

export type IdentifierPrefix = 'msg' | 'bat' | 'evt' | 'wh' | 'whd' | 'sup' | 'key' | 'req' | 'per' | 'ses'

const BYTE_LENGTH = 16
const TEXT_LENGTH = 26
const RANDOMNESS_BYTES = 4_096

/** A new identifier such as `msg_01kapg6t3vq8x2m5r7w9y4c6de` for the time `now` (Unix milliseconds). */
export function newIdentifier(prefix: IdentifierPrefix, now: number): string {
  return identifierFromBytes(prefix, newIdentifierBytes(now))
}

/** The 16 bytes of a new identifier, for what is stored without being told to anybody yet. */
export function newIdentifierBytes(now: number): Buffer {
  const bytes = Buffer.allocUnsafe(BYTE_LENGTH)
  bytes.writeUIntBE(now, 0, 6)
  randomness.copyInto(bytes, 6)
  return bytes
}

/** The text form of 16 stored bytes. */
export function identifierFromBytes(prefix: IdentifierPrefix, bytes: Uint8Array): string {
  return `${prefix}_${CROCKFORD.encode(bytes)}`
}

/** The 16 bytes of an identifier with this prefix, or undefined when the text is not one. */
export function identifierToBytes(prefix: IdentifierPrefix, text: string): Buffer | undefined {
  const body = text.slice(prefix.length + 1)
  if (!text.startsWith(`${prefix}_`) || body.length !== TEXT_LENGTH) return undefined
  return CROCKFORD.decode(body)
}

/** Random bytes drawn in advance: a call for ten of them costs the process about as much as one for thousands. */
const randomness = createRandomness()

function createRandomness() {
  const bytes = Buffer.alloc(RANDOMNESS_BYTES)
  let used = RANDOMNESS_BYTES
  return {
    copyInto(target: Buffer, offset: number): void {
      const count = target.length - offset
      if (used + count > RANDOMNESS_BYTES) {
        randomFillSync(bytes)
        used = 0
      }
      bytes.copy(target, offset, used, used + count)
      used += count
    },
  }
}
