/**
 * The table "when -> what" of the upkeep jobs, in UTC. Upkeep is a net under the parts that work by events: nothing a
 * caller waits for hangs on it. A job never overlaps itself; one that throws is logged and runs again at its next time.
 * Every job can also be run by hand.
 */
import type { IsClockSteady } from '../base/clock-watch.ts'
import { MINUTE, SECOND, type Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { Shaping } from '../egress/shaping/shaping.ts'
import type { Warmup } from '../egress/moves/warmup.ts'
import type { MessageLookup } from '../messages/lookup/lookup-message.ts'
import type { Statistics } from '../messages/statistics/statistics.ts'
import { BOUNCE_CATEGORIES } from '../mail/reply/bounce-category.ts'
import type { Domains } from '../senders/domains.ts'
import { isSaidByStore } from '../store/passing-failure.ts'
import type { Retention } from '../store/retention.ts'
import type { Store } from '../store/store.ts'
import type { Job, JobDriver } from './drive-jobs.ts'

export type JobName = keyof ReturnType<typeof jobTable>
export type Schedule = ReturnType<typeof createSchedule>

export interface ScheduleOptions {
  store: Store
  clock: Clock
  /** Leases watch over real work: they end by this one. */
  realClock: Clock
  logger: Logger
  metrics: Metrics
  domains: Pick<Domains, 'checkDue' | 'stop'>
  warmup: Pick<Warmup, 'closeDays' | 'checkGates'>
  shaping: Pick<Shaping, 'tick'>
  sts: { refresh(): Promise<void> }
  tlsReports: { sendDue(): Promise<void> }
  certificates: { check(): void; issue(): Promise<void> }
  health: { runDue(): Promise<void> }
  statistics: Pick<Statistics, 'sum'>
  messages: Pick<MessageLookup, 'indexSubjects'>
  retention: Pick<Retention, 'run' | 'watchBudget' | 'stop'>
  /** `when`: five fields of cron, read again at `replan`; null: only by hand. */
  backups: { when(): string | null; write(): Promise<void> }
  /** False: the clock has jumped, and nothing may expire by it. */
  isClockSteady: IsClockSteady
  /** How long a message waits that may have been sent; `delivery.uncertain_retry`. */
  uncertainRetry: () => number
  /** Of this process: leases of others are theirs. */
  epoch: number
  /** False: another node does what one does for all. */
  isFirst: () => boolean
  /** Of all rows that memory holds: what lapses then is in nobody's hand. */
  renewLeases: () => Promise<void>
  onQueued: () => void
  onEvents: () => void
  drive: (jobs: readonly Job[]) => JobDriver
}

/** What has not ended by then is left to the next start: a stop has no more time than its service manager gives it. */
const LONGEST_STOP = 20 * SECOND

/** Rows that one verb ends at most, so that it never holds the store for long. */
const ENDED_AT_ONCE = 500

interface TimedWork {
  /** null: at times of its own. */
  when: string | null
  what: () => Promise<void>
  /** Of several nodes one does it. */
  isOfOne?: true
}

/** operations/README.md "The jobs". */
function jobTable(options: ScheduleOptions) {
  const { domains, retention, backups, warmup, shaping, sts, tlsReports, health, certificates, statistics, messages } =
    options
  return {
    // delivery/README.md "Expiry": also what a paused, capped or dead path holds ends in time.
    'expire-messages': { when: '*/5 * * * * *', isOfOne: true, what: () => expireMessages(options) },
    // What was under way when its domain was purged, and came back to the queue.
    'cancel-purged': { when: '*/5 * * * * *', isOfOne: true, what: () => cancelPurged(options) },
    // store/README.md "Leases and claims": a lease that lapsed without an outcome returns its message.
    'recover-leases': { when: '20 * * * * *', what: () => recoverLeases(options) },
    'check-domains': { when: '40 * * * * *', isOfOne: true, what: () => domains.checkDue() },
    'apply-retention': { when: '30 */10 * * * *', isOfOne: true, what: () => retention.run() },
    'sum-statistics': { when: '10 * * * * *', isOfOne: true, what: () => statistics.sum() },
    'index-subjects': { when: '15 * * * * *', isOfOne: true, what: () => messages.indexSubjects() },
    'watch-budget': { when: '*/15 * * * * *', isOfOne: true, what: () => retention.watchBudget() },
    'write-backup': { when: null, what: () => backups.write() },
    // delivery/README.md "Expiry": what should have ended or moved long ago is a defect.
    'watch-queue': { when: '35 * * * * *', isOfOne: true, what: () => watchQueue(options) },
    // egress/README.md "Warmup days": a day is closed after its end, also when nothing is sent.
    'close-warmup-days': { when: '5 * * * * *', what: () => warmup.closeDays() },
    'check-warmup-gates': { when: '15 */5 * * * *', what: () => warmup.checkGates() },
    'keep-path-states': { when: '*/10 * * * * *', what: () => shaping.tick() },
    'refresh-sts-policies': { when: '25 13 * * * *', isOfOne: true, what: () => sts.refresh() },
    'send-tls-reports': { when: '55 */5 * * * *', isOfOne: true, what: () => tlsReports.sendDue() },
    // health/README.md "Checks": every health.interval; this only looks whether it has come.
    'run-checks': { when: '50 * * * * *', what: () => health.runDue() },
    // certificates/README.md "When": this only looks whether the time of one has come.
    'issue-certificates': { when: '*/30 * * * * *', isOfOne: true, what: () => certificates.issue() },
    'check-certificates': { when: '45 43 * * * *', what: async () => certificates.check() },
  } satisfies Record<string, TimedWork>
}

export function createSchedule(options: ScheduleOptions) {
  const { drive, domains, backups, retention } = options
  const jobs = jobTable(options)
  const runs = createJobRuns(jobs, options)
  const timed = (name: JobName, when: string | null): Job[] =>
    when === null ? [] : [{ name, when, run: () => runs.run(name) }]
  let driver: JobDriver | undefined
  let backup: { when: string | null; driver: JobDriver } | undefined

  function planBackups(): void {
    const when = backups.when()
    if (backup?.when === when) return
    // A table that never comes round throws: then the former one goes on.
    const next = { when, driver: drive(timed('write-backup', when)) }
    void backup?.driver.stop()
    backup = next
  }

  return {
    start(): void {
      driver = drive((Object.keys(jobs) as JobName[]).flatMap((name) => timed(name, jobs[name].when)))
      planBackups()
    },
    run: runs.run,
    /** The time of the backups may be another one now. */
    replan(): void {
      if (driver !== undefined) planBackups()
    },
    /** No job starts any more; resolves when running ones have ended. */
    async stop(): Promise<void> {
      retention.stop()
      // Many domains with a slow DNS take minutes: those whose turn has not come are left for the next start.
      const stopping = [driver?.stop(), backup?.driver.stop(), domains.stop()]
      driver = undefined
      await runs.ended(stopping)
    },
  }
}

function createJobRuns(jobs: Record<JobName, TimedWork>, { store, logger, realClock, isFirst }: ScheduleOptions) {
  const running = new Map<Promise<void>, JobName>()
  return {
    /** Never rejects. */
    async run(name: JobName): Promise<void> {
      if (jobs[name].isOfOne === true && !isFirst()) return
      const execution = jobs[name].what().catch((thrown: unknown) => {
        logger[isSaidByStore(store, thrown) ? 'debug' : 'error']({ job: name, err: thrown }, 'job failed')
      })
      running.set(execution, name)
      await execution
      running.delete(execution)
    },
    /** Resolves when all that runs, and these too, have ended; or when a stop may take no longer. */
    async ended(others: readonly (Promise<void> | undefined)[]): Promise<void> {
      const { promise: late, resolve } = Promise.withResolvers<void>()
      const cancel = realClock.after(LONGEST_STOP, () => {
        logger.warn({ jobs: [...running.values()] }, 'jobs are not waited for any longer')
        resolve()
      })
      await Promise.race([Promise.all([...others, ...running.keys()]), late])
      cancel()
    },
  }
}

/** `end`: ends some rows in one verb, and says how many there were. */
async function endAll(end: () => Promise<number>, onEvents: () => void): Promise<void> {
  let ended: number
  do {
    ended = await end()
    if (ended > 0) onEvents()
  } while (ended === ENDED_AT_ONCE)
}

async function expireMessages({ store, clock, logger, metrics, ...options }: ScheduleOptions): Promise<void> {
  if (!options.isClockSteady()) return
  await endAll(async () => {
    const ended = await store.expireDue(clock.now(), ENDED_AT_ONCE)
    for (const { id, pool, domain, isCaptured, isPossibleDuplicate } of ended) {
      const category = isPossibleDuplicate ? 'ambiguous' : 'expired'
      logger.info({ message_id: id, pool, domain, outcome: 'expired', category }, 'message expired')
      if (isCaptured) continue
      // No attempt was made: there is neither an IP nor a provider.
      metrics.deliveries.inc({ result: 'expired', pool, ip: 'none', provider: 'other' })
      metrics.bounces.inc({ type: BOUNCE_CATEGORIES[category].type, provider: 'other' })
    }
    return ended.length
  }, options.onEvents)
}

async function cancelPurged({ store, clock, logger, onEvents }: ScheduleOptions): Promise<void> {
  await endAll(async () => {
    const messages = await store.cancelPurged(clock.now(), ENDED_AT_ONCE)
    if (messages > 0) logger.info({ messages }, 'messages of a removed domain canceled')
    return messages
  }, onEvents)
}

const OVERDUE_AFTER = MINUTE
const STUCK_AFTER = 30 * MINUTE

async function watchQueue(options: ScheduleOptions): Promise<void> {
  const { store, clock, logger, isClockSteady } = options
  // Nothing expires then, and nothing is too late by a clock that is not trusted.
  if (!isClockSteady()) return
  const now = clock.now()
  // After a pause of the machine its turn may come before that of the expiry.
  await expireMessages(options)
  const { overdue, stuck } = await store.watchQueue(now - OVERDUE_AFTER, now - STUCK_AFTER)
  if (overdue + stuck > 0) logger.error({ overdue, stuck }, 'messages without a next event')
}

async function recoverLeases(options: ScheduleOptions): Promise<void> {
  const { store, clock, realClock, logger, metrics, onQueued } = options
  await options.renewLeases()
  const now = clock.now()
  const recovered = await store.recoverLapsedLeases(realClock.now(), now, now + options.uncertainRetry(), options.epoch)
  if (recovered === 0) return
  metrics.leasesRecovered.inc(recovered)
  logger.error({ messages: recovered }, 'leases lapsed without an outcome')
  onQueued()
}
