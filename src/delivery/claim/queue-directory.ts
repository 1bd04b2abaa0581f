/**
 * The queue as the dispatcher remembers it: which queue keys have rows, and when the first of them is due. The states
 * of a key stand in delivery/README.md "From the table to the wire". `earliestAt` is never later than the truth: too
 * early costs one empty claim. Nothing here waits or throws.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { createTimeHeap, takeDue } from '../../base/time-heap.ts'
import { UNROUTED, type QueueKey, type QueueKeyState, type WaitingFor } from '../../store/records/queue-records.ts'
import type { Closure } from '../place/take-rows.ts'
import { createDueKeys, type DueKeys, type DueKeysOptions, type KeyEntry } from './due-keys.ts'
import { keyName } from './order-places.ts'

export type QueueDirectory = ReturnType<typeof createQueueDirectory>

const MOST_KEYS = 20_000
/** Keys at a time: 5 ms of the main thread, in which nobody gets an answer. */
const MOST_ADVANCED = 500
/** So many more are taken in, as a share, before the last ones are forgotten together. */
const SLACK = 0.1
/** A key that is due for longer and was not known has been missed (delivery/README.md "Wake-ups"). */
const MISSED_AFTER = 5 * SECOND
/** The keys of one sending domain in a pool and route. */
const KINDS = (['transactional', 'bulk'] as const).flatMap((stream) =>
  [true, false].map((isRetry) => ({ stream, isRetry })),
)

export function createQueueDirectory(options: DueKeysOptions & { mostKeys?: number }) {
  const { clock, mostKeys = MOST_KEYS } = options
  const due = createDueKeys(options)
  const table = createKeyTable(due, mostKeys)

  return {
    closeGroup: due.closeGroup,
    openRoute: due.openRoute,
    openAll: due.openAll,
    openTimeless: due.openTimeless,
    closureOf: due.closureOf,
    dueOf: due.of,
    find: (key: QueueKey): Readonly<KeyEntry> | undefined => table.find(key),
    entries: (): Iterable<Readonly<KeyEntry>> => table.entries(),
    ...walkedKeys(table, due, clock),
    ...claimedKeys(table, due, clock),
    /** Rows came: `waiting` is how many, `earliestAt` when the first is due. */
    note(came: readonly QueueKeyState[]): void {
      for (const state of came) table.note(state, state.earliestAt, state.waiting)
    },
    /** One row came, or came back for this reason. */
    noteRow(key: QueueKey, dueAt: number, waitingFor: WaitingFor | null): void {
      table.note(key, dueAt, 1)
      const entry = table.find(key)
      if (entry !== undefined && waitingFor !== null) entry.waitingFor = waitingFor
    },
    /** Rows left it by other ways than a claim: they got a route. */
    noteGone(key: QueueKey, count: number): void {
      const known = table.find(key)
      if (known === undefined) return
      known.waiting -= count
      if (known.waiting <= 0) table.remove(known)
    },
    /** Brings what has become due, or is not closed any more, into the fair order; what is left is due at `nextAt`. */
    advance(): void {
      const now = clock.now()
      table.advance(now, MOST_ADVANCED)
      due.advance(now, MOST_ADVANCED)
    },
    close(key: QueueKey, closure: Closure): void {
      const entry = table.find(key)
      if (entry !== undefined) due.close(entry, closure)
    },
    /** Rows of this sending domain are settled: one that is tried out may send the next one. */
    openDomain({ pool, route, domain }: Pick<QueueKey, 'pool' | 'route' | 'domain'>): void {
      for (const kind of KINDS) {
        const entry = table.find({ pool, route, domain, ...kind })
        if (entry !== undefined) due.open(entry)
      }
    },
    /** When something becomes due or opens by itself; null: only an event can bring work. */
    nextAt(): number | null {
      const next = Math.min(table.nextAt() ?? Infinity, due.nextAt() ?? Infinity)
      return next === Infinity ? null : next
    },
  }
}

