/**
 * What the dispatcher is given, and what it remembers with it: the queue's directory, the ready window, routes, paths.
 * Nothing here starts anything or waits: these parts are asked, and told what happened. Made once, in order.
 */
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { LiveConfiguration } from '../config/live-configuration.ts'
import type { Egress } from '../egress/egress.ts'
import type { Gate, Lane, Shaping, Tokens } from '../egress/shaping/shaping.ts'
import { CAPTURE_POOL } from '../mail/simulator.ts'
import type { ClaimedMessage } from '../store/records/claim-records.ts'
import { UNROUTED, type QueueKeyState } from '../store/records/queue-records.ts'
import type { StoreLocation } from '../store/store-location.ts'
import type { Store } from '../store/store.ts'
import { createFairOrder } from './claim/fair-order.ts'
import { createQueueDirectory } from './claim/queue-directory.ts'
import type { StartWorker } from './delivery-threads.ts'
import { createChoosePath } from './place/choose-path.ts'
import { CAPTURE_GATE, createCaptureRoute, createPathFacts, type PathFacts } from './place/path-facts.ts'
import { createPaths } from './place/paths.ts'
import type { PlacedRow } from './place/place-messages.ts'
import { createReadyWindow } from './place/ready-window.ts'
import type { MailHost, ThreadConnectionNote } from './protocol/try-result.ts'
import type { RouteDomains } from './route/route-domains.ts'
import { createKnownRoutes, type FindRoute } from './route/route-message.ts'
import { createClaimHistory } from './settle/claim-history.ts'
import type { StoredRow } from './settle/outcome-recorder.ts'
import { threadCount } from './thread-settings.ts'

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
  tlsMemory: { apply(ip: string, hosts: MailHost[]): MailHost[]; forget(ip: string, host: string): void }
  onConnectionTls: (ip: string, note: ThreadConnectionNote) => void
  configuration: LiveConfiguration
  /** Of this process: with the claim, the fence of every row. */
  epoch: number
  storeLocation: StoreLocation
  masterKey: Buffer
  startWorker: StartWorker
  captureAddress: Parameters<typeof createCaptureRoute>[0]
  /** Stands for https and the tracking host in every link that leads back to us; null: those themselves. */
  trackingUrl: string | null
  /** False: nothing new starts, since its outcome could not be recorded. `resume` says when that is over. */
  mayDeliver?: () => boolean
  onEvents: () => void
  /** Others claim from the same queue: what comes there is found by walks. Left out: nobody does. */
  hasOthers?: () => boolean
  /** Delivery cannot go on: the process must end. */
  onFatal: (reason: Error) => void
}

export type DispatcherParts = ReturnType<typeof createDispatcherParts>

export function createDispatcherParts(options: DispatcherOptions) {
  const { clock, realClock, egress, shaping, epoch, configuration: live } = options
  const configuration = live.current
  const delivery = () => configuration().server.delivery
  const gateOf = ({ shaped }: PathFacts, lane: Lane | null = null): Gate =>
    shaped === null ? CAPTURE_GATE : shaping.gate(shaped, lane)
  const count = threadCount(delivery().threads)
  const order = createFairOrder()
  const window = createReadyWindow(() => delivery().ready_window)
  const history = createClaimHistory(clock)
  const pathFacts = createPathFacts(configuration)
  const capture = createCaptureRoute(options.captureAddress, configuration)
  const takeTokens = ({ shaped }: PathFacts, wanted: number): Tokens =>
    shaped === null ? { granted: wanted, nextAt: null } : shaping.take(shaped, wanted)
  const paths = createPaths<PlacedRow>({ clock, threads: count, gateOf, takeTokens })

  return {
    ...options,
    hasOthers: options.hasOthers ?? ((): boolean => false),
    configuration,
    live,
    threadCount: count,
    order,
    directory: createQueueDirectory({ clock, order }),
    window,
    history,
    routes: createKnownRoutes({ findRoute: options.findRoute, configuration, clock }),
    pathFacts,
    capture,
    gateOf,
    paths,
    choosePath: createChoosePath({ clock, configuration, egress, gateOf, pathFacts, paths, window, capture }),
    readyWindow: () => delivery().ready_window,
    uncertainRetry: () => delivery().uncertain_retry,
    /** What every claim shows. */
    lease: () => ({ epoch, leaseUntil: realClock.now() + delivery().lease }),
    /** These rows are ours from now on. */
    hold(messages: readonly ClaimedMessage[]) {
      window.hold(messages)
      for (const message of messages) history.note('claimed', message)
    },
  }
}

/** Wake-ups go against the road, and carry no data. */
export interface WakeUps {
  claims(): void
  paths(): void
  /** The queue changed, and nobody knows where. */
  walk(): void
  domains: Pick<RouteDomains, 'note' | 'wake'>
}

/**
 * What follows when rows change hands: the directory, the window and the paths are told, and whoever has work by it is
 * woken. Each event is told once, by the part that caused it. Never throws.
 */
export type RowEvents = ReturnType<typeof createRowEvents>

export function createRowEvents(parts: DispatcherParts, wake: WakeUps) {
  const { directory, egress, history, paths, window } = parts
  return {
    placed(rows: readonly PlacedRow[]): void {
      for (const row of rows) {
        paths.add(row)
        history.note('placed', row.message, row.facts.key)
      }
      wake.paths()
    },
    /** They have left their threads: their paths take others now. */
    left(rows: readonly PlacedRow[]): void {
      for (const row of rows) {
        window.takeBack(row.message)
        paths.settle(row)
      }
      for (const route of new Set(rows.map(({ facts }) => facts.route))) directory.openRoute(route)
      wake.paths()
      wake.claims()
    },
    /** The store has taken their outcome or their return. */
    stored(rows: readonly StoredRow[], hasEvents: boolean): void {
      window.release(rows.map(({ message }) => message.claim))
      for (const { message } of rows) history.note('stored', message)
      const pools = new Set([...egress.poolNames(), CAPTURE_POOL])
      // The pool is gone: its mail has moved to another one while it was under way.
      if (rows.some(({ message }) => !pools.has(message.pool))) wake.walk()
      for (const { message, dueAt, isRetry, route, waitingFor } of rows) {
        if (dueAt === null) continue
        const { pool, domain, stream, recipientDomain } = message
        directory.noteRow({ pool, route, domain, stream, isRetry }, dueAt, waitingFor)
        if (route === UNROUTED) wake.domains.note([recipientDomain], dueAt)
      }
      for (const { message } of rows) directory.openDomain(message)
      if (hasEvents) parts.onEvents()
      wake.claims()
      wake.domains.wake()
    },
    /** Waiting rows have got a route: they stand under these keys now. */
    routed(keys: readonly QueueKeyState[]): void {
      directory.note(keys)
      for (const { waiting, ...key } of keys) directory.noteGone({ ...key, route: UNROUTED }, waiting)
      wake.claims()
    },
    unroutedClaimed(messages: readonly ClaimedMessage[]): void {
      for (const { pool, domain, stream, attempts } of messages) {
        directory.noteGone({ pool, route: UNROUTED, domain, stream, isRetry: attempts > 0 }, 1)
      }
    },
  }
}
