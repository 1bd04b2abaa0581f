/**
 * Gives waiting mail its route: looks up the recipient domains that the queue has no route for, and writes the answer
 * to their rows.
 *
 * | the DNS says | then                                                                                        |
 * | ------------ | ------------------------------------------------------------------------------------------- |
 * | hosts        | `assignRoutes`: all waiting rows of the domain move to the queue keys of the route          |
 * | anything else | `claimUnrouted`: the due rows are claimed and judged, the domain is looked up again later  |
 *
 * Domains are looked up side by side, in turns the one that is due longest and the one that came last: neither a slow
 * one nor thousands before it hold up another. What the store refuses is tried again. Domains come from accepts, from
 * judged rows that come back, and from the store itself at the start and with each walk over its keys: none is lost.
 * delivery/README.md "From the table to the wire", network/README.md "Mail hosts".
 */
import { SECOND } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { QueueKeyState, RouteAssignment } from '../../store/records/queue-records.ts'
import type { ClaimedMessage } from '../../store/records/records.ts'
import type { Store } from '../../store/store.ts'
import type { KnownRoutes } from './known-routes.ts'
import type { NoHosts } from './route-message.ts'
import { createTimeHeap } from '../../base/time-heap.ts'

export interface RouteDomains {
  start(): void
  /** These domains have rows without a route, the first of them due at `dueAt`. */
  note(domains: readonly string[], dueAt: number): void
  /** A domain has another route than its rows: later mail is queued under the new one. */
  assign(assignment: RouteAssignment): void
  /** Domains that nobody told of. */
  refill(): Promise<void>
  /** Claiming is possible again. */
  wake(): void
  /** Nothing new starts; resolves when what runs has ended. */
  stop(): Promise<void>
}

export interface RouteDomainsOptions {
  store: Pick<Store, 'assignRoutes' | 'claimUnrouted' | 'unroutedDomains'>
  clock: Clock
  logger: Logger
  routes: Pick<KnownRoutes, 'fresh' | 'find'>
  /** What every claim shows. */
  lease: () => { epoch: number; leaseUntil: number }
  mayClaim: () => boolean
  /** Rows that were claimed here. */
  hold: (messages: readonly ClaimedMessage[]) => void
  onAssigned: (keys: QueueKeyState[]) => void
  /** Resolves when the outcomes are stored. */
  onDnsAnswer: (answer: NoHosts, messages: ClaimedMessage[]) => Promise<void>
}

/**
 * Looked up at once; the other half of what the lookups allow is for mail that has a route (network/README.md "Cache
 * and resolver").
 */
const MOST_AT_ONCE = 50
/** Domains in memory; more are fetched from the store when none of these is due. */
const MOST_DOMAINS = 20_000
const PER_REFILL = 1_000
/** Domains of which it is remembered in what order they came. */
const MOST_NEWEST = 1_000
const PER_CLAIM = 200
const AGAIN_AFTER = SECOND

