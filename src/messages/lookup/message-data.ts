/**
 * A message, its attempts and its events as the API shows them (http/README.md "Lookup"): Unix seconds, the rendered
 * subject. Pure.
 */
import type { AttemptJson, EventJson, ListedMessageJson, MessageJson } from '../../api/message.ts'
import { toUnixSeconds, secondsOrNull } from '../../base/clock.ts'
import { UNSUBSCRIBE_KEY } from '../../content/html/instrument-html.ts'
import { valueOf } from '../../content/template/substitute-variables.ts'
import { templateOf } from '../../content/template/template-problems.ts'
import type { DeliveryAttempt } from '../../mail/reply/delivery-outcome.ts'
import type { MessageView, TimelineEvent } from '../../store/records/lookup-records.ts'

export function messageData(message: MessageView): MessageJson {
  return { ...listedMessageData(message), attempts: message.attempts.map(attemptData) }
}

export function listedMessageData(message: MessageView): ListedMessageJson {
  return {
    message_id: message.id,
    batch_id: message.batchId,
    state: message.state,
    recipient: message.recipient,
    from: message.from,
    subject: renderedSubject(message),
    stream: message.stream,
    tags: message.tags,
    metadata: message.metadata,
    isp: message.isp,
    ip: message.ip,
    ip_pool: message.pool,
    created_at: toUnixSeconds(message.createdAt),
    send_at: secondsOrNull(message.sendAt),
    expires_at: toUnixSeconds(message.expiresAt),
    next_attempt_at: secondsOrNull(message.nextAttemptAt),
    delivered_at: secondsOrNull(message.deliveredAt),
    bounced_at: secondsOrNull(message.bouncedAt),
    complained_at: secondsOrNull(message.complainedAt),
    bounce: bounceData(message),
    opens: message.opens,
    clicks: message.clicks,
    machine_opens: message.machineOpens,
    machine_clicks: message.machineClicks,
    uncertain: message.isPossibleDuplicate,
    retry_of: message.retryOf,
  }
}

export function eventData({ id, kind, at, data }: TimelineEvent): EventJson {
  return { id, event: kind, timestamp: toUnixSeconds(at), data }
}

/**
 * A placeholder stands for itself where its value is not known: the address to unsubscribe at is made when the mail is
 * sent, and of an erased recipient no value is kept.
 */
function renderedSubject({ subject, hasVariables, variables }: MessageView): string {
  const values = { [UNSUBSCRIBE_KEY]: `{{${UNSUBSCRIBE_KEY}}}`, ...variables }
  return templateOf(subject, 'text', hasVariables)
    .map((part) => (typeof part === 'string' ? part : (valueOf(part, values) ?? `{{${part.key}}}`)))
    .join('')
}

function bounceData({ bounce }: MessageView): ListedMessageJson['bounce'] {
  if (bounce === null) return null
  const { type, code, category, description, at, isLate } = bounce
  return { type, code, category, description, at: toUnixSeconds(at), late: isLate }
}

function attemptData(attempt: DeliveryAttempt, index: number): AttemptJson {
  return {
    n: index + 1,
    at: toUnixSeconds(attempt.at),
    // The address the socket really had, where there was one.
    ip: attempt.ip ?? attempt.localAddress,
    mx: attempt.host,
    tls: attempt.tls?.protocol ?? null,
    result: attempt.result.replaceAll('-', '_'),
    reply: attempt.reply,
    duration_ms: attempt.durationMilliseconds,
  }
}
