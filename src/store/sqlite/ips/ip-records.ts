/**
 * What is known of each egress IP, and its changes with their audit rows and events: all of a change or nothing, and
 * only by who has seen the last one (compare and set by version).
 */
import type { Database } from 'better-sqlite3'
import type { AuditRecord, IpChange, IpRecord, StoredIpState } from '../../records/warmup-records.ts'
import { providerCap, TOGETHER } from './allowance.ts'
import { createEventRecorder } from '../events/record-events.ts'

interface IpRow extends Omit<IpRecord, 'pausedAt'> {
  /** JSON. */
  pausedAt: string
}

export function createIpRecords(database: Database): () => IpRecord[] {
  const find = database.prepare<[], IpRow>(`
    select
      ip, state, former_state as formerState, until_at as until, reason, actor, since, curve, stage,
      target_daily_volume as targetDailyVolume, started_at as startedAt, hold_reason as holdReason,
      days_held as daysHeld, days_at_target as daysAtTarget, paused_at as pausedAt, closed_day as closedDay,
      last_sent_at as lastSentAt, version
    from egress_ips
    order by ip`)
  return () => find.all().map((row) => ({ ...row, pausedAt: JSON.parse(row.pausedAt) as number[] }))
}

export function createAddIpRecords(database: Database): (records: IpRecord[]) => void {
  const add = database.prepare(`
    insert into egress_ips
      (ip, state, former_state, until_at, reason, actor, since, curve, stage, target_daily_volume, started_at,
      hold_reason, days_held, days_at_target, paused_at, closed_day, last_sent_at, version)
    values
      (@ip, @state, @formerState, @until, @reason, @actor, @since, @curve, @stage, @targetDailyVolume, @startedAt,
      @holdReason, @daysHeld, @daysAtTarget, @pausedAt, @closedDay, @lastSentAt, @version)
    on conflict do nothing`)
  return (records) => {
    for (const record of records) add.run(rowOf(record))
  }
}

const rowOf = (record: IpRecord): IpRow => ({ ...record, pausedAt: JSON.stringify(record.pausedAt) })

/** False, and nothing changed: another change came first, or there is no such IP. */
export function createChangeIp(database: Database): (change: IpChange) => boolean {
  // Mail that left meanwhile is newer than what the record was read with.
  const change = database.prepare(`
    update egress_ips
    set state = @state, former_state = @formerState, until_at = @until, reason = @reason, actor = @actor,
      since = @since, curve = @curve, stage = @stage, target_daily_volume = @targetDailyVolume,
      started_at = @startedAt, hold_reason = @holdReason, days_held = @daysHeld, days_at_target = @daysAtTarget,
      paused_at = @pausedAt, closed_day = @closedDay,
      last_sent_at = nullif(max(coalesce(last_sent_at, 0), coalesce(@lastSentAt, 0)), 0), version = version + 1
    where ip = @ip and version = @version`)
  const addAudit = createAuditWriter(database)
  const setCaps = createCapWriter(database)
  const events = createEventRecorder(database)

  return ({ record, audit, events: happened, caps }) => {
    if (change.run(rowOf(record)).changes === 0) return false
    for (const entry of audit) addAudit(entry)
    if (caps !== null) setCaps(record.ip, caps)
    for (const event of happened) events.record([{ ...event, messageKey: null }], event.at)
    return true
  }
}

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

/** Newest first. */
export function createWarmupAudit(database: Database): (request: { ip: string; limit: number }) => AuditRecord[] {
  const find = database.prepare<[string, number], AuditRow & { fromState: StoredIpState; toState: StoredIpState }>(`
    select
      ip, at, actor, action, from_state as fromState, to_state as toState, from_stage as fromStage,
      to_stage as toStage, day, figures, reason
    from warmup_audit
    where ip = ?
    order by audit_seq desc
    limit +?`)
  return ({ ip, limit }) =>
    find.all(ip, limit).map((row) => ({ ...row, figures: JSON.parse(row.figures) as AuditRecord['figures'] }))
}

/** The caps of a day that has begun; never below what is granted. */
function createCapWriter(database: Database): (ip: string, caps: NonNullable<IpChange['caps']>) => void {
  const findIsps = database
    .prepare<[string, string], string>('select isp from warmup_days where ip = ? and day = ?')
    .pluck()
  const setCap = database.prepare<[number, string, string, string]>(
    'update warmup_days set cap = max(granted, ?) where ip = ? and day = ? and isp = ?',
  )
  return (ip, caps) => {
    for (const isp of findIsps.all(ip, caps.day)) {
      setCap.run(isp === TOGETHER ? caps.cap : providerCap(caps, isp), ip, caps.day, isp)
    }
  }
}
