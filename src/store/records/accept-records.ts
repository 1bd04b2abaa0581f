/** What goes into acceptance and what comes out. */
import type { Mailbox, StoredContent, Stream, Variables } from '../../mail/message.ts'
import type { PackedContent } from './packed-content.ts'
import type { QueuedRows } from './queue-records.ts'
import type { ForgetRequest, ForgetStep } from './retention-records.ts'
import type { SuppressionReason } from './suppression-records.ts'

/** One message of a request. */
export interface NewMessage {
  id: string
  to: Mailbox
  /** Lower-case A-labels. */
  recipientDomain: string
  variables: Variables
  /** End of its lifetime. */
  expiresAt: number
  /** It goes to the capture server on loopback and never leaves the host; it counts nowhere. */
  isCaptured: boolean
  /** Simulated recipients: the list is not asked; a reason ends the message as suppressed, null never does. */
  simulatedSuppression?: SuppressionReason | null
}

/** Who asked for this answer, and for what: kept 24 h (http/README.md "Idempotency"). */
export interface IdempotencyEntry {
  /** null: the administrator. */
  apiKeyId: string | null
  key: string
  /** SHA-256 of method, path and canonical body. */
  fingerprint: Uint8Array
}

/** An answer as it is kept: as if no message were suppressed; which ones are is kept beside it. */
export interface KeptAnswer {
  status: number
  /** JSON text. */
  body: string
}

/** A whole checked request; its messages share one content. */
export interface AcceptRequest {
  now: number
  apiKeyId: string | null
  /** Mail of a test key: it has a suppression list of its own. */
  isTest: boolean
  /** The sending domain. */
  domain: string
  pool: string
  stream: Stream
  /** When the messages are due first; null: now. */
  sendAt: number | null
  content: StoredContent
  messages: NewMessage[]
  /** A batch: its id and how many of its recipients were refused; null: a single send. */
  batch: { id: string; rejected: number } | null
  /** The message that this one repeats, or null. */
  retryOf: string | null
  idempotency: { entry: IdempotencyEntry; answer: KeptAnswer } | null
}

/** The same on its way to the store thread. */
export interface PackedRequest extends Omit<AcceptRequest, 'content'> {
  content: PackedContent
}

/** `index` is that of `messages`. */
export interface SuppressedMessage {
  index: number
  reason: SuppressionReason
}

export type AcceptResult =
  | { kind: 'accepted'; suppressed: SuppressedMessage[]; queued: QueuedRows }
  /** The key was used before, for the same request: nothing was stored now. */
  | ({ kind: 'replayed' } & ReplayedAnswer)
  /** The key was used before, for another request. */
  | { kind: 'mismatch' }

export interface ReplayedAnswer {
  answer: KeptAnswer
  suppressed: SuppressedMessage[]
}

type IdempotencyLookup = { kind: 'new' } | ({ kind: 'replayed' } & ReplayedAnswer) | { kind: 'mismatch' }

export interface AcceptVerbs {
  /**
   * All messages of a request with their content, `email.accepted` events, batch and idempotency key, or none. A
   * message whose address is on the list (scope `all`, or the list of its content) ends as suppressed with its
   * `email.bounced` event. A key that was used within 24 h stores nothing.
   */
  acceptMessages(request: AcceptRequest): Promise<AcceptResult>
  /** What a used idempotency key stands for; 24 h after `now` minus its age it is new again. */
  findIdempotent(entry: IdempotencyEntry, now: number): Promise<IdempotencyLookup>
  /** For requests that store no message: keeps the answer, unless the key is there already. */
  keepAnswer(entry: IdempotencyEntry, answer: KeptAnswer, now: number): Promise<void>
  /** Idempotency keys that are over are forgotten, from the oldest on. */
  forgetAnswers(request: ForgetRequest): Promise<ForgetStep>
  /**
   * The request that would send a bounced or expired message again, with its whole content, under a new message id and
   * with as long a lifetime from `now` on; null when there is no such message, it did not end so, or its content is
   * gone.
   */
  requestToRepeat(id: string, now: number): Promise<Omit<AcceptRequest, 'now' | 'apiKeyId' | 'idempotency'> | null>
}
