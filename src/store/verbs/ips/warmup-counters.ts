/**
 * What the gates of warmup look at (egress/README.md "Gates"): days of a warming IP, by the messages that it tried
 * first on them, and five-minute slots for the last hour. A day has rows only where allowance was granted; what comes
 * for another one is not counted here. Made in memory by one verb, and written for many together.
 */
import type { Database } from '../../engine/database.ts'
import { DAY, HOUR } from '../../../base/clock.ts'
import { utcDay } from '../../../base/utc-day.ts'
import { createSlotRemoval, slotOf, TOGETHER } from './allowance.ts'
import { addCounts, additionsOf, columnOf, valuesOf } from './ip-counters.ts'

const DAY_COUNTERS = [
  'firstAttempts',
  'delivered',
  'hard',
  'soft',
  'block',
  'undetermined',
  'deferred',
  'complained',
] as const
type DayCounter = (typeof DAY_COUNTERS)[number]
const SLOT_COUNTERS = ['firstAttempts', 'delivered', 'hard', 'complained', 'blocks'] as const
type SlotCounter = (typeof SLOT_COUNTERS)[number]

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
      for (const { ip, isp, day, counts } of sums.days) addCounts(dayOf(ip, isp, day).counts, counts, DAY_COUNTERS)
      for (const { ip, slotAt, counts } of sums.slots) {
        addCounts(slotOfIp(ip, slotAt).counts, counts, SLOT_COUNTERS)
      }
    },
    lists: (): WarmupLists => ({ days: [...days.values()], slots: [...slots.values()] }),
    /** Of the days, which are many. */
    size: () => days.size,
  }
}

export function createWarmupSumsWriter(database: Database): (sums: WarmupLists) => void {
  const writeDays = createDayWriter(database)
  const columns = SLOT_COUNTERS.map(columnOf)
  const addSlot = database.prepare<(string | number)[]>(`
    insert into ip_slots (ip, slot_at, ${columns.join(', ')})
    values (?, ?, ${columns.map(() => '?').join(', ')})
    on conflict (ip, slot_at) do update set ${additionsOf('ip_slots', columns)}`)
  const isKnown = database.prepare<[string, number]>('select 1 from ip_slots where ip = ? and slot_at = ?')
  const forgetSlots = createSlotRemoval(database)

  return ({ days, slots }) => {
    writeDays(days)
    for (const { ip, slotAt, counts } of slots) {
      if (isKnown.get(ip, slotAt) === undefined) forgetSlots(ip, slotAt)
      addSlot.run(ip, slotAt, ...valuesOf(counts, SLOT_COUNTERS))
    }
  }
}

/** All together first, for where that has no row no provider has one. */
function createDayWriter(database: Database): (days: readonly DaySums[]) => void {
  const additions = DAY_COUNTERS.map(columnOf).map((column) => `${column} = max(0, ${column} + ?)`)
  const add = database.prepare<(string | number)[]>(`
    update warmup_days
    set ${additions.join(', ')}
    where ip = ? and day = ? and isp = ?`)
  const write = ({ ip, day, isp, counts }: DaySums): boolean =>
    add.run(...valuesOf(counts, DAY_COUNTERS), ip, utcDay(day * DAY), isp).changes > 0
  return (days) => {
    for (const ofDay of Map.groupBy(days, ({ ip, day }) => `${ip} ${day}`).values()) {
      const [first] = ofDay
      if (first === undefined) continue
      const together: DaySums = { ...first, isp: TOGETHER, counts: {} }
      for (const { counts } of ofDay) addCounts(together.counts, counts, DAY_COUNTERS)
      if (write(together)) for (const sums of ofDay) write(sums)
    }
  }
}
