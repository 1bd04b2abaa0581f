/** Whether mail may go to an address, and the end of a message that may not: state, bounce and events together. */
import type { Database } from 'better-sqlite3'
import { newIdentifier } from '../../../base/identifier.ts'
import type { Bounce } from '../../../mail/reply/delivery-outcome.ts'
import { bouncedData, suppressedData } from '../../../mail/event.ts'
import type { SuppressionReason } from '../../records/suppression-records.ts'
import { createBounceWriter } from '../events/record-events.ts'
import { FIND_ERASED } from '../engine/stored-address.ts'
import type { RecordedEvent } from '../events/record-events.ts'

/** What decides, beside the address. */
interface SuppressionQuestion {
  isTest: boolean
  /** The list the mail belongs to, or null: only scope `all` counts. */
  list: string | null
}

/**
 * Why nothing is sent to this address (in its comparable form), or null. The scopes of one address are few, and are
 * chosen from here: of `scope in (…)` SQLite makes a table of its own at each call.
 */
export function createSuppressionCheck(
  database: Database,
): (address: string, question: SuppressionQuestion) => SuppressionReason | null {
  const find = database.prepare<[string, number], ListedScope>(
    'select scope, reason from suppressions where address = +? and is_test = +?',
  )
  const findAnyErased = database.prepare<[], number>(FIND_ERASED).pluck()
  const findErased = database.prepare<[string, number], ListedScope>(
    'select scope, reason from suppressions where address = erased_address(+?) and is_test = +?',
  )
  return (address, { isTest, list }) => {
    const reasonAmong = (listed: readonly ListedScope[]): SuppressionReason | null =>
      (listed.find(({ scope }) => scope === 'all') ?? listed.find(({ scope }) => scope === list))?.reason ?? null
    const reason = reasonAmong(find.all(address, Number(isTest)))
    if (reason !== null || findAnyErased.get() === undefined) return reason
    return reasonAmong(findErased.all(address, Number(isTest)))
  }
}

interface ListedScope {
  scope: string
  reason: SuppressionReason
}

interface SuppressedEnd {
  /** The row of the message. */
  key: number
  id: string
  recipient: string
  reason: SuppressionReason
}

/** Writes the bounce of a message whose row ends as suppressed, and returns the events that go with it. */
export function createSuppressedEnding(database: Database): (end: SuppressedEnd, now: number) => RecordedEvent[] {
  const addBounce = createBounceWriter(database)
  return ({ key, id, recipient, reason }, now) => {
    const bounce = bounceFor(reason)
    addBounce(key, bounce)
    const event = { at: now, messageKey: key }
    return [
      { ...event, id: newIdentifier('evt', now), kind: 'email.bounced', data: bouncedData(id, recipient, bounce) },
      {
        ...event,
        id: newIdentifier('evt', now),
        kind: 'email.suppressed',
        data: suppressedData(id, recipient, reason),
      },
    ]
  }
}

const EXPLANATIONS: Readonly<Record<SuppressionReason, string>> = {
  hard_bounce: 'earlier mail to it bounced for good',
  complaint: 'its owner reported earlier mail as spam',
  unsubscribe: 'its owner unsubscribed',
  manual: 'it was added by hand',
}

/** RFC 3463 §3.8, X.7.1: delivery not authorized. */
const bounceFor = (reason: SuppressionReason): Bounce => ({
  type: 'suppressed',
  category: 'suppressed',
  code: '5.7.1',
  description: `not sent: the address is on the suppression list (${reason}), ${EXPLANATIONS[reason]}`,
})
