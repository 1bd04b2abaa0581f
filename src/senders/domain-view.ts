/**
 * A sending domain as the API shows it: the record with the DNS entries to publish and what the last check found
 * (http/README.md "Domains"). Times are Unix seconds. Pure.
 */
import { toUnixSeconds, secondsOrNull } from '../base/clock.ts'
import type { DkimKeyRecord, DomainRecord, RecordCheck } from '../store/records/sender-records.ts'
import { FOREIGN_KEY, rotationHint } from './records/dkim-keys.ts'
import { canSend } from './records/domain-state.ts'
import { requiredRecords, type RecordFacts, type RequiredRecord } from './records/required-records.ts'

export interface RecordView extends Omit<RequiredRecord, 'selector'> {
  /** DKIM keys that do not sign now: `next` will, `retiring` did; left out for the one that signs. */
  role?: 'next' | 'retiring'
  /** With `retiring`: until when the record must stand. */
  retire_at?: number
  status: RecordCheck['status']
  found: string[]
  error: string | null
  hint: string | null
  checked_at: number | null
  evaluated?: { ip: string; result: string }[]
}

export type DomainView = ReturnType<typeof domainView>

/** `poolName` is the pool that the domain's mail really uses; `ips` are the addresses of that pool. */
interface ViewFacts extends RecordFacts {
  poolName: string
  ips: string[]
  opensKey: (key: DkimKeyRecord) => boolean
}

export function domainView(domain: DomainRecord, facts: ViewFacts) {
  const sends = canSend(domain)
  return {
    domain: domain.name,
    status: domain.state,
    verified: sends,
    can_send: sends,
    created_at: toUnixSeconds(domain.createdAt),
    verified_at: secondsOrNull(domain.verifiedAt),
    last_checked_at: secondsOrNull(domain.lastCheckedAt),
    /** null: no check is planned. */
    next_check_at: secondsOrNull(domain.nextCheckAt),
    return_path: domain.returnPath,
    tracking: { ...domain.tracking, domain: domain.trackingDomain, tls: trackingTls(domain.checks) },
    ip_pool: facts.poolName,
    allow_subdomains: domain.allowSubdomains,
    records: requiredRecords(domain, facts).map((record) => recordView(record, domain, facts)),
  }
}

export function checkOf(checks: readonly RecordCheck[], record: RequiredRecord): RecordCheck | undefined {
  const { purpose, selector } = record
  return checks.find((check) => check.purpose === purpose && check.selector === selector)
}

/** `active`: tracked links of the domain lead to its own name. */
function trackingTls(checks: readonly RecordCheck[]): 'active' | 'pending' {
  const isActive = checks.some(({ purpose, status }) => purpose === 'tracking' && status === 'verified')
  return isActive ? 'active' : 'pending'
}

function recordView(record: RequiredRecord, domain: DomainRecord, { ips, opensKey }: ViewFacts): RecordView {
  const { selector, ...shown } = record
  const check = checkOf(domain.checks, record)
  const key = domain.keys.find((each) => each.selector === selector)
  const view: RecordView = {
    ...shown,
    ...roleOf(key),
    status: check?.status ?? 'pending',
    found: check?.found ?? [],
    error: check?.error ?? null,
    hint: check?.hint ?? null,
    checked_at: secondsOrNull(check?.checkedAt ?? null),
  }
  // Known at once, before the next check.
  if (key !== undefined && key.role !== 'retiring' && !opensKey(key)) {
    return { ...view, status: 'failed', error: FOREIGN_KEY, hint: rotationHint(domain.name) }
  }
  if (record.purpose === 'spf') view.evaluated = check?.evaluated ?? ips.map((ip) => ({ ip, result: 'none' }))
  return view
}

function roleOf(key: DkimKeyRecord | undefined): Pick<RecordView, 'role' | 'retire_at'> {
  if (key === undefined || key.role === 'active') return {}
  return key.retireAt === null ? { role: key.role } : { role: key.role, retire_at: toUnixSeconds(key.retireAt) }
}
