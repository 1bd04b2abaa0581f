/** What outbound TLS has to remember: MTA-STS policies, hosts whose STARTTLS failed, results for TLS-RPT. */

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

export interface TlsVerbs {
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
}
