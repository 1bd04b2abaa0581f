/**
 * Counts for metrics, in one short read: about 10 ms at the most. Where more than MOST_COUNTED deliveries wait, or are
 * dead, the exact number says nothing more and is not looked for; the oldest is then that of those that were looked at.
 */
import type { Database } from '../../engine/database.ts'
import type { StoreFigures } from '../../store.ts'
import { oneColumn } from '../tools/statements.ts'
import { identifierTime } from '../tools/stored-identifier.ts'
import type { Verb } from '../tools/verb-types.ts'

const MOST_COUNTED = 50_000
/** So many of each endpoint are looked at, however many another one has. */
const LEAST_LOOKED_AT = 1_000

export function createFigures(database: Database, databaseSize: Verb<'databaseSize'>): Verb<'figures'> {
  // One for each message under a lease: a few thousand at the most.
  const poolsOfSending = oneColumn(database)<[], string>(`
    select pools.name
    from messages
    cross join pools on pools.pool_id = messages.pool_id
    where messages.state = 'sending' and messages.lease_until > 0`)
  const webhooks = createWebhookFigures(database)
  return () => {
    const { fileBytes, logBytes } = databaseSize()
    return {
      database: fileBytes,
      writeAheadLog: logBytes,
      sending: countsOf(poolsOfSending.iterate()),
      webhooks: webhooks(),
    }
  }
}

function countsOf(pools: Iterable<string>): StoreFigures['sending'] {
  const counts = new Map<string, number>()
  for (const pool of pools) counts.set(pool, (counts.get(pool) ?? 0) + 1)
  return [...counts].map(([pool, messages]) => ({ pool, messages }))
}

function createWebhookFigures(database: Database): () => StoreFigures['webhooks'] {
  const findEndpoints = database.prepare<[], { number: number; enabledAt: number; isEnabled: number }>(`
    select endpoint_id as number, enabled_at as enabledAt, status = 'enabled' as isEnabled
    from webhook_endpoints
    where removed_at is null`)
  const countPending = database.prepare<[number, number], { count: number; first: number | null }>(`
    select count(*) as count, min(delivery_seq) as first
    from (select delivery_seq from webhook_deliveries where state = 'pending' and endpoint_id = ? limit +?) as pending`)
  // The second condition on the state is what lets the partial index answer. The newest are looked at: after an outage
  // an endpoint may have millions that ended before it was enabled again.
  const countDead = oneColumn(database)<[number, number, number], number>(`
    select count(*)
    from (
      select ended_at as endedAt from webhook_deliveries
      where state = 'failed' and state <> 'pending' and endpoint_id = ?
      order by id desc
      limit +?
    ) as dead
    where endedAt > ?`)
  const findId = oneColumn(database)<[number], Buffer>('select id from webhook_deliveries where delivery_seq = +?')
  return () => {
    const figures = { pending: 0, deadLetters: 0 }
    let oldest: number | null = null
    for (const { number, enabledAt, isEnabled } of findEndpoints.all()) {
      const pending = countPending.get(number, leftOf(figures.pending))
      figures.pending += pending?.count ?? 0
      figures.deadLetters += countDead.get(number, leftOf(figures.deadLetters), enabledAt) ?? 0
      const first = pending?.first ?? null
      if (first !== null && isEnabled === 1) oldest = oldest === null ? first : Math.min(oldest, first)
    }
    // A replay is made long after its event.
    const id = oldest === null ? undefined : findId.get(oldest)
    return { ...figures, oldestMadeAt: id === undefined ? null : identifierTime(id) }
  }
}

function leftOf(counted: number): number {
  return Math.max(LEAST_LOOKED_AT, MOST_COUNTED - counted)
}
