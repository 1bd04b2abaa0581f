/**
 * Writes events with everything that follows from them: the bytes every endpoint gets, and one webhook delivery for
 * each endpoint that asked for this kind and reaches whom the event belongs to, skipped while it is disabled. Always part of the verb that changes the state:
 * there is no state without its event and no event without its state.
 */
import type { Database } from '../../engine/database.ts'
import { newIdentifier, newIdentifierBytes } from '../../../base/identifier.ts'
import { eventBody, isSubscribed, type ServiceEvent } from '../../../mail/event.ts'
import { reaches, type Reach } from '../../../mail/reach.ts'
import type { IncludedField } from '../../records/webhook-records.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import type { Bounce } from '../../../mail/reply/delivery-outcome.ts'
import { ask, askAhead } from '../tools/statements.ts'
import type { Owner } from '../../../mail/reach.ts'
import { createOwners, OF_SERVER } from './owners.ts'

/** Kinds that tell what a server answered. */
const ANSWERED = ['email.delivered', 'email.bounced', 'email.deferred']

export interface RecordedEvent extends ServiceEvent {
  /** The message it belongs to, or null: an event of no message. */
  messageKey: number | null
  /** true: what a machine did, told only to endpoints that include it. */
  isMachine?: boolean
}

interface Endpoint {
  number: number
  isEnabled: boolean
  kinds: string[]
  include: IncludedField[]
  reach: Reach
}

/** What happens to a message now. */
export function newEvent(
  kind: ServiceEvent['kind'],
  data: ServiceEvent['data'],
  messageKey: number | null,
  now: number,
): RecordedEvent {
  return { id: newIdentifier('evt', now), kind, at: now, data, messageKey }
}

export function createEventRecorder(database: Database) {
  const addEvent = database.prepare<[Buffer, number | null, string, number, string | null]>(`
    insert into events (id, message_seq, kind, at, body) values (?, ?, ?, ?, ?)`)
  const askEndpoints = createEndpointReader(database)
  const addDelivery = database.prepare(`
    insert into webhook_deliveries (id, endpoint_id, event_seq, state, next_at, ended_at, body)
    values (?, ?, ?, ?, ?, ?, ?)`)
  const askExtras = createAskExtras(database)
  const owners = createOwners(database)

  /** Asks what will be needed, for events of these messages among others, before the verb writes. */
  const begin = (messageKeys: readonly number[]) => {
    const askedEndpoints = askEndpoints()
    const asked = new Map<number | null, () => Owner>(messageKeys.map((key) => [key, owners.askAhead(key)]))
    /** Events of one verb; the endpoints are read once for all of them. `now`: when a delivery is due. */
    return (events: readonly RecordedEvent[], now: number): void => {
      const endpoints = askedEndpoints()
      const wanted = events.map((event) => endpoints.filter((endpoint) => isWanted(event, endpoint)))
      // Everything is asked before anything is written.
      const owner = events.map(({ messageKey, data }, index) =>
        wanted[index]?.length === 0 ? undefined : (asked.get(messageKey) ?? owners.askEvent(messageKey, () => data)),
      )
      const extras = events.map((event, index) =>
        wanted[index]?.some(({ include }) => include.length > 0) === true ? askExtras(event) : undefined,
      )
      for (const [index, event] of events.entries()) {
        const eventId = storedIdentifier('evt', event.id)
        const { lastInsertRowid } = addEvent.run(eventId, event.messageKey, event.kind, event.at, eventBody(event))
        for (const { number, isEnabled, include, reach } of wanted[index] ?? []) {
          if (!reaches(reach, owner[index]?.() ?? OF_SERVER)) continue
          const body = include.length === 0 ? null : (extras[index]?.(include) ?? null)
          const id = newIdentifierBytes(now)
          if (isEnabled) addDelivery.run(id, number, lastInsertRowid, 'pending', now, null, body)
          else addDelivery.run(id, number, lastInsertRowid, 'skipped', now, now, body)
        }
      }
    }
  }

  return {
    begin,
    record: (events: readonly RecordedEvent[], now: number): void => begin([])(events, now),
    /** A line of the timeline without data, such as `email.accepted`. */
    recordPlain(kind: ServiceEvent['kind'], messageKey: number, at: number): void {
      addEvent.run(newIdentifierBytes(at), messageKey, kind, at, null)
    },
  }
}

