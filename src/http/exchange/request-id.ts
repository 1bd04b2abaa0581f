/**
 * The request id: the client's own X-Request-Id when it is harmless, else a new `req_…` (http/README.md "Conventions").
 * It stands in the answer and in every log line of the request.
 */
import type { IncomingMessage } from 'node:http'
import { newIdentifier } from '../../base/identifier.ts'

/** 1 to 128 letters, digits, dots, underscores and hyphens. */
const CLIENT_REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/

export function requestIdOf(request: IncomingMessage, now: number): string {
  const given = request.headers['x-request-id']
  return typeof given === 'string' && CLIENT_REQUEST_ID.test(given) ? given : newIdentifier('req', now)
}
