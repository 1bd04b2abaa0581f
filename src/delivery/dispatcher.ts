/**
 * Takes due messages from the store, brings each to the delivery thread of its path, and records what became of it.
 *
 *   claim (lease) -> route (DNS, provider) -> choose the egress IP -> wait for room in the path -> thread
 *   result -> judge -> record, or back to the queue without an attempt
 *
 * Promises: a row is claimed only while there is room in the ready window and the store takes outcomes; every claimed
 * row is recorded, given back, or still leased when the process dies. Errors of the store are logged and tried again.
 * Engine.md 2, 3.3, 4.1; the states of a message are in `src/README.md`.
 */
import { MINUTE, SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import { createPollLoop } from '../base/poll-loop.ts'
import type { Configuration } from '../config/load-configuration.ts'
import type { Egress } from '../egress/pool.ts'
import { CAPTURE_POOL } from '../mail/simulator.ts'
import type { MailHostsFinder } from '../network/mail-hosts.ts'
import type { StoreLocation } from '../store/store-location.ts'
import type { Store } from '../store/store.ts'
import type { CaptureAddress } from './capture-route.ts'
import { createDeliveryThreads } from './delivery-threads.ts'
import type { DeliveryThreads } from './delivery-threads.ts'
import { createMessagePlacer } from './place-messages.ts'
import { createOutcomeRecorder } from './outcome-recorder.ts'
import { createPaths } from './paths.ts'
import { threadCount, threadSettings } from './thread-settings.ts'
import { createSettleTries } from './settle-tries.ts'
import type { PlacedRow } from './placed-row.ts'
import type { PathBatch } from './try-result.ts'
import { createWhyWaiting } from './why-waiting.ts'
import type { WaitingMessage, WaitReason } from './why-waiting.ts'

export interface DispatcherOptions {
  store: Store
  clock: Clock
  realClock: Clock
  logger: Logger
  metrics: Metrics
  egress: Egress
  mailHosts: MailHostsFinder
  configuration: Configuration
  /** Of this process: the fence of every claim. */
  epoch: number
  storeLocation: StoreLocation
  masterKey: Buffer
  /** Where mail goes that never leaves the host. */
  captureAddress: CaptureAddress
  /** In place of https and a tracking host in every link that leads back to us; null: those. */
  trackingUrl: string | null
  /** Events were recorded. */
  onEvents: () => void
  /** Delivery can not go on: the process must end. */
  onFatal: (reason: Error) => void
}

export interface Dispatcher {
  start(): Promise<void>
  /** There may be new messages. */
  wake(): void
  /** Claims nothing more, lets what runs finish for so long, and records all of it. */
  stop(drainMilliseconds: number): Promise<void>
  /** What keeps a waiting message back; undefined: nothing that is known here. */
  whyWaiting(message: WaitingMessage): WaitReason | undefined
  /** Resolves when every delivery thread answers. */
  ticks(): Promise<void>
}

/** Rows of one claim: more would make the store's transaction long. */
const MOST_PER_CLAIM = 500
/** With less room than this it waits for more, unless the window is that small: a claim is a transaction. */
const FEWEST_PER_CLAIM = 50
/** Leases are renewed this often (engine.md 3.3). */
const RENEW_EVERY = MINUTE
/** A row that is due and can not be claimed (its lifetime has ended) must not make the loop spin. */
const SHORTEST_PAUSE = SECOND

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { store, clock, realClock, logger, egress, configuration, epoch } = options
  const settings = configuration.server.delivery
  const threadsWanted = threadCount(settings.threads)
  const claimed = new Set<number>()
  let threads: DeliveryThreads | undefined
  let isPumping = false
  let isStopping = false
  /** No thread is left to send anything: the process is about to end. */
  let isBroken = false
  let cancelRenewal = (): void => {}

  const recorder = createOutcomeRecorder({
    store, clock, logger,
    onStored(keys, hasEvents) {
      for (const key of keys) claimed.delete(key)
      if (hasEvents) options.onEvents()
      loop.wake()
    },
  })
  const paths = createPaths<PlacedRow>({ clock, threads: threadsWanted })
  const tries = createSettleTries({ ...options, recorder, paths, onRoom: schedulePump })
  const placer = createMessagePlacer({
    ...options,
    recorder,
    onDnsAnswer: tries.settleDns,
    onPlaced(rows) {
      for (const row of rows) paths.add(row)
      schedulePump()
    },
  })
  const loop = createPollLoop({
    clock, round,
    onError: (thrown) => logger.error({ error: errorText(thrown) }, 'claiming failed'),
  })

  async function round(): Promise<number | null> {
    if (isBroken) return null
    const pools = [...egress.sendingPools(), CAPTURE_POOL]
    const room = settings.ready_window - claimed.size
    // What frees room, or brings the store back, wakes the loop.
    if (recorder.isBlocked() || room < Math.min(FEWEST_PER_CLAIM, settings.ready_window)) return null
    const limit = Math.min(room, MOST_PER_CLAIM)
    const now = clock.now()
    const due = await store.claimDue({ now, epoch, leaseUntil: realClock.now() + settings.lease, pools, limit })
    // A lease can lapse while its row is still in hand (the clock jumped): it must not be sent a second time beside.
    const messages = due.filter(({ key }) => !claimed.has(key))
    for (const message of messages) claimed.add(message.key)
    if (isStopping) {
      for (const message of messages) recorder.giveBack(message.key, clock.now())
      return null
    }
    placer.place(messages)
    if (due.length === limit) return clock.now()
    const earliest = await store.earliestDueAt(pools)
    return earliest === null ? null : Math.max(earliest, now + (due.length === 0 ? SHORTEST_PAUSE : 0))
  }

  /** Once per turn of the event loop, so that rows travel in batches. */
  function schedulePump(): void {
    if (isPumping) return
    isPumping = true
    setImmediate(pump)
  }

  function pump(): void {
    isPumping = false
    if (isStopping || isBroken) return tries.giveBackWaiting()
    const { ready, held } = paths.takeReady()
    tries.settleHeld(held)
    const batches = new Map<number, PathBatch[]>()
    for (const { thread, rows } of ready) {
      tries.begin(rows, thread)
      batches.set(thread, [...(batches.get(thread) ?? []), ...toBatches(rows)])
    }
    for (const [thread, ofThread] of batches) threads?.dispatch(thread, ofThread)
  }

  function renewLeases(): void {
    cancelRenewal = realClock.after(RENEW_EVERY, () => {
      store.renewLeases(epoch, realClock.now() + settings.lease).catch((thrown: unknown) => {
        logger.error({ error: errorText(thrown) }, 'leases could not be renewed')
      })
      renewLeases()
    })
  }

  return {
    async start() {
      recorder.begin(epoch)
      threads = createDeliveryThreads({
        count: threadsWanted, clock, logger,
        settings: threadSettings(configuration, options, threadsWanted),
        onResults: tries.settle,
        onDeath: tries.giveBackThread,
        onFatal(reason) {
          isBroken = true
          options.onFatal(reason)
        },
      })
      renewLeases()
      loop.start()
      await threads.tick()
    },
    wake: loop.wake,
    async stop(drainMilliseconds) {
      isStopping = true
      await loop.stop()
      tries.giveBackWaiting()
      await Promise.all([placer.settled(), threads?.drain(drainMilliseconds)])
      tries.giveBackWaiting()
      tries.endUnanswered()
      await recorder.finish()
      cancelRenewal()
      await threads?.end()
    },
    whyWaiting: createWhyWaiting({ egress, paths, placer, isFull: () => claimed.size >= settings.ready_window }),
    ticks: async () => threads?.tick(),
  }
}

/** One batch for each site among the rows of a path. */
function toBatches(rows: readonly PlacedRow[]): PathBatch[] {
  const batches = new Map<string, PathBatch>()
  for (const { plan, route, message, returnPath } of rows) {
    const site = { key: route.siteKey, hosts: route.hosts }
    const batch: PathBatch = batches.get(site.key) ?? { path: plan, site, rows: [] }
    batches.set(site.key, batch)
    batch.rows.push({
      key: message.key, messageId: message.id, contentId: message.contentId, domain: message.domain, returnPath,
      expiresAt: message.expiresAt, isCaptured: message.isCaptured,
    })
  }
  return [...batches.values()]
}
