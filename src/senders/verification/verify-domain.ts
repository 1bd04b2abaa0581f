/**
 * What the DNS really says about a sending domain's records. Effects are checked, not text; a status means what
 * senders/README.md "Checks of a domain" says. Never throws for what the DNS holds.
 */
import type { Resolver } from '../../network/resolver.ts'
import type { DomainRecord, PublicDkimKey, RecordCheck } from '../../store/records/sender-records.ts'
import { checkReturnPath, checkTracking } from './check-aliases.ts'
import { checkDkim } from './check-dkim.ts'
import { checkDmarc } from './check-dmarc.ts'
import { checkSpf, type SpfFacts } from './check-spf.ts'
import { isRequiredKey } from '../records/domain-state.ts'
import { shownRecords, type RecordFinding } from './finding.ts'
import { REQUIRED_PURPOSES, type RecordPurpose } from '../records/required-records.ts'

interface DomainCheckFacts extends SpfFacts {
  /** Public keys that the domain had before it was added anew. */
  earlierKeys: PublicDkimKey[]
}

export async function checkDomain(
  domain: DomainRecord,
  lookups: Resolver,
  facts: DomainCheckFacts,
  now: number,
): Promise<RecordCheck[]> {
  const spfFinding = checkSpf(domain, lookups, facts)
  const [dkim, spf, returnPath, dmarc, tracking] = await Promise.all([
    Promise.all(
      domain.keys.map(async (key) => ({
        selector: key.selector,
        finding: await checkDkim(key, domain, facts.earlierKeys, lookups),
      })),
    ),
    spfFinding,
    spfFinding.then((finding) => checkReturnPath(domain, lookups, facts, finding)),
    checkDmarc(domain, lookups),
    checkTracking(domain, lookups, facts),
  ])
  return [
    ...dkim.map(({ selector, finding }) => toCheck({ purpose: 'dkim', selector }, finding, domain, now)),
    toCheck({ purpose: 'return_path' }, returnPath, domain, now),
    toCheck({ purpose: 'spf' }, spf, domain, now),
    toCheck({ purpose: 'dmarc' }, dmarc, domain, now),
    toCheck({ purpose: 'tracking' }, tracking, domain, now),
  ]
}

interface CheckedRecord {
  purpose: RecordPurpose
  /** For DKIM: of the key. */
  selector?: string
}

function toCheck(record: CheckedRecord, finding: RecordFinding, domain: DomainRecord, now: number): RecordCheck {
  const { status, found, error, hint, evaluated } = finding
  return {
    ...record,
    status: status === 'missing' ? statusOfMissing(record, domain) : status,
    found: shownRecords(found),
    error: error === undefined ? null : shownRecords([error]).join(''),
    hint: hint ?? null,
    checkedAt: now,
    ...(evaluated === undefined ? {} : { evaluated }),
  }
}

/** Never published yet, or taken away. */
function statusOfMissing({ purpose, selector }: CheckedRecord, domain: DomainRecord): 'pending' | 'failed' {
  const before = domain.checks.find((check) => check.purpose === purpose && check.selector === selector)?.status
  const wasSeen = before === 'verified' || before === 'failed'
  const key = domain.keys.find((each) => each.selector === selector)
  const isRequired = key === undefined ? REQUIRED_PURPOSES.includes(purpose) : isRequiredKey(key)
  return wasSeen || (isRequired && domain.verifiedAt !== null) ? 'failed' : 'pending'
}
