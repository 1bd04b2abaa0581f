/**
 * What a receiver reports of mail that carries a domain's name: a DMARC aggregate report (RFC 7489 §7.2, RFC 9990) or a
 * TLS report (RFC 8460). Anybody can send one, so all of it is a claim (inbound/README.md "DMARC and TLS reports"). Pure.
 */
import { domainToAscii } from '../address.ts'

/** Messages of one source with one name in From. */
export interface DmarcSource {
  /** Lower-case A-labels: the domain of the policy, or a name below it. */
  headerFrom: string
  /** Canonical; OTHER_SOURCES for all that were too many to be told apart. */
  ip: string
  messages: number
  /** Aligned, as DMARC counts it. */
  dkimPassed: number
  spfPassed: number
  /** By DKIM or by SPF: DMARC asks for no more. */
  passed: number
  quarantined: number
  rejected: number
}

/** Connections to the servers of one domain. */
export interface TlsSessions {
  /** Lower-case A-labels of the domain whose policy it was. */
  policyDomain: string
  /** TLS_SUCCESS, a failure type of RFC 8460 §4.3, or OTHER_FAILURE. */
  result: string
  sessions: number
}

interface ReportFacts {
  /** As it calls itself: plain text. */
  reporter: string
  /** Plain text. */
  reportId: string
  /** The UTC date on which the reported time begins. */
  day: string
}

interface DmarcReport extends ReportFacts {
  kind: 'dmarc'
  sources: DmarcSource[]
}

interface TlsSessionReport extends ReportFacts {
  kind: 'tls'
  results: TlsSessions[]
}

export type AuthenticationReading =
  | DmarcReport
  | TlsSessionReport
  /** It looks like a report, and nothing of it counts; the reason is a clear sentence. */
  | { kind: 'refused'; reason: string }
  /** The mail carries no such report. */
  | { kind: 'none' }

export const OTHER_SOURCES = ''
export const TLS_SUCCESS = 'success'
export const OTHER_FAILURE = 'other'
/** Of messages and sessions: what claims more is cut, so that sums stay exact. */
export const MOST_COUNTED = 1_000_000_000

const MOST_TEXT_CHARACTERS = 120

export function refused(reason: string): { kind: 'refused'; reason: string } {
  return { kind: 'refused', reason }
}

/** What others wrote, as one short line without anything that moves a terminal. */
export function plainText(text: string): string {
  // Every control, format and line character, and half of a pair that lost its other half.
  const plain = text.slice(0, MOST_TEXT_CHARACTERS).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]+/gu, ' ')
  return plain.trim()
}

/** Lower-case A-labels, or undefined for what is no domain. */
export function reportedDomain(text: string): string | undefined {
  const name = domainToAscii(text.trim().replace(/\.$/, ''))
  return name !== undefined && name.includes('.') && name.length <= 253 ? name : undefined
}
