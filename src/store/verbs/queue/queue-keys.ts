/**
 * The keys under which something waits, page by page, along the index `messages_queue`: from the end of one key (a due
 * time that no row has) a seek leads to the first row of the next. A page costs its keys (about 15 µs each, at most
 * 100) and its counted rows (about 0.1 µs each; with `none` nothing is counted), however many rows wait.
 */
import type { Database } from '../../engine/database.ts'
import type { Stream } from '../../../mail/message.ts'
import type { QueueKey, QueueKeyPage, QueueKeyState } from '../../records/queue-records.ts'
import { createQueueNames, type NumberedKey } from './queue-names.ts'
import { oneColumn } from '../tools/statements.ts'

type FirstRow = NumberedKey & { earliestAt: number; pool: string; route: string; domain: string; stream: Stream }

const MOST_KEYS = 100
/** Beyond the time of every row. */
const AFTER_ALL = Number.MAX_SAFE_INTEGER
const BEFORE_ALL: NumberedKey = { poolId: 0, routeId: 0, laneId: 0, isRetry: 0 }

export function createQueueKeys(database: Database) {
  const names = createQueueNames(database)
  const findNext = database.prepare<number[], FirstRow>(`
    select
      found.pool_id as poolId, found.route_id as routeId, found.lane_id as laneId, found.is_retry as isRetry,
      found.next_at as earliestAt, pools.name as pool, routes.name as route, lanes.domain, lanes.stream
    from (
      select pool_id, route_id, lane_id, is_retry, next_at
      from messages
      where state = 'waiting' and (pool_id, route_id, lane_id, is_retry, next_at) > (+?, +?, +?, +?, +?)
      order by pool_id, route_id, lane_id, is_retry, next_at
      limit +?
    ) as found
    cross join pools on pools.pool_id = found.pool_id
    cross join routes on routes.route_id = found.route_id
    cross join lanes on lanes.lane_id = found.lane_id`)
  const count = oneColumn(database)<number[], number>(`
    select count(*)
    from (
      select 1
      from messages
      where state = 'waiting' and pool_id = +? and route_id = +? and lane_id = +? and is_retry = +?
      limit +?
    ) as counted`)

  return (after: QueueKey | null, mostRows: number | 'none'): QueueKeyPage => {
    const keys: QueueKeyState[] = []
    let next: QueueKey | null = null
    let rows = 0
    let last = after === null ? BEFORE_ALL : names.knownKey(after)
    while (last !== undefined && keys.length < MOST_KEYS && (mostRows === 'none' || rows < mostRows)) {
      const first: FirstRow | undefined = findNext.get(...numbersOf(last), AFTER_ALL, 1)
      if (first === undefined) return { keys, next: null }
      const { isRetry, pool, route, domain, stream, earliestAt } = first
      const waiting = mostRows === 'none' ? 0 : (count.get(...numbersOf(first), mostRows) ?? 0)
      rows += waiting
      next = { pool, route, domain, stream, isRetry: isRetry === 1 }
      keys.push({ ...next, earliestAt, waiting })
      last = first
    }
    return { keys, next }
  }
}

const numbersOf = ({ poolId, routeId, laneId, isRetry }: NumberedKey): number[] => [poolId, routeId, laneId, isRetry]