/** What a walk over the keys of the store finds, and what was forgotten until then. */
function walkedKeys(table: KeyTable, due: DueKeys, clock: Clock) {
  let walk = 0
  return {
    beginWalk(): void {
      walk = table.beginWalk()
    },
    /**
     * A page of the walk, in which no key counts more than `mostCounted` rows. Returns the keys that are due for long
     * and should have been known.
     */
    learn(page: readonly QueueKeyState[], mostCounted: number): QueueKeyState[] {
      const missed: QueueKeyState[] = []
      for (const state of page) {
        const known = table.find(state)
        if (known === undefined) {
          if (state.route !== UNROUTED && state.earliestAt < clock.now() - MISSED_AFTER) missed.push(state)
          table.note(state, state.earliestAt, state.waiting)
          continue
        }
        known.walk = walk
        table.lower(known, state.earliestAt)
        if (known.isClaiming) continue
        known.waiting = Math.max(state.waiting, state.waiting < mostCounted ? 0 : known.waiting)
        if (known.isDue) due.update(known)
      }
      return missed
    },
    /** The walk has seen all pages: keys it did not meet have no rows any more (canceled, dropped, expired). */
    endWalk(): void {
      for (const entry of table.entries()) if (entry.walk < walk && !entry.isClaiming) table.remove(entry)
    },
    /** When the store must be walked for forgotten keys; null: all are known, or there is no room for more. */
    walkAt: () => (table.forgottenFrom() < Infinity && table.hasRoom() ? table.forgottenFrom() : null),
    hasForgotten: () => table.forgottenFrom() < Infinity,
  }
}

/** What is known of a key before, while and after it is claimed from. */
function claimedKeys(table: KeyTable, due: DueKeys, clock: Clock) {
  return {
    /** Returns a time before which no row of it is due. */
    beginClaim(key: QueueKey): number {
      const entry = table.find(key)
      if (entry === undefined) return 0
      entry.isClaiming = true
      entry.cameMeanwhile = Infinity
      // A key that was forgotten and came again knows its newer rows alone.
      return table.forgottenFrom() < Infinity ? 0 : entry.firstAt
    },
    /** Of the rows that are left, as a claim tells it. */
    endClaim(key: QueueKey, claimed: number, earliestAt: number | null, firstAt = earliestAt): void {
      const entry = table.find(key)
      if (entry === undefined) return
      entry.isClaiming = false
      const next = Math.min(earliestAt ?? Infinity, entry.cameMeanwhile)
      entry.firstAt = Math.min(firstAt ?? Infinity, entry.cameMeanwhile)
      if (next === Infinity) return table.remove(entry)
      entry.waiting = Math.max(entry.waiting - claimed, 1)
      entry.earliestAt = next
      if (next <= clock.now() && entry.isDue) due.update(entry)
      else table.postpone(entry)
    },
    /** Nothing is known. */
    failClaim(key: QueueKey): void {
      const entry = table.find(key)
      if (entry === undefined) return
      entry.isClaiming = false
      due.update(entry)
    },
  }
}

type KeyTable = ReturnType<typeof createKeyTable>

function createKeyTable(due: DueKeys, mostKeys: number) {
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
    const entry = entryOf({ ...key, earliestAt, waiting }, walk)
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
    entry.firstAt = Math.min(entry.firstAt, dueAt)
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
    lower,
    /** It is due at its `earliestAt`, and not before. */
    postpone(entry: KeyEntry): void {
      due.remove(entry)
      schedule(entry)
    },
    remove,
    advance(now: number, most: number): void {
      for (const entry of takeDue(later, now, most)) due.add(entry)
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

function entryOf({ pool, route, domain, stream, isRetry, earliestAt, waiting }: QueueKeyState, walk: number): KeyEntry {
  const idle = { isDue: false, isClaiming: false, cameMeanwhile: Infinity, closure: null, waitingFor: null }
  return { pool, route, domain, stream, isRetry, earliestAt, firstAt: earliestAt, waiting, walk, ...idle }
}
