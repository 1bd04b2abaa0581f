/**
 * How the server is, for `GET /health` (http/README.md "Health, metrics, OpenAPI"). Never rejects.
 */
import { toUnixSeconds } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import type { Egress } from '../egress/egress.ts'
import type { HealthKeeper } from '../health/health-keeper.ts'
import type { HealthReport } from '../http/exchange/features.ts'
import type { Store } from '../store/store.ts'

const OK = 'ok'

/** Why no mail leaves, without names and addresses; `ok`: it does. */
export function smtpOut(egress: Pick<Egress, 'sendingPools'>, health: Pick<HealthKeeper, 'isPort25Blocked'>): string {
  if (egress.sendingPools().length === 0) return 'no IP can send'
  return health.isPort25Blocked() ? 'port 25 is blocked' : OK
}

export async function healthReport(store: Store, clock: Clock, smtpOut: string): Promise<HealthReport> {
  const now = clock.now()
  // A store that does not answer takes no mail.
  const queue = await store.queueSummary(now).catch(() => null)
  if (queue === null) {
    return { status: 'unavailable', queue_depth: 0, oldest_due_seconds: 0, db: 'no answer', smtp_out: smtpOut }
  }
  const { waiting, sending, oldestDueAt } = queue
  return {
    status: smtpOut === OK ? 'ok' : 'degraded',
    queue_depth: waiting + sending,
    oldest_due_seconds: oldestDueAt === null ? 0 : toUnixSeconds(Math.max(0, now - oldestDueAt)),
    db: 'ok',
    smtp_out: smtpOut,
  }
}
