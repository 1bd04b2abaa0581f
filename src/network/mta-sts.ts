/**
 * MTA-STS policies of recipient domains: found, fetched, kept (RFC 8461; network/README.md "MTA-STS"). Rejects only
 * when the memory does.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { validateMx } from 'mailauth/lib/mta-sts.js'
import { DAY, HOUR, MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { recentEntries } from '../base/recent-entries.ts'
import type { GuardedRequest } from './guarded-request.ts'
import type { Resolver } from './resolver.ts'

// The version, and what follows it up to the end of the field.
const RECORD_START = /^v=STSv1[ \t]*(;|$)/
const RECORD_ID = /^[A-Za-z0-9]{1,32}$/
const MAX_AGE = /^\d{1,10}$/
// An optional "*.", then labels of letters, digits and hyphens that begin and end with no hyphen.
const MX_PATTERN = /^(?:\*\.)?[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/
/** Of a policy of 64 KiB only so many hosts are kept; no MX set has more. */
const MOST_HOSTS = 1_000

export interface StsPolicy {
  /** The recipient domain: two domains never share a policy, whatever hosts they have. */
  domain: string
  id: string
  mode: StsMode
  mx: string[]
  fetchedAt: number
  expiresAt: number
}

/** What outlives the process. */
interface StsMemory {
  find(domain: string): Promise<StsPolicy | null>
  keep(policy: StsPolicy): Promise<void>
  /** The longest not fetched first. */
  fetchedBefore(before: number, limit: number): Promise<StsPolicy[]>
}

/** Why a policy that a domain announces is not to be had; `result` is a result type of RFC 8460 §4.3. */
export interface StsProblem {
  result: 'sts-policy-fetch-error' | 'sts-policy-invalid' | 'sts-webpki-invalid'
  reason: string
}

interface MtaStsOptions {
  resolver: Pick<Resolver, 'txt'>
  request: Pick<GuardedRequest, 'get'>
  memory: StsMemory
  clock: Clock
  /** Of the web servers of policies. */
  port?: number
  /** How long mail waits for a fetch: what comes later is for the next mail. */
  patienceMilliseconds?: number
  /** A fetch failed. */
  onProblem: (domain: string, problem: StsProblem) => void
}

export type MtaSts = ReturnType<typeof createMtaSts>

const HTTPS_PORT = 443
/** RFC 8461 §3.3. */
const FETCH_TIMEOUT = MINUTE
const PATIENCE = 20 * SECOND
const FETCH_AGAIN_AFTER = 5 * MINUTE
/** RFC 8461 §3.2: at most a year. */
const LONGEST_MAX_AGE_SECONDS = 31_557_600
const SHORTEST_MAX_AGE_SECONDS = HOUR / SECOND
/** Domains whose policy, or its absence, is known without asking the memory. */
const MOST_DOMAINS = 20_000
const MOST_REFRESHED = 1_000
const REFRESHED_AT_ONCE = 10
/** One that could not be refreshed is left alone for so long. */
const REFRESH_AGAIN_AFTER = 6 * HOUR

/** Whether mail may go to this host (RFC 8461 §4.1); true where nothing is asked. */
export function acceptsHost(policy: StsPolicy, host: string): boolean {
  return validateMx(host, { version: 'STSv1', mode: policy.mode, mx: policy.mx, maxAge: 0 }).valid
}

export function policyBytes({ mx }: StsPolicy): number {
  return mx.reduce((bytes, host) => bytes + host.length, 0)
}

