/**
 * Writes events with everything that follows from them: the bytes every endpoint gets, and one webhook delivery for
 * each endpoint that asked for this kind, skipped while it is disabled. Always part of the verb that changes the state:
 * there is no state without its event and no event without its state.
 */
import type { Database } from 'better-sqlite3'
import { newIdentifierBytes } from '../../../base/identifier.ts'
import { eventBody, isSubscribed, type ServiceEvent } from '../../../mail/event.ts'
import type { IncludedField } from '../../records/webhook-records.ts'
import { createBodyWithExtras } from './event-extras.ts'
import { storedIdentifier } from '../engine/stored-identifier.ts'

export interface RecordedEvent extends ServiceEvent {
  /** The message it belongs to, or null: an event of no message. */
  messageKey: number | null
  /** true: what a machine did, told only to endpoints that include it. */
  isMachine?: boolean
}

interface EventRecorder {
  /** Events of one verb; the endpoints are read once for all of them. `now`: when a delivery is due. */
  record(events: readonly RecordedEvent[], now: number): void
  /** A line of the timeline without data, such as `email.accepted`. */
  recordPlain(kind: ServiceEvent['kind'], messageKey: number, at: number): void
}

interface Endpoint {
  number: number
  isEnabled: boolean
  kinds: string[]
  include: IncludedField[]
}

export function createEventRecorder(database: Database): EventRecorder {
  const addEvent = database.prepare<[Buffer, number | null, string, number, string | null]>(
    'insert into events (id, message_seq, kind, at, body) values (?, ?, ?, ?, ?)',
  )
  const readEndpoints = createEndpointReader(database)
  const addDelivery = database.prepare(`
    insert into webhook_deliveries (id, endpoint_id, event_seq, state, next_at, ended_at, body)
    values (?, ?, ?, ?, ?, ?, ?)`)
  const bodyWithExtras = createBodyWithExtras(database)

  return {
    record(events, now) {
      const endpoints = readEndpoints()
      for (const event of events) {
        const eventId = storedIdentifier('evt', event.id)
        const { lastInsertRowid } = addEvent.run(eventId, event.messageKey, event.kind, event.at, eventBody(event))
        for (const endpoint of endpoints) {
          if (!isTold(event, endpoint)) continue
          const { number, isEnabled, include } = endpoint
          const body = include.length === 0 ? null : bodyWithExtras(event, include)
          const id = newIdentifierBytes(now)
          if (isEnabled) addDelivery.run(id, number, lastInsertRowid, 'pending', now, null, body)
          else addDelivery.run(id, number, lastInsertRowid, 'skipped', now, now, body)
        }
      }
    },
    recordPlain(kind, messageKey, at) {
      addEvent.run(newIdentifierBytes(at), messageKey, kind, at, null)
    },
  }
}

function isTold({ kind, isMachine }: RecordedEvent, { kinds, include }: Endpoint): boolean {
  return isSubscribed(kinds, kind) && (isMachine !== true || include.includes('machine'))
}

interface EndpointRow {
  number: number
  status: string
  events: string
  include: string
}

/** What the rows hold is parsed again only when it is another text: nothing has to be told of a change. */
function createEndpointReader(database: Database): () => Endpoint[] {
  const find = database.prepare<[], EndpointRow>(
    'select endpoint_id as number, status, events, include from webhook_endpoints where removed_at is null',
  )
  const parsed = new Map<number, { row: EndpointRow; endpoint: Endpoint }>()
  return () => {
    const rows = find.all()
    // Those of removed endpoints.
    if (parsed.size > rows.length) parsed.clear()
    return rows.map((row) => {
      const known = parsed.get(row.number)
      if (known !== undefined && isSameRow(known.row, row)) return known.endpoint
      const endpoint = endpointOf(row)
      parsed.set(row.number, { row, endpoint })
      return endpoint
    })
  }
}

function isSameRow(left: EndpointRow, right: EndpointRow): boolean {
  return left.status === right.status && left.events === right.events && left.include === right.include
}

function endpointOf({ number, status, events, include }: EndpointRow): Endpoint {
  return {
    number,
    isEnabled: status === 'enabled',
    kinds: JSON.parse(events) as string[],
    include: JSON.parse(include) as IncludedField[],
  }
}
