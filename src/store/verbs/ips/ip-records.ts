/**
 * What is known of each egress IP, and its changes with their audit rows and events: all of a change or nothing, and
 * only by who has seen the last one (compare and set by version).
 */
import type { Database } from '../../engine/database.ts'
import type { AuditRecord, IpChange, IpRecord, PathStateRecord } from '../../records/warmup-records.ts'
import { HELD_UNTIL } from '../../records/queue-records.ts'
import { providerCap, TOGETHER } from './allowance.ts'
import { createEventRecorder } from '../events/record-events.ts'
import { oneColumn } from '../tools/statements.ts'
import { utcDay } from '../../../base/utc-day.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'

interface IpRow extends Omit<IpRecord, 'pausedAt'> {
  /** JSON. */
  pausedAt: string
}

export function createIpReads(database: Database) {
  const findIps = database.prepare<[], IpRow>(`
    select
      ip, state, former_state as formerState, until_at as until, reason, actor, since, curve, stage,
      target_daily_volume as targetDailyVolume, started_at as startedAt, hold_reason as holdReason,
      days_held as daysHeld, days_at_target as daysAtTarget, paused_at as pausedAt, closed_day as closedDay,
      last_sent_at as lastSentAt, version
    from egress_ips
    order by ip`)
  const findAudit = database.prepare<[string, number], AuditRow>(`
    select
      ip, at, actor, action, from_state as fromState, to_state as toState, from_stage as fromStage,
      to_stage as toStage, day, figures, reason
    from warmup_audit
    where ip = ?
    order by audit_seq desc
    limit +?`)
  const findPathStates = database.prepare<[], PathStateRecord>(`
    select ip, route, state, saved_at as savedAt from path_states`)
  return {
    ipRecords: () => findIps.all().map((row) => ({ ...row, pausedAt: JSON.parse(row.pausedAt) as number[] })),
    warmupAudit: (ip, limit) =>
      findAudit.all(ip, limit).map((row) => ({ ...row, figures: JSON.parse(row.figures) as AuditRecord['figures'] })),
    loadPathStates: () => findPathStates.all(),
  } satisfies SomeVerbs
}

export function createIpWrites(database: Database) {
  const add = database.prepare(`
    insert into egress_ips
      (ip, state, former_state, until_at, reason, actor, since, curve, stage, target_daily_volume, started_at,
      hold_reason, days_held, days_at_target, paused_at, closed_day, last_sent_at, version)
    values
      (@ip, @state, @formerState, @until, @reason, @actor, @since, @curve, @stage, @targetDailyVolume, @startedAt,
      @holdReason, @daysHeld, @daysAtTarget, @pausedAt, @closedDay, @lastSentAt, @version)
    on conflict do nothing`)
  // Mail that left meanwhile is newer than what the record was read with.
  const change = database.prepare(`
    update egress_ips
    set state = @state, former_state = @formerState, until_at = @until, reason = @reason, actor = @actor,
      since = @since, curve = @curve, stage = @stage, target_daily_volume = @targetDailyVolume,
      started_at = @startedAt, hold_reason = @holdReason, days_held = @daysHeld, days_at_target = @daysAtTarget,
      paused_at = @pausedAt, closed_day = @closedDay,
      last_sent_at = coalesce(max(last_sent_at, @lastSentAt), last_sent_at, @lastSentAt), version = version + 1
    where ip = @ip and version = @version`)
  const addAudit = createAuditWriter(database)
  const setCaps = createCapWriter(database)
  const events = createEventRecorder(database)
  const savePath = database.prepare(`
    insert into path_states (ip, route, state, saved_at)
    values (@ip, @route, @state, @savedAt)
    on conflict (ip, route) do update set state = excluded.state, saved_at = excluded.saved_at`)
  const forgetPath = database.prepare<[string, string]>('delete from path_states where ip = ? and route = ?')

  return {
    addIpRecords(records) {
      for (const record of records) add.run(rowOf(record))
    },
    changeIp({ record, audit, events: happened, caps }) {
      if (change.run(rowOf(record)).changes === 0) return false
      for (const entry of audit) addAudit(entry)
      if (caps !== null) setCaps(record.ip, caps)
      for (const event of happened) events.record([{ ...event, messageKey: null }], event.at)
      return true
    },
    savePathStates(states) {
      for (const path of states) {
        if (path.state === '') forgetPath.run(path.ip, path.route)
        else savePath.run(path)
      }
    },
  } satisfies SomeVerbs
}

const rowOf = (record: IpRecord): IpRow => ({ ...record, pausedAt: JSON.stringify(record.pausedAt) })

interface AuditRow extends Omit<AuditRecord, 'figures'> {
  /** JSON. */
  figures: string
}

function createAuditWriter(database: Database): (entry: AuditRecord) => void {
  const add = database.prepare(`
    insert into warmup_audit
      (ip, at, actor, action, from_state, to_state, from_stage, to_stage, day, figures, reason)
    values (@ip, @at, @actor, @action, @fromState, @toState, @fromStage, @toStage, @day, @figures, @reason)`)
  return (entry) => {
    const row: AuditRow = { ...entry, figures: JSON.stringify(entry.figures) }
    add.run(row)
  }
}

/**
 * The caps of a day that has begun; never below what is granted. Where there is more than before, its pace begins anew:
 * the last grants of a smaller day moved it beyond the day's end. Not on a day that a restore has closed.
 */
function createCapWriter(database: Database): (ip: string, caps: NonNullable<IpChange['caps']>) => void {
  const findIsps = oneColumn(database)<[string, string], string>('select isp from warmup_days where ip = ? and day = ?')
  const setCap = database.prepare<[{ cap: number; closed: number; ip: string; day: string; isp: string }]>(`
    update warmup_days
    set cap = max(granted, @cap), arrival_at = case
      when @cap > cap and arrival_at < @closed then 0
      else arrival_at end
    where ip = @ip and day = @day and isp = @isp`)
  return (ip, caps) => {
    for (const isp of findIsps.all(ip, caps.day)) {
      const cap = isp === TOGETHER ? caps.cap : providerCap(caps, isp)
      setCap.run({ cap, closed: HELD_UNTIL, ip, day: caps.day, isp })
    }
  }
}

/**
 * What was counted of IPs goes when its time is over: hours by provider first, whose sums stay in the days, then hours,
 * days and warmup days, and the audit. In parts of a bounded number of rows.
 */
export function createForgetIpHistory(database: Database): Verb<'forgetIpHistory'> {
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
