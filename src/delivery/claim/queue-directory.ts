/**
 * The queue as the dispatcher remembers it: which queue keys have rows, and when the first of them is due.
 *
 * | a key is  | it                                                                                           |
 * | --------- | -------------------------------------------------------------------------------------------- |
 * | later     | waits in a heap until its `earliestAt`                                                       |
 * | ready     | is due and takes turns in the fair order                                                     |
 * | closed    | is due and can not go: no IP, path or allowance; ready again at a time, or when it is opened. |
 * |           | A pool and route are closed as a whole, and their keys keep their places in the fair order   |
 * | forgotten | is one too many: a walk over the keys of the store, due at `walkAt`, finds it again          |
 *
 * `earliestAt` is never later than the truth: too early costs one empty claim. A key without a route stands here for
 * the counts alone. Nothing here waits or throws. delivery/README.md "From the table to the wire" and "Wake-ups".
 */
import { SECOND } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { UNROUTED } from '../../store/records/queue-records.ts'
import type { QueueKey, QueueKeyState, WaitingFor } from '../../store/records/queue-records.ts'
import type { FairOrder, RouteGroup } from './fair-order.ts'
import { createTimeHeap } from '../../base/time-heap.ts'
import type { Closure } from '../place/closure.ts'

export interface KeyEntry extends QueueKeyState {
  isDue: boolean
  isClaiming: boolean
  /** The earliest row that came while a claim was under way: whether the claim has seen it is not known. */
  cameMeanwhile: number
  /** Its own; `closureOf` says whether its pool and route are closed. */
  closure: Closure | null
  /** Why a row came back that is due later; null: nobody said. */
  waitingFor: WaitingFor | null
  /** The last walk that met it, or during which rows came. */
  walk: number
}

export interface QueueDirectory {
  /** Rows came: `waiting` is how many, `earliestAt` when the first is due. */
  note(came: readonly QueueKeyState[]): void
  /** One row came, or came back for this reason. */
  noteRow(key: QueueKey, dueAt: number, waitingFor: WaitingFor | null): void
  /** Rows left it by other ways than a claim: they got a route. */
  noteGone(key: QueueKey, count: number): void
  /** A walk over all keys of the store begins: it finds what was forgotten. */
  beginWalk(): void
  /**
   * A page of the walk, in which no key counts more than `mostCounted` rows. Returns the keys that are due for long and
   * should have been known.
   */
  learn(page: readonly QueueKeyState[], mostCounted: number): QueueKeyState[]
  /** The walk has seen all pages: keys it did not meet have no rows any more (canceled, dropped, expired). */
  endWalk(): void
  /** Brings what has become due, or is not closed any more, into the fair order. */
  advance(): void
  /** Nothing of these keys can go now. */
  close(key: QueueKey, closure: Closure): void
  closeGroup(group: { pool: string; route: string }, closure: Closure): void
  /** Paths of this route may take rows again. */
  openRoute(route: string): void
  openAll(): void
  /** As `openAll`, for those that no time opens. */
  openTimeless(): void
  beginClaim(key: QueueKey): void
  /** `earliestAt`: of the rows that are left; null: none. */
  endClaim(key: QueueKey, claimed: number, earliestAt: number | null): void
  /** A claim failed: nothing is known. */
  failClaim(key: QueueKey): void
  /** When something becomes due or opens by itself; null: only an event can bring work. */
  nextAt(): number | null
  /** When the store must be walked for forgotten keys; null: all are known, or there is no room for more. */
  walkAt(): number | null
  hasForgotten(): boolean
  find(key: QueueKey): Readonly<KeyEntry> | undefined
  /** The due keys of a pool and route. */
  dueOf(group: { pool: string; route: string }): Iterable<Readonly<KeyEntry>>
  entries(): Iterable<Readonly<KeyEntry>>
  /** Why nothing of it can be claimed; null: it can be, or is not due. */
  closureOf(entry: Readonly<KeyEntry>): Closure | null
}

/** The due keys of one pool and route: they share the same paths. */
interface Group extends RouteGroup {
  keys: Set<KeyEntry>
  closure: Closure | null
}

export interface QueueDirectoryOptions {
  clock: Clock
  /** Is told of every key that may be claimed from, and of every one that may not any more. */
  order: Pick<FairOrder, 'set' | 'pause' | 'resume'>
  mostKeys?: number
}

