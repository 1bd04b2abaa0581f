/**
 * What follows when rows change hands: the directory, the window, the paths and shaping are told, and whoever has work
 * by it is woken. Each event is told once, by the part that caused it. Never throws.
 */
import { CAPTURE_POOL } from '../mail/simulator.ts'
import { UNROUTED } from '../store/records/queue-records.ts'
import type { QueueKeyState } from '../store/records/queue-records.ts'
import type { ClaimedMessage } from '../store/records/records.ts'
import { createConnectionCount } from './connection-count.ts'
import type { DispatcherParts } from './dispatcher-parts.ts'
import type { PlacedRow } from './place/placed-row.ts'
import type { ThreadConnectionNote } from './protocol/try-result.ts'
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

export interface RowEvents {
  /** They have got a path. */
  placed(rows: readonly PlacedRow[]): void
  /** They have left their threads: their paths take others now. */
  left(rows: readonly PlacedRow[]): void
  /** The store has taken their outcome or their return. */
  stored(rows: readonly StoredRow[], hasEvents: boolean): void
  /** Waiting rows have got a route: they stand under these keys now. */
  routed(keys: readonly QueueKeyState[]): void
  /** Rows without a route were claimed. */
  unroutedClaimed(messages: readonly ClaimedMessage[]): void
  connections(notes: readonly ThreadConnectionNote[], thread: number): void
  /** Its connections ended with it, which says nothing of their hosts. */
  threadDied(thread: number): void
}

export function createRowEvents(parts: DispatcherParts, wake: WakeUps): RowEvents {
  return { ...handOvers(parts, wake), ...connectionEvents(parts, wake) }
}

function handOvers(parts: DispatcherParts, wake: WakeUps): Omit<RowEvents, 'connections' | 'threadDied'> {
  const { directory, egress, history, paths, window } = parts
  return {
    placed(rows) {
      for (const row of rows) {
        paths.add(row)
        history.note('placed', row.message, row.facts.key)
      }
      wake.paths()
    },
    left(rows) {
      for (const row of rows) {
        window.takeBack(row.message)
        paths.settle(row)
      }
      for (const route of new Set(rows.map(({ facts }) => facts.route))) directory.openRoute(route)
      wake.paths()
      wake.claims()
    },
    stored(rows, hasEvents) {
      window.release(rows.map(({ message }) => message.claim))
      for (const { message } of rows) history.note('stored', message)
      const pools = new Set([...egress.poolNames(), CAPTURE_POOL])
      // Mail of a pool that is gone moves, also while it is under way.
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
    routed(keys) {
      directory.note(keys)
      for (const { waiting, ...key } of keys) directory.noteGone({ ...key, route: UNROUTED }, waiting)
      wake.claims()
    },
    unroutedClaimed(messages) {
      for (const { pool, domain, stream, attempts } of messages) {
        directory.noteGone({ pool, route: UNROUTED, domain, stream, isRetry: attempts > 0 }, 1)
      }
    },
  }
}

function connectionEvents(
  { metrics, onConnectionTls, paths, shaping }: DispatcherParts,
  wake: WakeUps,
): Pick<RowEvents, 'connections' | 'threadDied'> {
  const open = createConnectionCount(metrics)
  return {
    connections(notes, thread) {
      for (const [pathKey, ofPath] of Map.groupBy(notes, (note) => note.pathKey)) {
        const facts = paths.factsOf(pathKey)
        if (facts === undefined || facts.shaped === null) continue
        const { ip } = facts.shaped
        open.note(thread, facts, ofPath)
        for (const note of ofPath) if (note.tls !== null) onConnectionTls(ip, note)
        shaping.noteConnections(
          facts.shaped,
          ofPath.map(({ note }) => note),
        )
        paths.touch(facts)
      }
      wake.paths()
    },
    threadDied(thread) {
      for (const { facts, open: ended } of open.forgetThread(thread)) {
        if (facts.shaped === null) continue
        shaping.noteConnections(
          facts.shaped,
          Array.from({ length: ended }, () => ({ kind: 'ended-well', delivered: 0 })),
        )
        paths.touch(facts)
      }
    },
  }
}
