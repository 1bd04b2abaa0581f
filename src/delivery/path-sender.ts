/**
 * The sessions of one path inside a delivery thread: at most `connections` at once, each sends message after message.
 *
 * | a session ends when                                    | its row                                            |
 * | ------------------------------------------------------ | -------------------------------------------------- |
 * | messages per connection, 5 min, idle time, any doubt   | is reported; the next row gets a new connection    |
 * | it can not be opened while others of the site are open | waits for one of those: the host limits us         |
 * | it can not be opened and no other is open              | `path-failed`, with all rows waiting for this site |
 *
 * A site is tried with one connection first; the others follow once that one is open. Every row that was added is
 * reported exactly once. Engine.md 8.1, 10.1.
 */
import { MINUTE } from '../base/clock.ts'
import { deliverMessage, STOPPING } from './deliver-message.ts'
import type { DeliveryTools, DeliveryTry } from './deliver-message.ts'
import type { SmtpSession } from './smtp-session.ts'
import { NO_CONNECTION } from './try-result.ts'
import type { DispatchedRow, PathBatch, PathFailure, PathPlan, Site, TryEnd, TryResult } from './try-result.ts'

export interface PathSender {
  add(batch: PathBatch): void
  /** Opens further sessions when there is work and room for them. */
  grow(): void
  /** Returns what has not begun, lets the rest finish. */
  drain(): void
  /** Ends what has not sent its dot. */
  abort(): void
}

export interface PathSenderOptions {
  tools: DeliveryTools
  report: (result: TryResult) => void
  /** Takes one of the connections that the thread may have; false when none is free. */
  takeConnection: () => boolean
  releaseConnection: () => void
  /** It has neither rows nor sessions any more. */
  onIdle: () => void
}

interface Worker {
  site: SiteQueue
  session: SmtpSession | undefined
  row: DispatchedRow | undefined
  started: Start
  /** Set while it waits for a row: gives it one, or ends it. */
  wake: ((row: DispatchedRow | undefined) => void) | undefined
}

/** When a try began. */
interface Start {
  /** By the dispatcher's clock, which can jump. */
  at: number
  /** Milliseconds of a clock that can not: how long a try took is real time. */
  ticks: number
}

interface SiteQueue {
  site: Site
  rows: DispatchedRow[]
  workers: Set<Worker>
  /** No more workers than this until then: the host had refused a further connection. */
  limit: { workers: number; until: number } | undefined
}

/** After a host has refused a further connection, that many are enough for so long. */
const LIMIT_HOLDS = MINUTE
const LONGEST_SESSION = 5 * MINUTE // engine.md 10.1

