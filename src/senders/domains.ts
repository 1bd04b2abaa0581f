/**
 * Sending domains: add, check, change, remove, and "may this domain send now" (http/README.md "Domains",
 * senders/README.md "States of a domain"). Makes the parts. Errors of the store are passed on.
 */
import type { DomainRecord, DomainState } from '../store/records/sender-records.ts'
import type { Store } from '../store/store.ts'
import { addDomain, type AddDomainRequest } from './add-domain.ts'
import { createDomainChanges, unknownDomain, type UpdateDomainRequest } from './change-domain.ts'
import { createDomainAuthentication, type AuthenticationQuery } from './domain-authentication.ts'
import { createDomainChecks } from './domain-checks.ts'
import { createInTurn, type DomainParts } from './domain-parts.ts'
import { createDomainLinks } from './domain-links.ts'
import { readDomainName } from './domain-name.ts'
import { namesFrom } from './domain-of-links.ts'
import { domainView, type DomainView } from './domain-view.ts'
import { dkimKeyOpens } from './records/dkim-keys.ts'
import { recordsOfDomain, recordsOfTargets, type RecordFacts, type ZoneRecord } from './records/required-records.ts'
import { createSendingDomains } from './sending-domains.ts'
import { zoneFile } from './records/zone-file.ts'

export interface ListDomainsQuery {
  /** `verified`: every domain that may send, degraded ones too. */
  status: 'all' | DomainState
  limit: number
  after: string | null
}

export type Domains = ReturnType<typeof createDomains>
export type DomainList = Awaited<ReturnType<Domains['list']>>

interface DomainsOptions extends Omit<DomainParts, 'facts' | 'poolNames' | 'ipsOf' | 'inTurn'> {
  hostname: string
  /** Addresses of this machine. */
  hostAddresses: () => string[]
  egress: DomainPools
}

interface DomainPools {
  ips(): { address: string }[]
  ipsUsedBy(pool: string): { address: string }[]
  poolFor(domainPool: string | null): string
  poolNames(): string[]
}

/** Where a name is taken, every form of it is: `ACME.com.` is `acme.com`. */
export function createDomains(options: DomainsOptions) {
  const { store, settings, egress, hostname, onEvents } = options
  const { targets, dmarc_report_address: dmarcReportAddress } = settings
  const facts: RecordFacts = { hostname, targets, dmarcReportAddress }
  const ipsOf = (domain: DomainRecord): string[] => addresses(egress.ipsUsedBy(egress.poolFor(domain.ipPool)))
  const parts: DomainParts = { ...options, facts, poolNames: egress.poolNames, ipsOf, inTurn: createInTurn() }
  const sending = createSendingDomains(store, facts)
  const checks = createDomainChecks(parts, sending.forget)
  const authentication = authenticationView(options)
  const changes = createDomainChanges(parts, (name, work) => sending.change(work).finally(() => checks.forget(name)))
  function view(domain: DomainRecord): DomainView {
    return domainView(domain, { ...facts, ...viewedOf(domain, options), ips: ipsOf(domain) })
  }

  async function required(name: string): Promise<DomainRecord> {
    const domain = await findRecord(store, name)
    if (domain === null) throw unknownDomain(name)
    return domain
  }

  return {
    forgetAll: sending.forget, // another node has changed domains
    /** ServiceError `invalid_request`, `conflict` (too many); a domain that is there already comes back unchanged. */
    async add(request: AddDomainRequest) {
      const { domain, isNew } = await addDomain(request, parts)
      if (isNew) {
        sending.forget()
        checks.start(domain)
      }
      return { record: view(domain), isNew }
    },
    /**
     * Asks the DNS anew, for 10 s at most; with `isRepeated` it is the answer of a call less than 10 s ago.
     * ServiceError `not_found`.
     */
    async verify(name: string) {
      const { checked, isRepeated } = await checks.verify(await required(name))
      if (checked === null) throw unknownDomain(name)
      return { record: view(checked), isRepeated }
    },
    async find(name: string) {
      const domain = await findRecord(store, name)
      return domain === null ? null : view(domain)
    },
    async list({ status, limit, after }: ListDomainsQuery) {
      const page = await store.listDomains({ states: statesOf(status), limit, after })
      return { domains: page.domains.map(view), next: page.next }
    },
    async update(name: string, change: UpdateDomainRequest) {
      const domain = await changes.update(name, change)
      // Other IPs: SPF may say something else of them.
      if (change.ipPool !== undefined) checks.start(domain)
      return view(domain)
    },
    /** Messages that have not ended. ServiceError `not_found`. */
    queuedMessages: async (name: string) => store.queuedMessages((await required(name)).name),
    /** New mail is refused at once. ServiceError `not_found`, also the second time. */
    async remove(name: string, how: { purge: boolean }) {
      const removed = await changes.remove(name, how)
      if (how.purge) onEvents()
      return removed
    },
    /** Adds the next keys. ServiceError `not_found`, `conflict` while the last rotation is under way. */
    async rotateDkim(name: string) {
      const domain = await changes.rotateDkim(name)
      checks.start(domain)
      return view(domain)
    },
    /** The records to publish as text for BIND. ServiceError `not_found`. */
    zoneFile: async (name: string) => zoneFile(await required(name), facts),
    /** What DMARC and TLS reports say of it. ServiceError `not_found`. */
    authentication: async (name: string, query: AuthenticationQuery) => authentication(await required(name), query),
    ...createLinkCalls({ options, required, view }),
    requireVerified: sending.require,
    /** What the DNS answers for `name` once all is published as we ask for. */
    publishedRecords: (name: string) => publishedAt(name.toLowerCase(), options, facts),
    checkDue: checks.runDue,
    stop: checks.stop,
  }
}