export function createMtaSts(options: MtaStsOptions) {
  const { resolver, memory, clock, patienceMilliseconds = PATIENCE } = options
  /** The last known policy of a domain; false: none. */
  const known = recentEntries<string, StsPolicy | false>(MOST_DOMAINS, (policy) => (policy ? policyBytes(policy) : 0))
  const refreshedAt = new LRUCache<string, number>({ max: MOST_DOMAINS })
  const fetches = createPolicyFetches(options, (policy) => known.set(policy.domain, policy))

  /** The id that the DNS names now; undefined: none, or no answer. */
  async function announcedId(domain: string): Promise<string | undefined> {
    const answer = await resolver.txt(`_mta-sts.${domain}`)
    return answer.kind === 'found' ? readStsRecord(answer.records) : undefined
  }

  async function knownPolicy(domain: string): Promise<StsPolicy | null> {
    const remembered = known.get(domain) ?? (await memory.find(domain)) ?? false
    // A policy may have been fetched meanwhile: what was there before must not take its place.
    const kept = known.get(domain) ?? remembered
    known.set(domain, kept)
    return kept !== false && clock.now() < kept.expiresAt ? kept : null
  }

  async function look(domain: string): Promise<StsPolicy | null> {
    const id = await announcedId(domain)
    const before = await knownPolicy(domain)
    if (id === undefined || before?.id === id || fetches.hasJustFailed(domain, id)) return before
    const patience = new AbortController()
    const late = delay(patienceMilliseconds, null, { signal: patience.signal }).catch(() => null)
    const fetched = await Promise.race([fetches.fetch(domain, id), late])
    patience.abort()
    return fetched ?? before
  }

  async function refreshOne({ domain }: StsPolicy): Promise<void> {
    refreshedAt.set(domain, clock.now())
    const id = await announcedId(domain)
    if (id !== undefined) await fetches.fetch(domain, id)
  }

  return {
    /** The policy in force, `enforce` or `testing`; null: none. */
    async policyFor(domain: string): Promise<StsPolicy | null> {
      const policy = await look(domain)
      return policy === null || policy.mode === 'none' ? null : policy
    },
    /** In the background, daily: policies are fetched anew before they end. */
    async refresh(): Promise<void> {
      const now = clock.now()
      const old = await memory.fetchedBefore(now - DAY, MOST_REFRESHED)
      const due = old.filter(
        ({ domain, expiresAt }) => expiresAt > now && (refreshedAt.get(domain) ?? 0) + REFRESH_AGAIN_AFTER <= now,
      )
      for (let first = 0; first < due.length; first += REFRESHED_AT_ONCE) {
        await Promise.all(due.slice(first, first + REFRESHED_AT_ONCE).map(refreshOne))
      }
    },
  }
}

function createPolicyFetches(options: MtaStsOptions, onFetched: (policy: StsPolicy) => void) {
  const { memory, clock } = options
  const underWay = new Map<string, Promise<StsPolicy | null>>()
  const failedAt = new LRUCache<string, { id: string; at: number }>({ max: MOST_DOMAINS })

  async function fetchPolicy(domain: string, id: string): Promise<StsPolicy | null> {
    const fetched = await fetchTerms(options, domain)
    const now = clock.now()
    if ('result' in fetched) {
      failedAt.set(domain, { id, at: now })
      options.onProblem(domain, fetched)
      return null
    }
    const { mode, mx, maxAgeSeconds } = fetched
    const age = Math.min(Math.max(maxAgeSeconds, SHORTEST_MAX_AGE_SECONDS), LONGEST_MAX_AGE_SECONDS) * SECOND
    const policy: StsPolicy = { domain, id, mode, mx, fetchedAt: now, expiresAt: now + age }
    await memory.keep(policy)
    onFetched(policy)
    return policy
  }

  return {
    /** One per domain is under way. Null: the policy could not be had. */
    fetch(domain: string, id: string): Promise<StsPolicy | null> {
      const running = underWay.get(domain) ?? fetchPolicy(domain, id).finally(() => underWay.delete(domain))
      underWay.set(domain, running)
      return running
    },
    /** This policy could not be had a moment ago. */
    hasJustFailed(domain: string, id: string): boolean {
      const failure = failedAt.get(domain)
      return failure?.id === id && clock.now() < failure.at + FETCH_AGAIN_AFTER
    },
  }
}

