/**
 * The connections of one path inside a delivery thread: at most `connections` at once, each sends row after row.
 *
 * | a connection ends when                                      | its row                                            |
 * | ----------------------------------------------------------- | -------------------------------------------------- |
 * | messages per connection, 5 min, idle time, any doubt        | is reported; the next row gets a new connection    |
 * | it cannot be opened while others of the site are open       | waits for one of those: the host limits us         |
 * | it cannot be opened and no other is open                    | `path-failed`, with all rows waiting for this site |
 * | the machine has no socket for it, and no other is open      | is returned, with all rows waiting for this site   |
 * | the path may have fewer, or another site has waited longer  | is reported                                        |
 *
 * A site is tried with one connection first; the others follow once that one is open. Every row that was added is
 * reported exactly once. delivery/README.md "Fairness" and "The SMTP session", egress/README.md "Limits of a path" and
 * "Rates".
 */
import { MINUTE } from '../../base/clock.ts'
import { createRateLimit, type RateLimit } from '../../base/rate-limit.ts'
import {
  NO_CONNECTION,
  type DispatchedRow,
  type PathBatch,
  type PathLimits,
  type PathPlan,
  type TryEnd,
  type TryResult,
} from '../protocol/try-result.ts'
import { startWorker, STOPPING, type ConnectionWorker } from './connection-worker.ts'
import { dropRendering, renderRow, type DeliveryTools, type RowToSend } from './row-trials.ts'
import { createSiteQueues, hasOpen, mayConnectTo, type SiteQueue, type SiteQueues } from './site-queues.ts'

export type PathSender = ReturnType<typeof createPathSender>

interface PathSenderOptions {
  tools: DeliveryTools
  report: (row: DispatchedRow, result: TryResult) => void
  /**
   * Takes one of the connections that the thread may have, for mail of one of these sending domains; undefined: not now,
   * and `grow` is called when there is one.
   */
  takeConnection: (isUrgent: boolean, domains: readonly string[]) => string | undefined
  /** With the domain that it was taken for. */
  releaseConnection: (domain: string) => void
  onRest: (domain: string) => void
  /** It has neither rows nor connections any more. */
  onIdle: () => void
}

/** After a host has refused a further connection, that many are enough for so long. */
const LIMIT_HOLDS = MINUTE
/** So many connections for sites with urgent mail, then one for the site that waits the longest. */
const URGENT_TURNS = 4
const CONNECTION_BURST = 3 // egress/README.md "Rates"
/** For one connection. Larger messages are rendered when their turn comes: in memory two for each are enough of them. */
const MOST_BYTES_AHEAD = 2 ** 20
const REAL_TIME = { now: () => performance.now() }

