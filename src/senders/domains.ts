/**
 * Sending domains: add, check, change, remove, and "may this domain send now" (http/README.md "Domains",
 * senders/README.md "States of a domain"). Makes the parts. Errors of the store are passed on.
 */
import type { DomainRecord, DomainState } from '../store/records/sender-records.ts'
import { addDomain, type AddDomainRequest } from './add-domain.ts'
import { createDomainChanges, unknownDomain, type RemovedDomain, type UpdateDomainRequest } from './change-domain.ts'
import { createDomainCheck } from './domain-check.ts'
import { createDomainChecks } from './domain-checks.ts'
import type { DomainParts } from './domain-parts.ts'
import { readDomainName } from './domain-name.ts'
import { domainView, type DomainView } from './domain-view.ts'
import { createInTurn } from './in-turn.ts'
import { recordsOfDomain, recordsOfTargets, type RecordFacts, type ZoneRecord } from './records/required-records.ts'
import { createSendingDomains } from './sending-domains.ts'
import { zoneFile } from './records/zone-file.ts'

interface DomainVerification {
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
  publishedRecords(name: string): Promise<ZoneRecord[]>
  /** Checks every domain whose time has come; ends with the last of them. For the schedule. */
  checkDue(): Promise<void>
  /** Starts no check any more and waits for those under way. */
  stop(): Promise<void>
}

interface DomainsOptions extends Omit<DomainParts, 'facts' | 'poolNames' | 'ipsOf' | 'inTurn'> {
  hostname: string
  egress: DomainPools
}

/** What domains need to know of the egress side. */
interface DomainPools {
  ips(): { address: string }[]
  ipsUsedBy(pool: string): { address: string }[]
  poolFor(domainPool: string | null): string
  poolNames(): string[]
}

export function createDomains(options: DomainsOptions): Domains {
  const { store, settings, egress, hostname, onEvents } = options
  const { targets, dmarc_report_address: dmarcReportAddress } = settings
  const facts: RecordFacts = { hostname, targets, dmarcReportAddress }
  const ipsOf = (domain: DomainRecord): string[] => addresses(egress.ipsUsedBy(egress.poolFor(domain.ipPool)))
  const parts: DomainParts = { ...options, facts, poolNames: egress.poolNames, ipsOf, inTurn: createInTurn() }
  const sending = createSendingDomains(store, facts)
  const check = createDomainCheck(parts)
  const checks = createDomainChecks(parts, async (domain) => {
    const checked = await check(domain)
    sending.forget()
    return checked
  })
  const changes = createDomainChanges(parts, (name, work) => sending.change(work).finally(() => checks.forget(name)))

  function view(domain: DomainRecord): DomainView {
    return domainView(domain, { ...facts, poolName: egress.poolFor(domain.ipPool), ips: ipsOf(domain) })
  }

  async function findRecord(name: string): Promise<DomainRecord | null> {
    const reading = readDomainName(name)
    return reading.ok ? store.findDomain(reading.name) : null
  }

  async function required(name: string): Promise<DomainRecord> {
    const domain = await findRecord(name)
    if (domain === null) throw unknownDomain(name)
    return domain
  }

  return {
    async add(request) {
      const { domain, isNew } = await addDomain(request, parts)
      if (isNew) {
        sending.forget()
        checks.start(domain)
      }
      return { record: view(domain), isNew }
    },
    async verify(name) {
      const { checked, isRepeated } = await checks.verify(await required(name))
      if (checked === null) throw unknownDomain(name)
      return { record: view(checked), isRepeated }
    },
    async find(name) {
      const domain = await findRecord(name)
      return domain === null ? null : view(domain)
    },
    async list({ status, limit, after }) {
      const page = await store.listDomains({ states: statesOf(status), limit, after })
      return { domains: page.domains.map(view), next: page.next }
    },
    async update(name, request) {
      const domain = await changes.update(name, request)
      // Other IPs: SPF may say something else of them.
      if (request.ipPool !== undefined) checks.start(domain)
      return view(domain)
    },
    queuedMessages: async (name) => store.queuedMessages((await required(name)).name),
    async remove(name, how) {
      const removed = await changes.remove(name, how)
      if (how.purge) onEvents()
      return removed
    },
    async rotateDkim(name) {
      const domain = await changes.rotateDkim(name)
      checks.start(domain)
      return view(domain)
    },
    zoneFile: async (name) => zoneFile(await required(name), facts),
    requireVerified: sending.require,
    publishedRecords: (name) => publishedAt(name.toLowerCase(), options, facts),
    checkDue: checks.runDue,
    stop: checks.stop,
  }
}

async function publishedAt(asked: string, options: DomainsOptions, facts: RecordFacts): Promise<ZoneRecord[]> {
  const domains = await Promise.all(namesFrom(asked).map((each) => options.store.findDomain(each)))
  const theirs = domains.flatMap((domain) => (domain === null ? [] : recordsOfDomain(domain, facts, asked)))
  return [...recordsOfTargets(facts, addresses(options.egress.ips()), asked), ...theirs]
}

function addresses(ips: readonly { address: string }[]): string[] {
  return ips.map(({ address }) => address)
}

/** A domain's records are below its own name: every name above the one that was asked may be the domain. */
function namesFrom(asked: string): string[] {
  const labels = asked.split('.')
  return labels.slice(0, -1).map((_, index) => labels.slice(index).join('.'))
}

function statesOf(status: ListDomainsQuery['status']): DomainState[] | null {
  if (status === 'all') return null
  return status === 'verified' ? ['verified', 'degraded'] : [status]
}
