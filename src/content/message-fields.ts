/**
 * The header fields that Sternpost writes, in their order, each with its CRLF (content/README.md "Headers"). Pure; the
 * same facts give the same fields. RFC 5322 §3.6, RFC 6532, RFC 8058 §3.1, RFC 9477 §3; http/README.md "cc and bcc" and
 * "Unsubscribe".
 */
import { createHash, type KeyObject } from 'node:crypto'
import type { KeyRing } from '../base/key-ring.ts'
import { clickToken, openToken, unsubscribeToken } from '../mail/message-token.ts'
import type { Mailbox, RenderFacts, StoredContent } from '../mail/message.ts'
import { customField, isAscii, mailboxesField, mailboxField, plainField, textField } from './mime/encode-header.ts'

/** What is the same for all mail of this server. */
export interface RenderSettings {
  keys: RenderKeys
  /** Name of the field that repeats the complaint token, such as X-Sternpost-Ref; null: none. */
  referenceHeader: string | null
  /** `senderIdOf(hostname)`. */
  senderId: string
  /** Whether CFBL-Address and CFBL-Feedback-ID are written. */
  cfbl: boolean
}

/** One for each purpose of a token. */
type RenderKeys = Record<'complaint' | 'open' | 'click' | 'unsubscribe', KeyObject>

export interface FieldsInput {
  content: StoredContent
  facts: RenderFacts
  /** `complaintToken` of the message. */
  complaint: string
  /** Host name of the envelope sender's domain. */
  returnPath: string
  urls: MessageUrls
  settings: RenderSettings
}

/** Feedback-ID wants 5 to 15 characters that stay the same for a server. */
const SENDER_ID_CHARACTERS = 12
const MOST_CAMPAIGN_CHARACTERS = 64

export function renderKeys(keyRing: KeyRing): RenderKeys {
  const [complaint, open] = [keyRing.key('complaint'), keyRing.key('open')]
  return { complaint, open, click: keyRing.key('click'), unsubscribe: keyRing.key('unsubscribe') }
}

/** Names this server in Feedback-ID. */
export function senderIdOf(hostname: string): string {
  return createHash('sha256').update(hostname).digest('hex').slice(0, SENDER_ID_CHARACTERS)
}

/** All fields of a composed message but those of MIME. */
export function composedFields(input: FieldsInput, subject: string): string[] {
  const { content, facts } = input
  const { to, cc } = content.addressees ?? { to: facts.to, cc: [] }
  return [
    mailboxField('From', content.from),
    mailboxField('To', to),
    ...(cc.length === 0 ? [] : [mailboxesField('Cc', cc)]),
    ...(content.replyTo.length === 0 ? [] : [mailboxesField('Reply-To', content.replyTo)]),
    textField('Subject', subject),
    dateField(facts),
    messageIdField(input),
    ...content.headers.map(([name, value]) => customField(name, value)),
    ...ownFields(input),
  ]
}

/** `send_at` or the time of acceptance in UTC (RFC 5322 §3.3): `Sat, 21 Nov 2026 12:00:00 +0000`. */
export function dateField({ sendAt, acceptedAt }: RenderFacts): string {
  return plainField('Date', new Date(sendAt ?? acceptedAt).toUTCString().replace('GMT', '+0000'))
}

export function messageIdField({ facts, complaint }: FieldsInput): string {
  return plainField('Message-ID', `<${complaint}@${facts.domain}>`)
}

/** What no customer writes, on every message. */
export function ownFields({ content, facts, complaint, returnPath, urls, settings }: FieldsInput): string[] {
  const { referenceHeader, senderId, cfbl } = settings
  const fields: string[] = []
  if (content.unsubscribe !== null) {
    const address = content.unsubscribe.url === null ? urls.unsubscribe() : asUri(content.unsubscribe.url)
    const mailto = `mailto:u-${urls.unsubscribeToken()}@${returnPath}`
    fields.push(plainField('List-Unsubscribe', `<${address}>,`, `<${mailto}>`))
    fields.push(plainField('List-Unsubscribe-Post', 'List-Unsubscribe=One-Click'))
  }
  if (referenceHeader !== null) fields.push(plainField(referenceHeader, complaint))
  // Google's: campaign, customer, kind of mail, sender. Nothing in it is about one recipient.
  fields.push(plainField('Feedback-ID', `${campaignOf(content)}:${facts.domain}:${facts.stream}:${senderId}`))
  if (cfbl) {
    fields.push(plainField('CFBL-Address', `f-${complaint}@${returnPath};`, 'report=arf'))
    fields.push(plainField('CFBL-Feedback-ID', complaint))
  }
  return fields
}

/** Whether the header of a composed message has an address that is not ASCII. */
export function namesNonAscii({ from, replyTo, addressees }: StoredContent): boolean {
  const others: Mailbox[] = addressees === null ? [] : [addressees.to, ...addressees.cc]
  return [from, ...replyTo, ...others].some(({ address }) => !isAscii(address))
}

/** The tag `campaign` without anything that has a meaning in the field. */
function campaignOf({ tags }: StoredContent): string {
  const given = Object.hasOwn(tags, 'campaign') ? (tags['campaign'] ?? '') : ''
  // Everything but letters, digits, dots, hyphens and underscores.
  const campaign = given.replace(/[^A-Za-z0-9._-]+/g, '-').slice(0, MOST_CAMPAIGN_CHARACTERS)
  return campaign === '' ? '0' : campaign
}

/** Nothing in it can end the angle brackets or the line. */
function asUri(url: string): string {
  // Everything but printable ASCII, and the brackets themselves.
  return url.toWellFormed().replace(/[^!-;=?-~]/gu, encodeURIComponent)
}

/** The addresses in one message that lead back to this server (content/README.md "Tokens"). */
export type MessageUrls = ReturnType<typeof messageUrls>

/** That of the content: a message has no other. */
const LIST_NUMBER = 0

/** `baseUrl` is scheme and host from the configuration, without a slash at the end. */
export function messageUrls({
  messageId,
  baseUrl,
  keys,
}: {
  messageId: string
  baseUrl: string
  keys: Pick<RenderKeys, 'open' | 'click' | 'unsubscribe'>
}) {
  let token: string | undefined
  const ofUnsubscribing = (): string => (token ??= unsubscribeToken(messageId, LIST_NUMBER, keys.unsubscribe))
  return {
    link: (linkNumber: number): string => `${baseUrl}/c/${clickToken(messageId, linkNumber, keys.click)}`,
    pixel: (): string => `${baseUrl}/o/${openToken(messageId, keys.open)}`,
    /** Where the mail client or the recipient unsubscribes. */
    unsubscribe: (): string => `${baseUrl}/u/${ofUnsubscribing()}`,
    unsubscribeToken: ofUnsubscribing,
  }
}