export function createPathSender(firstPlan: PathPlan, options: PathSenderOptions): PathSender {
  const { tools, report } = options
  const sites = new Map<string, SiteQueue>()
  let plan = firstPlan
  let isDraining = false

  const workers = (): Worker[] => [...sites.values()].flatMap((queue) => [...queue.workers])
  const hasOpenSession = (queue: SiteQueue): boolean => [...queue.workers].some(({ session }) => session !== undefined)

  const start = (): Start => ({ at: tools.now(), ticks: performance.now() })
  const finish = (row: DispatchedRow, { at, ticks }: Start, tried: Omit<DeliveryTry, 'session'>): void => {
    const { end, facts, transcript } = tried
    const durationMilliseconds = Math.round(performance.now() - ticks)
    report({ key: row.key, startedAt: at, durationMilliseconds, facts, end, transcript })
  }
  const finishUntried = (rows: DispatchedRow[], end: TryEnd): void => {
    for (const row of rows) finish(row, start(), { end, facts: NO_CONNECTION, transcript: null })
  }

  function grow(): void {
    for (const queue of sites.values()) {
      while (mayStart(queue)) {
        if (!makeRoom(queue) || !options.takeConnection()) return
        void work(queue)
      }
      if (queue.rows.length === 0 && queue.workers.size === 0) sites.delete(queue.site.key)
    }
    if (sites.size === 0) options.onIdle()
  }

  /** One worker proves that the site answers; then as many as there are rows without one. */
  function mayStart(queue: SiteQueue): boolean {
    if (isDraining || queue.rows.length === 0) return false
    const { limit } = queue
    if (limit !== undefined && Date.now() < limit.until && queue.workers.size >= limit.workers) return false
    return queue.workers.size === 0 || hasOpenSession(queue)
  }

  /** False while the path has all its connections; an idle one of another site makes room. */
  function makeRoom(queue: SiteQueue): boolean {
    const all = workers()
    if (all.length < plan.connections) return true
    all.find((worker) => worker.site !== queue && worker.wake !== undefined)?.wake?.(undefined)
    return false
  }

  async function work(queue: SiteQueue): Promise<void> {
    const worker: Worker = { site: queue, session: undefined, row: undefined, started: start(), wake: undefined }
    queue.workers.add(worker)
    for (let row = queue.rows.shift(); row !== undefined; row = queue.rows.shift() ?? (await nextRow(worker))) {
      const isGoingOn = await tryRow(worker, row)
      if (!isGoingOn) break
    }
    const { session } = worker
    worker.session = undefined
    await session?.quit()
    queue.workers.delete(worker)
    options.releaseConnection()
    grow()
  }

  async function tryRow(worker: Worker, row: DispatchedRow): Promise<boolean> {
    const hadSession = worker.session !== undefined
    worker.row = row
    worker.started = start()
    const tried = await deliverMessage({
      row, path: plan, site: worker.site.site, session: worker.session,
      isAborted: () => worker.row === undefined,
      onSession: (session) => {
        worker.session = session
        // The site answers: the other sessions may follow while this one sends.
        if (!hadSession) grow()
      },
    }, tools)
    // An abort has reported it already.
    if (worker.row === undefined) return false
    worker.row = undefined
    const { end } = tried
    if (end.kind === 'path-failed') {
      failSite(worker, row, end, tried)
      return false
    }
    finish(row, worker.started, tried)
    worker.session = keep(tried.session)
    return !isDraining
  }

  /** Hands rows to the sessions that wait for one. */
  function feed(queue: SiteQueue): void {
    for (const worker of queue.workers) {
      if (worker.wake !== undefined && queue.rows.length > 0) worker.wake(queue.rows.shift())
    }
  }

  /** The session, when it can take another message. */
  function keep(session: SmtpSession | undefined): SmtpSession | undefined {
    if (session === undefined) return undefined
    const isWornOut = session.begun() >= plan.messagesPerConnection || Date.now() - session.openedAt > LONGEST_SESSION
    if (session.isUsable() && !isWornOut) return session
    void session.quit()
    return undefined
  }

  function failSite(worker: Worker, row: DispatchedRow, failure: PathFailure, tried: DeliveryTry): void {
    worker.session = undefined
    const { site } = worker
    if (hasOpenSession(site) && !isDraining) {
      site.rows.unshift(row)
      site.limit = { workers: site.workers.size - 1, until: Date.now() + LIMIT_HOLDS }
      feed(site)
      return
    }
    finish(row, worker.started, tried)
    finishUntried(site.rows.splice(0), { ...failure, wasTried: false })
  }

  /** Waits for the next row of the site, for at most the idle time. */
  function nextRow(worker: Worker): Promise<DispatchedRow | undefined> {
    if (worker.session === undefined || isDraining) return Promise.resolve(undefined)
    return new Promise((resolve) => {
      const timer = setTimeout(() => worker.wake?.(undefined), plan.idleMilliseconds)
      worker.wake = (row) => {
        clearTimeout(timer)
        worker.wake = undefined
        resolve(row)
      }
    })
  }

  return {
    grow,
    add({ path, site, rows }) {
      plan = path
      const queue = sites.get(site.key) ?? { site, rows: [], workers: new Set(), limit: undefined }
      sites.set(site.key, queue)
      queue.site = site
      queue.rows.push(...rows)
      feed(queue)
      grow()
    },
    drain() {
      isDraining = true
      for (const queue of sites.values()) {
        finishUntried(queue.rows.splice(0), STOPPING)
      }
      for (const worker of workers()) worker.wake?.(undefined)
      grow()
    },
    abort() {
      for (const worker of workers()) {
        const { row, session } = worker
        if (row === undefined || session?.isPastDot() === true) continue
        worker.row = undefined
        finishUntried([row], STOPPING)
        session?.abort('the server stops')
      }
      // A connection that is still being made has no row any more: nobody waits for it.
      if (workers().every(({ row }) => row === undefined)) options.onIdle()
    },
  }
}
