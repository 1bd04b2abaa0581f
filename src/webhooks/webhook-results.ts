/**
 * The results of posts, from the end of a post until the store has them.
 *
 * While the store refuses them they are kept; `record` rejects then. What follows from a failed attempt is the retry
 * schedule's. webhooks/README.md "Deliveries".
 */
import { SECOND, type Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { ClaimedWebhookDelivery, WebhookResult } from '../store/records/webhook-records.ts'
import type { Store } from '../store/store.ts'
import type { PostedEvent } from './post-event.ts'
import type { Post } from './posts-under-way.ts'
import { nextRetryAt } from './retry-schedule.ts'

export interface WebhookResultsOptions {
  store: Pick<Store, 'recordWebhookResults'>
  clock: Pick<Clock, 'now'>
  settings: Pick<ServerSettings['webhooks'], 'disable_after'>
  logger: Logger
  metrics: Metrics
}

export function createWebhookResults(options: WebhookResultsOptions) {
  const { store, settings, logger } = options
  let results: WebhookResult[] = []
  let isRefused = false
  return {
    add: (post: Post, posted: PostedEvent) => void results.push(resultOf(post, posted, options)),
    has: (delivery: string) => results.some(({ id }) => id === delivery),
    size: () => results.length,
    async record(epoch: number) {
      const batch = [...results]
      if (batch.length === 0) return
      const disableAfter = settings.disable_after
      try {
        const { disabled } = await store.recordWebhookResults({ epoch, results: batch, disableAfter })
        results = results.slice(batch.length)
        isRefused = false
        for (const endpointId of disabled) logger.warn({ endpoint_id: endpointId }, 'webhook endpoint disabled')
      } catch (thrown) {
        isRefused = true
        throw thrown
      }
    },
    /** The store has refused results: it is asked for nothing else before it takes them. */
    isRefused: () => isRefused,
  }
}

function resultOf({ delivery, at, begunAt }: Post, posted: PostedEvent, options: WebhookResultsOptions): WebhookResult {
  const endedAt = options.clock.now()
  const result: WebhookResult = {
    key: delivery.key,
    id: delivery.id,
    at,
    endedAt,
    // How long the endpoint took is real time, whatever clock the schedule follows.
    durationMilliseconds: Math.round(performance.now() - begunAt),
    status: posted.status,
    error: posted.error,
    answer: posted.answer,
    next: nextStep(delivery, posted, endedAt),
  }
  options.metrics.webhookDeliveries.inc({ result: result.next.kind })
  options.metrics.webhookAttemptSeconds.observe(result.durationMilliseconds / SECOND)
  logAttempt(options.logger, delivery, result)
  return result
}

function nextStep(delivery: ClaimedWebhookDelivery, posted: PostedEvent, endedAt: number): WebhookResult['next'] {
  if (posted.isSuccess) return { kind: 'succeeded' }
  const at = nextRetryAt({ deliveryId: delivery.id, failedAttempts: delivery.attempts + 1, endedAt })
  return at === null ? { kind: 'dead-letter' } : { kind: 'retry', at }
}

function logAttempt(logger: Logger, delivery: ClaimedWebhookDelivery, result: WebhookResult): void {
  const fields = {
    endpoint_id: delivery.endpointId,
    event_id: delivery.eventId,
    delivery_id: delivery.id,
    attempt: delivery.attempts + 1,
    status: result.status,
    ms: result.durationMilliseconds,
    outcome: result.next.kind,
    next_at: result.next.kind === 'retry' ? result.next.at : null,
    error: result.error ?? undefined,
  }
  if (result.next.kind === 'dead-letter') logger.warn(fields, 'webhook dead letter')
  else logger.info(fields, 'webhook attempt')
}
