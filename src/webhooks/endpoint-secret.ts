/**
 * How the secrets of a webhook endpoint are kept: sealed, and tied to their endpoint (hardening.md 8).
 *
 * `openSecret` and `openSecrets` throw when the master key is another one or the bytes belong to another endpoint.
 */
import type { KeyRing } from '../base/key-ring.ts'
import type { WebhookTarget } from '../store/webhook-records.ts'

export function sealSecret(keyRing: KeyRing, endpointId: string, secret: string): Buffer {
  return keyRing.seal(secret, associatedData(endpointId))
}

export function openSecret(keyRing: KeyRing, endpointId: string, sealedSecret: Uint8Array): string {
  return keyRing.open(sealedSecret, associatedData(endpointId))
}

/** What signs now, and what will after a rotation that is under way (contract.md 8.5). */
export function openSecrets(
  keyRing: KeyRing,
  { endpointId, sealedSecret, next }: WebhookTarget,
  now: number,
): { secret: string; nextSecret: string | null } {
  const open = (sealed: Uint8Array): string => openSecret(keyRing, endpointId, sealed)
  if (next === null) return { secret: open(sealedSecret), nextSecret: null }
  if (now >= next.switchAt) return { secret: open(next.sealedSecret), nextSecret: null }
  return { secret: open(sealedSecret), nextSecret: open(next.sealedSecret) }
}

function associatedData(endpointId: string): string {
  return `webhook ${endpointId}`
}
