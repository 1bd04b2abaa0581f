/**
 * Where the mail of a recipient domain goes: its hosts, what is asked of TLS towards each, who runs them, with which
 * limits; or what the DNS said instead.
 *
 * At most so many domains are looked up at once; the others wait their turn. Never rejects for an answer of the DNS.
 * Hosts that an enforced MTA-STS policy does not name are left out before the provider is identified. What an answer
 * without hosts means for one message is `judgeDns`, pure. Engine.md 7, 12, 13.
 */
import { HOUR, MINUTE } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { unreachable } from '../../base/errors.ts'
import { recentEntries } from '../../base/recent-entries.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import { identifyProvider } from '../../egress/shaping/mailbox-provider.ts'
import type { MailboxProvider } from '../../egress/shaping/mailbox-provider.ts'
import { bounceFor } from '../../mail/reply/classify-reply.ts'
import type { MailHosts, MailHostsFinder } from '../../network/mail-hosts.ts'
import type { HostTls } from '../protocol/host-tls.ts'
import type { JudgedMessage, Judgement } from '../settle/judge-reply.ts'
import { nextTryAt, PATH_WAITS, scheduledWait } from '../settle/retry-schedule.ts'
import { policyKey, withFloor } from './tls/tls-policy.ts'
import type { DomainFacts, TlsPolicies } from './tls/tls-policy.ts'
import type { TlsProblem } from './tls/tls-results.ts'
import type { MailHost } from '../protocol/try-result.ts'

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
  /** When it first said so without having said otherwise since; this very lookup when no earlier one is known. */
  since: number
}

/** There are hosts, and what protects the domain lets mail go to none of them. */
export interface NoUsableHost {
  kind: 'no-usable-host'
  /** Enhanced code, d.d.d. */
  code: string
  reason: string
}

export type Route = HostsRoute | NoHosts

export type FindRoute = (recipientDomain: string) => Promise<Route>

/** Domains looked up at once (engine.md 12.3). */
const MOST_LOOKUPS = 100
/** Domains whose answer without hosts is remembered; the longest unused are forgotten, and confirmed once more. */
const MOST_REMEMBERED = 20_000
/** A name that does not exist is asked for again after this, before anybody believes it (engine.md 12.2). */
const CONFIRM_NO_NAME_AFTER = 10 * MINUTE
/** Hosts without an address: two lookups this far apart must agree (engine.md 12.1). */
const CONFIRM_NO_ADDRESS_AFTER = HOUR
/** X.7.5 of RFC 3463: a cryptographic failure. */
const PROTECTION_CODE = '4.7.5'

const NO_REPLY = { stage: 'connect' as const, rule: null }

export interface FindRouteOptions {
  mailHosts: MailHostsFinder
  tlsPolicies: TlsPolicies
  settings: () => Configuration
  clock: Clock
  /** A host that is skipped, or left out: no connection will tell of it. */
  onTlsProblem?: (problem: TlsProblem) => void
}

