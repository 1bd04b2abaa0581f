/**
 * Reading what was counted of IPs: days of warmup, health of the last hour, statistics (http/README.md "IP
 * statistics"). Sums by provider are taken from whole days where the asked time covers them and from hours at its
 * edges. What still waits to be added (`waiting-counts.ts`) is not in them.
 */
import type { Database } from '../../engine/database.ts'
import { DAY, HOUR, MINUTE } from '../../../base/clock.ts'
import { startOfUtcDay, utcDay } from '../../../base/utc-day.ts'
import { addDurations, durationPercentile, type DurationClasses } from '../../duration-classes.ts'
import type { IpCounter, IpHealth, IpHour, WarmupDay } from '../../records/warmup-records.ts'
import { TOGETHER } from './allowance.ts'
import { addCounts, columnOf, IP_COUNTERS } from './ip-counters.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

type AllCounts = Record<IpCounter, number>

const COLUMNS = IP_COUNTERS.map((name) => `${columnOf(name)} as ${name}`).join(', ')
/** Of the delivering attempts; the statistics call it p95. */
const PERCENTILE = 0.95

export function createIpLookups(database: Database) {
  const findWarmupDays = database.prepare<[string, string], WarmupDay>(`
    select
      ip, day, isp, cap, granted, refunded, first_attempts as firstAttempts, delivered, hard, soft, block,
      undetermined, deferred, complained
    from warmup_days
    where ip = ? and day >= ?
    order by day, isp`)
  const sumSlots = database.prepare<[string, number], IpHealth>(`
    select
      coalesce(sum(first_attempts), 0) as firstAttempts, coalesce(sum(hard), 0) as hard,
      coalesce(sum(complained), 0) as complained, coalesce(sum(delivered), 0) as delivered,
      coalesce(sum(blocks), 0) as blocks
    from ip_slots
    where ip = ? and slot_at > ?`)
  const findDays = database.prepare<[string, number], { day: string; messages: number }>(`
    select day, messages
    from ip_days
    where ip = ? and isp = '*' and messages > 0
    order by day desc
    limit +?`)
  const findIsps = database.prepare<[string, string], { isp: string; messages: number }>(`
    select isp, messages from ip_days where ip = ? and day >= ? and messages > 0`)
  const findHours = database.prepare<[string, number, number], IpHour>(`
    select ip, isp, hour, ${COLUMNS}
    from ip_hours
    where ip = ? and isp = '*' and hour >= ? and hour < ?
    order by hour`)
  const sumIsps = createIspSums(database)
  const percentiles = createPercentiles(database)

  return {
    warmupDays: (ip, from) => findWarmupDays.all(ip, from),
    /** By five-minute slots: one that reaches into the asked time counts whole. */
    ipHealth: (ip, since) =>
      sumSlots.get(ip, since - 5 * MINUTE) ?? { firstAttempts: 0, hard: 0, complained: 0, delivered: 0, blocks: 0 },
    ipDays: (ip, limit) => findDays.all(ip, limit),
    /** Without a prototype: isps have all kinds of names. */
    ispMix(ips, since) {
      const mix: Record<string, number> = Object.create(null)
      for (const ip of ips) {
        for (const { isp, messages } of findIsps.iterate(ip, utcDay(since))) {
          if (isp !== TOGETHER) mix[isp] = (mix[isp] ?? 0) + messages
        }
      }
      return { ...mix }
    },
    /** `from` and `to` are taken to whole hours: that of `from`, and all that begin before `to`. */
    ipStatistics(ip, from, to) {
      const firstHour = Math.floor(from / HOUR) * HOUR
      const sums = [...sumIsps(ip, firstHour, to)]
      return {
        hours: findHours.all(ip, firstHour, to),
        isps: sums.map(([isp, counts]) => ({ ip, isp, hour: firstHour, ...counts })),
        p95: percentiles(ip, from, to),
      }
    },
  } satisfies SomeVerbs
}

function createIspSums(database: Database): (ip: string, from: number, to: number) => Map<string, AllCounts> {
  const findHours = database.prepare<[string, number, number], AllCounts & { isp: string }>(`
    select isp, ${COLUMNS} from ip_hours where ip = ? and hour >= ? and hour < ?`)
  const findDays = database.prepare<[string, string, string], AllCounts & { isp: string }>(`
    select isp, ${COLUMNS} from ip_days where ip = ? and day >= ? and day < ?`)
  return (ip, from, to) => {
    const firstDay = Math.ceil(from / DAY) * DAY
    const endOfDays = Math.floor(to / DAY) * DAY
    const sums = new Map<string, AllCounts>()
    const addAll = (rows: Iterable<AllCounts & { isp: string }>): void => {
      for (const row of rows) if (row.isp !== TOGETHER) addTo(sums, row)
    }
    if (firstDay >= endOfDays) {
      addAll(findHours.iterate(ip, from, to))
    } else {
      addAll(findHours.iterate(ip, from, firstDay))
      addAll(findDays.iterate(ip, utcDay(firstDay), utcDay(endOfDays)))
      addAll(findHours.iterate(ip, endOfDays, to))
    }
    return sums
  }
}

function addTo(sums: Map<string, AllCounts>, { isp, ...more }: AllCounts & { isp: string }): void {
  const sum = sums.get(isp)
  if (sum === undefined) sums.set(isp, more)
  else addCounts(sum, more, IP_COUNTERS)
}

/** Of the whole days that the time touches. */
function createPercentiles(database: Database): (ip: string, from: number, to: number) => Record<string, number> {
  const find = database.prepare<[string, string, string], { isp: string; durations: string }>(`
    select isp, durations from ip_days where ip = ? and day >= ? and day <= ? and durations <> '{}'`)
  return (ip, from, to) => {
    const classes = new Map<string, DurationClasses>()
    const lastDay = utcDay(Math.max(from, to - 1))
    for (const { isp, durations } of find.iterate(ip, utcDay(startOfUtcDay(utcDay(from))), lastDay)) {
      const sum = classes.get(isp) ?? {}
      addDurations(sum, JSON.parse(durations) as DurationClasses)
      classes.set(isp, sum)
    }
    return Object.fromEntries([...classes].map(([isp, sum]) => [isp, durationPercentile(sum, PERCENTILE)]))
  }
}
