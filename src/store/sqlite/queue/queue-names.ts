/**
 * Pools, lanes and routes: the few names that a million rows refer to by number. A name gets its row with its first
 * message. Nothing is remembered between calls: a transaction that is undone takes its names with it.
 */
import type { Database } from 'better-sqlite3'
import type { Stream } from '../../../mail/message.ts'
import { type QueueKey, UNROUTED, type QueuedRows, type QueueKeyState } from '../../records/queue-records.ts'
import { oneColumn } from '../engine/statements.ts'

interface QueueNames {
  /** The number of this pool, new or known. */
  poolId(name: string): number
  /** The number of this pool, or undefined when no message ever used it. */
  knownPoolId(name: string): number | undefined
  /** Every pool that a message ever used. */
  pools(): { poolId: number; name: string }[]
  /** The number of this sending domain and stream, new or known. */
  laneId(domain: string, stream: Stream): number
  /** The number of this route, new or known; UNROUTED is 0. */
  routeId(name: string): number
  knownRouteId(name: string): number | undefined
  /** The key by its numbers, or undefined when no message ever had it. */
  knownKey(key: QueueKey): NumberedKey | undefined
}

/** A queue key as the rows have it; `isRetry` is 0 or 1. */
export interface NumberedKey {
  poolId: number
  routeId: number
  laneId: number
  isRetry: number
}

export function createQueueNames(database: Database): QueueNames {
  const findPool = database.prepare<[string], number>('select pool_id from pools where name = ?').pluck()
  const addPool = database.prepare<[string]>('insert into pools (name) values (?)')
  const allPools = database.prepare<[], { poolId: number; name: string }>('select pool_id as poolId, name from pools')
  const findLane = oneColumn(database)<[string, Stream], number>(
    'select lane_id from lanes where domain = ? and stream = ?',
  )
  const addLane = database.prepare<[string, Stream]>('insert into lanes (domain, stream) values (?, ?)')
  const findRoute = database.prepare<[string], number>('select route_id from routes where name = ?').pluck()
  const addRoute = database.prepare<[string]>('insert into routes (name) values (?)')

  return {
    poolId: (name) => findPool.get(name) ?? Number(addPool.run(name).lastInsertRowid),
    knownPoolId: (name) => findPool.get(name),
    pools: () => allPools.all(),
    laneId: (domain, stream) => findLane.get(domain, stream) ?? Number(addLane.run(domain, stream).lastInsertRowid),
    routeId: (name) => findRoute.get(name) ?? Number(addRoute.run(name).lastInsertRowid),
    knownRouteId: (name) => findRoute.get(name),
    knownKey({ pool, route, domain, stream, isRetry }) {
      const poolId = findPool.get(pool)
      const routeId = findRoute.get(route)
      const laneId = findLane.get(domain, stream)
      if (poolId === undefined || routeId === undefined || laneId === undefined) return undefined
      return { poolId, routeId, laneId, isRetry: Number(isRetry) }
    },
  }
}

export interface QueuedTally {
  /** Rows of one key, the first of them due at `dueAt`. */
  add(key: QueueKey, recipientDomain: string, dueAt: number): void
  result(): QueuedRows
}

/** What a verb brought into the queue, added up by queue key for the scheduler's directory. */
export function createQueuedTally(): QueuedTally {
  const keys = new Map<string, QueueKeyState>()
  const unroutedDomains = new Set<string>()
  return {
    add({ pool, route, domain, stream, isRetry }, recipientDomain, dueAt) {
      const name = `${pool}\0${route}\0${domain}\0${stream}\0${isRetry}`
      const known = keys.get(name)
      if (known === undefined) {
        keys.set(name, { pool, route, domain, stream, isRetry, earliestAt: dueAt, waiting: 1 })
      } else {
        known.waiting += 1
        known.earliestAt = Math.min(known.earliestAt, dueAt)
      }
      if (route === UNROUTED) unroutedDomains.add(recipientDomain)
    },
    result: () => ({ keys: [...keys.values()], unroutedDomains: [...unroutedDomains] }),
  }
}

/** Of several parts of one action. */
export function mergeQueued(parts: readonly QueuedRows[]): QueuedRows {
  const keys = new Map<string, QueueKeyState>()
  for (const state of parts.flatMap((part) => part.keys)) {
    const { earliestAt, waiting, ...key } = state
    const name = JSON.stringify(Object.values(key))
    const known = keys.get(name)
    keys.set(name, {
      ...key,
      earliestAt: Math.min(earliestAt, known?.earliestAt ?? Infinity),
      waiting: waiting + (known?.waiting ?? 0),
    })
  }
  return { keys: [...keys.values()], unroutedDomains: [...new Set(parts.flatMap((part) => part.unroutedDomains))] }
}
