/**
 * Acceptance of one mail, and of a batch: the checks in their documented order, then one verb of the store
 * (messages/README.md "Acceptance"; http/README.md "Batches"). Each address of `to`, `cc` and `bcc`, and each good
 * recipient of a batch, is a message of its own. The first step that finds something answers, with all that it found.
 */
import { newIdentifier } from '../../base/identifier.ts'
import type { StoredContent } from '../../mail/message.ts'
import { acceptMail, type AcceptanceOptions } from './accept-mail.ts'
import type { BatchEntry } from './check-batch.ts'
import type { CheckedMail, RequestPolicy } from './check-shared-fields.ts'
import type { SenderDomain } from './require-sender.ts'
import type { AcceptBatch, AcceptedBatch, AcceptedMessages, AcceptMessage } from './send-request.ts'

export function createAcceptMessage(options: AcceptanceOptions): AcceptMessage {
  return async (request, caller, idempotent) => {
    const { mail, recipients, addressees } = await options.reader.request(request, policyOf(options))
    return acceptMail(
      {
        mail: {
          ...mail.options,
          domain: mail.domain,
          recipients,
          batch: null,
          retryOf: null,
          content: contentOnce(mail, addressees),
        },
        caller,
        idempotent,
        shape: (messages) => messages,
      },
      options,
    )
  }
}

export function createAcceptBatch(options: AcceptanceOptions): AcceptBatch {
  const { clock, settings } = options

  return async (request, caller, idempotent) => {
    const { mail, entries } = await options.reader.batch(request, policyOf(options), settings.api.batch_recipients)
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

export function policyOf({
  settings,
  clock,
  egress,
}: Pick<AcceptanceOptions, 'settings' | 'clock' | 'egress'>): RequestPolicy {
  const { delivery, headers } = settings
  return {
    allowReservedNames: delivery.allow_private_addresses,
    now: clock.now(),
    poolNames: egress.poolNames(),
    ownHeaders: headers.reference === null ? [] : [headers.reference],
  }
}

/** Gives it away with the first call, and keeps nothing. */
function contentOnce(
  mail: CheckedMail,
  addressees: StoredContent['addressees'],
): (sender: SenderDomain) => StoredContent {
  let kept: CheckedMail | null = mail
  return (sender) => {
    if (kept === null) throw new Error('the content of a request was asked for twice')
    const content = storedContent(kept, addressees, sender)
    kept = null
    return content
  }
}

/** What is tracked is the request's to say, else the domain's; only html can be tracked. */
export function storedContent(
  { content, attachments, options: { track } }: CheckedMail,
  addressees: StoredContent['addressees'],
  sender: SenderDomain,
): StoredContent {
  const isHtml = content.html !== null
  const tracking = {
    opens: isHtml && (track.opens ?? sender.tracking.opens),
    clicks: isHtml && (track.clicks ?? sender.tracking.clicks),
  }
  return { ...content, addressees, tracking, attachments, raw: null }
}
