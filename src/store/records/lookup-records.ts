/** Messages and batches as they are looked up and acted on. */
import type { Bounce, DeliveryAttempt } from '../../mail/reply/delivery-outcome.ts'
import type { EventKind } from '../../mail/event.ts'
import type { MessageState, RenderFacts, StoredContent, Stream, Variables } from '../../mail/message.ts'
import type { Reach } from '../../mail/reach.ts'
import type { EngagementTally } from './engagement-records.ts'
import type { QueuedRows, WaitingFor } from './queue-records.ts'

/** A message as lookup shows it. */
export interface MessageView extends EngagementTally {
  id: string
  batchId: string | null
  state: MessageState
  recipient: string
  recipientDomain: string
  from: string
  /** Before variables. */
  subject: string
  hasVariables: boolean
  variables: Variables
  stream: Stream
  tags: Record<string, string>
  metadata: Record<string, unknown>
  /** Mail of a test key. */
  isTest: boolean
  /** It goes to the capture server on loopback. */
  isCaptured: boolean
  domain: string
  pool: string
  isp: string | null
  ip: string | null
  /** IP of the last attempt; before any, of the last path failure. */
  lastIp: string | null
  createdAt: number
  /** Only when it was given and was in the future at acceptance. */
  sendAt: number | null
  expiresAt: number
  /** null also while the operator holds it. */
  nextAttemptAt: number | null
  /** Since when it is on its way, in a state of `sending`; null: it is not. */
  claimedAt: number | null
  /** Epoch of the process that has it; null: it is not on its way. */
  leaseEpoch: number | null
  /** Why it waits until then, as far as that is known; null: it does not, or its time has come. */
  waitingFor: WaitingFor | null
  deliveredAt: number | null
  bouncedAt: number | null
  complainedAt: number | null
  /** `isLate`: after it had been delivered. */
  bounce: (Bounce & { at: number; isLate: boolean }) | null
  isPossibleDuplicate: boolean
  retryOf: string | null
  /** Empty in lists. */
  attempts: DeliveryAttempt[]
}

/** A line of a message's timeline. */
export interface TimelineEvent {
  id: string
  kind: EventKind
  at: number
  data: Record<string, unknown>
}

/** null: does not matter. Several conditions must all hold. */
export interface SearchMessagesRequest {
  recipient: string | null
  from: string | null
  state: MessageState | null
  batchId: string | null
  /** Words of the subject, in any order. */
  subject: string | null
  tag: { key: string; value: string } | null
  isp: string | null
  ip: string | null
  /** Accepted from `since` to `until`, both included. */
  since: number | null
  until: number | null
  /** Of messages within it. */
  reach: Reach
  limit: number
  /** `next` of the page before, or null: from the newest on. */
  after: string | null
  now: number
}

export interface MessagePage {
  /** Newest first. A page of fewer than `limit` need not be the last: one search reads so many rows at most. */
  messages: MessageView[]
  next: string | null
}

export interface BatchView extends Pick<MessageView, 'id' | 'createdAt' | 'from' | 'subject' | 'domain' | 'isTest'> {
  accepted: number
  rejected: number
  states: Record<MessageState, number>
  opened: number
  clicked: number
  complained: number
}

/** The SMTP dialogue of one attempt, without the message. */
export interface TranscriptView {
  /** When the attempt began. */
  at: number
  ip: string | null
  host: string | null
  /** Lines as `> MAIL FROM:<…>` and `< 250 OK`; null: not kept, or no longer. */
  dialogue: string | null
}

/** What `explain` says of others on the same road within the last hour. */
export interface RoadSummary {
  attempts: number
  deferred: number
}

export interface MessageVerbs {
  /** `now` tells scheduled from queued. */
  lookupMessage(id: string, now: number): Promise<MessageView | null>
  /** What it is rendered from; null when there is no such message, or its content was removed. */
  messageContent(id: string): Promise<{ content: StoredContent; facts: RenderFacts } | null>
  /** Oldest first; null when there is no such message. */
  messageEvents(id: string): Promise<TimelineEvent[] | null>
  /** Adds so many subjects at most to what `searchMessages` finds them by. Returns whether there may be more. */
  indexSubjects(limit: number): Promise<boolean>
  /** ServiceError invalid_request for a cursor that is none. */
  searchMessages(request: SearchMessagesRequest): Promise<MessagePage>
  /** One entry for each attempt, oldest first; null when there is no such message. */
  transcripts(id: string): Promise<TranscriptView[] | null>
  /** Attempts to this provider from this IP (null: any) since a time. */
  roadSummary(isp: string, ip: string | null, since: number): Promise<RoadSummary>
  lookupBatch(id: string, now: number): Promise<BatchView | null>
  /**
   * Ends it as canceled with its event, if it still waits; null when there is no such message. `uncertain`: it waits,
   * and may have arrived.
   */
  cancelMessage(
    id: string,
    now: number,
  ): Promise<{ kind: 'canceled' } | { kind: 'refused'; state: MessageState } | { kind: 'uncertain' } | null>
  /**
   * Cancels every message of the batch that waits and has surely not arrived, in one transaction; null when there is no
   * such batch. Those that were canceled before count as canceled: repeating it answers the same.
   */
  cancelBatch(id: string, now: number): Promise<{ canceled: number; notCanceled: number } | null>
  /** A deferred message is due now, unless it is held; its key, or null: it is not deferred. */
  retryNow(id: string, now: number): Promise<QueuedRows | null>
}
