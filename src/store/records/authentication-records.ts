/** What receivers reported of mail in the name of our domains, and of TLS to our servers: claims, kept by day. */
import type { DmarcSource, TlsSessions } from '../../mail/authentication/authentication-report.ts'

interface ReportToCount {
  reporter: string
  reportId: string
  /** UTC date. */
  day: string
  now: number
}

/** `recorded`: for at least one domain. `too-many`: the domain has as many reports of that day as are counted. */
export type AuthenticationResult = 'recorded' | 'repeated' | 'unknown-domain' | 'too-many'

/** Sums of a source over the days that were asked for. */
export interface SourceSums extends Omit<DmarcSource, 'headerFrom'> {
  /** The first and the last day that it was seen on. */
  firstDay: string
  lastDay: string
}

export interface DmarcDay {
  day: string
  messages: number
  passed: number
}

export interface DmarcFindings {
  reports: number
  /** As they call themselves; some of many. */
  reporters: string[]
  /** With reports only, in order. */
  days: DmarcDay[]
  /** The largest first. */
  sources: SourceSums[]
}

export interface TlsDay {
  day: string
  result: string
  sessions: number
}

export interface AuthenticationVerbs {
  /**
   * Adds the messages of a report to the sending domain that each From is of, or is below; the nearest counts, others
   * are left out. The same report counts once for a domain. Sources beyond 1,000 of a domain and day are added up
   * without their address.
   */
  recordDmarcReport(report: ReportToCount & { sources: DmarcSource[] }): Promise<AuthenticationResult>
  /** The same for sessions; `ownNames` are names of this server, which count like sending domains. */
  recordTlsReport(report: ReportToCount & { results: TlsSessions[]; ownNames: string[] }): Promise<AuthenticationResult>
  /** From the first to the last day, both included. */
  dmarcFindings(domain: string, from: string, to: string): Promise<DmarcFindings>
  /** `domain`: a sending domain, or a name of this server. */
  tlsDays(domain: string, from: string, to: string): Promise<TlsDay[]>
  /** Of days before this one, at most so many rows of each kind; returns how many are gone. */
  forgetAuthenticationReports(beforeDay: string, limit: number): Promise<number>
  /** Everything about one domain, at most so many rows of each kind; returns how many are gone. */
  forgetReportsOfDomain(domain: string, limit: number): Promise<number>
}
