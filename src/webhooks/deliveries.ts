/**
 * Webhook deliveries as their customer sees them: what became of each, and sending them again (http/README.md
 * "Webhooks").
 *
 * Throws ServiceError: `not_found`; `invalid_request` for a wrong filter; `conflict` for a replay to an endpoint that
 * is disabled, which would wait without a word.
 */
import type { WebhookDeliveryDetailJson, WebhookDeliveryJson } from '../api/webhook.ts'
import { SECOND, toUnixSeconds, type Clock, secondsOrNull } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import type { Store } from '../store/store.ts'
import type {
  ListWebhookDeliveriesRequest,
  ReplayedEvent,
  ReplayPart,
  WebhookAttemptRecord,
  WebhookDeliveryDetail,
  WebhookDeliveryRecord,
} from '../store/records/webhook-records.ts'
import { eventProblems, refuse } from './endpoint-rules.ts'
import { known } from './endpoints.ts'

interface ReplayRangeRequest {
  /** Unix seconds, both included, of the events; null: no bound. */
  since: number | null
  until: number | null
  /** null: failed. */
  status: 'failed' | 'skipped' | 'all' | null
  /** null: all kinds. */
  events: string[] | null
}

export type WebhookDeliveries = ReturnType<typeof createWebhookDeliveries>

interface WebhookDeliveriesOptions {
  store: Store
  clock: Clock
  /** There are deliveries due. */
  onDue: () => void
  /** Events were told again. */
  onReplayed: (events: readonly ReplayedEvent[]) => void
}

/** http/README.md "Webhooks". */
const MOST_REPLAYED = 100_000
/** One transaction makes so many at most: whoever replays holds up nobody's acceptance. */
const REPLAYED_AT_ONCE = 500

export function createWebhookDeliveries(options: WebhookDeliveriesOptions) {
  const { store, clock, onDue, onReplayed } = options

  const requireEnabled = async (endpointId: string): Promise<void> => {
    const { status } = known(endpointId, await store.findWebhookEndpoint(endpointId))
    if (status === 'disabled') {
      const fix = `status: "enabled" (sternpost webhook enable ${endpointId}) turns it on`
      throw new ServiceError('conflict', `the endpoint is disabled; ${fix}`)
    }
  }
  const find = async (endpointId: string, id: string): Promise<WebhookDeliveryDetail> => {
    const detail = await store.findWebhookDelivery(endpointId, id)
    if (detail === null) throw unknownDelivery(id)
    return detail
  }

  return {
    /** Newest first. */
    async list(request: ListWebhookDeliveriesRequest) {
      const { deliveries, next } = known(request.endpointId, await store.listWebhookDeliveries(request))
      return { deliveries: deliveries.map(deliveryView), next }
    },

    async find(endpointId: string, id: string): Promise<WebhookDeliveryDetailJson> {
      const detail = await find(endpointId, id)
      return { ...deliveryView(detail), body: detail.body, attempts: detail.log.map(attemptView) }
    },

    /** A new delivery of the same event and bytes. */
    async replay(endpointId: string, id: string) {
      await requireEnabled(endpointId)
      const made = await store.replayWebhook(endpointId, id, clock.now())
      if (made === null) throw unknownDelivery(id)
      onDue()
      onReplayed([made.replayed])
      return deliveryView(await find(endpointId, made.id))
    },

    /** Returns how many were queued, oldest first and behind what is due anyway. */
    async replayRange(endpointId: string, request: ReplayRangeRequest) {
      refuse(eventProblems(request.events))
      await requireEnabled(endpointId)
      const range = rangeOf(request, clock.now())
      let queued = 0
      let after: string | null = null
      do {
        const most = Math.min(REPLAYED_AT_ONCE, MOST_REPLAYED - queued)
        const part: ReplayPart = known(endpointId, await store.replayWebhooks({ ...range, endpointId, after, most }))
        queued += part.replayed.length
        after = part.after
        onReplayed(part.replayed)
      } while (after !== null && queued < MOST_REPLAYED)
      if (queued > 0) onDue()
      return queued
    },
  }
}

function rangeOf({ since, until, status, events }: ReplayRangeRequest, now: number) {
  return {
    now,
    since: (since ?? 0) * SECOND,
    // The whole second is meant.
    until: until === null ? now : until * SECOND + SECOND - 1,
    state: status ?? 'failed',
    kinds: events?.includes('*') === true ? null : events,
  }
}

function deliveryView(record: WebhookDeliveryRecord): WebhookDeliveryJson {
  return {
    id: record.id,
    webhook_id: record.endpointId,
    event_id: record.eventId,
    event: record.kind,
    message_id: record.messageId,
    status: record.state,
    attempts: record.attempts,
    created_at: toUnixSeconds(record.createdAt),
    next_attempt_at: secondsOrNull(record.nextAt),
    ended_at: secondsOrNull(record.endedAt),
  }
}

function attemptView(attempt: WebhookAttemptRecord, index: number) {
  const { at, status, durationMilliseconds, error, answer } = attempt
  return { n: index + 1, at: toUnixSeconds(at), status, duration_ms: durationMilliseconds, error, answer }
}

function unknownDelivery(id: string): ServiceError {
  return new ServiceError('not_found', `webhook delivery ${id.slice(0, 64)}`)
}
