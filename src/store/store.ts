/**
 * The store: every verb with its promise. The only way to durable data; the only folder with SQL is this one.
 *
 * Every verb is one transaction that begins and ends inside it and is resolved only after the commit
 * (`synchronous=FULL`): what a caller was told survives a crash. A verb either happens completely or not at all; a
 * rejected verb changed nothing. Verbs are asynchronous and take and return plain data (`records.ts`), so that another
 * engine can stand beside the SQLite one without a change outside this folder. No verb waits for the network.
 *
 * Rejections: an error whose `code` is the engine's (SQLITE_FULL, SQLITE_IOERR …) when the commit failed.
 */
import type {
  AcceptRequest, ApiKeyRecord, ClaimedMessage, ClaimedWebhookDelivery, ClaimRequest, ClaimWebhooksRequest,
  DkimKeyRecord, DomainChange, DomainCheckResult, DomainPage, DomainRecord, EpochStart, ListDomainsRequest,
  MessageView, PublicDkimKey, QueueSummary, RecordOutcomesRequest, RemoveDomainRequest, TimelineEvent,
  UnclaimRequest, WebhookEndpointRecord, WebhookResult,
} from './records.ts'

export interface Store {
  /** Raises the epoch and makes every message and webhook delivery that an older epoch held due again. */
  beginEpoch(now: number): Promise<EpochStart>

  /** All messages of a request with their content and `email.accepted` events, or none. */
  acceptMessages(request: AcceptRequest): Promise<void>

  /** Due and unexpired rows of these pools, oldest due first, leased: no row has two holders while a lease holds. */
  claimDue(request: ClaimRequest): Promise<ClaimedMessage[]>
  /** Back to the queue without an attempt; rows with a stale fence are left alone. */
  unclaim(request: UnclaimRequest): Promise<void>
  /**
   * Attempt, state or next time, events and one webhook delivery per subscribed endpoint, together. Repeating it
   * changes nothing. A row that is no longer held by this epoch gets its attempt recorded and nothing else, except
   * that `delivered` still ends a row which waits.
   */
  recordOutcomes(request: RecordOutcomesRequest): Promise<void>
  /** Every row of this epoch keeps its lease until `leaseUntil`. */
  renewLeases(epoch: number, leaseUntil: number): Promise<void>
  /** Rows whose lease has lapsed are due again, marked as possible duplicates; returns how many. */
  recoverLapsedLeases(now: number): Promise<number>
  /** Waiting rows past their lifetime end as `expired` with their event; at most `limit`; returns how many. */
  expireDue(now: number, limit: number): Promise<number>
  /** When the next message of these pools is due, or null; in the past also for a row that waits for `expireDue`. */
  earliestDueAt(pools: string[]): Promise<number | null>
  /** Waiting messages of pools that are not in `known` move to `target`; returns how many. */
  moveOrphans(known: string[], target: string): Promise<number>
  queueSummary(now: number): Promise<QueueSummary>

  lookupMessage(id: string): Promise<MessageView | null>
  /** Oldest first; null when there is no such message. */
  messageEvents(id: string): Promise<TimelineEvent[] | null>

  addApiKey(key: ApiKeyRecord, hash: Uint8Array): Promise<void>
  /** By the SHA-256 of the whole key. */
  findApiKey(hash: Uint8Array): Promise<ApiKeyRecord | null>

  /**
   * Adds the domain, or returns the one that is there already. ServiceError conflict when it would be one more than
   * `most`; removed ones do not count.
   */
  addDomain(domain: DomainRecord, most: number | null): Promise<{ domain: DomainRecord; isNew: boolean }>
  /** null also for a removed domain, as from the verbs below that change one. */
  findDomain(name: string): Promise<DomainRecord | null>
  /** Host name of the return path: of the living domain once it was verified, else of the one whose mail may wait. */
  findReturnPath(name: string): Promise<string | null>
  /**
   * A domain added or removed between two pages moves no other one out of the walk. ServiceError invalid_request for a
   * cursor that is none.
   */
  listDomains(request: ListDomainsRequest): Promise<DomainPage>
  updateDomain(name: string, change: DomainChange): Promise<DomainRecord | null>
  /** State, keys and events with their webhook deliveries, together; keys younger than `now` stay. */
  recordDomainCheck(result: DomainCheckResult): Promise<DomainRecord | null>
  /** Of the removed domains of this name: their last 20 keys, which the DNS may still have. */
  earlierDkimKeys(name: string): Promise<PublicDkimKey[]>
  /** ServiceError conflict when the domain has a key of the same selector. */
  addDkimKeys(name: string, keys: DkimKeyRecord[]): Promise<DomainRecord | null>
  /** Names of domains whose next check is due, the longest due first. */
  domainsDueForCheck(now: number, limit: number): Promise<string[]>
  /** Messages of a sending domain that have not ended: what `removeDomain` would tell. */
  queuedMessages(domain: string): Promise<number>
  /**
   * Ends the domain; a domain of the same name can be added at once. Its keys and return path stay for the mail that
   * waits. With `purge` that mail is canceled, in transactions of its own behind the one that removes: what one of them
   * leaves undone is the next `cancelPurged`'s. `queuedMessages`: how many had not ended when it was removed.
   */
  removeDomain(request: RemoveDomainRequest): Promise<{ queuedMessages: number } | null>
  /**
   * Waiting messages of purged domains end as canceled with their event, also those that were under way when their
   * domain was removed; at most `limit`; returns how many.
   */
  cancelPurged(now: number, limit: number): Promise<number>

  addWebhookEndpoint(endpoint: WebhookEndpointRecord): Promise<void>
  /** Due deliveries of enabled endpoints, now leased; no endpoint gets more than `perEndpoint` at once. */
  claimWebhooks(request: ClaimWebhooksRequest): Promise<ClaimedWebhookDelivery[]>
  /** Attempt and next state of each; repeating it changes nothing. */
  recordWebhookResults(epoch: number, results: WebhookResult[]): Promise<void>
  /** When the next delivery of an enabled endpoint is due or its lease lapses, or null; busy endpoints count too. */
  earliestWebhookDueAt(): Promise<number | null>

  /** Answers when the engine is alive: the trivial read of the watchdog. */
  tick(): Promise<void>
  /** Finishes what was called before, and closes. What is still held then is found by the next `beginEpoch`. */
  close(): Promise<void>
}
