/**
 * The queue keys in memory: how many rows wait under each, when the first of them is due, and which keys were forgotten
 * for want of room. A key that becomes due is handed to `due-keys.ts`. Never throws.
 */
import { createTimeHeap } from '../../base/time-heap.ts'
import { UNROUTED, type QueueKey } from '../../store/records/queue-records.ts'
import type { DueKeys, KeyEntry } from './due-keys.ts'
import { keyName } from './order-places.ts'

export type KeyTable = ReturnType<typeof createKeyTable>

/** So many more are taken in, as a share, before the last ones are forgotten together. */
const SLACK = 0.1

export function createKeyTable(due: DueKeys, mostKeys: number) {
  const entries = new Map<string, KeyEntry>()
  const later = createTimeHeap<KeyEntry>()
  let forgottenFrom = Infinity
  let walk = 0

  function schedule(entry: KeyEntry): void {
    // A key without a route stands here for the counts alone.
    if (entry.route !== UNROUTED) later.set(entry, entry.earliestAt)
  }

  function come(key: QueueKey, earliestAt: number, waiting: number): void {
    // It is forgotten, like those that were: one of them is due sooner.
    if (entries.size >= mostKeys && earliestAt >= forgottenFrom) return
    const entry = newEntry(key, { earliestAt, waiting, walk })
    entries.set(keyName(entry), entry)
    schedule(entry)
    if (entries.size > mostKeys * (1 + SLACK)) forgetLatest()
  }

  function remove(entry: KeyEntry): void {
    due.remove(entry)
    later.remove(entry)
    entries.delete(keyName(entry))
  }

  /** What is due, or would be if it could go, stays; what comes last goes. */
  function forgetLatest(): void {
    const timeOf = (entry: KeyEntry): number => Math.max(entry.earliestAt, due.closureOf(entry)?.until ?? 0)
    const idle = [...entries.values()].filter(({ isClaiming }) => !isClaiming)
    for (const entry of idle.toSorted((left, right) => timeOf(left) - timeOf(right)).slice(mostKeys)) {
      forgottenFrom = Math.min(forgottenFrom, timeOf(entry))
      remove(entry)
    }
  }

  function lower(entry: KeyEntry, dueAt: number): void {
    entry.cameMeanwhile = Math.min(entry.cameMeanwhile, dueAt)
    if (dueAt >= entry.earliestAt) return
    entry.earliestAt = dueAt
    if (!entry.isDue) schedule(entry)
  }

  return {
    find: (key: QueueKey) => entries.get(keyName(key)),
    entries: () => entries.values(),
    /** So many rows came, the first of them due at `dueAt`. */
    note(key: QueueKey, dueAt: number, count: number): void {
      const known = entries.get(keyName(key))
      if (known === undefined) return come(key, dueAt, count)
      known.waiting += count
      known.walk = walk
      lower(known, dueAt)
      if (known.isDue) due.update(known)
    },
    /** It may be due sooner than was known. */
    lower,
    /** It is due at its `earliestAt`, and not before. */
    postpone(entry: KeyEntry): void {
      due.remove(entry)
      schedule(entry)
    },
    remove,
    advance(now: number): void {
      for (let next = later.peek(); next !== undefined && next.at <= now; next = later.peek()) {
        later.pop()
        due.add(next.item)
      }
    },
    nextAt: () => later.peek()?.at,
    /** Returns the number of the walk: nothing counts as forgotten until something is. */
    beginWalk(): number {
      forgottenFrom = Infinity
      return ++walk
    },
    /** The earliest of the keys that were forgotten; Infinity: none was. */
    forgottenFrom: () => forgottenFrom,
    hasRoom: () => entries.size < mostKeys,
  }
}

function newEntry(
  { pool, route, domain, stream, isRetry }: QueueKey,
  { earliestAt, waiting, walk }: Pick<KeyEntry, 'earliestAt' | 'waiting' | 'walk'>,
): KeyEntry {
  return {
    pool,
    route,
    domain,
    stream,
    isRetry,
    earliestAt,
    waiting,
    isDue: false,
    isClaiming: false,
    cameMeanwhile: Infinity,
    closure: null,
    waitingFor: null,
    walk,
  }
}