export function createPathSender(firstPlan: PathPlan, options: PathSenderOptions) {
  const sites = createSiteQueues()
  const { tools, renderSoon } = renderAhead(options.tools, sites)
  const pace = createConnectionPace(firstPlan, options, grow)
  const connections = createPathConnections({ ...options, tools, sites, renderSoon, grow, plan: () => plan })
  const { isHalted, finishUntried } = connections
  let plan = firstPlan
  /** Connections in a row that were begun for urgent mail. */
  let urgentBegun = 0

  function grow(): void {
    for (const queue of sites.inTurn(urgentBegun < URGENT_TURNS)) {
      while (!isHalted() && mayConnectTo(queue)) {
        const domain = connections.makeRoom(queue) ? pace.take(queue.rows) : undefined
        if (domain === undefined) return
        const first = connections.begin(queue, domain)
        urgentBegun = first?.isUrgent ? urgentBegun + 1 : 0
      }
      sites.dropEmpty(queue)
    }
    if (!sites.isEmpty()) return
    pace.stop()
    options.onIdle()
  }

  function wakeIdle(): void {
    for (const worker of sites.workers()) if (worker.isIdle()) worker.wake()
    grow()
  }

  function halt(): void {
    finishUntried(sites.halt(), STOPPING)
    wakeIdle()
  }

  return {
    /** Opens further connections when there is work and room for them. */
    grow,
    add({ path, site, rows }: PathBatch): void {
      pace.follow(path)
      const isMoved = path.source !== plan.source || path.hostname !== plan.hostname
      plan = path
      // Connections of the former source that wait for a row have to end.
      if (isMoved) wakeIdle()
      const sending = rows.map((row) => newRow(row, sites.halts()))
      if (isHalted()) {
        finishUntried(sending, STOPPING)
        return grow()
      }
      const queue = sites.of(site)
      for (const one of sending) queue.rows.add(one)
      renderSoon()
      feed(queue)
      grow()
    },
    /** Takes effect between two messages; without connections all rows that have not begun come back. */
    limit(limits: PathLimits): void {
      plan = { ...plan, ...limits }
      if (isHalted()) halt()
      else wakeIdle()
    },
    /** Of every row that was added and not reported. */
    claims: sites.claims,
    where: sites.where,
    /** Ends a connection that waits for a row: another path needs it. False: there is none. */
    retireIdle: () => sites.workers().some((worker) => worker.retire()),
    /** Returns what has not begun, lets the rest finish. */
    drain(): void {
      connections.drain()
      halt()
    },
    /** Ends what has not sent its dot. */
    abort(): void {
      for (const worker of sites.workers()) worker.abort()
      // A connection that is still being made has no row any more: nobody waits for it.
      if (sites.workers().every((worker) => !worker.isBusy())) options.onIdle()
    },
  }
}

interface PathConnectionsOptions extends PathSenderOptions {
  sites: SiteQueues
  plan: () => PathPlan
  renderSoon: () => void
  grow: () => void
}

/** Which connections a path has and may have, and what becomes of rows that none of them sends. */
function createPathConnections(options: PathConnectionsOptions) {
  const { tools, report, sites, plan, grow } = options
  let isDraining = false

  const isHalted = (sending?: RowToSend): boolean =>
    isDraining || plan().connections === 0 || (sending !== undefined && sending.haltsBefore < sites.halts())

  function finishUntried(rows: readonly RowToSend[], end: TryEnd): void {
    for (const { row, wasRcptSent, rendering } of rows) {
      dropRendering(rendering)
      const facts = { startedAt: tools.now(), durationMilliseconds: 0, facts: NO_CONNECTION, transcript: null }
      report(row, { ...facts, claim: row.claim, end, wasRcptSent })
    }
  }

  function putBack(queue: SiteQueue, sending: RowToSend): void {
    sending.waitsSince = performance.now()
    queue.rows.putBack(sending)
    feed(queue)
  }

  function failSite(queue: SiteQueue, sending: RowToSend, failure: TryEnd, tell: (end: TryEnd) => void): void {
    if (hasOpen(queue) && !isHalted(sending)) {
      queue.limit = { workers: queue.workers.size - 1, until: performance.now() + LIMIT_HOLDS }
      return putBack(queue, sending)
    }
    tell(failure)
    finishUntried(queue.rows.takeAll(), failure)
  }

  /** The path has too many connections, or another site needs this one more. */
  function isToLeave(queue: SiteQueue, messages: number): boolean {
    const spare = plan().connections - sites.workerCount()
    return spare < 0 || (spare === 0 && sites.isOutranked(queue, messages))
  }

  return {
    isHalted,
    drain: () => void (isDraining = true),
    /** False while the path has all its connections; an idle one of another site makes room. */
    makeRoom(queue: SiteQueue): boolean {
      if (sites.workerCount() < plan().connections) return true
      sites.idleElsewhere(queue)?.wake()
      return false
    },
    /** Of the next row, which is returned; `domain`: the sending domain that the connection was taken for. */
    begin(queue: SiteQueue, domain: string): DispatchedRow | undefined {
      const first = queue.rows.take()
      if (first === undefined) return void options.releaseConnection(domain)
      sites.putLast(queue)
      const { source, hostname } = plan()
      // A reload has changed them: from the next batch on mail leaves as the file says.
      const isOutdated = (): boolean => source !== plan().source || hostname !== plan().hostname
      const worker: ConnectionWorker = startWorker(first, {
        ...options,
        isHalted,
        site: () => queue.site,
        next() {
          const sending = queue.rows.take()
          options.renderSoon()
          return sending
        },
        isToLeave: (messages) => isOutdated() || isToLeave(queue, messages),
        giveBack: (sending) => (isHalted(sending) ? finishUntried([sending], STOPPING) : putBack(queue, sending)),
        onRest: () => options.onRest(domain),
        // The site answers: the others may follow while this one sends.
        onOpen: grow,
        onFailed: (sending, failure, tell) => failSite(queue, sending, failure, tell),
        onEnd() {
          queue.workers.delete(worker)
          options.releaseConnection(domain)
          grow()
        },
      })
      queue.workers.add(worker)
      return first.row
    },
    finishUntried,
  }
}

