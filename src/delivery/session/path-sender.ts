/**
 * The connections of one path inside a delivery thread: at most `connections` at once, each sends row after row.
 *
 * | a connection ends when                                      | its row                                            |
 * | ----------------------------------------------------------- | -------------------------------------------------- |
 * | messages per connection, 5 min, idle time, any doubt        | is reported; the next row gets a new connection    |
 * | it can not be opened while others of the site are open      | waits for one of those: the host limits us         |
 * | it can not be opened and no other is open                   | `path-failed`, with all rows waiting for this site |
 * | the path may have fewer, or another site has waited longer  | is reported                                        |
 *
 * A site is tried with one connection first; the others follow once that one is open. Urgent rows go first. Every row
 * that was added is reported exactly once. delivery/README.md "Fairness" and "The SMTP session", egress/README.md
 * "Limits of a path" and "Rates".
 */
import { MINUTE } from '../../base/clock.ts'
import { createRateLimit } from '../../base/rate-limit.ts'
import type { RateLimit } from '../../base/rate-limit.ts'
import type { ThreadPlace } from '../../mail/whereabouts.ts'
import { renderRow, startWorker, STOPPING } from './connection-worker.ts'
import type { ConnectionWorker, DeliveryTools, PathRow } from './connection-worker.ts'
import type { MessageForm, RenderedMessage } from './message-renderer.ts'
import { createRowQueue } from './row-queue.ts'
import type { RowQueue } from './row-queue.ts'
import { NO_CONNECTION } from '../protocol/try-result.ts'
import type {
  DispatchedRow,
  PathBatch,
  PathFailure,
  PathPlan,
  Site,
  TryEnd,
  TryResult,
} from '../protocol/try-result.ts'

export interface PathSender {
  add(batch: PathBatch): void
  /** Takes effect between two messages; without connections all rows that have not begun come back. */
  limit(limits: Pick<PathPlan, 'connections' | 'messagesPerConnection'>): void
  /** Opens further connections when there is work and room for them. */
  grow(): void
  /** Of every row that was added and not reported. */
  claims(): number[]
  /** Where this row is; undefined: not here. */
  where(claim: number): ThreadPlace | undefined
  /** Ends a connection that waits for a row: another path needs it. False: there is none. */
  retireIdle(): boolean
  /** Returns what has not begun, lets the rest finish. */
  drain(): void
  /** Ends what has not sent its dot. */
  abort(): void
}

export interface PathSenderOptions {
  tools: DeliveryTools
  report: (result: TryResult) => void
  /** Takes one of the connections that the thread may have; false: not now, and `grow` is called when there is one. */
  takeConnection: (isUrgent: boolean) => boolean
  releaseConnection: () => void
  /** A connection waits for a row. */
  onRest: () => void
  /** It has neither rows nor connections any more. */
  onIdle: () => void
}

interface SiteQueue {
  site: Site
  rows: RowQueue
  workers: Set<ConnectionWorker>
  /** No more workers than this until then: the host had refused a further connection. */
  limit: { workers: number; until: number } | undefined
}

/** After a host has refused a further connection, that many are enough for so long. */
const LIMIT_HOLDS = MINUTE
/** So many connections for sites with urgent mail, then one for the site that waits the longest. */
const URGENT_TURNS = 4
/** So many messages over one connection, then another site of the path has its turn. */
const TURN = 10
const CONNECTION_BURST = 3 // egress/README.md "Rates"
/** Larger messages are rendered when their turn comes: in memory two for each connection are enough of them. */
const MOST_BYTES_AHEAD = 2 ** 20
const REAL_TIME = { now: () => performance.now() }

