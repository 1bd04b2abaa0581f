/**
 * What became of webhook deliveries: the list of an endpoint's, newest first, one of them with every attempt, and how
 * they are forgotten.
 */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes, identifierToBytes } from '../../../base/identifier.ts'
import type { WebhookAttemptRecord, WebhookDeliveryRecord } from '../../records/webhook-records.ts'
import { createWalk, wrongCursor } from '../tools/pages.ts'
import { identifierTime, firstIdentifierAt } from '../tools/stored-identifier.ts'
import { createEndpointNumber, createSwitchSecrets } from './webhook-endpoints.ts'
import { ask, oneColumn } from '../tools/statements.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'

interface DeliveryRow extends Omit<WebhookDeliveryRecord, 'id' | 'endpointId' | 'eventId' | 'messageId' | 'createdAt'> {
  id: Buffer
  eventId: Buffer
  messageId: Buffer | null
}

const COLUMNS = `
  deliveries.id, events.id as eventId, events.kind, deliveries.state,
  (select id from messages where seq = events.message_seq) as messageId,
  deliveries.attempts + iif(deliveries.state = 'succeeded', 1, 0) as attempts,
  iif(deliveries.state = 'pending', deliveries.next_at, null) as nextAt, deliveries.ended_at as endedAt`

const JOINED = `
  from webhook_deliveries as deliveries
  cross join events on events.event_seq = deliveries.event_seq`

/** Higher than every identifier. */
const LAST = Buffer.alloc(16, 255)

export function createDeliveryLog(database: Database) {
  const numberOf = createEndpointNumber(database)
  const walkAll = createDeliveryWalk(database, '')
  const walkEnded = createDeliveryWalk(database, `and state = @state and state <> 'pending'`)
  const findOfMessage = createFindOfMessage(database)
  const find = database.prepare<[number, Buffer], DeliveryRow>(`
    select ${COLUMNS} ${JOINED} where deliveries.endpoint_id = ? and deliveries.id = ?`)
  const findBody = oneColumn(database)<[number, Buffer], string>(`
    select coalesce(deliveries.body, events.body) ${JOINED} where deliveries.endpoint_id = ? and deliveries.id = ?`)
  const findAttempts = database.prepare<[number, Buffer], WebhookAttemptRecord>(`
    select at, status, duration_milliseconds as durationMilliseconds, error, answer
    from webhook_attempts
    where delivery_seq = (select delivery_seq from webhook_deliveries where endpoint_id = ? and id = ?)
    order by at`)

  return {
    listWebhookDeliveries(request) {
      const { endpointId, state, kind, messageId, limit } = request
      const endpoint = numberOf(endpointId)
      if (endpoint === undefined) return null
      const before = request.after === null ? LAST : cursorBytes(request.after)
      const wanted = { endpoint, state, kind, before }
      const walk = state === null || state === 'pending' ? walkAll : walkEnded
      const { found, next } = messageId === null ? walk(wanted, limit) : findOfMessage(messageId, wanted, limit)
      const rows = found.flatMap((id) => find.get(endpoint, id) ?? [])
      return {
        deliveries: rows.map((row) => toRecord(endpointId, row)),
        next: next === null ? null : identifierFromBytes('whd', next),
      }
    },
    findWebhookDelivery(endpointId, id) {
      const endpoint = numberOf(endpointId)
      const bytes = identifierToBytes('whd', id)
      if (endpoint === undefined || bytes === undefined) return null
      const row = find.get(endpoint, bytes)
      if (row === undefined) return null
      const body = findBody.get(endpoint, bytes) ?? ''
      return { ...toRecord(endpointId, row), body, log: findAttempts.all(endpoint, bytes) }
    },
  } satisfies SomeVerbs
}

function cursorBytes(cursor: string): Buffer {
  const bytes = identifierToBytes('whd', cursor)
  if (bytes === undefined) throw wrongCursor()
  return bytes
}

type Wanted = { endpoint: number; state: string | null; kind: string | null; before: Buffer }

function createDeliveryWalk(database: Database, lead: string) {
  const source = `
    select id, state, event_seq
    from webhook_deliveries
    where endpoint_id = @endpoint and id < @before ${lead}
    order by id desc`
  const condition = `
    (@state is null or walked.state = @state)
    and (@kind is null or @kind = (select kind from events where event_seq = walked.event_seq))`
  return createWalk<Buffer>(database, 'id', source, condition)
}

/** Those of one message are few. */
function createFindOfMessage(database: Database) {
  const find = database.prepare<[Buffer, number], { id: Buffer; state: string; kind: string }>(`
    select deliveries.id, deliveries.state, events.kind
    from messages
    cross join events on events.message_seq = messages.seq
    cross join webhook_deliveries as deliveries on deliveries.event_seq = events.event_seq
    where messages.id = ? and deliveries.endpoint_id = ?`)
  return (messageId: string, { endpoint, state, kind, before }: Wanted, limit: number) => {
    const bytes = identifierToBytes('msg', messageId)
    const ids = (bytes === undefined ? [] : find.all(bytes, endpoint))
      .filter((row) => (state === null || row.state === state) && (kind === null || row.kind === kind))
      .map(({ id }) => id)
      .filter((id) => id.compare(before) < 0)
      .sort((left, right) => right.compare(left))
    const found = ids.slice(0, limit)
    return { found, next: ids.length > limit ? (found.at(-1) ?? null) : null }
  }
}

