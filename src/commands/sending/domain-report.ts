/**
 * A sending domain as text: its state, and each DNS record with what was found, what is wrong and a hint, in the very
 * words of the API; and its records in the forms that people paste: a table, JSON, the body of Cloudflare's batch call,
 * or Terraform. (The zone file comes from the server.) Pure.
 */
import type { DnsRecordJson, DomainJson } from '../../api/domain.ts'
import { columnsText, jsonText, linesText, localTime, type Columns } from '../shared/text.ts'

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
    ...evaluated.map(({ ip, result }) => `    ${`${result} `.padEnd(7)}for ${ip}`),
    ...(error === null ? [] : [`    error  ${error}`]),
    ...(hint === null ? [] : [`    hint   ${hint}`]),
  ]
}

/** `required`, or what else there is to know of it. */
function recordNotes({ required, via, zone, role, retire_at: retireAt }: DnsRecordJson): string[] {
  if (role === 'next') return ['next key']
  if (role === 'retiring') return [`old key, leave it${retireAt === undefined ? '' : ` until ${localTime(retireAt)}`}`]
  const place = zone === undefined ? [] : ['in the zone of this server']
  return [required ? 'required' : 'recommended', ...(via === undefined ? [] : [`comes with ${via}`]), ...place]
}

export const DNS_FORMATS = ['table', 'zone', 'json', 'cloudflare', 'terraform'] as const
export type DnsFormat = (typeof DNS_FORMATS)[number]

export function dnsText(domain: DomainJson, format: Exclude<DnsFormat, 'zone'>, isTerminal: boolean): string {
  const records = recordsToPublish(domain)
  const texts = {
    table: () => columnsText(COLUMNS, records, isTerminal),
    json: () => jsonText(records, 2),
    cloudflare: () => jsonText(cloudflareBatch(records, domain.domain), 2),
    terraform: () => terraform(records, domain.domain),
  }
  return texts[format]()
}

const COLUMNS: Columns<DnsRecordJson> = {
  PURPOSE: ({ purpose }) => purpose,
  '': (record) => recordNotes(record).join(', '),
  TYPE: ({ type }) => type,
  HOST: ({ host }) => host,
  NAME: ({ name }) => name,
  TTL: ({ ttl }) => ttl,
  VALUE: ({ value }) => value,
}

/**
 * Publishing a record and the one that brings it along would break both: a CNAME stands alone (RFC 1034 §3.6.2). Those of
 * another zone are not the owner's.
 */
export function recordsToPublish({ records }: DomainJson): DnsRecordJson[] {
  return records.filter(({ via, zone }) => via === undefined && zone === undefined)
}

/** POST /zones/{zone_id}/dns_records/batch. Proxied, a name would answer with Cloudflare's addresses instead. */
function cloudflareBatch(records: DnsRecordJson[], domain: string): object {
  return {
    posts: records.map((record) => ({
      type: record.type,
      name: record.name,
      content: record.type === 'TXT' ? quotedStrings(record) : record.value,
      ttl: record.ttl,
      proxied: false,
      comment: `Sternpost: ${record.purpose} of ${domain}`,
    })),
  }
}

/**
 * Each string of a TXT record in quotes of its own (RFC 1035 §5.1), where a quote or backslash must not stand alone.
 */
function quotedStrings(record: DnsRecordJson): string {
  const strings = textStrings(record).map((text) => `"${text.replace(/["\\]/g, '\\$&')}"`)
  return strings.join(' ')
}

function terraform(records: DnsRecordJson[], domain: string): string {
  // Everything that may not be in the name of a block.
  const name = `sternpost_${domain.replace(/[^a-z0-9]/g, '_')}`
  const entries = records.map((record) => {
    const { type, ttl } = record
    const value = type === 'TXT' ? textStrings(record).join('""') : record.value
    const fields = `type = ${hcl(type)}, name = ${hcl(record.name)}, ttl = ${ttl}, value = ${hcl(value)}`
    return `    ${hcl(`${record.purpose} ${record.host}`)} = { ${fields} }`
  })
  return `# Records of ${domain} for Sternpost. Route 53; for another provider keep the list and replace the resource.
# "" inside a value is where one 255-byte string of a TXT record ends and the next begins.
locals {
  ${name} = {
${entries.join('\n')}
  }
}

variable "${name}_zone_id" {
  type = string
}

resource "aws_route53_record" "${name}" {
  for_each = local.${name}
  zone_id  = var.${name}_zone_id
  name     = each.value.name
  type     = each.value.type
  ttl      = each.value.ttl
  records  = [each.value.value]
}
`
}

/** A quoted string of HCL: that of JSON, with the two openings of a template doubled. */
function hcl(text: string): string {
  return JSON.stringify(text).replace(/[$%](?=\{)/g, '$&$&') // ${ or %{
}

const textStrings = ({ value, value_chunks: chunks }: DnsRecordJson): string[] => chunks ?? [value]
