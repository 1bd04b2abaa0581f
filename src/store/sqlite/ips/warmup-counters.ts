/**
 * What the gates of warmup look at (egress/README.md "Gates"): days of a warming IP, by the messages that it tried
 * first on them, and five-minute slots for the last hour. A day has rows only where allowance was granted; what comes
 * for another one is not counted here. Made in memory by one verb, and written for many together.
 */
import type { Database } from 'better-sqlite3'
import { DAY, HOUR } from '../../../base/clock.ts'
import { utcDay } from '../../../base/utc-day.ts'
import { addCounts } from '../engine/add-counts.ts'
import { createSlotRemoval, slotOf, TOGETHER } from './allowance.ts'

/** Names of the counters of a day, and their columns. */
const DAY_COUNTERS = {
  firstAttempts: 'first_attempts',
  delivered: 'delivered',
  hard: 'hard',
  soft: 'soft',
  block: 'block',
  undetermined: 'undetermined',
  deferred: 'deferred',
  complained: 'complained',
} as const
type DayCounter = keyof typeof DAY_COUNTERS

/** Names of the counters of a slot, and their columns. */
const SLOT_COUNTERS = {
  firstAttempts: 'first_attempts',
  delivered: 'delivered',
  hard: 'hard',
  complained: 'complained',
  blocks: 'blocks',
} as const
type SlotCounter = keyof typeof SLOT_COUNTERS

export type WarmupSums = ReturnType<typeof createWarmupSums>

/** All plain data. */
export interface WarmupLists {
  days: DaySums[]
  slots: SlotSums[]
}

/** Of one provider; what is left out is 0, and may be negative. */
interface DaySums {
  ip: string
  isp: string
  /** Number of the day since 1970. */
  day: number
  counts: Partial<Record<DayCounter, number>>
}

interface SlotSums {
  ip: string
  slotAt: number
  counts: Partial<Record<SlotCounter, number>>
}

/** Nothing looks further back in slots than an hour. */
export const SLOTS_OF_USE = 2 * HOUR
const DAY_COUNTER_NAMES = Object.keys(DAY_COUNTERS) as DayCounter[]
const SLOT_COUNTER_NAMES = Object.keys(SLOT_COUNTERS) as SlotCounter[]

export function createWarmupSums() {
  const days = new Map<string, DaySums>()
  const slots = new Map<string, SlotSums>()

  function dayOf(ip: string, isp: string, day: number): DaySums {
    const key = `${ip} ${day} ${isp}`
    const known = days.get(key)
    if (known !== undefined) return known
    const sums = { ip, isp, day, counts: {} }
    days.set(key, sums)
    return sums
  }

  function slotOfIp(ip: string, slotAt: number): SlotSums {
    const key = `${ip} ${slotAt}`
    const known = slots.get(key)
    if (known !== undefined) return known
    const sums = { ip, slotAt, counts: {} }
    slots.set(key, sums)
    return sums
  }

  return {
    /** `at`: when the message was first tried from the IP, or when the complaint came. */
    addToDay({ ip, isp, at }: { ip: string; isp: string; at: number }, counter: DayCounter, by = 1): void {
      const { counts } = dayOf(ip, isp, Math.floor(at / DAY))
      counts[counter] = (counts[counter] ?? 0) + by
    },
    addToSlot({ ip, at }: { ip: string; at: number }, counter: SlotCounter): void {
      const { counts } = slotOfIp(ip, slotOf(at))
      counts[counter] = (counts[counter] ?? 0) + 1
    },
    /** Adds sums that were made before. */
    addSums(sums: WarmupLists): void {
      for (const { ip, isp, day, counts } of sums.days) addCounts(dayOf(ip, isp, day).counts, counts, DAY_COUNTER_NAMES)
      for (const { ip, slotAt, counts } of sums.slots) {
        addCounts(slotOfIp(ip, slotAt).counts, counts, SLOT_COUNTER_NAMES)
      }
    },
    lists: (): WarmupLists => ({ days: [...days.values()], slots: [...slots.values()] }),
    /** Of the days, which are many. */
    size: () => days.size,
  }
}

export function createWarmupSumsWriter(database: Database): (sums: WarmupLists) => void {
  const writeDays = createDayWriter(database)
  const slotColumns = Object.values(SLOT_COUNTERS)
  const addSlot = database.prepare<(string | number)[]>(`
    insert into ip_slots (ip, slot_at, ${slotColumns.join(', ')})
    values (?, ?, ${slotColumns.map(() => '?').join(', ')})
    on conflict do update set ${slotColumns.map((column) => `${column} = ${column} + excluded.${column}`).join(', ')}`)
  const isKnown = database.prepare<[string, number]>('select 1 from ip_slots where ip = ? and slot_at = ?')
  const forgetSlots = createSlotRemoval(database)

  return ({ days, slots }) => {
    writeDays(days)
    for (const { ip, slotAt, counts } of slots) {
      if (isKnown.get(ip, slotAt) === undefined) forgetSlots(ip, slotAt)
      addSlot.run(ip, slotAt, ...SLOT_COUNTER_NAMES.map((name) => counts[name] ?? 0))
    }
  }
}

/** All together first, for where that has no row no provider has one. */
function createDayWriter(database: Database): (days: readonly DaySums[]) => void {
  const add = database.prepare<(string | number)[]>(`
    update warmup_days
    set ${Object.values(DAY_COUNTERS)
      .map((column) => `${column} = max(0, ${column} + ?)`)
      .join(', ')}
    where ip = ? and day = ? and isp = ?`)
  const write = ({ ip, day, isp, counts }: DaySums): boolean =>
    add.run(...DAY_COUNTER_NAMES.map((name) => counts[name] ?? 0), ip, utcDay(day * DAY), isp).changes > 0
  return (days) => {
    for (const ofDay of Map.groupBy(days, ({ ip, day }) => `${ip} ${day}`).values()) {
      const [first] = ofDay
      if (first === undefined) continue
      const together: DaySums = { ...first, isp: TOGETHER, counts: {} }
      for (const { counts } of ofDay) addCounts(together.counts, counts, DAY_COUNTER_NAMES)
      if (write(together)) for (const sums of ofDay) write(sums)
    }
  }
}
