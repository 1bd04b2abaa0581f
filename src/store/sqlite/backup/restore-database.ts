/**
 * What a restored database must not do by itself (systemd/README.md "Restore"): its undelivered messages may have been
 * sent since the copy was made, so they are held; the allowance of today's warmup may have been used, so it counts as
 * used.
 *
 *   waiting, sending -> waiting, held   until `sternpost queue release` or `drop`
 *
 * The lifetime of what is held stands still between the moment of the copy and the restore: otherwise an old copy would
 * bounce it all at once.
 */
import type { Database } from 'better-sqlite3'
import { utcDay } from '../../../base/utc-day.ts'
import { HELD_UNTIL } from '../../records/queue-records.ts'
import { TOGETHER } from '../ips/allowance.ts'

export interface RestoredState {
  held: number
  /** Webhook deliveries that are due: receivers know repeated ones. */
  webhookDeliveries: number
  /** IPs whose warmup allowance of today counts as used. */
  warmingIps: number
}

interface SettleOptions {
  /** The moment of the copy. */
  mark: number
  now: number
  keepsAllowance: boolean
}

export function settleRestored(database: Database, { mark, now, keepsAllowance }: SettleOptions): RestoredState {
  const hold = database.prepare<[number, number]>(`
    update messages
    set state = 'waiting', next_at = ?, waiting_for = 'held', expires_at = expires_at + ?,
      possible_duplicate = max(possible_duplicate, state = 'sending'), dot_sent = 0, lease_epoch = null,
      claim = null, lease_until = null
    where state in ('waiting', 'sending')`)
  const countDeliveries = database
    .prepare<[], number>(`select count(*) from webhook_deliveries where state = 'pending'`)
    .pluck()
  return database
    .transaction((): RestoredState => ({
      held: hold.run(HELD_UNTIL, Math.max(0, now - mark)).changes,
      webhookDeliveries: countDeliveries.get() ?? 0,
      warmingIps: keepsAllowance ? 0 : useUpAllowance(database, utcDay(now)),
    }))
    .immediate()
}

/** The cap of the day becomes what is granted already: nothing is left, and nothing is counted that was not sent. */
function useUpAllowance(database: Database, day: string): number {
  // A suspended one may be resumed today.
  const findIps = database
    .prepare<[], string>(
      `
      select ip from egress_ips
      where state in ('warming', 'paused') or former_state in ('warming', 'paused')`,
    )
    .pluck()
  const close = database.prepare<[string, string]>('update warmup_days set cap = granted where ip = ? and day = ?')
  const add = database.prepare<[string, string, string]>(`
    insert into warmup_days (ip, day, isp, cap, granted, arrival_at, interval_milliseconds)
    values (?, ?, ?, 0, 0, 0, 0)
    on conflict do nothing`)
  const ips = findIps.all()
  for (const ip of ips) {
    close.run(ip, day)
    add.run(ip, day, TOGETHER)
  }
  return ips.length
}
