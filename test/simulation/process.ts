/**
 * One simulated process, from its start to its death: the real dispatcher, shaping, egress, webhook engine and upkeep,
 * wired as the appliance wires them, between a simulated store thread and simulated delivery threads.
 */
import { systemClock } from '../../src/base/clock.ts'
import { createClockWatch } from '../../src/base/clock-watch.ts'
import type { Job, JobDriver } from '../../src/operations/drive-jobs.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import type { Logger } from '../../src/base/logger.ts'
import type { Metrics } from '../../src/base/metrics.ts'
import { createLiveConfiguration, type ReplaceableConfiguration } from '../../src/config/live-configuration.ts'
import type { Configuration } from '../../src/config/load-configuration.ts'
import { createDispatcher, type Dispatcher } from '../../src/delivery/dispatcher.ts'
import { createFindRoute } from '../../src/delivery/route/route-message.ts'
import type { RenderedMessage } from '../../src/delivery/session/message-renderer.ts'
import type { DispatchedRow, ToThread } from '../../src/delivery/protocol/try-result.ts'
import { createEgress, type Egress } from '../../src/egress/egress.ts'
import { createShaping } from '../../src/egress/shaping/create-shaping.ts'
import type { Shaping } from '../../src/egress/shaping/shaping.ts'
import type { Warmup } from '../../src/egress/moves/warmup.ts'
import type { GuardedRequest } from '../../src/network/guarded-request.ts'
import type { MailHostsFinder } from '../../src/network/mail-hosts.ts'
import { createSchedule, type JobName } from '../../src/operations/schedule.ts'
import type { Store } from '../../src/store/store.ts'
import { createWebhookEngine } from '../../src/webhooks/webhook-engine.ts'
import { openSimulated, type SimulatedSessions } from './session.ts'
import { MASTER_KEY } from './starting-image.ts'
import { openSimulatedStore, type SimulatedDisk } from './store.ts'
import { createWorker, type SimulatedWorker, type Traffic } from './threads.ts'
import type { Owner, VirtualTime } from './virtual-time.ts'

export interface Outside extends SimulatedSessions {
  time: VirtualTime
  disk: SimulatedDisk
  metrics: Metrics
  mailHosts: MailHostsFinder
  guardedRequest: Pick<GuardedRequest, 'post'>
  threadDelay: () => number
  /** Longest turn of an event loop, in milliseconds. */
  turnTime: number
  storeDelay: () => number
  mayDeliver: () => boolean
  logger: Logger
  onFatal: (reason: Error) => void
  onPost: (message: ToThread) => void
  /** Of the store. */
  onCall: (verb: string, argument: unknown) => void
}

export interface SimulatedProcess {
  owner: Owner
  main: Owner
  store: Store
  dispatcher: Dispatcher
  egress: Egress
  shaping: Shaping
  warmup: Warmup
  live: ReplaceableConfiguration
  epoch: number
  /** Messages between threads, and calls of the store without an answer. */
  traffic: Traffic
  open: { count: number }
  workers: SimulatedWorker[]
  /** Events were written. */
  onEvents(): void
  /** As at SIGTERM. */
  stop(): Promise<void>
}

/** How often upkeep runs, in milliseconds; the others not at all. */
const UPKEEP: Partial<Record<JobName, number>> = {
  'expire-messages': 15_000,
  'cancel-purged': 60_000,
  'recover-leases': 60_000,
  'watch-queue': 60_000,
  'keep-path-states': 20_000,
  'close-warmup-days': 60_000,
  'check-warmup-gates': 300_000,
}
const LOOK_FOR_COLD_EVERY = 10_000
const WARMUP = { curve: null, stage: null, targetDailyVolume: null, restart: false, force: true }
const NO_BYTES = Buffer.alloc(0)

export function render({ messageId }: DispatchedRow): Promise<RenderedMessage> {
  const envelope = { from: '', to: '', envelopeId: messageId, needsUtf8: false, is8Bit: false }
  return Promise.resolve({ envelope, bytes: NO_BYTES })
}

