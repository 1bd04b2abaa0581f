/**
 * Where the mail of a recipient domain goes: its hosts, what is asked of TLS towards each, who runs them, with which
 * limits; or what the DNS said instead. Never rejects for an answer of the DNS. Hosts that an enforced MTA-STS policy
 * does not name are left out before the provider is identified. `settle/judge-dns.ts` says what an answer without hosts
 * means for one message. egress/README.md "Providers", network/README.md "Mail hosts", delivery/README.md "TLS".
 */
import { HOUR, MINUTE, type Clock } from '../../base/clock.ts'
import { recentEntries } from '../../base/recent-entries.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import { identifyProvider, type MailboxProvider } from '../../egress/shaping/mailbox-provider.ts'
import type { MailHosts, MailHostsFinder } from '../../network/mail-hosts.ts'
import type { HostTls } from '../protocol/host-tls.ts'
import type { MailHost } from '../protocol/try-result.ts'
import { policyKey, withFloor, type DomainFacts, type TlsPolicies } from './tls/tls-policy.ts'
import type { TlsProblem } from './tls/tls-results.ts'

export interface HostsRoute {
  kind: 'hosts'
  /** At least one of them may be tried; others may be there to be skipped. */
  hosts: MailHost[]
  /** Equal for domains whose connections may be shared: the same hosts under the same TLS policy. */
  siteKey: string
  provider: MailboxProvider
}

/** The DNS said that there is no host, or said nothing. */
export type NoHosts = (Exclude<MailHosts, { kind: 'hosts' | 'none-accepted' }> | NoUsableHost) & {
  /** Since when the DNS has said so; the time of this lookup when no earlier one is known. */
  since: number
}

/** There are hosts, but DANE or MTA-STS lets mail go to none of them. */
interface NoUsableHost {
  kind: 'no-usable-host'
  /** Enhanced code, d.d.d. */
  code: string
  reason: string
}

export type RecipientRoute = HostsRoute | NoHosts

export type FindRoute = (recipientDomain: string) => Promise<RecipientRoute>

/** Domains looked up at once (network/README.md "Cache and resolver"). */
const MOST_LOOKUPS = 100
/** Domains whose answer without hosts is remembered; the longest unused are forgotten, and confirmed once more. */
const MOST_REMEMBERED = 20_000
/** How late a change of the DNS is seen, beyond the time for which its answers are cached. */
const FRESH_FOR = MINUTE
const ANSWERING_FOR = HOUR
const MOST_DOMAINS = 20_000
const MOST_ROUTES = 20_000
/** X.7.5 of RFC 3463: a cryptographic failure. */
export const PROTECTION_CODE = '4.7.5'

interface FindRouteOptions {
  mailHosts: MailHostsFinder
  tlsPolicies: TlsPolicies
  settings: () => Configuration
  clock: Clock
  /** A host that is skipped, or left out: no connection will tell of it. */
  onTlsProblem?: (problem: TlsProblem) => void
}

export function createFindRoute(options: FindRouteOptions): FindRoute {
  const { mailHosts, tlsPolicies, clock } = options
  const inTurn = createLookupTurns(MOST_LOOKUPS)
  const protect = createProtect(options)
  const said = recentEntries<string, { kind: NoHosts['kind']; since: number }>(MOST_REMEMBERED)

  async function lookUp(domain: string): Promise<HostsRoute | Exclude<MailHosts, { kind: 'hosts' }> | NoUsableHost> {
    // Before its turn: a web server that is slow to give a policy takes no place from other domains.
    const sts = await tlsPolicies.stsFor(domain)
    return inTurn(async () => {
      const mayUse = (host: string, isSecure: boolean): boolean => tlsPolicies.mayUse(host, { domain, isSecure, sts })
      const found = await mailHosts.find(domain, mayUse)
      return found.kind === 'hosts' ? await protect(found, { domain, isSecure: found.isSecure, sts }) : found
    })
  }

  /** A lookup without answer neither confirms nor contradicts what was said before. */
  function sinceWhen(recipientDomain: string, kind: NoHosts['kind']): number {
    const now = clock.now()
    const known = said.get(recipientDomain)
    if (known?.kind === kind) return known.since
    if (kind !== 'no-answer') said.set(recipientDomain, { kind, since: now })
    return now
  }

  return async (recipientDomain) => {
    const found = await lookUp(recipientDomain)
    if (found.kind === 'hosts') {
      said.delete(recipientDomain)
      return found
    }
    if (found.kind !== 'none-accepted') return { ...found, since: sinceWhen(recipientDomain, found.kind) }
    const since = sinceWhen(recipientDomain, 'no-usable-host')
    return { kind: 'no-usable-host', code: PROTECTION_CODE, reason: NONE_NAMED, since }
  }
}

