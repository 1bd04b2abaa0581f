/**
 * Erasing what is stored about an address (messages/README.md "Privacy"). In parts: a message that is replaced is not
 * found again. What is being sent cannot be taken back: it is counted and left. Answers that were kept for idempotency
 * keys are gone within a day.
 */
import type { Database } from '../../engine/database.ts'
import { newIdentifier } from '../../../base/identifier.ts'
import { createSubjectRemoval } from '../lookups/subjects.ts'
import { createCanceling } from '../queue/cancel.ts'
import { createBytesRemoval, createTagsRemoval } from './content-use.ts'
import { createFindSpellings, ERASED, listedForms } from '../tools/stored-address.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import { oneColumn } from '../tools/statements.ts'
import type { Verb } from '../tools/verb-types.ts'

/** `recordUnsubscribe` and `recordReport` have events of removed messages. */
const TOLD_OF_REMOVED = `('email.unsubscribed', 'email.complained')`
const ERASED_DOMAIN = 'erased.invalid'
/** Of one part: each costs up to a millisecond. */
const MOST_MESSAGES = 20

interface FoundRow {
  seq: number
  id: Buffer
  state: string
  contentId: number
  recipient: string
}

export function createSpellingsOf(database: Database): Verb<'spellingsOf'> {
  const finds = [
    createFindSpellings(database, 'messages', 'recipient'),
    createFindSpellings(database, 'traces', 'recipient'),
    createFindSpellings(database, 'suppressions', 'address'),
  ]
  return (address) => [...new Set([...listedForms(address), ...finds.flatMap((find) => find(address))])]
}

export function createEraseRecipient(database: Database): Verb<'eraseSomeOfRecipient'> {
  const find = database.prepare<[string, number, number], FoundRow>(`
    select seq, id, state, content_id as contentId, recipient
    from messages
    where recipient = ? and seq > ?
    order by seq
    limit +?`)
  const cancel = createCanceling(database)
  // What its try leads to is told as of any other; there is no further one.
  const endLifetime = database.prepare<[number, number]>('update messages set expires_at = ? where seq = ?')
  const eraseMessage = createMessageErasure(database)
  const eraseRest = createRestErasure(database)

  return ({ address, after, now }) => {
    const rows = find.all(address, after, MOST_MESSAGES)
    const waiting = rows.filter(({ state }) => state === 'waiting')
    cancel(waiting, now)
    for (const { seq, state } of rows) if (state === 'sending') endLifetime.run(now, seq)
    const ended = rows.filter(({ state }) => state !== 'sending')
    for (const row of ended) eraseMessage(row)
    const isLast = rows.length < MOST_MESSAGES
    return {
      messages: ended.length,
      canceled: waiting.length,
      sending: rows.length - ended.length,
      others: isLast ? eraseRest(address, now) : 0,
      next: isLast ? null : (rows.at(-1)?.seq ?? null),
    }
  }
}

