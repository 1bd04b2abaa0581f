/**
 * Statistics of an IP as the API shows them (http/README.md "IP statistics"): sums, rates, providers, and a series
 * without gaps. Pure. Counted by the time of the event; a rate of nothing is 0.
 */
import { DAY, HOUR } from '../../base/clock.ts'
import type { WaitingFor } from '../../store/records/queue-records.ts'
import type { IpHour, IpStatistics } from '../../store/records/warmup-records.ts'

type Interval = 'hour' | 'day'

export interface StatisticsRange {
  /** Unix milliseconds; `to` is not part of it. */
  from: number
  to: number
  interval: Interval
}

export interface WaitingMail {
  /** '' when it is not known yet. */
  isp: string
  count: number
  reason: WaitingFor
}

type Counts = Omit<IpHour, 'ip' | 'isp' | 'hour'>

interface StatisticsTotals extends Counts {
  bounced: number
}

export interface StatisticsView extends StatisticsRange {
  ip: string
  totals: StatisticsTotals & { queuedNow: number }
  rates: { delivery: number; bounce: number; complaint: number; deferral: number }
  /** `p95Delivery`: milliseconds; null: nothing was delivered. */
  byProvider: (Point & { isp: string; p95Delivery: number | null })[]
  waiting: WaitingMail[]
  /** `at`: the beginning of the hour or day. */
  series: (Point & { at: number })[]
}

/** http/README.md "IP statistics". */
export const MOST_POINTS = 400

const STEPS = { hour: HOUR, day: DAY } as const satisfies Record<Interval, number>

export function pointsOf({ from, to, interval }: StatisticsRange): number {
  const step = STEPS[interval]
  return Math.ceil(to / step) - Math.floor(from / step)
}

export function statisticsView(
  ip: string,
  range: StatisticsRange,
  { hours, isps, p95 }: IpStatistics,
  waiting: WaitingMail[],
): StatisticsView {
  const totals = totalsOf(hours)
  const ended = totals.delivered + totals.bounced
  return {
    ip,
    ...range,
    totals: { ...totals, queuedNow: waiting.reduce((sum, { count }) => sum + count, 0) },
    rates: {
      delivery: share(totals.delivered, ended),
      bounce: share(totals.bounced, ended),
      complaint: share(totals.complained, totals.delivered),
      deferral: share(totals.deferred, totals.attempts),
    },
    byProvider: isps
      .map((sums) => ({ ...pointOf([sums]), isp: sums.isp, p95Delivery: p95[sums.isp] ?? null }))
      .toSorted((one, other) => other.delivered - one.delivered || (one.isp < other.isp ? -1 : 1)),
    waiting,
    series: seriesOf(range, hours),
  }
}

function seriesOf({ from, to, interval }: StatisticsRange, hours: readonly IpHour[]): StatisticsView['series'] {
  const step = STEPS[interval]
  const byPoint = Map.groupBy(hours, ({ hour }) => Math.floor(hour / step) * step)
  const series: StatisticsView['series'] = []
  for (let at = Math.floor(from / step) * step; at < to; at += step) {
    series.push({ at, ...pointOf(byPoint.get(at) ?? []) })
  }
  return series
}

type Point = Pick<StatisticsTotals, 'delivered' | 'deferred' | 'bounced' | 'complained'>

function pointOf(hours: readonly IpHour[]): Point {
  const { delivered, deferred, bounced, complained } = totalsOf(hours)
  return { delivered, deferred, bounced, complained }
}

function totalsOf(hours: readonly IpHour[]): StatisticsTotals {
  const sum = (count: keyof Counts): number => hours.reduce((total, hour) => total + hour[count], 0)
  const [bouncedHard, bouncedSoft] = [sum('bouncedHard'), sum('bouncedSoft')]
  const [bouncedBlock, bouncedUndetermined] = [sum('bouncedBlock'), sum('bouncedUndetermined')]
  return {
    messages: sum('messages'),
    attempts: sum('attempts'),
    delivered: sum('delivered'),
    deferred: sum('deferred'),
    bounced: bouncedHard + bouncedSoft + bouncedBlock + bouncedUndetermined,
    bouncedHard,
    bouncedSoft,
    bouncedBlock,
    bouncedUndetermined,
    complained: sum('complained'),
    opened: sum('opened'),
    clicked: sum('clicked'),
  }
}

function share(count: number, of: number): number {
  return of === 0 ? 0 : Number((count / of).toFixed(4))
}
