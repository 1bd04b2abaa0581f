/**
 * Gives waiting mail its route: looks up the recipient domains that the queue has no route for, side by side. Hosts:
 * `assignRoutes` moves all waiting rows of the domain to the queue keys of the route. Anything else: `claimUnrouted`
 * takes the due rows, they are judged, and the domain is looked up again later. Domains come from accepts, from judged
 * rows that come back, and from the store itself at the start and with each walk over its keys: none is lost.
 * delivery/README.md "From the table to the wire".
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import { createTimeHeap } from '../../base/time-heap.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { QueueKeyState, RouteAssignment } from '../../store/records/queue-records.ts'
import type { Store } from '../../store/store.ts'
import type { KnownRoutes, NoHosts } from './route-message.ts'

/** Domains in memory; more are fetched from the store when none of these is due. */
const MOST_DOMAINS = 20_000
/** Domains of which it is remembered in what order they came. */
const MOST_NEWEST = 1_000

export type RouteDomains = ReturnType<typeof createRouteDomains>

interface RouteDomainsOptions {
  store: Pick<Store, 'assignRoutes' | 'claimUnrouted' | 'unroutedDomains'>
  clock: Clock
  logger: Logger
  routes: Pick<KnownRoutes, 'fresh' | 'find'>
  lease: () => { epoch: number; leaseUntil: number }
  mayClaim: () => boolean
  hold: (messages: readonly ClaimedMessage[]) => void
  onEvents: () => void
  onAssigned: (keys: QueueKeyState[]) => void
  /** Resolves when the outcomes are stored. */
  onDnsAnswer: (answer: NoHosts, messages: ClaimedMessage[]) => Promise<void>
}

/** The other half of the lookups at once is for mail that has a route (network/README.md "Cache and resolver"). */
const MOST_AT_ONCE = 50
const PER_REFILL = 1_000
const PER_CLAIM = 200
const AGAIN_AFTER = SECOND

export function createRouteDomains(options: RouteDomainsOptions) {
  const { store, clock, logger } = options
  const domains = createDueDomains(PER_REFILL)
  const underWay = new Map<string, Promise<void>>()
  const again = (names: readonly string[]): void => note(names, clock.now() + AGAIN_AFTER)
  const writer = createRouteWriter(options, again)
  const routeOne = createRouteOne(options, writer.assign, () => state === 'stopped')
  let isIncomplete = false
  let state: 'new' | 'running' | 'stopped' = 'new'
  let cancelTimer = (): void => {}

  function note(names: readonly string[], at: number): void {
    const isDue = at <= clock.now()
    for (const domain of names) if (!domains.add(domain, at, isDue)) isIncomplete = true
    pump()
  }

  function pump(): void {
    if (state !== 'running') return
    const now = clock.now()
    while ((domains.nextAt() ?? Infinity) <= now) {
      if (underWay.size >= MOST_AT_ONCE || !options.mayClaim()) return
      const domain = domains.next(now)
      if (domain === undefined) break
      // Rows came while the domain is looked up: look again right after.
      if (underWay.has(domain)) domains.move(domain, now + AGAIN_AFTER)
      else begin(domain)
    }
    cancelTimer()
    const nextAt = domains.nextAt()
    if (nextAt !== undefined) cancelTimer = clock.after(Math.max(0, nextAt - now), pump)
    // No domain in memory is due: the store may have others.
    if (isIncomplete && underWay.size === 0) void refill()
  }

  function begin(domain: string): void {
    domains.remove(domain)
    const running = routeOne(domain).then((isDone) => {
      underWay.delete(domain)
      if (isDone) pump()
      else again([domain])
    })
    underWay.set(domain, running)
  }

  async function refill(): Promise<void> {
    isIncomplete = false
    try {
      const found = await store.unroutedDomains(PER_REFILL)
      // The earliest come first: when one of these is not due, none that is has been left out.
      isIncomplete = found.length === PER_REFILL && found.every(({ earliestAt }) => earliestAt <= clock.now())
      for (const { domain, earliestAt } of found) if (!underWay.has(domain)) note([domain], earliestAt)
    } catch (thrown) {
      logger.error({ error: errorText(thrown) }, 'recipient domains without a route could not be read')
    }
  }

  return {
    start(): void {
      state = 'running'
      pump()
    },
    /** These domains have rows without a route, the first of them due at `dueAt`. */
    note,
    /** A domain has another route than its rows: later mail is queued under the new one. */
    assign: (assignment: RouteAssignment) => void writer.assign(assignment),
    /** Reads from the store which domains have rows without a route. */
    refill,
    wake: pump,
    /** Nothing new starts; resolves when what runs has ended. */
    async stop(): Promise<void> {
      state = 'stopped'
      cancelTimer()
      await Promise.all(underWay.values())
      await writer.written()
    },
  }
}

