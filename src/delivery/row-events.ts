/**
 * What follows when rows change hands: the directory, the window and the paths are told, and whoever has work by it is
 * woken. Each event is told once, by the part that caused it. Never throws.
 */
import { CAPTURE_POOL } from '../mail/simulator.ts'
import { UNROUTED, type QueueKeyState } from '../store/records/queue-records.ts'
import type { ClaimedMessage } from '../store/records/claim-records.ts'
import type { DispatcherParts } from './dispatcher-parts.ts'
import type { PlacedRow } from './place/place-messages.ts'
import type { RouteDomains } from './route/route-domains.ts'
import type { StoredRow } from './settle/outcome-recorder.ts'

/** Wake-ups go against the road, and carry no data. */
export interface WakeUps {
  claims(): void
  paths(): void
  /** The queue changed, and nobody knows where. */
  walk(): void
  domains: Pick<RouteDomains, 'note' | 'wake'>
}

export type RowEvents = ReturnType<typeof createRowEvents>

export function createRowEvents(parts: DispatcherParts, wake: WakeUps) {
  const { directory, egress, history, paths, window } = parts
  return {
    placed(rows: readonly PlacedRow[]): void {
      for (const row of rows) {
        paths.add(row)
        history.note('placed', row.message, row.facts.key)
      }
      wake.paths()
    },
    /** They have left their threads: their paths take others now. */
    left(rows: readonly PlacedRow[]): void {
      for (const row of rows) {
        window.takeBack(row.message)
        paths.settle(row)
      }
      for (const route of new Set(rows.map(({ facts }) => facts.route))) directory.openRoute(route)
      wake.paths()
      wake.claims()
    },
    /** The store has taken their outcome or their return. */
    stored(rows: readonly StoredRow[], hasEvents: boolean): void {
      window.release(rows.map(({ message }) => message.claim))
      for (const { message } of rows) history.note('stored', message)
      const pools = new Set([...egress.poolNames(), CAPTURE_POOL])
      // The pool is gone: its mail has moved to another one while it was under way.
      if (rows.some(({ message }) => !pools.has(message.pool))) wake.walk()
      for (const { message, dueAt, isRetry, route, waitingFor } of rows) {
        if (dueAt === null) continue
        const { pool, domain, stream, recipientDomain } = message
        directory.noteRow({ pool, route, domain, stream, isRetry }, dueAt, waitingFor)
        if (route === UNROUTED) wake.domains.note([recipientDomain], dueAt)
      }
      if (hasEvents) parts.onEvents()
      wake.claims()
      wake.domains.wake()
    },
    /** Waiting rows have got a route: they stand under these keys now. */
    routed(keys: readonly QueueKeyState[]): void {
      directory.note(keys)
      for (const { waiting, ...key } of keys) directory.noteGone({ ...key, route: UNROUTED }, waiting)
      wake.claims()
    },
    unroutedClaimed(messages: readonly ClaimedMessage[]): void {
      for (const { pool, domain, stream, attempts } of messages) {
        directory.noteGone({ pool, route: UNROUTED, domain, stream, isRetry: attempts > 0 }, 1)
      }
    },
  }
}
