/**
 * The JSON and the query parameters of the IP routes (http/README.md "IPs"). The rules about curves, stages and states
 * are those of `egress`.
 */
import { z } from 'zod'
import { DAY, SECOND } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { StatisticsRange } from '../../egress/ips/ip-statistics.ts'
import type { WarmupStart } from '../../egress/moves/warmup.ts'
import { DEFAULT_LIMIT, listParameters, timeParameter } from './list.ts'
import { optionalText } from './optional.ts'

const MOST_RECIPIENTS = 10_000_000

export const startWarmupSchema = z.object({
  curve: optionalText(),
  stage: z.int().min(1).nullish(),
  target_daily_volume: z.int().min(1).nullish(),
  restart: z.boolean().nullish(),
  force: z.boolean().nullish(),
})

export const pauseWarmupSchema = z.object({ reason: z.string().max(200).nullish() })

export const listIpsSchema = z.object(listParameters())

const WINDOWS = { '24h': DAY, '7d': 7 * DAY, '30d': 30 * DAY }

export const ipStatisticsSchema = z.object({
  window: z.enum(['24h', '7d', '30d']).nullish(),
  from: timeParameter(),
  to: timeParameter(),
  interval: z.enum(['hour', 'day']).nullish(),
})

/** A whole number without a sign. */
const WHOLE_NUMBER = /^\d{1,9}$/

export const forecastSchema = z.object({
  recipients: z
    .custom<string>((value) => typeof value === 'string' && WHOLE_NUMBER.test(value), 'expected a whole number')
    .meta({ type: 'integer', minimum: 1, maximum: MOST_RECIPIENTS }),
  isp: optionalText(),
  start_at: timeParameter(),
})

export function toWarmupStart(fields: z.infer<typeof startWarmupSchema>): WarmupStart {
  return {
    curve: fields.curve ?? null,
    stage: fields.stage ?? null,
    targetDailyVolume: fields.target_daily_volume ?? null,
    restart: fields.restart ?? false,
    force: fields.force ?? false,
  }
}

export function toIpPage({ limit, after }: z.infer<typeof listIpsSchema>): { limit: number; after: string | null } {
  return { limit: limit ?? DEFAULT_LIMIT, after: after ?? null }
}

/** `window` ends now; `from` and `to` say the range themselves. */
export function toStatisticsRange(
  { window, from, to, interval }: z.infer<typeof ipStatisticsSchema>,
  now: number,
): StatisticsRange {
  const hasRange = typeof from === 'number' || typeof to === 'number'
  if (hasRange && typeof window === 'string') {
    throw new ServiceError('invalid_request', 'window: give either window, or from and to')
  }
  const end = typeof to === 'number' ? to * SECOND : now
  const start = typeof from === 'number' ? from * SECOND : end - WINDOWS[window ?? '7d']
  if (start >= end) throw new ServiceError('invalid_request', 'from: must be before to')
  return { from: start, to: end, interval: interval ?? (end - start <= DAY ? 'hour' : 'day') }
}

export function toForecastQuery({ recipients, isp, start_at: startAt }: z.infer<typeof forecastSchema>): {
  recipients: number
  isp: string | null
  startAt: number | null
} {
  const count = Number(recipients)
  if (count < 1 || count > MOST_RECIPIENTS) {
    throw new ServiceError('invalid_request', `recipients: must be from 1 to ${MOST_RECIPIENTS}`)
  }
  return { recipients: count, isp: isp ?? null, startAt: typeof startAt === 'number' ? startAt * SECOND : null }
}
