/**
 * Dedicated IPs, their warmup and their statistics on the wire (http/README.md "IPs"); what administrators ask of an IP
 * stands at the end.
 */
import { z } from 'zod'
import { count, paging, numberParameter, optionalText, textOrNull, time, timeOrNull, timeParameter } from './fields.ts'

export const MOST_FORECAST_RECIPIENTS = 10_000_000

export const startWarmupSchema = z.object({
  curve: optionalText(),
  stage: z.int().min(1).nullish(),
  target_daily_volume: z.int().min(1).nullish(),
  restart: z.boolean().nullish(),
  force: z.boolean().nullish(),
})

export const pauseWarmupSchema = z.object({ reason: z.string().max(200).nullish() })

export const listIpsSchema = z.object(paging())

export const ipStatisticsQuerySchema = z.object({
  window: z.enum(['24h', '7d', '30d']).nullish(),
  from: timeParameter(),
  to: timeParameter(),
  interval: z.enum(['hour', 'day']).nullish(),
})

export const forecastQuerySchema = z.object({
  recipients: numberParameter(/^\d{1,9}$/, 'a whole number', { minimum: 1, maximum: MOST_FORECAST_RECIPIENTS }),
  isp: optionalText(),
  start_at: timeParameter(),
})

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

/** `provider`: id of a block of providers.yaml; mail to it alone. */
export const suspendIpSchema = z.object({ reason: z.string().max(200).nullish(), provider: optionalText() })

export const resumeIpSchema = z.object({ provider: optionalText() })

export const ipAuditSchema = z.object({ limit: paging().limit })

const MOST_DAYS = 90

const days = (pattern: RegExp, minimum: number, fallback: number) =>
  numberParameter(pattern, `a whole number from ${minimum} to ${MOST_DAYS}`, { minimum, maximum: MOST_DAYS })
    .nullish()
    .transform((text) => Number(text ?? fallback))

export const sendDaysSchema = z.object({
  past: days(/^(?:0?[1-9]|[1-8]\d|90)$/, 1, 14),
  ahead: days(/^(?:\d|[0-8]\d|90)$/, 0, 7),
})

export const ipNoteSchema = z.object({
  at: time(),
  actor: z.string(),
  action: z.string(),
  from_state: z.string(),
  to_state: z.string(),
  from_stage: z.int().nullable(),
  to_stage: z.int().nullable(),
  day: textOrNull(),
  figures: z.record(z.string(), z.union([z.number(), z.string(), z.null()])),
  reason: textOrNull(),
})

export const sendDaySchema = z.object({ date: z.string(), planned: count().nullable(), sent: count().nullable() })

export type WarmupJson = z.infer<typeof warmupSchema>
export type IpJson = z.infer<typeof ipSchema>
export type IpWarmupJson = z.infer<typeof ipWarmupSchema>
export type IpStatisticsJson = z.infer<typeof ipStatisticsSchema>
export type WarmupForecastJson = z.infer<typeof forecastSchema>
export type IpNoteJson = z.infer<typeof ipNoteSchema>
export type SendDayJson = z.infer<typeof sendDaySchema>
