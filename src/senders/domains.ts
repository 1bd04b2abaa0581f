/**
 * Sending domains: add, verify, and "may this domain send now" (contract.md 7).
 *
 *   pending   added; the required records were not all seen in one check
 *   verified  they were
 *
 * A check only ever moves `pending` to `verified`: DNS trouble takes nothing away, and a wrong answer about a verified
 * domain shows in its record. Checks ask the DNS for 10 s at most. The first one starts in the background when a domain
 * is added; should it fail it is logged. Errors of the store are passed on. Domains change only in this process, so a
 * verified one is remembered until this process says otherwise.
 */
import { SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { Logger } from '../base/logger.ts'
import type { Resolver } from '../network/resolver.ts'
import type { DomainRecord } from '../store/records.ts'
import type { Store } from '../store/store.ts'
import { addDomain } from './add-domain.ts'
import type { AddDomainRequest } from './add-domain.ts'
import { createDomainCheck } from './domain-check.ts'
import { readDomainName } from './domain-name.ts'
import { canSend, domainView } from './domain-view.ts'
import type { DomainView } from './domain-view.ts'
import { recordsOfDomain, recordsOfTargets, requiredRecords } from './required-records.ts'
import type { PublishedRecord, RecordFacts } from './required-records.ts'

export interface DomainVerification {
  record: DomainView
  /** The answer of a call less than 10 s ago: nothing was looked up. */
  isRepeated: boolean
}

export interface Domains {
  /** ServiceError `invalid_request`; a domain that is there already comes back unchanged. */
  add(request: AddDomainRequest): Promise<{ record: DomainView; isNew: boolean }>
  /** Asks the DNS anew. ServiceError `not_found`. */
  verify(name: string): Promise<DomainVerification>
  find(name: string): Promise<DomainView | null>
  /** ServiceError `domain_not_verified` says which record is not as it should be. */
  requireVerified(name: string): Promise<DomainRecord>
  /** What the DNS answers for `name` once all is published as we ask for. */
  publishedRecords(name: string): Promise<PublishedRecord[]>
  /** Waits for checks in the background. */
  stop(): Promise<void>
}

export interface DomainsOptions {
  store: Store
  clock: Clock
  keyRing: KeyRing
  /** Without a cache of its own. */
  resolver: Resolver
  hostname: string
  settings: { targets: { return_path: string; spf: string }; dmarc_report_address: string; dkim: { bits: number } }
  egress: DomainPools
  logger: Logger
}

/** What domains need to know of the egress side. */
export interface DomainPools {
  ips(): { address: string }[]
  ipsUsedBy(pool: string): { address: string }[]
  poolFor(domainPool: string | null): string
  poolNames(): string[]
}

/** contract.md 7.4. */
const VERIFY_AGAIN_AFTER = 10 * SECOND

export function createDomains(options: DomainsOptions): Domains {
  const { store, clock, keyRing, resolver, hostname, settings, egress, logger } = options
  const facts: RecordFacts = {
    hostname, targets: settings.targets, dmarcReportAddress: settings.dmarc_report_address,
  }
  const verified = new Map<string, DomainRecord>()
  const lastCalls = new Map<string, { at: number; result: Promise<DomainView> }>()
  const background = new Set<Promise<void>>()
  const check = createDomainCheck({ store, clock, resolver, facts, ipsOf })

  function ipsOf(domain: DomainRecord): string[] {
    return egress.ipsUsedBy(egress.poolFor(domain.ipPool)).map((ip) => ip.address)
  }

  function view(domain: DomainRecord): DomainView {
    return domainView(domain, { ...facts, poolName: egress.poolFor(domain.ipPool), ips: ipsOf(domain) })
  }

  async function checkAndRemember(domain: DomainRecord): Promise<DomainView> {
    const checked = await check(domain)
    if (canSend(checked)) verified.set(checked.name, checked)
    else verified.delete(checked.name)
    return view(checked)
  }

  function startFirstCheck(domain: DomainRecord): void {
    const done: Promise<void> = checkAndRemember(domain)
      .then(
        () => {},
        (thrown) => logger.error({ domain: domain.name, error: errorText(thrown) }, 'first domain check failed'),
      )
      .finally(() => background.delete(done))
    background.add(done)
  }

  return {
    async add(request) {
      const { domain, isNew } = await addDomain(request, {
        store, clock, keyRing, keyBits: settings.dkim.bits, poolNames: egress.poolNames,
      })
      if (isNew) startFirstCheck(domain)
      return { record: view(domain), isNew }
    },

    async verify(name) {
      const domain = await findDomain(store, name)
      if (domain === null) throw new ServiceError('not_found', `domain ${name}`)
      const now = clock.now()
      forgetOldCalls(lastCalls, now)
      const last = lastCalls.get(domain.name)
      if (last !== undefined) return { record: await last.result, isRepeated: true }
      const result = checkAndRemember(domain)
      lastCalls.set(domain.name, { at: now, result })
      // Only a result is kept: after a failure the next call asks again.
      result.catch(() => lastCalls.delete(domain.name))
      return { record: await result, isRepeated: false }
    },

    async find(name) {
      const domain = await findDomain(store, name)
      return domain === null ? null : view(domain)
    },

    async requireVerified(name) {
      const known = verified.get(name)
      if (known !== undefined) return known
      const domain = await findDomain(store, name)
      if (domain === null || !canSend(domain)) throw notVerified(name, domain, facts)
      verified.set(domain.name, domain)
      return domain
    },

    publishedRecords(name) {
      const addresses = egress.ips().map((ip) => ip.address)
      return publishedRecords(store, facts, addresses, name.toLowerCase())
    },

    async stop() {
      await Promise.all(background)
    },
  }
}

async function publishedRecords(
  store: Store,
  facts: RecordFacts,
  addresses: string[],
  asked: string,
): Promise<PublishedRecord[]> {
  const labels = asked.split('.')
  // A domain's records are below its own name: every name above the one that was asked may be the domain.
  const names = labels.slice(0, -1).map((_, index) => labels.slice(index).join('.'))
  const domains = await Promise.all(names.map((name) => store.findDomain(name)))
  const theirs = domains.flatMap((domain) => (domain === null ? [] : recordsOfDomain(domain, facts, asked)))
  return [...recordsOfTargets(facts, addresses, asked), ...theirs]
}

async function findDomain(store: Store, name: string): Promise<DomainRecord | null> {
  const reading = readDomainName(name)
  return reading.ok ? store.findDomain(reading.name) : null
}

function forgetOldCalls(calls: Map<string, { at: number }>, now: number): void {
  for (const [name, { at }] of calls) {
    if (now - at >= VERIFY_AGAIN_AFTER) calls.delete(name)
  }
}

/** Says what is missing and how to go on (contract.md 2.2). */
function notVerified(name: string, domain: DomainRecord | null, facts: RecordFacts): ServiceError {
  if (domain === null) {
    return new ServiceError('domain_not_verified', `${name}: not a domain of this server; POST /domains adds it`)
  }
  const isSeen = (purpose: string): boolean =>
    domain.checks.some((check) => check.purpose === purpose && check.status === 'verified')
  const missing = requiredRecords(domain, facts).find((record) => record.required && !isSeen(record.purpose))
  const reason = missing === undefined
    ? `is ${domain.state}`
    : `${missing.purpose} record ${statusWord(domain, missing.purpose)} at ${missing.name}`
  return new ServiceError('domain_not_verified', `${name}: ${reason}; POST /domains/${name}/verify checks again`)
}

function statusWord(domain: DomainRecord, purpose: string): string {
  const status = domain.checks.find((check) => check.purpose === purpose)?.status ?? 'pending'
  switch (status) {
    case 'pending':
      return domain.lastCheckedAt === null ? 'not checked yet' : 'missing'
    case 'failed':
      return 'wrong'
    case 'temporary_failure':
      return 'not answered for'
    case 'verified':
      return 'verified'
  }
}
