/**
 * Takes due messages from the store, brings each to the delivery thread of its path, and records what became of it.
 *
 *   directory (which keys are due) -> claim round (what can go) -> claim (lease) -> place (route, IP, allowance)
 *   -> wait for room in the path -> thread;  result -> judge -> record, or back to the queue without an attempt
 *
 * Work starts by events alone: an accept, a time, freed room, an IP or path that opens, a reload, an operator; a walk
 * over the store's keys is the net below, and a search for rows in nobody's hand (`orphans.ts`) the one below that.
 * Promises: a row is claimed only while it can go, there is room in the ready window, and the store takes outcomes;
 * every claimed row is recorded, given back, or still leased when the process dies. Errors of the store are logged and
 * tried again. src/README.md "The road of one email", store/README.md "Leases and claims", delivery/README.md "From the
 * table to the wire"; the states of a message are in `src/README.md`, what may overtake what in `README.md` beside this
 * file.
 */
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import { createPollLoop } from '../base/poll-loop.ts'
import type { LiveConfiguration } from '../config/live-configuration.ts'
import type { Egress } from '../egress/egress.ts'
import type { Gate, Lane, Shaping } from '../egress/shaping/shaping.ts'
import { CAPTURE_POOL } from '../mail/simulator.ts'
import type { WaitReason } from '../mail/waiting-mail.ts'
import type { QueuedRows } from '../store/records/queue-records.ts'
import { UNROUTED } from '../store/records/queue-records.ts'
import type { ClaimedMessage } from '../store/records/records.ts'
import type { StoreLocation } from '../store/store-location.ts'
import type { Store } from '../store/store.ts'
import { CAPTURE_GATE, createCaptureRoute } from './place/capture-route.ts'
import type { CaptureAddress } from './place/capture-route.ts'
import { createChoosePath } from './place/choose-path.ts'
import { createConnectionCount } from './connection-count.ts'
import { createClaimKeys } from './claim/claim-keys.ts'
import { createClaimRound } from './claim/claim-round.ts'
import { createClaimHistory } from './settle/claim-history.ts'
import { createDeliveryThreads } from './delivery-threads.ts'
import type { DeliveryThreads, StartWorker } from './delivery-threads.ts'
import { createDotMarks } from './settle/dot-marks.ts'
import { createHolders } from './holders.ts'
import type { Holders } from './holders.ts'
import { createFairOrder } from './claim/fair-order.ts'
import { createKnownRoutes } from './route/known-routes.ts'
import { createLookAgain } from './claim/look-again.ts'
import { createLeaseRenewal } from './lease-renewal.ts'
import { createOrphans } from './orphans.ts'
import { createOutcomeRecorder } from './settle/outcome-recorder.ts'
import type { StoredRow } from './settle/outcome-recorder.ts'
import { createPathFacts } from './place/path-facts.ts'
import type { PathFacts } from './place/path-facts.ts'
import { createPathPump } from './path-pump.ts'
import { createPaths } from './place/paths.ts'
import { createMessagePlacer } from './place/place-messages.ts'
import type { PlacedRow } from './place/placed-row.ts'
import { createQueueDirectory } from './claim/queue-directory.ts'
import { createQueueFigures } from './claim/queue-figures.ts'
import type { QueueFigures } from './claim/queue-figures.ts'
import { createQueueWalk } from './claim/queue-walk.ts'
import { createReadyWindow } from './place/ready-window.ts'
import { createRouteDomains } from './route/route-domains.ts'
import type { FindRoute } from './route/route-message.ts'
import { createSettleTries } from './settle/settle-tries.ts'
import { threadCount, threadSettings } from './thread-settings.ts'
import type { MailHost, ThreadConnectionNote } from './protocol/try-result.ts'
import { createWhyWaiting } from './claim/why-waiting.ts'
import type { WaitingMessage } from './claim/why-waiting.ts'
import { createWhereIs } from './where-is.ts'
import type { WhereIs } from './where-is.ts'

