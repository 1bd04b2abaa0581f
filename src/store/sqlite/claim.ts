/**
 * Rows between the queue and the delivery threads: claimed under a lease, given back, freed after a death.
 *
 *   waiting -> sending      claimDue: due, unexpired, pool can send
 *   waiting -> suppressed   claimDue: the address came onto the suppression list meanwhile
 *   sending -> waiting      unclaim (no attempt), beginEpoch (its holder died), recoverLapsedLeases (it froze)
 *
 * The fence is the epoch: a counter raised at every start. Whoever shows an older one holds nothing any more.
 */
import type { Database } from 'better-sqlite3'
import { identifierFromBytes } from '../../base/identifier.ts'
import { CAPTURE_POOL, isSimulated } from '../../mail/simulator.ts'
import type { ClaimedMessage, ClaimRequest, EpochStart, UnclaimRequest } from '../records.ts'
import { createQueueNames } from './queue-names.ts'
import { createEventRecorder } from './record-events.ts'
import type { RecordedEvent } from './record-events.ts'
import { createSuppressedEnding, createSuppressionCheck } from './suppression-check.ts'

/** A message as its row has it, before its pool is known by name. `isListed`: its address is on some list. */
type DueRow = Omit<ClaimedMessage, 'id' | 'pool' | 'isCaptured'> & { id: Buffer; nextAt: number; isListed: number }

export function createClaimDue(database: Database): (request: ClaimRequest) => ClaimedMessage[] {
  const names = createQueueNames(database)
  // Whole rows at once: reading each by its number afterwards costs ten times as much.
  const findDue = database.prepare<[number, number, number, number], DueRow>(`
    select
      messages.seq as key, messages.id, messages.content_id as contentId, lanes.stream, lanes.domain,
      messages.recipient, messages.recipient_domain as recipientDomain, messages.attempts,
      messages.created_at as acceptedAt, messages.expires_at as expiresAt, messages.path_failures as pathFailures,
      messages.ambiguous_count as ambiguousCount, messages.sticky_ip as stickyIp, messages.next_at as nextAt,
      exists (select 1 from suppressions where address = messages.recipient) as isListed
    from messages
    cross join lanes on lanes.lane_id = messages.lane_id
    where messages.state = 'waiting' and messages.pool_id = ? and messages.next_at <= ? and messages.expires_at > ?
    order by messages.next_at
    limit ?`)
  const lease = database.prepare<[number, number, number]>(
    `update messages set state = 'sending', lease_epoch = ?, lease_until = ? where seq = ?`,
  )
  const endSuppressed = createSuppressedEnder(database)

  return ({ now, epoch, leaseUntil, pools, limit }) => {
    // One walk along the index for each pool: an `in` list would have to sort everything that is due.
    const due = pools.flatMap((pool) => {
      const poolId = names.knownPoolId(pool)
      return poolId === undefined ? [] : findDue.all(poolId, now, now, limit).map((row) => ({ ...row, pool }))
    })
    if (pools.length > 1) due.sort((left, right) => left.nextAt - right.nextAt)
    const messages = due.slice(0, limit).map(({ nextAt: _dueAt, ...row }) => ({
      ...row, id: identifierFromBytes('msg', row.id), isCaptured: row.pool === CAPTURE_POOL,
    }))
    const suppressed = endSuppressed(messages.filter((message) => message.isListed === 1), now)
    return messages.filter(({ key }) => !suppressed.has(key)).map(({ isListed: _isListed, ...message }) => {
      lease.run(epoch, leaseUntil, message.key)
      return message
    })
  }
}

