/**
 * The queue keys in memory: how many rows wait under each, when the first of them is due, and which keys were forgotten
 * for want of room. A key that becomes due is handed to `due-keys.ts`. Never throws.
 */
import { createTimeHeap } from '../../base/time-heap.ts'
import { UNROUTED } from '../../store/records/queue-records.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import type { DueKeys, KeyEntry } from './due-keys.ts'

export interface KeyTable {
  find(key: QueueKey): KeyEntry | undefined
  entries(): Iterable<KeyEntry>
  /** So many rows came, the first of them due at `dueAt`. */
  note(key: QueueKey, dueAt: number, count: number): void
  /** It may be due sooner than was known. */
  lower(entry: KeyEntry, dueAt: number): void
  /** It is due at its `earliestAt`, and not before. */
  postpone(entry: KeyEntry): void
  remove(entry: KeyEntry): void
  /** Hands over what has become due. */
  advance(now: number): void
  /** When the next key becomes due. */
  nextAt(): number | undefined
  /** Returns the number of the walk that begins: nothing counts as forgotten until something is. */
  beginWalk(): number
  /** The earliest of the keys that were forgotten; Infinity: none was. */
  forgottenFrom(): number
  hasRoom(): boolean
}

/** So many more are taken in before the last ones are forgotten together. */
const SLACK = 0.1

export function createKeyTable(due: DueKeys, mostKeys: number): KeyTable {
  const entries = new Map<string, KeyEntry>()
  const later = createTimeHeap<KeyEntry>()
  let forgottenFrom = Infinity
  let walk = 0

  function schedule(entry: KeyEntry): void {
    // A key without a route stands here for the counts alone.
    if (entry.route !== UNROUTED) later.set(entry, entry.earliestAt)
  }

  function add(key: QueueKey, earliestAt: number, waiting: number): void {
    const entry = newEntry(key, { earliestAt, waiting, walk })
    entries.set(idOf(entry), entry)
    schedule(entry)
    if (entries.size > mostKeys * (1 + SLACK)) forgetLatest()
  }

  function remove(entry: KeyEntry): void {
    due.remove(entry)
    later.remove(entry)
    entries.delete(idOf(entry))
  }

  /** What is due, or would be if it could go, stays; what comes last goes. */
  function forgetLatest(): void {
    const timeOf = (entry: KeyEntry): number => Math.max(entry.earliestAt, due.closureOf(entry)?.until ?? 0)
    const inOrder = [...entries.values()]
      .filter(({ isClaiming }) => !isClaiming)
      .toSorted((left, right) => timeOf(left) - timeOf(right))
    for (const entry of inOrder.slice(mostKeys)) {
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
    find: (key) => entries.get(idOf(key)),
    entries: () => entries.values(),
    note(key, dueAt, count) {
      const known = entries.get(idOf(key))
      if (known === undefined) {
        if (entries.size < mostKeys || dueAt < forgottenFrom) add(key, dueAt, count)
        else forgottenFrom = Math.min(forgottenFrom, dueAt)
        return
      }
      known.waiting += count
      known.walk = walk
      lower(known, dueAt)
      if (known.isDue) due.update(known)
    },
    lower,
    postpone(entry) {
      due.remove(entry)
      schedule(entry)
    },
    remove,
    advance(now) {
      for (let next = later.peek(); next !== undefined && next.at <= now; next = later.peek()) {
        later.pop()
        due.add(next.item)
      }
    },
    nextAt: () => later.peek()?.at,
    beginWalk() {
      forgottenFrom = Infinity
      return ++walk
    },
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

/** None of the parts has a space in it. */
function idOf({ pool, route, domain, stream, isRetry }: QueueKey): string {
  return `${pool} ${route} ${domain} ${stream} ${isRetry ? 'retry' : 'new'}`
}