/** Resolves when the domain has its route, or its due rows are judged; with false: not all of them. Never rejects. */
function createRouteOne(options: RouteDomainsOptions, assign: RouteWriter['assign'], isStopped: () => boolean) {
  const { store, clock, logger, routes, mayClaim, lease, hold, onEvents, onDnsAnswer } = options

  async function judge(domain: string, answer: NoHosts): Promise<boolean> {
    let found: number
    do {
      if (!mayClaim()) return false
      const request = { domain, now: clock.now(), ...lease(), limit: PER_CLAIM }
      const { messages, suppressed } = await store.claimUnrouted(request)
      found = messages.length + suppressed
      hold(messages)
      if (suppressed > 0) onEvents()
      await onDnsAnswer(answer, messages)
    } while (found === PER_CLAIM && !isStopped())
    return true
  }

  return async (domain: string): Promise<boolean> => {
    try {
      const route = routes.fresh(domain) ?? (await routes.find(domain))
      if (isStopped()) return true
      if (route.kind !== 'hosts') return await judge(domain, route)
      await assign({ domain, route: route.provider.route, isp: route.provider.isp })
      return true
    } catch (thrown) {
      logger.error({ domain, error: errorText(thrown) }, 'a recipient domain could not be routed')
      return false
    }
  }
}

type RouteWriter = ReturnType<typeof createRouteWriter>

/** Writes what comes in one turn of the event loop, or while the last ones are written, together. */
function createRouteWriter(options: RouteDomainsOptions, onRefused: (domains: string[]) => void) {
  const { store, logger, onAssigned } = options
  let assignments: RouteAssignment[] = []
  let writing: Promise<void> | undefined

  async function write(): Promise<void> {
    await Promise.resolve()
    while (assignments.length > 0) {
      const batch = assignments
      assignments = []
      try {
        onAssigned(await store.assignRoutes(batch))
      } catch (thrown) {
        logger.error({ error: errorText(thrown), domains: batch.length }, 'routes could not be stored')
        onRefused(batch.map(({ domain }) => domain))
      }
    }
    writing = undefined
  }

  return {
    /** Resolves when it is written, or when the store has refused it. */
    assign(assignment: RouteAssignment): Promise<void> {
      assignments.push(assignment)
      writing ??= write()
      return writing
    },
    written: () => writing,
  }
}

/**
 * Which recipient domain is looked up next: in turns the one that is due longest and the one that came last, so that
 * thousands before a domain do not hold it up. `slack`: so many more that are due; those that are due later never keep
 * out one that is due.
 */
function createDueDomains(slack: number) {
  const domains = createTimeHeap<string>()
  /** Those that came due, the last one at the end. */
  let newest: string[] = []
  let isNewestNext = false

  /** The one that came last of those that are due still; undefined: nobody knows. */
  function takeNewest(now: number): string | undefined {
    for (let domain = newest.pop(); domain !== undefined; domain = newest.pop()) {
      if ((domains.timeOf(domain) ?? Infinity) <= now) return domain
    }
    return undefined
  }

  return {
    /** False: a domain that is due found no room. */
    add(domain: string, at: number, isDue: boolean): boolean {
      const known = domains.timeOf(domain)
      if (known === undefined && domains.size() >= MOST_DOMAINS + (isDue ? slack : 0)) return !isDue
      if (at >= (known ?? Infinity)) return true
      domains.set(domain, at)
      if (isDue) newest.push(domain)
      if (newest.length > 2 * MOST_NEWEST) newest = newest.slice(-MOST_NEWEST)
      return true
    },
    /** The next one that is due, which stays in; undefined: none is. */
    next(now: number): string | undefined {
      const first = domains.peek()
      if (first === undefined || first.at > now) return undefined
      isNewestNext = !isNewestNext
      return (isNewestNext ? takeNewest(now) : undefined) ?? first.item
    },
    /** Due at another time, whatever it was before. */
    move: domains.set,
    remove: domains.remove,
    /** When the first of them is due; undefined: there is none. */
    nextAt: () => domains.peek()?.at,
  }
}
