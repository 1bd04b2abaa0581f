/** API keys, sending domains and their DKIM keys. */
import type { ServiceEvent } from '../../mail/event.ts'

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
export type ApiKeyChange = Partial<Pick<ApiKeyRecord, 'name' | 'domains' | 'allowedIps' | 'expiresAt'>>

type ApiKeyPage = { keys: ApiKeyRecord[]; next: string | null }

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
export type DomainChange = Partial<Pick<DomainRecord, 'tracking' | 'ipPool' | 'allowSubdomains'>>

type Checked =
  'name' | 'state' | 'verifiedAt' | 'nextCheckAt' | 'failingSince' | 'failedChecks' | 'degradedAt' | 'checks' | 'keys'

/** Everything that a check found and what follows from it. */
export interface DomainCheckResult extends Pick<DomainRecord, Checked> {
  /**
   * When the domain was read for this check: keys that are younger stay as they are; older ones left out are deleted.
   */
  now: number
  /** Told to subscribed webhook endpoints with the new state. */
  events: ServiceEvent[]
}

export interface SenderVerbs {
  /** ServiceError conflict when it would be one more living key than `most` (null: no limit). */
  addApiKey(key: ApiKeyRecord, hash: Uint8Array, most: number | null): Promise<void>
  /** By the SHA-256 of the whole key. */
  findApiKey(hash: Uint8Array): Promise<ApiKeyRecord | null>
  findApiKeyById(id: string): Promise<ApiKeyRecord | null>
  /** Newest first, revoked ones too. ServiceError invalid_request for a cursor that is none. */
  listApiKeys(limit: number, after: string | null): Promise<ApiKeyPage>
  /**
   * With `keepsAdminAt`, the time now: ServiceError conflict when the key would expire earlier than before, and no key
   * with the scope admin would be left then that is live, not revoked and not expired.
   */
  updateApiKey(id: string, change: ApiKeyChange, keepsAdminAt?: number): Promise<ApiKeyRecord | null>
  /**
   * Revoked at once; an earlier revocation keeps its time. With `keepsAdmin`, ServiceError conflict when no other key
   * with the scope admin would be left that is live, not revoked and not expired.
   */
  revokeApiKey(id: string, now: number, keepsAdmin: boolean): Promise<ApiKeyRecord | null>
  /** By id: when it was last used. Never moves a time back. */
  noteKeyUse(uses: { id: string; at: number }[]): Promise<void>
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
   * Newest first. A domain added or removed between two pages moves no other one out of the walk. ServiceError
   * invalid_request for a cursor that is none.
   */
  listDomains(request: {
    states: DomainState[] | null
    limit: number
    after: string | null
  }): Promise<{ domains: DomainRecord[]; next: string | null }>
  updateDomain(name: string, change: DomainChange): Promise<DomainRecord | null>
  /** State, keys and events with their webhook deliveries, together; keys younger than `now` stay. */
  recordDomainCheck(result: DomainCheckResult): Promise<DomainRecord | null>
  /** Of the removed domains of this name: their last 20 keys, which the DNS may still have. */
  earlierDkimKeys(name: string): Promise<PublicDkimKey[]>
  /**
   * ServiceError conflict when the domain has a key of the same selector, or a next one of the same algorithm.
   * `replaced`: selectors of next keys that go.
   */
  addDkimKeys(name: string, keys: DkimKeyRecord[], replaced?: string[]): Promise<DomainRecord | null>
  /** Names of domains whose next check is due, the longest due first. */
  domainsDueForCheck(now: number, limit: number): Promise<string[]>
  /** Messages of a sending domain that have not ended: what `removeDomain` would tell. */
  queuedMessages(domain: string): Promise<number>
  /**
   * Ends the domain; a domain of the same name can be added at once. Its keys and return path stay for the mail that
   * waits. With `purge` that mail is canceled, in transactions of its own behind the one that removes: what one of them
   * leaves undone is the next `cancelPurged`'s. `queuedMessages`: how many had not ended when it was removed.
   */
  removeDomain(request: { name: string; now: number; purge: boolean }): Promise<{ queuedMessages: number } | null>
  /**
   * Waiting messages of purged domains end as canceled with their event, also those that were under way when their
   * domain was removed; at most `limit`; returns how many.
   */
  cancelPurged(now: number, limit: number): Promise<number>
}
