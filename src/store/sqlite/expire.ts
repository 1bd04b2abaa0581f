/**
 * The end of a lifetime: waiting messages past it become bounces of category `expired`, whatever held them
 * (engine.md 4.4), each with its event.
 */
import type { Database } from 'better-sqlite3'
import { HOUR, MINUTE, SECOND } from '../../base/clock.ts'
import { identifierFromBytes, newIdentifier } from '../../base/identifier.ts'
import type { Bounce } from '../../mail/delivery-outcome.ts'
import { bouncedData } from '../../mail/event.ts'
import { createBounceWriter } from './bounces.ts'
import { createEventRecorder } from './record-events.ts'
import type { RecordedEvent } from './record-events.ts'

interface ExpiredRow {
  seq: number
  id: Buffer
  recipient: string
  createdAt: number
  expiresAt: number
  lastReply: string | null
}

/** RFC 3463 §3.5, X.4.7: delivery time expired. */
const EXPIRED_CODE = '4.4.7'
/** See Bounce.description. */
const MOST_DESCRIPTION_CHARACTERS = 1_000

export function createExpireDue(database: Database): (request: { now: number; limit: number }) => number {
  const findExpired = database.prepare<[number, number], ExpiredRow>(`
    select
      seq, id, recipient, created_at as createdAt, expires_at as expiresAt,
      (select reply from attempts where message_seq = messages.seq order by at desc limit 1) as lastReply
    from messages
    where state = 'waiting' and expires_at <= ?
    order by expires_at
    limit ?`)
  const end = database.prepare<[number, number]>(`update messages set state = 'bounced', final_at = ? where seq = ?`)
  const addBounce = createBounceWriter(database)
  const events = createEventRecorder(database)

  return ({ now, limit }) => {
    const rows = findExpired.all(now, limit)
    if (rows.length === 0) return 0
    const happened = rows.map((row): RecordedEvent => {
      const bounce = expiryOf(row)
      end.run(now, row.seq)
      addBounce(row.seq, bounce)
      const data = bouncedData(identifierFromBytes('msg', row.id), row.recipient, bounce)
      return { id: newIdentifier('evt', now), kind: 'email.bounced', at: now, data, messageKey: row.seq }
    })
    events.record(happened, now)
    return rows.length
  }
}

function expiryOf(row: ExpiredRow): Bounce {
  const sentence = `not delivered within ${lifetimeText(row.expiresAt - row.createdAt)}`
  const description = row.lastReply === null ? sentence : `${sentence}; last answer: ${row.lastReply}`
  return {
    type: 'soft',
    category: 'expired',
    code: EXPIRED_CODE,
    description: description.slice(0, MOST_DESCRIPTION_CHARACTERS),
  }
}

/** In the largest unit that is at least one, so that three days read as `72 h` and not as milliseconds. */
function lifetimeText(milliseconds: number): string {
  if (milliseconds >= HOUR) return `${Math.round(milliseconds / HOUR)} h`
  if (milliseconds >= MINUTE) return `${Math.round(milliseconds / MINUTE)} min`
  return `${Math.round(milliseconds / SECOND)} s`
}
