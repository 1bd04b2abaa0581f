/**
 * The table "when -> what" of the upkeep jobs, on node-cron in UTC.
 *
 * Upkeep is a net under the parts that work by events: nothing a caller waits for hangs on it. A job never overlaps
 * itself; one that throws is logged and runs again at its next time. Every job can also be run by hand.
 */
import cron from 'node-cron'
import type { ScheduledTask } from 'node-cron'
import { DAY, MINUTE } from './base/clock.ts'
import type { Clock } from './base/clock.ts'
import type { Job, JobDriver } from './base/job.ts'
import type { Logger } from './base/logger.ts'
import type { Metrics } from './base/metrics.ts'
import type { Shaping } from './egress/shaping.ts'
import type { Warmup } from './egress/warmup/warmup.ts'
import type { Domains } from './senders/domains.ts'
import type { Store } from './store/store.ts'

export type JobName =
  'expire-messages' | 'cancel-purged' | 'check-domains' | 'recover-leases' | 'watch-queue' | 'measure-queue' |
  'close-warmup-days' | 'check-warmup-gates' | 'keep-path-states' | 'refresh-sts-policies' | 'send-tls-reports' |
  'forget-answers' | 'forget-reports' | 'forget-webhooks' | 'forget-ip-history'

export interface Schedule {
  start(): void
  run(name: JobName): Promise<void>
  /** No job starts any more; resolves when running ones have ended. */
  stop(): Promise<void>
}

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
  /** MTA-STS policies. */
  sts: { refresh(): Promise<void> }
  tlsReports: { sendDue(): Promise<void> }
  /** For so many milliseconds: bounces that name none of our messages. */
  unmatchedReportsKept: number
  /** The same for webhook deliveries that were answered, and for dead letters. */
  webhooksKept: { succeeded: number; failed: number }
  /** The same for sums by IP, and for the audit of warmups. */
  ipHistoryKept: { statistics: number; audit: number }
  /** How many messages each cause holds back. */
  waitingByReason: () => Record<string, number>
  /** False: the clock has jumped, and nothing may expire by it. */
  isClockSteady: () => boolean
  /** How long a message waits that may have been sent; `delivery.uncertain_retry`. */
  uncertainRetry: () => number
  /** Messages are due again. */
  onQueued: () => void
  /** Events were written. */
  onEvents: () => void
  /** Runs the jobs in place of node-cron, which knows real time alone. */
  drive: ((jobs: readonly Job[]) => JobDriver) | null
}

/** Rows that one verb ends at most, so that it never holds the store for long. */
const ENDED_AT_ONCE = 500

export function createSchedule(options: ScheduleOptions): Schedule {
  const { logger, drive } = options
  let driver: JobDriver | undefined
  const running = new Set<Promise<void>>()
  const tasks: ScheduledTask[] = []
  const jobs: Record<JobName, { when: string; what: () => Promise<void> }> = {
    // engine.md 4.4: also what a paused, capped or dead path holds ends in time.
    'expire-messages': { when: '*/5 * * * * *', what: () => expireMessages(options) },
    // What was under way when its domain was purged, and came back to the queue.
    'cancel-purged': { when: '*/5 * * * * *', what: () => cancelPurged(options) },
    // engine.md 3.3: a lease that lapsed without an outcome returns its message.
    'recover-leases': { when: '20 * * * * *', what: () => recoverLeases(options) },
    // contract.md 7.3: what the DNS says of a domain may have changed.
    'check-domains': { when: '40 * * * * *', what: () => options.domains.checkDue() },
    // contract.md 4.7: idempotency keys live for a day.
    'forget-answers': { when: '30 7 * * * *', what: () => forgetAnswers(options) },
    'forget-reports': { when: '40 17 * * * *', what: () => forgetReports(options) },
    'forget-webhooks': { when: '50 27 * * * *', what: () => forgetWebhooks(options) },
    // engine.md 4.4: what should have ended or moved long ago is a defect.
    'watch-queue': { when: '35 * * * * *', what: () => watchQueue(options) },
    // engine.md 6.3: a day is closed after its end, also when nothing is sent.
    'close-warmup-days': { when: '5 * * * * *', what: () => options.warmup.closeDays() },
    // engine.md 6.6: the fast lane.
    'check-warmup-gates': { when: '15 */5 * * * *', what: () => options.warmup.checkGates() },
    'keep-path-states': { when: '*/10 * * * * *', what: () => options.shaping.tick() },
    'refresh-sts-policies': { when: '25 13 * * * *', what: () => options.sts.refresh() },
    'send-tls-reports': { when: '55 */5 * * * *', what: () => options.tlsReports.sendDue() },
    'forget-ip-history': { when: '10 37 * * * *', what: () => forgetIpHistory(options) },
    'measure-queue': { when: '*/15 * * * * *', what: () => measureQueue(options) },
  }

  const run = async (name: JobName): Promise<void> => {
    const execution = jobs[name].what().catch((thrown: unknown) => {
      logger.error({ job: name, err: thrown }, 'job failed')
    })
    running.add(execution)
    await execution
    running.delete(execution)
  }
  const names = Object.keys(jobs).filter((name): name is JobName => name in jobs)

  return {
    start() {
      driver = drive?.(names.map((name) => ({ name, when: jobs[name].when, run: () => run(name) })))
      for (const name of driver === undefined ? names : []) {
        tasks.push(cron.schedule(jobs[name].when, () => run(name), { name, timezone: 'Etc/UTC', noOverlap: true }))
      }
    },
    run,
    async stop() {
      for (const task of tasks) await task.destroy()
      // Many domains with a slow DNS take minutes: those whose turn has not come are left for the next start.
      await Promise.all([driver?.stop(), options.domains.stop()])
      await Promise.all(running)
    },
  }
}

