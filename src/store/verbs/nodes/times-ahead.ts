/**
 * Times that a clock wrote which ran far ahead and was set back (test/README.md "Clock"). What waits for them would
 * wait that long, so it is due at once; lifetimes and pauses that began then begin now. What somebody holds stays held,
 * and no message is due before its `send_at`.
 */
import type { Database } from '../../engine/database.ts'
import { DAY } from '../../../base/clock.ts'
import { HELD_UNTIL } from '../../records/queue-records.ts'

/** No wait of ours is as long. What a clock put off by less waits for that time. */
const BEYOND_EVERY_WAIT = 2 * DAY
/** An authority may ask for a week. */
const BEYOND_AN_AUTHORITY = 8 * DAY

/** Returns how many messages are due at once. */
export function createBringingBack(database: Database): (now: number) => number {
  // The bounds on pool_id and endpoint_id let the indexes of waiting rows answer.
  const messages = database.prepare<[{ now: number; beyond: number; wait: number; held: number }]>(`
    update messages indexed by messages_queue
    set next_at = @now, waiting_for = null,
      expires_at = expires_at - iif(
        (select send_at from contents where content_id = messages.content_id) is null, max(created_at - @now, 0), 0)
    where state = 'waiting' and pool_id > 0 and next_at > @beyond and next_at < @held
      and coalesce((select send_at from contents where content_id = messages.content_id), 0) + @wait < next_at`)
  const deliveries = database.prepare<[number, number]>(`
    update webhook_deliveries set next_at = ? where state = 'pending' and endpoint_id > 0 and next_at > ?`)
  const domains = database.prepare<[number, number]>(`
    update domains set next_check_at = ? where next_check_at > ?`)
  const certificates = database.prepare<[number, number]>(`
    update certificates set next_try_at = ? where next_try_at > ?`)
  const pauses = database.prepare<[{ now: number; beyond: number }]>(`
    update egress_ips set until_at = until_at - (since - @now), since = @now
    where until_at is not null and since > @beyond`)

  return (now) => {
    const beyond = now + BEYOND_EVERY_WAIT
    for (const checks of [deliveries, domains]) checks.run(now, beyond)
    certificates.run(now, now + BEYOND_AN_AUTHORITY)
    pauses.run({ now, beyond })
    return messages.run({ now, beyond, wait: BEYOND_EVERY_WAIT, held: HELD_UNTIL }).changes
  }
}
