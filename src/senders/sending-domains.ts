/**
 * "May mail be sent from this name now, and which domain signs it?": asked for every message, so the answers are
 * remembered until something about any domain changes. What was being read meanwhile is not remembered.
 */
import { ServiceError } from '../base/errors.ts'
import { organizationalDomain } from '../mail/organizational-domain.ts'
import type { DomainRecord } from '../store/records/sender-records.ts'
import type { Store } from '../store/store.ts'
import { canSend } from './records/domain-state.ts'
import { checkOf } from './domain-view.ts'
import { requiredRecords, type RecordFacts, type RequiredRecord } from './records/required-records.ts'

/** Names under domains that allow subdomains are many. */
const MOST_REMEMBERED = 10_000

export function createSendingDomains(store: Pick<Store, 'findDomain'>, facts: RecordFacts) {
  const remembered = new Map<string, DomainRecord>()
  let changes = 0
  let changing = 0

  function forget(): void {
    changes += 1
    remembered.clear()
  }

  return {
    forget,
    /**
     * The domain that signs for `name`: itself, or one above it that allows subdomains. ServiceError
     * `domain_not_verified` says what is missing and how to go on (http/README.md "Errors").
     */
    async require(name: string): Promise<DomainRecord> {
      const known = remembered.get(name)
      if (known !== undefined) return known
      const changesBefore = changes
      const domain = await find(store, name, facts)
      if (remembered.size >= MOST_REMEMBERED) remembered.clear()
      if (changing === 0 && changes === changesBefore) remembered.set(name, domain)
      return domain
    },
    /** Nothing is remembered until `work` has ended: the change is there before, as when a removal cancels much mail. */
    async change<Result>(work: () => Promise<Result>): Promise<Result> {
      changing += 1
      forget()
      try {
        return await work()
      } finally {
        changing -= 1
        forget()
      }
    },
  }
}

async function find(store: Pick<Store, 'findDomain'>, name: string, facts: RecordFacts): Promise<DomainRecord> {
  const own = await store.findDomain(name)
  if (own !== null && canSend(own)) return own
  // What the operator suspended is not sent by way of the domain above it.
  if (own?.state === 'suspended') throw notVerified(name, own, facts)
  for (const parent of namesAbove(name)) {
    const above = await store.findDomain(parent)
    if (above === null) continue
    if (above.allowSubdomains && canSend(above)) return above
    if (own === null) throw notAllowed(name, above)
    break
  }
  throw notVerified(name, own, facts)
}

/** `a.b.acme.com` -> `b.acme.com`, `acme.com`: up to the registered domain. */
function namesAbove(name: string): string[] {
  const labels = name.split('.')
  const above = labels.length - organizationalDomain(name).split('.').length
  return labels.slice(0, above).map((_, index) => labels.slice(index + 1).join('.'))
}

function notAllowed(name: string, above: DomainRecord): ServiceError {
  const reason = above.allowSubdomains
    ? `${above.name}, which allows subdomains, is ${above.state}`
    : `not a domain of this server; POST /domains adds it, and allow_subdomains of ${above.name} would cover it`
  return new ServiceError('domain_not_verified', `${name}: ${reason}`)
}

function notVerified(name: string, domain: DomainRecord | null, facts: RecordFacts): ServiceError {
  if (domain === null) {
    return new ServiceError('domain_not_verified', `${name}: not a domain of this server; POST /domains adds it`)
  }
  const isSeen = (record: RequiredRecord): boolean => checkOf(domain.checks, record)?.status === 'verified'
  const missing = requiredRecords(domain, facts).find((record) => record.required && !isSeen(record))
  const reason =
    missing === undefined || domain.state === 'suspended'
      ? `is ${domain.state}`
      : `${missing.purpose} record ${statusWord(domain, missing)} at ${missing.name}`
  return new ServiceError('domain_not_verified', `${name}: ${reason}; POST /domains/${name}/verify checks again`)
}

function statusWord(domain: DomainRecord, record: RequiredRecord): string {
  const words = {
    pending: domain.lastCheckedAt === null ? 'not checked yet' : 'missing',
    failed: 'wrong',
    temporary_failure: 'not answered for',
    verified: 'verified',
  }
  return words[checkOf(domain.checks, record)?.status ?? 'pending']
}
