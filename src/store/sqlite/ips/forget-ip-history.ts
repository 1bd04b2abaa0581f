/**
 * What was counted of IPs goes when its time is over: hours by provider first, whose sums stay in the days, then hours,
 * days and warmup days, and the audit. In parts of a bounded number of rows.
 */
import type { Database } from 'better-sqlite3'
import { utcDay } from '../../../base/utc-day.ts'
import type { ForgetIpHistoryRequest } from '../../records/warmup-records.ts'

export function createForgetIpHistory(database: Database): (request: ForgetIpHistoryRequest) => number {
  const findIps = database.prepare<[], string>('select ip from egress_ips').pluck()
  // A partial one at a time, by the beginning of its key: these tables have no other number of a row.
  const removeIspHours = database.prepare<[string, number, number]>(`
    delete from ip_hours
    where (ip, hour, isp) in (
      select ip, hour, isp from ip_hours where ip = ? and hour < ? and isp <> '*' limit +?)`)
  const removeHours = database.prepare<[string, number, number]>(`
    delete from ip_hours
    where (ip, hour, isp) in (select ip, hour, isp from ip_hours where ip = ? and isp = '*' and hour < ? limit +?)`)
  const removeDays = database.prepare<[string, string, number]>(`
    delete from ip_days
    where (ip, day, isp) in (select ip, day, isp from ip_days where ip = ? and day < ? limit +?)`)
  const removeWarmupDays = database.prepare<[string, string, number]>(`
    delete from warmup_days
    where (ip, day, isp) in (select ip, day, isp from warmup_days where ip = ? and day < ? limit +?)`)
  const removeAudit = database.prepare<[number, number]>(`
    delete from warmup_audit
    where audit_seq in (select audit_seq from warmup_audit where at < ? limit +?)`)

  return ({ hoursBefore, statisticsBefore, auditBefore, limit }) => {
    const day = utcDay(statisticsBefore)
    let removed = removeAudit.run(auditBefore, limit).changes
    for (const ip of findIps.all()) {
      removed += removeIspHours.run(ip, Math.max(hoursBefore, statisticsBefore), limit).changes
      removed += removeHours.run(ip, statisticsBefore, limit).changes
      removed += removeDays.run(ip, day, limit).changes
      removed += removeWarmupDays.run(ip, day, limit).changes
    }
    return removed
  }
}
