/**
 * What the DNS says of our own IPs: the reverse name, and whether a blocklist has them (http/README.md "IPs"). Looked
 * up in the background, at most hourly for each IP, and kept in memory. Only the start of a warmup waits for a lookup,
 * when the reverse name is not known to be right. A lookup without an answer is no finding.
 */
import { HOUR } from '../../base/clock.ts'
import { canonicalIp, ipFamily } from '../../base/ip-address.ts'
import type { DnsAnswer } from '../../network/resolver.ts'
import type { EgressIp } from './egress-ip.ts'
import type { IpParts } from './allowance.ts'
import type { IpLookups } from './outside.ts'

interface ReverseName {
  /**
   * ok: the EHLO name, which leads back to the address. missing: there is none. mismatch: another name, or it does not
   * lead back. unknown: not looked up yet, or no answer.
   */
  status: 'ok' | 'missing' | 'mismatch' | 'unknown'
  value: string | null
  checkedAt: number | null
}

interface BlocklistEntry {
  zone: string
  /** null: not known; lists refuse to answer public resolvers. */
  isListed: boolean | null
  checkedAt: number | null
}

export interface IpFacts {
  ptr: ReverseName
  blocklists: BlocklistEntry[]
}

export type IpFactsKeeper = ReturnType<typeof createIpFacts>

const CHECK_EVERY = HOUR
/** Answers by which a list says that it does not answer this resolver, e.g. 127.255.255.254 of Spamhaus. */
const REFUSED = '127.255.255.'
/** A list answers with an address of 127.0.0.0/8 (RFC 5782 §2.1); anything else is a parked zone. */
const LISTED = '127.'

export function createIpFacts({ configuration, registry, lookups, clock, logger }: IpParts) {
  /** By address and hostname: another hostname makes another right answer. */
  const known = new Map<string, IpFacts & { checkedAt: number }>()

  async function lookUp(ip: EgressIp): Promise<IpFacts> {
    if (lookups === null) return unknownFacts(zonesNow())
    const listings = lookups.blocklists ?? lookups
    const checkedAt = clock.now()
    const [ptr, ...blocklists] = await Promise.all([
      lookUpReverseName(ip, lookups, checkedAt),
      ...zonesNow().map(async (zone): Promise<BlocklistEntry> => {
        const { kind } = readListing(await listings.addresses(`${reversed(ip.address)}.${zone}`, 4))
        return { zone, isListed: kind === 'clean' ? false : kind === 'listed' ? true : null, checkedAt }
      }),
    ])
    noteListings(ip, blocklists)
    known.set(keyOf(ip), { ptr, blocklists, checkedAt: clock.now() })
    return { ptr, blocklists }
  }

  function noteListings(ip: EgressIp, blocklists: readonly BlocklistEntry[]): void {
    const { address } = ip
    const before = known.get(keyOf(ip))?.blocklists ?? []
    for (const { zone, isListed } of blocklists) {
      const wasListed = before.some((earlier) => earlier.zone === zone && earlier.isListed)
      if (isListed === true && !wasListed) logger.warn({ ip: address, zone }, 'egress IP is on a blocklist')
      if (isListed === false && wasListed) logger.info({ ip: address, zone }, 'egress IP left a blocklist')
    }
  }

  const zonesNow = (): string[] => configuration.current().server.health.blocklists

  return {
    find: (ip: EgressIp): IpFacts => known.get(keyOf(ip)) ?? unknownFacts(zonesNow()),
    /** Looks up, unless the reverse name was right last time: what is mended is seen at once. */
    async reverseName(ip: EgressIp): Promise<ReverseName> {
      const last = known.get(keyOf(ip))?.ptr
      return last?.status === 'ok' ? last : (await lookUp(ip)).ptr
    },
    async check(): Promise<void> {
      for (const ip of registry.ips()) {
        const checkedAt = known.get(keyOf(ip))?.checkedAt
        if (checkedAt !== undefined && clock.now() - checkedAt < CHECK_EVERY) continue
        try {
          await lookUp(ip)
        } catch (thrown) {
          logger.error({ ip: ip.address, err: thrown }, 'egress IP not looked up')
        }
      }
    },
  }
}

function keyOf({ address, hostname }: Pick<EgressIp, 'address' | 'hostname'>): string {
  return `${address} ${hostname}`
}

function unknownFacts(zones: readonly string[]): IpFacts {
  return {
    ptr: { status: 'unknown', value: null, checkedAt: null },
    blocklists: zones.map((zone) => ({ zone, isListed: null, checkedAt: null })),
  }
}

async function lookUpReverseName(ip: EgressIp, lookups: IpLookups, checkedAt: number): Promise<ReverseName> {
  const answer = await lookups.ptr(reverseName(ip.address))
  if (answer.kind === 'no-answer') return { status: 'unknown', value: null, checkedAt }
  const names = answer.kind === 'found' ? answer.records.map((name) => name.toLowerCase()) : []
  const [first] = names
  if (first === undefined) return { status: 'missing', value: null, checkedAt }
  const hostname = ip.hostname.toLowerCase()
  if (!names.includes(hostname)) return { status: 'mismatch', value: first, checkedAt }
  const addresses = await lookups.addresses(hostname, ipFamily(ip.address) ?? 4)
  if (addresses.kind === 'no-answer') return { status: 'unknown', value: hostname, checkedAt }
  return { status: leadsTo(addresses, ip.address) ? 'ok' : 'mismatch', value: hostname, checkedAt }
}

function leadsTo(answer: DnsAnswer<string>, address: string): boolean {
  return answer.kind === 'found' && answer.records.some((record) => canonicalIp(record) === canonicalIp(address))
}

type Listing =
  | { kind: 'clean' }
  | { kind: 'listed'; entries: string[] } // its codes for why
  | { kind: 'refused'; entry: string } // it does not answer this resolver
  | { kind: 'unknown'; reason: string } // no answer

export function readListing(answer: DnsAnswer<string>): Listing {
  if (answer.kind === 'no-answer') return { kind: 'unknown', reason: answer.reason }
  const records = answer.kind === 'found' ? answer.records : []
  const entries = records.filter((record) => record.startsWith(LISTED) && !record.startsWith(REFUSED))
  if (entries.length > 0) return { kind: 'listed', entries }
  const entry = records.find((record) => record.startsWith(REFUSED))
  return entry === undefined ? { kind: 'clean' } : { kind: 'refused', entry }
}

/** The name under which the reverse name of an address is published. */
export function reverseName(address: string): string {
  return `${reversed(address)}.${ipFamily(address) === 6 ? 'ip6' : 'in-addr'}.arpa`
}

/** `203.0.113.10` -> `10.113.0.203`; of IPv6 every nibble (RFC 3596 §2.5). */
export function reversed(address: string): string {
  if (ipFamily(address) === 4) return address.split('.').toReversed().join('.')
  const [head = '', tail] = address.split('::')
  const front = groupsOf(head)
  const back = tail === undefined ? [] : groupsOf(tail)
  const middle = Array.from({ length: 8 - front.length - back.length }, () => '0000')
  return [...[...front, ...middle, ...back].join('')].toReversed().join('.')
}

function groupsOf(text: string): string[] {
  return text === '' ? [] : text.split(':').map((group) => group.padStart(4, '0'))
}
