/**
 * Requests to send, as the doors hand them over, and what they are answered. A door has only looked at types: a field
 * of the wrong type is left undefined and named in `wrongTypes` (messages/README.md "Acceptance").
 */
import type { IdempotencyEntry, KeptAnswer, ReplayedAnswer } from '../../store/records/accept-records.ts'
import type { SuppressionReason } from '../../store/records/suppression-records.ts'

export type { IdempotencyEntry, KeptAnswer, SuppressedMessage } from '../../store/records/accept-records.ts'
export type { SuppressionReason } from '../../store/records/suppression-records.ts'

/** null: with `variables` absent nothing is substituted, braces are ordinary text. */
type GivenVariables = Record<string, unknown> | null

/** The content of an attachment, out of its base64, in memory of its own; or what is wrong with that. */
export type DecodedContent = { bytes: Uint8Array<ArrayBuffer> } | { problem: string }

export interface GivenAttachment {
  name: string | undefined
  /** A text is base64, not yet checked. */
  content: string | DecodedContent | undefined
  contentType: string | undefined
  contentId: string | undefined
}

/** What send and batch have in common. */
export interface SharedFields {
  from: string | undefined
  subject: string | undefined
  html: string | undefined
  /** '' is a value: the caller wants no text part. */
  text: string | undefined
  /** An address, or a list of them. */
  replyTo: string | string[]
  attachments: GivenAttachment[]
  headers: Record<string, unknown> | undefined
  tags: Record<string, unknown> | undefined
  metadata: Record<string, unknown> | undefined
  /** Unix seconds. */
  sendAt: number | undefined
  /** Seconds. */
  expiresIn: number | undefined
  ipPool: string | undefined
  stream: string | undefined
  track: { opens: boolean | undefined; clicks: boolean | undefined } | undefined
  unsubscribe: { list: string | undefined; url: string | undefined } | false | undefined
  /** What the door found wrong about types, each as `path: problem`, e.g. `html: must be a string`. */
  wrongTypes: string[]
}

export interface SendRequest extends SharedFields {
  /** undefined: missing, null, or not a string. */
  to: string | undefined
  cc: string[]
  bcc: string[]
  variables: GivenVariables
}

export interface BatchRequest extends SharedFields {
  /** undefined: missing or no array. An entry that is no object is handed on as null. */
  recipients: (Record<string, unknown> | null)[] | undefined
  /** One bad recipient refuses the whole batch. */
  isStrict: boolean
}

/** A mail that came by SMTP submission, already read: From, subject and control headers taken out of it. */
export interface SubmissionRequest {
  /** From RCPT TO. */
  recipients: string[]
  /** The address of the From header, with its display name. */
  from: string
  /** Further fields that name a sender, such as `sender`, with the domains of their addresses; left out: none. */
  senders?: { field: string; domain: string }[]
  /** Decoded, for lookup alone. */
  subject: string
  /** The message to send: CRLF, without Bcc and control headers. */
  raw: Uint8Array
  /** `X-Tags`, `X-Pool`, `X-Track`; what was not given is undefined. */
  tags: Record<string, string> | undefined
  ipPool: string | undefined
  track: { opens: boolean; clicks: boolean } | undefined
  /** `X-Idempotency-Key`, or undefined: then Message-ID, recipients and content make one. */
  idempotencyKey: string | undefined
}

/** Who asks. */
export interface Caller {
  apiKeyId: string | null
  mode: 'live' | 'test'
  /** Sending domains the key may use; empty: all. */
  domains: string[]
  source: 'api' | 'batch' | 'smtp'
  /** For the log: through which request, under which key. */
  facts?: Readonly<Record<string, string | null>>
}

/** Of mail that the server itself sends: who asks, and what it has in common. */
export const ADMINISTRATOR: Caller = { apiKeyId: null, mode: 'live', domains: [], source: 'smtp' }
export const OWN_MAIL = { tags: undefined, ipPool: undefined, track: { opens: false, clicks: false } }

/** One message of an accepted request. */
export interface AcceptedRecipient {
  messageId: string
  /** The address as given in the request, without display name. */
  to: string
  status: 'queued' | 'scheduled' | 'suppressed'
  /** Only with `suppressed`. */
  reason: SuppressionReason | null
}

/** What is answered after the commit; times in Unix milliseconds. */
export interface AcceptedMessages {
  acceptedAt: number
  /** In the order to, cc, bcc. */
  recipients: AcceptedRecipient[]
  /** When sending can start, if that is later than 60 s from now; null: at once. */
  estimatedStartAt: number | null
}

/** A recipient of a batch that was refused. */
export interface RefusedRecipient {
  to: string
  code: 'invalid_recipient' | 'invalid_request'
  /** `recipients[3].to: …` */
  details: string
}

export interface AcceptedBatch {
  batchId: string
  acceptedAt: number
  /** In the order of the request. */
  results: (AcceptedRecipient | RefusedRecipient)[]
  estimatedStartAt: number | null
}

/**
 * With an idempotency key: what is kept beside the messages. `answer` is called before the commit, with nothing
 * suppressed; which messages are is kept apart, and a replay brings both back.
 */
export interface Idempotent<Accepted> {
  entry: IdempotencyEntry
  answer(accepted: Accepted): KeptAnswer
}

export type Acceptance<Accepted> = { kind: 'accepted'; accepted: Accepted } | ({ kind: 'replayed' } & ReplayedAnswer)

export type AcceptMessage = (
  request: SendRequest,
  caller: Caller,
  idempotent: Idempotent<AcceptedMessages> | null,
) => Promise<Acceptance<AcceptedMessages>>

export type AcceptBatch = (
  request: BatchRequest,
  caller: Caller,
  idempotent: Idempotent<AcceptedBatch> | null,
) => Promise<Acceptance<AcceptedBatch>>

/** Message ids in the order of the recipients; the same again for a repeat within 24 h. */
export interface SubmissionAnswer {
  messageIds: string[]
  /** Recipients that get nothing; not told again to who repeats a request. */
  suppressed: string[]
}

export type AcceptSubmission = (request: SubmissionRequest, caller: Caller) => Promise<SubmissionAnswer>
