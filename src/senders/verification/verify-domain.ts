/**
 * What the DNS really says about a sending domain's records. Effects are checked, not text; a status means what
 * senders/README.md "Checks of a domain" says. Never throws for what the DNS holds.
 */
import type { Resolver } from '../../network/resolver.ts'
import type { DkimKeyRecord, DomainRecord, PublicDkimKey, RecordCheck } from '../../store/records/sender-records.ts'
import { checkReturnPath, checkTracking, type TrackingFacts } from './check-aliases.ts'
import { checkDkim } from './check-dkim.ts'
import { checkDmarc, checkReportAuthorisation } from './check-dmarc.ts'
import { checkSpf, type SpfFacts } from './check-spf.ts'
import { isRequiredKey } from '../records/domain-state.ts'
import { FOREIGN_KEY, rotationHint } from '../records/dkim-keys.ts'
import { noAnswer, shownRecords, type RecordFinding } from './finding.ts'
import { REQUIRED_PURPOSES, requiredRecords, type RecordPurpose } from '../records/required-records.ts'

export async function checkDomain(
  domain: DomainRecord,
  lookups: Resolver,
  /** `earlierKeys`: those that the domain had before it was added anew. */
  facts: SpfFacts & TrackingFacts & { earlierKeys: PublicDkimKey[]; opensKey: (key: DkimKeyRecord) => boolean },
  now: number,
): Promise<RecordCheck[]> {
  const check = (record: CheckedRecord, finding: RecordFinding): RecordCheck => toCheck(record, finding, domain, now)
  const spfFinding = checkSpf(domain, lookups, facts)
  const needsAuthorisation = requiredRecords(domain, facts).some(({ purpose }) => purpose === 'dmarc_reports')
  const ofReports = needsAuthorisation ? [checkReportAuthorisation(domain, lookups, facts)] : []
  // Of this process, not of the DNS: it counts neither for the domain nor against it, which other nodes sign for.
  const checkKey = async (key: DkimKeyRecord): Promise<RecordFinding> =>
    key.role === 'retiring' || facts.opensKey(key)
      ? checkDkim(key, domain, facts.earlierKeys, lookups)
      : { ...noAnswer(FOREIGN_KEY), hint: rotationHint(domain.name) }
  const ofKeys = domain.keys.map(async (key) => check({ purpose: 'dkim', selector: key.selector }, await checkKey(key)))
  return Promise.all([
    ...ofKeys,
    spfFinding.then(async (spf) =>
      check({ purpose: 'return_path' }, await checkReturnPath(domain, lookups, facts, spf)),
    ),
    spfFinding.then((finding) => check({ purpose: 'spf' }, finding)),
    checkDmarc(domain, lookups).then((finding) => check({ purpose: 'dmarc' }, finding)),
    ...ofReports.map(async (finding) => check({ purpose: 'dmarc_reports' }, await finding)),
    checkTracking(domain, lookups, facts).then((finding) => check({ purpose: 'tracking' }, finding)),
  ])
}

/** `selector`: for DKIM, of the key. */
type CheckedRecord = Pick<RecordCheck, 'selector'> & { purpose: RecordPurpose }

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