export function createPathSender(firstPlan: PathPlan, options: PathSenderOptions): PathSender {
  const { report } = options
  const tools: DeliveryTools = { ...options.tools, render }
  const sites = new Map<string, SiteQueue>()
  let plan = firstPlan
  let isDraining = false
  let rate = connectionRate(firstPlan)
  let rateTimer: NodeJS.Timeout | undefined
  let rendering: NodeJS.Immediate | undefined
  /** The last message was. */
  let isLarge = false
  /** Connections in a row that were begun for urgent mail. */
  let urgentBegun = 0

  const workers = (): ConnectionWorker[] => [...sites.values()].flatMap((queue) => [...queue.workers])
  const workerCount = (): number => [...sites.values()].reduce((sum, queue) => sum + queue.workers.size, 0)
  const hasOpen = (queue: SiteQueue): boolean => [...queue.workers].some((worker) => worker.isOpen())
  const isHalted = (): boolean => isDraining || plan.connections === 0

  function finishUntried(rows: PathRow[], end: TryEnd): void {
    for (const { row, wasRcptSent } of rows) {
      const startedAt = tools.now()
      report({
        claim: row.claim,
        startedAt,
        durationMilliseconds: 0,
        facts: NO_CONNECTION,
        end,
        wasRcptSent,
        transcript: null,
      })
    }
  }

  function grow(): void {
    for (const queue of inTurn()) {
      while (mayStart(queue)) {
        if (!makeRoom(queue) || !mayConnect(queue)) return
        begin(queue)
      }
      if (queue.rows.size() === 0 && queue.workers.size === 0) sites.delete(queue.site.key)
    }
    if (sites.size > 0) return
    clearTimeout(rateTimer)
    options.onIdle()
  }

  function inTurn(): SiteQueue[] {
    const all = [...sites.values()]
    if (urgentBegun >= URGENT_TURNS) return all
    return [...all.filter(({ rows }) => rows.hasUrgent()), ...all.filter(({ rows }) => !rows.hasUrgent())]
  }

  /** One worker proves that the site answers; then as many as there are rows without one. */
  function mayStart(queue: SiteQueue): boolean {
    if (isHalted() || queue.rows.size() === 0) return false
    const { limit } = queue
    if (limit !== undefined && performance.now() < limit.until && queue.workers.size >= limit.workers) return false
    return queue.workers.size === 0 || hasOpen(queue)
  }

  /** False while the path has all its connections; an idle one of another site makes room. */
  function makeRoom(queue: SiteQueue): boolean {
    if (workerCount() < plan.connections) return true
    for (const other of sites.values()) {
      const idle = other === queue ? undefined : [...other.workers].find((worker) => worker.isIdle())
      if (idle === undefined) continue
      idle.wake()
      break
    }
    return false
  }

  /** Takes a connection of the thread and a token of the path's rate; without a token it is tried again in time. */
  function mayConnect({ rows }: SiteQueue): boolean {
    const wait = rate === null ? 0 : rate.take('')
    if (wait > 0) {
      clearTimeout(rateTimer)
      rateTimer = setTimeout(grow, Math.ceil(wait))
      return false
    }
    if (options.takeConnection(rows.hasUrgent())) return true
    rate?.giveBack('', 1)
    return false
  }

  function begin(queue: SiteQueue): void {
    const first = queue.rows.take()
    if (first === undefined) return options.releaseConnection()
    urgentBegun = first.row.isUrgent ? urgentBegun + 1 : 0
    // The others come first the next time.
    sites.delete(queue.site.key)
    sites.set(queue.site.key, queue)
    const worker: ConnectionWorker = startWorker(first, {
      tools,
      report,
      isHalted,
      plan: () => plan,
      site: () => queue.site,
      next: () => takeNext(queue),
      isToLeave: (messages) => isToLeave(queue, messages),
      giveBack: (row) => giveBack(queue, row),
      // The site answers: the others may follow while this one sends.
      onOpen: grow,
      onRest: options.onRest,
      onFailed: (row, failure, tell) => failSite(queue, { row, failure, tell }),
      onEnd() {
        queue.workers.delete(worker)
        options.releaseConnection()
        grow()
      },
    })
    queue.workers.add(worker)
  }

  async function render(row: DispatchedRow, form: MessageForm): Promise<RenderedMessage> {
    const message = await options.tools.render(row, form)
    isLarge = message.bytes.length > MOST_BYTES_AHEAD
    return message
  }

  function takeNext(queue: SiteQueue): PathRow | undefined {
    const row = queue.rows.take()
    renderSoon()
    return row
  }

  /**
   * One row for each connection: signing takes longer than what a connection waits for before it asks for a row. Not in
   * this turn of the event loop, at whose end dot marks are asked for that connections wait for.
   */
  function renderSoon(): void {
    rendering ??= setImmediate(() => {
      rendering = undefined
      if (isLarge) return
      for (const {
        rows,
        workers: { size },
      } of sites.values()) {
        for (const row of rows.soon(size)) row.rendering ??= renderRow(tools, row, '8bit')
      }
    })
  }

  /** The path has too many connections, or another site needs this one more. */
  function isToLeave(queue: SiteQueue, messages: number): boolean {
    const count = workerCount()
    if (count > plan.connections) return true
    if (count < plan.connections) return false
    const others = [...sites.values()].filter((other) => other !== queue && other.rows.size() > 0)
    if (queue.rows.size() === 0) return others.length > 0
    const waiting = others.filter((other) => other.workers.size === 0)
    if (waiting.length === 0) return false
    const isOutranked = !queue.rows.hasUrgent() && waiting.some(({ rows }) => rows.hasUrgent())
    return isOutranked || messages >= TURN
  }

  function giveBack(queue: SiteQueue, row: PathRow): void {
    if (isHalted()) return finishUntried([row], STOPPING)
    putBack(queue, row)
  }

  function putBack(queue: SiteQueue, row: PathRow): void {
    row.waitsSince = performance.now()
    queue.rows.putBack(row)
    feed(queue)
  }

  /** Hands rows to the connections that wait for one. */
  function feed(queue: SiteQueue): void {
    for (const worker of queue.workers) {
      if (queue.rows.size() > 0 && worker.isIdle()) worker.wake()
    }
  }

  function failSite(
    queue: SiteQueue,
    { row, failure, tell }: { row: PathRow; failure: PathFailure; tell: (end: TryEnd) => void },
  ): void {
    if (hasOpen(queue) && !isHalted()) {
      queue.limit = { workers: queue.workers.size - 1, until: performance.now() + LIMIT_HOLDS }
      return putBack(queue, row)
    }
    tell(failure)
    finishUntried(queue.rows.takeAll(), { ...failure, wasTried: false })
  }

  function halt(): void {
    for (const { rows } of sites.values()) finishUntried(rows.takeAll(), STOPPING)
    for (const worker of workers()) if (worker.isIdle()) worker.wake()
    grow()
  }

  return {
    grow,
    add({ path, site, rows }) {
      if (!isSameRate(plan, path)) rate = connectionRate(path)
      plan = path
      if (isHalted()) {
        finishUntried(rows.map(newRow), STOPPING)
        return grow()
      }
      const queue = sites.get(site.key) ?? { site, rows: createRowQueue(), workers: new Set(), limit: undefined }
      sites.set(site.key, queue)
      queue.site = site
      for (const row of rows) queue.rows.add(newRow(row))
      renderSoon()
      feed(queue)
      grow()
    },
    limit(limits) {
      plan = { ...plan, ...limits }
      if (isHalted()) return halt()
      for (const worker of workers()) if (worker.isIdle()) worker.wake()
      grow()
    },
    claims() {
      const waiting = [...sites.values()].flatMap(({ rows }) => rows.soon(rows.size()))
      return [...waiting.map(({ row }) => row.claim), ...workers().flatMap((worker) => worker.claims())]
    },
    where(claim) {
      const onConnection = workers()
        .map((worker) => worker.where(claim))
        .find((place) => place !== undefined)
      if (onConnection !== undefined) return onConnection
      const waiting = [...sites.values()].flatMap(({ rows }) => rows.soon(rows.size()))
      const found = waiting.find(({ row }) => row.claim === claim)
      if (found === undefined) return undefined
      return { stage: 'queue', milliseconds: performance.now() - found.waitsSince, host: null, address: null }
    },
    retireIdle: () => workers().some((worker) => worker.retire()),
    drain() {
      isDraining = true
      halt()
    },
    abort() {
      for (const worker of workers()) worker.abort()
      // A connection that is still being made has no row any more: nobody waits for it.
      if (workers().every((worker) => !worker.isBusy())) options.onIdle()
    },
  }
}

function newRow(row: DispatchedRow): PathRow {
  return { row, waitsSince: performance.now(), returns: 0, mayPipeline: true, wasRcptSent: false, rendering: null }
}

function connectionRate({ connectionRate: rate }: PathPlan): RateLimit | null {
  if (rate === null) return null
  const { count, per_milliseconds: perMilliseconds } = rate
  return createRateLimit({ clock: REAL_TIME, count, perMilliseconds, burst: CONNECTION_BURST, mostKeys: 1 })
}

function isSameRate({ connectionRate: one }: PathPlan, { connectionRate: other }: PathPlan): boolean {
  return one?.count === other?.count && one?.per_milliseconds === other?.per_milliseconds
}
