/**
 * What keeps the queue in order beside the scheduler: messages of removed pools, rows that should have moved long ago,
 * and how much waits. Each is done in parts or bounded, so that none holds the store for long.
 */
import type { Database } from '../../engine/database.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import { createQueueNames } from './queue-names.ts'
import type { WalkPosition } from './waiting-rows.ts'
import { askAhead, foundOfEach, oneColumn } from '../tools/statements.ts'
import type { Verb } from '../tools/verb-types.ts'

/** Rows of one part: about 5 ms. */
const MOST_MOVED = 500

/** Rows under lease move too: they come back into the new pool. */
export function createMoveOrphans(database: Database) {
  const names = createQueueNames(database)
  // The IP that a row kept may be of a node that sends nothing of this pool.
  const moveWaiting = database.prepare<[number, number, number]>(`
    update messages
    set pool_id = ?, keep_ip_until = null
    where seq in (select seq from messages where state = 'waiting' and pool_id = ? limit +?)`)
  // The bound on lease_until is what lets the partial index answer.
  const moveLeased = database.prepare<[number, number]>(`
    update messages set pool_id = ? where state = 'sending' and lease_until > 0 and pool_id = ?`)
  return (known: string[], target: string) => {
    const kept = [...known, target, CAPTURE_POOL]
    const moved: { pool: string; messages: number }[] = []
    let room = MOST_MOVED
    for (const { poolId, name } of names.pools()) {
      if (kept.includes(name)) continue
      if (room === 0) return { moved, isDone: false }
      const targetId = names.poolId(target)
      const { changes } = moveWaiting.run(targetId, poolId, room)
      const messages = changes + moveLeased.run(targetId, poolId).changes
      if (messages > 0) moved.push({ pool: name, messages })
      room -= changes
    }
    return { moved, isDone: room > 0 }
  }
}

/** Beyond this many the exact number says nothing more. */
const MOST_WATCHED = 10_000

export function createWatchQueue(database: Database): Verb<'watchQueue'> {
  const countOverdue = oneColumn(database)<[number, number], number>(`
    select count(*)
    from (select 1 from messages where state = 'waiting' and expires_at <= ? limit +?) as overdue`)
  // While it is leased, next_at says since when.
  const countStuck = oneColumn(database)<[number], number>(`
    select count(*) from messages where state = 'sending' and lease_until > 0 and next_at <= ?`)
  return (overdueBefore, leasedBefore) => ({
    overdue: countOverdue.get(overdueBefore, MOST_WATCHED) ?? 0,
    stuck: countStuck.get(leasedBefore) ?? 0,
  })
}

/** Rows that one part counts along the index of lanes: about 2 ms. */
const MOST_COUNTED = 10_000
/** And lanes: those without a row cost a seek each. */
const MOST_LANES = 2_000

/** How many rows wait, lane by lane, in parts. */
export function createCountWaiting(database: Database) {
  const findLanes = oneColumn(database)<[number, number], number>(`
    select lane_id from lanes where lane_id >= ? order by lane_id limit +?`)
  const count = database.prepare<[number, number, number], { found: number; last: number | null }>(`
    select count(*) as found, max(seq) as last
    from (
      select seq from messages where state = 'waiting' and lane_id = ? and seq > ? order by seq limit +?
    ) as counted`)
  return (after: WalkPosition | null): { waiting: number; next: WalkPosition | null } => {
    const lanes = findLanes.all(after?.laneId ?? 0, MOST_LANES)
    const ask = (laneId: number, most: number) =>
      askAhead(count, laneId, laneId === after?.laneId ? after.seq : 0, most)
    let waiting = 0
    const each = foundOfEach(lanes, ask, countedOf, () => MOST_COUNTED - waiting)
    for (const [laneId, rows] of each) {
      waiting += countedOf(rows)
      if (waiting >= MOST_COUNTED) return { waiting, next: { laneId, seq: rows[0]?.last ?? 0 } }
    }
    const lastLane = lanes[MOST_LANES - 1]
    return { waiting, next: lastLane === undefined ? null : { laneId: lastLane + 1, seq: 0 } }
  }
}

const countedOf = ([row]: readonly { found: number }[]): number => row?.found ?? 0

export function createCountSending(database: Database): () => number {
  const count = oneColumn(database)<[], number>(`
    select count(*) from messages where state = 'sending' and lease_until > 0`)
  return () => count.get() ?? 0
}
