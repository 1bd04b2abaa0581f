/**
 * The store: every verb with its promise. The only way to durable data; the only folder with SQL is this one.
 *
 * Every verb is one transaction that begins and ends inside it and is resolved only after the commit
 * (`synchronous=FULL`): what a caller was told survives a crash. A verb either happens completely or not at all; a
 * rejected verb changed nothing. Verbs are asynchronous and take and return plain data (`records/`), so that another
 * engine can stand beside the SQLite one without a change outside this folder. No verb waits for the network.
 *
 * Rejections: an error whose `code` is the engine's (SQLITE_FULL, SQLITE_IOERR …) when the commit failed; ServiceError
 * `unavailable` from a store that is closed, or whose thread has ended.
 */
import type { QueueAction, QueueFilter, QueueGroup, QueueGrouping } from '../mail/waiting-mail.ts'
import type {
  AcceptRequest,
  AcceptResult,
  IdempotencyEntry,
  IdempotencyLookup,
  KeptAnswer,
} from './records/accept-records.ts'
import type {
  EngagementTally,
  LinkHtml,
  LinkSource,
  RecordEngagementRequest,
  RecordUnsubscribeRequest,
  UnsubscribeResult,
} from './records/engagement-records.ts'
import type {
  BatchView,
  CancelResult,
  MessagePage,
  MessageView,
  RoadSummary,
  SearchMessagesRequest,
  TimelineEvent,
  TranscriptView,
} from './records/lookup-records.ts'
import type {
  ClaimedMessage,
  ClaimRequest,
  ClaimResult,
  EpochStart,
  LeasedPage,
  LeasedPosition,
  QueueSummary,
  RecordOutcomesRequest,
  RowClaim,
  UnclaimRequest,
} from './records/claim-records.ts'
import type {
  ApiKeyChange,
  ApiKeyPage,
  ApiKeyRecord,
  DkimKeyRecord,
  DomainChange,
  DomainCheckResult,
  DomainPage,
  DomainRecord,
  ListDomainsRequest,
  PublicDkimKey,
  RemoveDomainRequest,
} from './records/sender-records.ts'
import type {
  ExpiredMessage,
  QueuedRows,
  QueueKey,
  QueueKeyPage,
  QueueKeyState,
  RouteAssignment,
} from './records/queue-records.ts'
import type { StoreFigures } from './records/figure-records.ts'
import type { ReportRecord, ReportResult, ReportSums, UnmatchedReport } from './records/report-records.ts'
import type {
  DatabaseSize,
  EraseRecipientRequest,
  EraseStep,
  ForgetContentsRequest,
  ForgetMessagesRequest,
  ForgetRequest,
  ForgetStep,
  ForgottenContents,
  OverdueContents,
  StorageFigures,
} from './records/retention-records.ts'
import type { ListSuppressionsRequest, SuppressionPage, SuppressionRecord } from './records/suppression-records.ts'
import type { PlainMemory, StsPolicyRecord, TlsResult } from './records/tls-records.ts'
import type {
  AuditRecord,
  ForgetIpHistoryRequest,
  IpChange,
  IpHealth,
  IpRecord,
  IpStatistics,
  PathStateRecord,
  ReserveRequest,
  Reservation,
  WarmupDay,
} from './records/warmup-records.ts'
import type { WebhookStore } from './webhook-store.ts'

export interface Store extends WebhookStore {
  /** Raises the epoch and makes every message and webhook delivery that an older epoch held due again. */
  beginEpoch(now: number, uncertainAt: number): Promise<EpochStart>

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
  /** Idempotency keys older than 24 h are forgotten; at most `limit`; returns how many. */
  forgetAnswers(now: number, limit: number): Promise<number>

