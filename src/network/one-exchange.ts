/**
 * One HTTP request and what came back, within a time and a size. Never rejects: `failure` says why there was no answer
 * (`status` is null then), or why the body is not whole. One that is too long or too late is cut, and its connection
 * with it. Bytes are taken as undici hands them out: a stream for each answer would cost more than all else of a short
 * post. No reason names an address: customers read them.
 */
import { errors, type Dispatcher } from 'undici'
import { SECOND } from '../base/clock.ts'
import { errorCode } from '../base/errors.ts'

/** webhooks/README.md "Deliveries", http/README.md "Webhooks". */
export const MOST_BODY_BYTES = 65_536
const TOO_LONG = `the answer has more than ${MOST_BODY_BYTES} bytes`

export interface Sent extends Pick<Dispatcher.DispatchOptions, 'method' | 'path'> {
  origin: string
  headers?: Record<string, string>
  body?: string | Uint8Array
}

interface HttpReply {
  /** null: no answer. */
  status: number | null
  contentType: string
  /** As much of it as was asked for. */
  bytes: Buffer
  /** null: the whole body was there. */
  failure: unknown
}

interface ExchangeLimits {
  timeoutMilliseconds: number
  /** Of the body that are handed back. */
  keptBytes: number
}

export function exchange(dispatcher: Dispatcher, sent: Sent, limits: ExchangeLimits): Promise<HttpReply> {
  return new Promise((resolve) => void dispatcher.dispatch(sent, new Exchange(limits, resolve)))
}

const NOTHING = Buffer.alloc(0)
/** Below it an answer is only announced (RFC 9110 §15.2). */
const FIRST_FINAL_STATUS = 200

/** undici calls the methods, in their order here; `end` comes once. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #keptBytes: number
  readonly #resolve: (received: HttpReply) => void
  readonly #timer: NodeJS.Timeout
  #controller: Dispatcher.DispatchController | undefined
  #status: number | null = null
  #contentType = ''
  #kept: Buffer[] = []
  #size = 0
  #isOver = false

  constructor({ timeoutMilliseconds, keptBytes }: ExchangeLimits, resolve: (received: HttpReply) => void) {
    this.#keptBytes = keptBytes
    this.#resolve = resolve
    this.#timer = setTimeout(
      () => this.#cut(new OwnRefusal(`no answer within ${timeoutMilliseconds / SECOND} s`)),
      timeoutMilliseconds,
    )
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    // A connection that was made too late: nothing is sent on it.
    if (this.#isOver) controller.abort(new Error('the time was up before the connection was made'))
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (status < FIRST_FINAL_STATUS) return
    this.#status = status
    this.#contentType = String(headers['content-type'] ?? '')
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#size < this.#keptBytes) this.#kept.push(chunk)
    this.#size += chunk.length
    if (this.#size > MOST_BODY_BYTES) this.#cut(new OwnRefusal(TOO_LONG))
  }

  onResponseEnd(): void {
    this.#end(null)
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#end(error)
  }

  #cut(why: Error): void {
    this.#end(why)
    this.#controller?.abort(why)
  }

  #end(failure: unknown): void {
    if (this.#isOver) return
    this.#isOver = true
    clearTimeout(this.#timer)
    const bytes = this.#kept.length === 0 ? NOTHING : Buffer.concat(this.#kept).subarray(0, this.#keptBytes)
    this.#resolve({ status: this.#status, contentType: this.#contentType, bytes, failure })
  }
}

export const REFUSED_ADDRESS = 'the address is private, local or reserved'

/** Our own refusal, as opposed to a failure of the network: its text may be told. */
export class OwnRefusal extends Error {}

/** Codes of a certificate that cannot be believed (RFC 8460 §4.3.2.2, `sts-webpki-invalid`). */
const CERTIFICATE_CODES: ReadonlySet<string> = new Set([
  'CERT_HAS_EXPIRED',
  'CERT_NOT_YET_VALID',
  'CERT_SIGNATURE_FAILURE',
  'CERT_REVOKED',
  'CERT_UNTRUSTED',
  'CERT_REJECTED',
  'CERT_CHAIN_TOO_LONG',
  'INVALID_CA',
  'INVALID_PURPOSE',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'ERR_TLS_CERT_ALTNAME_INVALID',
  'HOSTNAME_MISMATCH',
])

const REASONS: Record<string, string> = {
  ENOTFOUND: 'the host name does not resolve',
  EAI_AGAIN: 'the host name does not resolve at the moment',
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: 'the connection was reset',
  EPIPE: 'the connection was reset',
  ETIMEDOUT: 'the connection timed out',
  EHOSTUNREACH: 'the host cannot be reached',
  ENETUNREACH: 'the host cannot be reached',
  UND_ERR_CONNECT_TIMEOUT: 'the connection timed out',
  UND_ERR_SOCKET: 'the connection ended before the answer',
  UND_ERR_HEADERS_OVERFLOW: 'the headers of the answer are too large',
  CERT_HAS_EXPIRED: 'the certificate has expired',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'the certificate is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'the certificate is not trusted',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'the certificate is not trusted',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'the certificate is not trusted',
  ERR_TLS_CERT_ALTNAME_INVALID: 'the certificate is for another host name',
}

/** A phrase that names no address. */
export function reasonOf(thrown: unknown): string {
  if (thrown instanceof OwnRefusal) return thrown.message
  const code = errorCode(thrown)
  if (thrown instanceof errors.HTTPParserError) return 'the answer is not HTTP'
  if (code.startsWith('ERR_SSL_') || code === 'EPROTO') return 'TLS failed'
  return REASONS[code] ?? (code === '' ? 'the request failed' : `the request failed (${code})`)
}

/** The server is there, and its certificate cannot be believed. */
export function isCertificateProblem(thrown: unknown): boolean {
  return CERTIFICATE_CODES.has(errorCode(thrown))
}
