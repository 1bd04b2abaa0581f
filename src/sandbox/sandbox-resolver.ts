/**
 * The DNS of the sandbox (sandbox/README.md "The sandbox"): every domain's mail goes to the capture server, and every
 * record that we ask a customer to publish is there. A question that cannot be answered because `publishedRecords`
 * failed is "no answer". Never throws.
 */
import { errorText } from '../base/errors.ts'
import type { DnsAnswer, MxRecord, Resolver } from '../network/resolver.ts'
import { CAPTURE_ADDRESS } from '../capture/capture-server.ts'

type EgressIps = readonly { address: string; hostname: string }[]

export interface SandboxResolverOptions {
  /** The MX of every domain. */
  captureHostName: string
  /** Everything that the instructions for sending domains ask for at this name. */
  publishedRecords: (name: string) => Promise<SandboxRecord[]>
  /** Their names lead to them and back. */
  egressIps: () => EgressIps | Promise<EgressIps>
}

/** MX names of the kind that these providers publish, best first; `providers.yaml` knows them by their ends. */
const WELL_KNOWN_HOSTS: ReadonlyMap<string, readonly string[]> = new Map([
  ['gmail.com', ['gmail-smtp-in.l.google.com', 'alt1.gmail-smtp-in.l.google.com']],
  ['outlook.com', ['outlook-com.olc.protection.outlook.com']],
  ['yahoo.com', ['mta5.am0.yahoodns.net', 'mta6.am0.yahoodns.net', 'mta7.am0.yahoodns.net']],
  ['icloud.com', ['mx01.mail.icloud.com', 'mx02.mail.icloud.com']],
  ['gmx.net', ['mx00.emig.gmx.net', 'mx01.emig.gmx.net']],
])
const PREFERENCE_STEP = 10
/** A chain of aliases longer than this is a circle. */
const MOST_ALIASES = 5

export function createSandboxResolver(options: SandboxResolverOptions): Resolver {
  const { captureHostName, publishedRecords, egressIps } = options

  /** Values of this type at a name, aliases followed as a DNS server does. */
  async function published(name: string, type: 'TXT' | 'MX', aliasesLeft = MOST_ALIASES): Promise<DnsAnswer<string>> {
    const direct = await valuesAt(name, type)
    if (direct.kind !== 'no-record' || aliasesLeft === 0) return direct
    const alias = await valuesAt(name, 'CNAME')
    if (alias.kind !== 'found') return alias
    return published(alias.records[0] ?? name, type, aliasesLeft - 1)
  }

  async function valuesAt(name: string, type: SandboxRecord['type']): Promise<DnsAnswer<string>> {
    try {
      const asked = await publishedRecords(plain(name))
      const records = isBroken(name) ? [...asked.flatMap(breakRecord), ...OTHER_HOST_RECORDS] : asked
      const values = records
        .filter((record) => record.type === type && plain(record.name) === plain(name))
        .map(({ value }) => value)
      return values.length > 0 ? { kind: 'found', records: values } : { kind: 'no-record' }
    } catch (thrown) {
      return { kind: 'no-answer', reason: errorText(thrown) }
    }
  }

  return {
    async mx(name) {
      const wellKnown = WELL_KNOWN_HOSTS.get(plain(name))
      if (wellKnown !== undefined) return { kind: 'found', records: inOrder(wellKnown) }
      const answer = await published(name, 'MX')
      if (answer.kind === 'found') return { kind: 'found', records: answer.records.map(readMx) }
      return answer.kind === 'no-answer' ? answer : { kind: 'found', records: inOrder([captureHostName]) }
    },
    async addresses(name, family) {
      if (family === 6) return { kind: 'no-record' }
      const own = (await egressIps()).find(({ hostname }) => hostname === plain(name))
      if (own !== undefined) return { kind: 'found', records: [own.address] }
      return { kind: 'found', records: [isBroken(name) ? OTHER_HOST_ADDRESS : CAPTURE_ADDRESS] }
    },
    txt: (name) => published(name, 'TXT'),
    cname: (name) => valuesAt(name, 'CNAME'),
    async ptr(name) {
      const found = (await egressIps()).find(({ address }) => reverseName(address) === plain(name))
      return found === undefined ? { kind: 'no-name' } : { kind: 'found', records: [found.hostname] }
    },
  }
}

function inOrder(hosts: readonly string[]): MxRecord[] {
  return hosts.map((exchange, index) => ({ priority: (index + 1) * PREFERENCE_STEP, exchange }))
}

function readMx(value: string): MxRecord {
  // `10 mx.example.net`, or the host alone.
  const [, priority, exchange] = /^(?:(\d+)\s+)?(\S*)$/.exec(value.trim()) ?? []
  return { priority: Number(priority ?? PREFERENCE_STEP), exchange: plain(exchange ?? '') }
}

/** Those of a sandbox are IPv4 addresses of loopback. */
function reverseName(address: string): string {
  return `${address.split('.').toReversed().join('.')}.in-addr.arpa`
}

/** A record as the DNS gives it. */
interface SandboxRecord {
  type: 'TXT' | 'CNAME' | 'MX'
  name: string
  value: string
}

/** DNS names are the same in any case and with or without the last dot. */
function plain(name: string): string {
  return name.toLowerCase().replace(/\.$/, '') // one dot at the very end
}

// Below `unverified.test`: what we ask for, published with the mistakes that people make.
const UNVERIFIED_DOMAIN = 'unverified.test'
const OTHER_HOST = 'another-host.unverified.test'
/** RFC 1035 §3.3: the most bytes of one string. */
const MOST_STRING_BYTES = 255
/** A shorter value loses its end. */
const LOST_BYTES = 8
/** Nobody's (RFC 5737 §3). */
const OTHER_HOST_ADDRESS = '192.0.2.1'
/** Found at the host that the aliases lead to. */
const OTHER_HOST_RECORDS: readonly SandboxRecord[] = [
  { type: 'TXT', name: OTHER_HOST, value: `v=spf1 ip4:${OTHER_HOST_ADDRESS} -all` },
]

/** True for names whose records are published with mistakes. */
function isBroken(name: string): boolean {
  return plain(name) === UNVERIFIED_DOMAIN || plain(name).endsWith(`.${UNVERIFIED_DOMAIN}`)
}

/** The record with its mistake, or nothing: it was forgotten. */
function breakRecord(record: SandboxRecord): SandboxRecord[] {
  const { type, value } = record
  if (type === 'CNAME') return [{ ...record, value: OTHER_HOST }]
  if (type !== 'TXT' || !value.startsWith('v=DKIM1')) return []
  return [{ ...record, value: value.slice(0, Math.min(MOST_STRING_BYTES, value.length - LOST_BYTES)) }]
}
