/**
 * Requests that node:http cannot read (no HTTP, too large a head, too slow) are answered in the service's envelope too,
 * and the connection ends. Never throws.
 */
import { STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { errorCode, ServiceError } from '../../base/errors.ts'
import { newIdentifier } from '../../base/identifier.ts'
import { JSON_CONTENT_TYPE } from './answer-request.ts'
import { errorAnswer } from './error-responses.ts'

/** What node:http reports, and the status that says it; everything else is 400. */
const KNOWN: Record<string, { status: number; details: string }> = {
  HPE_HEADER_OVERFLOW: { status: 431, details: 'the request head is larger than 16 KiB' },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, details: 'the request did not arrive in time' },
}
const MALFORMED = { status: 400, details: 'the request is not valid HTTP' }

export function answerClientError(error: Error, socket: Duplex, now: number): void {
  if (!socket.writable || errorCode(error) === 'ECONNRESET') {
    socket.destroy()
    return
  }
  const { status, details } = KNOWN[errorCode(error)] ?? MALFORMED
  const requestId = newIdentifier('req', now)
  const { body } = errorAnswer(new ServiceError('invalid_request', details, { status }), requestId)
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`,
    `Content-Type: ${JSON_CONTENT_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    'Cache-Control: no-store',
    'Connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy())
}
