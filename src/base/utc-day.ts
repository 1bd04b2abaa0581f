/** Days as UTC dates: the days of warmup and statistics. Pure. */
import { DAY } from './clock.ts'

/** The date of a time, YYYY-MM-DD. */
export function utcDay(at: number): string {
  return new Date(at).toISOString().slice(0, 10)
}

/** When it begins, Unix milliseconds. NaN for what is no date. */
export function startOfUtcDay(day: string): number {
  return Date.parse(`${day}T00:00:00Z`)
}

/** The date so many days later, or earlier. */
export function dayAfter(day: string, days = 1): string {
  return utcDay(startOfUtcDay(day) + days * DAY)
}
