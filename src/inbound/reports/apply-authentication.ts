/**
 * A DMARC or TLS report that came in -> what the store counts of it (inbound/README.md "DMARC and TLS reports"). It
 * proves nothing and changes nothing but these counts. Rejects when the store does not answer.
 */
import { DAY, type Clock } from '../../base/clock.ts'
import { unreachable } from '../../base/errors.ts'
import { startOfUtcDay } from '../../base/utc-day.ts'
import type { AuthenticationReading } from '../../mail/authentication/authentication-report.ts'
import type { AuthenticationResult } from '../../store/records/authentication-records.ts'
import type { Store } from '../../store/store.ts'

export interface AuthenticationParts {
  store: Pick<Store, 'recordDmarcReport' | 'recordTlsReport'>
  clock: Clock
  settings: { hostname: string; domains: { targets: { return_path: string } } }
}

/** What the log says of it. */
interface AppliedReport {
  kind: 'dmarc-report' | 'tls-report' | 'authentication-report'
  result: AuthenticationResult | 'refused' | 'wrong-day'
  reason?: string
}

/** Receivers report a day when it is over, some a few days later. */
const MOST_AGE = 30 * DAY
/** A reporter's day may begin before ours. */
const MOST_AHEAD = DAY

/** null: the mail carries no such report. */
export function createApplyAuthentication({ store, clock, settings }: AuthenticationParts) {
  const ownNames = [settings.hostname, settings.domains.targets.return_path].map((name) => name.toLowerCase())
  return async (reading: AuthenticationReading): Promise<AppliedReport | null> => {
    if (reading.kind === 'none') return null
    if (reading.kind === 'refused') return { kind: 'authentication-report', result: 'refused', reason: reading.reason }
    const kind = `${reading.kind}-report` as const
    const now = clock.now()
    const begin = startOfUtcDay(reading.day)
    if (begin < now - MOST_AGE || begin > now + MOST_AHEAD) {
      return { kind, result: 'wrong-day', reason: `the report is of ${reading.day}` }
    }
    const { reporter, reportId, day } = reading
    const report = { reporter, reportId, day, now }
    switch (reading.kind) {
      case 'dmarc':
        return { kind, result: await store.recordDmarcReport({ ...report, sources: reading.sources }) }
      case 'tls':
        return { kind, result: await store.recordTlsReport({ ...report, results: reading.results, ownNames }) }
      default:
        return unreachable(reading)
    }
  }
}
