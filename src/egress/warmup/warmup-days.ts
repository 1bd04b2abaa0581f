/**
 * Closes warmup days: one verdict for each UTC day that is over, each day once (egress/README.md "Warmup days"). Days
 * without rows, such as those of a downtime, are closed as idle: they hold. Pure: the caller stores all of it in one
 * guarded change.
 */
import { dayAfter, startOfUtcDay, utcDay } from '../../base/utc-day.ts'
import type { WarmupCurve } from '../../config/settings/warmup-settings.ts'
import type { AuditRecord, IpRecord, WarmupDay } from '../../store/records/warmup-records.ts'
import { ALL_ISPS, capOf, targetOf } from './warmup-curve.ts'
import { isLackOfMail, judgeDay, type DayFigures, type DayVerdict } from './warmup-gates.ts'
import { andThen, isInWarmup, moveIp, unmoved, type MovedIp } from './warmup-states.ts'

interface DaysToClose {
  record: IpRecord
  pool: string
  curve: WarmupCurve
  now: number
  /** Rows of the days that are open and of the two days before them. */
  days: readonly WarmupDay[]
  /** Of these days, newest first: it knows the pauses. */
  audit: readonly AuditRecord[]
}

/** Older days are closed without a row each: audit rows are kept as long (egress/README.md "Audit"). */
const MOST_DAYS = 400
/** Healthy days in a row at the target that end the ramp (egress/README.md "Gates"). */
export const HEALTHY_DAYS_AT_TARGET = 3

/**
 * First day that is over and not closed; null: none, or this IP has no warmup. Today: a clock that ran ahead has closed
 * days that are not over.
 */
export function firstOpenDay(record: IpRecord, now: number): string | null {
  const { startedAt, closedDay } = record
  if (startedAt === null || !isInWarmup(record)) return null
  const first = closedDay === null ? utcDay(startedAt) : dayAfter(closedDay, 1)
  const today = utcDay(now)
  if (closedDay !== null && closedDay > today) return today
  if (first >= today) return null
  const oldest = dayAfter(today, -MOST_DAYS)
  return first > oldest ? first : oldest
}

export function closeDays(open: DaysToClose): MovedIp {
  const { record, now } = open
  const today = utcDay(now)
  // The days to come will be closed. Today counts as closed, for it may have been.
  if (firstOpenDay(record, now) === today) return unmoved({ ...record, closedDay: today })
  let closing = unmoved(record)
  for (let day = firstOpenDay(record, now) ?? today; day < today; day = dayAfter(day, 1)) {
    const date = day
    const audit = [...closing.audit.toReversed(), ...open.audit]
    closing = andThen(closing, (current) =>
      wasClosed(open, date)
        ? unmoved({ ...current, closedDay: date })
        : closeDay({ ...open, record: current, audit }, date),
    )
    // A warmed IP has no days.
    if (closing.record.state === 'warmed') break
  }
  return closing
}

/** By a clock that was behind, and took what it had closed before for days to come. */
function wasClosed({ audit, now }: DaysToClose, date: string): boolean {
  return audit.some(({ actor, day, at }) => actor === 'gate' && day === date && at <= now)
}

function closeDay(open: DaysToClose, day: string): MovedIp {
  const { record, curve, pool, now } = open
  const stage = record.stage ?? 1
  const figures = figuresOf(open, day)
  const verdict = judgeDay(figures, curve)
  const target = targetOf(curve, record.targetDailyVolume)
  const isLast = stage >= curve.stages.length
  const isAtTarget = isLast || capOf(curve, stage) >= target
  const daysAtTarget = daysAtTargetAfter(record, verdict, isAtTarget, figures)
  const common = { now, actor: 'gate', day, figures: auditFigures(figures, verdict) }
  const isUnderused = (days: number): boolean =>
    lastVerdicts(open, day, days - 1).every(({ reason }) => isLackOfMail(reason))
  const completed = completeReason(record, figures, verdict, { curve, isLast, daysAtTarget, isUnderused })
  if (record.state === 'warming' && completed !== null) {
    const changes = { closedDay: day, holdReason: null, daysHeld: 0, daysAtTarget: 0 }
    return moveIp(record, pool, { ...common, action: 'complete', reason: completed, changes })
  }
  if (verdict.kind === 'advance' && !isAtTarget) {
    const changes = { closedDay: day, stage: stage + 1, holdReason: null, daysHeld: 0, daysAtTarget }
    return moveIp(record, pool, { ...common, action: 'advance', reason: null, changes })
  }
  const reason = verdict.reason ?? `target: the cap allows ${target} a day, healthy day ${daysAtTarget} of 3`
  const changes = { closedDay: day, holdReason: reason, daysHeld: record.daysHeld + 1, daysAtTarget }
  if (verdict.kind === 'demote') {
    const lower = Math.max(1, stage - curve.demote.stages)
    return moveIp(record, pool, { ...common, action: 'demote', reason, changes: { ...changes, stage: lower } })
  }
  // Every so many days without an advance it is told again.
  const isStalled = changes.daysHeld % curve.stall.days === 0
  const told = isStalled ? `stall: ${changes.daysHeld} days without an advance; ${reason}` : reason
  return moveIp(record, pool, { ...common, action: 'hold', reason: told, isTold: isStalled, changes })
}

