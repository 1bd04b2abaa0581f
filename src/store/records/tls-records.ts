/**
 * What outbound TLS has to remember: MTA-STS policies, hosts whose STARTTLS failed, results for TLS-RPT. Conventions as
 * in `records.ts`.
 */

/** Cached past failures of DNS and web server until it expires (RFC 8461 §3.3, §5.1). */
export interface StsPolicyRecord {
  /** The recipient domain. */
  domain: string
  id: string
  mode: 'enforce' | 'testing' | 'none'
  mx: string[]
  fetchedAt: number
  expiresAt: number
}

/** The one plain fallback: this host is not asked for STARTTLS from this IP until then. */
export interface PlainMemory {
  ip: string
  host: string
  until: number
  reason: string
}

/** Connections of one UTC day with the same facts (RFC 8460 §4). */
export interface TlsResult {
  day: string
  domain: string
  policyType: 'sts' | 'tlsa' | 'no-policy-found'
  /** The policy as lines of text: of the record, or of the TLSA set. */
  policy: string[]
  host: string
  ip: string
  /** `success`, or a result type of RFC 8460 §4.3. */
  result: string
  count: number
}
