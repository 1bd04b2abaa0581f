/**
 * A sending domain as text: its state, and each DNS record with what was found, what is wrong and a hint, in the very
 * words of the API. Pure.
 */
import type { DnsRecordJson, DomainJson } from '../../api/domain.ts'
import { linesText, localTime, type Columns } from '../shared/print.ts'

export function domainReport(domain: DomainJson): string {
  return linesText([...headLines(domain), ...domain.records.flatMap((record) => ['', ...recordLines(record)])])
}

export const DOMAIN_COLUMNS: Columns<DomainJson> = {
  DOMAIN: ({ domain }) => domain,
  STATUS: ({ status }) => status,
  'CAN SEND': (domain) => (domain.can_send ? 'yes' : 'no'),
  POOL: (domain) => domain.ip_pool,
  ADDED: (domain) => localTime(domain.created_at),
  CHECKED: (domain) => localTime(domain.last_checked_at),
}

/** What stands in the way of `verified`, in a few words: `dkim failed, spf pending`. */
export function openRecords({ records }: DomainJson): string {
  return records
    .filter(({ required, status }) => required && status !== 'verified')
    .map((record) => `${record.purpose} ${record.status}`)
    .join(', ')
}

function headLines(domain: DomainJson): string[] {
  const { tracking, created_at: createdAt, verified_at: verifiedAt, last_checked_at: checkedAt } = domain
  const tracked = [tracking.opens ? 'opens' : '', tracking.clicks ? 'clicks' : ''].filter((what) => what !== '')
  const next = domain.next_check_at === null ? 'not planned' : localTime(domain.next_check_at)
  return [
    `${domain.domain}  ${domain.status}, ${domain.can_send ? 'can send' : 'cannot send'}`,
    `  pool ${domain.ip_pool}, return path ${domain.return_path}, subdomains ${domain.allow_subdomains ? 'yes' : 'no'}`,
    `  tracking ${tracking.domain}: ${tracked.length === 0 ? 'off' : tracked.join(' and ')}`,
    `  added ${localTime(createdAt)}, verified ${localTime(verifiedAt)}`,
    `  checked ${localTime(checkedAt)}, next check ${next}`,
  ]
}

function recordLines(record: DnsRecordJson): string[] {
  const { status, type, name, value, found, error, hint, evaluated = [] } = record
  return [
    `  ${[record.purpose, ...recordNotes(record)].join(', ')}: ${status}`,
    `    ${type.padEnd(7)}${name}`,
    `    value  ${value}`,
    ...(status === 'verified' ? [] : found.map((text) => `    found  ${text}`)),
    ...evaluated.map(({ ip, result }) => `    ${result.padEnd(7)}for ${ip}`),
    ...(error === null ? [] : [`    error  ${error}`]),
    ...(hint === null ? [] : [`    hint   ${hint}`]),
  ]
}

/** `required`, or what else there is to know of it. */
export function recordNotes({ required, via, role, retire_at: retireAt }: DnsRecordJson): string[] {
  if (role === 'next') return ['next key']
  if (role === 'retiring') return [`old key, leave it${retireAt === undefined ? '' : ` until ${localTime(retireAt)}`}`]
  return [required ? 'required' : 'recommended', ...(via === undefined ? [] : [`comes with ${via}`])]
}
