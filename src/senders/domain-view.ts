/**
 * A sending domain as the API shows it: the record with the DNS entries to publish and what the last check found
 * (contract.md 7.1). Times are Unix seconds. Pure.
 */
import { toUnixSeconds } from '../base/clock.ts'
import type { DomainRecord, DomainState, RecordCheck } from '../store/records.ts'
import { requiredRecords } from './required-records.ts'
import type { RecordFacts, RequiredRecord } from './required-records.ts'

export interface RecordView extends RequiredRecord {
  status: RecordCheck['status']
  /** What the DNS returned. */
  found: string[]
  error: string | null
  /** A likely cause. */
  hint: string | null
  checked_at: number | null
  /** For SPF: the result for each IP. */
  evaluated?: { ip: string; result: string }[]
}

export interface DomainView {
  domain: string
  status: DomainState
  verified: boolean
  can_send: boolean
  created_at: number
  verified_at: number | null
  last_checked_at: number | null
  /** null: no check is planned. */
  next_check_at: number | null
  return_path: string
  ip_pool: string
  allow_subdomains: boolean
  records: RecordView[]
}

/** `poolName` is the pool that the domain's mail really uses; `ips` are the addresses of that pool. */
export interface ViewFacts extends RecordFacts {
  poolName: string
  ips: string[]
}

export function domainView(domain: DomainRecord, facts: ViewFacts): DomainView {
  return {
    domain: domain.name,
    status: domain.state,
    verified: domain.state === 'verified' || domain.state === 'degraded',
    can_send: canSend(domain),
    created_at: toUnixSeconds(domain.createdAt),
    verified_at: secondsOrNull(domain.verifiedAt),
    last_checked_at: secondsOrNull(domain.lastCheckedAt),
    next_check_at: null,
    return_path: domain.returnPath,
    ip_pool: facts.poolName,
    allow_subdomains: false,
    records: requiredRecords(domain, facts).map((record) => recordView(record, domain.checks, facts.ips)),
  }
}

/** contract.md 7.3: a degraded domain keeps sending; a pending, failed or suspended one does not. */
export function canSend(domain: DomainRecord): boolean {
  return domain.state === 'verified' || domain.state === 'degraded'
}

function recordView(record: RequiredRecord, checks: RecordCheck[], ips: string[]): RecordView {
  const check = checks.find((other) => other.purpose === record.purpose)
  const view: RecordView = {
    ...record,
    status: check?.status ?? 'pending',
    found: check?.found ?? [],
    error: check?.error ?? null,
    hint: check?.hint ?? null,
    checked_at: secondsOrNull(check?.checkedAt ?? null),
  }
  if (record.purpose === 'spf') view.evaluated = check?.evaluated ?? ips.map((ip) => ({ ip, result: 'none' }))
  return view
}

function secondsOrNull(milliseconds: number | null): number | null {
  return milliseconds === null ? null : toUnixSeconds(milliseconds)
}
