/**
 * Purpose-separated keys from the one master key, and sealing of secrets at rest (base/README.md "Keys"). `open` throws
 * when key, row or bytes do not fit.
 */
import { createCipheriv, createDecipheriv, createSecretKey, hkdfSync, randomBytes, type KeyObject } from 'node:crypto'

/**
 * bounce, complaint: tokens in mail; open, click, unsubscribe: those in tracked links; storage: secrets at rest;
 * erasure: addresses that were erased; domain-link: links to the DNS records of a domain; passkey: challenges of
 * passkeys.
 */
type KeyPurpose =
  'bounce' | 'complaint' | 'open' | 'click' | 'unsubscribe' | 'storage' | 'erasure' | 'domain-link' | 'passkey'

export const MASTER_KEY_BYTES = 32
const NONCE_BYTES = 12
const TAG_BYTES = 16

export type KeyRing = ReturnType<typeof createKeyRing>

export function createKeyRing(masterKey: Uint8Array) {
  if (masterKey.length !== MASTER_KEY_BYTES) throw new Error(`the master key must have ${MASTER_KEY_BYTES} bytes`)
  const keys = new Map<KeyPurpose, KeyObject>()
  const key = (purpose: KeyPurpose): KeyObject => {
    const known = keys.get(purpose)
    if (known !== undefined) return known
    const bytes = hkdfSync('sha256', masterKey, '', `sternpost ${purpose}`, MASTER_KEY_BYTES)
    const derived = createSecretKey(new Uint8Array(bytes))
    keys.set(purpose, derived)
    return derived
  }
  return {
    /** 32 bytes for this purpose, the same object each time: a MAC with bytes costs four times as much. */
    key,
    /** nonce ‖ ciphertext ‖ tag. */
    seal(secret: string, associatedData: string): Buffer {
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv('aes-256-gcm', key('storage'), nonce)
      cipher.setAAD(Buffer.from(associatedData))
      return Buffer.concat([nonce, cipher.update(secret, 'utf8'), cipher.final(), cipher.getAuthTag()])
    },
    open(sealed: Uint8Array, associatedData: string): string {
      const bytes = Buffer.from(sealed)
      const decipher = createDecipheriv('aes-256-gcm', key('storage'), bytes.subarray(0, NONCE_BYTES))
      decipher.setAAD(Buffer.from(associatedData))
      decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
      const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES))
      return Buffer.concat([text, decipher.final()]).toString('utf8')
    },
  }
}
