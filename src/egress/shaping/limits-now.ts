/**
 * The limits of a path at a moment: the smallest of the configuration, a new IP, and the rules that were fired. What
 * was learnt about connections comes on top (`concurrency.ts`). Pure; egress/README.md "Limits of a path".
 */
import type { Rate } from '../../config/settings/field-types.ts'
import type { ShapedPath } from './shaping.ts'
import type { PathRecord } from './records.ts'
import { isSlower, limitNow } from './reply-limits.ts'

export interface LimitsNow {
  rate: Rate
  connections: number
  messagesPerConnection: number
}

export function limitsNow(path: ShapedPath, record: PathRecord | undefined, now: number): LimitsNow {
  const { limits, newIpLimits } = path
  let rate = limits.rate
  let connections = Math.min(limits.connections, newIpLimits?.connections ?? Infinity)
  let messagesPerConnection = Math.min(limits.messages_per_connection, newIpLimits?.messagesPerConnection ?? Infinity)
  if (record !== undefined && record.replyLimits.size > 0) {
    for (const limit of record.replyLimits.values()) {
      const lowered = limitNow(limit, limits, now)
      if (lowered === null) continue
      if (lowered.rate !== null && isSlower(lowered.rate, rate)) rate = lowered.rate
      connections = Math.min(connections, lowered.connections ?? Infinity)
      messagesPerConnection = Math.min(messagesPerConnection, lowered.messagesPerConnection ?? Infinity)
    }
  }
  return { rate, connections, messagesPerConnection }
}