/**
 * At most so many at once. Those that wait go on in turns, the newest and the one that waits longest: the last one does
 * not stand behind thousands that are slow, and each has its turn in the end.
 */
function createLookupTurns(most: number): <Result>(look: () => Promise<Result>) => Promise<Result> {
  const waiting: (() => void)[] = []
  let underWay = 0
  let isNewestNext = false

  return async (look) => {
    if (underWay >= most) await new Promise<void>((resolve) => void waiting.push(resolve))
    underWay++
    try {
      return await look()
    } finally {
      underWay--
      isNewestNext = !isNewestNext
      const next = isNewestNext ? waiting.pop() : waiting.shift()
      next?.()
    }
  }
}

/** What is asked of TLS towards each host, and who runs those that are left. */
function createProtect({ tlsPolicies, settings, onTlsProblem = () => {} }: FindRouteOptions) {
  return async (
    answer: Extract<MailHosts, { kind: 'hosts' }>,
    facts: DomainFacts,
  ): Promise<HostsRoute | NoUsableHost> => {
    const { hosts: found, mxNames } = answer
    const { domain, sts } = facts
    const { providers, server } = settings()
    const policies = await Promise.all(found.map((host) => tlsPolicies.tlsOf(host, facts)))
    const leftOut = found.filter((_, index) => policies[index] === null).map(({ name }) => name)
    for (const host of leftOut) {
      onTlsProblem({ domain, host, policy: { type: 'sts', id: sts?.id ?? '' }, result: 'validation-failure' })
    }
    const hosts = found.flatMap(({ name, addresses }, index): MailHost[] => {
      const tls = policies[index]
      return tls == null ? [] : [{ name, addresses, tls }]
    })
    for (const { name: host, tls } of hosts) {
      if (tls.kind === 'skip') onTlsProblem({ domain, host, policy: tls.policy, result: 'dnssec-invalid' })
    }
    if (!hosts.some(({ tls }) => tls.kind !== 'skip')) {
      const [skipped] = hosts.flatMap(({ tls }) => (tls.kind === 'skip' ? [tls] : []))
      const { code, reason } = skipped ?? { code: PROTECTION_CODE, reason: NONE_NAMED }
      return { kind: 'no-usable-host', code, reason }
    }
    const namesLeft = mxNames.filter((name) => !leftOut.includes(name))
    const provider = identifyProvider(providers, domain, namesLeft)
    const floor = floorOf(provider, server.delivery.tls)
    const demanded = floor === null ? hosts : hosts.map((host) => ({ ...host, tls: withFloor(host.tls, floor) }))
    return { kind: 'hosts', hosts: demanded, siteKey: siteKeyOf(domain, demanded), provider }
  }
}

const NONE_NAMED = 'the MTA-STS policy of the domain names none of its mail servers'

/** Who asks for TLS at least, or null. */
function floorOf({ provider, limits }: MailboxProvider, ofServer: string): string | null {
  if (limits.tls === 'required') return provider === null ? 'providers.yaml' : `provider ${provider}`
  return ofServer === 'required' ? 'delivery.tls' : null
}

