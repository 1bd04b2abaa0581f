/**
 * Pools, lanes and routes: the few names that a million rows refer to by number. A name gets its row with its first
 * message. Nothing is remembered between calls: a transaction that is undone takes its names with it.
 */
import type { Database, Statement } from '../../engine/database.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import type { Stream } from '../../../mail/message.ts'
import {
  CAPTURE_ROUTE,
  type QueueKey,
  UNROUTED,
  type QueuedRows,
  type QueueKeyState,
} from '../../records/queue-records.ts'
import { ask, oneColumn } from '../tools/statements.ts'

/** A queue key as the rows have it; `isRetry` is 0 or 1. */
export interface NumberedKey {
  poolId: number
  routeId: number
  laneId: number
  isRetry: number
}

function createNameStatements(database: Database) {
  const findPool = database.prepare<[string], number>('select pool_id from pools where name = ?').pluck()
  const addPool = database.prepare<[string]>('insert into pools (name) values (?)')
  const allPools = database.prepare<[], { poolId: number; name: string }>('select pool_id as poolId, name from pools')
  const findLane = oneColumn(database)<[string, Stream], number>(`
    select lane_id from lanes where domain = ? and stream = ?`)
  const addLane = database.prepare<[string, Stream]>('insert into lanes (domain, stream) values (?, ?)')
  const findRoute = database.prepare<[string], number>('select route_id from routes where name = ?').pluck()
  const addRoute = database.prepare<[string]>('insert into routes (name) values (?)')
  return { findPool, addPool, allPools, findLane, addLane, findRoute, addRoute }
}

export function createQueueNames(database: Database) {
  const { findPool, addPool, allPools, findLane, addLane, findRoute, addRoute } = createNameStatements(database)
  return {
    /** The number of a pool, route or lane: new, or known. */
    poolId: (name: string): number => findPool.get(name) ?? Number(addPool.run(name).lastInsertRowid),
    /** Every pool that a message ever used. */
    pools: () => allPools.all(),
    laneId: (domain: string, stream: Stream): number =>
      findLane.get(domain, stream) ?? Number(addLane.run(domain, stream).lastInsertRowid),
    /** UNROUTED is 0. */
    routeId: (name: string): number => findRoute.get(name) ?? Number(addRoute.run(name).lastInsertRowid),
    /** The key by its numbers, or undefined when no message ever had it. */
    knownKey({ pool, route, domain, stream, isRetry }: QueueKey): NumberedKey | undefined {
      const poolId = findPool.get(pool)
      const routeId = findRoute.get(route)
      const laneId = findLane.get(domain, stream)
      if (poolId === undefined || routeId === undefined || laneId === undefined) return undefined
      return { poolId, routeId, laneId, isRetry: Number(isRetry) }
    },
  }
}

/** A place of some requests: whose names are asked at once, before the first number is needed. */
interface NamedPlace {
  pool: string
  domain: string
  stream: Stream
  messages: readonly { isCaptured: boolean }[]
}

/** What is returned begins a round of questions. A name gets its row, where it has none, when its number is needed. */
export function createNameQuestions(database: Database) {
  const { findPool, addPool, findLane, addLane, findRoute, addRoute } = createNameStatements(database)
  return () => {
    const pools = createNumbers(findPool, addPool)
    const lanes = createNumbers(findLane, addLane)
    const routes = createNumbers(findRoute, addRoute)
    return {
      ask({ pool, domain, stream, messages }: NamedPlace): void {
        pools.ask(pool)
        lanes.ask(domain, stream)
        if (!messages.some(({ isCaptured }) => isCaptured)) return
        pools.ask(CAPTURE_POOL)
        routes.ask(CAPTURE_ROUTE)
      },
      poolId: pools.number,
      laneId: lanes.number,
      routeId: routes.number,
    }
  }
}

function createNumbers<Name extends string[]>(find: Statement<Name, number>, add: Statement<Name>) {
  const asked = new Map<string, () => number[]>()
  const numbers = new Map<string, number>()
  const question = (...name: Name): (() => number[]) => {
    const key = name.join('\0')
    const known = asked.get(key) ?? ask(find, ...name)
    asked.set(key, known)
    return known
  }
  return {
    ask: (...name: Name): void => void question(...name),
    number(...name: Name): number {
      const key = name.join('\0')
      const known = numbers.get(key) ?? question(...name)()[0] ?? Number(add.run(...name).lastInsertRowid)
      numbers.set(key, known)
      return known
    },
  }
}

export type QueuedTally = ReturnType<typeof createQueuedTally>

/** What a verb brought into the queue, added up by queue key for the scheduler's directory. */
export function createQueuedTally() {
  const keys = new Map<string, QueueKeyState>()
  const unroutedDomains = new Set<string>()
  return {
    /** Rows of one key, the first of them due at `dueAt`. */
    add({ pool, route, domain, stream, isRetry }: QueueKey, recipientDomain: string, dueAt: number): void {
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
    result: (): QueuedRows => ({ keys: [...keys.values()], unroutedDomains: [...unroutedDomains] }),
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