/** The texts in which an address may stand, beside those that are only its. */
function createMessageErasure(database: Database): (row: FoundRow) => void {
  const replaced = [
    'update bounces set description = without_address(description, @address, @erased) where message_seq = @seq',
    'update attempts set reply = without_address(reply, @address, @erased) where message_seq = @seq',
    'update transcripts set dialogue = without_address(dialogue, @address, @erased) where message_seq = @seq',
    `update webhook_attempts set answer = without_address(answer, @address, @erased)
      where delivery_seq in (
        select delivery_seq from events
        cross join webhook_deliveries on webhook_deliveries.event_seq = events.event_seq
        where events.message_seq = @seq)`,
    `update webhook_deliveries set body = without_address(body, @address, @erased)
      where event_seq in (select event_seq from events where message_seq = @seq)`,
    'update events set body = without_address(body, @address, @erased) where message_seq = @seq',
    'update message_data set to_name = null, variables = null where message_seq = @seq',
    'update engagement set client_address = null, user_agent = null where message_seq = @seq',
    `update contents set addressees = without_address(addressees, @address, @erased)
      where content_id = @contentId and addressees is not null`,
    `update messages set recipient = @erased, recipient_domain = '${ERASED_DOMAIN}' where seq = @seq`,
  ].map((statement) => database.prepare<[Record<string, string | number>]>(statement))
  const clear = database.prepare<[number]>(`
    update contents
    set subject = '', addressees = null, attachments = null, metadata = null, headers = null, tags = null,
      unsubscribe_url = iif(unsubscribe_url is null, null, '')
    where content_id = ?`)
  const removeLinks = database.prepare<[number]>('delete from kept_links where content_id = ?')
  // Not all are counted: a batch has thousands.
  const isShared = oneColumn(database)<[number, number], number>(`
    select count(*) > 1 from (select 1 from messages where content_id = ? limit +?) as walked`)
  const removeTags = createTagsRemoval(database)
  const removeSubject = createSubjectRemoval(database)
  const removeBytes = createBytesRemoval(database)

  return ({ seq, contentId, recipient }) => {
    // What was written for one person may name it anywhere.
    if (isShared.get(contentId, 2) === 0) {
      removeTags(contentId)()
      removeSubject(contentId)
      clear.run(contentId)
      removeLinks.run(contentId)
      removeBytes(contentId)
    }
    for (const statement of replaced) statement.run({ seq, contentId, address: recipient, erased: ERASED })
  }
}

/** What is kept of an address beside its messages. */
function createRestErasure(database: Database): (address: string, now: number) => number {
  const removeTraces = database.prepare<[string]>('delete from traces where recipient = ?')
  // Of removed messages: few, as only what their recipients refuse is told of them. Those of messages have been looked through.
  const replaceEvents = [
    `update webhook_attempts set answer = without_address(answer, @address, '${ERASED}')
      where delivery_seq in (
        select delivery_seq from events
        cross join webhook_deliveries on webhook_deliveries.event_seq = events.event_seq
        where events.message_seq is null and events.kind in ${TOLD_OF_REMOVED})`,
    `update webhook_deliveries set body = without_address(body, @address, '${ERASED}')
      where event_seq in (select event_seq from events where message_seq is null and kind in ${TOLD_OF_REMOVED})`,
    `update events set body = without_address(body, @address, '${ERASED}')
      where message_seq is null and kind in ${TOLD_OF_REMOVED}`,
  ].map((statement) => database.prepare<[{ address: string }]>(statement))
  const removeReports = database.prepare<[{ address: string }]>(`
    delete from unmatched_reports
    where lower(sender) = lower(@address) or lower(recipient) = lower(@address)
      or instr(lower(cast(bytes as text)), lower(@address)) > 0
        and without_address(cast(bytes as text), @address, '') <> cast(bytes as text)`)
  // Of an address that was erased before: what it got since takes its place.
  const replaceHidden = database.prepare<[string, string]>(`
    delete from suppressions
    where address = erased_address(?) and exists (
      select 1
      from suppressions as given
      where given.address = ? and given.is_test = suppressions.is_test and given.scope = suppressions.scope
        and given.domain = suppressions.domain)`)
  const hide = database.prepare<[string, string]>(`
    update suppressions set address = erased_address(?), message_id = null where address = ?`)
  const suppress = oneColumn(database)<[Buffer, string, number], string>(`
    insert into suppressions (id, address, is_test, scope, reason, created_at)
    values (?, erased_address(?), 0, 'all', 'manual', ?)
    on conflict (address, is_test, scope, domain) do update set owners = excluded.owners
    returning address`)
  return (address, now) => {
    const removed = removeTraces.run(address).changes + removeReports.run({ address }).changes
    for (const statement of replaceEvents) statement.run({ address })
    replaceHidden.run(address, address)
    const hidden = hide.run(address, address).changes
    const hash = suppress.get(storedIdentifier('sup', newIdentifier('sup', now)), address, now)
    if (hash === '') throw new Error('the store was opened without the key that addresses are erased by')
    return removed + hidden
  }
}
