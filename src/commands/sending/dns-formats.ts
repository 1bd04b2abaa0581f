/**
 * The DNS records of a domain in the forms that people paste: a table, JSON, the body of Cloudflare's batch call, or
 * Terraform. (The zone file comes from the server, as the API gives it.) Pure.
 *
 * Records that another one brings along (`via`) are left out: publishing both would break the first, since a CNAME
 * stands alone at its name (RFC 1034 §3.6.2).
 */
import type { DnsRecordJson, DomainJson } from '../../api/domain.ts'
import { columnsText, type Columns } from '../shared/print.ts'
import { recordNotes } from './domain-report.ts'

export const DNS_FORMATS = ['table', 'zone', 'json', 'cloudflare', 'terraform'] as const
export type DnsFormat = (typeof DNS_FORMATS)[number]

export function dnsText(domain: DomainJson, format: Exclude<DnsFormat, 'zone'>, isTerminal: boolean): string {
  const records = recordsToPublish(domain)
  const texts = {
    table: () => columnsText(COLUMNS, records, isTerminal),
    json: () => `${JSON.stringify(records, null, 2)}\n`,
    cloudflare: () => `${JSON.stringify(cloudflareBatch(records, domain.domain), null, 2)}\n`,
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

export function recordsToPublish({ records }: DomainJson): DnsRecordJson[] {
  return records.filter(({ via }) => via === undefined)
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

/** Each string of a TXT record in quotes of its own (RFC 1035 §5.1), where a quote or backslash must not stand alone. */
function quotedStrings(record: DnsRecordJson): string {
  const strings = textStrings(record).map((text) => `"${text.replace(/["\\]/g, '\\$&')}"`)
  return strings.join(' ')
}

const textStrings = ({ value, value_chunks: chunks }: DnsRecordJson): string[] => chunks ?? [value]

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
