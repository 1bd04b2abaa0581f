/**
 * The queue keys that are due, by pool and route: which of them take turns in the fair order, and which are closed, for
 * what reason and until when. A pool and route are closed as a whole; their keys keep their places. Never throws.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { createTimeHeap, takeDue } from '../../base/time-heap.ts'
import type { QueueKeyState, WaitingFor } from '../../store/records/queue-records.ts'
import type { Closure } from '../place/take-rows.ts'
import type { FairOrder } from './fair-order.ts'
import { groupName, type RouteGroup } from './order-places.ts'

export interface KeyEntry extends QueueKeyState {
  isDue: boolean
  isClaiming: boolean
  /** No row of it that waits is due earlier, not even one past its lifetime, which `earliestAt` does not count. */
  firstAt: number
  /** The earliest row that came while a claim was under way: whether the claim has seen it is not known. */
  cameMeanwhile: number
  /** Its own; `closureOf` says whether its pool and route are closed. */
  closure: Closure | null
  /** Why a row came back that is due later; null: nobody said. */
  waitingFor: WaitingFor | null
  /** The last walk that met it, or during which rows came. */
  walk: number
}

/** The due keys of one pool and route: they share the same paths. */
interface Group extends RouteGroup {
  keys: Set<KeyEntry>
  closure: Closure | null
}

type Closable = KeyEntry | Group

export type DueKeys = ReturnType<typeof createDueKeys>

/** A closure whose end is over already is looked at again after so long. */
const OVERDUE_WAIT = SECOND

export interface DueKeysOptions {
  clock: Clock
  /** Learns of each key that may be claimed from, and of each that may not any more. */
  order: Pick<FairOrder, 'set' | 'pause' | 'resume'>
}

export function createDueKeys({ clock, order }: DueKeysOptions) {
  const groups = new Map<string, Group>()
  const closedOf = new Map<string, Set<Closable>>()
  const closed = createTimeHeap<Closable>()

  function update(entry: KeyEntry): void {
    order.set(entry, entry.isDue && entry.closure === null ? Math.max(1, entry.waiting) : 0)
  }

  function close(closing: Closable, closure: Closure): void {
    closing.closure = closure
    addTo(closedOf, closing)
    const now = clock.now()
    if (closure.until === null) closed.remove(closing)
    else closed.set(closing, closure.until > now ? closure.until : now + OVERDUE_WAIT)
    if ('keys' in closing) order.pause(closing)
    else update(closing)
  }

  function open(closing: Closable): void {
    if (closing.closure === null) return
    closing.closure = null
    closed.remove(closing)
    takeFrom(closedOf, closing)
    if ('keys' in closing) order.resume(closing)
    else update(closing)
  }

  function openThose(isMeant: (closing: Closable) => boolean): void {
    for (const ofRoute of closedOf.values()) for (const closing of ofRoute) if (isMeant(closing)) open(closing)
  }

  return {
    add(entry: KeyEntry): void {
      entry.isDue = true
      const { pool, route } = entry
      const group = groups.get(groupName(entry)) ?? { pool, route, keys: new Set(), closure: null }
      groups.set(groupName(entry), group)
      group.keys.add(entry)
      // Others of the group cannot go, but this one may: paths keep room for transactional mail.
      open(group)
      update(entry)
    },
    remove(entry: KeyEntry): void {
      if (!entry.isDue) return
      open(entry)
      entry.isDue = false
      update(entry)
      const group = groups.get(groupName(entry))
      group?.keys.delete(entry)
      if (group === undefined || group.keys.size > 0) return
      open(group)
      groups.delete(groupName(entry))
    },
    update,
    open,
    close(entry: KeyEntry, closure: Closure): void {
      if (entry.isDue) close(entry, closure)
    },
    closeGroup(group: RouteGroup, closure: Closure): void {
      const known = groups.get(groupName(group))
      if (known !== undefined) close(known, closure)
    },
    advance(now: number, most: number): void {
      for (const closing of takeDue(closed, now, most)) open(closing)
    },
    /** Paths of this route may take rows again. */
    openRoute(route: string): void {
      for (const closing of closedOf.get(route) ?? []) open(closing)
    },
    openAll: (): void => openThose(() => true),
    /** As `openAll`, for those that no time opens. */
    openTimeless: (): void => openThose(({ closure }) => closure?.until === null),
    nextAt: () => closed.peek()?.at,
    of: (group: RouteGroup): Iterable<Readonly<KeyEntry>> => groups.get(groupName(group))?.keys ?? [],
    /** Why nothing of it can be claimed; null: it can be, or is not due. */
    closureOf: (entry: Readonly<KeyEntry>): Closure | null =>
      entry.isDue ? (entry.closure ?? groups.get(groupName(entry))?.closure ?? null) : null,
  }
}

function addTo(sets: Map<string, Set<Closable>>, closing: Closable): void {
  const ofRoute = sets.get(closing.route) ?? new Set()
  sets.set(closing.route, ofRoute.add(closing))
}

function takeFrom(sets: Map<string, Set<Closable>>, closing: Closable): void {
  const ofRoute = sets.get(closing.route)
  ofRoute?.delete(closing)
  if (ofRoute?.size === 0) sets.delete(closing.route)
}
