/**
 * One check (health/README.md "Checks"): what it says of a thing, where it is run, and a run of many in parallel, each
 * for 15 s at most. A run never rejects: a check that does not end, or fails, is a finding.
 */
import { DAY, HOUR, MINUTE, SECOND } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { ipFamily } from '../../base/ip-address.ts'
import type { CheckWorld, ServerFacts } from './world.ts'

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

export interface HealthCheck {
  id: string
  /**
   * server: asks what only the running server knows. outside: only means something from another process. anywhere: both
   * may run it.
   */
  place: 'server' | 'outside' | 'anywhere'
  run: Look
}

type Look = (world: CheckWorld) => Promise<HealthFinding[]>

/** The findings of one check: all have its id and its reason. */
export type Verdicts = Pick<ReturnType<typeof checkOf>, Result>

/** What the network or the DNS said may hold anything: control and format characters, halves of pairs. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]+/gu
const MOST_CHARACTERS = 2_000

export const DNS_FIX = 'check dns.servers in sternpost.yaml, or /etc/resolv.conf; try: dig +short NS .'

/** `why` it matters; `subject`: null is the server. */
export function checkOf(id: string, why: string) {
  function finding(result: Result, subject: string | null, said: string, fix: string | null = null): HealthFinding {
    const family = subject === null ? null : (ipFamily(subject) ?? null)
    const seen = said.replace(UNPRINTABLE, ' ').slice(0, MOST_CHARACTERS)
    return { check: id, subject, family, result, seen, why, fix }
  }
  const warn = (subject: string | null, seen: string, fix: string): HealthFinding => finding('warn', subject, seen, fix)
  const skip = (subject: string | null, seen: string): HealthFinding => finding('skip', subject, seen)
  return {
    ok: (subject: string | null, seen: string): HealthFinding => finding('ok', subject, seen),
    warn,
    fail: (subject: string | null, seen: string, fix: string): HealthFinding => finding('fail', subject, seen, fix),
    skip,
    /** The DNS did not answer. */
    silent: (subject: string | null, reason: string): HealthFinding =>
      warn(subject, `the DNS did not answer (${reason})`, DNS_FIX),
    anywhere: (run: Look): HealthCheck => ({ id, place: 'anywhere', run }),
    outside: (run: Look): HealthCheck => ({ id, place: 'outside', run }),
    onServer: (look: (server: ServerFacts, world: CheckWorld) => Promise<HealthFinding[]>): HealthCheck => ({
      id,
      place: 'server',
      run: async (world) =>
        world.server === null
          ? [checkOf(id, WHY).skip(null, 'the server does not run here, or does not answer')]
          : look(world.server, world),
    }),
  }
}

const MOST_MILLISECONDS = 15 * SECOND
const WHY = 'What is not looked at can be anything.'

/** In the order of the table. */
export async function runChecks(checks: readonly HealthCheck[], world: CheckWorld): Promise<HealthFinding[]> {
  const found = await Promise.all(checks.map((check) => runOne(check, world)))
  return found.flat()
}

async function runOne({ id, run }: HealthCheck, world: CheckWorld): Promise<HealthFinding[]> {
  const { warn } = checkOf(id, WHY)
  const { promise: late, resolve } = Promise.withResolvers<HealthFinding[]>()
  const text = `it did not end within ${MOST_MILLISECONDS / SECOND} s`
  const timer = setTimeout(() => resolve([warn(null, text, `sternpost doctor ${id}`)]), MOST_MILLISECONDS)
  try {
    return await Promise.race([run(world), late])
  } catch (thrown) {
    return [warn(null, `the check failed: ${errorText(thrown)}`, `sternpost doctor ${id}; sternpost logs --level warn`)]
  } finally {
    clearTimeout(timer)
  }
}

/* Sizes and times as findings say them. */

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
