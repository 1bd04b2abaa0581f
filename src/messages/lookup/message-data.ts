/**
 * A message, its attempts and its events as the API shows them (http/README.md "Lookup"): Unix seconds, the rendered
 * subject. Pure.
 */
import { toUnixSeconds } from '../../base/clock.ts'
import { UNSUBSCRIBE_KEY } from '../../content/html/instrument-html.ts'
import { substitute } from '../../content/template/substitute-variables.ts'
import { templateOf } from '../../content/template/template-problems.ts'
import type { DeliveryAttempt } from '../../mail/reply/delivery-outcome.ts'
import type { MessageState, Stream } from '../../mail/message.ts'
import type { MessageView, TimelineEvent } from '../../store/records/lookup-records.ts'

interface AttemptData {
  /** 1 is the first. */
  n: number
  at: number
  ip: string | null
  mx: string | null
  /** Protocol such as TLSv1.3, or null for plain text. */
  tls: string | null
  result: string
  reply: string
  duration_ms: number
}

export interface EventData {
  id: string
  event: string
  timestamp: number
  data: Record<string, unknown>
}

/** As in a list. */
export interface ListedMessageData {
  message_id: string
  batch_id: string | null
  state: MessageState
  recipient: string
  from: string
  subject: string
  stream: Stream
  tags: Record<string, string>
  metadata: Record<string, unknown>
  isp: string | null
  ip: string | null
  ip_pool: string
  created_at: number
  send_at: number | null
  expires_at: number
  next_attempt_at: number | null
  delivered_at: number | null
  bounced_at: number | null
  complained_at: number | null
  bounce: { type: string; code: string; category: string; description: string; at: number; late: boolean } | null
  opens: number
  clicks: number
  machine_opens: number
  machine_clicks: number
  /** A duplicate is possible. */
  uncertain: boolean
  retry_of: string | null
}

export interface MessageData extends ListedMessageData {
  attempts: AttemptData[]
}

export function messageData(message: MessageView): MessageData {
  return { ...listedMessageData(message), attempts: message.attempts.map(attemptData) }
}

export function listedMessageData(message: MessageView): ListedMessageData {
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

export function eventData({ id, kind, at, data }: TimelineEvent): EventData {
  return { id, event: kind, timestamp: toUnixSeconds(at), data }
}

export function secondsOrNull(milliseconds: number | null): number | null {
  return milliseconds === null ? null : toUnixSeconds(milliseconds)
}

/** The address to unsubscribe at is made when the mail is sent: here its placeholder stands for it. */
function renderedSubject({ subject, hasVariables, variables }: MessageView): string {
  const values = { [UNSUBSCRIBE_KEY]: `{{${UNSUBSCRIBE_KEY}}}`, ...variables }
  return substitute(templateOf(subject, 'text', hasVariables), values)
}

function bounceData({ bounce }: MessageView): ListedMessageData['bounce'] {
  if (bounce === null) return null
  const { type, code, category, description, at, isLate } = bounce
  return { type, code, category, description, at: toUnixSeconds(at), late: isLate }
}

function attemptData(attempt: DeliveryAttempt, index: number): AttemptData {
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
