/**
 * Where the mail of a recipient domain goes: its hosts, who runs them, with which limits; or what the DNS said instead.
 *
 * At most so many domains are looked up at once; the others wait their turn. Never rejects for an answer of the DNS.
 * What an answer without hosts means for one message is `judgeDns`, pure. Engine.md 7, 12.
 */
import { LRUCache } from 'lru-cache'
import { HOUR, MINUTE } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { unreachable } from '../base/errors.ts'
import type { ProviderSettings } from '../config/provider-settings.ts'
import { identifyProvider } from '../egress/mailbox-provider.ts'
import type { MailboxProvider } from '../egress/mailbox-provider.ts'
import { bounceFor } from '../mail/classify-reply.ts'
import type { MailHosts, MailHostsFinder } from '../network/mail-hosts.ts'
import type { JudgedMessage, Judgement } from './judge-reply.ts'
import { nextTryAt, PATH_WAITS, scheduledWait } from './retry-schedule.ts'
import type { MailHost } from './try-result.ts'

export interface HostsRoute {
  kind: 'hosts'
  hosts: MailHost[]
  /** Equal for domains whose connections may be shared: the same hosts. */
  siteKey: string
  provider: MailboxProvider
}

/** The DNS said that there is no host, or said nothing. */
export type NoHosts = Exclude<MailHosts, { kind: 'hosts' }> & {
  /** When it first said so without having said otherwise since; this very lookup when no earlier one is known. */
  since: number
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

const NO_REPLY = { stage: 'connect' as const, rule: null }

export interface FindRouteOptions {
  mailHosts: MailHostsFinder
  providers: ProviderSettings
  clock: Clock
}

export function createFindRoute({ mailHosts, providers, clock }: FindRouteOptions): FindRoute {
  const said = new LRUCache<string, { kind: MailHosts['kind']; since: number }>({ max: MOST_REMEMBERED })
  const waiting: (() => void)[] = []
  let underWay = 0

  const lookUp = async (recipientDomain: string): Promise<MailHosts> => {
    if (underWay >= MOST_LOOKUPS) await new Promise<void>((resolve) => void waiting.push(resolve))
    underWay++
    try {
      return await mailHosts.find(recipientDomain)
    } finally {
      underWay--
      waiting.shift()?.()
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
    if (found.kind !== 'hosts') return { ...found, since: sinceWhen(recipientDomain, found.kind) }
    said.delete(recipientDomain)
    const provider = identifyProvider(providers, recipientDomain, found.mxNames)
    const siteKey = found.hosts.map(({ name }) => name).toSorted().join(' ')
    return { kind: 'hosts', hosts: found.hosts, siteKey, provider }
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
      return end('null_mx', 'the domain does not accept mail (null MX)')
    case 'no-name':
      if (now - answer.since >= CONFIRM_NO_NAME_AFTER) return end('bad_domain', 'the domain does not exist')
      return fail('4.4.4', 'the domain does not exist (to be confirmed)', CONFIRM_NO_NAME_AFTER)
    case 'no-address':
      if (now - answer.since >= CONFIRM_NO_ADDRESS_AFTER) {
        return end('bad_domain', 'no mail server of the domain has an address')
      }
      return fail('4.4.4', 'no mail server of the domain has an address', CONFIRM_NO_ADDRESS_AFTER)
    case 'refused-addresses':
      return fail('4.4.6', 'the mail servers of the domain have only addresses that are not connected to')
    case 'no-answer':
      return fail('4.4.3', `the DNS did not answer: ${answer.reason}`)
    default:
      return unreachable(answer)
  }
}
