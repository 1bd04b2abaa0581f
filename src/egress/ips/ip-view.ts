/** An IP and its warmup as the API and the command line show them (http/README.md "IPs" and "Warmup"). Pure. */
import { DAY } from '../../base/clock.ts'
import { startOfUtcDay, utcDay } from '../../base/utc-day.ts'
import type { DayCount } from './allowance.ts'
import type { IpState } from './egress-ip.ts'
import type { IpFacts } from './ip-facts.ts'
import type { KnownIp } from './known-ip.ts'
import { ALL_ISPS, capOf, hourlyLimitOf, providerCapOf, targetOf, targetStageOf } from '../warmup/warmup-curve.ts'
import { HEALTHY_DAYS_AT_TARGET } from '../warmup/warmup-days.ts'
import { isInWarmup } from '../warmup/warmup-states.ts'

export interface WarmupView {
  status: IpState
  curve: string
  stage: number
  stages: number
  /** UTC days since the start, the first one being 1. */
  day: number
  startedAt: number
  /** null: warmed, nothing limits it. */
  dailyLimit: number | null
  hourlyLimit: number | null
  sentToday: number
  remainingToday: number | null
  resetsAt: number
  percent: number
  /** When the ramp ends if every gate passes; null: warmed, or paused without an end. */
  estimatedCompletion: number | null
  targetDailyVolume: number
  holdReason: string | null
  pausedUntil: number | null
  /** By isp: those that were sent to today. */
  providers: Record<string, { dailyLimit: number | null; sentToday: number }>
}

export interface IpView extends IpFacts {
  ip: string
  pool: string
  hostname: string
  source: string
  status: IpState
  isEnabled: boolean
  isBindable: boolean
  weight: number
  /** Why it is disabled, paused or suspended, who did it and since when; until when, if that is known. */
  reason: string | null
  actor: string
  since: number
  until: number | null
  /** null: cold, or configured as warmed. */
  warmup: WarmupView | null
}

interface IpViewParts {
  known: KnownIp
  facts: IpFacts
  today: DayCount | undefined
  isEnabled: boolean
  isBindable: boolean
  now: number
}

export function ipView(parts: IpViewParts): IpView {
  const { known, facts, isEnabled, isBindable } = parts
  const { address, pool, hostname, source, state, weight, reason, until } = known.ip
  const { actor, since } = known.record
  const names = { ip: address, pool, hostname, source, status: state, isEnabled, isBindable, weight }
  return { ...names, reason, actor, since, until, ...facts, warmup: warmupView(parts) }
}

function warmupView({ known, today, now }: Pick<IpViewParts, 'known' | 'today' | 'now'>): WarmupView | null {
  const { ip, record } = known
  const { name, curve } = known.curve
  const { stage, startedAt, state } = record
  if (stage === null || startedAt === null || state === 'cold') return null
  const stages = curve.stages.length
  const isWarmed = !isInWarmup(record)
  const cap = capOf(curve, stage)
  const sentToday = today?.granted ?? 0
  const dayStart = startOfUtcDay(utcDay(now))
  const isps = [...(today?.grantedByIsp ?? [])].filter(([isp, count]) => isp !== ALL_ISPS && count > 0)
  const limitOf = (isp: string): number | null => (isWarmed ? null : providerCapOf(curve, cap, isp))
  return {
    status: ip.state,
    curve: name,
    stage,
    stages,
    day: Math.round((dayStart - startOfUtcDay(utcDay(startedAt))) / DAY) + 1,
    startedAt,
    dailyLimit: isWarmed ? null : cap,
    hourlyLimit: isWarmed ? null : hourlyLimitOf(curve, cap),
    sentToday,
    remainingToday: isWarmed ? null : Math.max(0, cap - sentToday),
    resetsAt: dayStart + DAY,
    percent: isWarmed ? 100 : Math.floor((100 * (stage - 1)) / stages),
    estimatedCompletion: estimatedCompletion(known, now),
    targetDailyVolume: targetOf(curve, record.targetDailyVolume),
    holdReason: record.holdReason,
    pausedUntil: state === 'paused' ? record.until : null,
    providers: Object.fromEntries(isps.map(([isp, count]) => [isp, { dailyLimit: limitOf(isp), sentToday: count }])),
  }
}

/** The end of the day on which the last stage passes, or the third one at the target does. */
function estimatedCompletion({ record, curve: { curve } }: KnownIp, now: number): number | null {
  const { stage, state, until, daysAtTarget } = record
  const isHalted = state === 'paused' || state === 'suspended'
  if (stage === null || !isInWarmup(record) || (isHalted && until === null)) return null
  const last = targetStageOf(curve, targetOf(curve, record.targetDailyVolume))
  const days = Math.max(0, last - stage) + (last === curve.stages.length ? 1 : HEALTHY_DAYS_AT_TARGET - daysAtTarget)
  // The day on which a pause ends cannot advance.
  return startOfUtcDay(utcDay(Math.max(now, until ?? 0))) + (days + (isHalted ? 1 : 0)) * DAY
}