  /**
   * Due and unexpired rows of these keys, leased: no row has two holders while a lease holds. Each gets a claim of its
   * own; the verbs below change nothing for an older claim of the row.
   */
  claimDue(request: ClaimRequest): Promise<ClaimResult>
  /** Due rows of one recipient domain that have no route yet, leased. */
  claimUnrouted(request: {
    domain: string
    now: number
    epoch: number
    leaseUntil: number
    limit: number
  }): Promise<ClaimedMessage[]>
  /** Recipient domains with waiting rows and no route, the longest due first, and when their first row is due. */
  unroutedDomains(limit: number): Promise<{ domain: string; earliestAt: number }[]>
  /**
   * The domains' waiting rows without a route move to it, in parts that hold nobody up; later mail to them is queued
   * under it at once. Returns how many rows came under which keys.
   */
  assignRoutes(assignments: RouteAssignment[]): Promise<QueueKeyState[]>
  /** A walk over all keys with waiting rows, in pages: at most about `mostRows` rows are counted for one. */
  queueKeys(after: QueueKey | null, mostRows: number): Promise<QueueKeyPage>
  /** Back to the queue without an attempt; rows of another epoch or claim are left alone. */
  unclaim(request: UnclaimRequest): Promise<void>
  /** The final dots of these rows may go out once this has resolved, but for the claims that hold nothing any more. */
  markDotSent(epoch: number, rows: RowClaim[]): Promise<{ stale: number[] }>
  /**
   * Attempt, state or next time, refund, statistics, suppression, events and one webhook delivery per subscribed
   * endpoint, together. Repeating it changes nothing. A row that is no longer held by this epoch and claim gets its
   * attempt recorded and nothing else, except that `delivered` still ends a row which waits.
   */
  recordOutcomes(request: RecordOutcomesRequest): Promise<void>
  /** Those of these rows that their claims still hold keep their lease until `leaseUntil`. */
  renewLeases(epoch: number, rows: RowClaim[], leaseUntil: number): Promise<void>
  /** Rows under lease of this epoch. One whose lease is renewed between two pages may come twice. */
  leasedRows(epoch: number, after: LeasedPosition | null, limit: number): Promise<LeasedPage>
  /**
   * Rows whose lease has lapsed (by the clock of leases) are due at `now`; those with a dot mark at `uncertainAt`,
   * marked as possible duplicates. Returns how many.
   */
  recoverLapsedLeases(leasesBefore: number, now: number, uncertainAt: number): Promise<number>
  /** Waiting rows past their lifetime end as `expired` with their event; at most `limit`; returns which. */
  expireDue(now: number, limit: number): Promise<ExpiredMessage[]>
  /** Rows that should have ended or moved long ago: waiting beyond their lifetime, leased for too long. */
  watchQueue(overdueBefore: number, leasedBefore: number): Promise<{ overdue: number; stuck: number }>
  /** Waiting messages of pools that are not in `known` move to `target`; returns how many by pool. */
  moveOrphans(known: string[], target: string): Promise<{ pool: string; messages: number }[]>
  /** Waiting rows in groups, largest first. */
  queueGroups(by: QueueGrouping, filter: QueueFilter, now: number): Promise<QueueGroup[]>
  /**
   * At most `limit` rows (which may be many: it goes in parts that hold nobody up); returns how many, and what may be
   * due under which keys. With `isDryRun` it only counts, all of them.
   */
  actOnQueue(request: {
    filter: QueueFilter
    action: QueueAction
    now: number
    limit: number
    isDryRun: boolean
  }): Promise<{ messages: number; queued: QueuedRows }>
  queueSummary(now: number): Promise<QueueSummary>
  /** Rows that wait or are under way. */
  countQueued(): Promise<number>
  /** For metrics; cheap. */
  figures(): Promise<StoreFigures>

  /** `now` tells scheduled from queued. */
  lookupMessage(id: string, now: number): Promise<MessageView | null>
  /** Oldest first; null when there is no such message. */
  messageEvents(id: string): Promise<TimelineEvent[] | null>
  /** ServiceError invalid_request for a cursor that is none. */
  searchMessages(request: SearchMessagesRequest): Promise<MessagePage>
  /** One entry for each attempt, oldest first; null when there is no such message. */
  transcripts(id: string): Promise<TranscriptView[] | null>
  /** Attempts to this provider from this IP (null: any) since a time. */
  roadSummary(isp: string, ip: string | null, since: number): Promise<RoadSummary>
  lookupBatch(id: string, now: number): Promise<BatchView | null>
  /** Ends it as canceled with its event, if it still waits; null when there is no such message. */
  cancelMessage(id: string, now: number): Promise<CancelResult | null>
  /**
   * Cancels every message of the batch that waits, in one transaction; null when there is no such batch. Those that
   * were canceled before count as canceled: repeating it answers the same.
   */
  cancelBatch(id: string, now: number): Promise<{ canceled: number; notCanceled: number } | null>
  /** A deferred message is due now, unless it is held; its key, or null: it is not deferred. */
  retryNow(id: string, now: number): Promise<QueuedRows | null>
  /**
   * The request that would send a bounced or expired message again, with its whole content, under a new message id and
   * with as long a lifetime from `now` on; null when there is no such message, it did not end so, or its content is
   * gone.
   */
  requestToRepeat(id: string, now: number): Promise<Omit<AcceptRequest, 'now' | 'apiKeyId' | 'idempotency'> | null>

