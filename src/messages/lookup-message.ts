/**
 * A message and its timeline as the API shows them (contract.md 6.2). Times are Unix seconds, the subject is the
 * rendered one. Throws ServiceError `not_found` for an id that is unknown or none at all.
 */
import { toUnixSeconds } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { identifierToBytes } from '../base/identifier.ts'
import { substitute } from '../content/substitute-variables.ts'
import { templateOf } from '../content/template-problems.ts'
import type { DeliveryAttempt } from '../mail/delivery-outcome.ts'
import type { MessageState, Stream } from '../mail/message.ts'
import type { MessageView, TimelineEvent } from '../store/records.ts'
import type { Store } from '../store/store.ts'

export interface AttemptData {
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
  data: Record<string, string>
}

export interface MessageData {
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
  attempts: AttemptData[]
  events: EventData[]
}

export interface MessageLookup {
  /** ServiceError `not_found`. */
  message(id: string): Promise<MessageData>
  /** Oldest first. ServiceError `not_found`. */
  events(id: string): Promise<EventData[]>
}

export function createMessageLookup({ store }: { store: Store }): MessageLookup {
  return {
    async message(id) {
      if (!isMessageId(id)) throw notFound(id)
      const [message, events] = await Promise.all([store.lookupMessage(id), store.messageEvents(id)])
      if (message === null) throw notFound(id)
      return messageData(message, events ?? [])
    },
    async events(id) {
      const events = isMessageId(id) ? await store.messageEvents(id) : null
      if (events === null) throw notFound(id)
      return events.map(eventData)
    },
  }
}

/** Fields of features that are not there yet have the value of "nothing of the kind happened". */
function messageData(message: MessageView, events: TimelineEvent[]): MessageData {
  return {
    message_id: message.id,
    batch_id: message.batchId,
    state: message.state,
    recipient: message.recipient,
    from: message.from,
    subject: substitute(templateOf(message.subject, 'text', message.hasVariables), message.variables),
    stream: message.stream,
    tags: {},
    metadata: {},
    isp: message.isp,
    ip: message.ip,
    ip_pool: message.pool,
    created_at: toUnixSeconds(message.createdAt),
    send_at: null,
    expires_at: toUnixSeconds(message.expiresAt),
    next_attempt_at: secondsOrNull(message.nextAttemptAt),
    delivered_at: secondsOrNull(message.deliveredAt),
    bounced_at: secondsOrNull(message.bouncedAt),
    complained_at: null,
    bounce: bounceData(message),
    opens: 0,
    clicks: 0,
    machine_opens: 0,
    machine_clicks: 0,
    uncertain: message.isPossibleDuplicate,
    retry_of: null,
    attempts: message.attempts.map(attemptData),
    events: events.map(eventData),
  }
}

function bounceData({ bounce, deliveredAt }: MessageView): MessageData['bounce'] {
  if (bounce === null) return null
  const { type, code, category, description, at } = bounce
  return { type, code, category, description, at: toUnixSeconds(at), late: deliveredAt !== null }
}

function attemptData(attempt: DeliveryAttempt, index: number): AttemptData {
  return {
    n: index + 1,
    at: toUnixSeconds(attempt.at),
    // The address the socket really had, where there was one.
    ip: attempt.ip ?? attempt.localAddress,
    mx: attempt.host,
    tls: attempt.tls,
    result: attempt.result.replaceAll('-', '_'),
    reply: attempt.reply,
    duration_ms: attempt.durationMilliseconds,
  }
}

function eventData({ id, kind, at, data }: TimelineEvent): EventData {
  return { id, event: kind, timestamp: toUnixSeconds(at), data }
}

function secondsOrNull(milliseconds: number | null): number | null {
  return milliseconds === null ? null : toUnixSeconds(milliseconds)
}

function isMessageId(text: string): boolean {
  return identifierToBytes('msg', text) !== undefined
}

function notFound(id: string): ServiceError {
  // Enough to show any real id whole.
  return new ServiceError('not_found', `message ${id.slice(0, 64)}`)
}