async function expireMessages({ store, clock, isClockSteady, onEvents }: ScheduleOptions): Promise<void> {
  if (!isClockSteady()) return
  let ended: number
  do {
    ended = await store.expireDue(clock.now(), ENDED_AT_ONCE)
    if (ended > 0) onEvents()
  } while (ended === ENDED_AT_ONCE)
}

async function cancelPurged({ store, clock, onEvents }: ScheduleOptions): Promise<void> {
  let ended: number
  do {
    ended = await store.cancelPurged(clock.now(), ENDED_AT_ONCE)
    if (ended > 0) onEvents()
  } while (ended === ENDED_AT_ONCE)
}

async function forgetAnswers({ store, clock }: ScheduleOptions): Promise<void> {
  let forgotten: number
  do {
    forgotten = await store.forgetAnswers(clock.now(), ENDED_AT_ONCE)
  } while (forgotten === ENDED_AT_ONCE)
}

async function forgetReports({ store, clock, unmatchedReportsKept }: ScheduleOptions): Promise<void> {
  await store.forgetUnmatchedReports(clock.now() - unmatchedReportsKept)
}

async function forgetWebhooks({ store, clock, webhooksKept: { succeeded, failed } }: ScheduleOptions): Promise<void> {
  let forgotten: number
  do {
    const now = clock.now()
    forgotten = await store.pruneWebhooks({
      now, succeededBefore: now - succeeded, failedBefore: now - failed, limit: ENDED_AT_ONCE,
    })
  } while (forgotten === ENDED_AT_ONCE)
}

/** Hours by provider are of interest for a while; the sums of an IP for longer (contract.md 9.5). */
const HOURS_BY_PROVIDER_KEPT = 35 * DAY

async function forgetIpHistory({ store, clock, ipHistoryKept }: ScheduleOptions): Promise<void> {
  let forgotten: number
  do {
    const now = clock.now()
    forgotten = await store.forgetIpHistory({
      hoursBefore: now - HOURS_BY_PROVIDER_KEPT, statisticsBefore: now - ipHistoryKept.statistics,
      auditBefore: now - ipHistoryKept.audit, limit: ENDED_AT_ONCE,
    })
  } while (forgotten === ENDED_AT_ONCE)
}

const OVERDUE_AFTER = MINUTE
const STUCK_AFTER = 30 * MINUTE

async function watchQueue({ store, clock, logger }: ScheduleOptions): Promise<void> {
  const now = clock.now()
  const { overdue, stuck } = await store.watchQueue(now - OVERDUE_AFTER, now - STUCK_AFTER)
  if (overdue + stuck > 0) logger.error({ overdue, stuck }, 'messages without a next event')
}

async function recoverLeases(options: ScheduleOptions): Promise<void> {
  const { store, clock, realClock, logger, metrics, onQueued } = options
  const now = clock.now()
  const recovered = await store.recoverLapsedLeases(realClock.now(), now, now + options.uncertainRetry())
  if (recovered === 0) return
  metrics.leasesRecovered.inc(recovered)
  logger.error({ messages: recovered }, 'leases lapsed without an outcome')
  onQueued()
}

async function measureQueue({ store, clock, metrics, waitingByReason }: ScheduleOptions): Promise<void> {
  metrics.queueWaiting.reset()
  for (const [reason, count] of Object.entries(waitingByReason())) metrics.queueWaiting.set({ reason }, count)
  const { waiting, sending } = await store.queueSummary(clock.now())
  metrics.queueMessages.set({ state: 'waiting' }, waiting)
  metrics.queueMessages.set({ state: 'sending' }, sending)
}
