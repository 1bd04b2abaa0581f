/** Days as UTC dates: the days of warmup and statistics. Pure. */
import { DAY } from './clock.ts'

/** The day that was asked for last: sums ask for the same one thousands of times. */
let [lastDay, lastDate] = [Number.NaN, '']

/** The date of a time, YYYY-MM-DD. */
export function utcDay(at: number): string {
  const day = Math.floor(at / DAY)
  if (day !== lastDay) [lastDay, lastDate] = [day, new Date(at).toISOString().slice(0, 10)]
  return lastDate
}

/** When it begins, Unix milliseconds. NaN for what is no date. */
export function startOfUtcDay(day: string): number {
  return Date.parse(`${day}T00:00:00Z`)
}

/** The date so many days later, or earlier. */
export function dayAfter(day: string, days = 1): string {
  return utcDay(startOfUtcDay(day) + days * DAY)
}
