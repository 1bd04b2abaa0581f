/**
 * Writes events with everything that follows from them: the bytes every endpoint gets, and one webhook delivery for
 * each enabled endpoint that asked for this kind. Always part of the verb that changes the state: there is no state
 * without its event and no event without its state.
 */
import type { Database } from 'better-sqlite3'
import { newIdentifier } from '../../base/identifier.ts'
import { eventBody, isSubscribed } from '../../mail/event.ts'
import type { ServiceEvent } from '../../mail/event.ts'
import { storedIdentifier } from './stored-identifier.ts'

export interface RecordedEvent extends ServiceEvent {
  /** The message it belongs to, or null: an event of no message. */
  messageKey: number | null
}

export interface EventRecorder {
  /** Events of one verb; the endpoints are read once for all of them. `now`: when a delivery is due. */
  record(events: readonly RecordedEvent[], now: number): void
  /** A line of the timeline without data, such as `email.accepted`. */
  recordPlain(kind: ServiceEvent['kind'], messageKey: number, at: number): void
}

interface EndpointRow {
  endpointId: number
  events: string
}

export function createEventRecorder(database: Database): EventRecorder {
  const addEvent = database.prepare<[Buffer, number | null, string, number, string | null]>(
    'insert into events (id, message_seq, kind, at, body) values (?, ?, ?, ?, ?)',
  )
  const findEndpoints = database.prepare<[], EndpointRow>(
    `select endpoint_id as endpointId, events from webhook_endpoints where status = 'enabled'`,
  )
  const addDelivery = database.prepare<[Buffer, number, number | bigint, number]>(
    `insert into webhook_deliveries (id, endpoint_id, event_seq, state, next_at) values (?, ?, ?, 'pending', ?)`,
  )

  return {
    record(events, now) {
      const endpoints = findEndpoints.all().map(({ endpointId, events: kinds }) => ({
        endpointId,
        kinds: JSON.parse(kinds) as string[],
      }))
      for (const event of events) {
        const eventId = storedIdentifier('evt', event.id)
        const { lastInsertRowid } = addEvent.run(eventId, event.messageKey, event.kind, event.at, eventBody(event))
        for (const { endpointId, kinds } of endpoints) {
          if (!isSubscribed(kinds, event.kind)) continue
          addDelivery.run(storedIdentifier('whd', newIdentifier('whd', now)), endpointId, lastInsertRowid, now)
        }
      }
    },
    recordPlain(kind, messageKey, at) {
      addEvent.run(storedIdentifier('evt', newIdentifier('evt', at)), messageKey, kind, at, null)
    },
  }
}