export async function startProcess(
  owner: Owner,
  configuration: Configuration,
  outside: Outside,
): Promise<SimulatedProcess> {
  const { time, disk, metrics, logger, mailHosts } = outside
  const main = time.owner('main', { parent: owner, turnTime: outside.turnTime })
  const traffic: Traffic = { underWay: 0 }
  const open = { count: 0 }
  const store = openSimulatedStore(disk, {
    time,
    main,
    thread: time.owner('store', { parent: owner }),
    delay: outside.storeDelay,
    traffic,
    open,
    onCall: outside.onCall,
  })
  const clock = systemClock
  const live = createLiveConfiguration(configuration)
  const { server } = configuration
  const { epoch } = await store.beginEpoch(clock.now(), clock.now() + server.delivery.uncertain_retry)
  const onSetBack = outside.onFatal
  const watch = createClockWatch({ clock, monotonic: () => performance.now(), logger, onSetBack })
  watch.start()
  const webhooks = createWebhookEngine({
    store,
    clock,
    realClock: clock,
    metrics,
    logger,
    settings: server.webhooks,
    speed: () => 1,
    version: '0',
    keyRing: createKeyRing(MASTER_KEY),
    guardedRequest: outside.guardedRequest as GuardedRequest,
  })
  webhooks.start(epoch)
  const { egress, warmup } = createEgress({
    configuration: live,
    store,
    clock,
    logger,
    lookups: null,
    isClockSteady: watch.isSteady,
    canBind: async (address) => outside.hasAddress(address),
    backlogOf: (pool) => dispatcher.backlogOf(pool),
    onEvents: webhooks.wake,
  })
  const shaping = createShaping({
    clock,
    logger,
    store,
    settings: live.current,
    signals: {
      onBlock: (block) => egress.noteBlock(block),
      onIpSuspension: (ip, until, reason) => void egress.suspend(ip, until, reason, 'shaping').catch(() => {}),
      onIpUnreachable: (ip, reason) => egress.disable(ip, reason),
      onLaneSuspension: () => {},
    },
  })
  const workers: SimulatedWorker[] = []
  const tlsPolicies = {
    stsFor: async () => null,
    mayUse: () => true,
    describe: () => ({ lines: [] }),
    tlsOf: async () => ({ kind: 'opportunistic' as const, policy: { type: 'none' as const, id: '' } }),
  }
  const dispatcher = createDispatcher({
    store,
    clock,
    realClock: clock,
    logger,
    metrics,
    egress,
    shaping,
    epoch,
    configuration: live,
    masterKey: MASTER_KEY,
    trackingUrl: null,
    storeLocation: {
      engine: 'sqlite',
      folder: '.',
      pageCacheBytes: 0,
      walMaxBytes: 0,
      commitLingerMilliseconds: 0,
      commitMostRows: 1,
    },
    findRoute: createFindRoute({
      mailHosts,
      tlsPolicies: tlsPolicies as unknown as Parameters<typeof createFindRoute>[0]['tlsPolicies'],
      settings: live.current,
      clock,
    }),
    tlsMemory: { apply: (_ip, hosts) => hosts, forget: () => {} },
    onConnectionTls: () => {},
    captureAddress: { address: '127.0.0.1', port: 9 },
    mayDeliver: outside.mayDeliver,
    onEvents: webhooks.wake,
    onFatal: outside.onFatal,
    startWorker({ connectionsMax }) {
      const simulated = createWorker({
        time,
        main,
        traffic,
        delay: outside.threadDelay,
        threadId: workers.length + 1,
        onPost: outside.onPost,
        serve: (thread) => ({
          connectionsMax,
          render,
          transcript: () => null,
          readAhead: () => {},
          forget: () => {},
          open: (target) => openSimulated(target, thread, outside),
        }),
      })
      workers.push(simulated)
      return simulated.worker
    },
  })
  /** An operator who begins the warmup of a cold IP; one whose address was missing is cold only later. */
  const beginWarmups = async (): Promise<void> => {
    for (const { address, state } of egress.ips()) {
      if (state === 'cold') await warmup.start(address, WARMUP, 'simulator').catch(() => {})
    }
    setTimeout(() => void beginWarmups(), LOOK_FOR_COLD_EVERY)
  }
  await egress.start()
  await beginWarmups()
  await shaping.start()
  await dispatcher.start()
  const nothing = async (): Promise<void> => {}
  const schedule = createSchedule({
    store,
    clock,
    realClock: clock,
    logger,
    metrics,
    warmup,
    shaping,
    domains: { checkDue: nothing, stop: nothing },
    statistics: { sum: async () => {} },
    messages: { indexSubjects: async () => {} },
    sts: { refresh: nothing },
    tlsReports: { sendDue: nothing },
    certificates: { check: () => {}, issue: nothing },
    health: { runDue: nothing },
    retention: { run: nothing, watchBudget: nothing, stop: () => {} },
    backups: { when: () => null, write: nothing },
    isClockSteady: watch.isSteady,
    uncertainRetry: () => server.delivery.uncertain_retry,
    epoch,
    isFirst: () => true,
    renewLeases: dispatcher.renewLeases,
    onQueued: () => dispatcher.wake(),
    onEvents: webhooks.wake,
    drive: driveUpkeep,
  })
  schedule.start()
  return {
    owner,
    main,
    store,
    dispatcher,
    egress,
    shaping,
    warmup,
    live,
    epoch,
    traffic,
    open,
    workers,
    onEvents: webhooks.wake,
    async stop() {
      await schedule.stop()
      await dispatcher.stop(server.delivery.drain)
      await webhooks.stop()
      watch.stop()
      await shaping.stop()
      await egress.stop()
      await store.close()
    },
  }
}

function driveUpkeep(jobs: readonly Job[]): JobDriver {
  let isStopped = false
  for (const { name, run } of jobs) {
    const every = UPKEEP[name as JobName]
    if (every === undefined) continue
    const next = (): void =>
      void setTimeout(() => {
        if (!isStopped) void run().then(next)
      }, every)
    next()
  }
  return {
    async stop() {
      isStopped = true
    },
  }
}
