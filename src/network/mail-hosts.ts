/**
 * Finds the hosts that take mail for a domain, best first (network/README.md "Mail hosts"; RFC 5321 §5.1, RFC 7505).
 * Never throws for an answer of the DNS: each way to have no host is a result of its own. What others publish never
 * leads inwards.
 */
import { canonicalIp, ipFamily, isPublicUnicast } from '../base/ip-address.ts'
import { unreachable } from '../base/errors.ts'
import { MOST_RECORDS, type MxRecord, type Resolver } from './resolver.ts'

export interface FoundHost {
  name: string
  /** Both families in turns, IPv4 first. */
  addresses: string[]
  canonicalName: string
  /** DNSSEC validated the addresses, both families. */
  isSecure: boolean
  /** Why not all addresses are known; null: they are. */
  failure: string | null
}

export type MailHosts =
  | {
      kind: 'hosts'
      hosts: FoundHost[] // in the order in which they are to be tried, each with at least one address
      mxNames: string[] // the whole set that is accepted, best first; the domain itself when it has no MX record
      isSecure: boolean // DNSSEC validated the set
    }
  | { kind: 'null-mx' } // the domain says that it takes no mail (RFC 7505)
  | { kind: 'no-name' } // there is no such domain
  | { kind: 'no-address' } // the domain exists, but no host of it has an address
  | { kind: 'refused-addresses' } // it has addresses, and we connect to none of them
  | { kind: 'none-accepted'; mxNames: string[] } // it has hosts, and the caller accepts none of them
  | { kind: 'no-answer'; reason: string; isBogus?: true } // the DNS did not answer, or lied: ask again later

/** Whether a name of an MX set counts at all. `isSecure`: DNSSEC validated the set. */
export type HostFilter = (name: string, isSecure: boolean) => boolean

export interface MailHostsOptions {
  resolver: Resolver
  allowPrivateAddresses: boolean
  /** Our egress and listener addresses; connecting there would be a loop. */
  ownAddresses: () => readonly string[]
  /** In all hosts together, of each family (an attempt uses one family; network/README.md "Mail hosts": 20). */
  mostAddresses: number
  /** 0 to 1, as Math.random; orders hosts of equal preference. */
  random?: () => number
}

/** Host names; as long as none of them has an address, the next ones follow. */
const LOOKED_UP_AT_ONCE = 20

export type MailHostsFinder = ReturnType<typeof createMailHosts>

export function createMailHosts(options: MailHostsOptions) {
  return {
    async find(domain: string, filter: HostFilter = () => true): Promise<MailHosts> {
      const answer = await options.resolver.mx(domain)
      switch (answer.kind) {
        case 'no-answer':
          return answer
        case 'no-name':
          return { kind: 'no-name' }
        case 'no-record':
        case 'found': {
          // RFC 5321 §5.1: without an MX record the domain is its own and only host.
          const records = answer.kind === 'found' ? answer.records : [{ priority: 0, exchange: domain }]
          const targets = withoutRepeats(records)
          if (targets.length === 0) return { kind: 'null-mx' }
          const isSecure = answer.facts?.isSecure === true
          const accepted = targets.filter(({ exchange }) => filter(exchange, isSecure))
          if (accepted.length === 0) return { kind: 'none-accepted', mxNames: targets.map(({ exchange }) => exchange) }
          const found = await hostsOf(accepted, isSecure, options)
          // There may be more of them, and what is not known of them must not end a message.
          const isCut = found.kind === 'no-address' && records.length === MOST_RECORDS
          return isCut ? { kind: 'no-answer', reason: `MX ${domain}: no address of the best ${MOST_RECORDS}` } : found
        }
        default:
          return unreachable(answer)
      }
    },
  }
}

/**
 * A null MX beside other records is void (RFC 7505 §3: it must stand alone), and a name that is given twice counts at
 * its better preference.
 */
function withoutRepeats(records: readonly MxRecord[]): MxRecord[] {
  const seen = new Set([''])
  return records.filter(({ exchange }) => !seen.has(exchange) && seen.add(exchange))
}

async function hostsOf(targets: MxRecord[], isSecure: boolean, options: MailHostsOptions): Promise<MailHosts> {
  const { resolver, mostAddresses, random = Math.random } = options
  const own = new Set(options.ownAddresses().map((address) => canonicalIp(address) ?? address))
  const isAllowed = (address: string): boolean =>
    options.allowPrivateAddresses || (isPublicUnicast(address) && !own.has(canonicalIp(address) ?? address))

  const ordered = shuffledWithinPreference(targets, random)
  const found: (FoundHost & { isBogus: boolean })[] = []
  while (found.length < ordered.length && found.every(({ addresses }) => addresses.length === 0)) {
    const next = ordered.slice(found.length, found.length + LOOKED_UP_AT_ONCE)
    found.push(...(await Promise.all(next.map(({ exchange }) => addressesOf(exchange, resolver)))))
  }
  const hosts: FoundHost[] = []
  const left = { 4: mostAddresses, 6: mostAddresses }
  for (const { isBogus: _, ...host } of found) {
    const addresses = host.addresses.filter((address) => {
      const family = ipFamily(address) ?? 4
      return left[family] > 0 && isAllowed(address) && left[family]-- > 0
    })
    if (addresses.length > 0) hosts.push({ ...host, addresses })
  }
  if (hosts.length > 0) return { kind: 'hosts', hosts, mxNames: targets.map(({ exchange }) => exchange), isSecure }
  const failed = found.find(({ failure }) => failure !== null)
  if (failed?.failure != null) {
    return { kind: 'no-answer', reason: failed.failure, ...(failed.isBogus ? { isBogus: true } : {}) }
  }
  return { kind: found.some(({ addresses }) => addresses.length > 0) ? 'refused-addresses' : 'no-address' }
}

function shuffledWithinPreference(targets: readonly MxRecord[], random: () => number): MxRecord[] {
  return targets
    .map((target) => ({ target, draw: random() }))
    .toSorted((left, right) => left.target.priority - right.target.priority || left.draw - right.draw)
    .map(({ target }) => target)
}

/** An address as MX target is against RFC 5321 §5.1, and accepted as most servers do; so is a CNAME. */
async function addressesOf(name: string, resolver: Resolver): Promise<FoundHost & { isBogus: boolean }> {
  const literal = canonicalIp(name)
  if (literal !== undefined) {
    return { name, addresses: [literal], canonicalName: name, isSecure: false, failure: null, isBogus: false }
  }
  const answers = await Promise.all([resolver.addresses(name, 4), resolver.addresses(name, 6)])
  const [ipv4, ipv6] = answers.map((answer) => (answer.kind === 'found' ? answer.records : []))
  const failed = answers.find((answer) => answer.kind === 'no-answer')
  const facts = answers.map((answer) => (answer.kind === 'no-answer' ? undefined : answer.facts))
  return {
    name,
    addresses: inTurns(ipv4 ?? [], ipv6 ?? []),
    canonicalName: facts.find((each) => each !== undefined)?.canonicalName ?? name,
    isSecure: facts.every((each) => each?.isSecure === true),
    failure: failed?.reason ?? null,
    isBogus: failed?.isBogus === true,
  }
}

function inTurns(first: readonly string[], second: readonly string[]): string[] {
  const length = Math.max(first.length, second.length)
  return Array.from({ length }, (_, index) => [first[index], second[index]])
    .flat()
    .filter((address) => address !== undefined)
}
