/**
 * What goes into the store's verbs and what comes out: plain data, the same for every engine. Times are Unix
 * milliseconds, byte strings are Uint8Array, identifiers carry their prefix.
 */
import type { DeliveryAttempt, DeliveryOutcome } from '../../mail/reply/delivery-outcome.ts'
import type { BounceCategory } from '../../mail/reply/bounce-category.ts'
import type { ServiceEvent } from '../../mail/event.ts'
import type { Stream } from '../../mail/message.ts'
import type { Grant, QueueKey, WaitingFor } from './queue-records.ts'

/** One claim of a row. A row that is claimed again has a new one: who shows the old one holds nothing any more. */
export interface RowClaim {
  /** The row in the store. */
  key: number
  /** A positive number that no other claim of this epoch has: what a row under way is known by. */
  claim: number
}

/** A message under lease, with what the dispatcher decides by. Bodies stay in the store. */
export interface ClaimedMessage extends RowClaim {
  id: string
  contentId: number
  pool: string
  stream: Stream
  /** The sending domain. */
  domain: string
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
  /** Name of the route it was queued under; UNROUTED when its hosts were not known then. */
  route: string
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

export interface LeasedPage {
  rows: LeasedRow[]
  /** Where the next page begins; null: this was the last. */
  next: LeasedPosition | null
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
  asks: { key: QueueKey; limit: number }[]
}

export interface ClaimResult {
  messages: ClaimedMessage[]
  /** For each ask, in its order: when its key has to be asked for again, e.g. since a row is due; null: it has none. */
  earliestAt: (number | null)[]
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

export interface RecordOutcomesRequest {
  epoch: number
  now: number
  outcomes: OutcomeRecord[]
}

/** What the start of an epoch found. */
export interface EpochStart {
  /** Greater than every earlier epoch: the fence of all claims of this process. */
  epoch: number
  /** Messages that a dead process held: due again at once. */
  recovered: number
  /** Those whose final dot may have gone out: due after the uncertain wait, marked as possible duplicates. */
  uncertain: number
}

export interface QueueSummary {
  waiting: number
  sending: number
  /** Due time of the oldest waiting message that is due, or null. */
  oldestDueAt: number | null
}

export interface ApiKeyRecord {
  id: string
  name: string
  mode: 'live' | 'test'
  scopes: string[]
  /** Sending domains it may use; empty: all. */
  domains: string[]
  /** Networks it may be used from; empty: all. */
  allowedIps: string[]
  /** First characters of the key, `sk_live_` or `sk_test_`. */
  prefix: string
  last4: string
  createdAt: number
  expiresAt: number | null
  /** Right to within five minutes. */
  lastUsedAt: number | null
  revokedAt: number | null
}

/** What may be changed of a key; what is left out stays. */
export interface ApiKeyChange {
  name?: string
  domains?: string[]
  allowedIps?: string[]
  expiresAt?: number | null
}

export interface ApiKeyPage {
  /** Newest first, revoked ones too. */
  keys: ApiKeyRecord[]
  next: string | null
}

export type DomainState = 'pending' | 'verified' | 'degraded' | 'failed' | 'suspended'

/** What the last check of one DNS record found; `value` and the rest are made anew from the domain. */
export interface RecordCheck {
  purpose: string
  /** For DKIM: which key's record it is. */
  selector?: string
  status: 'pending' | 'verified' | 'failed' | 'temporary_failure'
  found: string[]
  error: string | null
  hint: string | null
  checkedAt: number
  /** For SPF: the result for each IP. */
  evaluated?: { ip: string; result: string }[]
}

export type DkimAlgorithm = 'rsa-sha256' | 'ed25519-sha256'

export type DkimKeyRole =
  | 'next' // published by the customer soon; does not sign yet
  | 'active' // signs
  | 'retiring' // signed until the switch; its record has to stand until `retireAt`

/** The public part of a key. */
export type PublicDkimKey = Pick<DkimKeyRecord, 'algorithm' | 'publicKey'>

export interface DkimKeyRecord {
  /** Unlike every other one of its domain. */
  selector: string
  algorithm: DkimAlgorithm
  role: DkimKeyRole
  /** The `p=` of its record, base64: SubjectPublicKeyInfo for RSA, the raw 32 bytes for Ed25519 (RFC 8463, 4). */
  publicKey: string
  /** PKCS#8 PEM, sealed with the storage key and `dkim <domain> <selector>` as associated data. */
  sealedPrivateKey: Uint8Array
  createdAt: number
  /** The first check that saw its record since it became `next`, or null. */
  seenAt: number | null
  /** For `retiring`: until when its record must stand; else null. */
  retireAt: number | null
}

export interface DomainRecord {
  /** Lower-case A-labels. */
  name: string
  state: DomainState
  /** Oldest first. */
  keys: DkimKeyRecord[]
  /** Host name of the envelope sender's domain, e.g. `bounces.acme.com`. */
  returnPath: string
  /** Host name of tracked links, e.g. `t.acme.com`. */
  trackingDomain: string
  tracking: DomainTracking
  /** Whether names below this one may be sent from too. */
  allowSubdomains: boolean
  /** null: the default pool. */
  ipPool: string | null
  createdAt: number
  /** When it last became verified. */
  verifiedAt: number | null
  lastCheckedAt: number | null
  /** When the schedule checks it again, or null: not by itself. */
  nextCheckAt: number | null
  /** Since when a required record has been wrong, without a right one between, or null. */
  failingSince: number | null
  /** Checks in a row that found a required record wrong. */
  failedChecks: number
  /** When it became degraded, or null. */
  degradedAt: number | null
  checks: RecordCheck[]
}

export interface DomainTracking {
  opens: boolean
  clicks: boolean
}

/** What a customer may change; what is left out stays. */
export interface DomainChange {
  tracking?: DomainTracking
  ipPool?: string | null
  allowSubdomains?: boolean
}

/** Everything that a check found and what follows from it. */
export interface DomainCheckResult {
  name: string
  /** When the domain was read for this check: keys that are younger stay as they are. */
  now: number
  state: DomainState
  verifiedAt: number | null
  nextCheckAt: number | null
  failingSince: number | null
  failedChecks: number
  degradedAt: number | null
  checks: RecordCheck[]
  /** The whole new set; keys left out are deleted. */
  keys: DkimKeyRecord[]
  /** Told to subscribed webhook endpoints with the new state. */
  events: ServiceEvent[]
}

export interface ListDomainsRequest {
  /** null: all. */
  states: DomainState[] | null
  limit: number
  /** `next` of the page before, or null: from the newest on. */
  after: string | null
}

export interface DomainPage {
  /** Newest first. */
  domains: DomainRecord[]
  /** Cursor of the page after this one, or null: there is none. */
  next: string | null
}

export interface RemoveDomainRequest {
  name: string
  now: number
  /** Waiting messages end as canceled; otherwise they drain with the domain's keys. */
  purge: boolean
}
