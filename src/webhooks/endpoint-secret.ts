/**
 * How the secrets of a webhook endpoint are kept: sealed, and tied to their endpoint (senders/README.md "Secrets").
 *
 * `openSecret` and `openSecrets` throw when the master key is another one or the bytes belong to another endpoint. What
 * was opened for posting is remembered together with its sealed bytes, so that a post costs no decryption; a changed
 * secret has other sealed bytes.
 */
import { createSecretKey, type KeyObject } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { KeyRing } from '../base/key-ring.ts'
import type { WebhookTarget } from '../store/records/webhook-records.ts'

/** Secrets of endpoints that are posted to. */
const MOST_REMEMBERED = 1_000
const opened = new WeakMap<KeyRing, LRUCache<string, OpenedSecret>>()

interface OpenedSecret {
  sealed: Uint8Array
  secret: KeyObject
}

export interface OpenedSecrets {
  /** In UTF-8, as given. */
  secret: KeyObject
  nextSecret: KeyObject | null
}

export function sealSecret(keyRing: KeyRing, endpointId: string, secret: string): Buffer {
  return keyRing.seal(secret, associatedData(endpointId))
}

export function openSecret(keyRing: KeyRing, endpointId: string, sealedSecret: Uint8Array): string {
  return keyRing.open(sealedSecret, associatedData(endpointId))
}

/** What signs now, and what will after a rotation that is under way (webhooks/README.md "Secret rotation"). */
export function openSecrets(
  keyRing: KeyRing,
  { endpointId, sealedSecret, next }: WebhookTarget,
  now: number,
): OpenedSecrets {
  if (next === null) return { secret: openOnce(keyRing, endpointId, sealedSecret), nextSecret: null }
  const nextSecret = openOnce(keyRing, endpointId, next.sealedSecret, 'next')
  if (now >= next.switchAt) return { secret: nextSecret, nextSecret: null }
  return { secret: openOnce(keyRing, endpointId, sealedSecret), nextSecret }
}

/** False: what is sealed for this endpoint does not open, as after a restore without the master key. */
export function canSign(keyRing: KeyRing, target: WebhookTarget, now: number): boolean {
  try {
    openSecrets(keyRing, target, now)
    return true
  } catch {
    // Sealed with another key.
    return false
  }
}

function openOnce(keyRing: KeyRing, endpointId: string, sealed: Uint8Array, which: 'now' | 'next' = 'now'): KeyObject {
  const remembered = opened.get(keyRing) ?? new LRUCache<string, OpenedSecret>({ max: MOST_REMEMBERED })
  opened.set(keyRing, remembered)
  const name = `${endpointId} ${which}`
  const known = remembered.get(name)
  if (known !== undefined && Buffer.compare(known.sealed, sealed) === 0) return known.secret
  const secret = createSecretKey(openSecret(keyRing, endpointId, sealed), 'utf8')
  remembered.set(name, { sealed, secret })
  return secret
}

function associatedData(endpointId: string): string {
  return `webhook ${endpointId}`
}
