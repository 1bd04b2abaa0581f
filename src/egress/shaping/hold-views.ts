/** What holds paths, lanes and IPs back, for lists, statistics and `explain`: as data and in sentences. Pure. */
import { rateText } from '../../config/settings/field-types.ts'
import type { ProviderLimits, ProviderSettings } from '../../config/settings/provider-settings.ts'
import { isProbing, waitLeft } from './back-off.ts'
import { usableConnections } from './concurrency.ts'
import { isHalfOpen, isSuspended, stepAt, type Ladder } from './ladder.ts'
import { limitNow } from './path-limits.ts'
import {
  laneKey,
  normalLimits,
  type LaneRecord,
  type OperatorSuspension,
  type PathRecord,
  type ShapedIpRecord,
  type ShapingRecords,
} from './records.ts'
import type { Lane, PathHold, PathStatus, PathView, ShapedPath } from './shaping.ts'

interface HeldProvider {
  ip: string
  provider: string
  suspension: OperatorSuspension
}

const NO_LIMIT = { rate: null, connections: null, messagesPerConnection: null }

/** Paths, lanes and held providers that something holds back; longest lasting first. */
export function viewsOf(records: ShapingRecords, settings: ProviderSettings, now: number): PathView[] {
  const all = [
    ...[...records.paths.values()].map((record) => pathView(record, normalLimits(record, settings), now)),
    ...[...records.lanes.values()].map((record) => laneView(record, now)),
    ...heldProviders(records).map((held) => operatorView(held, settings.providers[held.provider]?.isp)),
  ]
  const endOf = ({ holds }: PathView): number => Math.max(...holds.map(({ until }) => until ?? Infinity))
  return all
    .filter(({ holds }) => holds.length > 0)
    .toSorted((left, right) => (endOf(left) === endOf(right) ? 0 : endOf(right) - endOf(left)))
}

/** What holds mail of the lane back on the path, a sentence each. */
export function explainPath(records: ShapingRecords, path: ShapedPath, lane: Lane, now: number): string[] {
  const record = records.paths.get(path.key)
  const laneRecord = records.lanes.get(laneKey(records.poolOf(path.ip), path.route, lane.domain))
  const ip = records.ips.get(path.ip)
  const byHand = ip === undefined ? [] : heldProvidersOf(ip).filter(({ provider }) => provider === path.provider)
  return [
    ...byHand.map(operatorText),
    ip === undefined ? '' : suspensionText(ip.ladder, `the IP ${path.ip}`, now),
    record === undefined ? '' : suspensionText(record.ladder, `the path from ${path.ip} to ${path.route}`, now),
    laneRecord === undefined ? '' : suspensionText(laneRecord.ladder, `mail of ${lane.domain} to ${path.route}`, now),
    record === undefined || record.backOff.step === 0 ? '' : waitText(record, now),
    ...(record === undefined ? [] : limitTexts(record, path.limits, now)),
  ].filter((text) => text !== '')
}

export function heldProviders({ ips }: Pick<ShapingRecords, 'ips'>): HeldProvider[] {
  return [...ips.values()].flatMap(heldProvidersOf)
}

function heldProvidersOf({ ip, heldProviders: held }: ShapedIpRecord): HeldProvider[] {
  return [...held].map(([provider, suspension]) => ({ ip, provider, suspension }))
}

export function operatorText({ ip, provider, suspension }: HeldProvider): string {
  const what = `the paths from ${ip} to ${provider} are suspended ${causeText(suspension)}`
  const end = `sternpost ip resume ${ip} --provider ${provider} ends that`
  return `${what}, since ${timeText(suspension.since)}; ${end}`
}

/** All routes of the provider as one path. */
function operatorView({ ip, provider, suspension }: HeldProvider, isp: string = provider): PathView {
  const facts = { ip, pool: null, route: provider, provider, isp, domain: null, concurrency: null, step: 0 }
  const { since } = suspension
  const hold = { kind: 'suspension' as const, scope: 'provider' as const, rule: null, cause: causeText(suspension) }
  return { ...facts, status: 'suspended', holds: [{ ...hold, since, until: null, ...NO_LIMIT }] }
}

function causeText({ actor, reason }: OperatorSuspension): string {
  return `by ${actor}${reason === null ? '' : `: ${reason}`}`
}

function pathView(record: PathRecord, normal: ProviderLimits, now: number): PathView {
  const { ip, route, provider, isp, ladder, concurrency } = record
  const heldBack = [...suspensionHolds(ladder, 'path'), ...waitHolds(record), ...limitHolds(record, normal, now)]
  const holds = [...heldBack, ...carefulHolds(record, now)]
  const facts = { ip, pool: null, route, provider, isp, domain: null, holds }
  const learnt = { concurrency: usableConnections(concurrency, now), step: stepAt(ladder, now) }
  return { ...facts, ...learnt, status: statusOf(record, holds, now) }
}

function laneView(record: LaneRecord, now: number): PathView {
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

function limitTexts(record: PathRecord, normal: ProviderLimits, now: number): string[] {
  return limitHolds(record, normal, now).map(({ rule, cause, until, rate, connections, messagesPerConnection }) => {
    const limits = [
      rate === null ? '' : rateText(rate),
      connections === null ? '' : `${connections} connections`,
      messagesPerConnection === null ? '' : `${messagesPerConnection} messages per connection`,
    ].filter((text) => text !== '')
    const end = until > now ? `until ${timeText(until)}` : 'and doubles every 10 min'
    const what = limits.length === 0 ? 'its configuration' : limits.join(', ')
    const path = `the path from ${record.ip} to ${record.route}`
    return `${path} is limited to ${what} ${end} by the rule ${rule}, after: ${cause}`
  })
}

function timeText(time: number): string {
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

/** They slow the path, and close nothing. */
function carefulHolds({ carefulHosts }: PathRecord, now: number): PathHold[] {
  const known = carefulHosts.filter(({ until }) => until > now)
  return known.map(({ host, reason, since, until }) => {
    return { kind: 'careful', scope: 'path', rule: null, cause: `${host}: ${reason}`, since, until, ...NO_LIMIT }
  })
}

function statusOf(record: PathRecord, holds: readonly PathHold[], now: number): PathStatus {
  if (isSuspended(record.ladder, now)) return 'suspended'
  if (waitLeft(record.backOff, now) > 0) return 'waiting'
  if (isHalfOpen(record.ladder, now) || isProbing(record.backOff, now)) return 'probing'
  return holds.some(({ kind }) => kind === 'limit') ? 'limited' : 'open'
}
