/**
 * Whether mail may go to an address, and the end of a message that may not: state, bounce and events together.
 */
import type { Database } from 'better-sqlite3'
import { newIdentifier } from '../../base/identifier.ts'
import type { Bounce } from '../../mail/delivery-outcome.ts'
import { bouncedData, suppressedData } from '../../mail/event.ts'
import type { SuppressionReason } from '../suppression-records.ts'
import { createBounceWriter } from './bounces.ts'
import { HAS_ERASED } from './erased-address.ts'
import type { RecordedEvent } from './record-events.ts'

/** What decides, beside the address. */
export interface SuppressionQuestion {
  isTest: boolean
  /** The list the mail belongs to, or null: only scope `all` counts. */
  list: string | null
}

/** Why nothing is sent to this address (in its comparable form), or null. */
export function createSuppressionCheck(
  database: Database,
): (address: string, question: SuppressionQuestion) => SuppressionReason | null {
  const find = database.prepare<[string, number, string], { scope: string; reason: SuppressionReason }>(`
    select scope, reason
    from suppressions
    where address = +? and is_test = +? and scope in ('all', +?)`)
  const findErased = database.prepare<[string, number, string], { scope: string; reason: SuppressionReason }>(`
    select scope, reason
    from suppressions
    where ${HAS_ERASED} and address = erased_address(?) and is_test = ? and scope in ('all', ?)`)
  return (address, { isTest, list }) => {
    const parameters = [address, Number(isTest), list ?? 'all'] as const
    const listed = find.all(...parameters)
    const found = listed.length > 0 ? listed : findErased.all(...parameters)
    return (found.find(({ scope }) => scope === 'all') ?? found[0])?.reason ?? null
  }
}

export interface SuppressedEnd {
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
      {
        ...event, id: newIdentifier('evt', now), kind: 'email.bounced', data: bouncedData(id, recipient, bounce),
      },
      {
        ...event, id: newIdentifier('evt', now), kind: 'email.suppressed', data: suppressedData(id, recipient, reason),
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
