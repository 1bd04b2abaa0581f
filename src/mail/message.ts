/**
 * The nouns of a message: what is accepted, what is stored, and the states it goes through (http/README.md "States of a
 * message"). One message is one recipient, one envelope, one queue row. Content is what messages of a batch share.
 */

/** The states the API shows. Stored are fewer: see `src/README.md`, States. */
export const MESSAGE_STATES = [
  'scheduled', // waits for its start time
  'queued', // ready; waits for a slot, an allowance or an IP
  'sending', // an SMTP transaction is under way
  'deferred', // a temporary refusal; waits for the next attempt
  'delivered', // the recipient's server took it
  'bounced', // refused for good
  'expired', // lifetime over without a final answer
  'canceled', // withdrawn by the customer
  'suppressed', // not sent: the address is on the suppression list
] as const
export type MessageState = (typeof MESSAGE_STATES)[number]

/** transactional: one person waits for it. bulk: a batch. Orders the queue and picks defaults. */
export type Stream = 'transactional' | 'bulk'

/** One address with an optional display name. `address` is byte-equal to what RCPT TO or MAIL FROM may carry. */
export interface Mailbox {
  name: string | null
  /** Local part as given, domain as lower-case A-labels. */
  address: string
}

export interface Attachment {
  name: string
  contentType: string
  /** Set for an inline part that html refers to as `cid:<contentId>`. */
  contentId: string | null
  bytes: Uint8Array
}

/** What a request says about the mail itself, before rendering; stored once and shared. */
export interface StoredContent {
  from: Mailbox
  replyTo: Mailbox[]
  subject: string
  html: string | null
  /** null: a text part is made from the html. '': the caller wants none. */
  text: string | null
  attachments: Attachment[]
  /** Whether `{{key}}` is replaced; false: braces are ordinary text (http/README.md "Variables"). */
  hasVariables: boolean
  /**
   * To and Cc of a request with cc or bcc, the same in each of its messages; null: To is the message's own recipient.
   */
  addressees: { to: Mailbox; cc: Mailbox[] } | null
  /** The customer's further header fields, in their order; values are Unicode text. */
  headers: [name: string, value: string][]
  /** Searchable, never sent to the recipient. */
  tags: Record<string, string>
  /** Returned on lookup, never sent to the recipient. */
  metadata: Record<string, unknown>
  /** What is tracked in the html; decided at acceptance. */
  tracking: { opens: boolean; clicks: boolean }
  /** null: no List-Unsubscribe, and only scope `all` suppresses. */
  unsubscribe: Unsubscribe | null
  /**
   * Submitted mail: the whole MIME message as it came, CRLF line ends, without Bcc and control headers; it is sent as
   * it is. `html`, `text` and `attachments` are then empty. null: the message is composed from the other fields.
   */
  raw: Uint8Array | null
}

/** http/README.md "Unsubscribe". */
export interface Unsubscribe {
  /** The list, which is the scope of the suppression. */
  list: string
  /** The customer's own HTTPS address for the header; null: ours. */
  url: string | null
}

/** Values for placeholders; only own properties count. */
export type Variables = Record<string, string | number | boolean>

/** What a delivery thread needs beside the content to render one message, the same on every attempt. */
export interface RenderFacts {
  messageId: string
  /** The sending domain: `d=` of the signature, domain of the Message-ID. */
  domain: string
  to: Mailbox
  variables: Variables
  /** Unix milliseconds; becomes `t=` of the signature, and the Date header. */
  acceptedAt: number
  /** The time it was scheduled for, which becomes the Date header; null: at once. */
  sendAt: number | null
  stream: Stream
}
