/**
 * From stored content and the facts of one message to the bytes that are sent.
 *
 *  1 fill in    variables into subject, html and text
 *  2 add        a text part made from the html, when none was given
 *  3 compose    header fields and MIME
 *  4 sign       DKIM of the sending domain, with each of its keys
 *
 * The same input gives the same bytes on every attempt: time, identifiers and boundaries come from the facts. Content
 * and variables were checked at acceptance (template-problems.ts), so a rejection is a fault or an unusable key.
 * engine.md 16.2 and 18, RFC 5322 §3.6.
 */
import { complaintToken } from '../mail/return-path.ts'
import type { RenderFacts, StoredContent } from '../mail/message.ts'
import { composeMessage } from './compose-message.ts'
import { signMessage } from './dkim.ts'
import type { Signer } from './dkim.ts'
import { mailboxField, plainField, textField } from './encode-header.ts'
import { plainTextOf } from './plain-text.ts'
import { substitute } from './substitute-variables.ts'
import { templateOf } from './template-problems.ts'

export interface RenderInput {
  content: StoredContent
  facts: RenderFacts
  tokenKeys: { complaint: Uint8Array }
  /** At least one; the first one's signature is the topmost. */
  signers: readonly Signer[]
  /** Name of the field that repeats the complaint token, such as X-Posthorn-Ref; null: none. */
  referenceHeader: string | null
  /** Names this server in Feedback-ID: 5 to 15 characters, the same for all its mail. */
  senderId: string
}

export async function renderMessage(input: RenderInput): Promise<Buffer> {
  const { content, facts } = input
  const fill = (text: string, kind: 'html' | 'text'): string =>
    substitute(templateOf(text, kind, content.hasVariables), facts.variables)
  const html = content.html === null ? null : fill(content.html, 'html')
  const generatedText = html === null || content.text !== null ? null : plainTextOf(html)
  const message = await composeMessage({
    fields: headerFields(input, fill(content.subject, 'text')),
    html,
    text: content.text === null ? generatedText : fill(content.text, 'text'),
    attachments: content.attachments,
    seed: facts.messageId,
  })
  return signMessage(message, input.signers, facts.acceptedAt)
}

function headerFields(input: RenderInput, subject: string): string[] {
  const { content, facts, referenceHeader, senderId } = input
  const token = complaintToken(facts.messageId, input.tokenKeys.complaint)
  return [
    mailboxField('From', content.from),
    mailboxField('To', facts.to),
    ...(content.replyTo === null ? [] : [mailboxField('Reply-To', content.replyTo)]),
    textField('Subject', subject),
    plainField('Date', dateText(facts.acceptedAt)),
    plainField('Message-ID', `<${token}@${facts.domain}>`),
    ...(referenceHeader === null ? [] : [plainField(referenceHeader, token)]),
    // Google's Feedback-ID: campaign, customer, kind of mail, sender. Nothing in it is about one recipient.
    plainField('Feedback-ID', `0:${facts.domain}:${facts.stream}:${senderId}`),
  ]
}

/** RFC 5322 §3.3, in UTC: `Sat, 21 Nov 2026 12:00:00 +0000`. */
function dateText(milliseconds: number): string {
  return new Date(milliseconds).toUTCString().replace('GMT', '+0000')
}
