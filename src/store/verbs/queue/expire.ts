/**
 * The end of a lifetime: waiting messages past it become bounces of category `expired`, or `ambiguous` where they may
 * have arrived, whatever held them (delivery/README.md "Expiry"), each with its event.
 */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import { bouncedData } from '../../../mail/event.ts'
import { expiryBounce } from '../../../mail/expiry-bounce.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import { createBounceWriter, newEvent, createEventRecorder } from '../events/record-events.ts'
import { createEventStatistics } from '../ips/ip-statistics.ts'
import type { Verb } from '../tools/verb-types.ts'

interface ExpiredRow {
  seq: number
  pool: string
  domain: string
  id: Buffer
  recipient: string
  /** Start of its lifetime. */
  startsAt: number
  expiresAt: number
  lastReply: string | null
  possibleDuplicate: number
}

export function createExpireDue(database: Database): Verb<'expireDue'> {
  const findExpired = database.prepare<[number, number], ExpiredRow>(`
    select
      seq, id, recipient, expires_at as expiresAt,
      (select name from pools where pool_id = messages.pool_id) as pool,
      (select domain from lanes where lane_id = messages.lane_id) as domain,
      coalesce((select send_at from contents where content_id = messages.content_id), created_at) as startsAt,
      (select reply from attempts where message_seq = messages.seq order by at desc limit 1) as lastReply,
      possible_duplicate as possibleDuplicate
    from messages
    where state = 'waiting' and expires_at <= ?
    order by expires_at, seq
    limit +?`)
  const end = database.prepare<[number, number]>(`update messages set state = 'bounced', final_at = ? where seq = ?`)
  const addBounce = createBounceWriter(database)
  const beginStatistics = createEventStatistics(database)
  const events = createEventRecorder(database)

  return (now, limit) => {
    const rows = findExpired.all(now, limit)
    if (rows.length === 0) return []
    const statistics = beginStatistics()
    const happened = rows.map((row) => {
      const bounce = expiryBounce({
        lifetimeMilliseconds: row.expiresAt - row.startsAt,
        lastAnswer: row.lastReply,
        isPossibleDuplicate: row.possibleDuplicate === 1,
      })
      end.run(now, row.seq)
      addBounce(row.seq, bounce)
      statistics.bounced(row.seq, bounce.type, now)
      const data = bouncedData(identifierFromBytes('msg', row.id), row.recipient, bounce)
      return newEvent('email.bounced', data, row.seq, now)
    })
    statistics.flush(now)
    events.record(happened, now)
    return rows.map(({ id, pool, domain, possibleDuplicate }) => ({
      id: identifierFromBytes('msg', id),
      pool,
      domain,
      isCaptured: pool === CAPTURE_POOL,
      isPossibleDuplicate: possibleDuplicate === 1,
    }))
  }
}
