/**
 * For receivers of webhooks: whether a delivery was signed with the secret of its endpoint (http/README.md "Events").
 * Stands alone, to be copied into an app.
 *
 *   if (!verifyWebhook(rawBody, request.headers['x-service-signature'], secret)) answer with 401
 *
 * `rawBody` are the bytes as they arrived: a body that was parsed and written again has other bytes. The comparison
 * takes constant time. Whatever is no signature, and no such body, does not fit. Throws for a secret that is missing or
 * empty alone: anybody could sign with it.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'

/** 64 lower-case hexadecimal digits. */
const SIGNATURE = /^[0-9a-f]{64}$/

export function verifyWebhook(
  rawBody: string | Uint8Array | null | undefined,
  header: unknown,
  secret: string,
): boolean {
  if (typeof secret !== 'string' || secret === '') throw new TypeError('verifyWebhook: there is no secret')
  if (typeof rawBody !== 'string' && !(rawBody instanceof Uint8Array)) return false
  if (typeof header !== 'string' || !SIGNATURE.test(header)) return false
  const expected = createHmac('sha256', secret).update(rawBody).digest()
  return timingSafeEqual(expected, Buffer.from(header, 'hex'))
}
