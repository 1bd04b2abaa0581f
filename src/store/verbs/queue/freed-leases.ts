/**
 * Rows under a lease of nobody go back to the queue: their lease has lapsed, or no living node holds them
 * (store/README.md "The dot mark and recovery").
 */
import type { Database } from '../../engine/database.ts'
import type { FreedRows } from '../../records/node-records.ts'

type Freed = Pick<FreedRows, 'recovered' | 'uncertain'>

const LIVING = `select epoch from nodes where state = 'living'`

export function createFreeing(database: Database) {
  const release = (where: string): string => `
    update messages
    set state = 'waiting', next_at = ?, waiting_for = null, possible_duplicate = max(possible_duplicate, ?),
      dot_sent = 0, lease_epoch = null, claim = null, lease_until = null
    where state = 'sending' and ${where} and dot_sent = ?`
  const releaseLapsed = database.prepare<(number | null)[]>(
    release('lease_until <= ? and coalesce(lease_epoch, 0) = coalesce(?, lease_epoch, 0)'),
  )
  const releaseAbandoned = database.prepare<number[]>(
    release(`seq in (
      select seq from messages
      where state = 'sending' and lease_until > 0 and dot_sent = ? and coalesce(lease_epoch, 0) not in (${LIVING})
      order by lease_until limit +?)`),
  )
  const releaseDeliveries = database.prepare<[number]>(`
    update webhook_deliveries
    set next_at = ?, lease_epoch = null
    where lease_epoch is not null and state = 'pending' and lease_epoch not in (${LIVING})`)

  return {
    /** Those of an epoch (null: of any) whose lease ends by this time. */
    lapsed(leasesBefore: number, epoch: number | null, now: number, uncertainAt: number): Freed {
      return {
        recovered: releaseLapsed.run(now, 0, leasesBefore, epoch, 0).changes,
        uncertain: releaseLapsed.run(uncertainAt, 1, leasesBefore, epoch, 1).changes,
      }
    },
    /** Those that no living node holds; of messages at most so many of each kind. */
    abandoned(now: number, uncertainAt: number, limit: number): FreedRows {
      return {
        recovered: releaseAbandoned.run(now, 0, 0, limit, 0).changes,
        uncertain: releaseAbandoned.run(uncertainAt, 1, 1, limit, 1).changes,
        webhooks: releaseDeliveries.run(now).changes,
      }
    },
  }
}
