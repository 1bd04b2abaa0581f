/**
 * Pieces of a zone file for BIND (RFC 1035 §5.1): the records of a domain (http/README.md "Domains"), and those of the
 * server itself, with the reverse names to set at the hoster of its addresses (systemd/README.md "Install"). Names are
 * whole, so it means the same wherever it is put.
 */
import type { DomainRecord } from '../../store/records/sender-records.ts'
import {
  AUTHORISATION,
  authorisationSuffix,
  requiredRecords,
  spfRecordValue,
  chunksOf,
  TTL_SECONDS,
  recordsOfTargets,
  type RecordFacts,
  type RequiredRecord,
} from './required-records.ts'
import { ipFamily } from '../../base/ip-address.ts'
import { organizationalDomain } from '../../mail/organizational-domain.ts'

export function zoneFile(domain: DomainRecord, facts: RecordFacts): string {
  const records = requiredRecords(domain, facts).filter(({ via, zone }) => via === undefined && zone === undefined)
  const sections = records.flatMap((record) => [
    `; ${titleOf(record, domain)}`,
    lineOf(record),
    ...insteadOf(record, facts),
  ])
  return [`; ${domain.name}: records for sending through ${facts.hostname}`, ...sections].join('\n') + '\n'
}

function titleOf({ purpose, required, selector }: RequiredRecord, domain: DomainRecord): string {
  const role = domain.keys.find((key) => key.selector === selector)?.role
  if (role === 'next') return `${purpose}: the next key, needed before it can take over`
  if (role === 'retiring') return `${purpose}: the key before, for mail that is still on its way`
  return `${purpose}: ${required ? 'required' : 'recommended'}`
}

function lineOf({ name, ttl, type, value, value_chunks: chunks = [] }: RequiredRecord): string {
  const data = type === 'CNAME' ? `${value}.` : stringsOf(chunks)
  return `${name}. ${ttl} IN ${type} ${data}`
}

/** Several strings are one record: the parentheses say so to people too. */
function stringsOf(chunks: readonly string[]): string {
  const quoted = chunks.map((chunk) => `"${chunk.replace(QUOTE_OR_BACKSLASH, '\\$&')}"`)
  return quoted.length > 1 ? `( ${quoted.join(' ')} )` : quoted.join('')
}

// A quotation mark or a backslash.
const QUOTE_OR_BACKSLASH = /["\\]/g

/** Where a CNAME cannot be: the same effect by the owner's own records. */
function insteadOf({ purpose, name, ttl }: RequiredRecord, facts: RecordFacts): string[] {
  if (purpose !== 'return_path') return []
  return [
    '; in place of the CNAME, where it is not possible:',
    `; ${name}. ${ttl} IN MX 10 ${facts.hostname}.`,
    `; ${name}. ${ttl} IN TXT "${spfRecordValue(facts)}"`,
  ]
}

interface ApplianceRecord {
  type: 'A' | 'AAAA' | 'MX' | 'TXT' | 'CNAME'
  name: string
  /** As in a zone file, without quotes and closing dots: `10 mail.example.net`. */
  value: string
  purpose: string
}

type NamedIp = { address: string; hostname: string }

export function applianceRecords(facts: RecordFacts, ips: readonly NamedIp[]): ApplianceRecord[] {
  const { hostname, targets } = facts
  const addresses = ips.map(({ address }) => address)
  const targetRecords = [targets.return_path, targets.spf].flatMap((name) => recordsOfTargets(facts, addresses, name))
  const tracking: ApplianceRecord = { type: 'CNAME', name: targets.tracking, value: hostname, purpose: 'tracked links' }
  return [
    ...addressRecords(hostname, ips),
    ...(targets.tracking === hostname ? [] : [tracking]),
    ...reportRecords(facts),
    ...targetRecords.map((record) => ({
      ...record,
      purpose: record.name === targets.spf ? 'SPF of all IPs' : 'bounces',
    })),
  ]
}

/** That DMARC reports of all domains may come here, where the address for them is one of this server. */
function reportRecords(facts: RecordFacts): ApplianceRecord[] {
  const suffix = authorisationSuffix(facts)
  if (organizationalDomain(suffix) !== organizationalDomain(facts.hostname)) return []
  return [{ type: 'TXT', name: `*.${suffix}`, value: AUTHORISATION, purpose: 'DMARC reports' }]
}

/** Of each EHLO name; the server's own name also leads to its first address of each family. */
function addressRecords(hostname: string, ips: readonly NamedIp[]): ApplianceRecord[] {
  const records = ips.map((ip) => addressRecord(ip.hostname, ip.address))
  for (const family of [4, 6] as const) {
    const hasOne = ips.some((ip) => ip.hostname === hostname && ipFamily(ip.address) === family)
    const first = ips.find(({ address }) => ipFamily(address) === family)
    if (!hasOne && first !== undefined) records.unshift(addressRecord(hostname, first.address))
  }
  return records
}

function addressRecord(name: string, address: string): ApplianceRecord {
  return { type: ipFamily(address) === 6 ? 'AAAA' : 'A', name, value: address, purpose: 'this server' }
}

export function applianceZone(hostname: string, records: readonly ApplianceRecord[], ips: readonly NamedIp[]): string {
  return [
    `; ${hostname}: the server itself`,
    ...records.map(({ type, name, value }) => `${name}. ${TTL_SECONDS} IN ${type} ${dataOf(type, value)}`),
    '; reverse names, set where the addresses come from:',
    ...ips.map(({ address, hostname: name }) => `; ${address} PTR ${name}.`),
    '',
  ].join('\n')
}

function dataOf(type: ApplianceRecord['type'], value: string): string {
  if (type === 'TXT') return `"${chunksOf(value).join('" "')}"`
  return type === 'CNAME' || type === 'MX' ? `${value}.` : value
}