export interface DispatcherOptions {
  store: Store
  clock: Clock
  realClock: Clock
  logger: Logger
  metrics: Metrics
  egress: Egress
  shaping: Shaping
  findRoute: FindRoute
  /** Leaves out TLS to hosts where it failed before (delivery/README.md "TLS"). */
  tlsMemory: { apply(ip: string, hosts: MailHost[]): MailHost[] }
  /** What a connection of an egress IP says about TLS. */
  onConnectionTls: (ip: string, note: ThreadConnectionNote) => void
  configuration: LiveConfiguration
  /** Of this process: with the claim, the fence of every row. */
  epoch: number
  storeLocation: StoreLocation
  masterKey: Buffer
  /** Of a delivery thread. */
  startWorker: StartWorker
  /** Where mail goes that never leaves the host. */
  captureAddress: CaptureAddress
  /** In place of https and a tracking host in every link that leads back to us; null: those. */
  trackingUrl: string | null
  /** False: nothing new starts, since its outcome could not be recorded; `wake` when that is over. */
  mayDeliver?: () => boolean
  /** Events were recorded. */
  onEvents: () => void
  /** Delivery can not go on: the process must end. */
  onFatal: (reason: Error) => void
}

export interface Dispatcher extends QueueFigures {
  start(): Promise<void>
  /** These rows came into the queue, or are due at another time. */
  noteQueued(queued: QueuedRows): void
  /** Delivery may go on. */
  resume(): void
  /** The queue changed, and nobody knows where: its keys are read again. */
  wake(): void
  /** Claims nothing more, lets what runs finish as `DeliveryThreads.drain` does, and records all of it. */
  stop(drainMilliseconds: number, longestMilliseconds?: number): Promise<void>
  /** What keeps a waiting message back; undefined: nothing that is known here. */
  whyWaiting(message: WaitingMessage): WaitReason | undefined
  /** Who has which claimed row. */
  holders: Holders
  /** Where a claimed message is; undefined: in nobody's hand. Never rejects. */
  whereIs: WhereIs
  /** Resolves when every delivery thread answers. */
  ticks(): Promise<void>
}

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { store, clock, realClock, logger, egress, shaping, configuration, epoch } = options
  const delivery = (): ReturnType<typeof configuration.current>['server']['delivery'] =>
    configuration.current().server.delivery
  const threadsWanted = threadCount(delivery().threads)
  let threads: DeliveryThreads | undefined
  let isStopping = false
  /** No thread is left to send anything: the process is about to end. */
  let isBroken = false
  let tellStopping = (): void => {}
  const stopping = new Promise<void>((resolve) => {
    tellStopping = resolve
  })

  const gateOf = ({ shaped }: PathFacts, lane: Lane | null = null): Gate =>
    shaped === null ? CAPTURE_GATE : shaping.gate(shaped, lane)
  const lease = (): { epoch: number; leaseUntil: number } => ({ epoch, leaseUntil: realClock.now() + delivery().lease })
  const mayClaim = (): boolean =>
    !isStopping && !isBroken && !recorder.isBlocked() && !marks.isBlocked() && (options.mayDeliver?.() ?? true)

  const connectionCount = createConnectionCount(options.metrics)
  const order = createFairOrder()
  const directory = createQueueDirectory({ clock, order })
  const window = createReadyWindow(() => delivery().ready_window)
  const history = createClaimHistory(clock)
  const hold = (messages: readonly ClaimedMessage[]): void => {
    window.hold(messages)
    for (const message of messages) history.note('claimed', message)
  }
  const routes = createKnownRoutes({ findRoute: options.findRoute, configuration: configuration.current, clock })
  const pathFacts = createPathFacts(configuration.current)
  const capture = createCaptureRoute(options.captureAddress, configuration.current)
  const paths = createPaths<PlacedRow>({
    clock,
    threads: threadsWanted,
    gateOf,
    takeTokens: ({ shaped }, count) =>
      shaped === null ? { granted: count, nextAt: null } : shaping.take(shaped, count),
  })
  const recorder = createOutcomeRecorder({ store, clock, logger, history, onStored })
  const marks = createDotMarks({
    store,
    clock,
    logger,
    epoch,
    behindOutcomes: recorder.behind,
    keyInThread: (claim) => tries.keyInThread(claim),
    answer: (thread, id, stale) => threads?.marked(thread, id, stale),
    onUnblocked: resume,
  })
  const tries = createSettleTries({ ...options, recorder, marks, history, onLeft })
  const pump = createPathPump({
    clock,
    paths,
    tries,
    window,
    history,
    threads: () => (isStopping || isBroken ? undefined : threads),
    onRoom: () => loop.wake(),
  })
  const choosePath = createChoosePath({
    clock,
    configuration: configuration.current,
    egress,
    gateOf,
    pathFacts,
    paths,
    window,
    capture,
  })
  const domains = createRouteDomains({
    store,
    clock,
    logger,
    routes,
    lease,
    mayClaim,
    hold,
    onAssigned(keys) {
      directory.note(keys)
      for (const { waiting, ...key } of keys) directory.noteGone({ ...key, route: UNROUTED }, waiting)
      loop.wake()
    },
    async onDnsAnswer(answer, messages) {
      noteUnroutedGone(messages)
      tries.settleDns(answer, messages)
      await Promise.race([recorder.stored(), stopping])
    },
  })
  const placer = createMessagePlacer({
    store,
    clock,
    logger,
    egress,
    routes,
    capture,
    choosePath,
    recorder,
    configuration: configuration.current,
    tlsMemory: options.tlsMemory,
    onDnsAnswer: tries.settleDns,
    onRouteChanged: domains.assign,
    onPlaced(rows) {
      for (const row of rows) {
        paths.add(row)
        history.note('placed', row.message, row.facts.key)
      }
      pump.schedule()
    },
    // Room that was kept for them is known to be free or taken now.
    onDone: () => loop.wake(),
  })
  const claims = createClaimRound({
    directory,
    order,
    window,
    egress,
    gateOf,
    routes,
    paths,
    pathFacts,
    capture,
    placing: placer.placing,
    readyWindow: () => delivery().ready_window,
  })
  const claim = createClaimKeys({ store, clock, directory, hold, lease })
  const loop = createPollLoop({
    clock,
    round,
    onError: (thrown) => logger.error({ error: errorText(thrown) }, 'claiming failed'),
  })
  const walk = createQueueWalk({
    store,
    clock,
    logger,
    directory,
    onPage: () => loop.wake(),
    onWalked: () => void domains.refill(),
  })
  const lookAgain = createLookAgain(directory, () => {
    paths.touchAll()
    pump.schedule()
    loop.wake()
  })
  const holders = createHolders({ placer, paths, tries, recorder })
  const orphans = createOrphans({
    store,
    clock,
    realClock,
    logger,
    epoch,
    holders,
    window,
    tries,
    history,
    metrics: options.metrics,
    threadCount: threadsWanted,
    threads: () => threads,
    uncertainRetry: () => delivery().uncertain_retry,
    onFreed: walk.walkSoon,
  })
  const leases = createLeaseRenewal({ store, realClock, logger, lease, holders, orphans })
  const figures = createQueueFigures({ directory, routes, egress, clock })
  const whyWaiting = createWhyWaiting({
    clock,
    shaping,
    routes,
    capture,
    choosePath,
    gateOf,
    paths,
    isFull: () => window.room() === 0,
  })

  async function round(): Promise<number | null> {
    // What brings the store back, or frees room, wakes the loop.
    if (!mayClaim() || window.room() === 0) return null
    directory.advance()
    const asks = claims.asks()
    if (asks.length === 0) {
      walk.look()
      return directory.nextAt()
    }
    const messages = await claim(asks)
    if (isStopping) for (const message of messages) recorder.giveBack(message, { nextAt: clock.now() })
    else placer.place(messages)
    return clock.now()
  }

  function onStored(rows: StoredRow[], hasEvents: boolean): void {
    window.release(rows.map(({ message }) => message.claim))
    for (const { message } of rows) history.note('stored', message)
    const pools = new Set([...egress.poolNames(), CAPTURE_POOL])
    // Mail of a pool that is gone moves, also while it is under way.
    if (rows.some(({ message }) => !pools.has(message.pool))) walk.walkSoon()
    for (const { message, dueAt, isRetry, route, waitingFor } of rows) {
      if (dueAt === null) continue
      const { pool, domain, stream, recipientDomain } = message
      directory.noteRow({ pool, route, domain, stream, isRetry }, dueAt, waitingFor)
      if (route === UNROUTED) domains.note([recipientDomain], dueAt)
    }
    if (hasEvents) options.onEvents()
    loop.wake()
    domains.wake()
  }

  /** Their paths take others now. */
  function onLeft(rows: readonly PlacedRow[]): void {
    for (const row of rows) {
      window.takeBack(row.message)
      paths.settle(row)
    }
    for (const route of new Set(rows.map(({ facts }) => facts.route))) directory.openRoute(route)
    pump.schedule()
    loop.wake()
  }

  function noteUnroutedGone(messages: readonly ClaimedMessage[]): void {
    for (const { pool, domain, stream, attempts } of messages) {
      directory.noteGone({ pool, route: UNROUTED, domain, stream, isRetry: attempts > 0 }, 1)
    }
  }

  function noteConnections(notes: readonly ThreadConnectionNote[], thread: number): void {
    for (const [pathKey, ofPath] of Map.groupBy(notes, (note) => note.pathKey)) {
      const facts = paths.factsOf(pathKey)
      if (facts === undefined || facts.shaped === null) continue
      const { ip } = facts.shaped
      connectionCount.note(thread, facts, ofPath)
      for (const note of ofPath) if (note.tls !== null) options.onConnectionTls(ip, note)
      shaping.noteConnections(
        facts.shaped,
        ofPath.map(({ note }) => note),
      )
      paths.touch(facts)
    }
    pump.schedule()
  }

  /** They ended with their thread, which says nothing of their hosts. */
  function endConnections(thread: number): void {
    for (const { facts, open } of connectionCount.forgetThread(thread)) {
      if (facts.shaped === null) continue
      shaping.noteConnections(
        facts.shaped,
        Array.from({ length: open }, () => ({ kind: 'ended-well', delivered: 0 })),
      )
      paths.touch(facts)
    }
  }

  /** Placed rows were placed by what is no longer so: those that have not gone to a thread are placed anew. */
  function placeAnew(): void {
    pathFacts.forget()
    pump.giveBackWaiting()
    resume()
  }

  function resume(): void {
    lookAgain.everything()
    domains.wake()
  }

  function listen(): void {
    egress.onChange(placeAnew)
    shaping.onOpen(lookAgain.pathsOpened)
    configuration.onChange(() => {
      routes.forget()
      placeAnew()
    })
  }

  return {
    ...figures,
    whyWaiting,
    holders,
    whereIs: createWhereIs({ clock, holders, threads: () => threads }),
    noteQueued({ keys, unroutedDomains }) {
      directory.note(keys)
      // Also what is to be sent much later: its provider is known then, and it has its place.
      if (unroutedDomains.length > 0) domains.note(unroutedDomains, clock.now())
      loop.wake()
    },
    resume,
    wake() {
      walk.walkSoon()
      loop.wake()
    },
    async start() {
      recorder.begin(epoch)
      listen()
      threads = createDeliveryThreads({
        count: threadsWanted,
        clock,
        logger,
        startWorker: options.startWorker,
        settings: threadSettings(configuration.current(), options, threadsWanted),
        onResults: tries.settle,
        onMark: marks.ask,
        onConnections: noteConnections,
        onStart: (thread, worker) => options.metrics.watchThread(`delivery-${thread}`, worker),
        onDeath(thread) {
          endConnections(thread)
          tries.giveBackThread(thread)
        },
        onFatal(reason) {
          isBroken = true
          options.onFatal(reason)
        },
      })
      leases.start()
      loop.start()
      domains.start()
      await Promise.all([walk.start(), threads.tick()])
    },
    async stop(drainMilliseconds, longestMilliseconds) {
      isStopping = true
      tellStopping()
      lookAgain.stop()
      orphans.stop()
      await Promise.all([loop.stop(), walk.stop(), domains.stop()])
      pump.giveBackWaiting()
      await Promise.all([placer.settled(), threads?.drain(drainMilliseconds, longestMilliseconds)])
      pump.giveBackWaiting()
      tries.endUnanswered()
      marks.stop()
      await recorder.finish()
      leases.stop()
      pump.stop()
      await threads?.end()
    },
    ticks: async () => threads?.tick(),
  }
}
