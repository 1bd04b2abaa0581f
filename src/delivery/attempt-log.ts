/**
 * The one log line of every try, and its count in the metrics (operations.md 8 and 9); what is captured counts nowhere.
 * Never throws.
 */
import { createHash } from 'node:crypto'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { DeliveryAttempt, DeliveryOutcome } from '../mail/delivery-outcome.ts'
import type { ClaimedMessage } from '../store/records.ts'
import type { Judgement } from './judge-reply.ts'

export interface LoggedTry {
  message: ClaimedMessage
  attempt: DeliveryAttempt
  judgement: Judgement
  provider: string | null
}

const MOST_LOGGED_REPLY_CHARACTERS = 512
const HASH_CHARACTERS = 16

const PHRASES: Readonly<Record<DeliveryOutcome['kind'], string>> = {
  delivered: 'message delivered',
  deferred: 'message deferred',
  bounced: 'message bounced',
  expired: 'message expired',
  'path-failed': 'path failed',
  ambiguous: 'final answer lost',
}

export function createAttemptLog(options: {
  logger: Logger
  metrics: Metrics
  /** `log.recipients`. */
  recipients: 'full' | 'domain' | 'hash'
}): (tried: LoggedTry) => void {
  const { logger, metrics, recipients } = options
  return ({ message, attempt, judgement, provider }) => {
    const { outcome } = judgement
    if (!message.isCaptured) {
      metrics.deliveries.inc({
        result: resultLabel(outcome.kind), pool: message.pool, ip: attempt.ip ?? 'none', provider: provider ?? 'other',
      })
      if ('bounce' in outcome) metrics.bounces.inc({ type: outcome.bounce.type, provider: provider ?? 'other' })
    }
    logger[outcome.kind === 'ambiguous' ? 'warn' : 'info']({
      message_id: message.id, domain: message.domain, pool: message.pool,
      recipient: shownRecipient(message, recipients),
      ip: attempt.ip, local_address: attempt.localAddress, provider, mx: attempt.host,
      remote_address: attempt.remoteAddress,
      attempt: message.attempts + 1, stage: attempt.stage, reply: attempt.reply.slice(0, MOST_LOGGED_REPLY_CHARACTERS),
      code: judgement.code, tls: attempt.tls?.protocol ?? null, ms: attempt.durationMilliseconds,
      outcome: outcome.kind, category: judgement.category, rule: judgement.rule,
      ...('retryAt' in outcome ? { next_at: outcome.retryAt } : {}),
    }, PHRASES[outcome.kind])
  }
}

/** The label has four values: what is tried again counts as deferred. */
function resultLabel(kind: DeliveryOutcome['kind']): string {
  return kind === 'path-failed' || kind === 'ambiguous' ? 'deferred' : kind
}

function shownRecipient(message: ClaimedMessage, shown: 'full' | 'domain' | 'hash'): string {
  if (shown === 'full') return message.recipient
  if (shown === 'domain') return message.recipientDomain
  return createHash('sha256').update(message.recipient).digest('hex').slice(0, HASH_CHARACTERS)
}
