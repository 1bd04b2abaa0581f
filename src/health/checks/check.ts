/**
 * One check: what it says of a thing, where it is run, and a run of many in parallel, each for 15 s at most. A run
 * never rejects: a check that does not end, or fails, is a finding.
 */
import { SECOND } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { ipFamily } from '../../base/ip-address.ts'
import type { HealthFinding, Result } from './finding.ts'
import type { CheckWorld, ServerFacts } from './world.ts'

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
