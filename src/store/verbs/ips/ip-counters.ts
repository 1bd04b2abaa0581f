/**
 * Sums of what happened, by IP, mailbox provider and time (http/README.md "IP statistics"): made in memory by one verb,
 * written for many together, in hours and in days, for the provider and for all together. On one day an IP has at most
 * MOST_ISPS providers with a name of their own, the rest is counted as OTHER_ISPS: so the rows are bounded.
 */
import type { Database } from '../../engine/database.ts'
import { HOUR } from '../../../base/clock.ts'
import { utcDay } from '../../../base/utc-day.ts'
import { addDurations, durationClass, type DurationClasses } from '../../duration-classes.ts'
import type { IpCounter } from '../../records/warmup-records.ts'
import { TOGETHER } from './allowance.ts'
import { oneColumn } from '../tools/statements.ts'

export const IP_COUNTERS = [
  'messages',
  'attempts',
  'delivered',
  'deferred',
  'bouncedHard',
  'bouncedSoft',
  'bouncedBlock',
  'bouncedUndetermined',
  'complained',
  'opened',
  'clicked',
] as const satisfies readonly IpCounter[]
/** What is left out is 0. */
type IpCounts = Partial<Record<IpCounter, number>>

/** With a name of their own, on one day of one IP. */
const MOST_ISPS = 200
/** All that have none. */
export const OTHER_ISPS = 'other'

/** What is added to a row. */
interface Sums<Time> {
  ip: string
  isp: string
  /** Beginning of the hour, or the day. */
  time: Time
  counts: IpCounts
  durations: DurationClasses
}

/** All plain data. */
export type HourSums = Sums<number>

export type IpSums = ReturnType<typeof createIpSums>

export function createIpSums() {
  const hours = new Map<string, HourSums>()
  return {
    /** `milliseconds`: how long a delivering attempt took. */
    add(
      { ip, isp, at }: { ip: string; isp: string; at: number },
      counters: readonly IpCounter[],
      milliseconds?: number,
    ) {
      const { counts, durations } = sumsOf(hours, ip, isp, Math.floor(at / HOUR) * HOUR)
      for (const counter of counters) counts[counter] = (counts[counter] ?? 0) + 1
      if (milliseconds === undefined) return
      const name = durationClass(milliseconds)
      durations[name] = (durations[name] ?? 0) + 1
    },
    /** Adds sums that were made before, under this name. */
    addSums: (sums: HourSums, isp: string): void => addUp(sumsOf(hours, sums.ip, isp, sums.time), sums),
    list: (): HourSums[] => [...hours.values()],
    size: () => hours.size,
  }
}

export function createIpSumsWriter(database: Database) {
  const fullDays = createFullDays(database)
  const writeDays = createDayWriter(database, fullDays)
  const addHour = database.prepare<(string | number)[]>(`
    insert into ip_hours (ip, hour, isp, ${COLUMNS.join(', ')})
    values (?, ?, ?, ${COLUMNS.map(() => '?').join(', ')})
    on conflict (ip, hour, isp) do update set ${additionsOf('ip_hours', COLUMNS)}`)
  const nameOf = ({ ip, isp, time }: HourSums): string => fullDays.nameOf(ip, isp, utcDay(time))

  return {
    /** The name under which the provider is counted, as far as that is known before it is written. */
    nameOf,
    write(hours: readonly HourSums[]): void {
      const days = new Map<string, Sums<string>>()
      for (const sums of hours) addUp(sumsOf(days, sums.ip, sums.isp, utcDay(sums.time)), sums)
      writeDays([...days.values()])
      const rows = new Map<string, HourSums>()
      for (const sums of hours) {
        const { ip, time } = sums
        addUp(sumsOf(rows, ip, nameOf(sums), time), sums)
        addUp(sumsOf(rows, ip, TOGETHER, time), sums)
      }
      for (const { ip, time, isp, counts } of rows.values()) {
        addHour.run(ip, time, isp, ...valuesOf(counts, IP_COUNTERS))
      }
    },
  }
}

const COLUMNS = IP_COUNTERS.map(columnOf)

/** Columns have the names of their counters. */
export function columnOf(counter: string): string {
  return counter.replace(/[A-Z]/, (letter) => `_${letter.toLowerCase()}`)
}

export function additionsOf(table: string, columns: readonly string[]): string {
  return columns.map((column) => `${column} = ${table}.${column} + excluded.${column}`).join(', ')
}

export function valuesOf<Name extends string>(counts: Partial<Record<Name, number>>, names: readonly Name[]): number[] {
  return names.map((name) => counts[name] ?? 0)
}

