/** Webhook endpoints and the deliveries on their way to them. */
import type { EventKind } from '../../mail/event.ts'
import type { Owner, Reach } from '../../mail/reach.ts'

export const INCLUDED_FIELDS = [
  'tags', // of the message, an object
  'metadata', // of the message, an object
  'ip', // egress IP of the last attempt
  'smtp_response', // what the last server answered
  'machine', // hits of machines too; "true" on those
  'category', // the finer reason of a bounce
] as const
export type IncludedField = (typeof INCLUDED_FIELDS)[number]

type DisabledReason =
  | 'failing' // no success for days and dead letters
  | 'manual' // by the customer

/** Its reach: the events it gets, replays too. It never shrinks, so every delivery is within it. */
export interface WebhookEndpointRecord extends Reach {
  id: string
  url: string
  /** Kinds, or `*`. */
  events: string[]
  /** Fields that its bodies have beside the standard ones. */
  include: IncludedField[]
  description: string | null
  status: 'enabled' | 'disabled'
  /** Sealed with the storage key and `webhook <id>` as associated data. */
  sealedSecret: Uint8Array
  createdAt: number
}

/** An endpoint as it stands; its secrets stay inside. */
export interface WebhookEndpointState extends Omit<WebhookEndpointRecord, 'sealedSecret'> {
  disabledReason: DisabledReason | null
  updatedAt: number
  lastSuccessAt: number | null
  lastFailureAt: number | null
  /** Failed attempts since the last success, or since it was enabled. */
  consecutiveFailures: number
  /** Deliveries that wait; 10,000: so many or more. */
  pending: number
  /** Kept dead letters that came since it was enabled; 10,000: so many or more. */
  deadLetters: number
}

/** What may be changed; what is left out stays. */
export type WebhookEndpointChange = Partial<
  Pick<WebhookEndpointRecord, 'url' | 'events' | 'include' | 'domains' | 'status'> & { description: string }
>

/** Both secrets of an endpoint; before `switchAt` the first one signs, from then on the second. */
export interface SigningSecrets {
  sealedSecret: Uint8Array
  /** null: there is one secret only. */
  next: { sealedSecret: Uint8Array; switchAt: number } | null
}

/** What a post needs of its endpoint. */
export interface WebhookTarget extends SigningSecrets {
  endpointId: string
  url: string
}

/** One event on its way to one endpoint, claimed for posting. */
export interface ClaimedWebhookDelivery extends WebhookTarget {
  key: number
  id: string
  eventId: string
  kind: EventKind
  /** The stored bytes. */
  body: string
  /** Failed attempts so far: 0 on the first. */
  attempts: number
}

export interface ClaimWebhooksRequest {
  now: number
  epoch: number
  leaseUntil: number
  limit: number
  perEndpoint: number
  /** Posts under way or waiting in memory, by endpoint. */
  busy: Record<string, number>
  /** By endpoint, what it may have beyond `perEndpoint`. */
  ahead?: Record<string, number>
}

export interface WebhookResult {
  key: number
  /** The number of a delivery that is forgotten may be given again. */
  id: string
  /** When the post began, and when it had ended. */
  at: number
  endedAt: number
  durationMilliseconds: number
  /** HTTP status, or null when there was no answer. */
  status: number | null
  error: string | null
  /** First bytes of the answer. */
  answer: string
  /** succeeded; retry with a time; or a dead letter. */
  next: { kind: 'succeeded' } | { kind: 'retry'; at: number } | { kind: 'dead-letter' }
}

interface RecordWebhookResultsRequest {
  epoch: number
  results: WebhookResult[]
  /** So long without a success turns an endpoint off that has dead letters; null: never. */
  disableAfter: number | null
}

const WEBHOOK_DELIVERY_STATES = [
  'pending', // waits, or is being posted
  'succeeded', // final: answered 200
  'failed', // final: a dead letter
  'skipped', // final: its endpoint was disabled when the event happened
] as const
type WebhookDeliveryState = (typeof WEBHOOK_DELIVERY_STATES)[number]

export interface WebhookDeliveryRecord {
  id: string
  endpointId: string
  eventId: string
  kind: EventKind
  /** The message it is about, or null. */
  messageId: string | null
  state: WebhookDeliveryState
  /** Attempts so far. */
  attempts: number
  createdAt: number
  /** null once it ended. */
  nextAt: number | null
  endedAt: number | null
}

export interface WebhookAttemptRecord {
  at: number
  status: number | null
  durationMilliseconds: number
  error: string | null
  answer: string
}

export interface WebhookDeliveryDetail extends WebhookDeliveryRecord {
  /** The exact bytes. */
  body: string
  /** Oldest first. */
  log: WebhookAttemptRecord[]
}

