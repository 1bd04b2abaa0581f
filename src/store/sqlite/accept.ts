/**
 * Accepting: a whole checked request becomes its content, its queue rows and their `email.accepted` events, or nothing.
 */
import type { Database } from 'better-sqlite3'
import type { AcceptRequest, NewMessage } from '../records.ts'
import { createQueueNames } from './queue-names.ts'
import { createEventRecorder } from './record-events.ts'
import { createContentWriter } from './stored-content.ts'
import { storedIdentifier } from './stored-identifier.ts'

export function createAcceptMessages(database: Database): (request: AcceptRequest) => void {
  const names = createQueueNames(database)
  const writeContent = createContentWriter(database)
  const events = createEventRecorder(database)
  const addMessage = database.prepare(`
    insert into messages
      (id, state, pool_id, lane_id, content_id, recipient, recipient_domain, next_at, expires_at, created_at)
    values (?, 'waiting', ?, ?, ?, ?, ?, ?, ?, ?)`)
  const addData = database.prepare<[number, string | null, string | null]>(
    'insert into message_data (message_seq, to_name, variables) values (?, ?, ?)',
  )

  return (request) => {
    const { now, expiresAt } = request
    const poolId = names.poolId(request.pool)
    const laneId = names.laneId(request.domain, request.stream)
    const contentId = writeContent(request.content)
    for (const message of request.messages) {
      const id = storedIdentifier('msg', message.id)
      const { address } = message.to
      const { lastInsertRowid } = addMessage.run(
        id, poolId, laneId, contentId, address, message.recipientDomain, now, expiresAt, now,
      )
      const key = Number(lastInsertRowid)
      const variables = variablesText(message)
      if (message.to.name !== null || variables !== null) addData.run(key, message.to.name, variables)
      events.recordPlain('email.accepted', key, now)
    }
  }
}

/** Most messages have none, and then no row. */
function variablesText(message: NewMessage): string | null {
  return Object.keys(message.variables).length === 0 ? null : JSON.stringify(message.variables)
}
