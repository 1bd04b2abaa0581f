/**
 * Rows under lease: kept, marked, given back, freed after a death (store/README.md "Leases and claims", "The dot mark
 * and recovery"). Every verb shows epoch and claim: who shows older ones changes nothing.
 *
 *   sending -> waiting   unclaim (no attempt), recoverLapsedLeases (its holder froze); when it died: nodes/nodes.ts
 */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import { createAllowanceRefund } from '../ips/allowance.ts'
import { createFreeing } from './freed-leases.ts'
import { createQueueNames } from './queue-names.ts'
import { afterCommit } from '../tools/late-answer.ts'
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
  const freeing = createFreeing(database)

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
    recoverLapsedLeases(leasesBefore, now, uncertainAt, epoch = null) {
      const { recovered, uncertain } = freeing.lapsed(leasesBefore, epoch, now, uncertainAt)
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
