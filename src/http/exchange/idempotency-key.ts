/**
 * Idempotency-Key (also X-Idempotency-Key) and what it stands for: one request of one API key (http/README.md
 * "Idempotency").
 *
 * The fingerprint is the SHA-256 of method, path without prefix, and the body as canonical JSON (keys sorted, no white
 * space), so that the same request written in another way is the same. Throws ServiceError `invalid_request`, 400.
 */
import { createHash } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { ServiceError } from '../../base/errors.ts'
import type { IdempotencyEntry } from '../../messages/accept/send-request.ts'

// 1 to 256 printable characters of ASCII.
const KEY = /^[\x20-\x7e]{1,256}$/
/** Left out of kept answers: they are shown once. */
const SECRET_FIELDS = ['key', 'secret']

/** null: none was sent. */
export function readIdempotencyKey(headers: IncomingHttpHeaders): string | null {
  const given = headers['idempotency-key'] ?? headers['x-idempotency-key']
  if (given === undefined) return null
  const key = Array.isArray(given) ? given.join(', ') : given
  if (KEY.test(key)) return key
  throw new ServiceError('invalid_request', 'Idempotency-Key: expected 1 to 256 printable ASCII characters', {
    status: 400,
  })
}

export interface FingerprintedRequest {
  method: string
  /** Below the prefixes. */
  path: string
  /** A document of JSON. */
  document: unknown
}

export function idempotencyEntry(
  apiKeyId: string | null,
  key: string,
  { method, path, document }: FingerprintedRequest,
): IdempotencyEntry {
  const fingerprint = createHash('sha256').update(`${method} ${path}\n`).update(canonicalJson(document)).digest()
  return { apiKeyId, key, fingerprint }
}

/** RFC 8785 in short: keys sorted by UTF-16 units, no white space. The depth is bounded by the reader of the body. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const entries = Object.entries(value).toSorted(([left], [right]) => (left < right ? -1 : 1))
  return `{${entries.map(([name, item]) => `${JSON.stringify(name)}:${canonicalJson(item)}`).join(',')}}`
}

/** An answer as it may be kept. */
export function withoutSecrets(body: object): object {
  if (!('data' in body) || typeof body.data !== 'object' || body.data === null) return body
  const data = Object.entries(body.data).filter(([name]) => !SECRET_FIELDS.includes(name))
  return { ...body, data: Object.fromEntries(data) }
}
