/** A message that ended without delivery as a request of its own again: the same mail to the same recipient. */
import type { Database } from 'better-sqlite3'
import { identifierToBytes, newIdentifier } from '../../../base/identifier.ts'
import type { MessageState } from '../../../mail/message.ts'
import { CAPTURE_POOL, isSimulated } from '../../../mail/simulator.ts'
import type { AcceptRequest, NewMessage } from '../../records/accept-records.ts'
import { messageQuery, stateOf, variablesFrom, type MessageRow } from '../messages/message-views.ts'
import { createContentReader } from '../messages/stored-content.ts'

type RepeatRequest = Omit<AcceptRequest, 'now' | 'apiKeyId' | 'idempotency'>

export function createRequestToRepeat(
  database: Database,
): (request: { id: string; now: number }) => RepeatRequest | null {
  const find = database.prepare<[Buffer], MessageRow>(messageQuery('messages.id = ?'))
  const readContent = createContentReader(database)
  return ({ id, now }) => {
    const bytes = identifierToBytes('msg', id)
    const row = bytes === undefined ? undefined : find.get(bytes)
    if (row === undefined || !REPEATABLE.has(stateOf(row, now))) return null
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

const REPEATABLE: ReadonlySet<MessageState> = new Set(['bounced', 'expired'])

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
