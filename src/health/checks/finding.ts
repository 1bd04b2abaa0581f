/**
 * What a check says of one thing: an IP, a domain, a port, or the server as a whole (health/README.md "Checks"); sizes
 * and times as it says them. Pure.
 */
import { DAY, HOUR, MINUTE, SECOND } from '../../base/clock.ts'

export const RESULTS = [
  'ok', // as it should be
  'warn', // works now, and may not for long; or nobody can say
  'fail', // mail is lost, late or refused by it
  'skip', // not looked at; `seen` says why
] as const
export type Result = (typeof RESULTS)[number]

export interface HealthFinding {
  /** Id of the check, as it is named on the command line and in the metric. */
  check: string
  /** The IP, domain, host name or port it is about; null: the server. */
  subject: string | null
  /** Of an IP. */
  family: 4 | 6 | null
  result: Result
  /** What was seen, a sentence without its full stop. */
  seen: string
  why: string
  /** What to do, exactly; null: nothing. */
  fix: string | null
}

const WORST_FIRST: readonly Result[] = ['fail', 'warn', 'ok', 'skip']

/** fail before warn before ok; skip alone when there is nothing else. */
export function worstOf(results: readonly Result[]): Result {
  return WORST_FIRST.find((result) => results.includes(result)) ?? 'skip'
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const
const STEP = 1_024

export function byteText(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log(bytes) / Math.log(STEP)))
  const value = bytes / STEP ** power
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[power] ?? 'B'}`
}

/** `3 h`, `2 days`: the largest unit that fits. */
export function ageText(milliseconds: number): string {
  const sizes = [['day', DAY] as const, ['h', HOUR] as const, ['min', MINUTE] as const]
  const [word, size] = sizes.find(([, each]) => milliseconds >= each) ?? ['s', SECOND]
  const count = Math.floor(milliseconds / size)
  return `${count} ${word === 'day' && count !== 1 ? 'days' : word}`
}
