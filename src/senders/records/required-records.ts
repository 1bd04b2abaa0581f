/**
 * The DNS records of a sending domain: which ones its owner publishes, and what our own target names answer
 * (senders/README.md "Checks of a domain"). `via` marks a record that another one brings along. Pure. RFC 6376 §3.6.1,
 * RFC 7208 §4.5, RFC 9989 §4.7.
 */
import { organizationalDomain } from '../../mail/organizational-domain.ts'
import type { DkimKeyRecord, DkimKeyRole, DomainRecord, PublicDkimKey } from '../../store/records/sender-records.ts'
import { isRequiredKey } from './domain-state.ts'

export type RecordPurpose = 'dkim' | 'return_path' | 'spf' | 'dmarc' | 'dmarc_reports' | 'tracking'

/** Of the records without which a domain does not send; of its keys only the RSA key that signs is required. */
export const REQUIRED_PURPOSES: readonly RecordPurpose[] = ['dkim', 'return_path', 'spf']

/** What the records say besides the domain itself. */
export interface RecordFacts {
  /** Name of this server: the MX of the return path. */
  hostname: string
  targets: { return_path: string; spf: string; tracking: string }
  dmarcReportAddress: string
}

/** One record as the owner must publish it; keys in the order of the API. */
export interface RequiredRecord {
  /** For DKIM: whose record it is; not shown. */
  selector?: string
  purpose: RecordPurpose
  required: boolean
  via?: RecordPurpose
  /** It stands in the zone of this server, whose operator publishes it. */
  zone?: 'server'
  type: 'TXT' | 'CNAME'
  name: string
  /** The name without the registered domain, as most DNS consoles want it. */
  host: string
  value: string
  /** The strings of a TXT record, 255 bytes each at most. */
  value_chunks?: string[]
  ttl: number
}

export interface ZoneRecord {
  type: 'TXT' | 'CNAME' | 'MX'
  name: string
  /** An MX has its priority in front: `10 mail.example.net`. */
  value: string
}

export const TTL_SECONDS = 3_600
/** RFC 1035 §3.3: a character-string has one byte of length. */
const MOST_STRING_BYTES = 255
const MX_PRIORITY = 10
export const AUTHORISATION = 'v=DMARC1'

export function dkimRecordName(domain: string, selector: string): string {
  return `${selector}._domainkey.${domain}`
}

export function dkimRecordValue({ algorithm, publicKey }: PublicDkimKey): string {
  return `v=DKIM1; k=${algorithm === 'rsa-sha256' ? 'rsa' : 'ed25519'}; p=${publicKey}`
}

/** The value of the return path's own SPF record, in place of the CNAME. */
export function spfRecordValue({ targets }: RecordFacts): string {
  return `v=spf1 include:${targets.spf} -all`
}

export function requiredRecords(domain: DomainRecord, facts: RecordFacts): RequiredRecord[] {
  const { returnPath, trackingDomain } = domain
  return [
    ...keysInOrder(domain.keys).map((key) => dkimRecord(domain.name, key)),
    recordOf('return_path', 'CNAME', returnPath, facts.targets.return_path),
    { ...recordOf('spf', 'TXT', returnPath, spfRecordValue(facts)), via: 'return_path' },
    recordOf('dmarc', 'TXT', `_dmarc.${domain.name}`, `v=DMARC1; p=none; rua=mailto:${facts.dmarcReportAddress}`),
    ...reportAuthorisation(domain.name, facts),
    recordOf('tracking', 'CNAME', trackingDomain, facts.targets.tracking),
  ]
}

/** What follows the name of a domain whose DMARC reports may come to the address of this server. */
export function authorisationSuffix({ dmarcReportAddress }: Pick<RecordFacts, 'dmarcReportAddress'>): string {
  return `_report._dmarc.${dmarcReportAddress.slice(dmarcReportAddress.lastIndexOf('@') + 1).toLowerCase()}`
}

/** RFC 7489 §7.1 and RFC 9990 §4: reports leave the domain of an owner only where the other domain agrees. */
function reportAuthorisation(domain: string, facts: RecordFacts): RequiredRecord[] {
  const suffix = authorisationSuffix(facts)
  if (organizationalDomain(suffix) === organizationalDomain(domain)) return []
  return [{ ...recordOf('dmarc_reports', 'TXT', `${domain}.${suffix}`, AUTHORISATION), zone: 'server' }]
}

const ROLE_ORDER: readonly DkimKeyRole[] = ['active', 'next', 'retiring']

/** The keys that sign first, RSA before Ed25519, then those that will, then those that did. */
function keysInOrder(keys: readonly DkimKeyRecord[]): DkimKeyRecord[] {
  const place = ({ role, algorithm }: DkimKeyRecord): number =>
    2 * ROLE_ORDER.indexOf(role) + (algorithm === 'rsa-sha256' ? 0 : 1)
  return keys.toSorted((left, right) => place(left) - place(right))
}

function dkimRecord(domain: string, key: DkimKeyRecord): RequiredRecord {
  const record = recordOf('dkim', 'TXT', dkimRecordName(domain, key.selector), dkimRecordValue(key))
  return { ...record, required: isRequiredKey(key), selector: key.selector }
}

/** What the owner's zone answers for `name` when all that we ask for is published. */
export function recordsOfDomain(domain: DomainRecord, facts: RecordFacts, name: string): ZoneRecord[] {
  return requiredRecords(domain, facts)
    .filter((record) => record.name === name && record.via === undefined)
    .map(({ type, value }) => ({ type, name, value }))
}

/**
 * What our own target names answer: MX and SPF of the return path, the SPF that lists every pool IP, and that reports of
 * any domain may come here.
 */
export function recordsOfTargets(facts: RecordFacts, ips: readonly string[], name: string): ZoneRecord[] {
  const { return_path: returnPath, spf } = facts.targets
  const records: ZoneRecord[] = []
  if (name === returnPath) {
    records.push({ type: 'MX', name, value: `${MX_PRIORITY} ${facts.hostname}` })
    records.push({ type: 'TXT', name, value: spfRecordValue(facts) })
  }
  if (name === spf) {
    const terms = [...new Set(ips)].map((ip) => (ip.includes(':') ? `ip6:${ip}` : `ip4:${ip}`))
    records.push({ type: 'TXT', name, value: ['v=spf1', ...terms, '-all'].join(' ') })
  }
  if (name.endsWith(`.${authorisationSuffix(facts)}`)) records.push({ type: 'TXT', name, value: AUTHORISATION })
  return records
}

function recordOf(purpose: RecordPurpose, type: 'TXT' | 'CNAME', name: string, value: string): RequiredRecord {
  const required = REQUIRED_PURPOSES.includes(purpose)
  const shared = { purpose, required, type, name, host: hostOf(name), value }
  return { ...shared, ...(type === 'TXT' && { value_chunks: chunksOf(value) }), ttl: TTL_SECONDS }
}

/** All values are ASCII: a character is a byte. */
export function chunksOf(value: string): string[] {
  return Array.from({ length: Math.ceil(value.length / MOST_STRING_BYTES) }, (_, index) =>
    value.slice(index * MOST_STRING_BYTES, (index + 1) * MOST_STRING_BYTES),
  )
}

function hostOf(name: string): string {
  const registered = organizationalDomain(name)
  return name.endsWith(`.${registered}`) ? name.slice(0, -registered.length - 1) : name
}
