/**
 * The verbs of webhook endpoints, of their deliveries, and of the stream of events: a part of the store, under the same
 * promises (`store.ts`).
 */
import type {
  ClaimedWebhookDelivery,
  ClaimWebhooksRequest,
  ListWebhookDeliveriesRequest,
  PruneWebhooksRequest,
  RecordWebhookResultsRequest,
  ReplayedEvent,
  ReplayPart,
  ReplayWebhooksRequest,
  RotationResult,
  StreamedEvent,
  WebhookDeliveryDetail,
  WebhookDeliveryPage,
  WebhookEndpointChange,
  WebhookEndpointPage,
  WebhookEndpointRecord,
  WebhookEndpointState,
  WebhookTarget,
} from './records/webhook-records.ts'

export interface WebhookStore {
  /** ServiceError conflict when it would be one more living endpoint than `most` (null: no limit). */
  addWebhookEndpoint(endpoint: WebhookEndpointRecord, most?: number | null): Promise<void>
  /** Newest first. ServiceError invalid_request for a cursor that is none. */
  listWebhookEndpoints(limit: number, after: string | null): Promise<WebhookEndpointPage>
  /** null also for a removed endpoint, as from the verbs below. */
  findWebhookEndpoint(id: string): Promise<WebhookEndpointState | null>
  /** `enabled` resets the counters; what waits goes out then. */
  updateWebhookEndpoint(id: string, change: WebhookEndpointChange, now: number): Promise<WebhookEndpointState | null>
  /** Gone at once, and nothing more is sent to it; its deliveries go with `pruneWebhooks`. False: there was none. */
  removeWebhookEndpoint(id: string, now: number): Promise<boolean>
  /** The new secret signs from `switchAt` on; a rotation that has not switched yet stays as it is. */
  rotateWebhookSecret(
    id: string,
    rotation: { sealedSecret: Uint8Array; switchAt: number; now: number },
  ): Promise<RotationResult | null>
  /** Where and with what to post, for a post that is no delivery. */
  findWebhookTarget(id: string): Promise<WebhookTarget | null>
  /** Due deliveries of enabled endpoints, now leased; no endpoint gets more than `perEndpoint` at once. */
  claimWebhooks(request: ClaimWebhooksRequest): Promise<ClaimedWebhookDelivery[]>
  /** Attempt and next state of each; repeating it changes nothing. Returns the endpoints that were turned off. */
  recordWebhookResults(request: RecordWebhookResultsRequest): Promise<{ disabled: string[] }>
  /** When the next delivery of an enabled endpoint is due or its lease lapses, or null. */
  earliestWebhookDueAt(): Promise<number | null>
  /** ServiceError invalid_request for a cursor that is none. */
  listWebhookDeliveries(request: ListWebhookDeliveriesRequest): Promise<WebhookDeliveryPage | null>
  findWebhookDelivery(endpointId: string, id: string): Promise<WebhookDeliveryDetail | null>
  /** A new delivery of the same event and bytes, due at once. */
  replayWebhook(endpointId: string, id: string, now: number): Promise<{ id: string; replayed: ReplayedEvent } | null>
  /** One part of a replay of many, oldest first, behind what is due. An event counts by its latest delivery. */
  replayWebhooks(request: ReplayWebhooksRequest): Promise<ReplayPart | null>
  /** Deliveries whose time is over, and what removed endpoints left; at most `limit`; returns how many. */
  pruneWebhooks(request: PruneWebhooksRequest): Promise<number>
  /** In the order they were recorded, those of the timeline too; a body may be empty. */
  eventsAfter(position: number, limit: number): Promise<StreamedEvent[]>
  /** The place behind an event, or the present end, but none before `since`; undefined: no identifier of an event. */
  eventPosition(lastEventId: string | null, since: number): Promise<number | undefined>
}
