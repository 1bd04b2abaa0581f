/**
 * What the gates of warmup look at (engine.md 6.6): the days of a warming IP, by the messages that it tried first on
 * them, and five-minute slots for what looks at the last hour.
 *
 * A day has rows only where allowance was granted: an IP that is not warmed up gets none, and what comes for a day
 * without a row is not counted here. Kept in memory during one verb, then written with one statement for each row.
 */
import type { Database } from 'better-sqlite3'
import { DAY, HOUR } from '../../base/clock.ts'
import { utcDay } from '../../base/utc-day.ts'
import { createSlotRemoval, slotOf, TOGETHER } from './allowance.ts'

/** Names of the counters of a day, and their columns. */
const DAY_COUNTERS = {
  firstAttempts: 'first_attempts', delivered: 'delivered', hard: 'hard', soft: 'soft', block: 'block',
  undetermined: 'undetermined', deferred: 'deferred', complained: 'complained',
} as const
export type DayCounter = keyof typeof DAY_COUNTERS

/** Names of the counters of a slot, and their columns. */
const SLOT_COUNTERS = {
  firstAttempts: 'first_attempts', delivered: 'delivered', hard: 'hard', complained: 'complained', blocks: 'blocks',
} as const
export type SlotCounter = keyof typeof SLOT_COUNTERS

export interface WarmupCounters {
  /** `at`: when the message was first tried from the IP, or when the complaint came. */
  addToDay(where: { ip: string; isp: string; at: number }, counter: DayCounter, by?: number): void
  addToSlot(where: { ip: string; at: number }, counter: SlotCounter): void
  write(now: number): void
}

interface DaySums extends Record<DayCounter, number> {
  ip: string
  isp: string
  day: string
}

interface SlotSums extends Record<SlotCounter, number> {
  ip: string
  slotAt: number
}

/** Nothing looks further back in slots than an hour. */
const SLOTS_OF_USE = 2 * HOUR

/** Prepares the statements; what it returns begins the sums of one verb. */
export function createWarmupCounters(database: Database): () => WarmupCounters {
  const addDay = database.prepare(`
    update warmup_days
    set ${Object.entries(DAY_COUNTERS).map(([name, column]) => `${column} = max(0, ${column} + @${name})`).join(', ')}
    where ip = @ip and day = @day and isp = @isp`)
  const slotColumns = Object.values(SLOT_COUNTERS)
  const addSlot = database.prepare(`
    insert into ip_slots (ip, slot_at, ${slotColumns.join(', ')})
    values (@ip, @slotAt, ${Object.keys(SLOT_COUNTERS).map((name) => `@${name}`).join(', ')})
    on conflict do update set ${slotColumns.map((column) => `${column} = ${column} + excluded.${column}`).join(', ')}`)
  const isKnown = database.prepare<[string, number]>('select 1 from ip_slots where ip = ? and slot_at = ?')
  const forgetSlots = createSlotRemoval(database)

  const writeDays = (days: Iterable<DaySums>): void => {
    for (const sums of days) {
      const { changes } = addDay.run(sums)
      if (changes === 0 && sums.isp === TOGETHER) return
    }
  }

  return () => {
    // By IP and day: all together first, for where that has no row no provider has one.
    const days = new Map<string, Map<string, DaySums>>()
    const slots = new Map<string, SlotSums>()
    return {
      addToDay({ ip, isp, at }, counter, by = 1) {
        const key = `${ip} ${Math.floor(at / DAY)}`
        let isps = days.get(key)
        if (isps === undefined) days.set(key, (isps = new Map([[TOGETHER, noDay(ip, TOGETHER, at)]])))
        let sums = isps.get(isp)
        if (sums === undefined) isps.set(isp, (sums = noDay(ip, isp, at)))
        sums[counter] += by
        const together = isps.get(TOGETHER)
        if (together !== undefined) together[counter] += by
      },
      addToSlot({ ip, at }, counter) {
        const slotAt = slotOf(at)
        const key = `${ip} ${slotAt}`
        let sums = slots.get(key)
        if (sums === undefined) {
          sums = { ip, slotAt, firstAttempts: 0, delivered: 0, hard: 0, complained: 0, blocks: 0 }
          slots.set(key, sums)
        }
        sums[counter] += 1
      },
      write(now) {
        for (const isps of days.values()) writeDays(isps.values())
        for (const sums of slots.values()) {
          if (sums.slotAt < now - SLOTS_OF_USE) continue
          if (isKnown.get(sums.ip, sums.slotAt) === undefined) forgetSlots(sums.ip, sums.slotAt)
          addSlot.run(sums)
        }
      },
    }
  }
}

function noDay(ip: string, isp: string, at: number): DaySums {
  return {
    ip, isp, day: utcDay(at), firstAttempts: 0, delivered: 0, hard: 0, soft: 0, block: 0, undetermined: 0, deferred: 0,
    complained: 0,
  }
}