/** Hands rows to the connections that wait for one. */
function feed({ workers, rows }: SiteQueue): void {
  for (const worker of workers) if (rows.size() > 0 && worker.isIdle()) worker.wake()
}

/**
 * For each connection to a fast host, as many rows as it may have under way are rendered before their turn: signing
 * takes longer than what such a connection waits for before it asks for them. Not in this turn of the event loop, at
 * whose end connections ask for the dot marks they wait for.
 */
function renderAhead(tools: DeliveryTools, sites: SiteQueues) {
  let planned: NodeJS.Immediate | undefined
  /** The last message had so many. */
  let bytes = 0
  const noting: DeliveryTools = {
    ...tools,
    async render(row, form) {
      const message = await tools.render(row, form)
      bytes = message.bytes.length
      return message
    },
  }

  function renderNow(): void {
    planned = undefined
    const most = Math.floor(MOST_BYTES_AHEAD / bytes)
    for (const { rows, workers } of sites.all()) {
      const ahead = [...workers].reduce((sum, worker) => sum + Math.min(worker.ahead(), most), 0)
      for (const sending of rows.soon(ahead)) sending.rendering ??= renderRow(noting, sending, '8bit')
    }
  }

  return { tools: noting, renderSoon: () => void (planned ??= setImmediate(renderNow)) }
}

/** How fast the path may begin connections; `onToken`: there is a token again that was asked for. */
function createConnectionPace(plan: PathPlan, { takeConnection }: PathSenderOptions, onToken: () => void) {
  let { connectionRate } = plan
  let limit = rateLimit(connectionRate)
  let timer: NodeJS.Timeout | undefined
  return {
    follow({ connectionRate: next }: PathPlan): void {
      const isSame =
        connectionRate?.count === next?.count && connectionRate?.per_milliseconds === next?.per_milliseconds
      if (!isSame) limit = rateLimit(next)
      connectionRate = next
    },
    /** Takes a token of the path's rate and a connection of the thread; without a token it is tried again in time. */
    take(rows: SiteQueue['rows']): string | undefined {
      const wait = limit?.take('') ?? 0
      if (wait <= 0) {
        const domain = takeConnection(rows.hasUrgent(), rows.domains())
        if (domain === undefined) limit?.giveBack('', 1)
        return domain
      }
      clearTimeout(timer)
      timer = setTimeout(onToken, Math.ceil(wait))
      return undefined
    },
    stop: (): void => clearTimeout(timer),
  }
}

function rateLimit(rate: PathPlan['connectionRate']): RateLimit | null {
  if (rate === null) return null
  const { count, per_milliseconds: perMilliseconds } = rate
  return createRateLimit({ clock: REAL_TIME, count, perMilliseconds, burst: CONNECTION_BURST, mostKeys: 1 })
}

function newRow(row: DispatchedRow, haltsBefore: number): RowToSend {
  const fresh = { waitsSince: performance.now(), returns: 0, mayPipeline: true, wasRcptSent: false, rendering: null }
  return { row, haltsBefore, ...fresh, mayFly: !row.wasInDoubt }
}
