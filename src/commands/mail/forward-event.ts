/**
 * One event of the stream, posted to a developer's URL as the server would post it to an endpoint (webhooks/README.md
 * "Signature"). Never throws: what goes wrong is in the result.
 */
import { SECOND } from '../../base/clock.ts'
import { newIdentifier } from '../../base/identifier.ts'
import { packageVersion } from '../../base/package-version.ts'
import type { GuardedRequest } from '../../network/guarded-request.ts'
import { deliveryHeaders } from '../../webhooks/post-event.ts'
import type { StreamEvent } from './event-stream.ts'

export interface ForwardedEvent {
  event: string
  message_id: string | null
  event_id: string
  /** null: no answer. */
  status: number | null
  duration_ms: number
  error: string | null
}

type ForwardEvent = (event: StreamEvent) => Promise<ForwardedEvent>

interface ForwarderOptions {
  url: string
  secret: string
  /** Sent along; none of them replaces one of ours. */
  headers: Record<string, string>
  post: GuardedRequest['post']
  /** Unix milliseconds. */
  now: () => number
}

/** http/README.md "Events". */
const ANSWER_TIMEOUT = 10 * SECOND

export function createForwarder({ url, secret, headers, post, now }: ForwarderOptions): ForwardEvent {
  return async ({ id, kind, data: body }) => {
    const at = now()
    const delivery = { body, eventId: id, id: newIdentifier('whd', at), attempts: 0 }
    const ours = deliveryHeaders(delivery, { secret, nextSecret: null }, at)
    const result = await post({
      url,
      body,
      timeoutMilliseconds: ANSWER_TIMEOUT,
      headers: { ...headers, ...ours, 'User-Agent': `Sternpost/${packageVersion()}` },
    })
    const isAnswered = result.kind === 'answered'
    return {
      event: kind,
      message_id: messageIdIn(body),
      event_id: id,
      status: isAnswered ? result.status : null,
      duration_ms: Math.max(0, now() - at),
      error: isAnswered ? null : result.reason,
    }
  }
}

/** null: it is about something else, or the body is no JSON. */
function messageIdIn(body: string): string | null {
  try {
    const value: unknown = JSON.parse(body)
    const data: unknown = typeof value === 'object' && value !== null && 'data' in value ? value.data : null
    if (typeof data === 'object' && data !== null && 'message_id' in data) return String(data.message_id)
    return null
  } catch {
    // It is posted all the same: the receiver may know better.
    return null
  }
}
