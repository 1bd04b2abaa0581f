/**
 * MTA-STS policies of recipient domains: found, fetched, kept (RFC 8461; network/README.md "MTA-STS"). Rejects only
 * when the memory does.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { LRUCache } from 'lru-cache'
import { validateMx } from 'mailauth/lib/mta-sts.js'
import { DAY, HOUR, MINUTE, SECOND, type Clock } from '../base/clock.ts'
import type { GuardedRequest } from './guarded-request.ts'
import type { Resolver } from './resolver.ts'
import { readStsPolicy, readStsRecord, type StsMode, type StsTerms } from './sts-policy.ts'

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

export interface MtaSts {
  /** The policy in force, `enforce` or `testing`; null: none. */
  policyFor(domain: string): Promise<StsPolicy | null>
  /** In the background, daily: policies are fetched anew before they end. */
  refresh(): Promise<void>
}

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

export function createMtaSts(options: MtaStsOptions): MtaSts {
  const { resolver, memory, clock, patienceMilliseconds = PATIENCE } = options
  /** The last known policy of a domain; false: none. */
  const known = new LRUCache<string, StsPolicy | false>({ max: MOST_DOMAINS })
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
    async policyFor(domain) {
      const policy = await look(domain)
      return policy === null || policy.mode === 'none' ? null : policy
    },
    async refresh() {
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

interface PolicyFetches {
  /** One per domain is under way. Null: the policy could not be had. */
  fetch(domain: string, id: string): Promise<StsPolicy | null>
  /** This policy could not be had a moment ago. */
  hasJustFailed(domain: string, id: string): boolean
}

function createPolicyFetches(options: MtaStsOptions, onFetched: (policy: StsPolicy) => void): PolicyFetches {
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
    fetch(domain, id) {
      const running = underWay.get(domain) ?? fetchPolicy(domain, id).finally(() => underWay.delete(domain))
      underWay.set(domain, running)
      return running
    },
    hasJustFailed(domain, id) {
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
