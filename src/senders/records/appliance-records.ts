/**
 * The DNS records of the server itself, as its owner must publish them, and the reverse names to set at the hoster of
 * the addresses (senders/README.md "Checks of a domain", systemd/README.md "Install"). Pure.
 */
import { ipFamily } from '../../base/ip-address.ts'
import { recordsOfTargets, type RecordFacts } from './required-records.ts'

interface ApplianceRecord {
  type: 'A' | 'AAAA' | 'MX' | 'TXT' | 'CNAME'
  name: string
  /** As in a zone file, without quotes and closing dots: `10 mail.example.net`. */
  value: string
  /** What it is for. */
  purpose: string
}

interface NamedIp {
  address: string
  hostname: string
}

const TTL_SECONDS = 3_600
// A string of a TXT record has 255 bytes at most (RFC 1035 §3.3).
const STRINGS = /.{1,255}/g

export function applianceRecords(facts: RecordFacts, ips: readonly NamedIp[]): ApplianceRecord[] {
  const { hostname, targets } = facts
  const addresses = ips.map(({ address }) => address)
  const targetRecords = [targets.return_path, targets.spf].flatMap((name) => recordsOfTargets(facts, addresses, name))
  return [
    ...addressRecords(hostname, ips),
    ...(targets.tracking === hostname ? [] : [trackingRecord(targets.tracking, hostname)]),
    ...targetRecords.map(({ type, name, value }): ApplianceRecord => ({
      type,
      name,
      value,
      purpose: name === targets.spf ? 'SPF of all IPs' : 'bounces',
    })),
  ]
}

function trackingRecord(name: string, hostname: string): ApplianceRecord {
  return { type: 'CNAME', name, value: hostname, purpose: 'tracked links' }
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

/** As a piece of a zone file for BIND, with whole names (RFC 1035 §5.1). */
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
  switch (type) {
    case 'TXT':
      return (value.match(STRINGS) ?? []).map((text) => `"${text}"`).join(' ')
    case 'CNAME':
    case 'MX':
      return `${value}.`
    default:
      return value
  }
}