/** An idle day says nothing: it neither counts nor breaks the row. */
function daysAtTargetAfter(record: IpRecord, verdict: DayVerdict, isAtTarget: boolean, figures: DayFigures): number {
  if (!isAtTarget || !verdict.isHealthy) return 0
  return figures.granted > 0 ? record.daysAtTarget + 1 : record.daysAtTarget
}

interface CompletionFacts {
  curve: WarmupCurve
  isLast: boolean
  daysAtTarget: number
  /** For so many days, with this one, too little mail alone has held it. */
  isUnderused: (days: number) => boolean
}

function completeReason(
  { daysHeld }: IpRecord,
  { granted }: DayFigures,
  verdict: DayVerdict,
  { curve, isLast, daysAtTarget, isUnderused }: CompletionFacts,
): string | null {
  if (verdict.kind === 'advance' && isLast) return 'the last stage was passed'
  if (daysAtTarget >= HEALTHY_DAYS_AT_TARGET) return `${daysAtTarget} healthy days at the target`
  const { action, days } = curve.stall
  const isStalled = daysHeld + 1 >= days && verdict.kind === 'hold'
  // Only what sends little and well: an IP held for its health, or without mail, proves nothing.
  if (action === 'complete' && isStalled && verdict.isHealthy && granted > 0 && isUnderused(days)) {
    return `${days} days without an advance, for lack of mail alone`
  }
  return null
}

/** Of the days before this one, the last ones first. */
function lastVerdicts({ audit }: DaysToClose, day: string, count: number): AuditRecord[] {
  return audit.filter((row) => row.actor === 'gate' && row.day !== null && row.day < day).slice(0, count)
}

const NO_TRIES = { granted: 0, firstAttempts: 0, deferred: 0 }
const NO_ENDS = { delivered: 0, hard: 0, soft: 0, block: 0, undetermined: 0, complained: 0 }

function figuresOf({ record, curve, days, audit }: DaysToClose, day: string): DayFigures {
  const totals = days.filter(({ isp }) => isp === ALL_ISPS)
  const total = totals.find((row) => row.day === day)
  const since = dayAfter(day, -2)
  const before = totals.filter((row) => row.day >= since && row.day < day)
  return {
    cap: capOf(curve, record.stage ?? 1),
    ...NO_TRIES,
    ...NO_ENDS,
    ...total,
    deliveredBefore: before.reduce((sum, { delivered }) => sum + delivered, 0),
    hadPause: hadPause(record, audit, day),
  }
}

/** Whether a time of the day passed in `paused` or `suspended`, as the audit tells. */
function hadPause(record: IpRecord, audit: readonly AuditRecord[], day: string): boolean {
  const from = startOfUtcDay(day)
  const to = startOfUtcDay(dayAfter(day, 1))
  if (isHalted(record.state) && record.since < to) return true
  const moves = audit
    .filter(({ fromState, toState }) => fromState !== toState)
    // Of two at the same moment the one that was written later is the later one, also where a clock was set back.
    .toReversed()
    .toSorted((one, other) => one.at - other.at)
  return moves.some((move, index) => {
    const end = moves[index + 1]?.at ?? Infinity
    return isHalted(move.toState) && move.at < to && end > from
  })
}

function isHalted(state: string): boolean {
  return state === 'paused' || state === 'suspended'
}

function auditFigures(figures: DayFigures, { rates }: DayVerdict): AuditRecord['figures'] {
  const { cap, granted, firstAttempts, delivered, hard, deferred, complained } = figures
  return { cap, granted, firstAttempts, delivered, hard, deferred, complained, ...rates }
}
