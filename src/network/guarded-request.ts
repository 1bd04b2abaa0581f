/**
 * HTTP requests to URLs that others chose, which never reach an address of our own network (hardening.md 4.1).
 *
 * Refused before any connection: an address literal, in whatever notation, that is no global unicast address, and a
 * name of which any address is none. The socket goes to the addresses that were judged, so a name that changes its
 * answer between check and connect gains nothing, and its peer is judged once more. Redirects are not followed.
 * `timeoutMilliseconds` runs from the start of the connect to the end of the answer's headers; of the body at most 64
 * KiB are read, within the same time. A receiver that answered and then does not end its body has answered.
 * Never throws: a failure is a result with a reason that names no address.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { lookup as systemLookup } from 'node:dns/promises'
import type { LookupFunction } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { getCACertificates } from 'node:tls'
import { Agent, buildConnector, errors, request } from 'undici'
import type { Dispatcher } from 'undici'
import { SECOND } from '../base/clock.ts'
import { errorCode, errorText } from '../base/errors.ts'
import { canonicalIp, isPublicUnicast } from '../base/ip-address.ts'
import { urlProblem } from './url-rules.ts'

/** All addresses of a host name; rejects, or gives none, when it does not resolve. */
export type AddressLookup = (hostname: string) => Promise<readonly string[]>

export interface GuardedRequestOptions {
  allowPrivateAddresses: boolean
  allowHttp: boolean
  /** PEM file of authorities, trusted beside the built-in ones. */
  caFile?: string | null
  /** Our own addresses, which are refused like private ones (hardening.md 4.1). */
  ownAddresses?: () => readonly string[]
  /** Default: the system's, with /etc/hosts; a server passes its own, which holds up no thread. */
  lookup?: AddressLookup
}

export interface GuardedPost {
  url: string
  headers: Record<string, string>
  /** Sent as it is: these bytes are signed. */
  body: string | Uint8Array
  timeoutMilliseconds: number
  /** Of the answer's body, that are handed back; left out: 512. */
  mostAnswerBytes?: number
}

export type GuardedAnswer =
  | { kind: 'answered'; status: number; answer: string } // any status; the first bytes of the body as one line
  | { kind: 'failed'; reason: string }

export interface GuardedGet {
  url: string
  timeoutMilliseconds: number
}

/** A document is all of it: one that is cut short, or longer than 64 KiB, has failed. */
export type GuardedDocument =
  | { kind: 'document'; status: number; contentType: string; bytes: Buffer } // any status
  | { kind: 'failed'; reason: string; isCertificateProblem: boolean }

export interface GuardedRequest {
  post(request: GuardedPost): Promise<GuardedAnswer>
  get(request: GuardedGet): Promise<GuardedDocument>
  /** What is wrong with this URL, or undefined. A name that does not resolve now is accepted. */
  check(url: string): Promise<string | undefined>
  /** Ends all connections, also those in use. */
  close(): Promise<void>
}

/** contract.md 8.3 and 8.1. */
const MOST_BODY_BYTES = 65_536
const DEFAULT_ANSWER_BYTES = 512
/** libraries.md 6; the whole request has its own, longer limit. */
const CONNECT_TIMEOUT = 5 * SECOND
const CHECK_LOOKUP_TIMEOUT = 5 * SECOND
const MOST_HEADER_BYTES = 16_384
/** Code of our own for a document that does not end. */
const TOO_LONG = 'TOO_LONG'

const REFUSED_ADDRESS = 'the address is private, local or reserved'

/** Our own refusal, as opposed to a failure of the network. */
class RefusedAddress extends Error {
  constructor() {
    super(REFUSED_ADDRESS)
    this.name = 'RefusedAddress'
  }
}

export function createGuardedRequest(options: GuardedRequestOptions): GuardedRequest {
  const isAllowed = addressRule(options)
  const lookup = options.lookup ?? lookupBySystem
  const agent = new Agent({
    connect: guardedConnector(isAllowed, lookup, options.caFile ?? null),
    allowH2: false,
    maxHeaderSize: MOST_HEADER_BYTES,
    // The limit over the whole request is ours, below.
    headersTimeout: 0,
    bodyTimeout: 0,
  })
  return {
    async post(asked) {
      const problem = urlProblem(asked.url, options.allowHttp)
      return problem === undefined ? postWithin(agent, asked) : { kind: 'failed', reason: problem }
    },
    async get(asked) {
      const problem = urlProblem(asked.url, options.allowHttp)
      if (problem !== undefined) return { kind: 'failed', reason: problem, isCertificateProblem: false }
      return getWithin(agent, asked)
    },
    async check(url) {
      const problem = urlProblem(url, options.allowHttp)
      if (problem !== undefined || options.allowPrivateAddresses) return problem
      const addresses = await addressesWithin(hostOf(url), lookup, CHECK_LOOKUP_TIMEOUT)
      return addresses.every(isAllowed) ? undefined : `must not lead to our network: ${REFUSED_ADDRESS}`
    },
    close: () => agent.destroy(),
  }
}

