/**
 * Acceptance of one mail: the checks in their documented order, then one verb of the store (messages/README.md
 * "Acceptance"). Each address of `to`, `cc` and `bcc` is a message of its own; the headers are the same in all of them.
 * The first step that finds something answers, with all that it found.
 */
import type { StoredContent } from '../../mail/message.ts'
import { acceptMail, type AcceptanceOptions } from './accept-mail.ts'
import { readRequest } from './check-request.ts'
import type { CheckedMail, RequestPolicy } from './check-shared-fields.ts'
import type { SenderDomain } from './require-sender.ts'
import type { AcceptMessage } from './send-request.ts'

export function createAcceptMessage(options: AcceptanceOptions): AcceptMessage {
  return async (request, caller, idempotent) => {
    const { mail, recipients, addressees } = readRequest(request, policyOf(options))
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
export function contentOnce(
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