function isWanted({ kind, isMachine }: RecordedEvent, { kinds, include }: Endpoint): boolean {
  return isSubscribed(kinds, kind) && (isMachine !== true || include.includes('machine'))
}

interface EndpointRow {
  number: number
  status: string
  events: string
  include: string
  isTest: number | null
  domains: string
}

/** What the rows hold is parsed again only when it is another text: nothing has to be told of a change. */
function createEndpointReader(database: Database): () => () => Endpoint[] {
  const find = database.prepare<[], EndpointRow>(`
    select endpoint_id as number, status, events, include, is_test as isTest, domains
    from webhook_endpoints
    where removed_at is null
    order by endpoint_id`)
  const parsed = new Map<number, { row: EndpointRow; endpoint: Endpoint }>()
  const read = (rows: readonly EndpointRow[]): Endpoint[] => {
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
  return () => {
    const rows = askAhead(find)
    return () => read(rows())
  }
}

/** Also another endpoint may have the number: SQLite gives that of a removed one again. */
function isSameRow(left: EndpointRow, right: EndpointRow): boolean {
  const isSame = (column: keyof EndpointRow): boolean => left[column] === right[column]
  return isSame('status') && isSame('events') && isSame('include') && isSame('isTest') && isSame('domains')
}

function endpointOf({ number, status, events, include, isTest, domains }: EndpointRow): Endpoint {
  return {
    number,
    isEnabled: status === 'enabled',
    kinds: JSON.parse(events) as string[],
    include: JSON.parse(include) as IncludedField[],
    reach: { isTest: isTest === null ? null : isTest === 1, domains: JSON.parse(domains) as string[] },
  }
}

/** Why a message ended without delivery. Written once for each message, with the change of its state. */
export function createBounceWriter(database: Database): (messageKey: number, bounce: Bounce) => void {
  const add = database.prepare<[number, string, string, string, string]>(`
    insert into bounces (message_seq, type, category, code, description) values (?, ?, ?, ?, ?)`)
  return (messageKey, { type, category, code, description }) => {
    add.run(messageKey, type, category, code, description)
  }
}

interface ExtrasRow {
  tags: string | null
  metadata: string | null
  ip: string | null
  reply: string | null
  category: string | null
  late: number | null
  description: string | null
}

interface EventOfMessage extends ServiceEvent {
  messageKey: number | null
}

/**
 * The bytes for an endpoint that asked for more than the standard fields (`include`, http/README.md "Webhooks"): read
 * where the event is recorded, in its transaction, behind everything that the verb wrote. Fields that an event does not
 * have are left out; what is no event of a message has none. null: the standard bytes.
 */
function createAskExtras(database: Database) {
  const find = database.prepare<[number], ExtrasRow>(`
    select
      contents.tags, contents.metadata, bounces.category, bounces.late, bounces.description,
      (select ip from attempts where message_seq = messages.seq order by at desc limit 1) as ip,
      (select reply from attempts where message_seq = messages.seq order by at desc limit 1) as reply
    from messages
    cross join contents on contents.content_id = messages.content_id
    left join bounces on bounces.message_seq = messages.seq
    where messages.seq = ?`)
  return (event: EventOfMessage) => {
    const rows = event.messageKey === null ? undefined : ask(find, event.messageKey)
    return (include: readonly IncludedField[]): string | null => {
      const row = rows?.()[0]
      return row === undefined ? null : bodyWith(event, row, include)
    }
  }
}

function bodyWith(event: EventOfMessage, row: ExtrasRow, include: readonly IncludedField[]): string | null {
  const extras = extrasOf(event, row).filter(([name, value]) => value !== null && include.includes(name))
  if (extras.length === 0) return null
  return eventBody({ ...event, data: { ...event.data, ...Object.fromEntries(extras) } })
}

function extrasOf({ kind }: EventOfMessage, row: ExtrasRow): [IncludedField, object | string | null][] {
  const isAnswer = ANSWERED.includes(kind)
  const isBounce = kind === 'email.bounced'
  // What a report brought later is the answer then, and not what was said to the attempt.
  const answer = isBounce && row.late === 1 ? row.description : row.reply
  return [
    ['tags', objectOf(row.tags)],
    ['metadata', objectOf(row.metadata)],
    ['ip', isAnswer || kind === 'email.complained' ? row.ip : null],
    ['smtp_response', isAnswer ? answer : null],
    ['category', isBounce ? row.category : null],
  ]
}

function objectOf(json: string | null): object {
  return json === null ? {} : (JSON.parse(json) as object)
}
