/**
 * The checks of a running server: runs them by time and on demand, keeps the last result, feeds the metric, and tells
 * the operator once per change (health/README.md "Checks"). ServiceError `invalid_request` for a check or an IP that is
 * not there; else it never rejects.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { DAY, HOUR, MINUTE, type Clock } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import { CHECK_IDS, CHECKS } from './checks/check-table.ts'
import { worstOf, runChecks, type HealthFinding, type Result } from './checks/check.ts'
import { healthChange, thingOf, type OperatorChannel, type ToldProblem } from './operator-alert.ts'
import type { CheckWorld } from './checks/world.ts'

export interface AskedChecks {
  /** null: all. */
  checks: readonly string[] | null
  ip: string | null
  domain: string | null
}

export interface HealthResult {
  findings: HealthFinding[]
  /** Unix milliseconds; null: nothing ran yet. */
  ranAt: number | null
  okAt: Readonly<Record<string, number>>
}

export type HealthKeeper = ReturnType<typeof createHealthKeeper>

interface HealthKeeperOptions {
  /**
   * `isAwaited`: somebody waits for the answer, and wants it fresh. `growthPerDay`: of the database, in bytes; null:
   * not known yet. Throws ServiceError `invalid_request`.
   */
  world(asked: AskedChecks, isAwaited: boolean, growthPerDay: () => number | null): CheckWorld
  file: string
  channels(): readonly OperatorChannel[]
  hostname: string
  interval(): number
  clock: Clock
  metrics: Pick<Metrics, 'healthCheckStatus'>
  logger: Logger
}

const ALL: AskedChecks = { checks: null, ip: null, domain: null }
const STATUS: Readonly<Record<Result, number | null>> = { ok: 0, warn: 1, fail: 2, skip: null }
/** After the start: what else begins then has its turn first. */
const FIRST_RUN_AFTER = 5 * MINUTE
const INSIDE = CHECKS.filter(({ place }) => place !== 'outside')

export function createHealthKeeper(options: HealthKeeperOptions) {
  const { file, clock, metrics } = options
  const kept = readKeptHealth(file)
  const growth = createDatabaseGrowth(kept, clock)
  const startedAt = clock.now()
  /** Of this process. */
  let ranAt: number | null = null
  let running: Promise<void> | null = null
  showInMetric(kept, metrics)

  /** A caller who comes while they run gets what they find: nobody is told twice, and no host is asked twice. */
  function runAll(isAwaited: boolean): Promise<void> {
    running ??= lookAtAll(options.world(ALL, isAwaited, growth.perDay)).finally(() => {
      running = null
    })
    return running
  }

  async function lookAtAll(world: CheckWorld): Promise<void> {
    const before = kept.findings
    const findings = await runChecks(INSIDE, world)
    logChanges(before, findings, options.logger)
    kept.findings = findings
    kept.ranAt = ranAt = clock.now()
    for (const [check, result] of worstByCheck(findings)) if (result === 'ok') kept.okAt[check] = kept.ranAt
    await growth.note(world)
    showInMetric(kept, metrics)
    await tellOperator(kept, before, options)
    try {
      writeKeptHealth(file, kept)
    } catch (thrown) {
      options.logger.warn({ file, error: errorText(thrown) }, 'results of the checks could not be kept')
    }
  }

  const last = (): HealthResult => ({ findings: kept.findings, ranAt: kept.ranAt, okAt: kept.okAt })

  return {
    last,
    async run(asked: AskedChecks): Promise<HealthResult> {
      if (asked.checks === null && asked.ip === null && asked.domain === null) {
        await runAll(true)
        return last()
      }
      const chosen = chooseChecks(asked.checks).filter((check) => INSIDE.includes(check))
      const findings = await runChecks(chosen, options.world(asked, true, growth.perDay))
      return { findings, ranAt: clock.now(), okAt: kept.okAt }
    },
    /** Job: runs all when their time has come. */
    async runDue(): Promise<void> {
      const now = clock.now()
      // What was found before the start may be of another version, another engine or other files.
      const from = ranAt ?? startedAt
      const dueAt = from + (ranAt === null ? FIRST_RUN_AFTER : options.interval())
      // It lies ahead: the clock was set back since.
      if (now >= dueAt || now < from) await runAll(false)
    },
    /** No IP could reach any mail host the last time. */
    isPort25Blocked(): boolean {
      const looked = kept.findings.filter(({ check, result }) => check === 'port25' && result !== 'skip')
      return looked.length > 0 && looked.every(({ result }) => result === 'fail')
    },
  }
}

const KEPT_SIZES = 8
const BETWEEN_SIZES = 20 * HOUR

