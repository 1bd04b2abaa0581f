/**
 * How the secret of a webhook endpoint is kept: sealed, and tied to its endpoint (hardening.md 8).
 *
 * `openSecret` throws when the master key is another one or the bytes belong to another endpoint.
 */
import type { KeyRing } from '../base/key-ring.ts'

export function sealSecret(keyRing: KeyRing, endpointId: string, secret: string): Buffer {
  return keyRing.seal(secret, associatedData(endpointId))
}

export function openSecret(keyRing: KeyRing, endpointId: string, sealedSecret: Uint8Array): string {
  return keyRing.open(sealedSecret, associatedData(endpointId))
}

function associatedData(endpointId: string): string {
  return `webhook ${endpointId}`
}
