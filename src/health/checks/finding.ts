/**
 * What a check says of one thing: an IP, a domain, a port, or the server as a whole (health/README.md "Checks"). Pure.
 */
import { ipFamily } from '../../base/ip-address.ts'

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
  /** Why it matters. */
  why: string
  /** What to do, exactly; null: nothing. */
  fix: string | null
}

/** The findings of one check: all have its id and its reason. */
export interface Verdicts {
  ok(subject: string | null, seen: string): HealthFinding
  warn(subject: string | null, seen: string, fix: string): HealthFinding
  fail(subject: string | null, seen: string, fix: string): HealthFinding
  skip(subject: string | null, seen: string): HealthFinding
}

/** What the network or the DNS said may hold anything: control and format characters, halves of pairs. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]+/gu
const MOST_CHARACTERS = 2_000

export function verdicts(check: string, why: string): Verdicts {
  const finding =
    (result: Result) =>
    (subject: string | null, seen: string, fix: string | null = null): HealthFinding => ({
      check,
      subject,
      family: subject === null ? null : (ipFamily(subject) ?? null),
      result,
      why,
      fix,
      seen: seen.replace(UNPRINTABLE, ' ').slice(0, MOST_CHARACTERS),
    })
  return { ok: finding('ok'), warn: finding('warn'), fail: finding('fail'), skip: finding('skip') }
}

const WORST_FIRST: readonly Result[] = ['fail', 'warn', 'ok', 'skip']

/** fail before warn before ok; skip alone when there is nothing else. */
export function worstOf(results: readonly Result[]): Result {
  return WORST_FIRST.find((result) => results.includes(result)) ?? 'skip'
}