export function createRouteDomains(options: RouteDomainsOptions): RouteDomains {
  const { store, clock, logger, routes } = options
  /** When each is looked up. */
  const domains = createTimeHeap<string>()
  /** Those that came due, the last one at the end. */
  let newest: string[] = []
  let isNewestNext = false
  const underWay = new Map<string, Promise<void>>()
  let assignments: RouteAssignment[] = []
  let assigning: Promise<void> | undefined
  let isIncomplete = false
  let isStarted = false
  let isStopped = false
  let cancelTimer = (): void => {}

  function note(names: readonly string[], at: number): void {
    const isDue = at <= clock.now()
    for (const domain of names) {
      const known = domains.timeOf(domain)
      // Those that are due later never keep out one that is due.
      const hasRoom = known !== undefined || domains.size() < MOST_DOMAINS + (isDue ? PER_REFILL : 0)
      if (!hasRoom) isIncomplete ||= isDue
      else if (at < (known ?? Infinity)) {
        domains.set(domain, at)
        if (isDue) newest.push(domain)
      }
    }
    if (newest.length > 2 * MOST_NEWEST) newest = newest.slice(-MOST_NEWEST)
    pump()
  }

  function pump(): void {
    if (!isStarted || isStopped) return
    const now = clock.now()
    for (let next = domains.peek(); next !== undefined && next.at <= now; next = domains.peek()) {
      if (underWay.size >= MOST_AT_ONCE || !options.mayClaim()) return
      isNewestNext = !isNewestNext
      const domain = (isNewestNext ? takeNewest(now) : undefined) ?? next.item
      // Rows that come while it is looked up: it is due again right after.
      if (underWay.has(domain)) domains.set(domain, now + AGAIN_AFTER)
      else begin(domain)
    }
    setTimer()
    // Nothing that is known is due: there may be others.
    if (isIncomplete && underWay.size === 0) void refill()
  }

  /** The one that came last of those that are due still; undefined: nobody knows. */
  function takeNewest(now: number): string | undefined {
    for (let domain = newest.pop(); domain !== undefined; domain = newest.pop()) {
      if ((domains.timeOf(domain) ?? Infinity) <= now) return domain
    }
    return undefined
  }

  function setTimer(): void {
    cancelTimer()
    const next = domains.peek()
    if (next !== undefined) cancelTimer = clock.after(Math.max(0, next.at - clock.now()), pump)
  }

  function begin(domain: string): void {
    domains.remove(domain)
    const running = resolve(domain)
      .catch((thrown: unknown) => {
        logger.error({ domain, error: errorText(thrown) }, 'a recipient domain could not be routed')
        note([domain], clock.now() + AGAIN_AFTER)
      })
      .finally(() => {
        underWay.delete(domain)
        pump()
      })
    underWay.set(domain, running)
  }

  async function resolve(domain: string): Promise<void> {
    const route = routes.fresh(domain) ?? (await routes.find(domain))
    if (isStopped) return
    if (route.kind === 'hosts') return assign({ domain, route: route.provider.route, isp: route.provider.isp })
    let claimed: ClaimedMessage[]
    do {
      if (!options.mayClaim()) return note([domain], clock.now() + AGAIN_AFTER)
      claimed = await store.claimUnrouted({ domain, now: clock.now(), ...options.lease(), limit: PER_CLAIM })
      options.hold(claimed)
      await options.onDnsAnswer(route, claimed)
    } while (claimed.length === PER_CLAIM && !isStopped)
  }

  /** All that comes in one turn of the event loop, and while the last ones are written, goes together. */
  function assign(assignment: RouteAssignment): Promise<void> {
    assignments.push(assignment)
    assigning ??= writeAssignments()
    return assigning
  }

  async function writeAssignments(): Promise<void> {
    await Promise.resolve()
    while (assignments.length > 0) {
      const batch = assignments
      assignments = []
      try {
        options.onAssigned(await store.assignRoutes(batch))
      } catch (thrown) {
        logger.error({ error: errorText(thrown), domains: batch.length }, 'routes could not be stored')
        note(
          batch.map(({ domain }) => domain),
          clock.now() + AGAIN_AFTER,
        )
      }
    }
    assigning = undefined
  }

  async function refill(): Promise<void> {
    isIncomplete = false
    try {
      const found = await store.unroutedDomains(PER_REFILL)
      // The earliest come first: when one of these is not due, none that is has been left out.
      isIncomplete = found.length === PER_REFILL && found.every(({ earliestAt }) => earliestAt <= clock.now())
      for (const { domain, earliestAt } of found) {
        if (!underWay.has(domain)) note([domain], earliestAt)
      }
    } catch (thrown) {
      logger.error({ error: errorText(thrown) }, 'recipient domains without a route could not be read')
    }
  }

  return {
    start() {
      isStarted = true
      pump()
    },
    note,
    assign: (assignment) => void assign(assignment),
    refill,
    wake: pump,
    async stop() {
      isStopped = true
      cancelTimer()
      await Promise.all(underWay.values())
      await assigning
    },
  }
}
