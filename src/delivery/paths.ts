/**
 * The paths (egress IP, route) as the dispatcher sees them: rows that wait for one, rows that are in its thread, and
 * how long it is left alone after it did not answer.
 *
 *   open -> waiting        after enough failures in a row: 1, 2, 5, 10, 15, 30, 60 min, then 60 min each
 *   waiting -> probing     the wait is over: one row goes out, the others stay
 *   probing -> open        the host answered         probing -> waiting, one step longer: it did not
 *
 * A path belongs to one thread, so that its connections can be used again. Nothing here waits or throws. Engine.md 8.4.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../base/clock.ts'
import { PATH_WAITS } from './retry-schedule.ts'
import type { PathPlan } from './try-result.ts'

export interface PathRow {
  key: number
  plan: PathPlan
  /** Failures in a row before the path is left alone; `failures` of providers.yaml. */
  failuresAllowed: number
}

export interface Paths<Row extends PathRow> {
  add(row: Row): void
  /** Rows that may go to their threads now, and those whose path is left alone. */
  takeReady(): { ready: { thread: number; rows: Row[] }[]; held: Row[] }
  /** A row has come back from its thread. */
  settle(pathKey: string, result: PathResult): void
  /** How long the path is still left alone, 0 when it is not. */
  waitOf(pathKey: string): number
  /** Why it is left alone; undefined when it is not. */
  whyLeftAlone(pathKey: string): LeftAlone | undefined
  /** More rows wait for it than its connections can take now. */
  isBusy(pathKey: string): boolean
  /** Everything that has not gone to a thread. */
  takeWaiting(): Row[]
}

/** What a row that came back says of its path. */
export type PathResult = { kind: 'worked' } | { kind: 'neither' } | { kind: 'failed'; reason: string }

export interface LeftAlone {
  /** By the dispatcher's clock. */
  until: number
  /** The last failure. */
  reason: string
}

interface Path<Row> {
  plan: PathPlan
  failuresAllowed: number
  waiting: Row[]
  underWay: number
}

interface BackOff {
  failures: number
  /** Index into PATH_WAITS of the next wait; above 0 while the path is waiting or probing. */
  step: number
  until: number
  reason: string
  hasWorked: boolean
}

/** Rows of one path in a thread: enough to keep its sessions busy for a while (engine.md 4.1). */
const MOST_ROWS_IN_THREAD = 200
/** A path that never worked since the start is left alone sooner (engine.md 8.4). */
const FAILURES_OF_NEW_PATH = 3
const NO_FAILURE = { failures: 0, step: 0, until: 0, reason: '' }
/** Paths whose history is remembered; the longest unused are forgotten. */
const MOST_REMEMBERED = 20_000

export function createPaths<Row extends PathRow>(options: { clock: Clock; threads: number }): Paths<Row> {
  const { clock, threads } = options
  const paths = new Map<string, Path<Row>>()
  const backOffs = new LRUCache<string, BackOff>({ max: MOST_REMEMBERED })
  const threadOf = new LRUCache<string, number>({ max: MOST_REMEMBERED })
  let nextThread = 0

  const waitOf = (pathKey: string): number => Math.max(0, (backOffs.get(pathKey)?.until ?? 0) - clock.now())

  /** In turns, so that a few busy paths share the threads evenly. */
  const threadFor = (pathKey: string): number => {
    const thread = threadOf.get(pathKey) ?? nextThread++ % threads
    threadOf.set(pathKey, thread)
    return thread
  }

  function roomOf({ plan, underWay }: Path<Row>): number {
    const isProbing = (backOffs.get(plan.key)?.step ?? 0) > 0
    const most = isProbing ? 1 : Math.min(2 * plan.connections * plan.messagesPerConnection, MOST_ROWS_IN_THREAD)
    return Math.max(0, most - underWay)
  }

  function fail(pathKey: string, reason: string, failuresAllowed: number): void {
    // Sessions that were under way when the wait began bring no news.
    if (waitOf(pathKey) > 0) return
    const backOff = backOffs.get(pathKey) ?? { ...NO_FAILURE, hasWorked: false }
    backOff.failures++
    backOff.reason = reason
    const allowed = backOff.hasWorked ? failuresAllowed : Math.min(failuresAllowed, FAILURES_OF_NEW_PATH)
    if (backOff.failures >= allowed) {
      backOff.until = clock.now() + (PATH_WAITS[Math.min(backOff.step, PATH_WAITS.length - 1)] ?? 0)
      backOff.step++
    }
    backOffs.set(pathKey, backOff)
  }

  return {
    waitOf,
    whyLeftAlone(pathKey) {
      const backOff = backOffs.get(pathKey)
      return backOff !== undefined && waitOf(pathKey) > 0 ? { until: backOff.until, reason: backOff.reason } : undefined
    },
    isBusy: (pathKey) => (paths.get(pathKey)?.waiting.length ?? 0) > 0,
    add(row) {
      const { plan, failuresAllowed } = row
      const path = paths.get(plan.key) ?? { plan, failuresAllowed, waiting: [], underWay: 0 }
      paths.set(plan.key, path)
      path.plan = plan
      path.waiting.push(row)
    },
    takeReady() {
      const held: Row[] = []
      const ready: { thread: number; rows: Row[] }[] = []
      for (const [key, path] of paths) {
        if (path.waiting.length === 0) continue
        if (waitOf(key) > 0) {
          held.push(...path.waiting.splice(0))
        } else {
          const rows = path.waiting.splice(0, roomOf(path))
          path.underWay += rows.length
          if (rows.length > 0) ready.push({ thread: threadFor(key), rows })
        }
        if (path.waiting.length + path.underWay === 0) paths.delete(key)
      }
      return { ready, held }
    },
    settle(pathKey, result) {
      const path = paths.get(pathKey)
      if (path === undefined) return
      path.underWay--
      if (result.kind === 'worked') backOffs.set(pathKey, { ...NO_FAILURE, hasWorked: true })
      if (result.kind === 'failed') fail(pathKey, result.reason, path.failuresAllowed)
      if (path.waiting.length + path.underWay === 0) paths.delete(pathKey)
    },
    takeWaiting() {
      return [...paths.values()].flatMap((path) => path.waiting.splice(0))
    },
  }
}
