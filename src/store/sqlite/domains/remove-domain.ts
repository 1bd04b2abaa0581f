/**
 * Removing a domain: its row and keys stay for the mail that waits, or that mail is canceled.
 *
 *   waiting -> canceled   removed with `purge`; also what was under way then and came back to the queue
 *
 * One transaction cancels so many messages at most: whoever purges a million of them holds up nobody's acceptance. The
 * row remembers which messages it is about, so that a crash between two parts loses none of them, and mail of a later
 * domain of the same name is not meant.
 */
import type { Database } from 'better-sqlite3'
import { createCanceling, type CanceledRow } from '../queue/cancel.ts'
import { createLivingDomain } from './domain-rows.ts'
import { oneColumn } from '../engine/statements.ts'
import type { Verb } from '../engine/verb-types.ts'

export function createRemoveDomain(database: Database): Verb<'removeDomain'> {
  const find = createLivingDomain(database)
  const remove = database.prepare<[number, number, number]>(`
    update domains
    set removed_at = ?, next_check_at = null,
      purged_through = case when ? then (select coalesce(max(seq), 0) from messages) end
    where domain_id = ?`)
  const count = createQueuedCount(database)
  return ({ name, now, purge }) => {
    const found = find(name)
    if (found === null) return null
    remove.run(now, Number(purge), found.domainId)
    return { queuedMessages: count(name) }
  }
}

/** Messages of a sending domain that have not ended. */
export function createQueuedCount(database: Database): Verb<'queuedMessages'> {
  const countWaiting = oneColumn(database)<[string], number>(`
    select count(*)
    from lanes
    cross join messages on messages.lane_id = lanes.lane_id
    where lanes.domain = ? and messages.state = 'waiting'`)
  // The bound on lease_until is what lets the partial index answer.
  const countSending = oneColumn(database)<[string], number>(`
    select count(*)
    from messages
    where state = 'sending' and lease_until > 0 and lane_id in (select lane_id from lanes where domain = ?)`)
  return (domain) => (countWaiting.get(domain) ?? 0) + (countSending.get(domain) ?? 0)
}

interface PurgedLane {
  laneId: number
  purgedThrough: number
}

export function createCancelPurged(database: Database): Verb<'cancelPurged'> {
  const findLanes = database.prepare<[], PurgedLane>(`
    select lanes.lane_id as laneId, domains.purged_through as purgedThrough
    from domains
    cross join lanes on lanes.domain = domains.name
    where domains.purged_through is not null`)
  const findWaiting = database.prepare<[number, number, number], CanceledRow>(`
    select seq, id, recipient
    from messages
    where state = 'waiting' and lane_id = ? and seq <= ?
    limit +?`)
  const cancel = createCanceling(database)

  return (now, limit) => {
    const rows: CanceledRow[] = []
    for (const { laneId, purgedThrough } of findLanes.all()) {
      if (rows.length < limit) rows.push(...findWaiting.all(laneId, purgedThrough, limit - rows.length))
    }
    cancel(rows, now)
    return rows.length
  }
}
