/**
 * The DNS records of a domain in the forms that people paste: a table, JSON, the body of Cloudflare's batch call, or
 * Terraform. (The zone file comes from the server, as the API gives it.) Pure.
 *
 * Records that another one brings along (`via`) are left out: publishing both would break the first, since a CNAME
 * stands alone at its name (RFC 1034 §3.6.2).
 */
import { unreachable } from '../../base/errors.ts'
import type { DomainView, RecordView } from '../../senders/domain-view.ts'
import { recordNotes } from './domain-report.ts'
import { tableText } from '../shared/print.ts'

export const DNS_FORMATS = ['table', 'zone', 'json', 'cloudflare', 'terraform'] as const
export type DnsFormat = (typeof DNS_FORMATS)[number]

export function dnsText(domain: DomainView, format: Exclude<DnsFormat, 'zone'>, isTerminal: boolean): string {
  const records = recordsToPublish(domain)
  switch (format) {
    case 'table':
      return dnsTable(records, isTerminal)
    case 'json':
      return `${JSON.stringify(records, null, 2)}\n`
    case 'cloudflare':
      return `${JSON.stringify(cloudflareBatch(records, domain.domain), null, 2)}\n`
    case 'terraform':
      return terraform(records, domain.domain)
    default:
      return unreachable(format)
  }
}

export function recordsToPublish({ records }: DomainView): RecordView[] {
  return records.filter(({ via }) => via === undefined)
}

function dnsTable(records: RecordView[], isTerminal: boolean): string {
  const rows = records.map((record) => {
    const { purpose, type, name, host, ttl, value } = record
    return [purpose, recordNotes(record).join(', '), type, host, name, String(ttl), value]
  })
  return tableText(['PURPOSE', '', 'TYPE', 'HOST', 'NAME', 'TTL', 'VALUE'], rows, isTerminal)
}

/** POST /zones/{zone_id}/dns_records/batch. Proxied, a name would answer with Cloudflare's addresses instead. */
function cloudflareBatch(records: RecordView[], domain: string): object {
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

/** Each string of a TXT record in quotes of its own (RFC 1035 §5.1). */
function quotedStrings(record: RecordView): string {
  return textStrings(record)
    .map((text) => `"${text.replace(QUOTED, '\\$&')}"`)
    .join(' ')
}

/** What must not stand alone between quotes. */
const QUOTED = /["\\]/g

function textStrings({ value, value_chunks: chunks }: RecordView): string[] {
  return chunks ?? [value]
}

function terraform(records: RecordView[], domain: string): string {
  const name = `sternpost_${domain.replace(NO_WORD, '_')}`
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

/** Everything that may not be in the name of a Terraform block. */
const NO_WORD = /[^a-z0-9]/g

/** A quoted string of HCL: that of JSON, with the two openings of a template doubled. */
function hcl(text: string): string {
  return JSON.stringify(text).replace(/[$%](?=\{)/g, '$&$&') // ${ or %{
}