function createDatabaseGrowth(kept: KeptHealth, clock: Clock) {
  return {
    /** Notes the size of the database, once a day. */
    async note({ server }: CheckWorld): Promise<void> {
      // A clock that was ahead must not keep the sizes of now out.
      kept.sizes = kept.sizes.filter(({ at }) => at <= clock.now())
      const lastAt = kept.sizes.at(-1)?.at ?? -Infinity
      if (server === null || clock.now() - lastAt < BETWEEN_SIZES) return
      const facts = await server.database().catch(() => null)
      if (facts === null) return
      kept.sizes = [...kept.sizes, { at: clock.now(), bytes: facts.bytes }].slice(-KEPT_SIZES)
    },
    /** Bytes a day over the last days; null: not known yet. */
    perDay(): number | null {
      const [first, latest] = [kept.sizes[0], kept.sizes.at(-1)]
      if (first === undefined || latest === undefined || latest.at - first.at < DAY) return null
      return ((latest.bytes - first.bytes) * DAY) / (latest.at - first.at)
    },
  }
}

function showInMetric({ findings }: KeptHealth, { healthCheckStatus }: HealthKeeperOptions['metrics']): void {
  healthCheckStatus.reset()
  for (const [check, result] of worstByCheck(findings)) {
    const status = STATUS[result]
    if (status !== null) healthCheckStatus.set({ check }, status)
  }
}

/** Each channel by itself: one that fails is told the next time. */
async function tellOperator(kept: KeptHealth, before: readonly HealthFinding[], options: HealthKeeperOptions) {
  const { clock, hostname, logger } = options
  for (const channel of options.channels()) {
    const { problems, solved, told } = healthChange(kept.told[channel.name] ?? {}, before, kept.findings)
    try {
      if (problems.length + solved.length > 0) await channel.send({ at: clock.now(), hostname, problems, solved })
      kept.told[channel.name] = told
    } catch (thrown) {
      logger.warn({ channel: channel.name, error: errorText(thrown) }, 'operator could not be told')
    }
  }
}

/** By its id, or by that of one of its findings: `domain-dkim` is looked at by `domain`. */
export function chooseChecks(ids: readonly string[] | null): typeof CHECKS {
  if (ids === null) return CHECKS
  const asked = ids.map((id) => (DOMAIN_RECORD.test(id) ? 'domain' : id))
  const unknown = ids.find((_id, index) => !CHECK_IDS.includes(asked[index] ?? ''))
  if (unknown === undefined) return CHECKS.filter(({ id }) => asked.includes(id))
  throw new ServiceError('invalid_request', `checks: there is no check "${unknown}"; there are ${CHECK_IDS.join(', ')}`)
}

const DOMAIN_RECORD = /^domain-(\*|dkim|return-path|spf|dmarc|dmarc-reports|tracking)$/

function worstByCheck(findings: readonly HealthFinding[]): Map<string, Result> {
  const results = Map.groupBy(findings, ({ check }) => check)
  return new Map([...results].map(([check, ofIt]) => [check, worstOf(ofIt.map(({ result }) => result))]))
}

/** One line for each thing whose result is another one. */
function logChanges(before: readonly HealthFinding[], now: readonly HealthFinding[], logger: Logger): void {
  const earlier = Map.groupBy(before, thingOf)
  for (const [thing, findings] of Map.groupBy(now, thingOf)) {
    const from = earlier.has(thing) ? worstOf((earlier.get(thing) ?? []).map(({ result }) => result)) : null
    const to = worstOf(findings.map(({ result }) => result))
    if (from === to || (from === null && (to === 'ok' || to === 'skip'))) continue
    const level = to === 'fail' ? 'error' : to === 'warn' ? 'warn' : 'info'
    for (const { check, subject, seen } of findings.filter(({ result }) => result === to).slice(0, 1)) {
      logger[level]({ check, subject, from, to, seen }, 'check changed')
    }
  }
}

/** What the checks found last, in a file beside the database: a restart neither forgets it nor tells it all again. */
interface KeptHealth {
  /** Of the last run of all checks, Unix milliseconds; null: there was none. */
  ranAt: number | null
  findings: HealthFinding[]
  /** By check: when it was last ok. */
  okAt: Record<string, number>
  /** By channel and key of the problem: what the operator was told and what is not solved yet. */
  told: Record<string, Record<string, ToldProblem>>
  /** Size of the database, one entry for each day, oldest first. */
  sizes: { at: number; bytes: number }[]
}

const VERSION = 1
const PRIVATE = 0o600

/** A file that cannot be read is an empty memory. */
function readKeptHealth(file: string): KeptHealth {
  try {
    const kept = JSON.parse(readFileSync(file, 'utf8')) as KeptHealth & { version: number }
    // Written by this program, so only the version can be wrong.
    if (kept.version === VERSION) return kept
  } catch {
    // The first start, or a file that was cut short: the next run fills it again.
  }
  return { ranAt: null, findings: [], okAt: {}, told: {}, sizes: [] }
}

/** Whole or not at all. Throws the system's error. */
function writeKeptHealth(file: string, kept: KeptHealth): void {
  writeFileSync(`${file}.new`, JSON.stringify({ version: VERSION, ...kept }), { mode: PRIVATE })
  renameSync(`${file}.new`, file)
}
