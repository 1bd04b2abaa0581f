/**
 * What the IP routes answer (http/README.md "IPs").
 */
import { z } from 'zod'
import { toUnixSeconds } from '../../base/clock.ts'
import type { StatisticsView } from '../../egress/ips/ip-statistics.ts'
import type { IpView, WarmupView } from '../../egress/ips/ip-view.ts'
import type { ForecastView } from '../../egress/moves/warmup-forecast.ts'
import { count, textOrNull, time, timeOrNull } from './fields.ts'

const status = () => z.enum(['cold', 'warming', 'paused', 'warmed', 'suspended', 'disabled'])
const share = () => z.number().min(0)

const warmupSchema = z
  .object({
    status: status(),
    curve: z.string(),
    stage: z.int().min(1),
    stages: z.int().min(1),
    day: z.int(),
    started_at: time(),
    /** null: nothing limits it. */
    daily_limit: count().nullable(),
    hourly_limit: count().nullable(),
    sent_today: count(),
    remaining_today: count().nullable(),
    resets_at: time(),
    percent: z.int().min(0).max(100),
    estimated_completion: timeOrNull(),
    target_daily_volume: count(),
    hold_reason: textOrNull(),
    paused_until: timeOrNull(),
    providers: z.record(z.string(), z.object({ daily_limit: count().nullable(), sent_today: count() })),
  })
  .meta({ id: 'Warmup' })

export const ipSchema = z
  .object({
    ip: z.string(),
    pool: z.string(),
    hostname: z.string(),
    status: status(),
    enabled: z.boolean(),
    bindable: z.boolean(),
    weight: count(),
    /** Why it is disabled, paused or suspended, who did it, since when and until when. */
    reason: textOrNull(),
    changed_by: z.string(),
    changed_at: time(),
    until: timeOrNull(),
    ptr: z.object({ status: z.string(), value: textOrNull(), checked_at: timeOrNull() }),
    blocklists: z.array(z.object({ zone: z.string(), listed: z.boolean().nullable(), checked_at: timeOrNull() })),
    warmup: warmupSchema.nullable(),
  })
  .meta({ id: 'Ip' })

export const ipWarmupSchema = z
  .object({ ip: z.string(), status: status(), warmup: warmupSchema.nullable() })
  .meta({ id: 'IpWarmup' })

const point = { delivered: count(), deferred: count(), bounced: count(), complained: count() }

export const ipStatisticsSchema = z
  .object({
    ip: z.string(),
    from: time(),
    to: time(),
    interval: z.enum(['hour', 'day']),
    totals: z.object({
      messages: count(),
      attempts: count(),
      delivered: count(),
      deferred: count(),
      bounced: count(),
      bounced_hard: count(),
      bounced_soft: count(),
      bounced_block: count(),
      bounced_undetermined: count(),
      complained: count(),
      opened: count(),
      clicked: count(),
      queued_now: count(),
    }),
    rates: z.object({ delivery: share(), bounce: share(), complaint: share(), deferral: share() }),
    by_provider: z.array(z.object({ isp: z.string(), ...point, p95_delivery_ms: count().nullable() })),
    waiting: z.array(z.object({ isp: z.string(), count: count(), reason: textOrNull() })),
    series: z.array(z.object({ t: time(), ...point })),
  })
  .meta({ id: 'IpStatistics' })

export const forecastSchema = z
  .object({
    ip: z.string(),
    recipients: count(),
    backlog: count(),
    start_at: time(),
    /** null: not within 400 days. */
    finish_at: timeOrNull(),
    fits_max_defer: z.boolean(),
    fits_lifetime: z.boolean(),
    days: z.array(
      z.object({
        date: z.string(),
        stage: z.int().nullable(),
        daily_limit: count().nullable(),
        planned: count(),
        limit: textOrNull(),
      }),
    ),
  })
  .meta({ id: 'WarmupForecast' })

