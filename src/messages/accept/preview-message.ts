/**
 * What a send would look like, with nothing sent and nothing stored (http/README.md "Preview"). Throws ServiceError as
 * acceptance does.
 */
import type { PreviewJson } from '../../api/email.ts'
import { newIdentifier } from '../../base/identifier.ts'
import type { MessagePreview, PreviewInput } from '../../content/preview-message.ts'
import { policyOf, storedContent } from './accept-message.ts'
import type { AcceptanceOptions } from './accept-mail.ts'
import { requireSender, type SenderOptions } from './require-sender.ts'
import type { Caller, SendRequest } from './send-request.ts'

export type PreviewMessage = (request: SendRequest, caller: Caller) => Promise<PreviewJson>

export interface PreviewOptions
  extends SenderOptions, Pick<AcceptanceOptions, 'settings' | 'clock' | 'egress' | 'reader'> {
  /** What delivery renders mail of a sending domain with. */
  renderingOf(domain: string): Promise<Omit<PreviewInput, 'content' | 'facts'>>
}

/** Gmail shows no more of a html part. */
const MOST_SHOWN_HTML_BYTES = 102 * 1_024
/** By so many characters of text beside an image: SpamAssassin 4's HTML_IMAGE_ONLY_04 to _32, the most of its scores. */
const LONE_IMAGE_STEP = 400
const LONE_IMAGE_POINTS = [1.8, 1.8, 2.1, 2, 2.1, 2.8, 2.8, 2.2]
/** What mail servers take at the least, by custom. */
const USUAL_MESSAGE_BYTES = 10 * 1_024 * 1_024

export function createPreviewMessage(options: PreviewOptions): PreviewMessage {
  const { clock, reader } = options

  return async (request, caller) => {
    const {
      mail,
      recipients: [first],
      addressees,
    } = await reader.request(request, policyOf(options))
    const sender = await requireSender(mail.domain, caller, options)
    const now = clock.now()
    const { stream, sendAt } = mail.options
    const preview = await reader.preview({
      ...(await options.renderingOf(sender.name)),
      content: storedContent(mail, addressees, sender),
      facts: {
        messageId: newIdentifier('msg', now),
        domain: sender.name,
        acceptedAt: now,
        sendAt,
        stream,
        to: first?.mailbox ?? { name: null, address: '' },
        variables: first?.variables ?? {},
      },
    })
    return previewData(preview)
  }
}

function previewData(preview: MessagePreview): PreviewJson {
  const { subject, html, text, mimeBytes, headers, links } = preview
  return { subject, html, text, mime_bytes: mimeBytes, headers, links, warnings: warningsOf(preview) }
}

function warningsOf({ subject, html, text, mimeBytes, textBesidePixel }: MessagePreview): string[] {
  const warnings: string[] = []
  if (subject.trim() === '') warnings.push('the subject is empty')
  if (html !== null && (text ?? '') === '') warnings.push('there is no text part for readers without html')
  if (html !== null && Buffer.byteLength(html) > MOST_SHOWN_HTML_BYTES) {
    warnings.push(`the html is over ${MOST_SHOWN_HTML_BYTES} bytes: Gmail hides the rest behind a link`)
  }
  if (mimeBytes > USUAL_MESSAGE_BYTES) {
    warnings.push(`the mail is over ${USUAL_MESSAGE_BYTES} bytes: many servers refuse it`)
  }
  const points =
    textBesidePixel === null ? undefined : LONE_IMAGE_POINTS[Math.ceil(textBesidePixel / LONE_IMAGE_STEP) - 1]
  if (points !== undefined) {
    const short = `the pixel for opens is the only image beside ${textBesidePixel} characters of text`
    warnings.push(
      `${short}: SpamAssassin adds up to ${points} points; more text, or "track":{"opens":false}, avoids that`,
    )
  }
  return warnings
}
