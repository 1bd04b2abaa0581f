/**
 * The events that an outcome brings; `email.attempted` is the store's. `recipient` is the address as it was given, and
 * nothing here has an effect.
 */
import { unreachable } from '../../base/errors.ts'
import { newIdentifier } from '../../base/identifier.ts'
import { bouncedData, deferredData, deliveredData } from '../../mail/event.ts'
import type { ServiceEvent } from '../../mail/event.ts'
import type { ClaimedMessage } from '../../store/records/records.ts'
import type { Judgement } from './judge-reply.ts'

export interface OutcomeFacts {
  message: ClaimedMessage
  judgement: Judgement
  /** Mailbox provider, once known. */
  isp: string | null
  now: number
}

/** As much as a bounce says (http/README.md "Events"). */
const MOST_DESCRIPTION_CHARACTERS = 1_000

export function eventsOf({ message, judgement, isp, now }: OutcomeFacts): ServiceEvent[] {
  const { outcome, reply } = judgement
  const { id, recipient, recipientDomain } = message
  const event = (kind: ServiceEvent['kind'], data: Record<string, string>): ServiceEvent => ({
    id: newIdentifier('evt', now),
    kind,
    at: now,
    data,
  })
  switch (outcome.kind) {
    case 'delivered':
      return [event('email.delivered', deliveredData(id, recipient, isp ?? recipientDomain))]
    case 'bounced':
    case 'expired':
      return [event('email.bounced', bouncedData(id, recipient, outcome.bounce))]
    case 'deferred':
    case 'path-failed':
    case 'ambiguous': {
      const description = reply.slice(0, MOST_DESCRIPTION_CHARACTERS).toWellFormed()
      const facts = { isp: isp ?? recipientDomain, description, nextAttemptAt: outcome.retryAt }
      return [event('email.deferred', deferredData(id, recipient, facts))]
    }
    default:
      return unreachable(outcome)
  }
}
