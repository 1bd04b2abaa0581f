/**
 * What paths, lanes and IPs are under, as text for the store, so that a restart forgets no limit and no suspension.
 *
 * What says no more than a new record is ''. What another version wrote, or nobody can read, starts as new, which is
 * safe: receivers will tell it again. Message rates are not kept.
 */
import type { PathStateRecord } from '../../store/records/warmup-records.ts'
import { newBackOff, type BackOff } from './back-off.ts'
import { newConcurrency } from './concurrency.ts'
import { newLadder, type Ladder, type Suspension } from './ladder.ts'
import type { ReplyLimit } from './path-limits.ts'
import {
  laneKey,
  newIpRecord,
  newPathRecord,
  type LaneRecord,
  type PathRecord,
  type ShapedIpRecord,
  type ShapingRecord,
  type ShapingRecords,
} from './records.ts'

const VERSION = 1
/** Where a new path begins: saying it brings nothing. */
const START_CONNECTIONS = 2

/** Rows are keyed by IP and route: lanes have no IP, IPs no route. */
export function storedKey(record: ShapingRecord): { ip: string; route: string } {
  switch (record.kind) {
    case 'path':
      return { ip: record.ip, route: record.route }
    case 'lane':
      return { ip: '', route: laneKey(record.pool, record.route, record.domain) }
    default:
      return { ip: record.ip, route: '' }
  }
}

export function stateText(record: ShapingRecord): string {
  const { kind, ladder } = record
  const facts: Record<string, unknown> = {}
  if (ladder.step > 0 || ladder.suspension !== null) facts['ladder'] = ladder
  if (record.kind === 'path') addPathFacts(record, facts)
  if (record.kind === 'lane' && record.counts.size > 0) facts['counts'] = Object.fromEntries(record.counts)
  if (record.kind === 'ip' && record.blocks.length > 0) facts['blocks'] = record.blocks
  if (record.kind === 'ip' && record.heldProviders.size > 0) {
    facts['heldProviders'] = Object.fromEntries(record.heldProviders)
  }
  if (Object.keys(facts).length === 0) return ''
  const names = kind === 'ip' ? {} : { provider: record.provider, isp: record.isp }
  const lane = kind === 'lane' ? { pool: record.pool, route: record.route, domain: record.domain } : {}
  return JSON.stringify({ version: VERSION, kind, ...names, ...lane, ...facts })
}

function addPathFacts({ concurrency, backOff, replyLimits, counts }: PathRecord, facts: Record<string, unknown>): void {
  // Whole connections: else every delivery would be a write.
  const connections = Math.floor(concurrency.c)
  if (connections !== START_CONNECTIONS) facts['connections'] = connections
  if (backOff.step > 0) facts['backOff'] = backOff
  if (replyLimits.size > 0) facts['limits'] = [...replyLimits.values()]
  if (counts.size > 0) facts['counts'] = Object.fromEntries(counts)
}

/** Puts it among the records; false: it cannot be read. */
export function restore(records: ShapingRecords, { ip, route, state, savedAt }: PathStateRecord): boolean {
  const saved = readObject(state)
  if (saved?.['version'] !== VERSION) return false
  const names = { provider: textOr(saved['provider'], null), isp: textOr(saved['isp'], route) }
  const ladder = readLadder(saved['ladder'])
  switch (saved['kind']) {
    case 'path': {
      const concurrency = { ...newConcurrency(false, savedAt), c: readConnections(saved) }
      const record = newPathRecord({ ip, route, limits: null, ...names }, concurrency)
      const { backOff, limits, counts } = saved
      const state = {
        ladder,
        backOff: readBackOff(backOff),
        replyLimits: readLimits(limits),
        counts: readCounts(counts),
      }
      records.paths.set(`${ip} ${route}`, { ...record, ...state })
      return true
    }
    case 'lane':
      return restoreLane(records, saved, { ...names, ladder })
    case 'ip': {
      const { blocks, heldProviders } = saved
      const state = { ladder, blocks: readBlocks(blocks), heldProviders: readHeldProviders(heldProviders) }
      records.ips.set(ip, { ...newIpRecord(ip), ...state })
      return true
    }
    default:
      return false
  }
}