/** Adds counts of one kind to a sum; what is left out is 0. */
export function addCounts<Name extends string>(
  sum: Partial<Record<Name, number>>,
  more: Readonly<Partial<Record<Name, number>>>,
  names: readonly Name[],
): void {
  for (const name of names) {
    const count = more[name]
    if (count !== undefined) sum[name] = (sum[name] ?? 0) + count
  }
}

function sumsOf<Time extends number | string>(
  all: Map<string, Sums<Time>>,
  ip: string,
  isp: string,
  time: Time,
): Sums<Time> {
  const key = `${ip} ${time} ${isp}`
  const known = all.get(key)
  if (known !== undefined) return known
  const sums = { ip, isp, time, counts: {}, durations: {} }
  all.set(key, sums)
  return sums
}

function addUp(sum: Sums<unknown>, more: Sums<unknown>): void {
  addCounts(sum.counts, more.counts, IP_COUNTERS)
  addDurations(sum.durations, more.durations)
}

type FullDays = ReturnType<typeof createFullDays>

/** Days of IPs that are remembered: more than one call notes. */
const MOST_FULL_DAYS = 256

/** The names of days that have as many as they may have: who has none there gets none. */
function createFullDays(database: Database) {
  const findNames = oneColumn(database)<[string, string], string>('select isp from ip_days where ip = ? and day = ?')
  const known = new Map<string, ReadonlySet<string>>()
  return {
    /** The name under which a provider is counted on a day. */
    nameOf: (ip: string, isp: string, day: string): string =>
      known.get(`${ip} ${day}`)?.has(isp) === false ? OTHER_ISPS : isp,
    note(ip: string, day: string): void {
      const key = `${ip} ${day}`
      if (known.has(key)) return
      known.set(key, new Set(findNames.all(ip, day)))
      const [oldest = key] = known.keys()
      if (known.size > MOST_FULL_DAYS) known.delete(oldest)
    },
  }
}

/** Adds to the days of providers and of all together; a provider keeps its name while there is room for one. */
function createDayWriter(database: Database, fullDays: FullDays): (days: readonly Sums<string>[]) => void {
  // `+?`: see claim.ts.
  const findDurations = oneColumn(database)<[string, string, string], string>(`
    select durations from ip_days where ip = ? and day = ? and isp = +?`)
  const countNames = oneColumn(database)<[string, string, string], number>(`
    select isps from ip_days where ip = ? and day = ? and isp = +?`)
  const add = database.prepare<(string | number)[]>(`
    insert into ip_days (ip, day, isp, durations, isps, ${COLUMNS.join(', ')})
    values (?, ?, ?, ?, ?, ${COLUMNS.map(() => '?').join(', ')})
    on conflict (ip, day, isp) do update
    set durations = excluded.durations, isps = ip_days.isps + excluded.isps, ${additionsOf('ip_days', COLUMNS)}`)
  const write = ({ ip, isp, time, counts }: Sums<string>, durations: DurationClasses, newNames: number): void =>
    void add.run(ip, time, isp, JSON.stringify(durations), newNames, ...valuesOf(counts, IP_COUNTERS))

  return (days) => {
    const together = new Map<string, { sums: Sums<string>; known: number; added: number }>()
    const others = new Map<string, Sums<string>>()
    for (const sums of days) {
      const { ip, isp, time } = sums
      const all = together.get(`${ip} ${time}`) ?? {
        sums: sumsOf(new Map(), ip, TOGETHER, time),
        known: countNames.get(ip, time, TOGETHER) ?? 0,
        added: 0,
      }
      together.set(`${ip} ${time}`, all)
      addCounts(all.sums.counts, sums.counts, IP_COUNTERS)
      const stored = findDurations.get(ip, time, isp)
      if (stored === undefined && isp !== OTHER_ISPS) {
        if (all.known + all.added >= MOST_ISPS) {
          addUp(sumsOf(others, ip, OTHER_ISPS, time), sums)
          fullDays.note(ip, time)
          continue
        }
        all.added += 1
      }
      write(sums, merged(stored, sums.durations), 0)
    }
    for (const sums of others.values()) {
      write(sums, merged(findDurations.get(sums.ip, sums.time, OTHER_ISPS), sums.durations), 0)
    }
    for (const { sums, added } of together.values()) write(sums, {}, added)
  }
}

function merged(stored: string | undefined, more: DurationClasses): DurationClasses {
  if (stored === undefined) return more
  const sum = JSON.parse(stored) as DurationClasses
  addDurations(sum, more)
  return sum
}
