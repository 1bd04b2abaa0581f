/** What claims, leases and outcomes of messages carry, and the verbs of the queue. */
import type { DeliveryAttempt, DeliveryOutcome } from '../../mail/reply/delivery-outcome.ts'
import type { BounceCategory } from '../../mail/reply/bounce-category.ts'
import type { ServiceEvent } from '../../mail/event.ts'
import type {
  ExpiredMessage,
  Grant,
  QueueKey,
  QueueKeyPage,
  QueueKeyState,
  QueuedRows,
  RouteAssignment,
  WaitingFor,
} from './queue-records.ts'
import type { QueueAction, QueueFilter, QueueGroup, QueueGrouping } from '../../mail/waiting-mail.ts'

/** One claim of a row. A row that is claimed again has a new one: who shows the old one holds nothing any more. */
export interface RowClaim {
  /** The row in the store. */
  key: number
  /** A positive number that no other claim of this epoch has: what a row under way is known by. */
  claim: number
}

/** A message under lease, with what the dispatcher decides by. Bodies stay in the store. */
export interface ClaimedMessage extends RowClaim, Omit<QueueKey, 'isRetry'> {
  id: string
  contentId: number
  /** As given in the request, without display name. */
  recipient: string
  recipientDomain: string
  /** Attempts that reached MAIL FROM. */
  attempts: number
  acceptedAt: number
  expiresAt: number
  /** Path failures in a row; they have a back-off of their own. */
  pathFailures: number
  /** Times the answer to the final dot was lost on a live connection. */
  ambiguousCount: number
  /** It may have arrived: by such an answer, or because a process or thread ended behind its dot. */
  isPossibleDuplicate: boolean
  /**
   * IP of the last attempt that did not give its allowance back: a retry from it costs none. Before any attempt, that
   * of the last path failure.
   */
  lastIp: string | null
  /**
   * null: free choice. Else the next attempt leaves from `lastIp`: with 0 when that can send now, with a time it waits
   * for it until then (greylisting).
   */
  keepIpUntil: number | null
  /** IPs that were blocked for it. */
  avoidIps: string[]
  /** It goes to the capture server on loopback, whatever its domain says. */
  isCaptured: boolean
}

/** A row under lease, as the search for rows in nobody's hand reads it. */
export interface LeasedRow extends RowClaim {
  id: string
  /** When it was claimed. */
  since: number
  /** It has the dot mark. */
  isMarked: boolean
}

/** Leases in the order of their end. */
export interface LeasedPosition {
  leaseUntil: number
  key: number
}

export interface ClaimRequest {
  now: number
  epoch: number
  leaseUntil: number
  /**
   * `from`: no row that waits is due earlier. The index is not walked over rows that have left it and that an old
   * snapshot keeps. Left out: nothing is known.
   */
  asks: { key: QueueKey; limit: number; from?: number }[]
}

/** What a claim found due. */
export interface FoundDue {
  messages: ClaimedMessage[]
  /** Rows that ended as suppressed instead, with their events. */
  suppressed: number
}

export interface ClaimResult extends FoundDue {
  /** For each ask, in its order: when its key has to be asked for again, e.g. since a row is due; null: it has none. */
  earliestAt: (number | null)[]
  /** The same of its first row that waits, past its lifetime or not: `from` of the next ask. */
  firstAt: (number | null)[]
}

/** Rows that go back to the queue without an attempt. */
export interface UnclaimRequest {
  epoch: number
  rows: (RowClaim & {
    nextAt: number
    /** Why it waits until then; left out: nothing to say. */
    waitingFor?: WaitingFor
    /** Its allowance goes back: no RCPT was sent. */
    refund?: Grant
    /** Its domain has another route now. */
    route?: string
    /** Its holder died with the dot mark set: whether the final dot went out is not known. */
    isPossibleDuplicate?: boolean
  })[]
}

/** How a row goes back to the queue: when it is due again, and what it waits for. */
export type GiveBack = Omit<UnclaimRequest['rows'][number], keyof RowClaim>

/** One try and all that follows from it, recorded together. */
export interface OutcomeRecord extends RowClaim {
  attempt: DeliveryAttempt
  outcome: DeliveryOutcome
  /** Mailbox provider, once known. */
  isp: string | null
  /** What the reply says, for statistics and warmup gates; null: nothing was said. */
  category: BounceCategory | null
  /** For the next attempt, when there is one: see ClaimedMessage. */
  keepIpUntil: number | null
  avoidIps: string[]
  /** Its allowance goes back: no RCPT was sent. */
  refund: Grant | null
  /** Events that the outcome brings, `email.attempted` excepted: the store adds that one itself. */
  events: ServiceEvent[]
  /** The address goes onto the suppression list of the message's mode, scope `all`, reason `hard_bounce`. */
  suppresses: boolean
  /** The SMTP dialogue without the message; null: nothing to keep. */
  transcript: string | null
}

/** What the start of an epoch found. */
export interface EpochStart {
  /** Greater than every earlier epoch: the fence of all claims of this process. */
  epoch: number
  /** Messages that no living node holds: due again at once. */
  recovered: number
  /** Those whose final dot may have gone out: due after the uncertain wait, marked as possible duplicates. */
  uncertain: number
  /** When the newest message was accepted; null: there is none. */
  newestAt: number | null
}

export interface QueueSummary {
  waiting: number
  sending: number
  /** Due time of the oldest waiting message that is due, or null. */
  oldestDueAt: number | null
}

/** What the dispatcher does to rows, and what is done to all that waits. */
export interface QueueVerbs {
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
  }): Promise<FoundDue>
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
  recordOutcomes(request: { epoch: number; now: number; outcomes: OutcomeRecord[] }): Promise<void>
  /** Those of these rows that their claims still hold keep their lease until `leaseUntil`. */
  renewLeases(epoch: number, rows: RowClaim[], leaseUntil: number): Promise<void>
  /** Rows under lease of this epoch. One whose lease is renewed between two pages may come twice. */
  leasedRows(
    epoch: number,
    after: LeasedPosition | null,
    limit: number,
  ): Promise<{ rows: LeasedRow[]; next: LeasedPosition | null }>
  /**
   * Rows whose lease has lapsed (by the clock of leases) are due at `now`; those with a dot mark at `uncertainAt`,
   * marked as possible duplicates. Of this epoch, or of any. Returns how many.
   */
  recoverLapsedLeases(leasesBefore: number, now: number, uncertainAt: number, epoch?: number | null): Promise<number>
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
}
