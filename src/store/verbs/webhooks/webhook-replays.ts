/**
 * Replays: a new delivery of the same event and bytes to the same endpoint; many of them in parts, from the oldest on.
 * The latest delivery of an event speaks for it: what was replayed or got through later is not replayed by a repeat.
 */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes, identifierToBytes, newIdentifier } from '../../../base/identifier.ts'
import type { EventKind } from '../../../mail/event.ts'
import type { ReplayedEvent, ReplayWebhooksRequest } from '../../records/webhook-records.ts'
import { firstIdentifierAt, storedIdentifier } from '../tools/stored-identifier.ts'
import { dataIn } from '../events/event-stream.ts'
import { createOwners } from '../events/owners.ts'
import { createEndpointNumber } from './webhook-endpoints.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

/** Deliveries that one part looks at. */
const MOST_READ = 1_000

interface ReplayRow {
  id: Buffer
  messageKey: number | null
  eventNumber: number
  eventId: Buffer
  kind: EventKind
  at: number
  body: string
  /** The body of its own, null: that of the event. */
  ownBody: string | null
  isPending: 0 | 1
}

const COLUMNS = `
  deliveries.id, deliveries.event_seq as eventNumber, events.message_seq as messageKey, events.id as eventId, events.kind, events.at,
  coalesce(deliveries.body, events.body) as body, deliveries.body as ownBody,
  deliveries.state = 'pending' as isPending`
const EVENT = 'cross join events on events.event_seq = deliveries.event_seq'

/** Due at once; `isBehind`: after those that are not. Returns the identifier of the new delivery. */
function createReplayWriter(
  database: Database,
): (row: ReplayRow, endpoint: number, order: { now: number; isBehind: boolean }) => string {
  const add = database.prepare<[Buffer, number, number, number, number, string | null]>(`
    insert into webhook_deliveries (id, endpoint_id, event_seq, state, is_behind, next_at, body)
    values (?, ?, ?, 'pending', ?, ?, ?)`)
  return ({ eventNumber, ownBody }, endpoint, { now, isBehind }) => {
    // A moment later than everything that a replay of many is about.
    const id = newIdentifier('whd', now + 1)
    add.run(storedIdentifier('whd', id), endpoint, eventNumber, Number(isBehind), now, ownBody)
    return id
  }
}

export function createReplays(database: Database) {
  const numberOf = createEndpointNumber(database)
  const find = database.prepare<[number, Buffer], ReplayRow>(
    `select ${COLUMNS}
    from webhook_deliveries as deliveries ${EVENT}
    where deliveries.endpoint_id = ? and deliveries.id = ?`,
  )
  const write = createReplayWriter(database)
  const toReplayed = createReplayedEvents(database)
  const findPart = createPartFinder(database)
  const findLater = database
    .prepare<[number, number, Buffer], number>(
      // Left to itself, SQLite goes through all later deliveries of the endpoint.
      `select 1
      from webhook_deliveries indexed by webhook_deliveries_of_event
      where event_seq = ? and endpoint_id = ? and id > ?
      limit 1`,
    )
    .pluck()

  return {
    replayWebhook(endpointId, id, now) {
      const endpoint = numberOf(endpointId)
      const bytes = identifierToBytes('whd', id)
      const row = endpoint === undefined || bytes === undefined ? undefined : find.get(endpoint, bytes)
      if (endpoint === undefined || row === undefined) return null
      return { id: write(row, endpoint, { now, isBehind: false }), replayed: toReplayed(row) }
    },
    replayWebhooks(request) {
      const { endpointId, now, since, until, kinds, most } = request
      const endpoint = numberOf(endpointId)
      if (endpoint === undefined) return null
      const rows = findPart(endpoint, request)
      const replayed: ReplayedEvent[] = []
      for (const row of rows) {
        if (row.isPending === 1 || row.at < since || row.at > until || kinds?.includes(row.kind) === false) continue
        if (findLater.get(row.eventNumber, endpoint, row.id) !== undefined) continue
        write(row, endpoint, { now, isBehind: true })
        replayed.push(toReplayed(row))
        if (replayed.length === most) return { replayed, after: identifierFromBytes('whd', row.id) }
      }
      const last = rows.length < MOST_READ ? undefined : rows.at(-1)
      return { replayed, after: last === undefined ? null : identifierFromBytes('whd', last.id) }
    },
  } satisfies SomeVerbs
}

function createPartFinder(database: Database): (endpoint: number, request: ReplayWebhooksRequest) => ReplayRow[] {
  const findIn = database.prepare<[number, string, Buffer, Buffer, number], ReplayRow>(`
    select ${COLUMNS}
    from webhook_deliveries as deliveries indexed by webhook_deliveries_ended ${EVENT}
    where deliveries.endpoint_id = ? and deliveries.state = ? and deliveries.state <> 'pending'
      and deliveries.id > ? and deliveries.id < ?
    order by deliveries.id
    limit +?`)
  // Those that wait are left out later: so a part looks at so many rows at most, however many wait.
  const findAll = database.prepare<[number, Buffer, Buffer, number], ReplayRow>(`
    select ${COLUMNS}
    from webhook_deliveries as deliveries ${EVENT}
    where deliveries.endpoint_id = ? and deliveries.id > ? and deliveries.id < ?
    order by deliveries.id
    limit +?`)
  return (endpoint, { now, since, state, after }) => {
    // A delivery is made when its event happened, or later.
    const from = after === null ? firstIdentifierAt(since) : storedIdentifier('whd', after)
    const end = firstIdentifierAt(now + 1)
    return state === 'all'
      ? findAll.all(endpoint, from, end, MOST_READ)
      : findIn.all(endpoint, state, from, end, MOST_READ)
  }
}

function createReplayedEvents(database: Database): (row: ReplayRow) => ReplayedEvent {
  const owners = createOwners(database)
  return ({ messageKey, eventId, kind, body }) => ({
    eventId: identifierFromBytes('evt', eventId),
    kind,
    body,
    owner: owners.askEvent(messageKey, () => dataIn(body))(),
  })
}
