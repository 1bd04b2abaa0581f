/**
 * Limits that reply rules set: for the rule's time as it says, then doubled at its end and every 10 min from there
 * until nothing is left of them (egress/README.md "Suspension ladder" step 2).
 *
 * Pure; times are Unix milliseconds.
 */
import { MINUTE } from '../../base/clock.ts'
import type { Rate } from '../../config/settings/field-types.ts'
import type { ProviderLimits } from '../../config/settings/provider-settings.ts'

/** What a rule lowers; null: not this. */
export interface LoweredLimits {
  rate: Rate | null
  connections: number | null
  messagesPerConnection: number | null
}

export interface ReplyLimit extends LoweredLimits {
  rule: string
  /** The reply that caused it. */
  cause: string
  since: number
  /** When it begins to double back. */
  until: number
}

const DOUBLED_EVERY = 10 * MINUTE

/** What it is now; null: it is back at the normal limits. */
export function limitNow(limit: ReplyLimit, normal: ProviderLimits, now: number): LoweredLimits | null {
  const factor = now < limit.until ? 1 : 2 ** (1 + Math.floor((now - limit.until) / DOUBLED_EVERY))
  const rate = limit.rate === null ? null : lower({ ...limit.rate, count: limit.rate.count * factor }, normal.rate)
  const connections = lowerNumber(limit.connections, factor, normal.connections)
  const messagesPerConnection = lowerNumber(limit.messagesPerConnection, factor, normal.messages_per_connection)
  // Also what limits nothing is there for the time of the rule: it is the answer to "why".
  const isOver = rate === null && connections === null && messagesPerConnection === null && now >= limit.until
  return isOver ? null : { rate, connections, messagesPerConnection }
}

/** When the next doubling is. */
export function nextDoublingAt({ until }: ReplyLimit, now: number): number {
  return now < until ? until : until + (1 + Math.floor((now - until) / DOUBLED_EVERY)) * DOUBLED_EVERY
}

export function isSlower(left: Rate, right: Rate): boolean {
  return left.count / left.per_milliseconds < right.count / right.per_milliseconds
}

function lower(rate: Rate, normal: Rate): Rate | null {
  return isSlower(rate, normal) ? rate : null
}

function lowerNumber(value: number | null, factor: number, normal: number): number | null {
  return value === null || value * factor >= normal ? null : value * factor
}
