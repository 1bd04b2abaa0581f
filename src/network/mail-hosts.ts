/**
 * Finds the hosts that take mail for a domain, best first.
 *
 * Never throws for an answer of the DNS: each way to have no host is a result of its own, because the caller treats
 * them differently. The order inside one preference is drawn anew by each call. What others publish never leads
 * inwards: loopback, private and other special addresses, and our own, are left out (hardening.md 4.1).
 * RFC 5321 §5.1, RFC 7505; engine.md 12.
 */
import { canonicalIp, isPublicUnicast } from '../base/ip-address.ts'
import { unreachable } from '../base/errors.ts'
import type { MxRecord, Resolver } from './resolver.ts'

export interface MailHost {
  name: string
  /** Both families in turns, IPv4 first. */
  addresses: string[]
}

export type MailHosts =
  | {
      kind: 'hosts'
      hosts: MailHost[] // in the order in which they are to be tried, each with at least one address
      mxNames: string[] // the whole set as published, best first; the domain itself when it has no MX record
    }
  | { kind: 'null-mx' } // the domain says that it takes no mail (RFC 7505)
  | { kind: 'no-name' } // there is no such domain
  | { kind: 'no-address' } // the domain exists, but no host of it has an address
  | { kind: 'refused-addresses' } // it has addresses, and we connect to none of them
  | { kind: 'no-answer'; reason: string } // the DNS did not answer: ask again later

export interface MailHostsOptions {
  resolver: Resolver
  allowPrivateAddresses: boolean
  /** Our egress and listener addresses; connecting there would be a loop. */
  ownAddresses: () => readonly string[]
  /** In all hosts together (engine.md 12.1: 20); also the most host names that are looked up. */
  mostAddresses: number
  /** 0 to 1, as Math.random; orders hosts of equal preference. */
  random?: () => number
}

export interface MailHostsFinder {
  find(domain: string): Promise<MailHosts>
}

export function createMailHosts(options: MailHostsOptions): MailHostsFinder {
  const { resolver, random = Math.random } = options
  return {
    async find(domain) {
      const answer = await resolver.mx(domain)
      switch (answer.kind) {
        case 'no-answer':
        case 'no-name':
          return answer
        case 'no-record':
          // RFC 5321 §5.1: without an MX record the domain is its own and only host.
          return hostsOf([{ priority: 0, exchange: domain }], options, random)
        case 'found': {
          const targets = withoutRepeats(answer.records)
          return targets.length === 0 ? { kind: 'null-mx' } : hostsOf(targets, options, random)
        }
        default:
          return unreachable(answer)
      }
    },
  }
}

/**
 * Best first. A null MX beside other records is void (RFC 7505 §3: it must stand alone), and a name that is given twice
 * counts at its better preference. Sorted by name too, so that the set of a domain reads the same at each lookup.
 */
function withoutRepeats(records: readonly MxRecord[]): MxRecord[] {
  const sorted = records
    .filter(({ exchange }) => exchange !== '')
    .toSorted((left, right) => left.priority - right.priority || compareText(left.exchange, right.exchange))
  const seen = new Set<string>()
  return sorted.filter(({ exchange }) => !seen.has(exchange) && seen.add(exchange))
}

async function hostsOf(targets: MxRecord[], options: MailHostsOptions, random: () => number): Promise<MailHosts> {
  // A domain may publish hundreds of hosts: only as many are asked for as addresses are tried.
  const tried = shuffledWithinPreference(targets, random).slice(0, options.mostAddresses)
  const own = new Set(options.ownAddresses().map((address) => canonicalIp(address) ?? address))
  const isAllowed = (address: string): boolean =>
    options.allowPrivateAddresses || (isPublicUnicast(address) && !own.has(canonicalIp(address) ?? address))

  const found = await Promise.all(tried.map(({ exchange }) => addressesOf(exchange, options.resolver)))
  const hosts: MailHost[] = []
  let left = options.mostAddresses
  for (const { name, addresses } of found) {
    const usable = addresses.filter(isAllowed).slice(0, left)
    left -= usable.length
    if (usable.length > 0) hosts.push({ name, addresses: usable })
  }
  if (hosts.length > 0) return { kind: 'hosts', hosts, mxNames: targets.map(({ exchange }) => exchange) }
  const reason = found.find((host) => host.failure !== undefined)?.failure
  if (reason !== undefined) return { kind: 'no-answer', reason }
  return { kind: found.some(({ addresses }) => addresses.length > 0) ? 'refused-addresses' : 'no-address' }
}

function shuffledWithinPreference(targets: readonly MxRecord[], random: () => number): MxRecord[] {
  return targets
    .map((target) => ({ target, draw: random() }))
    .toSorted((left, right) => left.target.priority - right.target.priority || left.draw - right.draw)
    .map(({ target }) => target)
}

interface FoundAddresses extends MailHost {
  /** Why not all addresses are known; undefined when the DNS answered. */
  failure: string | undefined
}

/** An address as MX target is against RFC 5321 §5.1, and accepted as most servers do; so is a CNAME. */
async function addressesOf(name: string, resolver: Resolver): Promise<FoundAddresses> {
  const literal = canonicalIp(name)
  if (literal !== undefined) return { name, addresses: [literal], failure: undefined }
  const [ipv4, ipv6] = await Promise.all([resolver.addresses(name, 4), resolver.addresses(name, 6)])
  const failed = [ipv4, ipv6].find((answer) => answer.kind === 'no-answer')
  const addresses = inTurns(
    ipv4.kind === 'found' ? ipv4.records : [],
    ipv6.kind === 'found' ? ipv6.records : [],
  )
  return { name, addresses, failure: failed?.reason }
}

function inTurns(first: readonly string[], second: readonly string[]): string[] {
  const length = Math.max(first.length, second.length)
  return Array.from({ length }, (_, index) => [first[index], second[index]])
    .flat()
    .filter((address) => address !== undefined)
}

function compareText(left: string, right: string): number {
  if (left === right) return 0
  return left < right ? -1 : 1
}
