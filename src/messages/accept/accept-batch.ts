/**
 * Acceptance of a batch: one template, many recipients, one verb of the store (http/README.md "Batches";
 * messages/README.md "Acceptance"). Each good recipient is a message of its own.
 */
import { newIdentifier } from '../../base/identifier.ts'
import { acceptMail, type AcceptanceOptions } from './accept-mail.ts'
import { contentOnce, policyOf } from './accept-message.ts'
import { readBatch, type BatchEntry } from './check-batch.ts'
import type { AcceptBatch, AcceptedBatch, AcceptedMessages } from './send-request.ts'

export function createAcceptBatch(options: AcceptanceOptions): AcceptBatch {
  const { clock, settings } = options

  return async (request, caller, idempotent) => {
    const { mail, entries } = readBatch(request, policyOf(options), settings.api.batch_recipients)
    const batchId = newIdentifier('bat', clock.now())
    const recipients = entries.flatMap((entry) => (entry.ok ? [entry.recipient] : []))
    return acceptMail(
      {
        mail: {
          ...mail.options,
          domain: mail.domain,
          recipients,
          batch: { id: batchId, rejected: entries.length - recipients.length },
          retryOf: null,
          content: contentOnce(mail, null),
        },
        caller,
        idempotent,
        shape: (messages) => acceptedBatch(batchId, entries, messages),
      },
      options,
    )
  }
}

function acceptedBatch(batchId: string, entries: readonly BatchEntry[], messages: AcceptedMessages): AcceptedBatch {
  const { acceptedAt, estimatedStartAt, recipients } = messages
  const accepted = recipients.values()
  const results = entries.flatMap((entry): AcceptedBatch['results'] => {
    if (!entry.ok) return [entry.refused]
    const { value } = accepted.next()
    return value === undefined ? [] : [value]
  })
  return { batchId, acceptedAt, results, estimatedStartAt }
}
