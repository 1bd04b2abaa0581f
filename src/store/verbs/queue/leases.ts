/**
 * Rows under lease: kept, marked, given back, freed after a death (store/README.md "Leases and claims", "The dot mark
 * and recovery"). Every verb shows epoch and claim: who shows older ones changes nothing.
 *
 *   sending -> waiting   unclaim (no attempt), beginEpoch (its holder died), recoverLapsedLeases (it froze)
 */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import type { EpochStart } from '../../records/claim-records.ts'
import { createAllowanceRefund } from '../ips/allowance.ts'
import { createQueueNames } from './queue-names.ts'
import { afterCommit } from '../tools/late-answer.ts'
import { oneColumn } from '../tools/statements.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'

export function createLeaseWrites(database: Database) {
  const names = createQueueNames(database)
  const refundAllowance = createAllowanceRefund(database)
  const release = database.prepare<(string | number | null)[]>(`
    update messages
    set state = 'waiting', next_at = ?, waiting_for = ?, route_id = coalesce(?, route_id),
      possible_duplicate = max(possible_duplicate, ?), dot_sent = 0, lease_epoch = null, claim = null,
      lease_until = null
    where seq = ? and state = 'sending' and lease_epoch = ? and claim = ?`)
  // Only a row that is sending has an epoch and a claim; named as well, its state leads PostgreSQL to a larger index.
  const mark = database.prepare<[number, number, number]>(`
    update messages set dot_sent = 1 where seq = ? and lease_epoch = ? and claim = ?`)
  const renew = database.prepare<[number, number, number, number]>(`
    update messages set lease_until = ? where seq = ? and state = 'sending' and lease_epoch = ? and claim = ?`)
  const raise = oneColumn(database)<[], number>(`
    update meta set value = value + 1 where name = 'epoch' returning value`)
  const findNewest = oneColumn(database)<[], number>(
    'select created_at from messages where seq = (select max(seq) from messages)',
  )
  const free = createFreeing(database)
  const releaseDeliveries = database.prepare<[number]>(`
    update webhook_deliveries
    set next_at = ?, lease_epoch = null
    where lease_epoch is not null and state = 'pending'`)

  return {
    unclaim({ epoch, rows }) {
      const released = rows.map(({ key, claim, nextAt, waitingFor, route, isPossibleDuplicate }) => {
        const routeId = route === undefined ? null : names.routeId(route)
        const doubt = isPossibleDuplicate === true ? 1 : 0
        return release.run(nextAt, waitingFor ?? null, routeId, doubt, key, epoch, claim)
      })
      for (const [index, { refund }] of rows.entries()) {
        if (refund !== undefined && released[index]?.changes === 1) refundAllowance(refund)
      }
    },
    markDotSent(epoch, rows) {
      const marked = rows.map(({ key, claim }) => mark.run(key, epoch, claim))
      return afterCommit(() => {
        const stale = rows.filter((_, index) => marked[index]?.changes === 0)
        return { stale: stale.map(({ claim }) => claim) }
      })
    },
    /** Row by row, as their holder names them: a row that nobody holds any more lapses. */
    renewLeases(epoch, rows, leaseUntil) {
      for (const { key, claim } of rows) renew.run(leaseUntil, key, epoch, claim)
    },
    beginEpoch(now, uncertainAt) {
      releaseDeliveries.run(now)
      const freed = free(Number.MAX_SAFE_INTEGER, now, uncertainAt)
      return { epoch: raise.get() ?? 0, ...freed, newestAt: findNewest.get() ?? null }
    },
    recoverLapsedLeases(leasesBefore, now, uncertainAt) {
      const { recovered, uncertain } = free(leasesBefore, now, uncertainAt)
      return recovered + uncertain
    },
  } satisfies SomeVerbs
}

export function createLeasedRows(database: Database): Verb<'leasedRows'> {
  const find = database.prepare<
    [number, number, number, number],
    { key: number; claim: number; id: Buffer; since: number; isMarked: number; leaseUntil: number }
  >(`
    select seq as key, claim, id, next_at as since, dot_sent as isMarked, lease_until as leaseUntil
    from messages
    where state = 'sending' and (lease_until, seq) > (?, ?) and lease_epoch = +?
    order by lease_until, seq
    limit +?`)
  return (epoch, after, limit) => {
    const found = find.all(after?.leaseUntil ?? 0, after?.key ?? 0, epoch, limit)
    const last = found.length < limit ? undefined : found.at(-1)
    return {
      rows: found.map(({ key, claim, id, since, isMarked }) => ({
        key,
        claim,
        id: identifierFromBytes('msg', id),
        since,
        isMarked: isMarked === 1,
      })),
      next: last === undefined ? null : { leaseUntil: last.leaseUntil, key: last.key },
    }
  }
}

/** Frees the rows whose lease ends by this time. */
function createFreeing(database: Database) {
  const release = database.prepare<[number, number, number, number]>(`
    update messages
    set state = 'waiting', next_at = ?, waiting_for = null, possible_duplicate = max(possible_duplicate, ?),
      dot_sent = 0, lease_epoch = null, claim = null, lease_until = null
    where state = 'sending' and lease_until <= ? and dot_sent = ?`)
  return (leasesBefore: number, now: number, uncertainAt: number): Omit<EpochStart, 'epoch' | 'newestAt'> => {
    const recovered = release.run(now, 0, leasesBefore, 0).changes
    const uncertain = release.run(uncertainAt, 1, leasesBefore, 1).changes
    return { recovered, uncertain }
  }
}
