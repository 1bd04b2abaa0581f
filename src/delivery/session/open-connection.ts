/**
 * Opens a connection to the first host of a domain that answers for good. Addresses are asked in the order of the
 * hosts, those that failed a short while ago last, at most 20 in all. Failures at connect, banner, EHLO or STARTTLS
 * lead to the next one; a reply that limits the rate does not: it is the wish of the whole domain. Opportunistic TLS
 * that fails goes on with one plain connection to the same address. Every connection is told to `note` with what it
 * says of its host and of TLS. Never throws. egress/README.md "Back-off of a path", delivery/README.md "Stages" and
 * "TLS", network/README.md "Mail hosts"; RFC 7435 §3.
 */
import { LRUCache } from 'lru-cache'
import { MINUTE } from '../../base/clock.ts'
import type { ConnectionNote } from '../../egress/shaping/shaping.ts'
import type { ConnectionFacts } from '../../mail/reply/delivery-outcome.ts'
import type { HostTls } from '../protocol/host-tls.ts'
import type { Opened, SessionTarget, SetupFailure, SmtpSession } from './smtp-session.ts'
import type { LocalFailure } from './smtp-wire.ts'
import type { Transcript } from './transcript.ts'
import { NO_CONNECTION, type PathBatch, type PathFailure, type ThreadConnectionNote } from '../protocol/try-result.ts'

/**
 * Addresses that failed a short while ago, by egress IP: they are asked last. One success clears it. And those that
 * take flights (delivery/README.md "Flights"). Bounded, by the monotonic clock of the cache (egress/README.md "Back-off
 * of a path").
 */
type HostMemory = ReturnType<typeof createHostMemory>

export interface ConnectionTools {
  open(target: SessionTarget, transcript: Transcript | null): Promise<Opened>
  note(note: ThreadConnectionNote): void
  hosts: HostMemory
}

interface ConnectionRequest extends Omit<PathBatch, 'rows'> {
  /** The recipient domain for whose message it is opened. */
  domain: string
  mayPipeline: boolean
  transcript: Transcript | null
  isAborted: () => boolean
  onConnect: (place: { host: string; address: string }) => void
}

export type OpenedConnection =
  | { kind: 'open'; session: SmtpSession }
  | { kind: 'failed'; failure: PathFailure; facts: ConnectionFacts }
  | LocalFailure
  | { kind: 'aborted' }

type Place = { host: string; address: string; tls: HostTls }

const FAILED = { kind: 'path-failed', reply: null } as const
const NO_HOST = { ...FAILED, stage: 'connect', code: '4.4.4', reason: 'no address to connect to', host: null } as const
const REQUIRED: readonly HostTls['kind'][] = ['required', 'verified', 'dane']
const MOST_ADDRESSES = 20
const MOST_HOSTS = 20_000
const ASIDE_FOR = 2 * MINUTE
const ASIDE_AFTER_TIMEOUT = 15 * MINUTE
const FLIGHTS_KNOWN_FOR = 60 * MINUTE
// A host that means all of its domain: it wants less of us, wherever we connect.
const LIMITS_RATE = /\brate\b|too many|too (?:fast|much)|throttl|slow down|limit|exceed/i

export function createHostMemory() {
  const aside = new LRUCache<string, true>({ max: MOST_HOSTS })
  const flying = new LRUCache<string, true>({ max: MOST_HOSTS, ttl: FLIGHTS_KNOWN_FOR })
  return {
    isAside: (source: string, address: string) => aside.has(`${source} ${address}`),
    failed(source: string, address: string, isTimeout: boolean): void {
      aside.set(`${source} ${address}`, true, { ttl: isTimeout ? ASIDE_AFTER_TIMEOUT : ASIDE_FOR })
    },
    worked: (source: string, address: string) => void aside.delete(`${source} ${address}`),
    knowsFlights: (source: string, address: string) => flying.has(`${source} ${address}`),
    noteFlights(source: string, address: string, takesThem: boolean): void {
      if (takesThem) flying.set(`${source} ${address}`, true)
      else flying.delete(`${source} ${address}`)
    },
  }
}

