/**
 * The limits of a path: what the configuration gives, what reply rules lower for a while, and the smallest of all now.
 * What was learnt about connections comes on top (`concurrency.ts`). A limit of a rule holds for the rule's time as the
 * rule says, then doubles at its end and every 10 min from there until nothing is left of it. Pure; times are Unix
 * milliseconds. egress/README.md "Limits of a path", "Suspension ladder".
 */
import { MINUTE } from '../../base/clock.ts'
import type { Rate } from '../../config/settings/field-types.ts'
import type { Pool } from '../../config/settings/pool-settings.ts'
import type { ProviderLimits } from '../../config/settings/provider-settings.ts'
import type { EgressIp } from '../ips/egress-ip.ts'
import type { MailboxProvider } from './mailbox-provider.ts'
import type { ShapedPath } from './shaping.ts'

export interface LimitsNow {
  rate: Rate
  connections: number
  messagesPerConnection: number
}

/** What a rule lowers; null: not this. */
type LoweredLimits = { [Limit in keyof LimitsNow]: LimitsNow[Limit] | null }

export interface ReplyLimit extends LoweredLimits {
  rule: string
  cause: string
  since: number
  until: number
}

const DOUBLED_EVERY = 10 * MINUTE
/** In `limits` of a pool: the hosts of those that are no provider of providers.yaml. */
const DEFAULT_LIMITS = 'default'

/** The facts of a path. An override of a pool counts where it is tighter than the provider's own limit. */
export function shapedPath(
  { address, poolLimits, newIpLimits }: Pick<EgressIp, 'address' | 'poolLimits' | 'newIpLimits'>,
  { provider, isp, limits, route }: MailboxProvider,
): ShapedPath {
  const override = poolLimits[provider ?? DEFAULT_LIMITS]
  const tighter = override === undefined ? limits : tighterLimits(limits, override)
  return { key: `${address} ${route}`, ip: address, route, provider, isp, newIpLimits, limits: tighter }
}

function tighterLimits(limits: ProviderLimits, override: Pool['limits'][string]): ProviderLimits {
  return {
    ...limits,
    connections: Math.min(limits.connections, override.connections ?? Infinity),
    messages_per_connection: Math.min(limits.messages_per_connection, override.messages_per_connection ?? Infinity),
    rate: slowerRate(limits.rate, override.rate),
    connection_rate: slowerRate(limits.connection_rate, override.connection_rate),
  }
}

/** The smallest of the configuration, a new IP, and the rules that were fired. */
export function limitsNow(
  path: ShapedPath,
  record: { replyLimits: ReadonlyMap<string, ReplyLimit> } | undefined,
  now: number,
): LimitsNow {
  const { limits, newIpLimits } = path
  let rate = limits.rate
  let connections = Math.min(limits.connections, newIpLimits?.connections ?? Infinity)
  let messagesPerConnection = Math.min(limits.messages_per_connection, newIpLimits?.messagesPerConnection ?? Infinity)
  if (record !== undefined && record.replyLimits.size > 0) {
    for (const limit of record.replyLimits.values()) {
      const lowered = limitNow(limit, limits, now)
      if (lowered === null) continue
      rate = slowerRate(rate, lowered.rate)
      connections = Math.min(connections, lowered.connections ?? Infinity)
      messagesPerConnection = Math.min(messagesPerConnection, lowered.messagesPerConnection ?? Infinity)
    }
  }
  return { rate, connections, messagesPerConnection }
}

/** What a limit of a rule is now; null: it is back at the normal limits. */
export function limitNow(limit: ReplyLimit, normal: ProviderLimits, now: number): LoweredLimits | null {
  const factor = now < limit.until ? 1 : 2 ** (1 + Math.floor((now - limit.until) / DOUBLED_EVERY))
  const raised = limit.rate === null ? null : { ...limit.rate, count: limit.rate.count * factor }
  const rate = raised !== null && isSlower(raised, normal.rate) ? raised : null
  const connections = lowerNumber(limit.connections, factor, normal.connections)
  const messagesPerConnection = lowerNumber(limit.messagesPerConnection, factor, normal.messages_per_connection)
  // Also what limits nothing is there for the time of the rule: it is the answer to "why".
  const isOver = rate === null && connections === null && messagesPerConnection === null && now >= limit.until
  return isOver ? null : { rate, connections, messagesPerConnection }
}

export function nextDoublingAt({ until }: ReplyLimit, now: number): number {
  return now < until ? until : until + (1 + Math.floor((now - until) / DOUBLED_EVERY)) * DOUBLED_EVERY
}

function slowerRate(rate: Rate, other: Rate | null | undefined): Rate {
  return other != null && isSlower(other, rate) ? other : rate
}

function isSlower(left: Rate, right: Rate): boolean {
  return left.count / left.per_milliseconds < right.count / right.per_milliseconds
}

function lowerNumber(value: number | null, factor: number, normal: number): number | null {
  return value === null || value * factor >= normal ? null : value * factor
}
