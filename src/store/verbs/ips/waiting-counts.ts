/**
 * What verbs counted of IPs on its way into the sums (store/README.md "Decisions"): each verb keeps it as one row,
 * which is removed in the transaction that writes the sums of many. Whoever reads sums has what waits added first
 * (`store-calls.ts`). A day of warmup counts from its first grant on: what is counted before is not kept for it.
 */
import type { Database } from '../../engine/database.ts'
import { DAY } from '../../../base/clock.ts'
import { utcDay } from '../../../base/utc-day.ts'
import { createFloor } from '../tools/floor.ts'
import { askAhead } from '../tools/statements.ts'
import { createLastSentNote, TOGETHER } from './allowance.ts'
import { createIpSums, createIpSumsWriter, type HourSums } from './ip-counters.ts'
import { createWarmupSums, createWarmupSumsWriter, SLOTS_OF_USE, type WarmupLists } from './warmup-counters.ts'

/** What one verb counted; plain data. */
interface VerbCounts extends WarmupLists {
  hours: HourSums[]
  /** When an IP last sent something. */
  sent: [ip: string, at: number][]
}

/** Rows that wait, of one verb each. */
const MOST_WAITING = 64
/** Sums that are written at once, about 5 ms: twice as many save little, and acceptances wait for all of it. */
const MOST_SUMS = 250

/**
 * Keeps what a verb counted; where much waits, a part of it is added. A verb that writes names the days it may count for
 * before: what they need is asked then.
 */
export function createCountKeeper(database: Database) {
  const keep = database.prepare<[string]>('insert into waiting_counts (counts) values (?)')
  const findFirst = database
    .prepare<[number], number | null>('select min(waiting_seq) from waiting_counts where waiting_seq >= +?')
    .pluck()
  const findDay = database.prepare<[string, string, string], number>(`
    select 1 from warmup_days where ip = ? and day = ? and isp = +?`)
  const addSome = createAdding(database)
  const floor = createFloor()
  return (now: number, expected: readonly { ip: string; at: number }[] = []): ((counts: VerbCounts) => void) => {
    const from = floor.from(now)
    const askedFirst = askAhead(findFirst, from)
    const known = new Map<string, () => unknown[]>()
    const askDay = (ip: string, day: string): (() => unknown[]) => {
      const name = `${ip} ${day}`
      const asked = known.get(name) ?? askAhead(findDay, ip, day, TOGETHER)
      known.set(name, asked)
      return asked
    }
    for (const { ip, at } of expected) askDay(ip, utcDay(at))
    return ({ hours, sent, ...counts }) => {
      const isCounted = counts.days.map(({ ip, day }) => askDay(ip, utcDay(day * DAY)))
      const days = counts.days.filter((_, index) => isCounted[index]?.()[0] !== undefined)
      const slots = counts.slots.filter(({ slotAt }) => slotAt >= now - SLOTS_OF_USE)
      if (hours.length + days.length + slots.length + sent.length === 0) return
      const last = Number(keep.run(JSON.stringify({ hours, days, slots, sent })).lastInsertRowid)
      const first = askedFirst()[0] ?? last
      floor.note(first, now)
      if (last - first + 1 >= MOST_WAITING) addSome(from)
    }
  }
}

/** Adds the oldest of what waits, of one verb at least; returns of how many verbs there is more. */
export function createAddWaitingCounts(database: Database): () => number {
  const addSome = createAdding(database)
  return () => addSome(0)
}

/** Of those that are numbered from here on. */
function createAdding(database: Database): (from: number) => number {
  const find = database.prepare<[number, number], { seq: number; counts: string }>(`
    select waiting_seq as seq, counts from waiting_counts where waiting_seq >= +? order by waiting_seq limit +?`)
  const findLast = database.prepare<[], number | null>('select max(waiting_seq) from waiting_counts').pluck()
  const remove = database.prepare<[number, number]>('delete from waiting_counts where waiting_seq between ? and ?')
  const ipSums = createIpSumsWriter(database)
  const writeWarmupSums = createWarmupSumsWriter(database)
  const noteSent = createLastSentNote(database)

  return (from) => {
    const ips = createIpSums()
    const warmup = createWarmupSums()
    const sentAt = new Map<string, number>()
    let taken = 0
    for (const { seq, counts } of find.all(from, MOST_WAITING)) {
      const { hours, days, slots, sent } = JSON.parse(counts) as VerbCounts
      for (const sums of hours) ips.addSums(sums, ipSums.nameOf(sums))
      warmup.addSums({ days, slots })
      for (const [ip, at] of sent) sentAt.set(ip, Math.max(at, sentAt.get(ip) ?? 0))
      taken = seq
      if (ips.size() + warmup.size() >= MOST_SUMS) break
    }
    ipSums.write(ips.list())
    writeWarmupSums(warmup.lists())
    for (const [ip, at] of sentAt) noteSent(ip, at)
    remove.run(from, taken)
    return Math.max(0, (findLast.get() ?? 0) - taken)
  }
}
