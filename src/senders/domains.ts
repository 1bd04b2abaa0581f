/**
 * Sending domains: add, check, change, remove, and "may this domain send now" (http/README.md "Domains"). Their states
 * are in `domain-state.ts`, the roles of their keys in `dkim-rotation.ts`.
 *
 * A verify call asks the DNS for less than 10 s. Checks in the background start when a domain is added, gets another
 * pool or a new key, and when `checkDue` finds that their time has come; should one fail it is logged. Errors of the
 * store are passed on. Domains change only in this process, so what may send is remembered until one changes.
 */
import { SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { Logger } from '../base/logger.ts'
import type { Resolver } from '../network/resolver.ts'
import type { DomainRecord, DomainState, DomainTracking } from '../store/records/records.ts'
import type { Store } from '../store/store.ts'
import { addDomain } from './add-domain.ts'
import type { AddDomainRequest, DkimSettings } from './add-domain.ts'
import { createDomainChanges, unknownDomain } from './change-domain.ts'
import type { RemovedDomain, UpdateDomainRequest } from './change-domain.ts'
import { createDomainCheck } from './domain-check.ts'
import { readDomainName } from './domain-name.ts'
import type { StateSettings } from './records/domain-state.ts'
import { domainView } from './domain-view.ts'
import type { DomainView } from './domain-view.ts'
import { createDueChecks } from './due-checks.ts'
import { createInTurn } from './in-turn.ts'
import { publishedRecords } from './records/published-records.ts'
import type { PublishedRecord, RecordFacts } from './records/required-records.ts'
import { createSendingDomains } from './sending-domains.ts'
import { zoneFile } from './records/zone-file.ts'

export interface DomainVerification {
  record: DomainView
  /** The answer of a call less than 10 s ago: nothing was looked up. */
  isRepeated: boolean
}

export interface ListDomainsQuery {
  /** `verified`: every domain that may send, degraded ones too. */
  status: 'all' | DomainState
  limit: number
  /** `next` of the page before, or null: from the newest on. */
  after: string | null
}

export interface DomainList {
  domains: DomainView[]
  next: string | null
}

/** Where a name is taken, every form of it is: `ACME.com.` is `acme.com`. */
export interface Domains {
  /** ServiceError `invalid_request`, `conflict` (too many); a domain that is there already comes back unchanged. */
  add(request: AddDomainRequest): Promise<{ record: DomainView; isNew: boolean }>
  /** Asks the DNS anew, for 10 s at most. ServiceError `not_found`. */
  verify(name: string): Promise<DomainVerification>
  find(name: string): Promise<DomainView | null>
  list(query: ListDomainsQuery): Promise<DomainList>
  /** ServiceError `not_found`, `invalid_request`. */
  update(name: string, change: UpdateDomainRequest): Promise<DomainView>
  /** Messages that have not ended. ServiceError `not_found`. */
  queuedMessages(name: string): Promise<number>
  /** New mail is refused at once. ServiceError `not_found`, also the second time. */
  remove(name: string, options: { purge: boolean }): Promise<RemovedDomain>
  /** Adds the next keys. ServiceError `not_found`, `conflict` while the last rotation is under way. */
  rotateDkim(name: string): Promise<DomainView>
  /** The records to publish as text for BIND. ServiceError `not_found`. */
  zoneFile(name: string): Promise<string>
  /**
   * The domain that signs for `name`: itself, or one above it that allows subdomains. ServiceError
   * `domain_not_verified` says which record is not as it should be.
   */
  requireVerified(name: string): Promise<DomainRecord>
  /** What the DNS answers for `name` once all is published as we ask for. */
  publishedRecords(name: string): Promise<PublishedRecord[]>
  /** Checks every domain whose time has come; ends with the last of them. For the schedule. */
  checkDue(): Promise<void>
  /** Starts no check any more and waits for those under way. */
  stop(): Promise<void>
}

export interface DomainsOptions {
  store: Store
  clock: Clock
  /** Lookups take real time. */
  realClock: Clock
  keyRing: KeyRing
  /** Without a cache of its own. */
  resolver: Resolver
  hostname: string
  settings: DomainsSettings
  /** Of new domains. */
  tracking: DomainTracking
  /** null: no limit. */
  mostDomains: number | null
  egress: DomainPools
  logger: Logger
  /** Events were written. */
  onEvents: () => void
}

/** The part `domains` of sternpost.yaml. */
export interface DomainsSettings extends StateSettings {
  targets: RecordFacts['targets']
  dmarc_report_address: string
  dkim: DkimSettings
}

/** What domains need to know of the egress side. */
export interface DomainPools {
  ips(): { address: string }[]
  ipsUsedBy(pool: string): { address: string }[]
  poolFor(domainPool: string | null): string
  poolNames(): string[]
}

/** http/README.md "Domains". */
const VERIFY_AGAIN_AFTER = 10 * SECOND

export function createDomains(options: DomainsOptions): Domains {
  const { store, clock, realClock, keyRing, resolver, hostname, settings, egress, logger, onEvents } = options
  const facts: RecordFacts = { hostname, targets: settings.targets, dmarcReportAddress: settings.dmarc_report_address }
  const sending = createSendingDomains(store, facts)
  const lastCalls = new Map<string, { at: number; result: Promise<DomainView | null> }>()
  const background = new Set<Promise<void>>()
  const inTurn = createInTurn()
  const changes = createDomainChanges({
    store,
    clock,
    keyRing,
    inTurn,
    dkim: settings.dkim,
    poolNames: egress.poolNames,
    changing: (name, work) => sending.change(work).finally(() => lastCalls.delete(name)),
  })
  const check = createDomainCheck({
    store,
    clock,
    realClock,
    resolver,
    facts,
    settings,
    ipsOf,
    inTurn,
    logger,
    onEvents,
  })
  const due = createDueChecks({
    store,
    clock,
    logger,
    async check(name) {
      forgetOldCalls(lastCalls, clock.now())
      // A verify call asks now, or has just done so: overtaken by this check it would answer with an older result.
      if (lastCalls.has(name)) return
      const domain = await store.findDomain(name)
      if (domain !== null) await checkAndForget(domain)
    },
  })

  function ipsOf(domain: DomainRecord): string[] {
    return egress.ipsUsedBy(egress.poolFor(domain.ipPool)).map((ip) => ip.address)
  }

  function view(domain: DomainRecord): DomainView {
    return domainView(domain, { ...facts, poolName: egress.poolFor(domain.ipPool), ips: ipsOf(domain) })
  }

  async function checkAndForget(domain: DomainRecord): Promise<DomainView | null> {
    const checked = await check(domain)
    sending.forget()
    return checked === null ? null : view(checked)
  }

  function startCheck(domain: DomainRecord): void {
    const done: Promise<void> = checkAndForget(domain)
      .then(
        () => {},
        (thrown: unknown) => logger.error({ domain: domain.name, error: errorText(thrown) }, 'domain check failed'),
      )
      .finally(() => background.delete(done))
    background.add(done)
  }

  async function required(name: string): Promise<DomainRecord> {
    const reading = readDomainName(name)
    const domain = reading.ok ? await store.findDomain(reading.name) : null
    if (domain === null) throw unknownDomain(name)
    return domain
  }

  return {
    async add(request) {
      const { domain, isNew } = await addDomain(request, {
        store,
        clock,
        keyRing,
        tracking: options.tracking,
        mostDomains: options.mostDomains,
        dkim: settings.dkim,
        poolNames: egress.poolNames,
        recheckPending: settings.recheck_pending,
      })
      if (isNew) {
        sending.forget()
        startCheck(domain)
      }
      return { record: view(domain), isNew }
    },

    async verify(name) {
      const domain = await required(name)
      const now = clock.now()
      forgetOldCalls(lastCalls, now)
      const last = lastCalls.get(domain.name)
      const result = last?.result ?? checkAndForget(domain)
      if (last === undefined) {
        lastCalls.set(domain.name, { at: now, result })
        // Only a result is kept: after a failure the next call asks again.
        result.catch(() => lastCalls.delete(domain.name))
      }
      const record = await result
      if (record === null) throw unknownDomain(name)
      return { record, isRepeated: last !== undefined }
    },

    async find(name) {
      const reading = readDomainName(name)
      const domain = reading.ok ? await store.findDomain(reading.name) : null
      return domain === null ? null : view(domain)
    },

    async list({ status, limit, after }) {
      const page = await store.listDomains({ states: statesOf(status), limit, after })
      return { domains: page.domains.map(view), next: page.next }
    },

    async update(name, request) {
      const domain = await changes.update(name, request)
      // Other IPs: SPF may say something else of them.
      if (request.ipPool !== undefined) startCheck(domain)
      return view(domain)
    },

    async queuedMessages(name) {
      return store.queuedMessages((await required(name)).name)
    },

    async remove(name, how) {
      const removed = await changes.remove(name, how)
      if (how.purge) onEvents()
      return removed
    },

    async rotateDkim(name) {
      const domain = await changes.rotateDkim(name)
      startCheck(domain)
      return view(domain)
    },

    async zoneFile(name) {
      return zoneFile(await required(name), facts)
    },

    requireVerified: (name) => sending.require(name),

    publishedRecords(name) {
      const addresses = egress.ips().map((ip) => ip.address)
      return publishedRecords({ store, facts, addresses }, name.toLowerCase())
    },

    checkDue: () => due.run(),

    async stop() {
      due.stop()
      await Promise.all(background)
    },
  }
}

function statesOf(status: ListDomainsQuery['status']): DomainState[] | null {
  if (status === 'all') return null
  return status === 'verified' ? ['verified', 'degraded'] : [status]
}

function forgetOldCalls(calls: Map<string, { at: number }>, now: number): void {
  for (const [name, { at }] of calls) {
    if (now - at >= VERIFY_AGAIN_AFTER) calls.delete(name)
  }
}
