/**
 * A sending domain as text: its state, and each DNS record with what was found, what is wrong and a hint, in the very
 * words of the API. Pure.
 */
import type { DomainView, RecordView } from '../../senders/domain-view.ts'
import { localTime, printable } from '../shared/print.ts'

export function domainReport(domain: DomainView): string {
  return [...headLines(domain), ...domain.records.flatMap((record) => ['', ...recordLines(record)])]
    .map((line) => `${printable(line)}\n`)
    .join('')
}

export function domainRow(domain: DomainView): string[] {
  const { status, can_send: canSend, ip_pool: pool, created_at: createdAt, last_checked_at: checkedAt } = domain
  return [domain.domain, status, canSend ? 'yes' : 'no', pool, localTime(createdAt), localTime(checkedAt)]
}

export const DOMAIN_HEADS = ['DOMAIN', 'STATUS', 'CAN SEND', 'POOL', 'ADDED', 'CHECKED']

/** What stands in the way of `verified`, in a few words: `dkim failed, spf pending`. */
export function openRecords({ records }: DomainView): string {
  return records
    .filter(({ required, status }) => required && status !== 'verified')
    .map((record) => `${record.purpose} ${record.status}`)
    .join(', ')
}

function headLines(domain: DomainView): string[] {
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

function recordLines(record: RecordView): string[] {
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
export function recordNotes({ required, via, role, retire_at: retireAt }: RecordView): string[] {
  if (role === 'next') return ['next key']
  if (role === 'retiring') return [`old key, leave it${retireAt === undefined ? '' : ` until ${localTime(retireAt)}`}`]
  return [required ? 'required' : 'recommended', ...(via === undefined ? [] : [`comes with ${via}`])]
}
