/**
 * The queue keys that are due, by pool and route: which of them take turns in the fair order, and which are closed, for
 * what reason and until when. A pool and route are closed as a whole; their keys keep their places. Never throws.
 */
import { SECOND } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { createTimeHeap } from '../../base/time-heap.ts'
import type { QueueKeyState, WaitingFor } from '../../store/records/queue-records.ts'
import type { Closure } from '../place/take-rows.ts'
import type { FairOrder } from './fair-order.ts'
import type { RouteGroup } from './order-places.ts'

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

/** The due keys of one pool and route: they share the same paths. */
interface Group extends RouteGroup {
  keys: Set<KeyEntry>
  closure: Closure | null
}

type Closable = KeyEntry | Group

export interface DueKeys {
  add(entry: KeyEntry): void
  remove(entry: KeyEntry): void
  /** How many rows wait has changed. */
  update(entry: KeyEntry): void
  close(entry: KeyEntry, closure: Closure): void
  closeGroup(group: RouteGroup, closure: Closure): void
  /** Opens what its time has come for. */
  advance(now: number): void
  /** Paths of this route may take rows again. */
  openRoute(route: string): void
  openAll(): void
  /** As `openAll`, for those that no time opens. */
  openTimeless(): void
  /** When something opens by itself. */
  nextAt(): number | undefined
  of(group: RouteGroup): Iterable<Readonly<KeyEntry>>
  /** Why nothing of it can be claimed; null: it can be, or is not due. */
  closureOf(entry: Readonly<KeyEntry>): Closure | null
}

/** What should have opened by now, but has not, is looked at again after so long. */
const OVERDUE_WAIT = SECOND

export interface DueKeysOptions {
  clock: Clock
  /** Is told of every key that may be claimed from, and of every one that may not any more. */
  order: Pick<FairOrder, 'set' | 'pause' | 'resume'>
}

export function createDueKeys({ clock, order }: DueKeysOptions): DueKeys {
  const groups = new Map<string, Group>()
  /** What is closed, by route. */
  const closedOf = new Map<string, Set<Closable>>()
  const closed = createTimeHeap<Closable>()

  function update(entry: KeyEntry): void {
    order.set(entry, entry.isDue && entry.closure === null ? Math.max(1, entry.waiting) : 0)
  }

  function close(closing: Closable, closure: Closure): void {
    closing.closure = closure
    setFor(closedOf, closing.route).add(closing)
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
    const ofRoute = closedOf.get(closing.route)
    ofRoute?.delete(closing)
    if (ofRoute?.size === 0) closedOf.delete(closing.route)
    if ('keys' in closing) order.resume(closing)
    else update(closing)
  }

  function openThose(isMeant: (closing: Closable) => boolean): void {
    for (const ofRoute of closedOf.values()) for (const closing of ofRoute) if (isMeant(closing)) open(closing)
  }

  return {
    add(entry) {
      entry.isDue = true
      const { pool, route } = entry
      const group = groups.get(groupOf(entry)) ?? { pool, route, keys: new Set(), closure: null }
      groups.set(groupOf(entry), group)
      group.keys.add(entry)
      // What cannot go of the others may go of this one: paths keep room for transactional mail.
      open(group)
      update(entry)
    },
    remove(entry) {
      if (!entry.isDue) return
      open(entry)
      entry.isDue = false
      update(entry)
      const group = groups.get(groupOf(entry))
      group?.keys.delete(entry)
      if (group === undefined || group.keys.size > 0) return
      open(group)
      groups.delete(groupOf(entry))
    },
    update,
    close(entry, closure) {
      if (entry.isDue) close(entry, closure)
    },
    closeGroup(group, closure) {
      const known = groups.get(groupOf(group))
      if (known !== undefined) close(known, closure)
    },
    advance(now) {
      for (let next = closed.peek(); next !== undefined && next.at <= now; next = closed.peek()) open(next.item)
    },
    openRoute(route) {
      for (const closing of closedOf.get(route) ?? []) open(closing)
    },
    openAll: () => openThose(() => true),
    openTimeless: () => openThose(({ closure }) => closure?.until === null),
    nextAt: () => closed.peek()?.at,
    of: (group) => groups.get(groupOf(group))?.keys ?? [],
    closureOf: (entry) => (entry.isDue ? (entry.closure ?? groups.get(groupOf(entry))?.closure ?? null) : null),
  }
}

function setFor(sets: Map<string, Set<Closable>>, name: string): Set<Closable> {
  const known = sets.get(name)
  if (known !== undefined) return known
  const made = new Set<Closable>()
  sets.set(name, made)
  return made
}

function groupOf({ pool, route }: RouteGroup): string {
  return `${pool} ${route}`
}