async function fetchTerms(
  { request, port = HTTPS_PORT }: MtaStsOptions,
  domain: string,
): Promise<StsTerms | StsProblem> {
  const authority = port === HTTPS_PORT ? `mta-sts.${domain}` : `mta-sts.${domain}:${port}`
  const url = `https://${authority}/.well-known/mta-sts.txt`
  const fetched = await request.get({ url, timeoutMilliseconds: FETCH_TIMEOUT })
  if (fetched.kind === 'failed') {
    const result = fetched.isCertificateProblem ? 'sts-webpki-invalid' : 'sts-policy-fetch-error'
    return { result, reason: fetched.reason }
  }
  const { status, contentType, bytes } = fetched
  if (status !== 200) return { result: 'sts-policy-fetch-error', reason: `the web server answered ${status}` }
  // RFC 8461 §3.2: so that nobody makes a policy of a page that others may upload. Parameters may follow.
  if (!/^text\/plain[ \t]*(?:;|$)/i.test(contentType.trim())) {
    return { result: 'sts-policy-invalid', reason: 'the policy is not text/plain' }
  }
  const reading = readStsPolicy(bytes.toString('utf8'))
  return reading.ok ? reading.terms : { result: 'sts-policy-invalid', reason: reading.problem }
}

/* The two texts of MTA-STS (RFC 8461 §3.1, §3.2). Unknown fields are passed over, as the standard wants it. */

type StsMode =
  | 'enforce' // mail goes to the named hosts alone, and only over TLS that can be verified
  | 'testing' // nothing is refused, but what `enforce` would have refused is reported
  | 'none' // there is no policy any more

/** What a domain asks of those who send to it. */
interface StsTerms {
  mode: StsMode
  /** Host names, lower case; `*.` in front stands for exactly one label. */
  mx: string[]
  maxAgeSeconds: number
}

type StsTermsReading = { ok: true; terms: StsTerms } | { ok: false; problem: string }

/** The id of the policy; undefined when there is none: no such record, several of them, or a wrong one. */
export function readStsRecord(texts: readonly string[]): string | undefined {
  const records = texts.filter((text) => RECORD_START.test(text))
  const [record] = records
  if (record === undefined || records.length > 1) return undefined
  const fields = record.split(';').map((field) => field.trim())
  const id = fields.find((field) => field.startsWith('id='))?.slice('id='.length)
  return id !== undefined && RECORD_ID.test(id) ? id : undefined
}

export function readStsPolicy(text: string): StsTermsReading {
  const fields = new Map<string, string>()
  const mx = new Set<string>()
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(':')
    if (colon < 1) continue
    const key = line.slice(0, colon).trim()
    const value = line.slice(colon + 1).trim()
    if (key === 'mx') mx.add(value.toLowerCase())
    else if (!fields.has(key)) fields.set(key, value)
  }
  const mode = fields.get('mode')
  const maxAge = fields.get('max_age') ?? ''
  if (fields.get('version') !== 'STSv1') return { ok: false, problem: 'the version is not STSv1' }
  if (mode !== 'enforce' && mode !== 'testing' && mode !== 'none') return { ok: false, problem: 'the mode is unknown' }
  if (!MAX_AGE.test(maxAge)) return { ok: false, problem: 'max_age is no number of seconds' }
  const hosts = [...mx]
  if (!hosts.every((host) => MX_PATTERN.test(host))) return { ok: false, problem: 'an mx is no host name' }
  if (hosts.length === 0 && mode !== 'none') return { ok: false, problem: 'it names no mx' }
  if (hosts.length > MOST_HOSTS) return { ok: false, problem: `it names more than ${MOST_HOSTS} mx` }
  return { ok: true, terms: { mode, mx: hosts, maxAgeSeconds: Number(maxAge) } }
}
