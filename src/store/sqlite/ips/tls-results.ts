/**
 * What connections said about TLS, summed by day for the reports of RFC 8460, and which of them were reported. Days
 * older than two weeks go as new ones come.
 */
import type { Database } from 'better-sqlite3'
import { dayAfter } from '../../../base/utc-day.ts'
import type { TlsResult } from '../../records/tls-records.ts'

interface ResultRow extends Omit<TlsResult, 'policy'> {
  /** JSON. */
  policy: string
}

const DAYS_KEPT = 14
/** Rows that one call forgets at most. */
const FORGOTTEN_AT_ONCE = 200

export function createAddTlsResults(database: Database): (results: TlsResult[]) => void {
  const add = database.prepare(`
    insert into tls_results (day, domain, policy_type, host, ip, result, policy, count)
    values (@day, @domain, @policyType, @host, @ip, @result, @policy, @count)
    on conflict do update set count = count + excluded.count`)
  const forgetResults = database.prepare<[string, number]>(`
    delete from tls_results
    where (day, domain, policy_type, host, ip, result, policy) in (
      select day, domain, policy_type, host, ip, result, policy from tls_results where day < ? limit +?)`)
  const forgetReports = database.prepare<[string, number]>(`
    delete from tls_reports
    where (day, domain) in (select day, domain from tls_reports where day < ? limit +?)`)
  return (results) => {
    for (const result of results) add.run({ ...result, policy: JSON.stringify(result.policy) })
    const newest = results
      .map(({ day }) => day)
      .sort()
      .at(-1)
    if (newest === undefined) return
    const before = dayAfter(newest, -DAYS_KEPT)
    forgetResults.run(before, FORGOTTEN_AT_ONCE)
    forgetReports.run(before, FORGOTTEN_AT_ONCE)
  }
}

/** By domain. */
export function createTlsResults(database: Database): (day: string) => TlsResult[] {
  const find = database.prepare<[string], ResultRow>(`
    select day, domain, policy_type as policyType, policy, host, ip, result, count
    from tls_results
    where day = ?
    order by domain`)
  return (day) => find.all(day).map((row) => ({ ...row, policy: JSON.parse(row.policy) as string[] }))
}

export function createNoteTlsReport(database: Database): (report: { day: string; domain: string }) => void {
  const note = database.prepare<[string, string]>(
    'insert into tls_reports (day, domain) values (?, ?) on conflict do nothing',
  )
  return ({ day, domain }) => void note.run(day, domain)
}

/** Domains with results of this day that were not reported. */
export function createTlsReportsDue(database: Database): (day: string) => string[] {
  const find = database
    .prepare<[string], string>(
      `
      select distinct domain
      from tls_results
      where day = ? and not exists (
        select 1 from tls_reports where tls_reports.day = tls_results.day and tls_reports.domain = tls_results.domain)
      order by domain`,
    )
    .pluck()
  return (day) => find.all(day)
}