type Saved = Record<string, unknown>

function readConnections(saved: Saved): number {
  return Math.max(1, numberOr(saved['connections'], START_CONNECTIONS))
}

function restoreLane(
  records: ShapingRecords,
  saved: Saved,
  names: Pick<LaneRecord, 'provider' | 'isp' | 'ladder'>,
): boolean {
  const [pool, route, domain] = [textOr(saved['pool'], ''), textOr(saved['route'], ''), textOr(saved['domain'], '')]
  if (domain === '') return false
  const record: LaneRecord = { kind: 'lane', ...names, pool, route, domain, counts: readCounts(saved['counts']) }
  records.lanes.set(laneKey(pool, route, domain), record)
  return true
}

/** Whether it works is found out anew. */
function readBackOff(value: unknown): BackOff {
  const saved = objectOr(value)
  return {
    ...newBackOff(),
    failures: numberOr(saved['failures'], 0),
    step: numberOr(saved['step'], 0),
    since: numberOr(saved['since'], 0),
    until: numberOr(saved['until'], 0),
    reason: textOr(saved['reason'], ''),
  }
}

function readLadder(value: unknown): Ladder {
  const saved = objectOr(value)
  return {
    ...newLadder(),
    step: numberOr(saved['step'], 0),
    blockedAt: numberOr(saved['blockedAt'], 0),
    passed: numberOr(saved['passed'], 0),
    suspension: readSuspension(saved['suspension']),
  }
}

function readSuspension(value: unknown): Suspension | null {
  const saved = objectOr(value)
  const until = numberOr(saved['until'], null)
  if (until === null) return null
  return {
    until,
    since: numberOr(saved['since'], until),
    rule: textOr(saved['rule'], null),
    cause: textOr(saved['cause'], ''),
    isBlock: saved['isBlock'] === true,
  }
}

function readLimits(value: unknown): Map<string, ReplyLimit> {
  const limits = listOr(value)
    .map(objectOr)
    .map((saved): ReplyLimit => ({
      rule: textOr(saved['rule'], ''),
      cause: textOr(saved['cause'], ''),
      since: numberOr(saved['since'], 0),
      until: numberOr(saved['until'], 0),
      connections: numberOr(saved['connections'], null),
      messagesPerConnection: numberOr(saved['messagesPerConnection'], null),
      rate: readRate(saved['rate']),
    }))
  return new Map(limits.map((limit) => [limit.rule, limit]))
}

function readRate(value: unknown): ReplyLimit['rate'] {
  const saved = objectOr(value)
  const [count, milliseconds] = [numberOr(saved['count'], 0), numberOr(saved['per_milliseconds'], 0)]
  return count > 0 && milliseconds > 0 ? { count, per_milliseconds: milliseconds } : null
}

function readCounts(value: unknown): Map<string, number[]> {
  return new Map(Object.entries(objectOr(value)).map(([name, times]) => [name, listOr(times).filter(isNumber)]))
}

function readBlocks(value: unknown): ShapedIpRecord['blocks'] {
  return listOr(value)
    .map(objectOr)
    .map((saved) => ({ provider: textOr(saved['provider'], ''), at: numberOr(saved['at'], 0) }))
}

function readHeldProviders(value: unknown): ShapedIpRecord['heldProviders'] {
  return new Map(
    Object.entries(objectOr(value)).map(([provider, held]) => {
      const { since, actor, reason } = objectOr(held)
      return [provider, { since: numberOr(since, 0), actor: textOr(actor, ''), reason: textOr(reason, null) }]
    }),
  )
}

function readObject(text: string): Saved | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return objectOr(value)
  } catch {
    // Not JSON: nothing that we wrote.
    return undefined
  }
}

function objectOr(value: unknown): Saved {
  return typeof value === 'object' && value !== null ? { ...value } : {}
}

function listOr(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number'
}

function numberOr<Other>(value: unknown, other: Other): number | Other {
  return isNumber(value) ? value : other
}

function textOr<Other>(value: unknown, other: Other): string | Other {
  return typeof value === 'string' ? value : other
}
