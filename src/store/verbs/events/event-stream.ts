/**
 * Events in the order they were recorded, for those who follow along. The number that belongs to a time is found by
 * bisection over the times of identifiers, which are made a little before the event is recorded.
 */
import type { Database } from '../../engine/database.ts'
import { MINUTE } from '../../../base/clock.ts'
import { identifierFromBytes, identifierToBytes } from '../../../base/identifier.ts'
import type { EventKind } from '../../../mail/event.ts'
import { createOwners } from './owners.ts'
import { bisect } from '../tools/pages.ts'
import { identifierTime } from '../tools/stored-identifier.ts'
import { oneColumn } from '../tools/statements.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

/** An event may be recorded so long after its identifier was made. */
const SLACK = MINUTE

export function createEventStream(database: Database) {
  const findAfter = database.prepare<
    [number, number],
    { position: number; id: Buffer; messageKey: number | null; kind: EventKind; body: string | null }
  >(`
    select event_seq as position, id, message_seq as messageKey, kind, body
    from events
    where event_seq > ?
    order by event_seq
    limit +?`)
  const owners = createOwners(database)
  const findEnd = database.prepare<[], number | null>('select max(event_seq) from events').pluck()
  const findNext = database.prepare<[number], { seq: number; id: Buffer }>(`
    select event_seq as seq, id from events where event_seq >= ? order by event_seq limit 1`)
  const findExact = oneColumn(database)<[number, number, Buffer], number>(`
    select event_seq from events where event_seq >= ? and event_seq < ? and id = ?`)
  /** The number of the first event from this time on. */
  const firstFrom = (time: number, end: number): number => bisect(end, findNext, ({ id }) => identifierTime(id) >= time)

  return {
    eventsAfter: (position, limit) =>
      findAfter
        .all(position, limit)
        .map((row) => ({ ...row, owner: owners.askEvent(row.messageKey, () => dataIn(row.body)) }))
        .map(({ id, body, kind, position, owner }) => ({
          position,
          kind,
          eventId: identifierFromBytes('evt', id),
          body: body ?? '',
          owner: owner(),
        })),
    /** The place behind this event, or the present end; never one before `since`. Undefined for what is no identifier. */
    eventPosition(lastEventId, since) {
      const end = (findEnd.get() ?? 0) + 1
      if (lastEventId === null) return end - 1
      const bytes = identifierToBytes('evt', lastEventId)
      if (bytes === undefined) return undefined
      const oldest = firstFrom(since, end) - 1
      const time = identifierTime(bytes)
      if (time < since - SLACK) return oldest
      const exact = findExact.get(firstFrom(time - SLACK, end), firstFrom(time + SLACK, end), bytes)
      return Math.max(oldest, exact ?? firstFrom(time + 1, end) - 1)
    },
  } satisfies SomeVerbs
}

/** Of the body of an event. */
export function dataIn(body: string | null): Record<string, unknown> {
  return body === null ? {} : (JSON.parse(body) as { data: Record<string, unknown> }).data
}