function addressRule(options: GuardedRequestOptions): (address: string) => boolean {
  return (address) => {
    if (options.allowPrivateAddresses) return true
    const own = options.ownAddresses?.() ?? []
    return isPublicUnicast(address) && !own.some((ours) => canonicalIp(ours) === canonicalIp(address))
  }
}

/** Literals never reach `lookup`, so they are judged first; the peer is judged last, whatever happened between. */
function guardedConnector(
  isAllowed: (address: string) => boolean,
  lookup: AddressLookup,
  caFile: string | null,
): buildConnector.connector {
  const authorities = caFile === null ? {} : { ca: [...getCACertificates('default'), readFileSync(caFile, 'utf8')] }
  const connect = buildConnector({
    timeout: CONNECT_TIMEOUT,
    allowH2: false,
    lookup: guardedLookup(isAllowed, lookup),
    ...authorities,
  })
  return (target, callback) => {
    const literal = canonicalIp(withoutBrackets(target.hostname))
    if (literal !== undefined && !isAllowed(literal)) return callback(new RefusedAddress(), null)
    connect(target, (...result) => {
      const [error, socket] = result
      if (error !== null) return callback(error, null)
      const peer = socket.remoteAddress
      if (peer !== undefined && isAllowed(peer)) return callback(null, socket)
      socket.destroy()
      callback(peer === undefined ? systemError('ECONNRESET') : new RefusedAddress(), null)
    })
  }
}

/** One refused address among good ones refuses the name: the receiver's DNS must not choose by luck. */
function guardedLookup(isAllowed: (address: string) => boolean, lookup: AddressLookup): LookupFunction {
  return (hostname, lookupOptions, callback) => {
    lookup(hostname).then(
      (addresses) => {
        const known = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
        const [first] = known
        if (first === undefined) return callback(systemError('ENOTFOUND'), '')
        if (!addresses.every(isAllowed)) return callback(new RefusedAddress(), '')
        if (lookupOptions.all === true) callback(null, known)
        else callback(null, first.address, first.family)
      },
      (thrown: unknown) => callback(thrown instanceof Error ? thrown : new Error(errorText(thrown)), ''),
    )
  }
}

async function lookupBySystem(hostname: string): Promise<string[]> {
  const found = await systemLookup(hostname, { all: true })
  return found.map(({ address }) => address)
}

function systemError(code: 'ENOTFOUND' | 'ECONNRESET' | typeof TOO_LONG): Error {
  return Object.assign(new Error(code), { code })
}

async function postWithin(agent: Agent, asked: GuardedPost): Promise<GuardedAnswer> {
  const { url, headers, body, timeoutMilliseconds, mostAnswerBytes = DEFAULT_ANSWER_BYTES } = asked
  const answered = await within(
    timeoutMilliseconds,
    (signal) => request(url, { method: 'POST', headers, body, dispatcher: agent, signal }),
    async (response) => ({
      status: response.statusCode,
      answer: await readAnswer(response.body, mostAnswerBytes),
    }),
  )
  if (answered.kind === 'failed') return { kind: 'failed', reason: answered.reason }
  return { kind: 'answered', ...answered.value }
}

async function getWithin(agent: Agent, { url, timeoutMilliseconds }: GuardedGet): Promise<GuardedDocument> {
  const answered = await within(
    timeoutMilliseconds,
    (signal) => request(url, { method: 'GET', dispatcher: agent, signal }),
    async ({ statusCode, headers, body }) => {
      const contentType = headers['content-type']
      return { status: statusCode, contentType: String(contentType ?? ''), bytes: await readDocument(body) }
    },
  )
  return answered.kind === 'failed' ? answered : { kind: 'document', ...answered.value }
}

type Ended<Value> =
  | { kind: 'ended'; value: Value }
  | { kind: 'failed'; reason: string; isCertificateProblem: boolean }

/** The limit holds for both parts; only the first one fails by it, the other sees its body cut short. */
async function within<Response, Value>(
  timeoutMilliseconds: number,
  ask: (signal: AbortSignal) => Promise<Response>,
  read: (response: Response) => Promise<Value>,
): Promise<Ended<Value>> {
  const limit = new AbortController()
  const timer = setTimeout(() => limit.abort(), timeoutMilliseconds)
  // A request whose connection is still being made does not hear of the signal before that ended.
  const timeIsUp = once(limit.signal, 'abort').then(() => Promise.reject(new Error('time is up')))
  try {
    const response = await Promise.race([ask(limit.signal), timeIsUp])
    return { kind: 'ended', value: await read(response) }
  } catch (thrown) {
    const reason = limit.signal.aborted ? `no answer within ${timeoutMilliseconds / SECOND} s` : reasonOf(thrown)
    return { kind: 'failed', reason, isCertificateProblem: CERTIFICATE_CODES.has(errorCode(thrown)) }
  } finally {
    clearTimeout(timer)
  }
}