export interface ListWebhookDeliveriesRequest {
  endpointId: string
  state: WebhookDeliveryState | null
  kind: string | null
  messageId: string | null
  limit: number
  after: string | null
}

/** An event as it was told again. */
export interface ReplayedEvent {
  eventId: string
  kind: EventKind
  body: string
  owner: Owner
}

/** One part of a replay; the parts follow each other by `after`. */
export interface ReplayWebhooksRequest {
  endpointId: string
  /** When the first part began: what came later is not meant. */
  now: number
  /** Of the events, both included. */
  since: number
  until: number
  /** `all`: whatever has ended. */
  state: 'failed' | 'skipped' | 'all'
  /** Kinds, or null: all. */
  kinds: string[] | null
  /** `after` of the part before, or null. */
  after: string | null
  /** Deliveries that this part makes at most. */
  most: number
}

export interface ReplayPart {
  replayed: ReplayedEvent[]
  /** Where the next part begins, or null: it is done. */
  after: string | null
}

/** An event of the stream. */
interface StreamedEvent extends ReplayedEvent {
  /** Its place: grows with every event. */
  position: number
}

export interface WebhookVerbs {
  /** ServiceError conflict when it would be one more living endpoint than `most` (null: no limit). */
  addWebhookEndpoint(endpoint: WebhookEndpointRecord, most?: number | null): Promise<void>
  /** Those within a reach, newest first. ServiceError invalid_request for a cursor that is none. */
  listWebhookEndpoints(
    reach: Reach,
    limit: number,
    after: string | null,
  ): Promise<{ endpoints: WebhookEndpointState[]; next: string | null }>
  /** null also for a removed endpoint, as from the verbs below. */
  findWebhookEndpoint(id: string): Promise<WebhookEndpointState | null>
  /** `enabled` resets the counters; what waits goes out then. */
  updateWebhookEndpoint(id: string, change: WebhookEndpointChange, now: number): Promise<WebhookEndpointState | null>
  /** Gone at once, and nothing more is sent to it; its deliveries go with `pruneWebhooks`. False: there was none. */
  removeWebhookEndpoint(id: string, now: number): Promise<boolean>
  /**
   * The new secret signs from `switchAt` on; a rotation that has not switched yet stays as it is. `isLost`: what is
   * there cannot sign, and gives way.
   */
  rotateWebhookSecret(
    id: string,
    rotation: { sealedSecret: Uint8Array; switchAt: number; now: number; isLost?: boolean },
  ): Promise<{ kind: 'rotated' } | { kind: 'under-way'; switchAt: number } | null>
  /** Where and with what to post, for a post that is no delivery. */
  findWebhookTarget(id: string): Promise<(WebhookTarget & Reach) | null>
  /** Due deliveries of enabled endpoints, now leased; no endpoint gets more than `perEndpoint` at once. */
  claimWebhooks(request: ClaimWebhooksRequest): Promise<ClaimedWebhookDelivery[]>
  /** Attempt and next state of each; repeating it changes nothing. Returns the endpoints that were turned off. */
  recordWebhookResults(request: RecordWebhookResultsRequest): Promise<{ disabled: string[] }>
  /**
   * When the next delivery of an enabled endpoint is due or its lease lapses, or null. `after`: what was due by then was
   * claimed; left out: nothing was.
   */
  earliestWebhookDueAt(after?: number): Promise<number | null>
  /** Newest first. ServiceError invalid_request for a cursor that is none. */
  listWebhookDeliveries(
    request: ListWebhookDeliveriesRequest,
  ): Promise<{ deliveries: WebhookDeliveryRecord[]; next: string | null } | null>
  findWebhookDelivery(endpointId: string, id: string): Promise<WebhookDeliveryDetail | null>
  /** A new delivery of the same event and bytes, due at once. */
  replayWebhook(endpointId: string, id: string, now: number): Promise<{ id: string; replayed: ReplayedEvent } | null>
  /** One part of a replay of many, oldest first, behind what is due. An event counts by its latest delivery. */
  replayWebhooks(request: ReplayWebhooksRequest): Promise<ReplayPart | null>
  /**
   * Deliveries that ended before these times (`failedBefore`: dead letters and skipped ones; also what was due before
   * at a disabled endpoint), and what removed endpoints left; at most `limit`; returns how many.
   */
  pruneWebhooks(request: { now: number; succeededBefore: number; failedBefore: number; limit: number }): Promise<number>
  /** In the order they were recorded, those of the timeline too; a body may be empty. */
  eventsAfter(position: number, limit: number): Promise<StreamedEvent[]>
  /** The place behind an event, or the present end, but none before `since`; undefined: no identifier of an event. */
  eventPosition(lastEventId: string | null, since: number): Promise<number | undefined>
}
