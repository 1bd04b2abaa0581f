/**
 * How the service is: for `GET /health` (http/README.md "Health, metrics, OpenAPI"), and in one line for `systemctl
 * status`. Never rejects: a store that does not answer is part of the answer. Everybody may ask, so the walk over the
 * queue is one for all who ask within a short time.
 */
import { SECOND, toUnixSeconds, type Clock } from '../base/clock.ts'
import type { DiskGuard } from '../base/disk-guard.ts'
import { createSharedAnswers } from '../base/shared-answers.ts'
import { within } from '../base/within.ts'
import type { Egress } from '../egress/egress.ts'
import type { HealthKeeper } from '../health/health-keeper.ts'
import type { HealthReport } from '../http/exchange/features.ts'
import type { MailRefusal } from '../messages/accept/mail-refusal.ts'
import type { QueueSummary } from '../store/records/claim-records.ts'
import type { Store } from '../store/store.ts'

interface ServiceStatusParts {
  store: Pick<Store, 'queueSummary' | 'refusal'>
  egress: Pick<Egress, 'sendingPools'>
  disk: Pick<DiskGuard, 'deliverProblem'>
  health: Pick<HealthKeeper, 'isPort25Blocked'>
  clock: Clock
  realClock: Clock
  mailRefusal: MailRefusal
  /** The node takes no mail. */
  isDraining: () => boolean
}

export type ServiceStatus = ReturnType<typeof createServiceStatus>

/** Who asks has a patience too; a disk that stands still holds the store. */
const LONGEST_WAIT = 10 * SECOND
const OK = 'ok'
const REFUSES = 'the database refuses what is written'

export function createServiceStatus(parts: ServiceStatusParts) {
  const { store, egress, disk, health, clock, realClock, mailRefusal, isDraining } = parts
  const walks = createSharedAnswers<QueueSummary>()

  /** Null: the store does not answer. */
  async function queueNow(): Promise<(QueueSummary & { lateSeconds: number }) | null> {
    const walk = walks.get('queue', () => store.queueSummary(clock.now())).catch(() => null)
    const queue = (await within(walk, LONGEST_WAIT, realClock)) ?? null
    if (queue === null) return null
    const { oldestDueAt } = queue
    const now = clock.now()
    const lateSeconds = oldestDueAt === null ? 0 : toUnixSeconds(Math.max(0, now - oldestDueAt))
    return { ...queue, lateSeconds }
  }

  /** Why no mail leaves, without names and addresses; `ok`: it does. */
  function smtpOut(): string {
    if (egress.sendingPools().length === 0) return 'no IP can send'
    return disk.deliverProblem() ?? (health.isPort25Blocked() ? 'port 25 is blocked' : OK)
  }

  return {
    async describe(): Promise<string> {
      const queue = await queueNow()
      if (queue === null) return 'the database does not answer'
      const { waiting, sending, lateSeconds } = queue
      const smtp = smtpOut()
      const warnings = [
        ...(store.refusal() === null ? [] : [REFUSES]),
        ...(isDraining() ? ['the node drains'] : []),
        ...(smtp === OK ? [] : [smtp]),
      ]
      const late = lateSeconds > 0 ? `, the oldest due for ${lateSeconds} s` : ''
      return [`${waiting} waiting, ${sending} being sent${late}`, ...warnings].join('; ')
    },
    /** A balancer turns away from a node that is unavailable, with all links and opt-outs: so a full one is not. */
    async report(): Promise<HealthReport> {
      const [queue, refusal] = await Promise.all([queueNow(), within(mailRefusal(), LONGEST_WAIT, realClock)])
      const smtp = smtpOut()
      const mailIn = refusal?.reason ?? (store.refusal() === null ? OK : REFUSES)
      const about = { mail_in: mailIn, smtp_out: smtp }
      if (queue === null || refusal?.isStore === true) {
        return { status: 'unavailable', queue_depth: 0, oldest_due_seconds: 0, db: 'no answer', ...about }
      }
      const isWell = mailIn === OK && smtp === OK
      return {
        status: isDraining() ? 'unavailable' : isWell ? 'ok' : 'degraded',
        queue_depth: queue.waiting + queue.sending,
        oldest_due_seconds: queue.lateSeconds,
        db: OK,
        ...about,
      }
    },
  }
}
