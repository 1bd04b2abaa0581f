/**
 * API keys, sending domains and their DKIM keys: plain data, the same for every engine. Times are Unix milliseconds,
 * byte strings are Uint8Array, identifiers carry their prefix.
 */
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
