/**
 * The outlook of one IP as the API shows it: the forecast of a campaign, and the volume of each day (http/README.md
 * "Forecast"). Pure. The whole campaign is taken to leave from this IP. Of what waits in the pool it gets the part that
 * its allowance is of all warming IPs' there; next to an IP that needs no allowance a warming one has no backlog. A
 * cold IP is forecast as if its warmup began with the campaign. Days are UTC dates.
 */
import type { Configuration } from '../../config/load-configuration.ts'
import { dayAfter, utcDay } from '../../base/utc-day.ts'
import type { WarmupCurve } from '../../config/settings/warmup-settings.ts'
import type { WarmupDay } from '../../store/records/warmup-records.ts'
import type { DayCount } from '../ips/allowance.ts'
import { ANY_ISP, forecast, rampOf, type ForecastIp } from '../warmup/forecast.ts'
import type { WarmupView } from '../ips/ip-view.ts'
import type { KnownIp } from '../ips/known-ip.ts'
import { ALL_ISPS, capOf, targetStageOf } from '../warmup/warmup-curve.ts'

export interface ForecastView {
  ip: string
  recipients: number
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

interface ForecastParts {
  known: KnownIp
  inPool: readonly KnownIp[]
  asked: { recipients: number; startAt: number | null }
  /** Weights by isp; empty: nothing is known. */
  mix: Record<string, number>
  now: number
  configuration: Configuration
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
    days: planned.days.map(({ date, stage, dailyLimit: limit, planned: count, boundBy }) => {
      return { date, stage, dailyLimit: Number.isFinite(limit) ? limit : null, planned: count, boundBy }
    }),
  }
}

function forecastIp({ known, configuration, todayOf }: ForecastParts): ForecastIp {
  const { ip, record } = known
  const { pools, providers } = configuration
  const { count, per_milliseconds: time } = pools.pools[ip.pool]?.rate ?? providers.default.rate
  const isHalted = ip.state === 'paused' || ip.state === 'suspended'
  const availableFrom = ip.state === 'disabled' ? Infinity : isHalted ? (ip.until ?? Infinity) : 0
  const isWarmed = ip.sends === 'all' || record.state === 'warmed' || record.formerState === 'warmed'
  const ramp = isWarmed ? null : rampOf(record, known.curve.curve, todayOf(ip.address)?.grantedByIsp)
  return { ip: ip.address, rate: count / time, availableFrom, ramp }
}

function backlogOf({ known, inPool, backlog }: ForecastParts): Record<string, number> {
  const part = shareOfPool(known, inPool)
  const parts = Object.entries(backlog).map(([isp, count]) => [isp || ANY_ISP, Math.ceil(count * part)] as const)
  return Object.fromEntries(parts.filter(([, count]) => count > 0))
}

function shareOfPool(known: KnownIp, inPool: readonly KnownIp[]): number {
  const isIn = (some: readonly KnownIp[]): boolean => some.some(({ ip }) => ip === known.ip)
  const free = inPool.filter(({ ip }) => ip.sends === 'all')
  if (free.length > 0) return isIn(free) ? 1 / free.length : 0
  const capacityOf = ({ record, curve: { curve } }: KnownIp): number => capOf(curve, record.stage ?? 1)
  const warming = inPool.filter(({ ip }) => ip.sends === 'allowance' || ip.sends === 'retries')
  if (!isIn(warming)) return warming.length === 0 ? 1 : 0
  return capacityOf(known) / warming.reduce((sum, one) => sum + capacityOf(one), 0)
}

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

export interface SendDay {
  date: string
  /** Messages that the warmup allows; null: nothing limits it, or nothing was sent by then. */
  planned: number | null
  /** Messages that it sent; null: the day is still to come. */
  sent: number | null
}

interface SendDayParts {
  /** The warmup as it is now; null: none. */
  warmup: WarmupView | null
  curve: WarmupCurve | null
  /** Rows of all isps together count. */
  warmupDays: readonly WarmupDay[]
  /** Messages by UTC date; a day that is missing had none. */
  sentDays: readonly { day: string; messages: number }[]
  now: number
  /** Days until today, itself included; at least 1. */
  past: number
  ahead: number
}

export function sendDays(parts: SendDayParts): SendDay[] {
  const { warmupDays, sentDays, now, past, ahead } = parts
  const today = utcDay(now)
  const caps = new Map(warmupDays.filter(({ isp }) => isp === ALL_ISPS).map(({ day, cap }) => [day, cap]))
  const sent = new Map(sentDays.map(({ day, messages }) => [day, messages]))
  const offsets = Array.from({ length: past + ahead }, (_, index) => index - past + 1)
  return offsets.map((offset) => {
    const date = dayAfter(today, offset)
    if (offset > 0) return { date, planned: plannedIn(parts, offset), sent: null }
    const planned = caps.get(date) ?? (offset === 0 ? plannedIn(parts, 0) : null)
    return { date, planned, sent: sent.get(date) ?? 0 }
  })
}

/** So many days from today on; behind the end of the ramp its last cap stands. */
function plannedIn({ warmup, curve }: SendDayParts, offset: number): number | null {
  if (warmup === null || curve === null || warmup.dailyLimit === null) return null
  const last = targetStageOf(curve, warmup.targetDailyVolume)
  return capOf(curve, Math.max(warmup.stage, Math.min(warmup.stage + offset, last)))
}
