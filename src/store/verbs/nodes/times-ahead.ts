/**
 * Waits until a time that a clock wrote which ran far ahead and was set back (test/README.md "Clock"). They end: at
 * worst something is tried early. Lifetimes stay, for it may be the present clock that is wrong. What somebody holds
 * stays held, and no message is due before its `send_at`. What IPs sent in hours to come is not of their last hour.
 */
import type { Database } from '../../engine/database.ts'
import { DAY, HOUR, MINUTE } from '../../../base/clock.ts'
import { HELD_UNTIL } from '../../records/queue-records.ts'
import type { Verb } from '../tools/verb-types.ts'

/** No wait of ours is as long: lifetimes and what an authority may ask for end within a week. A shorter one goes on. */
const BEYOND_EVERY_WAIT = 8 * DAY
/** What was accepted, tried or told further ahead than that was so by such a clock, and would wait for it. */
const AHEAD = 5 * MINUTE
/** So many are looked at for it: such a clock is mostly set right soon. */
const NEWEST = 10_000
const SEND_AT = `coalesce((select send_at from contents where content_id = messages.content_id), 0)`

export function createEndWaitsAhead(database: Database): Verb<'endWaitsAhead'> {
  const ofNewest = database.prepare<[Record<'now' | 'ahead' | 'held', number>]>(`
    update messages set next_at = max(@now, ${SEND_AT}), waiting_for = null, keep_ip_until = null
    where seq > (select max(seq) from messages) - ${NEWEST} and state = 'waiting' and created_at > @ahead
      and next_at > @ahead and next_at < @held and next_at > ${SEND_AT}`)
  // A wait that is shorter than the time of the try was begun since, by a clock that was right.
  const ofTried = database.prepare<[Record<'now' | 'ahead' | 'held', number>]>(`
    update messages set next_at = max(@now, ${SEND_AT}), waiting_for = null, keep_ip_until = null
    where seq in (select message_seq from attempts where at > @ahead order by at desc limit ${NEWEST})
      and state = 'waiting' and next_at > (select max(at) from attempts where message_seq = messages.seq)
      and next_at < @held and next_at > ${SEND_AT}`)
  // The bounds on pool_id and endpoint_id let the indexes of waiting rows answer.
  const messages = database.prepare<[Record<'now' | 'beyond' | 'wait' | 'held' | 'limit', number>]>(`
    update messages set next_at = max(@now, ${SEND_AT}), waiting_for = null, keep_ip_until = null
    where seq in (
      select seq from messages indexed by messages_queue
      where state = 'waiting' and pool_id > 0 and next_at > @beyond and next_at < @held
        and next_at > ${SEND_AT} + @wait
      limit +@limit)`)
  const deliveries = database.prepare<[Record<'now' | 'ahead' | 'beyond', number>]>(`
    update webhook_deliveries set next_at = @now
    where state = 'pending' and endpoint_id > 0 and next_at > @ahead
      and (next_at > @beyond or next_at >= coalesce(
        (select max(at) from webhook_attempts where delivery_seq = webhook_deliveries.delivery_seq and at > @ahead),
        (select at from events where event_seq = webhook_deliveries.event_seq and at > @ahead and attempts = 0)))`)
  const domains = database.prepare<[number, number]>(`
    update domains set next_check_at = ? where next_check_at > ?`)
  const certificates = database.prepare<[number, number]>(`
    update certificates set next_try_at = ? where next_try_at > ?`)
  const pauses = database.prepare<[{ now: number; beyond: number }]>(`
    update egress_ips set until_at = until_at - (since - @now), since = @now
    where until_at is not null and since > @beyond`)
  const slots = database.prepare<[number]>(`
    delete from ip_slots where ip in (select ip from egress_ips) and slot_at > ?`)

  return (now, limit) => {
    const [ahead, beyond] = [now + AHEAD, now + BEYOND_EVERY_WAIT]
    deliveries.run({ now, ahead, beyond })
    for (const checks of [domains, certificates]) checks.run(now, beyond)
    pauses.run({ now, beyond })
    slots.run(now + HOUR)
    const written = { now, ahead, held: HELD_UNTIL }
    const changes = ofNewest.run(written).changes + ofTried.run(written).changes
    return changes + messages.run({ now, beyond, wait: BEYOND_EVERY_WAIT, held: HELD_UNTIL, limit }).changes
  }
}
