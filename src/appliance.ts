/**
 * The composition root: makes every part once, in order, hands each one what it needs, and stops them in reverse.
 *
 * Here and in `assembly` alone the real clock, DNS, sockets and the store come in. The sandbox is the same appliance
 * with another outside world handed over: a resolver, further routes, settings. Starting either succeeds as a whole or
 * throws ProcessExit or ConfigurationError after stopping what had started.
 */
import { startDelivery, startEgress } from './assembly/delivery.ts'
import type { OpenDoors } from './assembly/delivery.ts'
import { openDoors } from './assembly/doors.ts'
import type { BoundPorts } from './assembly/doors.ts'
import { openFoundation } from './assembly/foundation.ts'
import type { ApplianceOptions, Foundation } from './assembly/foundation.ts'
import { createMailFeatures } from './assembly/mail.ts'
import type { MailParts } from './assembly/mail.ts'
import { createSenders } from './assembly/senders.ts'
import { startWebhooks } from './assembly/webhooks.ts'
import type { Metrics } from './base/metrics.ts'
import { startWhole } from './base/start-whole.ts'
import type { Stops } from './base/start-whole.ts'
import { createSchedule } from './schedule.ts'
import type { Schedule } from './schedule.ts'
import type { ApiKeys } from './senders/api-key.ts'
import type { Domains } from './senders/domains.ts'
import type { Store } from './store/store.ts'
import type { WebhookEndpoints } from './webhooks/endpoints.ts'

export type { ApplianceOptions, Outside } from './assembly/foundation.ts'

export interface Appliance {
  /** The bound ports, each list in the order of its listeners. */
  ports: BoundPorts
  metrics: Metrics
  store: Store
  apiKeys: ApiKeys
  domains: Domains
  webhookEndpoints: WebhookEndpoints
  schedule: Schedule
  /** Resolves when store and delivery threads have answered; the watchdog's question. */
  isAlive(): Promise<void>
  stop(): Promise<void>
}

export async function startAppliance(options: ApplianceOptions): Promise<Appliance> {
  return startWhole(options.logger, (stops, stop) => startParts(options, stops, stop))
}

async function startParts(options: ApplianceOptions, stops: Stops, stop: () => Promise<void>): Promise<Appliance> {
  const foundation = await openFoundation(options, stops)
  const { store, metrics } = foundation
  const doors: OpenDoors = { inbound: null, tracking: null }
  const egress = await startEgress(foundation)
  const webhooks = startWebhooks(foundation)
  const senders = createSenders(foundation, egress, webhooks)
  const dispatcher = await startDelivery(foundation, egress, webhooks, doors)
  const parts = { egress, dispatcher, ...senders, ...webhooks }
  const schedule = startSchedule(foundation, parts)
  const mail = createMailFeatures(foundation, parts)
  const ports = await openDoors(foundation, { ...parts, mail, doors })
  const isAlive = async (): Promise<void> => {
    await Promise.all([store.tick(), dispatcher.ticks()])
  }
  return { ports, metrics, store, ...senders, webhookEndpoints: webhooks.webhookEndpoints, schedule, isAlive, stop }
}

function startSchedule(foundation: Foundation, { domains, dispatcher, webhookEngine }: MailParts): Schedule {
  const { configuration, store, clock, realClock, metrics, logger, stops, outside } = foundation
  const { retention, webhooks } = configuration.server
  const schedule = createSchedule({
    store, clock, realClock, metrics, domains,
    drive: outside?.driveJobs ?? null,
    unmatchedReportsKept: retention.inbound_unmatched,
    webhooksKept: { succeeded: retention.webhook_deliveries, failed: webhooks.dead_letter_retention },
    logger: logger.child({ part: 'schedule' }),
    onQueued: () => dispatcher.wake(),
    onEvents: () => webhookEngine.wake(),
  })
  schedule.start()
  stops.push(() => schedule.stop())
  return schedule
}