async function readDocument(body: Dispatcher.ResponseData['body']): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    const bytes = Buffer.from(chunk)
    size += bytes.length
    // Leaving the loop destroys the body and with it the connection.
    if (size > MOST_BODY_BYTES) throw systemError(TOO_LONG)
    chunks.push(bytes)
  }
  return Buffer.concat(chunks)
}

/** Reads to the end, so that the connection can be used again; past the limits it is closed instead. */
async function readAnswer(body: Dispatcher.ResponseData['body'], mostBytes: number): Promise<string> {
  const kept: Buffer[] = []
  let size = 0
  try {
    for await (const chunk of body) {
      const bytes = Buffer.from(chunk)
      if (size < mostBytes) kept.push(bytes)
      size += bytes.length
      // Leaving the loop destroys the body and with it the connection.
      if (size > MOST_BODY_BYTES) break
    }
  } catch {
    // The status is known, and only it counts: the body was cut short by the time limit or by the receiver.
    return firstLine(kept, mostBytes)
  }
  return firstLine(kept, mostBytes)
}

function firstLine(chunks: readonly Buffer[], mostBytes: number): string {
  const bytes = Buffer.concat(chunks).subarray(0, mostBytes)
  // Control characters (Cc), line and paragraph separators: the text is stored and logged as one line.
  return bytes.toString('utf8').replace(/[\p{Cc}\u2028\u2029]+/gu, ' ')
}

/** Codes of a certificate that can not be believed (RFC 8460 §4.3.2.2, `sts-webpki-invalid`). */
const CERTIFICATE_CODES: ReadonlySet<string> = new Set([
  'CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID', 'CERT_SIGNATURE_FAILURE', 'CERT_REVOKED', 'CERT_UNTRUSTED',
  'CERT_REJECTED', 'CERT_CHAIN_TOO_LONG', 'INVALID_CA', 'INVALID_PURPOSE', 'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'ERR_TLS_CERT_ALTNAME_INVALID', 'HOSTNAME_MISMATCH',
])

const REASONS: Record<string, string> = {
  ENOTFOUND: 'the host name does not resolve',
  EAI_AGAIN: 'the host name does not resolve at the moment',
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: 'the connection was reset',
  EPIPE: 'the connection was reset',
  ETIMEDOUT: 'the connection timed out',
  EHOSTUNREACH: 'the host can not be reached',
  ENETUNREACH: 'the host can not be reached',
  UND_ERR_CONNECT_TIMEOUT: 'the connection timed out',
  UND_ERR_SOCKET: 'the connection ended before the answer',
  UND_ERR_HEADERS_OVERFLOW: 'the headers of the answer are too large',
  [TOO_LONG]: `the answer has more than ${MOST_BODY_BYTES} bytes`,
  CERT_HAS_EXPIRED: 'the certificate has expired',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'the certificate is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'the certificate is not trusted',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'the certificate is not trusted',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'the certificate is not trusted',
  ERR_TLS_CERT_ALTNAME_INVALID: 'the certificate is for another host name',
}

/** Error texts of the system hold addresses; the reason is shown to customers and says only what they need. */
function reasonOf(thrown: unknown): string {
  if (thrown instanceof RefusedAddress) return REFUSED_ADDRESS
  const code = errorCode(thrown)
  if (thrown instanceof errors.HTTPParserError) return 'the answer is not HTTP'
  if (code.startsWith('ERR_SSL_') || code === 'EPROTO') return 'TLS failed'
  return REASONS[code] ?? (code === '' ? 'the request failed' : `the request failed (${code})`)
}

async function addressesWithin(
  host: string,
  lookup: AddressLookup,
  timeoutMilliseconds: number,
): Promise<readonly string[]> {
  if (canonicalIp(host) !== undefined) return [host]
  const limit = new AbortController()
  try {
    return await Promise.race([lookup(host), delay(timeoutMilliseconds, [], { signal: limit.signal })])
  } catch {
    // A name that does not resolve now is judged at each connect.
    return []
  } finally {
    limit.abort()
  }
}

function hostOf(url: string): string {
  return withoutBrackets(new URL(url).hostname)
}

/** URLs write IPv6 addresses in brackets. */
function withoutBrackets(host: string): string {
  return host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host
}
