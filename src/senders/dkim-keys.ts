/**
 * DKIM key pairs of sending domains (RFC 6376 §3.6.1).
 *
 * Generation runs on the thread pool: an RSA key takes up to a second of CPU, which the event loop must not wait for.
 * The private key leaves this file sealed only, tied to its domain and selector.
 */
import { generateKeyPair, randomInt } from 'node:crypto'
import { promisify } from 'node:util'
import type { KeyRing } from '../base/key-ring.ts'

const generate = promisify(generateKeyPair)

export interface DkimKey {
  selector: string
  /** SubjectPublicKeyInfo, DER, base64: the `p=` of the record. */
  publicKey: string
  /** PKCS#8 PEM, sealed with the storage key. */
  sealedPrivateKey: Uint8Array
}

export interface DkimKeyRequest {
  keyRing: KeyRing
  domain: string
  selector: string
  bits: number
}

export async function createDkimKey({ keyRing, domain, selector, bits }: DkimKeyRequest): Promise<DkimKey> {
  const pair = await generate('rsa', {
    modulusLength: bits,
    publicKeyEncoding: { type: 'spki', format: 'der' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  })
  return {
    selector,
    publicKey: pair.publicKey.toString('base64'),
    sealedPrivateKey: keyRing.seal(pair.privateKey, dkimSealContext(domain, selector)),
  }
}

/** The associated data of the seal: a key moved to another row does not open. */
export function dkimSealContext(domain: string, selector: string): string {
  return `dkim ${domain} ${selector}`
}

const SELECTOR_PREFIX = 'ps'
const SELECTOR_CHARACTERS = '0123456789abcdefghijklmnopqrstuvwxyz'
const SELECTOR_RANDOM_LENGTH = 4

/** `ps` and 4 random characters, e.g. `ps1a2b`. */
export function newSelector(): string {
  const characters = Array.from(
    { length: SELECTOR_RANDOM_LENGTH },
    () => SELECTOR_CHARACTERS[randomInt(SELECTOR_CHARACTERS.length)],
  )
  return SELECTOR_PREFIX + characters.join('')
}