/** delivery/README.md "From the table to the wire". */
const MOST_KEYS = 20_000
/** So many more are taken in before the last ones are forgotten together. */
const SLACK = 0.1
/** A key that is due for longer and was not known has been missed (delivery/README.md "Wake-ups"). */
const MISSED_AFTER = 5 * SECOND
/** What should have opened by now, but has not, is looked at again after so long. */
const OVERDUE_WAIT = SECOND

export function createQueueDirectory({ clock, order, mostKeys = MOST_KEYS }: QueueDirectoryOptions): QueueDirectory {
  const entries = new Map<string, KeyEntry>()
  /** Those with due keys, by pool and route. */
  const groups = new Map<string, Group>()
  /** What is closed, by route. */
  const closedOf = new Map<string, Set<KeyEntry | Group>>()
  const later = createTimeHeap<KeyEntry>()
  const closed = createTimeHeap<KeyEntry | Group>()
  /** The earliest of the keys that were forgotten. */
  let forgottenFrom = Infinity
  let walk = 0

  function add(state: QueueKeyState): void {
    const { pool, route, domain, stream, isRetry, earliestAt, waiting } = state
    const entry: KeyEntry = {
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
    entries.set(idOf(entry), entry)
    schedule(entry)
    if (entries.size > mostKeys * (1 + SLACK)) forgetLatest()
  }

  function remove(entry: KeyEntry): void {
    undue(entry)
    later.remove(entry)
    entries.delete(idOf(entry))
  }

  function schedule(entry: KeyEntry): void {
    if (entry.route !== UNROUTED) later.set(entry, entry.earliestAt)
  }

  function lower(entry: KeyEntry, dueAt: number): void {
    entry.cameMeanwhile = Math.min(entry.cameMeanwhile, dueAt)
    if (dueAt >= entry.earliestAt) return
    entry.earliestAt = dueAt
    if (!entry.isDue) schedule(entry)
  }

  /** What is due, or would be if it could go, stays; what comes last goes. */
  function forgetLatest(): void {
    const timeOf = (entry: KeyEntry): number => Math.max(entry.earliestAt, closureOf(entry)?.until ?? 0)
    const inOrder = [...entries.values()]
      .filter(({ isClaiming }) => !isClaiming)
      .toSorted((left, right) => timeOf(left) - timeOf(right))
    for (const entry of inOrder.slice(mostKeys)) {
      forgottenFrom = Math.min(forgottenFrom, timeOf(entry))
      remove(entry)
    }
  }

  function due(entry: KeyEntry): void {
    entry.isDue = true
    const { pool, route } = entry
    const group = groups.get(groupOf(entry)) ?? { pool, route, keys: new Set(), closure: null }
    groups.set(groupOf(entry), group)
    group.keys.add(entry)
    // What can not go of the others may go of this one: paths keep room for transactional mail.
    reopen(group)
    tellOrder(entry)
  }

  function undue(entry: KeyEntry): void {
    if (!entry.isDue) return
    reopen(entry)
    entry.isDue = false
    tellOrder(entry)
    const group = groups.get(groupOf(entry))
    group?.keys.delete(entry)
    if (group === undefined || group.keys.size > 0) return
    reopen(group)
    groups.delete(groupOf(entry))
  }

  function close(closing: KeyEntry | Group, closure: Closure): void {
    closing.closure = closure
    into(closedOf, closing.route, closing)
    const now = clock.now()
    if (closure.until === null) closed.remove(closing)
    else closed.set(closing, closure.until > now ? closure.until : now + OVERDUE_WAIT)
    if ('keys' in closing) order.pause(closing)
    else tellOrder(closing)
  }

  function reopen(closing: KeyEntry | Group): void {
    if (closing.closure === null) return
    closing.closure = null
    closed.remove(closing)
    outOf(closedOf, closing.route, closing)
    if ('keys' in closing) order.resume(closing)
    else tellOrder(closing)
  }

  const closureOf = (entry: Readonly<KeyEntry>): Closure | null =>
    entry.isDue ? (entry.closure ?? groups.get(groupOf(entry))?.closure ?? null) : null

  function tellOrder(entry: KeyEntry): void {
    const isReady = entry.isDue && entry.closure === null
    order.set(entry, isReady ? Math.max(1, entry.waiting) : 0)
  }

  function advance(): void {
    const now = clock.now()
    for (let next = later.peek(); next !== undefined && next.at <= now; next = later.peek()) {
      later.pop()
      due(next.item)
    }
    for (let next = closed.peek(); next !== undefined && next.at <= now; next = closed.peek()) reopen(next.item)
  }

  function noteRows(key: QueueKey, dueAt: number, count: number): void {
    const known = entries.get(idOf(key))
    if (known === undefined) {
      if (entries.size < mostKeys || dueAt < forgottenFrom) add({ ...key, earliestAt: dueAt, waiting: count })
      else forgottenFrom = Math.min(forgottenFrom, dueAt)
      return
    }
    known.waiting += count
    known.walk = walk
    lower(known, dueAt)
    if (known.isDue) tellOrder(known)
  }

  return {
    advance,
    noteRow(key, dueAt, waitingFor) {
      noteRows(key, dueAt, 1)
      const entry = entries.get(idOf(key))
      if (entry !== undefined && waitingFor !== null) entry.waitingFor = waitingFor
    },
    note(came) {
      for (const state of came) noteRows(state, state.earliestAt, state.waiting)
    },
    noteGone(key, count) {
      const known = entries.get(idOf(key))
      if (known === undefined) return
      known.waiting -= count
      if (known.waiting <= 0) remove(known)
    },
    beginWalk() {
      walk++
      forgottenFrom = Infinity
    },
    endWalk() {
      for (const entry of entries.values()) if (entry.walk < walk && !entry.isClaiming) remove(entry)
    },
    learn(page, mostCounted) {
      const missed: QueueKeyState[] = []
      for (const state of page) {
        const known = entries.get(idOf(state))
        if (known === undefined) {
          if (state.route !== UNROUTED && state.earliestAt < clock.now() - MISSED_AFTER) missed.push(state)
          noteRows(state, state.earliestAt, state.waiting)
          continue
        }
        known.walk = walk
        if (!known.isClaiming) {
          known.waiting = Math.max(state.waiting, state.waiting < mostCounted ? 0 : known.waiting)
          lower(known, state.earliestAt)
          if (known.isDue) tellOrder(known)
        }
      }
      return missed
    },
    close(key, closure) {
      const entry = entries.get(idOf(key))
      if (entry?.isDue === true) close(entry, closure)
    },
    closeGroup(group, closure) {
      const known = groups.get(groupOf(group))
      if (known !== undefined) close(known, closure)
    },
    openRoute(route) {
      for (const closing of closedOf.get(route) ?? []) reopen(closing)
    },
    openAll() {
      for (const ofRoute of closedOf.values()) for (const closing of ofRoute) reopen(closing)
    },
    openTimeless() {
      for (const ofRoute of closedOf.values()) {
        for (const closing of ofRoute) if (closing.closure?.until === null) reopen(closing)
      }
    },
    beginClaim(key) {
      const entry = entries.get(idOf(key))
      if (entry === undefined) return
      entry.isClaiming = true
      entry.cameMeanwhile = Infinity
    },
    endClaim(key, claimed, earliestAt) {
      const entry = entries.get(idOf(key))
      if (entry === undefined) return
      entry.isClaiming = false
      const next = Math.min(earliestAt ?? Infinity, entry.cameMeanwhile)
      if (next === Infinity) return remove(entry)
      entry.waiting = Math.max(entry.waiting - claimed, 1)
      entry.earliestAt = next
      if (next <= clock.now() && entry.isDue) return tellOrder(entry)
      undue(entry)
      schedule(entry)
    },
    failClaim(key) {
      const entry = entries.get(idOf(key))
      if (entry === undefined) return
      entry.isClaiming = false
      tellOrder(entry)
    },
    nextAt() {
      const next = Math.min(later.peek()?.at ?? Infinity, closed.peek()?.at ?? Infinity)
      return next === Infinity ? null : next
    },
    walkAt: () => (forgottenFrom < Infinity && entries.size < mostKeys ? forgottenFrom : null),
    hasForgotten: () => forgottenFrom < Infinity,
    find: (key) => entries.get(idOf(key)),
    dueOf: (group) => groups.get(groupOf(group))?.keys ?? [],
    entries: () => entries.values(),
    closureOf,
  }
}

function into<Item>(sets: Map<string, Set<Item>>, name: string, item: Item): void {
  const set = sets.get(name)
  if (set === undefined) sets.set(name, new Set([item]))
  else set.add(item)
}

function outOf<Item>(sets: Map<string, Set<Item>>, name: string, item: Item): void {
  const set = sets.get(name)
  set?.delete(item)
  if (set?.size === 0) sets.delete(name)
}

function groupOf({ pool, route }: { pool: string; route: string }): string {
  return `${pool} ${route}`
}

/** None of the parts has a space in it. */
function idOf({ pool, route, domain, stream, isRetry }: QueueKey): string {
  return `${pool} ${route} ${domain} ${stream} ${isRetry ? 'retry' : 'new'}`
}