/** Ends those of the listed messages that their own list keeps from being sent; returns their rows. */
function createSuppressedEnder(database: Database): (listed: ClaimedMessage[], now: number) => Set<number> {
  const findContent = database.prepare<[number], { isTest: number; list: string | null }>(
    'select is_test as isTest, unsubscribe_list as list from contents where content_id = ?',
  )
  const check = createSuppressionCheck(database)
  const end = database.prepare<[number, number]>(`update messages set state = 'suppressed', final_at = ? where seq = ?`)
  const endingOf = createSuppressedEnding(database)
  const events = createEventRecorder(database)
  return (listed, now) => {
    const suppressed = new Set<number>()
    const happened: RecordedEvent[] = []
    for (const { key, id, recipient, recipientDomain, contentId } of listed) {
      const content = findContent.get(contentId)
      // Whether a simulated recipient is suppressed was decided at acceptance.
      if (content === undefined || isSimulated(recipientDomain)) continue
      const reason = check(recipient, { isTest: content.isTest === 1, list: content.list })
      if (reason === null) continue
      suppressed.add(key)
      end.run(now, key)
      happened.push(...endingOf({ key, id, recipient, reason }, now))
    }
    if (happened.length > 0) events.record(happened, now)
    return suppressed
  }
}

export function createUnclaim(database: Database): (request: UnclaimRequest) => void {
  const release = database.prepare<[number, number, number, number]>(`
    update messages
    set state = 'waiting', next_at = ?, possible_duplicate = max(possible_duplicate, ?), lease_epoch = null,
      lease_until = null
    where seq = ? and state = 'sending' and lease_epoch = ?`)
  return ({ epoch, rows }) => {
    for (const { key, nextAt, isPossibleDuplicate } of rows) {
      release.run(nextAt, isPossibleDuplicate === true ? 1 : 0, key, epoch)
    }
  }
}

export function createRenewLeases(database: Database): (request: { epoch: number; leaseUntil: number }) => void {
  // The bound on lease_until is what lets the partial index answer.
  const renew = database.prepare<[number, number, number]>(`
    update messages
    set lease_until = ?
    where state = 'sending' and lease_until < ? and lease_epoch = ?`)
  return ({ epoch, leaseUntil }) => {
    renew.run(leaseUntil, leaseUntil, epoch)
  }
}

export function createBeginEpoch(database: Database): (now: number) => EpochStart {
  const raise = database
    .prepare<[], number>(`update meta set value = value + 1 where name = 'epoch' returning value`)
    .pluck()
  // Whether the final dot went out is not known: a second copy is possible, and said so. No attempt is counted.
  const releaseMessages = database.prepare<[number]>(`
    update messages
    set state = 'waiting', next_at = ?, possible_duplicate = 1, lease_epoch = null, lease_until = null
    where state = 'sending' and lease_until > 0`)
  const releaseDeliveries = database.prepare<[number]>(`
    update webhook_deliveries
    set next_at = ?, lease_epoch = null
    where lease_epoch is not null and state = 'pending'`)
  return (now) => {
    releaseDeliveries.run(now)
    return { epoch: raise.get() ?? 0, recovered: releaseMessages.run(now).changes }
  }
}

export function createRecoverLapsedLeases(database: Database): (now: number) => number {
  const recover = database.prepare<[number, number]>(`
    update messages
    set state = 'waiting', next_at = ?, possible_duplicate = 1, lease_epoch = null, lease_until = null
    where state = 'sending' and lease_until <= ?`)
  return (now) => recover.run(now, now).changes
}

export function createMoveOrphans(database: Database): (request: { known: string[]; target: string }) => number {
  const names = createQueueNames(database)
  const move = database.prepare<[number, number]>(
    `update messages set pool_id = ? where state = 'waiting' and pool_id = ?`,
  )
  return ({ known, target }) => {
    const kept = [...known, target, CAPTURE_POOL]
    const orphaned = names.pools().filter((pool) => !kept.includes(pool.name))
    if (orphaned.length === 0) return 0
    const targetId = names.poolId(target)
    return orphaned.reduce((moved, pool) => moved + move.run(targetId, pool.poolId).changes, 0)
  }
}

export function createEarliestDueAt(database: Database): (pools: string[]) => number | null {
  const names = createQueueNames(database)
  const findEarliest = database
    .prepare<[number], number | null>(`select min(next_at) from messages where state = 'waiting' and pool_id = ?`)
    .pluck()
  return (pools) => {
    const times = pools.flatMap((pool) => {
      const poolId = names.knownPoolId(pool)
      return poolId === undefined ? [] : [findEarliest.get(poolId) ?? Infinity]
    })
    const earliest = Math.min(...times)
    return Number.isFinite(earliest) ? earliest : null
  }
}
