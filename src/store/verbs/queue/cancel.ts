/**
 * What a customer does to messages that wait, and the repeat of one that ended.
 *
 *   waiting -> canceled   cancelMessage, cancelBatch: with its event, never sent; what may have arrived waits on
 *   waiting -> waiting    retryNow: due at once, unless the operator holds it
 */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes, newIdentifier } from '../../../base/identifier.ts'
import { canceledData } from '../../../mail/event.ts'
import { UNROUTED } from '../../records/queue-records.ts'
import { messageQuery, stateOf, type MessageRow, variablesFrom } from '../messages/message-views.ts'
import { createQueuedTally } from './queue-names.ts'
import { createEventRecorder, newEvent } from '../events/record-events.ts'
import { oneColumn } from '../tools/statements.ts'
import type { MessageState } from '../../../mail/message.ts'
import { CAPTURE_POOL, isSimulated } from '../../../mail/simulator.ts'
import type { NewMessage } from '../../records/accept-records.ts'
import { createContentReader } from '../messages/stored-content.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'
import { ERASED } from '../tools/stored-address.ts'
import { getNamed } from '../tools/stored-identifier.ts'

const REPEATABLE: ReadonlySet<MessageState> = new Set(['bounced', 'expired'])

/** A message that waits and is to end as canceled. */
export interface CanceledRow {
  seq: number
  id: Buffer
  recipient: string
}

/** Ends waiting messages as canceled, with their events. */
export function createCanceling(database: Database): (rows: readonly CanceledRow[], now: number) => void {
  const cancel = database.prepare<[number, number]>(`
    update messages set state = 'canceled', final_at = ? where seq = ?`)
  const events = createEventRecorder(database)
  return (rows, now) => {
    if (rows.length === 0) return
    for (const { seq } of rows) cancel.run(now, seq)
    const happened = rows.map(({ seq, id, recipient }) =>
      newEvent('email.canceled', canceledData(identifierFromBytes('msg', id), recipient), seq, now),
    )
    events.record(happened, now)
  }
}

export function createCustomerActions(database: Database) {
  const find = createMessageFinder(database)
  const cancel = createCanceling(database)
  const findContent = database.prepare<[Buffer], number>('select content_id from batches where id = ?').pluck()
  const findMessages = database.prepare<[number], CanceledRow & { state: string; possibleDuplicate: number }>(`
    select seq, id, recipient, state, possible_duplicate as possibleDuplicate from messages where content_id = ?`)
  const findRoute = oneColumn(database)<[number], string>(`
    select routes.name
    from messages
    cross join routes on routes.route_id = messages.route_id
    where messages.seq = ?`)
  const advance = database.prepare<[number, number]>(`
    update messages set next_at = ?, waiting_for = null where seq = ?`)

  return {
    cancelMessage(id, now) {
      const row = find(id)
      if (row === undefined) return null
      if (row.state !== 'waiting' && row.state !== 'canceled') return { kind: 'refused', state: stateOf(row, now) }
      // Also when an operator, a purge or an erasure has canceled it.
      if (row.possibleDuplicate === 1) return { kind: 'uncertain' }
      if (row.state === 'waiting') cancel([row], now)
      return { kind: 'canceled' }
    },
    cancelBatch(id, now) {
      const contentId = getNamed(findContent, 'bat', id)
      if (contentId === undefined) return null
      const rows = findMessages.all(contentId)
      const unsent = rows.filter(({ possibleDuplicate }) => possibleDuplicate === 0)
      const waiting = unsent.filter(({ state }) => state === 'waiting')
      cancel(waiting, now)
      const canceled = waiting.length + unsent.filter(({ state }) => state === 'canceled').length
      return { canceled, notCanceled: rows.length - canceled }
    },
    retryNow(id, now) {
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
    },
  } satisfies SomeVerbs
}

function createMessageFinder(database: Database): (id: string) => MessageRow | undefined {
  const find = database.prepare<[Buffer], MessageRow>(messageQuery('messages.id = +?'))
  return (id) => getNamed(find, 'msg', id)
}

/** A message that ended without delivery as a request of its own again: the same mail to the same recipient. */
export function createRequestToRepeat(database: Database): Verb<'requestToRepeat'> {
  const find = database.prepare<[Buffer], MessageRow>(messageQuery('messages.id = +?'))
  const readContent = createContentReader(database)
  return (id, now) => {
    const row = getNamed(find, 'msg', id)
    // Of an erased recipient neither the address nor the variables are known.
    if (row === undefined || row.recipient === ERASED || !REPEATABLE.has(stateOf(row, now))) return null
    const content = readContent(row.contentId)
    if (content === undefined) return null
    return {
      isTest: row.isTest === 1,
      domain: row.domain,
      pool: row.pool,
      stream: row.stream,
      sendAt: null,
      content,
      messages: [messageOf(row, now)],
      batch: null,
      retryOf: id,
    }
  }
}

function messageOf(row: MessageRow, now: number): NewMessage {
  return {
    id: newIdentifier('msg', now),
    to: { name: row.toName, address: row.recipient },
    recipientDomain: row.recipientDomain,
    variables: variablesFrom(row.variables),
    expiresAt: now + row.expiresAt - (row.sendAt ?? row.createdAt),
    isCaptured: row.queuePool === CAPTURE_POOL,
    // It was sent once: what it stands for does not suppress.
    ...(isSimulated(row.recipientDomain) ? { simulatedSuppression: null } : {}),
  }
}
