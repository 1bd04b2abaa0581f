/**
 * Reads the JSON of a TLS report (RFC 8460 §4.4) as far as it is counted: of each policy how many sessions were well and
 * why others were not. Counts may be texts, as some reporters write them. Names of failures are those of RFC 8460 §4.3;
 * every other one is OTHER_FAILURE. At most 100 policies of 1,000 failures each. Never throws.
 */
import { isPlainObject } from '../../base/plain-object.ts'
import { utcDay } from '../../base/utc-day.ts'
import {
  MOST_COUNTED,
  OTHER_FAILURE,
  plainText,
  refused,
  reportedDomain,
  TLS_SUCCESS,
  type AuthenticationReading,
  type TlsSessions,
} from './authentication-report.ts'

const MOST_POLICIES = 100
const MOST_FAILURES = 1_000
const FAILURES: ReadonlySet<string> = new Set([
  'starttls-not-supported',
  'certificate-host-mismatch',
  'certificate-expired',
  'certificate-not-trusted',
  'validation-failure',
  'tlsa-invalid',
  'dnssec-invalid',
  'dane-required',
  'sts-policy-fetch-error',
  'sts-policy-invalid',
  'sts-webpki-invalid',
])

export function readTlsReport(bytes: Uint8Array): AuthenticationReading {
  const document = parsed(bytes)
  if (!isPlainObject(document) || !Array.isArray(document['policies'])) {
    return refused('the JSON of the report is cut, or is no TLS report')
  }
  const reporter = plainText(textOf(document['organization-name']))
  const reportId = plainText(textOf(document['report-id']))
  if (reporter === '' || reportId === '') return refused('the report does not name its reporter, or has no number')
  const range = document['date-range']
  const begin = Date.parse(textOf(isPlainObject(range) ? range['start-datetime'] : undefined))
  if (Number.isNaN(begin) || begin < 0) return refused('the report does not say of which day it is')
  const results = document['policies'].slice(0, MOST_POLICIES).flatMap(resultsOf)
  if (results.length === 0) return refused('the report is about no session')
  return { kind: 'tls', reporter, reportId, day: utcDay(begin), results }
}

function parsed(bytes: Uint8Array): unknown {
  try {
    // A byte order mark is not part of it.
    return JSON.parse(new TextDecoder().decode(bytes)) as unknown
  } catch {
    // No JSON: the same as a JSON that is no report.
    return undefined
  }
}

function resultsOf(entry: unknown): TlsSessions[] {
  if (!isPlainObject(entry) || !isPlainObject(entry['policy'])) return []
  const policyDomain = reportedDomain(textOf(entry['policy']['policy-domain']))
  if (policyDomain === undefined) return []
  const summary = isPlainObject(entry['summary']) ? entry['summary'] : {}
  const sums = new Map([[TLS_SUCCESS, countOf(summary['total-successful-session-count'])]])
  const details: unknown[] = Array.isArray(entry['failure-details']) ? entry['failure-details'] : []
  let explained = 0
  for (const detail of details.slice(0, MOST_FAILURES)) {
    if (!isPlainObject(detail)) continue
    const type = textOf(detail['result-type'])
    const result = FAILURES.has(type) ? type : OTHER_FAILURE
    const sessions = countOf(detail['failed-session-count'])
    explained += sessions
    sums.set(result, (sums.get(result) ?? 0) + sessions)
  }
  // What failed without a detail.
  const rest = countOf(summary['total-failure-session-count']) - explained
  if (rest > 0) sums.set(OTHER_FAILURE, (sums.get(OTHER_FAILURE) ?? 0) + rest)
  return [...sums]
    .filter(([, sessions]) => sessions > 0)
    .map(([result, sessions]) => ({ policyDomain, result, sessions: Math.min(sessions, MOST_COUNTED) }))
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function countOf(value: unknown): number {
  // At most 15 digits: exact as a number.
  const count = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value
  return typeof count === 'number' && Number.isSafeInteger(count) && count > 0 ? Math.min(count, MOST_COUNTED) : 0
}
