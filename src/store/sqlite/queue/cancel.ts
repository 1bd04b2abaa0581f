/**
 * What a customer does to messages that wait, and the repeat of one that ended.
 *
 *   waiting -> canceled   cancelMessage, cancelBatch: with its event, never sent
 *   waiting -> waiting    retryNow: due at once, unless the operator holds it
 */
import type { Database } from 'better-sqlite3'
import { identifierFromBytes, identifierToBytes, newIdentifier } from '../../../base/identifier.ts'
import { canceledData } from '../../../mail/event.ts'
import type { CancelResult } from '../../records/lookup-records.ts'
import { UNROUTED, type QueuedRows } from '../../records/queue-records.ts'
import { messageQuery, stateOf, type MessageRow } from '../messages/message-views.ts'
import { createQueuedTally } from './queued-rows.ts'
import { createEventRecorder, type RecordedEvent } from '../events/record-events.ts'

/** A message that waits and is to end as canceled. */
export interface CanceledRow {
  seq: number
  id: Buffer
  recipient: string
}

/** Ends waiting messages as canceled, with their events. */
export function createCanceling(database: Database): (rows: readonly CanceledRow[], now: number) => void {
  const cancel = database.prepare<[number, number]>(
    `update messages set state = 'canceled', final_at = ? where seq = ?`,
  )
  const events = createEventRecorder(database)
  return (rows, now) => {
    if (rows.length === 0) return
    for (const { seq } of rows) cancel.run(now, seq)
    events.record(
      rows.map((row) => canceledEvent(row, now)),
      now,
    )
  }
}

function canceledEvent({ seq, id, recipient }: CanceledRow, now: number): RecordedEvent {
  const data = canceledData(identifierFromBytes('msg', id), recipient)
  return { id: newIdentifier('evt', now), kind: 'email.canceled', at: now, data, messageKey: seq }
}

export function createCancelMessage(database: Database): (request: { id: string; now: number }) => CancelResult | null {
  const find = createMessageFinder(database)
  const cancel = createCanceling(database)
  return ({ id, now }) => {
    const row = find(id)
    if (row === undefined) return null
    if (row.state === 'waiting') cancel([row], now)
    else if (row.state !== 'canceled') return { kind: 'refused', state: stateOf(row, now) }
    return { kind: 'canceled' }
  }
}

export function createCancelBatch(
  database: Database,
): (request: { id: string; now: number }) => { canceled: number; notCanceled: number } | null {
  const findContent = database.prepare<[Buffer], number>('select content_id from batches where id = ?').pluck()
  const findMessages = database.prepare<[number], CanceledRow & { state: string }>(
    'select seq, id, recipient, state from messages where content_id = ?',
  )
  const cancel = createCanceling(database)
  return ({ id, now }) => {
    const bytes = identifierToBytes('bat', id)
    const contentId = bytes === undefined ? undefined : findContent.get(bytes)
    if (contentId === undefined) return null
    const rows = findMessages.all(contentId)
    const waiting = rows.filter(({ state }) => state === 'waiting')
    cancel(waiting, now)
    const canceled = waiting.length + rows.filter(({ state }) => state === 'canceled').length
    return { canceled, notCanceled: rows.length - canceled }
  }
}

export function createRetryNow(database: Database): (request: { id: string; now: number }) => QueuedRows | null {
  const find = createMessageFinder(database)
  const findRoute = database
    .prepare<[number], string>(
      `
      select routes.name
      from messages
      cross join routes on routes.route_id = messages.route_id
      where messages.seq = ?`,
    )
    .pluck()
  const advance = database.prepare<[number, number]>(
    'update messages set next_at = ?, waiting_for = null where seq = ?',
  )
  return ({ id, now }) => {
    const row = find(id)
    if (row === undefined || stateOf(row, now) !== 'deferred') return null
    const tally = createQueuedTally()
    if (row.waitingFor === 'held') return tally.result()
    const nextAt = Math.min(row.nextAt, now)
    advance.run(nextAt, row.seq)
    const { queuePool: pool, domain, stream, recipientDomain, attempts } = row
    const route = findRoute.get(row.seq) ?? UNROUTED
    tally.add({ pool, route, domain, stream, isRetry: attempts > 0 }, recipientDomain, nextAt)
    return tally.result()
  }
}

function createMessageFinder(database: Database): (id: string) => MessageRow | undefined {
  const find = database.prepare<[Buffer], MessageRow>(messageQuery('messages.id = ?'))
  return (id) => {
    const bytes = identifierToBytes('msg', id)
    return bytes === undefined ? undefined : find.get(bytes)
  }
}
