/**
 * How much mail went out since a time, and how many reports about any came back: among those about the newest messages
 * that any came for. Where there are more, the exact number says nothing more and is not looked for.
 */
import type { Database } from 'better-sqlite3'
import { utcDay } from '../../../base/utc-day.ts'
import type { ReportSums } from '../../records/report-records.ts'

const MOST_LOOKED_AT = 10_000

export function createReportSums(database: Database): (since: number) => ReportSums {
  const sent = database.prepare<[string], { messages: number | null }>(`
    select sum(ip_days.messages) as messages
    from egress_ips
    cross join ip_days on ip_days.ip = egress_ips.ip and ip_days.isp = '*' and ip_days.day >= ?`)
  const bounces = database.prepare<[number, number], { reports: number }>(`
    select count(*) as reports
    from (select kind, at from reports order by message_seq desc limit +?) as reports
    where kind in ('bounce', 'early-bounce') and at >= ?`)
  const complaints = database.prepare<[number, number], { reports: number }>(`
    select count(*) as reports
    from (select at from complaints order by message_seq desc limit +?) as complaints
    where at >= ?`)
  return (since) => ({
    sent: sent.get(utcDay(since))?.messages ?? 0,
    bounces: bounces.get(MOST_LOOKED_AT, since)?.reports ?? 0,
    complaints: complaints.get(MOST_LOOKED_AT, since)?.reports ?? 0,
  })
}
