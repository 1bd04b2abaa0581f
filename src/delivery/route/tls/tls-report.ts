/**
 * One TLS report: what happened to connections for a recipient domain on a UTC day, and the mail that carries it (RFC
 * 8460 §3, §4.4, §5). Pure. A record whose destinations cannot be read has none.
 */
import { gzipSync } from 'node:zlib'
import { DAY, toUnixSeconds } from '../../../base/clock.ts'
import { startOfUtcDay } from '../../../base/utc-day.ts'
import type { TlsResult } from '../../../store/records/tls-records.ts'

export type ReportDestination = { kind: 'https'; url: string } | { kind: 'mail'; address: string }

export interface TlsReport {
  id: string
  domain: string
  /** Our host name. */
  submitter: string
  fileName: string
  /** JSON, compressed. */
  bytes: Buffer
}

/** `day`: `YYYY-MM-DD`; `contact`: who answers questions. */
type ReportFacts = { day: string; domain: string; submitter: string; contact: string }

export const REPORT_TYPE = 'application/tlsrpt+gzip'

// The version, and what follows it up to the end of the field.
const RECORD_START = /^v=TLSRPTv1[ \t]*;/
const MOST_DESTINATIONS = 10
/** RFC 2045 §6.8. */
const BASE64_LINE_CHARACTERS = 76

/** RFC 8460 §3: exactly one record; its `rua` has URIs with commas between. */
export function readReportDestinations(texts: readonly string[]): ReportDestination[] {
  const records = texts.filter((text) => RECORD_START.test(text))
  const [record] = records
  if (record === undefined || records.length > 1) return []
  const fields = record.split(';').map((part) => part.trim())
  const uris = fields.find((part) => part.startsWith('rua='))?.slice('rua='.length) ?? ''
  const destinations = uris.split(',').map((uri) => readDestination(uri.trim()))
  return destinations.filter((each) => each !== undefined).slice(0, MOST_DESTINATIONS)
}

function readDestination(uri: string): ReportDestination | undefined {
  if (/^https:\/\//i.test(uri)) return { kind: 'https', url: uri }
  // The address, up to the header fields that a mailto URI may name.
  const address = /^mailto:([^?]+)/i.exec(uri)?.[1]
  if (address === undefined) return undefined
  try {
    return { kind: 'mail', address: decodeURIComponent(address) }
  } catch {
    // A percent sign that is no escape.
    return undefined
  }
}

export function makeTlsReport(facts: ReportFacts, results: readonly TlsResult[]): TlsReport {
  const { day, domain, submitter, contact } = facts
  const id = `${day}.${domain}@${submitter}`
  const groups = Map.groupBy(results, ({ policyType, policy }) => JSON.stringify([policyType, policy]))
  const report = {
    'organization-name': submitter,
    'date-range': { 'start-datetime': `${day}T00:00:00Z`, 'end-datetime': `${day}T23:59:59Z` },
    'contact-info': contact,
    'report-id': id,
    policies: [...groups.values()].map((group) => policyOf(domain, group)),
  }
  const start = startOfUtcDay(day)
  const fileName = `${submitter}!${domain}!${toUnixSeconds(start)}!${toUnixSeconds(start + DAY - 1)}.json.gz`
  return { id, domain, submitter, fileName, bytes: gzipSync(JSON.stringify(report)) }
}

function policyOf(domain: string, group: readonly TlsResult[]): Record<string, unknown> {
  const { policyType = 'no-policy-found', policy = [] } = group[0] ?? {}
  const count = (isCounted: (result: TlsResult) => boolean): number =>
    group.filter(isCounted).reduce((sum, result) => sum + result.count, 0)
  const failures = group.filter(({ result }) => result !== 'success')
  const mx = policy.flatMap((line) => (line.startsWith('mx: ') ? [line.slice('mx: '.length)] : []))
  return {
    policy: {
      'policy-type': policyType,
      ...(policy.length > 0 ? { 'policy-string': policy } : {}),
      'policy-domain': domain,
      ...(mx.length > 0 ? { 'mx-host': mx } : {}),
    },
    summary: {
      'total-successful-session-count': count(({ result }) => result === 'success'),
      'total-failure-session-count': count(({ result }) => result !== 'success'),
    },
    'failure-details': failures.map(({ result, ip, host, count: sessions }) => ({
      'result-type': result,
      ...(ip === '' ? {} : { 'sending-mta-ip': ip }),
      ...(host === '' ? {} : { 'receiving-mx-hostname': host }),
      'failed-session-count': sessions,
    })),
  }
}

/** RFC 8460 §5.3. */
export function reportSubject({ domain, submitter, id }: TlsReport): string {
  return `Report Domain: ${domain} Submitter: ${submitter} Report-ID: <${id}>`
}

/** The whole mail, without Message-ID and Date, which every mail of ours gets on its way. */
export function reportMail(report: TlsReport, from: string, to: string): Buffer {
  const boundary = `tlsrpt-${Buffer.from(report.id).toString('hex').slice(-40)}`
  // Whole lines, and what is left.
  const lines = report.bytes.toString('base64').match(new RegExp(`.{1,${BASE64_LINE_CHARACTERS}}`, 'g')) ?? []
  return Buffer.from(
    [
      `From: <${from}>`,
      `To: <${to}>`,
      `Subject: Report Domain: ${report.domain}`,
      ` Submitter: ${report.submitter}`,
      ` Report-ID: <${report.id}>`,
      `TLS-Report-Domain: ${report.domain}`,
      `TLS-Report-Submitter: ${report.submitter}`,
      'Auto-Submitted: auto-generated',
      'MIME-Version: 1.0',
      'Content-Type: multipart/report; report-type="tlsrpt";',
      ` boundary="${boundary}"`,
      '',
      `--${boundary}`,
      'Content-Type: text/plain; charset=us-ascii',
      '',
      'This is an aggregate TLS report (RFC 8460) of connections to the mail servers of',
      `${report.domain}.`,
      '',
      `--${boundary}`,
      `Content-Type: ${REPORT_TYPE}`,
      'Content-Transfer-Encoding: base64',
      'Content-Disposition: attachment;',
      ` filename="${report.fileName}"`,
      '',
      ...lines,
      `--${boundary}--`,
      '',
    ].join('\r\n'),
  )
}