function siteKeyOf(domain: string, hosts: readonly MailHost[]): string {
  return hosts
    .map(({ name, tls }) => `${name} ${keyOf(domain, tls)}`)
    .toSorted()
    .join(' ')
}

/** Short where nothing is demanded, as of most hosts. */
function keyOf(domain: string, tls: HostTls): string {
  return tls.kind === 'opportunistic' && tls.policy.type === 'none' ? '-' : policyKey(domain, tls)
}

/**
 * What is remembered of where mail goes: the route of a recipient domain, for about as long as its DNS answer holds,
 * and what stands behind the name of a route, which is all that a queue key has; one that nothing was sent to since the
 * start is guessed from its name. Questions for one domain share one lookup; `find` rejects as it does.
 */
export type KnownRoutes = ReturnType<typeof createKnownRoutes>

type KnownRoutesOptions = { findRoute: FindRoute; configuration: () => Configuration; clock: Clock }

export function createKnownRoutes({ findRoute, configuration, clock }: KnownRoutesOptions) {
  const domains = recentEntries<string, { route: HostsRoute; at: number }>(MOST_DOMAINS)
  const providers = recentEntries<string, MailboxProvider>(MOST_ROUTES)
  /** When the DNS last named hosts of a route. */
  const foundAt = recentEntries<string, number>(MOST_ROUTES)
  const underWay = new Map<string, Promise<RecipientRoute>>()

  async function ask(recipientDomain: string): Promise<RecipientRoute> {
    try {
      const found = await findRoute(recipientDomain)
      if (found.kind === 'hosts') {
        domains.set(recipientDomain, { route: found, at: clock.now() })
        providers.set(found.provider.route, found.provider)
        foundAt.set(found.provider.route, clock.now())
      } else noteWithoutHosts(recipientDomain)
      return found
    } catch (thrown) {
      noteWithoutHosts(recipientDomain)
      throw thrown
    }
  }

  function noteWithoutHosts(recipientDomain: string): void {
    const known = domains.peek(recipientDomain)
    if (known !== undefined) foundAt.delete(known.route.provider.route)
  }

  /** A provider's id may stand alone, or before the hyphen that a site's name has. */
  function guess(routeName: string): MailboxProvider {
    const { default: limits, providers: blocks } = configuration().providers
    const id = routeName.split('-')[0] ?? ''
    const block = Object.hasOwn(blocks, id) ? blocks[id] : undefined
    if (block === undefined) return { provider: null, isp: routeName, limits, route: routeName }
    return { provider: id, isp: block.isp, limits: block, route: routeName }
  }

  return {
    /** The route of the domain when it was looked up lately; undefined: `find` has to ask. */
    fresh(recipientDomain: string): HostsRoute | undefined {
      const known = domains.get(recipientDomain)
      const age = clock.now() - (known?.at ?? 0)
      return known !== undefined && age >= 0 && age < FRESH_FOR ? known.route : undefined
    },
    find(recipientDomain: string): Promise<RecipientRoute> {
      const running = underWay.get(recipientDomain)
      if (running !== undefined) return running
      const asking = ask(recipientDomain).finally(() => underWay.delete(recipientDomain))
      underWay.set(recipientDomain, asking)
      return asking
    },
    /** The DNS named hosts of it within the last hour, and since then of each domain that was looked up. */
    isAnswering(routeName: string): boolean {
      const age = clock.now() - (foundAt.peek(routeName) ?? Number.NEGATIVE_INFINITY)
      return age >= 0 && age < ANSWERING_FOR
    },
    /** As it was when it was last looked up, however long ago. */
    last: (recipientDomain: string) => domains.peek(recipientDomain)?.route,
    behind(routeName: string): MailboxProvider {
      const known = providers.get(routeName)
      if (known !== undefined) return known
      const guessed = guess(routeName)
      providers.set(routeName, guessed)
      return guessed
    },
    /** Limits have changed: nothing is known any more. */
    forget(): void {
      domains.clear()
      providers.clear()
    },
  }
}