  /** A late bounce, a complaint or a note, with its event and suppression: once for each message and kind. */
  recordReport(report: ReportRecord): Promise<ReportResult>
  /** A bounded sample: the newest stay. */
  keepUnmatchedReport(report: UnmatchedReport): Promise<void>
  /** Newest first. */
  listUnmatchedReports(limit: number): Promise<UnmatchedReport[]>
  /** Those that came before this time; returns how many. */
  forgetUnmatchedReports(before: number): Promise<number>
  reportSums(since: number): Promise<ReportSums>

  /** ServiceError conflict when it would be one more living key than `most` (null: no limit). */
  addApiKey(key: ApiKeyRecord, hash: Uint8Array, most: number | null): Promise<void>
  /** By the SHA-256 of the whole key. */
  findApiKey(hash: Uint8Array): Promise<ApiKeyRecord | null>
  findApiKeyById(id: string): Promise<ApiKeyRecord | null>
  /** ServiceError invalid_request for a cursor that is none. */
  listApiKeys(limit: number, after: string | null): Promise<ApiKeyPage>
  updateApiKey(id: string, change: ApiKeyChange): Promise<ApiKeyRecord | null>
  /**
   * Revoked at once; an earlier revocation keeps its time. With `keepsAdmin`, ServiceError conflict when no other key
   * with the scope admin would be left that is live, not revoked and not expired.
   */
  revokeApiKey(id: string, now: number, keepsAdmin: boolean): Promise<ApiKeyRecord | null>
  /** By id: when it was last used. Never moves a time back. */
  noteKeyUse(uses: { id: string; at: number }[]): Promise<void>

  /** Adds it, or returns the one with the same address, scope and list. */
  addSuppression(suppression: SuppressionRecord): Promise<{ suppression: SuppressionRecord; isNew: boolean }>
  /** Of many at once, e.g. an import: how many were new. */
  addSuppressions(suppressions: SuppressionRecord[]): Promise<number>
  /** null scope: every scope. Returns how many there were. */
  removeSuppressions(email: string, scope: string | null, isTest: boolean): Promise<number>
  /** ServiceError invalid_request for a cursor that is none. */
  listSuppressions(request: ListSuppressionsRequest): Promise<SuppressionPage>

  /**
   * Counts each hit; the first open of a message and the first click on each of its links are events with their webhook
   * deliveries. Hits of machines are counted apart and told to nobody. Returns what was counted as what.
   */
  recordEngagement(request: RecordEngagementRequest): Promise<EngagementTally>
  /** Suppression (scope: the list of the message) and event; repeating it changes nothing. */
  recordUnsubscribe(request: RecordUnsubscribeRequest): Promise<UnsubscribeResult>
  /** null: no such message. */
  linkSource(messageId: string): Promise<LinkSource | null>
  /** null: the content or its bodies are not there any more. */
  linkHtml(contentId: number): Promise<LinkHtml | null>

  /**
   * Adds the domain, or returns the one that is there already. ServiceError conflict when it would be one more than
   * `most`; removed ones do not count.
   */
  addDomain(domain: DomainRecord, most: number | null): Promise<{ domain: DomainRecord; isNew: boolean }>
  /** null also for a removed domain, as from the verbs below that change one. */
  findDomain(name: string): Promise<DomainRecord | null>
  /** Host name of the return path: of the living domain once it was verified, else of the one whose mail may wait. */
  findReturnPath(name: string): Promise<string | null>
  /** Whether mail of any domain, also of a removed one, comes back to this host name. */
  isReturnPath(host: string): Promise<boolean>
  /** The domain's own host of tracked links, once a check found its record right; null: it has none. */
  findTrackingHost(name: string): Promise<string | null>
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