export function createFindRoute(options: FindRouteOptions): FindRoute {
  const { mailHosts, tlsPolicies, clock } = options
  const said = recentEntries<string, { kind: NoHosts['kind']; since: number }>(MOST_REMEMBERED)
  const waiting: (() => void)[] = []
  let underWay = 0
  let isNewestNext = false

  async function lookUp(domain: string): Promise<HostsRoute | Exclude<MailHosts, { kind: 'hosts' }> | NoUsableHost> {
    // Before its turn: a web server that is slow to give a policy takes no place from other domains.
    const sts = await tlsPolicies.stsFor(domain)
    if (underWay >= MOST_LOOKUPS) await new Promise<void>((resolve) => void waiting.push(resolve))
    underWay++
    try {
      const mayUse = (host: string, isSecure: boolean): boolean => tlsPolicies.mayUse(host, { domain, isSecure, sts })
      const found = await mailHosts.find(domain, mayUse)
      return found.kind === 'hosts' ? await protect(found, { domain, isSecure: found.isSecure, sts }) : found
    } finally {
      underWay--
      // Whoever comes last does not stand behind thousands that are slow, and whoever waits longest has his turn too.
      isNewestNext = !isNewestNext
      const next = isNewestNext ? waiting.pop() : waiting.shift()
      next?.()
    }
  }

  /** What is asked of TLS towards each host, and who runs those that are left. */
  async function protect(
    { hosts: found, mxNames }: Extract<MailHosts, { kind: 'hosts' }>,
    facts: DomainFacts,
  ): Promise<HostsRoute | NoUsableHost> {
    const { providers, server } = options.settings()
    const policies = await Promise.all(found.map((host) => tlsPolicies.tlsOf(host, facts)))
    const hosts = found.flatMap(({ name, addresses }, index): MailHost[] => {
      const tls = policies[index]
      return tls == null ? [] : [{ name, addresses, tls }]
    })
    const leftOut = found.filter((_, index) => policies[index] === null).map(({ name }) => name)
    report(facts, leftOut, hosts)
    const [skipped] = hosts.flatMap(({ tls }) => (tls.kind === 'skip' ? [tls] : []))
    if (!hosts.some(({ tls }) => tls.kind !== 'skip')) {
      const left = skipped ?? { code: PROTECTION_CODE, reason: NONE_NAMED }
      return { kind: 'no-usable-host', code: left.code, reason: left.reason }
    }
    const provider = identifyProvider(providers, facts.domain, mxNames.filter((name) => !leftOut.includes(name)))
    const floor = floorOf(provider, server.delivery.tls)
    const demanded = floor === null ? hosts : hosts.map((host) => ({ ...host, tls: withFloor(host.tls, floor) }))
    return { kind: 'hosts', hosts: demanded, siteKey: siteKeyOf(facts.domain, demanded), provider }
  }

  function report({ domain, sts }: DomainFacts, leftOut: readonly string[], hosts: readonly MailHost[]): void {
    for (const host of leftOut) {
      const policy = { type: 'sts' as const, id: sts?.id ?? '' }
      options.onTlsProblem?.({ domain, host, policy, result: 'validation-failure' })
    }
    for (const { name: host, tls } of hosts) {
      if (tls.kind === 'skip') options.onTlsProblem?.({ domain, host, policy: tls.policy, result: 'dnssec-invalid' })
    }
  }

  /** A lookup without answer neither confirms nor contradicts what was said before. */
  const sinceWhen = (recipientDomain: string, kind: NoHosts['kind']): number => {
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

const NONE_NAMED = 'the MTA-STS policy of the domain names none of its mail servers'

/** Who asks for TLS at least, or null. */
function floorOf(
  { provider, limits }: MailboxProvider,
  ofServer: Configuration['server']['delivery']['tls'],
): string | null {
  if (limits.tls === 'required') return provider === null ? 'providers.yaml' : `provider ${provider}`
  return ofServer === 'required' ? 'delivery.tls' : null
}

function siteKeyOf(domain: string, hosts: readonly MailHost[]): string {
  return hosts.map(({ name, tls }) => `${name} ${keyOf(domain, tls)}`).toSorted().join(' ')
}

/** Short where nothing is demanded: so it is with most. */
function keyOf(domain: string, tls: HostTls): string {
  return tls.kind === 'opportunistic' && tls.policy.type === 'none' ? '-' : policyKey(domain, tls)
}

/** What was said in place of hosts, as a clause. */
export function dnsProblem(answer: NoHosts): string {
  switch (answer.kind) {
    case 'null-mx':
      return 'the domain does not accept mail (null MX)'
    case 'no-name':
      return 'the domain does not exist'
    case 'no-address':
      return 'no mail server of the domain has an address'
    case 'refused-addresses':
      return 'the mail servers of the domain have only addresses that are not connected to'
    case 'no-answer':
      return answer.isBogus === true
        ? `the DNS can not be believed: ${answer.reason}`
        : `the DNS did not answer: ${answer.reason}`
    case 'no-usable-host':
      return answer.reason
    default:
      return unreachable(answer)
  }
}

/** What an answer without hosts leads to. `jitter`: `delivery.retry_jitter`. */
export function judgeDns(answer: NoHosts, message: JudgedMessage, now: number, jitter: number): Judgement {
  const fail = (code: string, reply: string, wait?: number): Judgement => {
    const ownWait = wait ?? scheduledWait(PATH_WAITS, message.pathFailures + 1, message.id, jitter)
    const retryAt = nextTryAt(now, ownWait, message.expiresAt) ?? message.expiresAt
    return { ...NO_REPLY, outcome: { kind: 'path-failed', retryAt }, reply, code, category: 'dns', suppress: 'never' }
  }
  const end = (category: 'null_mx' | 'bad_domain', reply: string): Judgement => {
    const bounce = bounceFor(category, null, reply)
    const outcome = { kind: 'bounced' as const, bounce }
    return { ...NO_REPLY, outcome, reply, code: bounce.code, category, suppress: 'always' }
  }
  switch (answer.kind) {
    case 'null-mx':
      return end('null_mx', dnsProblem(answer))
    case 'no-name':
      if (now - answer.since >= CONFIRM_NO_NAME_AFTER) return end('bad_domain', dnsProblem(answer))
      return fail('4.4.4', `${dnsProblem(answer)} (to be confirmed)`, CONFIRM_NO_NAME_AFTER)
    case 'no-address':
      if (now - answer.since >= CONFIRM_NO_ADDRESS_AFTER) {
        return end('bad_domain', dnsProblem(answer))
      }
      return fail('4.4.4', dnsProblem(answer), CONFIRM_NO_ADDRESS_AFTER)
    case 'refused-addresses':
      return fail('4.4.6', dnsProblem(answer))
    case 'no-answer':
      return fail(answer.isBogus === true ? PROTECTION_CODE : '4.4.3', dnsProblem(answer))
    case 'no-usable-host':
      return { ...fail(answer.code, dnsProblem(answer)), category: 'tls' }
    default:
      return unreachable(answer)
  }
}
