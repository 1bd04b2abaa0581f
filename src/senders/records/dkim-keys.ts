/**
 * DKIM key pairs: made here, or brought along as PEM (RFC 6376 §3.6.1, RFC 8463 §4). The private key leaves this file
 * sealed only, tied to its domain and selector; no error tells anything of it.
 */
import { createPrivateKey, createPublicKey, generateKeyPair, randomInt, type KeyObject } from 'node:crypto'
import { promisify } from 'node:util'
import type { KeyRing } from '../../base/key-ring.ts'
import type { DkimAlgorithm, DkimKeyRecord, PublicDkimKey } from '../../store/records/sender-records.ts'

/** On the thread pool: an RSA key takes up to a second of CPU, which the event loop must not wait for. */
const generate = promisify(generateKeyPair)

interface DkimKeyRequest extends Pick<DkimKeyRecord, 'selector' | 'algorithm' | 'role'> {
  keyRing: KeyRing
  domain: string
  bits: number
  now: number
  /** A key that was brought along, as `readPrivateKey` gives it; left out: a new one. */
  privateKey?: KeyObject | undefined
}

export async function createDkimKey(request: DkimKeyRequest): Promise<DkimKeyRecord> {
  const { keyRing, domain, selector, algorithm, role, now } = request
  const privateKey = request.privateKey ?? (await newPrivateKey(algorithm, request.bits))
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  return {
    selector,
    algorithm,
    role,
    publicKey: publishedKey(createPublicKey(privateKey)),
    sealedPrivateKey: keyRing.seal(pem, dkimSealContext(domain, selector)),
    createdAt: now,
    seenAt: null,
    retireAt: null,
  }
}

async function newPrivateKey(algorithm: DkimAlgorithm, bits: number): Promise<KeyObject> {
  const pair = algorithm === 'rsa-sha256' ? await generate('rsa', { modulusLength: bits }) : await generate('ed25519')
  return pair.privateKey
}

/** RFC 8463 §3: the raw Ed25519 key is the end of its SubjectPublicKeyInfo. */
const ED25519_KEY_BYTES = 32

/** The `p=` of the record: SubjectPublicKeyInfo of an RSA key, the raw bytes of an Ed25519 one. */
function publishedKey(key: KeyObject): string {
  const info = key.export({ type: 'spki', format: 'der' })
  return (key.asymmetricKeyType === 'ed25519' ? info.subarray(-ED25519_KEY_BYTES) : info).toString('base64')
}

export function publicKeyOf({ algorithm, publicKey }: PublicDkimKey): KeyObject {
  if (algorithm === 'rsa-sha256') {
    return createPublicKey({ key: Buffer.from(publicKey, 'base64'), format: 'der', type: 'spki' })
  }
  const x = Buffer.from(publicKey, 'base64').toString('base64url')
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' })
}

/** http/README.md "Domains". */
const LEAST_BITS = 2_048
const MOST_BITS = 4_096
/** Ours: a key of 4096 bits has 3,300 characters. */
const MOST_PEM_CHARACTERS = 16_384

/** A private key as a customer brings it: PEM without a passphrase, RSA of 2048 to 4096 bits. */
export function readPrivateKey(pem: string): { ok: true; key: KeyObject } | { ok: false; problem: string } {
  const key = pem.length > MOST_PEM_CHARACTERS ? undefined : parsePrivateKey(pem)
  if (key === undefined) return { ok: false, problem: 'is no private key in PEM without a passphrase' }
  if (key.asymmetricKeyType !== 'rsa') return { ok: false, problem: 'is no RSA key' }
  const bits = key.asymmetricKeyDetails?.modulusLength ?? 0
  if (bits < LEAST_BITS || bits > MOST_BITS) {
    return { ok: false, problem: `has ${bits} bits: must have ${LEAST_BITS} to ${MOST_BITS}` }
  }
  return { ok: true, key }
}

function parsePrivateKey(pem: string): KeyObject | undefined {
  try {
    return createPrivateKey(pem)
  } catch {
    // What the library says may hold parts of what it read.
    return undefined
  }
}

/** The associated data of the seal: a key moved to another row does not open. */
export function dkimSealContext(domain: string, selector: string): string {
  return `dkim ${domain} ${selector}`
}

export const FOREIGN_KEY = 'the private key does not open with the master key of this server: nothing can be signed'

type SealedKey = Pick<DkimKeyRecord, 'selector' | 'sealedPrivateKey'>

/** Whether a key of this domain opens: not one sealed with another master key, as behind a restore without it. */
export function dkimKeyOpens(keyRing: Pick<KeyRing, 'open'>, domain: string): (key: SealedKey) => boolean {
  return ({ selector, sealedPrivateKey }) => {
    try {
      keyRing.open(sealedPrivateKey, dkimSealContext(domain, selector))
      return true
    } catch {
      return false
    }
  }
}

export function rotationHint(domain: string): string {
  return `sternpost domain dkim rotate ${domain}, and publish the next key; or start with the master key of before`
}

const SELECTOR_PREFIX = 'ps'
const SELECTOR_CHARACTERS = '0123456789abcdefghijklmnopqrstuvwxyz'
const SELECTOR_RANDOM_LENGTH = 4

/** `ps` and 4 random characters, e.g. `ps1a2b`, none of those that are taken. */
export function newSelector(taken: readonly string[] = []): string {
  const draw = (): string => SELECTOR_CHARACTERS[randomInt(SELECTOR_CHARACTERS.length)] ?? ''
  const selector = SELECTOR_PREFIX + Array.from({ length: SELECTOR_RANDOM_LENGTH }, draw).join('')
  return taken.includes(selector) ? newSelector(taken) : selector
}
