/**
 * HTTP requests to URLs that others chose, which never reach an address of our own network (network/README.md
 * "Addresses never connected to", also for times and sizes). Never throws: a failure is a result with a reason that
 * names no address.
 */
import { lookup as systemLookup } from 'node:dns/promises'
import type { LookupFunction } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { getCACertificates } from 'node:tls'
import { LRUCache } from 'lru-cache'
import { Agent, buildConnector } from 'undici'
import { readRegularFile } from '../base/regular-file.ts'
import { SECOND } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { canonicalIp, isPublicUnicast } from '../base/ip-address.ts'
import {
  exchange,
  isCertificateProblem,
  MOST_BODY_BYTES,
  reasonOf,
  REFUSED_ADDRESS,
  OwnRefusal,
} from './one-exchange.ts'
import { MOST_RECORDS } from './resolver.ts'

/** All addresses of a host name; rejects, or gives none, when it does not resolve. */
export type AddressLookup = (hostname: string) => Promise<readonly string[]>

/** Whether all of them may be connected to. */
type AddressRule = (addresses: readonly string[]) => boolean

export interface GuardedRequestOptions {
  allowPrivateAddresses: boolean
  allowHttp: boolean
  /** PEM file of authorities, trusted beside the built-in ones. */
  caFile?: string | null
  /** Our own addresses, which are refused like private ones (network/README.md "Addresses never connected to"). */
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

/** A document is all of it: one that is cut short, or longer than 64 KiB, has failed. */
export type GuardedDocument =
  | { kind: 'document'; status: number; contentType: string; bytes: Buffer } // any status
  | { kind: 'failed'; reason: string; isCertificateProblem: boolean }

export type GuardedRequest = ReturnType<typeof createGuardedRequest>

const DEFAULT_ANSWER_BYTES = 512
/** As long as a webhook may take in all; the request has its own limit. */
const CONNECT_TIMEOUT = 10 * SECOND
const CHECK_LOOKUP_TIMEOUT = 5 * SECOND
/** A server that closes an idle connection first, some after 2 s, meets the next request with a reset. */
const IDLE_TIMEOUT = SECOND
const MOST_HEADER_BYTES = 16_384
/** URLs that are asked again and again. */
const MOST_REMEMBERED = 1_000
const MOST_URL_CHARACTERS = 2_048

/** Where a URL leads; a text: what is wrong with it. */
type ReadUrl = { origin: string; path: string } | string
type Target = Exclude<ReadUrl, string>

export function createGuardedRequest(options: GuardedRequestOptions) {
  const areAllowed = addressRule(options)
  const lookup = options.lookup ?? lookupBySystem
  const agent = new Agent({
    connect: guardedConnector(areAllowed, lookup, options.caFile ?? null),
    allowH2: false,
    maxHeaderSize: MOST_HEADER_BYTES,
    // The limit over the whole request is ours, below.
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: IDLE_TIMEOUT,
  })
  /** The same few endpoints are posted to all the time: their URLs are read once. */
  const urls = new LRUCache<string, ReadUrl>({
    max: MOST_REMEMBERED,
    memoMethod: (url) => readUrl(url, options.allowHttp),
  })
  return {
    post(asked: GuardedPost): Promise<GuardedAnswer> {
      const target = urls.memo(asked.url)
      return typeof target === 'string'
        ? Promise.resolve({ kind: 'failed', reason: target })
        : postTo(agent, target, asked)
    },
    async get({ url, timeoutMilliseconds }: { url: string; timeoutMilliseconds: number }): Promise<GuardedDocument> {
      const target = urls.memo(url)
      if (typeof target === 'string') return { kind: 'failed', reason: target, isCertificateProblem: false }
      return getFrom(agent, target, timeoutMilliseconds)
    },
    /** What is wrong with this URL, or undefined. A name that does not resolve now is accepted. */
    async check(url: string): Promise<string | undefined> {
      const problem = urlProblem(url, options.allowHttp)
      if (problem !== undefined || options.allowPrivateAddresses) return problem
      const addresses = await addressesWithin(withoutBrackets(new URL(url).hostname), lookup, CHECK_LOOKUP_TIMEOUT)
      return areAllowed(firstOf(addresses)) ? undefined : `must not lead to our network: ${REFUSED_ADDRESS}`
    },
    /** Ends all connections, also those in use. */
    close: (): Promise<void> => agent.destroy(),
  }
}

function readUrl(url: string, allowHttp: boolean): ReadUrl {
  const problem = urlProblem(url, allowHttp)
  if (problem !== undefined) return problem
  const { origin, pathname, search } = new URL(url)
  return { origin, path: pathname + search }
}

/**
 * What is wrong with the text of a URL, as a phrase behind the field's name, or undefined. Only the plain form is
 * taken: a URL parser also reads backslashes, missing slashes, line breaks and blanks inside, and two programs that
 * read the same text as two hosts are how such checks are got around.
 */
function urlProblem(text: string, allowHttp: boolean): string | undefined {
  if (text.length > MOST_URL_CHARACTERS) return `must have at most ${MOST_URL_CHARACTERS} characters`
  // The scheme with both slashes, then the authority: no slash, backslash, query or fragment in it, and not empty.
  const authority = /^(https?):\/\/([^/\\?#]+)/i.exec(text)
  const scheme = authority?.[1]?.toLowerCase()
  if (scheme !== 'https' && !(scheme === 'http' && allowHttp)) {
    return allowHttp ? 'must be an http or https URL' : 'must be an https URL'
  }
  // Blanks, control characters (Cc) and backslashes anywhere.
  if (/[\s\p{Cc}\\]/u.test(text)) return 'must not hold blanks, control characters or backslashes'
  if (authority?.[2]?.includes('@') === true) return 'must not hold a user name or password'
  if (text.includes('#')) return 'must not have a fragment'
  return URL.canParse(text) ? undefined : 'is not a valid URL'
}

function addressRule(options: GuardedRequestOptions): AddressRule {
  return (addresses) => {
    if (options.allowPrivateAddresses) return true
    const own = new Set(options.ownAddresses?.().map(canonicalIp))
    return addresses.every((address) => isPublicUnicast(address) && !own.has(canonicalIp(address)))
  }
}

/** No more are judged, and none of the others is connected to. */
function firstOf(addresses: readonly string[]): readonly string[] {
  return addresses.slice(0, MOST_RECORDS)
}

/** Literals never reach `lookup`, so they are judged first; the peer is judged last, whatever happened between. */
export function guardedConnector(
  areAllowed: AddressRule,
  lookup: AddressLookup,
  caFile: string | null,
): buildConnector.connector {
  const authorities =
    caFile === null ? {} : { ca: [...getCACertificates('default'), readRegularFile(caFile).toString('utf8')] }
  const connect = buildConnector({
    timeout: CONNECT_TIMEOUT,
    allowH2: false,
    lookup: guardedLookup(areAllowed, lookup),
    ...authorities,
  })
  return (target, callback) => {
    const literal = canonicalIp(withoutBrackets(target.hostname))
    if (literal !== undefined && !areAllowed([literal])) return callback(new OwnRefusal(REFUSED_ADDRESS), null)
    connect(target, (...result) => {
      const [error, socket] = result
      if (error !== null) return callback(error, null)
      const peer = socket.remoteAddress
      if (peer !== undefined && areAllowed([peer])) return callback(null, socket)
      socket.destroy()
      callback(peer === undefined ? systemError('ECONNRESET') : new OwnRefusal(REFUSED_ADDRESS), null)
    })
  }
}

/** One refused address among good ones refuses the name: the receiver's DNS must not choose by luck. */
function guardedLookup(areAllowed: AddressRule, lookup: AddressLookup): LookupFunction {
  return (hostname, lookupOptions, callback) => {
    lookup(hostname).then(
      (found) => {
        const addresses = firstOf(found)
        const known = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
        const [first] = known
        if (first === undefined) return callback(systemError('ENOTFOUND'), '')
        if (!areAllowed(addresses)) return callback(new OwnRefusal(REFUSED_ADDRESS), '')
        if (lookupOptions.all === true) callback(null, known)
        else callback(null, first.address, first.family)
      },
      (thrown: unknown) => callback(thrown instanceof Error ? thrown : new Error(errorText(thrown)), ''),
    )
  }
}

export async function lookupBySystem(hostname: string): Promise<string[]> {
  const found = await systemLookup(hostname, { all: true })
  return found.map(({ address }) => address)
}

function systemError(code: 'ENOTFOUND' | 'ECONNRESET'): Error {
  return Object.assign(new Error(code), { code })
}

async function postTo(agent: Agent, target: Target, asked: GuardedPost): Promise<GuardedAnswer> {
  const { headers, body, timeoutMilliseconds, mostAnswerBytes: keptBytes = DEFAULT_ANSWER_BYTES } = asked
  const sent = { ...target, method: 'POST', headers, body }
  const { status, bytes, failure } = await exchange(agent, sent, { timeoutMilliseconds, keptBytes })
  // With a status a body that was cut short does not matter.
  return status === null
    ? { kind: 'failed', reason: reasonOf(failure) }
    : { kind: 'answered', status, answer: oneLine(bytes) }
}

async function getFrom(agent: Agent, target: Target, timeoutMilliseconds: number): Promise<GuardedDocument> {
  const limits = { timeoutMilliseconds, keptBytes: MOST_BODY_BYTES }
  const { status, contentType, bytes, failure } = await exchange(agent, { ...target, method: 'GET' }, limits)
  return status === null || failure !== null
    ? { kind: 'failed', reason: reasonOf(failure), isCertificateProblem: isCertificateProblem(failure) }
    : { kind: 'document', status, contentType, bytes }
}

/** Control characters (Cc), line and paragraph separators: the text is stored and logged as one line. */
function oneLine(bytes: Buffer): string {
  return bytes.length === 0 ? '' : bytes.toString('utf8').replace(/[\p{Cc}\u2028\u2029]+/gu, ' ')
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

/** URLs write IPv6 addresses in brackets. */
function withoutBrackets(host: string): string {
  return host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host
}
