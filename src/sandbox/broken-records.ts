/**
 * The DNS below `unverified.test`: what we ask for, published with the mistakes that people make (sandbox/README.md
 * "The sandbox"). Pure.
 */
/** A record as the DNS gives it. */
export interface SandboxRecord {
  type: 'TXT' | 'CNAME' | 'MX'
  name: string
  value: string
}

/** DNS names are the same in any case and with or without the last dot. */
export function plain(name: string): string {
  return name.toLowerCase().replace(/\.$/, '') // one dot at the very end
}

const UNVERIFIED_DOMAIN = 'unverified.test'
const OTHER_HOST = 'another-host.unverified.test'
/** RFC 1035 §3.3: the most bytes of one string. */
const MOST_STRING_BYTES = 255
/** A shorter value loses its end. */
const LOST_BYTES = 8

/** Nobody's (RFC 5737 §3). */
export const OTHER_HOST_ADDRESS = '192.0.2.1'

/** Found at the host that the aliases lead to. */
export const OTHER_HOST_RECORDS: readonly SandboxRecord[] = [
  { type: 'TXT', name: OTHER_HOST, value: `v=spf1 ip4:${OTHER_HOST_ADDRESS} -all` },
]

/** True for names whose records are published with mistakes. */
export function isBroken(name: string): boolean {
  return plain(name) === UNVERIFIED_DOMAIN || plain(name).endsWith(`.${UNVERIFIED_DOMAIN}`)
}

/** The record with its mistake, or nothing: it was forgotten. */
export function breakRecord(record: SandboxRecord): SandboxRecord[] {
  const { type, value } = record
  if (type === 'CNAME') return [{ ...record, value: OTHER_HOST }]
  if (type !== 'TXT' || !value.startsWith('v=DKIM1')) return []
  return [{ ...record, value: value.slice(0, Math.min(MOST_STRING_BYTES, value.length - LOST_BYTES)) }]
}