  /** Every egress IP that was ever configured here. */
  ipRecords(): Promise<IpRecord[]>
  /** Adds those that are not there yet. */
  addIpRecords(records: IpRecord[]): Promise<void>
  /** False, and nothing changed: another change came first. */
  changeIp(change: IpChange): Promise<boolean>
  /** Guarded: the sum of what is granted never passes day cap, rolling hour, provider share or pace. */
  reserveAllowance(request: ReserveRequest): Promise<Reservation[]>
  /** What today's allowance of these rules still is, without taking any. */
  peekAllowance(request: ReserveRequest): Promise<Reservation[]>
  /** Days from `from` on, one row per isp and `*`; oldest first. */
  warmupDays(ip: string, from: string): Promise<WarmupDay[]>
  warmupAudit(ip: string, limit: number): Promise<AuditRecord[]>
  /** For the gates that look at the last hour. */
  ipHealth(ip: string, since: number): Promise<IpHealth>
  /** Messages that reached RCPT, by UTC date, of the last days that had any; newest first. */
  ipDays(ip: string, limit: number): Promise<{ day: string; messages: number }[]>
  ipStatistics(ip: string, from: number, to: number): Promise<IpStatistics>
  /** First attempts by isp of all IPs of a list: the mix a forecast assumes. */
  ispMix(ips: string[], since: number): Promise<Record<string, number>>
  loadPathStates(): Promise<PathStateRecord[]>
  /** `state` '' forgets it. */
  savePathStates(states: PathStateRecord[]): Promise<void>
  /**
   * What is older than these times, at most about `limit` rows of each table; returns how many. `hoursBefore`: hours by
   * isp, whose sums stay in the days.
   */
  forgetIpHistory(request: ForgetIpHistoryRequest): Promise<number>

  findStsPolicy(domain: string): Promise<StsPolicyRecord | null>
  keepStsPolicy(policy: StsPolicyRecord): Promise<void>
  /** Policies to be looked at again, the oldest fetched first. */
  stsPoliciesFetchedBefore(before: number, limit: number): Promise<StsPolicyRecord[]>
  plainMemories(now: number): Promise<PlainMemory[]>
  keepPlainMemories(memories: PlainMemory[]): Promise<void>
  forgetPlainMemory(ip: string, host: string): Promise<void>
  /** Adds up. */
  addTlsResults(results: TlsResult[]): Promise<void>
  /** Of one day and all domains, for the reports; a domain is reported once for each day. */
  tlsResults(day: string): Promise<TlsResult[]>
  noteTlsReport(day: string, domain: string): Promise<void>
  tlsReportsDue(day: string): Promise<string[]>

  /** Contents whose messages are all final, and were before that time. */
  overdueContents(request: ForgetRequest): Promise<OverdueContents>
  /** Bodies and attachments of those that are still over; `links` stay. As many as fit into a slice, at least one. */
  forgetContents(request: ForgetContentsRequest): Promise<ForgottenContents>
  /** What `forgetContents` was given for a content, or null. */
  keptLinks(contentId: number): Promise<string | null>
  /**
   * Messages with all that is about them; where links of them may still be followed, a trace stays. Stays too: what is
   * not final, has its content still, or has a webhook delivery that waits or is a dead letter.
   */
  forgetMessages(request: ForgetMessagesRequest): Promise<ForgetStep>
  /** Events of no message. */
  forgetEvents(request: ForgetRequest): Promise<ForgetStep>
  forgetTranscripts(request: ForgetRequest): Promise<ForgetStep>
  /** Kept targets of messages that are there: their links are gone from then on. */
  forgetLinks(request: ForgetRequest): Promise<ForgetStep>
  forgetTraces(request: ForgetRequest): Promise<ForgetStep>
  /** Cuts free space off the file, but so many bytes, in at most so many pages; returns how many bytes went. */
  giveBackPages(keptBytes: number, limit: number): Promise<number>
  databaseSize(): Promise<DatabaseSize>
  /** An estimate, in a few milliseconds whatever the size. */
  storageFigures(): Promise<StorageFigures>
  /**
   * One part of erasing an address: it is replaced in its messages, and what waits for it is canceled. With the last
   * part it is on the suppression list as a keyed hash, so that nothing is sent to it again.
   */
  eraseSomeOfRecipient(request: EraseRecipientRequest): Promise<EraseStep>
  /** Kept once for each UTC day. */
  noteDatabaseSize(day: string, bytes: number): Promise<void>

  /** Answers when the engine is alive: the trivial read of the watchdog. */
  tick(): Promise<void>
  /** Finishes what was called before, and closes. What is still held then is found by the next `beginEpoch`. */
  close(): Promise<void>
}
