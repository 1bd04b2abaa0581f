/**
 * The forecast for one IP as the API shows it (http/README.md "Forecast"). Pure.
 *
 * The whole campaign is taken to leave from this IP. Of what waits in the pool it gets the part that its allowance is
 * of all warming IPs' there; next to an IP that needs no allowance a warming one has no backlog. A cold IP is forecast
 * as if its warmup began with the campaign.
 */
import type { Configuration } from '../../config/load-configuration.ts'
import type { DayCount } from '../ips/allowance.ts'
import { ANY_ISP, forecast } from '../warmup/forecast.ts'
import type { ForecastIp } from '../warmup/forecast.ts'
import type { KnownIp } from '../ips/ip-registry.ts'
import { capOf, targetOf } from '../warmup/warmup-curve.ts'

export interface ForecastView {
  ip: string
  recipients: number
  /** Messages before them. */
  backlog: number
  startAt: number
  /** null: not within 400 days. */
  finishAt: number | null
  /** The last one starts within `max_defer` of the pool, and within the lifetime of bulk mail. */
  fitsMaxDefer: boolean
  fitsLifetime: boolean
  /** `stage` and `dailyLimit` are null where nothing limits it; `boundBy`: `cap`, `share:<isp>`, `rate` or null. */
  days: { date: string; stage: number | null; dailyLimit: number | null; planned: number; boundBy: string | null }[]
}

export interface ForecastParts {
  known: KnownIp
  inPool: readonly KnownIp[]
  asked: { recipients: number; startAt: number | null }
  /** Weights by isp; empty: nothing is known. */
  mix: Record<string, number>
  now: number
  configuration: Configuration
  /** By isp. */
  backlog: Record<string, number>
  todayOf: (ip: string) => DayCount | undefined
}

export function forecastFor(parts: ForecastParts): ForecastView {
  const { known, asked, now, configuration, mix } = parts
  const { recipients } = asked
  const startAt = Math.max(now, asked.startAt ?? now)
  const backlog = backlogOf(parts)
  const planned = forecast({
    now: known.record.state === 'cold' ? startAt : now,
    ips: [forecastIp(parts)],
    backlog,
    asked: split(recipients, mix),
    startsAt: startAt,
  })
  const wait = planned.lastStartAt === null ? Infinity : planned.lastStartAt - startAt
  const { pools, server } = configuration
  return {
    ip: known.ip.address,
    recipients,
    startAt,
    backlog: Object.values(backlog).reduce((sum, count) => sum + count, 0),
    finishAt: planned.finishAt,
    fitsMaxDefer: wait <= (pools.pools[known.ip.pool]?.max_defer ?? 0),
    fitsLifetime: wait < server.delivery.streams.bulk.lifetime,
    days: planned.days.map(({ date, stage, dailyLimit, planned: count, boundBy }) => ({
      date,
      stage,
      dailyLimit: Number.isFinite(dailyLimit) ? dailyLimit : null,
      planned: count,
      boundBy,
    })),
  }
}

function forecastIp({ known, configuration, todayOf }: ForecastParts): ForecastIp {
  const {
    ip,
    record,
    curve: { curve },
  } = known
  const { pools, providers } = configuration
  const ownRate = pools.pools[ip.pool]?.rate ?? providers.default.rate
  const availableFrom = ip.state === 'paused' || ip.state === 'suspended' ? (ip.until ?? Infinity) : 0
  const common = {
    ip: ip.address,
    rate: ownRate.count / ownRate.per_milliseconds,
    availableFrom: ip.state === 'disabled' ? Infinity : availableFrom,
  }
  const isWarmed = ip.sends === 'all' || record.state === 'warmed' || record.formerState === 'warmed'
  if (isWarmed) return { ...common, ramp: null }
  const today = todayOf(ip.address)
  const granted = new Map([...(today?.grantedByIsp ?? []), [ANY_ISP, today?.granted ?? 0]])
  const { daysAtTarget, targetDailyVolume, stage } = record
  return {
    ...common,
    ramp: { curve, stage: stage ?? 1, target: targetOf(curve, targetDailyVolume), daysAtTarget, granted },
  }
}

function backlogOf({ known, inPool, backlog }: ForecastParts): Record<string, number> {
  const part = shareOfPool(known, inPool)
  const entries = Object.entries(backlog).map(([isp, count]): [string, number] => [
    isp === '' ? ANY_ISP : isp,
    Math.ceil(count * part),
  ])
  return Object.fromEntries(entries.filter(([, count]) => count > 0))
}

function shareOfPool(known: KnownIp, inPool: readonly KnownIp[]): number {
  const free = inPool.filter(({ ip }) => ip.sends === 'all')
  if (free.length > 0) return free.includes(known) ? 1 / free.length : 0
  const capacityOf = ({ record, curve: { curve } }: KnownIp): number => capOf(curve, record.stage ?? 1)
  const warming = inPool.filter(({ ip }) => ip.sends === 'allowance' || ip.sends === 'retries')
  if (!warming.includes(known)) return warming.length === 0 ? 1 : 0
  return capacityOf(known) / warming.reduce((sum, one) => sum + capacityOf(one), 0)
}

/** Whole messages by isp, in the proportions of the mix; without one nobody knows. */
function split(count: number, mix: Record<string, number>): Record<string, number> {
  const weights = Object.entries(mix).filter(([, weight]) => weight > 0)
  const sum = weights.reduce((total, [, weight]) => total + weight, 0)
  if (sum === 0) return { [ANY_ISP]: count }
  let left = count
  const parts = weights.map(([isp, weight]): [string, number] => {
    const part = Math.min(left, Math.round((count * weight) / sum))
    left -= part
    return [isp, part]
  })
  const [first] = parts
  if (first !== undefined) first[1] += left
  return Object.fromEntries(parts)
}