function viewedOf({ name, ipPool }: DomainRecord, { egress, keyRing }: DomainsOptions) {
  return { poolName: egress.poolFor(ipPool), opensKey: dkimKeyOpens(keyRing, name) }
}

interface LinkParts {
  options: DomainsOptions
  required: (name: string) => Promise<DomainRecord>
  view: (domain: DomainRecord) => DomainView
}

function createLinkCalls({ options, required, view }: LinkParts) {
  const links = createDomainLinks(options)
  return {
    /** For whoever runs its DNS (domain-links.ts). ServiceError `not_found`. */
    link: async (name: string) => links.make((await required(name)).name),
    /** null: the link is not valid, or the domain is not there any more. */
    async linked(name: string, signed: string) {
      const domain = links.isValid(name, signed) ? await options.store.findDomain(name) : null
      return domain === null ? null : view(domain)
    },
  }
}

function authenticationView(options: DomainsOptions) {
  return createDomainAuthentication({
    ...options,
    ownAddresses: () => [...addresses(options.egress.ips()), ...options.hostAddresses()],
    ownNames: [options.hostname, options.settings.targets.return_path].map((name) => name.toLowerCase()),
  })
}

async function findRecord(store: Store, name: string): Promise<DomainRecord | null> {
  const reading = readDomainName(name)
  return reading.ok ? store.findDomain(reading.name) : null
}

async function publishedAt(asked: string, options: DomainsOptions, facts: RecordFacts): Promise<ZoneRecord[]> {
  const domains = await Promise.all(namesFrom(asked).map((each) => options.store.findDomain(each)))
  const theirs = domains.flatMap((domain) => (domain === null ? [] : recordsOfDomain(domain, facts, asked)))
  return [...recordsOfTargets(facts, addresses(options.egress.ips()), asked), ...theirs]
}

function addresses(ips: readonly { address: string }[]): string[] {
  return ips.map(({ address }) => address)
}

function statesOf(status: ListDomainsQuery['status']): DomainState[] | null {
  if (status === 'all') return null
  return status === 'verified' ? ['verified', 'degraded'] : [status]
}