function toRecord(endpointId: string, { id, eventId, messageId, ...row }: DeliveryRow): WebhookDeliveryRecord {
  return {
    ...row,
    endpointId,
    id: identifierFromBytes('whd', id),
    eventId: identifierFromBytes('evt', eventId),
    messageId: messageId === null ? null : identifierFromBytes('msg', messageId),
    createdAt: identifierTime(id),
  }
}

/**
 * Forgetting webhook deliveries whose time is over, with their attempts: those that ended long enough ago, those that
 * have been due for as long at a disabled endpoint, and all of removed endpoints, which go themselves at last. So many
 * at most at a time. What is being posted stays until its lease is over; the number of a deleted row may be given
 * again, so results name their delivery. With one that succeeded go those in whose place it was made: nothing would tell
 * any more that their event got through. Returns how many deliveries it deleted.
 */
export function createPruneWebhooks(database: Database): Verb<'pruneWebhooks'> {
  const switchSecrets = createSwitchSecrets(database)
  const findEndpoints = database.prepare<[], { number: number; isRemoved: number; isDisabled: number }>(`
    select endpoint_id as number, removed_at is not null as isRemoved, status = 'disabled' as isDisabled
    from webhook_endpoints`)
  const findEnded = oneColumn(database)<[number, string, Buffer, number, number], number>(`
    select delivery_seq
    from webhook_deliveries
    where endpoint_id = ? and state = ? and state <> 'pending' and id < ? and ended_at < ?
    limit +?`)
  const findReplaced = oneColumn(database)<[number], number>(`
    select earlier.delivery_seq
    from webhook_deliveries as gone
    cross join webhook_deliveries as earlier indexed by webhook_deliveries_of_event on earlier.event_seq = gone.event_seq
    where gone.delivery_seq = +? and earlier.endpoint_id = gone.endpoint_id and earlier.id < gone.id
      and earlier.state in ('failed', 'skipped')`)
  const findDue = oneColumn(database)<[number, number, number, number], number>(`
    select delivery_seq
    from webhook_deliveries
    where state = 'pending' and endpoint_id = ? and is_behind = ? and next_at < ?
    limit +?`)
  const findOfEndpoint = oneColumn(database)<[number, number, number], number>(`
    select delivery_seq
    from webhook_deliveries
    where endpoint_id = ? and (lease_epoch is null or next_at <= ?)
    limit +?`)
  const forgetAttempts = database.prepare<[number]>('delete from webhook_attempts where delivery_seq = ?')
  const forgetDelivery = database.prepare<[number]>('delete from webhook_deliveries where delivery_seq = ?')
  const forgetEndpoint = database.prepare<[number]>(`
    delete from webhook_endpoints
    where endpoint_id = ?
      and not exists (select 1 from webhook_deliveries where endpoint_id = webhook_endpoints.endpoint_id)`)

  return ({ now, succeededBefore, failedBefore, limit }) => {
    switchSecrets(now)
    let left = limit
    const forget = (keys: readonly number[]): void => {
      for (const key of keys) {
        forgetAttempts.run(key)
        forgetDelivery.run(key)
      }
      left = Math.max(0, left - keys.length)
    }
    const forgetEnded = (number: number, state: string, before: number): void =>
      // What was made later has not ended before.
      forget(findEnded.all(number, state, firstIdentifierAt(before), before, left))
    const hasAny = (number: number, state: string): boolean =>
      findEnded.all(number, state, LAST, Number.MAX_SAFE_INTEGER, 1).length > 0
    const forgetSucceeded = (number: number): void => {
      const gone = findEnded.all(number, 'succeeded', firstIdentifierAt(succeededBefore), succeededBefore, left)
      const mayReplace = hasAny(number, 'failed') || hasAny(number, 'skipped')
      const replaced = mayReplace ? gone.map((key) => ask(findReplaced, key)) : []
      forget([...gone, ...new Set(replaced.flatMap((rows) => rows()))])
    }

    for (const { number, isRemoved, isDisabled } of findEndpoints.all()) {
      if (isRemoved === 0) {
        forgetSucceeded(number)
        forgetEnded(number, 'failed', failedBefore)
        forgetEnded(number, 'skipped', failedBefore)
        // Nobody claims them. When they were under way as it was disabled, their lease was over as long ago.
        for (const isBehind of isDisabled === 1 ? [0, 1] : []) {
          forget(findDue.all(number, isBehind, failedBefore, left))
        }
      } else {
        forget(findOfEndpoint.all(number, now, left))
        forgetEndpoint.run(number)
      }
    }
    return limit - left
  }
}
