/**
 * The queue as the dispatcher remembers it: which queue keys have rows, and when the first of them is due. The states
 * of a key stand in delivery/README.md "From the table to the wire".
 *
 * `earliestAt` is never later than the truth: too early costs one empty claim. Nothing here waits or throws.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { UNROUTED, type QueueKey, type QueueKeyState, type WaitingFor } from '../../store/records/queue-records.ts'
import type { Closure } from '../place/take-rows.ts'
import { createDueKeys, type DueKeys, type DueKeysOptions, type KeyEntry } from './due-keys.ts'
import { createKeyTable, type KeyTable } from './key-table.ts'

export type QueueDirectory = ReturnType<typeof createQueueDirectory>

interface QueueDirectoryOptions extends DueKeysOptions {
  mostKeys?: number
}

const MOST_KEYS = 20_000
/** A key that is due for longer and was not known has been missed (delivery/README.md "Wake-ups"). */
const MISSED_AFTER = 5 * SECOND

export function createQueueDirectory(options: QueueDirectoryOptions) {
  const { clock, mostKeys = MOST_KEYS } = options
  const due = createDueKeys(options)
  const table = createKeyTable(due, mostKeys)

  return {
    closeGroup: due.closeGroup,
    openRoute: due.openRoute,
    openAll: due.openAll,
    openTimeless: due.openTimeless,
    closureOf: due.closureOf,
    /** The due keys of a pool and route. */
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
    /** Brings what has become due, or is not closed any more, into the fair order. */
    advance(): void {
      const now = clock.now()
      table.advance(now)
      due.advance(now)
    },
    /** Nothing of this key can go now. */
    close(key: QueueKey, closure: Closure): void {
      const entry = table.find(key)
      if (entry !== undefined) due.close(entry, closure)
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
        if (known.isClaiming) continue
        known.waiting = Math.max(state.waiting, state.waiting < mostCounted ? 0 : known.waiting)
        table.lower(known, state.earliestAt)
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
    beginClaim(key: QueueKey): void {
      const entry = table.find(key)
      if (entry === undefined) return
      entry.isClaiming = true
      entry.cameMeanwhile = Infinity
    },
    /** `earliestAt`: of the rows that are left; null: none. */
    endClaim(key: QueueKey, claimed: number, earliestAt: number | null): void {
      const entry = table.find(key)
      if (entry === undefined) return
      entry.isClaiming = false
      const next = Math.min(earliestAt ?? Infinity, entry.cameMeanwhile)
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
