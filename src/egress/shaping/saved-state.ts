/**
 * What paths, lanes and IPs are under, as text for the store, so that a restart forgets no limit and no suspension.
 * What says no more than a new record is ''. What another version wrote, or nobody can read, starts as new, which is
 * safe: receivers will tell it again. Message rates are not kept.
 */
import type { PathStateRecord } from '../../store/records/warmup-records.ts'
import { newBackOff, type BackOff } from './back-off.ts'
import type { CarefulHost } from './careful-hosts.ts'
import { newConcurrency, startConnections } from './concurrency.ts'
import { newLadder, type Ladder, type Suspension } from './ladder.ts'
import type { ReplyLimit } from './path-limits.ts'
import {
  laneKey,
  newIpRecord,
  newPathRecord,
  type PathRecord,
  type ShapedIpRecord,
  type ShapingRecord,
  type ShapingRecords,
} from './records.ts'

const VERSION = 1

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

function addPathFacts(record: PathRecord, facts: Record<string, unknown>): void {
  const { concurrency, backOff, replyLimits, carefulHosts, counts } = record
  // Whole connections: else every delivery would be a write.
  const connections = Math.floor(concurrency.c)
  if (connections !== startConnections(false)) facts['connections'] = connections
  if (backOff.step > 0) facts['backOff'] = backOff
  if (replyLimits.size > 0) facts['limits'] = [...replyLimits.values()]
  if (carefulHosts.length > 0) facts['carefulHosts'] = carefulHosts
  if (counts.size > 0) facts['counts'] = Object.fromEntries(counts)
}

/** Puts it among the records; false: it cannot be read. */
export function restore(records: ShapingRecords, { ip, route, state, savedAt }: PathStateRecord): boolean {
  const saved = readObject(state)
  if (saved['version'] !== VERSION) return false
  const names = { provider: textOr(saved['provider'], null), isp: textOr(saved['isp'], route) }
  const ladder = readLadder(saved['ladder'])
  const counts = readCounts(saved['counts'])
  switch (saved['kind']) {
    case 'path': {
      const c = Math.max(1, numberOr(saved['connections'], startConnections(false)))
      const fresh = newPathRecord({ ip, route, limits: null, ...names }, { ...newConcurrency(false, savedAt), c })
      const backOff = readBackOff(saved['backOff'])
      const replyLimits = readLimits(saved['limits'])
      const carefulHosts = readCarefulHosts(saved['carefulHosts'])
      records.paths.set(`${ip} ${route}`, { ...fresh, ladder, counts, backOff, replyLimits, carefulHosts })
      return true
    }
    case 'lane': {
      const own = fill(saved, { pool: '', route: '', domain: '' })
      if (own.domain === '') return false
      records.lanes.set(laneKey(own.pool, own.route, own.domain), { kind: 'lane', ...names, ...own, ladder, counts })
      return true
    }
    case 'ip': {
      const blocks = readBlocks(saved['blocks'])
      const heldProviders = readHeldProviders(saved['heldProviders'])
      records.ips.set(ip, { ...newIpRecord(ip), ladder, blocks, heldProviders })
      return true
    }
    default:
      return false
  }
}

type Saved = Record<string, unknown>

/** Whether it works is found out anew. */
function readBackOff(value: unknown): BackOff {
  return { ...fill(value, newBackOff()), hasWorked: false }
}

function readLadder(value: unknown): Ladder {
  return { ...fill(value, newLadder()), suspension: readSuspension(objectOr(value)['suspension']) }
}

function readSuspension(value: unknown): Suspension | null {
  const saved = objectOr(value)
  const until = numberOr(saved['until'], null)
  if (until === null) return null
  const rule = textOr(saved['rule'], null)
  return { ...fill(saved, { since: until, cause: '', isBlock: false }), until, rule }
}

function readLimits(value: unknown): Map<string, ReplyLimit> {
  const limits = listOr(value).map((limit): ReplyLimit => {
    const saved = objectOr(limit)
    const connections = numberOr(saved['connections'], null)
    const messagesPerConnection = numberOr(saved['messagesPerConnection'], null)
    const facts = fill(saved, { rule: '', cause: '', since: 0, until: 0 })
    return { ...facts, connections, messagesPerConnection, rate: readRate(saved['rate']) }
  })
  return new Map(limits.map((limit) => [limit.rule, limit]))
}

function readRate(value: unknown): ReplyLimit['rate'] {
  const rate = fill(value, { count: 0, per_milliseconds: 0 })
  return rate.count > 0 && rate.per_milliseconds > 0 ? rate : null
}

function readCarefulHosts(value: unknown): CarefulHost[] {
  return listOr(value).map((host) => fill(host, { host: '', reason: '', since: 0, until: 0 }))
}

function readCounts(value: unknown): Map<string, number[]> {
  return new Map(
    Object.entries(objectOr(value)).map(([name, times]) => [
      name,
      listOr(times).filter((at) => typeof at === 'number'),
    ]),
  )
}

function readBlocks(value: unknown): ShapedIpRecord['blocks'] {
  return listOr(value).map((block) => fill(block, { provider: '', at: 0 }))
}

function readHeldProviders(value: unknown): ShapedIpRecord['heldProviders'] {
  const entries = Object.entries(objectOr(value))
  return new Map(
    entries.map(([provider, held]) => {
      const reason = textOr(objectOr(held)['reason'], null)
      return [provider, { ...fill(held, { since: 0, actor: '' }), reason }]
    }),
  )
}

/** Not JSON: nothing that we wrote. */
function readObject(text: string): Saved {
  try {
    const value: unknown = JSON.parse(text)
    return objectOr(value)
  } catch {
    return {}
  }
}

/** What was saved under the names of `defaults`, where it is of the same type. */
function fill<Facts extends object>(value: unknown, defaults: Facts): Facts {
  const saved = objectOr(value)
  const found = Object.entries(defaults).filter(([name, other]) => typeof saved[name] === typeof other)
  return { ...defaults, ...Object.fromEntries(found.map(([name]) => [name, saved[name]])) }
}

function objectOr(value: unknown): Saved {
  return typeof value === 'object' && value !== null ? { ...value } : {}
}

function listOr(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

function numberOr<Other>(value: unknown, other: Other): number | Other {
  return typeof value === 'number' ? value : other
}

function textOr<Other>(value: unknown, other: Other): string | Other {
  return typeof value === 'string' ? value : other
}
