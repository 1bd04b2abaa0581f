/**
 * The sites of one path: the rows that wait for each, and the connections it has. Urgent rows go first, but for one
 * turn in five; else rows go in the order in which they came, and one that is put back goes in front of its like. The
 * site that waits the longest is the first in turn. No side effects.
 */
import type { ThreadPlace } from '../../mail/whereabouts.ts'
import type { Site } from '../protocol/try-result.ts'
import { createTurnQueue } from '../protocol/stream-turns.ts'
import type { ConnectionWorker } from './connection-worker.ts'
import type { RowToSend } from './row-trials.ts'

type RowQueue = ReturnType<typeof createRowQueue>

export interface SiteQueue {
  site: Site
  rows: RowQueue
  workers: Set<ConnectionWorker>
  /** No more workers than this until then: the host had refused a further connection. */
  limit: { workers: number; until: number } | undefined
}

export type SiteQueues = ReturnType<typeof createSiteQueues>

/** In so many rows: a path has few more in its thread. */
const DOMAINS_LOOKED_FOR = 20
/** So many messages over one connection, then another site of the path has its turn. */
const TURN = 10

export function createSiteQueues() {
  const sites = new Map<string, SiteQueue>()
  let halts = 0
  const all = (): SiteQueue[] => [...sites.values()]
  const workers = (): ConnectionWorker[] => all().flatMap((queue) => [...queue.workers])
  /** Rows without a connection. */
  const waiting = (): RowToSend[] => all().flatMap(({ rows }) => rows.soon(rows.size()))
  return {
    of(site: Site): SiteQueue {
      const queue = sites.get(site.key) ?? { site, rows: createRowQueue(), workers: new Set(), limit: undefined }
      sites.set(site.key, queue)
      queue.site = site
      return queue
    },
    /** It had its turn: the others come first the next time. */
    putLast(queue: SiteQueue): void {
      sites.delete(queue.site.key)
      sites.set(queue.site.key, queue)
    },
    /** Forgets it when it has neither rows nor workers. */
    dropEmpty(queue: SiteQueue): void {
      if (queue.rows.size() === 0 && queue.workers.size === 0) sites.delete(queue.site.key)
    },
    isEmpty: () => sites.size === 0,
    /** Takes all that wait. What connections have is of the time before a halt, whatever may be sent afterwards. */
    halt(): RowToSend[] {
      halts += 1
      return all().flatMap(({ rows }) => rows.takeAll())
    },
    halts: () => halts,
    all: () => sites.values(),
    /** In the order in which they may begin connections. */
    inTurn(isUrgentFirst: boolean): SiteQueue[] {
      if (!isUrgentFirst) return all()
      return [...all().filter(({ rows }) => rows.hasUrgent()), ...all().filter(({ rows }) => !rows.hasUrgent())]
    },
    workers,
    workerCount: () => all().reduce((sum, queue) => sum + queue.workers.size, 0),
    claims: () => [...waiting().map(({ row }) => row.claim), ...workers().flatMap((worker) => worker.claims())],
    where(claim: number): ThreadPlace | undefined {
      const place = workers().flatMap((worker) => worker.where(claim) ?? [])[0]
      if (place !== undefined) return place
      const found = waiting().find(({ row }) => row.claim === claim)
      if (found === undefined) return undefined
      return { stage: 'queue', milliseconds: performance.now() - found.waitsSince, host: null, address: null }
    },
    /** A connection of another site that waits for a row. */
    idleElsewhere: (queue: SiteQueue) => workers().find((worker) => !queue.workers.has(worker) && worker.isIdle()),
    /** Whether a site needs a connection of a full path more than this one, which sent so many messages over it. */
    isOutranked(queue: SiteQueue, messages: number): boolean {
      const others = all().filter((other) => other !== queue && other.rows.size() > 0)
      if (queue.rows.size() === 0) return others.length > 0
      const unserved = others.filter((other) => other.workers.size === 0)
      if (unserved.length === 0) return false
      const isLessUrgent = !queue.rows.hasUrgent() && unserved.some(({ rows }) => rows.hasUrgent())
      return isLessUrgent || messages >= TURN
    },
  }
}

export function hasOpen({ workers }: SiteQueue): boolean {
  return [...workers].some((worker) => worker.isOpen())
}

/** One connection proves that the site answers; then there may be as many as there are rows without one. */
export function mayConnectTo(queue: SiteQueue): boolean {
  const { rows, workers, limit } = queue
  if (rows.size() === 0) return false
  if (limit !== undefined && performance.now() < limit.until && workers.size >= limit.workers) return false
  return workers.size === 0 || hasOpen(queue)
}

function createRowQueue() {
  const queue = createTurnQueue<RowToSend>()
  const returned: RowToSend[] = []

  /** So many of those whose turn is soon. */
  function soon(count: number): RowToSend[] {
    const found = returned.slice(0, count)
    if (found.length === count) return found
    for (const sending of queue.all()) if (found.push(sending) === count) return found
    return found
  }

  /** One that is not urgent lets those that are go first. */
  function takeReturned(): RowToSend | undefined {
    const index = returned.findIndex(({ row }) => row.isUrgent || !queue.hasUrgent())
    return index < 0 ? undefined : returned.splice(index, 1)[0]
  }

  return {
    add: (sending: RowToSend) => queue.add(sending, sending.row.isUrgent),
    /** In front of its like: it had its turn already. */
    putBack: (sending: RowToSend) => void returned.push(sending),
    take: () => takeReturned() ?? queue.take(),
    soon,
    /** The sending domains of those whose turn is soon. */
    domains: () => [...new Set(soon(DOMAINS_LOOKED_FOR).map(({ row }) => row.domain))],
    takeAll(): RowToSend[] {
      const all = [...returned.splice(0), ...queue.all()]
      for (const sending of all) queue.delete(sending)
      return all
    },
    size: () => returned.length + queue.size(),
    hasUrgent: () => queue.hasUrgent() || returned.some(({ row }) => row.isUrgent),
  }
}
