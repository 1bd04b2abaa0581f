/** From event rows to the customers' endpoints: managing them, the engine that posts, the stream of events. */
import { packageVersion } from '../base/package-version.ts'
import { createWebhookDeliveries, type WebhookDeliveries } from '../webhooks/deliveries.ts'
import { createWebhookEndpoints, type WebhookEndpoints } from '../webhooks/endpoints.ts'
import { createEventStreams, type EventStreams } from '../webhooks/event-stream.ts'
import { createTryEndpoint, type TryEndpoint } from '../webhooks/try-endpoint.ts'
import { createWebhookEngine, type WebhookEngine } from '../webhooks/webhook-engine.ts'
import { ownAddresses, startGuardedRequest, type Foundation } from './foundation.ts'

export interface Webhooks {
  webhookEndpoints: WebhookEndpoints
  webhookDeliveries: WebhookDeliveries
  tryWebhook: TryEndpoint
  eventStreams: EventStreams
  /** Woken when events were recorded. */
  webhookEngine: Pick<WebhookEngine, 'wake'>
}

export function startWebhooks(foundation: Foundation): Webhooks {
  const { configuration, live, store, clock, keyRing, logger, epoch, working, outside } = foundation
  const { webhooks: settings, api } = configuration.server
  // Names are looked up in the real DNS, whatever world mail goes to: the endpoints are real everywhere.
  const guardedRequest = startGuardedRequest(foundation, {
    allowPrivateAddresses: settings.allow_private_addresses,
    allowHttp: settings.allow_http,
    ownAddresses: () => ownAddresses(live.current(), 'http'),
  })
  const posting = { keyRing, guardedRequest, version: packageVersion() }
  const engine = createWebhookEngine({
    ...foundation,
    ...posting,
    settings,
    speed: () => outside?.clock.speed() ?? 1,
    logger: logger.child({ part: 'webhooks' }),
  })
  engine.start(epoch)
  working.push(engine.stop)
  const eventStreams = createEventStreams({ store, clock })
  const webhookEndpoints = createWebhookEndpoints({
    ...foundation,
    guardedRequest,
    mostEndpoints: api.counts_max.webhooks,
    onEnabled: engine.wake,
    testMode: outside !== undefined,
  })
  return {
    webhookEndpoints: outside?.observeWebhooks(webhookEndpoints) ?? webhookEndpoints,
    webhookDeliveries: createWebhookDeliveries({ store, clock, onDue: engine.wake, onReplayed: eventStreams.tell }),
    tryWebhook: createTryEndpoint({ ...posting, store, clock, onTold: eventStreams.tell }),
    eventStreams,
    webhookEngine: {
      wake() {
        engine.wake()
        eventStreams.wake()
      },
    },
  }
}
