/**
 * What holds a path or lane back, for lists, statistics and `explain`: as data and in sentences. Pure.
 */
import { rateText } from '../../config/settings/field-types.ts'
import type { ProviderLimits } from '../../config/settings/provider-settings.ts'
import type { PathHold, PathStatus, PathView } from './shaping.ts'
import { isProbing, waitLeft } from './back-off.ts'
import { usableConnections } from './concurrency.ts'
import { isHalfOpen, isSuspended, stepAt } from './ladder.ts'
import type { Ladder } from './ladder.ts'
import type { LaneRecord, PathRecord } from './records.ts'
import { limitNow } from './reply-limits.ts'

const NO_LIMIT = { rate: null, connections: null, messagesPerConnection: null }

export function pathView(record: PathRecord, normal: ProviderLimits, now: number): PathView {
  const { ip, route, provider, isp, ladder, concurrency } = record
  const holds = [...suspensionHolds(ladder, 'path'), ...waitHolds(record), ...limitHolds(record, normal, now)]
  return {
    ip,
    pool: null,
    route,
    provider,
    isp,
    domain: null,
    status: statusOf(record, holds, now),
    holds,
    concurrency: usableConnections(concurrency, now),
    step: stepAt(ladder, now),
  }
}

export function laneView(record: LaneRecord, now: number): PathView {
  const { pool, route, provider, isp, domain, ladder } = record
  const status = isSuspended(ladder, now) ? 'suspended' : isHalfOpen(ladder, now) ? 'probing' : 'open'
  const holds = suspensionHolds(ladder, 'lane')
  return { ip: null, pool, route, provider, isp, domain, status, concurrency: null, step: stepAt(ladder, now), holds }
}

/** Of a suspension that is over: one message at a time. */
export function suspensionText({ suspension }: Ladder, who: string, now: number): string {
  if (suspension === null) return ''
  const { until, rule, cause } = suspension
  const by = rule === null ? '' : ` by the rule ${rule}`
  const what = until > now ? `is suspended until ${timeText(until)}` : 'is tried with one message at a time'
  return `${who} ${what}${by}, after: ${cause}`
}

export function waitText(record: PathRecord, now: number): string {
  const { until, reason } = record.backOff
  const what = until > now ? `is left alone until ${timeText(until)}` : 'is tried with one message'
  return `the path from ${record.ip} to ${record.route} ${what}, after: ${reason}`
}

export function limitTexts(record: PathRecord, normal: ProviderLimits, now: number): string[] {
  return limitHolds(record, normal, now).map(({ rule, cause, until, rate, connections, messagesPerConnection }) => {
    const limits = [
      rate === null ? [] : [rateText(rate)],
      connections === null ? [] : [`${connections} connections`],
      messagesPerConnection === null ? [] : [`${messagesPerConnection} messages per connection`],
    ].flat()
    const end = until > now ? `until ${timeText(until)}` : 'and doubles every 10 min'
    const what = limits.length === 0 ? 'its configuration' : limits.join(', ')
    return (
      `the path from ${record.ip} to ${record.route} is limited to ${what} ${end} by the rule ${rule}, ` +
      `after: ${cause}`
    )
  })
}

export function timeText(time: number): string {
  return `${new Date(time).toISOString().slice(0, 19)}Z`
}

function suspensionHolds({ suspension }: Ladder, scope: PathHold['scope']): PathHold[] {
  if (suspension === null) return []
  const { rule, cause, since, until } = suspension
  return [{ kind: 'suspension', scope, rule, cause, since, until, ...NO_LIMIT }]
}

function waitHolds({ backOff: { step, since, until, reason } }: PathRecord): PathHold[] {
  return step === 0 ? [] : [{ kind: 'wait', scope: 'path', rule: null, cause: reason, since, until, ...NO_LIMIT }]
}

function limitHolds(record: PathRecord, normal: ProviderLimits, now: number): (PathHold & { until: number })[] {
  return [...record.replyLimits.values()].flatMap((limit) => {
    const left = limitNow(limit, normal, now)
    if (left === null) return []
    const { rule, cause, since, until } = limit
    return [{ kind: 'limit' as const, scope: 'path' as const, rule, cause, since, until, ...left }]
  })
}

function statusOf(record: PathRecord, holds: readonly PathHold[], now: number): PathStatus {
  if (isSuspended(record.ladder, now)) return 'suspended'
  if (waitLeft(record.backOff, now) > 0) return 'waiting'
  if (isHalfOpen(record.ladder, now) || isProbing(record.backOff, now)) return 'probing'
  return holds.some(({ kind }) => kind === 'limit') ? 'limited' : 'open'
}
