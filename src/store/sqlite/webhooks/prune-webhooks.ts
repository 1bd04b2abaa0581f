/**
 * Forgetting webhook deliveries whose time is over, with their attempts: those that ended long enough ago, and all of
 * removed endpoints, which go themselves at last. So many at most at a time. What is being posted stays until its lease
 * is over; the number of a deleted row may be given again, so results name their delivery.
 */
import type { Database } from 'better-sqlite3'
import { firstIdentifierAt } from '../engine/stored-identifier.ts'
import { createSwitchSecrets } from './webhook-endpoints.ts'
import { oneColumn } from '../engine/statements.ts'
import type { Verb } from '../engine/verb-types.ts'

interface EndpointRow {
  number: number
  isRemoved: number
}

/** Returns how many deliveries it deleted. */
export function createPruneWebhooks(database: Database): Verb<'pruneWebhooks'> {
  const switchSecrets = createSwitchSecrets(database)
  const findEndpoints = database.prepare<[], EndpointRow>(
    'select endpoint_id as number, removed_at is not null as isRemoved from webhook_endpoints',
  )
  const findEnded = oneColumn(database)<[number, string, Buffer, number, number], number>(`
    select delivery_seq
    from webhook_deliveries
    where endpoint_id = ? and state = ? and state <> 'pending' and id < ? and ended_at < ?
    limit +?`)
  const findOfEndpoint = oneColumn(database)<[number, number, number], number>(`
    select delivery_seq
    from webhook_deliveries
    where endpoint_id = ? and (lease_epoch is null or next_at <= ?)
    limit +?`)
  const forgetAttempts = database.prepare<[number]>('delete from webhook_attempts where delivery_seq = ?')
  const forgetDelivery = database.prepare<[number]>('delete from webhook_deliveries where delivery_seq = ?')
  const forgetEndpoint = database.prepare<[number]>(`
    delete from webhook_endpoints
    where endpoint_id = ?
      and not exists (select 1 from webhook_deliveries where endpoint_id = webhook_endpoints.endpoint_id)`)

  return ({ now, succeededBefore, failedBefore, limit }) => {
    switchSecrets(now)
    let left = limit
    const forget = (keys: readonly number[]): void => {
      for (const key of keys) {
        forgetAttempts.run(key)
        forgetDelivery.run(key)
      }
      left -= keys.length
    }
    const forgetEnded = (number: number, state: string, before: number): void =>
      // What was made later has not ended before.
      forget(findEnded.all(number, state, firstIdentifierAt(before), before, left))

    for (const { number, isRemoved } of findEndpoints.all()) {
      if (isRemoved === 0) {
        forgetEnded(number, 'succeeded', succeededBefore)
        forgetEnded(number, 'failed', failedBefore)
        forgetEnded(number, 'skipped', failedBefore)
      } else {
        forget(findOfEndpoint.all(number, now, left))
        forgetEndpoint.run(number)
      }
    }
    return limit - left
  }
}
