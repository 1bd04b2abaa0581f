/**
 * The one log line of each accepted message, and the one of each that was suppressed at once (base/README.md
 * "Logging"). Never throws.
 */
import type { Logger } from '../../base/logger.ts'
import { shownRecipient, type ShownRecipients } from '../../mail/shown-recipient.ts'
import type { AcceptRequest, SuppressedMessage } from '../../store/records/accept-records.ts'
import type { Caller } from './send-request.ts'

/** Without its content, which may be large. */
export type AcceptedRequest = Omit<AcceptRequest, 'content'>

export type AcceptanceLog = (request: AcceptedRequest, suppressed: readonly SuppressedMessage[], caller: Caller) => void

export function createAcceptanceLog(options: {
  logger: Logger
  /** `log.recipients`. */
  recipients: () => ShownRecipients
}): AcceptanceLog {
  const { logger } = options
  return ({ domain, pool, stream, batch, messages }, suppressed, { source, facts }) => {
    const shown = options.recipients()
    const shared = { domain, pool, stream, source, ...(batch === null ? {} : { batch_id: batch.id }), ...facts }
    for (const { id, to, recipientDomain } of messages) {
      const recipient = shownRecipient(to.address, recipientDomain, shown)
      logger.info({ message_id: id, recipient, ...shared }, 'message accepted')
    }
    for (const { index, reason } of suppressed) {
      logger.info({ message_id: messages[index]?.id, domain, reason }, 'message suppressed')
    }
  }
}