export async function openConnection(request: ConnectionRequest, tools: ConnectionTools): Promise<OpenedConnection> {
  let last: Extract<OpenedConnection, { kind: 'failed' }> = { kind: 'failed', failure: NO_HOST, facts: NO_CONNECTION }
  for (const place of placesOf(request, tools.hosts)) {
    if (request.isAborted()) return { kind: 'aborted' }
    if (place.tls.kind === 'skip') {
      const { code, reason } = place.tls
      const failure: PathFailure = { ...FAILED, stage: 'starttls', code, reason, host: place.host }
      if (last.failure.host === null) last = { kind: 'failed', failure, facts: NO_CONNECTION }
      continue
    }
    request.onConnect({ host: place.host, address: place.address })
    const opened = await openPlace(place, request, tools)
    if (opened.kind !== 'failed') return opened
    last = opened
    if (limitsRate(opened.failure)) break
  }
  return last
}

/** Skipped hosts come too, once each: why they are is what the path fails for when there is no other. */
function placesOf({ site: { hosts }, path: { source } }: ConnectionRequest, memory: HostMemory): Place[] {
  const all = hosts.flatMap(({ name, addresses, tls }) =>
    (tls.kind === 'skip' ? addresses.slice(0, 1) : addresses).map((address) => ({ host: name, address, tls })),
  )
  const places = all.slice(0, MOST_ADDRESSES)
  const isAside = ({ address }: Place): boolean => memory.isAside(source, address)
  return [...places.filter((place) => !isAside(place)), ...places.filter(isAside)]
}

async function openPlace(place: Place, request: ConnectionRequest, tools: ConnectionTools): Promise<OpenedConnection> {
  const { host, address, tls } = place
  const { path, mayPipeline, transcript } = request
  const { port, source, hostname } = path
  const note = (what: ConnectionNote, said: ThreadConnectionNote['tls']): void =>
    tools.note({ pathKey: path.key, note: what, host, address, domain: request.domain, tls: said })
  const inFlight = path.carefulHosts.includes(host) ? 1 : path.inFlight
  const flights = { inFlight, knowsFlights: tools.hosts.knowsFlights(source, address) }
  const target: SessionTarget = { host, address, port, source, hostname, tls, mayPipeline, ...flights }
  let opened = await tools.open(target, transcript)
  let said = tlsNote(tls, opened)
  if (opened.kind === 'failed' && mayFallBack(tls, opened.failure)) {
    const { reason } = opened.failure
    opened = await tools.open({ ...target, tls: { kind: 'plain', reason, policy: tls.policy } }, transcript)
    if (said !== null) said = { ...said, isPlainFallback: opened.kind === 'open' }
  }
  if (opened.kind === 'local') return opened
  if (opened.kind === 'failed') {
    const { failure, facts } = opened
    tools.hosts.failed(source, address, failure.isTimeout)
    const { stage, code, reply, reason } = failure
    note({ kind: 'failed', stage, host, reply, reason, wasRequiredTls: REQUIRED.includes(tls.kind) }, said)
    return { kind: 'failed', failure: { ...FAILED, stage, code, reason, host, reply }, facts }
  }
  const { session } = opened
  tools.hosts.worked(source, address)
  note({ kind: 'opened', inFlight: session.inFlight }, said)
  void session.ended.then((end) => {
    const problem = session.flightProblem()
    const takesThem = session.takesFlights()
    if (takesThem !== null) tools.hosts.noteFlights(source, address, takesThem)
    if (problem !== null) note({ kind: 'careful', host, reason: problem }, null)
    note(end, null)
  })
  return { kind: 'open', session }
}

/** Nobody who put text into the dialogue is to be rewarded with plain text. */
function mayFallBack(tls: HostTls, { stage, isInjection }: SetupFailure): boolean {
  return tls.kind === 'opportunistic' && stage === 'starttls' && !isInjection
}

/** null: it did not come to TLS, or nothing is asked of it here. */
function tlsNote(tls: HostTls, opened: Opened): ThreadConnectionNote['tls'] {
  if (tls.kind === 'plain' || opened.kind === 'local') return null
  const reason = opened.kind === 'open' ? (opened.session.facts.tls?.problem ?? null) : opened.failure.reason
  const result = opened.kind === 'open' ? opened.tlsResult : opened.failure.tlsResult
  return result === null ? null : { policy: tls.policy, result, reason, isPlainFallback: false }
}

function limitsRate({ reply }: PathFailure): boolean {
  if (reply === null || reply.code === 421 || reply.code >= 500) return false
  return LIMITS_RATE.test(reply.text)
}
