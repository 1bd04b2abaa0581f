/**
 * A recipient leaves the list of a mail: the address goes onto the suppression list of the mail's mode with the list as
 * its scope, and the event goes out, together (http/README.md "Unsubscribe").
 *
 * The event goes out once for a message, and again when the address had been taken off the suppression list meanwhile.
 * Simulated recipients get it and are never suppressed (http/README.md "Simulated recipients"). Of a removed message
 * its trace is enough: the event then goes out whenever the address comes onto the list.
 */
import type { Database } from 'better-sqlite3'
import { newIdentifier } from '../../../base/identifier.ts'
import { unsubscribedData } from '../../../mail/event.ts'
import { isSimulated } from '../../../mail/simulator.ts'
import type { RecordUnsubscribeRequest, UnsubscribeResult } from '../../records/engagement-records.ts'
import { createEventRecorder } from '../events/record-events.ts'
import { storedIdentifier } from '../engine/stored-identifier.ts'
import { createSuppressionWriter } from '../suppressions/suppressions.ts'

interface ListedMessage {
  /** null: it was removed. */
  seq: number | null
  recipient: string
  recipientDomain: string
  list: string | null
  isTest: number
}

export function createRecordUnsubscribe(database: Database): (request: RecordUnsubscribeRequest) => UnsubscribeResult {
  const findMessage = database.prepare<[Buffer], ListedMessage>(`
    select
      messages.seq, messages.recipient, messages.recipient_domain as recipientDomain,
      contents.unsubscribe_list as list, contents.is_test as isTest
    from messages
    cross join contents on contents.content_id = messages.content_id
    where messages.id = ?`)
  const findTrace = database.prepare<[Buffer], ListedMessage>(`
    select
      null as seq, traces.recipient, substr(traces.recipient, instr(traces.recipient, '@') + 1) as recipientDomain,
      contents.unsubscribe_list as list, contents.is_test as isTest
    from traces
    cross join contents on contents.content_id = traces.content_id
    where traces.id = ?`)
  const addReport = database.prepare<[number, number]>(
    `insert into reports (message_seq, kind, at) values (?, 'unsubscribe', ?) on conflict do nothing`,
  )
  const addSuppression = createSuppressionWriter(database)
  const events = createEventRecorder(database)

  return ({ messageId, now }) => {
    const id = storedIdentifier('msg', messageId)
    const message = findMessage.get(id) ?? findTrace.get(id)
    if (message === undefined || message.list === null) return { kind: 'unknown' }
    const { seq: messageKey, recipient, recipientDomain, list, isTest } = message
    const isSuppressed =
      !isSimulated(recipientDomain) &&
      addSuppression({
        id: newIdentifier('sup', now),
        email: recipient,
        reason: 'unsubscribe',
        scope: list,
        isTest: isTest === 1,
        messageId,
        createdAt: now,
      })
    const isFirst = messageKey !== null && addReport.run(messageKey, now).changes === 1
    if (!isFirst && !isSuppressed) return { kind: 'repeated' }
    const data = unsubscribedData(messageId, recipient, list)
    events.record([{ id: newIdentifier('evt', now), kind: 'email.unsubscribed', at: now, data, messageKey }], now)
    return { kind: 'unsubscribed' }
  }
}