const secondsOrNull = (milliseconds: number | null): number | null =>
  milliseconds === null ? null : toUnixSeconds(milliseconds)

export function ipAnswer(view: IpView): z.infer<typeof ipSchema> {
  const { ptr, blocklists, warmup } = view
  return {
    ip: view.ip,
    pool: view.pool,
    hostname: view.hostname,
    status: view.status,
    enabled: view.isEnabled,
    bindable: view.isBindable,
    weight: view.weight,
    reason: view.reason,
    changed_by: view.actor,
    changed_at: toUnixSeconds(view.since),
    until: secondsOrNull(view.until),
    ptr: { status: ptr.status, value: ptr.value, checked_at: secondsOrNull(ptr.checkedAt) },
    blocklists: blocklists.map(({ zone, isListed: listed, checkedAt }) => ({
      zone,
      listed,
      checked_at: secondsOrNull(checkedAt),
    })),
    warmup: warmup === null ? null : warmupAnswer(warmup),
  }
}

export function ipWarmupAnswer({ ip, status: state, warmup }: IpView): z.infer<typeof ipWarmupSchema> {
  return { ip, status: state, warmup: warmup === null ? null : warmupAnswer(warmup) }
}

function warmupAnswer(warmup: WarmupView): z.infer<typeof warmupSchema> {
  const providers = Object.entries(warmup.providers).map(([isp, { dailyLimit, sentToday }]) => [
    isp,
    { daily_limit: dailyLimit, sent_today: sentToday },
  ])
  return {
    status: warmup.status,
    curve: warmup.curve,
    stage: warmup.stage,
    stages: warmup.stages,
    day: warmup.day,
    started_at: toUnixSeconds(warmup.startedAt),
    daily_limit: warmup.dailyLimit,
    hourly_limit: warmup.hourlyLimit,
    sent_today: warmup.sentToday,
    remaining_today: warmup.remainingToday,
    resets_at: toUnixSeconds(warmup.resetsAt),
    percent: warmup.percent,
    estimated_completion: secondsOrNull(warmup.estimatedCompletion),
    target_daily_volume: warmup.targetDailyVolume,
    hold_reason: warmup.holdReason,
    paused_until: secondsOrNull(warmup.pausedUntil),
    providers: Object.fromEntries(providers),
  }
}

export function ipStatisticsAnswer(view: StatisticsView): z.infer<typeof ipStatisticsSchema> {
  const { bouncedHard, bouncedSoft, bouncedBlock, bouncedUndetermined, queuedNow, ...totals } = view.totals
  return {
    ip: view.ip,
    from: toUnixSeconds(view.from),
    to: toUnixSeconds(view.to),
    interval: view.interval,
    totals: {
      ...totals,
      bounced_hard: bouncedHard,
      bounced_soft: bouncedSoft,
      bounced_block: bouncedBlock,
      bounced_undetermined: bouncedUndetermined,
      queued_now: queuedNow,
    },
    rates: view.rates,
    by_provider: view.byProvider.map(({ p95Delivery, ...provider }) => ({ ...provider, p95_delivery_ms: p95Delivery })),
    waiting: view.waiting,
    series: view.series.map(({ at, ...counts }) => ({ t: toUnixSeconds(at), ...counts })),
  }
}

export function forecastAnswer(view: ForecastView): z.infer<typeof forecastSchema> {
  return {
    ip: view.ip,
    recipients: view.recipients,
    backlog: view.backlog,
    start_at: toUnixSeconds(view.startAt),
    finish_at: secondsOrNull(view.finishAt),
    fits_max_defer: view.fitsMaxDefer,
    fits_lifetime: view.fitsLifetime,
    days: view.days.map(({ date, stage, dailyLimit, planned, boundBy }) => ({
      date,
      stage,
      daily_limit: dailyLimit,
      planned,
      limit: boundBy,
    })),
  }
}
