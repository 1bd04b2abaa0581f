/**
 * How the server is, for `GET /health` (contract.md 15). Never rejects.
 */
import { toUnixSeconds } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import type { HealthReport } from '../http/features.ts'
import type { Store } from '../store/store.ts'

export async function healthReport(store: Store, clock: Clock, canSend: boolean): Promise<HealthReport> {
  const now = clock.now()
  const smtpOut = canSend ? 'ok' : 'no IP can send'
  // A store that does not answer takes no mail.
  const queue = await store.queueSummary(now).catch(() => null)
  if (queue === null) {
    return { status: 'unavailable', queue_depth: 0, oldest_due_seconds: 0, db: 'no answer', smtp_out: smtpOut }
  }
  const { waiting, sending, oldestDueAt } = queue
  return {
    status: canSend ? 'ok' : 'degraded',
    queue_depth: waiting + sending,
    oldest_due_seconds: oldestDueAt === null ? 0 : toUnixSeconds(Math.max(0, now - oldestDueAt)),
    db: 'ok',
    smtp_out: smtpOut,
  }
}
