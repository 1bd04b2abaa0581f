/**
 * Events of a message, or of none, go together with their webhook deliveries, when none of these waits or is a dead
 * letter: those have times of their own. The newest event stays, so that followers of the stream never meet its number
 * again.
 */
import type { Database } from 'better-sqlite3'
import type { ForgetRequest, ForgetStep } from '../../records/retention-records.ts'
import { walkOldest, type AgedRow } from './walk-oldest.ts'

interface EventRemoval {
  /** Whether all events of this message may go. */
  mayGo(messageSeq: number): boolean
  /** Returns how many rows went. */
  remove(messageSeq: number): number
}

export function createEventRemoval(database: Database): EventRemoval {
  const findEvents = database
    .prepare<[number], number>('select event_seq from events where message_seq = ? order by event_seq')
    .pluck()
  const one = createOneEventRemoval(database)
  return {
    mayGo: (messageSeq) => findEvents.all(messageSeq).every(one.mayGo),
    remove: (messageSeq) => findEvents.all(messageSeq).reduce((sum, event) => sum + one.remove(event), 0),
  }
}

function createOneEventRemoval(database: Database) {
  const findNewest = database.prepare<[], number | null>('select max(event_seq) from events').pluck()
  const findHolder = database
    .prepare<[number], 1>(
      `
      select 1 from webhook_deliveries where event_seq = ? and state in ('pending', 'failed') limit 1`,
    )
    .pluck()
  const findDeliveries = database
    .prepare<[number], number>('select delivery_seq from webhook_deliveries where event_seq = ?')
    .pluck()
  const removeAttempts = database.prepare<[number]>('delete from webhook_attempts where delivery_seq = ?')
  const removeDelivery = database.prepare<[number]>('delete from webhook_deliveries where delivery_seq = ?')
  const removeEvent = database.prepare<[number]>('delete from events where event_seq = ?')
  return {
    mayGo: (event: number): boolean => findHolder.get(event) === undefined && event !== findNewest.get(),
    remove(event: number): number {
      let removed = 1
      for (const delivery of findDeliveries.all(event)) {
        removed += removeAttempts.run(delivery).changes + removeDelivery.run(delivery).changes
      }
      removeEvent.run(event)
      return removed
    },
  }
}

/** Events of no message, such as those of domains, by their own time. */
export function createForgetEvents(database: Database): (request: ForgetRequest) => ForgetStep {
  const findNext = database.prepare<[number], AgedRow>(`
    select event_seq as seq, at
    from events
    where message_seq is null and event_seq > ?
    order by event_seq
    limit 1`)
  const one = createOneEventRemoval(database)
  return (request) =>
    walkOldest(
      request,
      (after) => findNext.get(after),
      ({ seq }) => (one.mayGo(seq) ? one.remove(seq) : 0),
    )
}
