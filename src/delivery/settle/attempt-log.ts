/**
 * The one log line of every try, and its count in the metrics (health/README.md "Metrics and alerts", base/README.md
 * "Logging"); what is captured counts nowhere. Never throws.
 */
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { DeliveryAttempt, DeliveryOutcome } from '../../mail/reply/delivery-outcome.ts'
import { shownRecipient, shownReply, type ShownRecipients } from '../../mail/shown-recipient.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { Judgement } from './judge-reply.ts'

type LoggedTry = { message: ClaimedMessage; attempt: DeliveryAttempt; judgement: Judgement; provider: string | null }

const MOST_LOGGED_REPLY_CHARACTERS = 512
const MILLISECONDS_PER_SECOND = 1_000
/** Of a reply of another server (RFC 5321 §4.2.1); reasons in our own words begin otherwise. */
const FIRST_DIGITS = '2345'

const PHRASES: Readonly<Record<DeliveryOutcome['kind'], string>> = {
  delivered: 'message delivered',
  deferred: 'message deferred',
  bounced: 'message bounced',
  expired: 'message expired',
  'path-failed': 'path failed',
  ambiguous: 'final answer lost',
}

type AttemptLogOptions = { logger: Logger; metrics: Metrics; recipients: () => ShownRecipients }

/** `recipients`: `log.recipients`. */
export function createAttemptLog({ logger, metrics, recipients }: AttemptLogOptions) {
  return ({ message, attempt, judgement, provider }: LoggedTry): void => {
    const { outcome } = judgement
    const shown = recipients()
    if (!message.isCaptured) count(metrics, { message, attempt, judgement, provider })
    logger[outcome.kind === 'ambiguous' ? 'warn' : 'info'](
      {
        message_id: message.id,
        domain: message.domain,
        pool: message.pool,
        recipient: shownRecipient(message.recipient, message.recipientDomain, shown),
        ip: attempt.ip,
        local_address: attempt.localAddress,
        provider,
        mx: attempt.host,
        remote_address: attempt.remoteAddress,
        attempt: message.attempts + 1,
        stage: attempt.stage,
        reply: shownReply(attempt.reply, shown).slice(0, MOST_LOGGED_REPLY_CHARACTERS),
        code: judgement.code,
        tls: attempt.tls?.protocol ?? null,
        ms: attempt.durationMilliseconds,
        outcome: outcome.kind,
        category: judgement.category,
        rule: judgement.rule,
        ...('retryAt' in outcome ? { next_at: outcome.retryAt } : {}),
      },
      PHRASES[outcome.kind],
    )
  }
}

function count(metrics: Metrics, { message, attempt, judgement: { outcome }, provider: known }: LoggedTry): void {
  const provider = known ?? 'other'
  metrics.deliveries.inc({ result: resultLabel(outcome.kind), pool: message.pool, ip: attempt.ip ?? 'none', provider })
  if (attempt.host !== null) {
    metrics.deliveryAttemptSeconds.observe({ provider }, attempt.durationMilliseconds / MILLISECONDS_PER_SECOND)
    const firstDigit = attempt.reply.charAt(0)
    if (FIRST_DIGITS.includes(firstDigit)) {
      metrics.smtpReplies.inc({ class: firstDigit, stage: attempt.stage, provider })
    }
  }
  if ('bounce' in outcome) metrics.bounces.inc({ type: outcome.bounce.type, provider })
  if (outcome.kind === 'ambiguous') metrics.uncertainDeliveries.inc()
  if (outcome.kind !== 'delivered') return
  const seconds = (attempt.at + attempt.durationMilliseconds - message.acceptedAt) / MILLISECONDS_PER_SECOND
  metrics.deliveryLatencySeconds.observe({ pool: message.pool }, Math.max(0, seconds))
}

/** The label has four values: what is tried again counts as deferred. */
function resultLabel(kind: DeliveryOutcome['kind']): string {
  return kind === 'path-failed' || kind === 'ambiguous' ? 'deferred' : kind
}
