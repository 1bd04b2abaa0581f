/**
 * The composition root: makes every part once, in order, hands each one what it needs, and stops them in reverse.
 *
 * Here and in `assembly` alone the real clock, DNS, sockets and the store come in. The sandbox is the same appliance
 * with another outside world handed over: a resolver, further routes, settings. Starting either succeeds as a whole or
 * throws ProcessExit or ConfigurationError after stopping what had started.
 */
import { startDelivery } from './assembly/delivery.ts'
import type { OpenDoors } from './assembly/delivery.ts'
import { openDoors } from './assembly/doors.ts'
import type { BoundPorts, Doors } from './assembly/doors.ts'
import { startEgress } from './assembly/egress.ts'
import { openFoundation } from './assembly/foundation.ts'
import type { ApplianceOptions, Foundation } from './assembly/foundation.ts'
import { createMailFeatures } from './assembly/mail.ts'
import type { MailFeatures, MailParts } from './assembly/mail.ts'
import { startOutboundTls } from './assembly/outbound-tls.ts'
import { createReload } from './assembly/reload.ts'
import type { Reload, ReloadOptions } from './assembly/reload.ts'
import { createSenders } from './assembly/senders.ts'
import { startWebhooks } from './assembly/webhooks.ts'
import { createDiskGuard } from './base/disk-guard.ts'
import type { DiskGuard } from './base/disk-guard.ts'
import type { Metrics } from './base/metrics.ts'
import { startWhole } from './base/start-whole.ts'
import type { Stops } from './base/start-whole.ts'
import { createSchedule } from './schedule.ts'
import type { Schedule } from './schedule.ts'
import type { Warmup } from './egress/warmup/warmup.ts'
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
  warmup: Warmup
  schedule: Schedule
  /** Resolves when store and delivery threads have answered; the watchdog's question. */
  isAlive(): Promise<void>
  /** The configuration files may have changed: reads them, and takes over all of it or nothing. */
  reload(): void
  stop(): Promise<void>
}

export async function startAppliance(options: ApplianceOptions): Promise<Appliance> {
  return startWhole(options.logger, (stops, stop) => startParts(options, stops, stop))
}

async function startParts(options: ApplianceOptions, stops: Stops, stop: () => Promise<void>): Promise<Appliance> {
  const foundation = await openFoundation(options, stops)
  const { store, metrics } = foundation
  const opened: OpenDoors = { inbound: null, tracking: null }
  const webhooks = startWebhooks(foundation)
  const egress = await startEgress(foundation, webhooks)
  const senders = createSenders(foundation, egress.egress, webhooks)
  const outboundTls = await startOutboundTls(foundation)
  let resume = (): void => {}
  const disk = await startDiskGuard(foundation, () => resume())
  const known = { ...egress, ...outboundTls, ...webhooks, ...senders, disk, doors: opened }
  const dispatcher = await startDelivery(foundation, known)
  resume = dispatcher.resume
  // There may be space again since.
  resume()
  const parts = { ...known, dispatcher }
  const mail = createMailFeatures(foundation, parts)
  const schedule = startSchedule(foundation, parts, mail)
  let doors: Doors | undefined
  const { reload, onSignal } = startReload(foundation, {
    readCertificates: () => doors?.readCertificates(),
    hasSpace: () => disk.mayDeliver(),
    onMoved: () => dispatcher.wake(),
  })
  doors = await openDoors(foundation, { ...parts, mail, reload })
  const isAlive = async (): Promise<void> => {
    await Promise.all([store.tick(), dispatcher.ticks()])
  }
  const { warmup, webhookEndpoints } = parts
  return {
    ports: doors.ports, metrics, store, ...senders, webhookEndpoints, warmup, schedule, isAlive, reload: onSignal, stop,
  }
}

async function startDiskGuard({ configuration, realClock, logger, stops }: Foundation, onDeliver: () => void):
  Promise<DiskGuard> {
  const { data_dir: folder, storage } = configuration.server
  const guard = createDiskGuard({
    folder, onDeliver,
    minFreeAccept: storage.min_free_accept,
    minFreeDeliver: storage.min_free_deliver,
    clock: realClock,
    logger: logger.child({ part: 'disk' }),
  })
  await guard.start()
  stops.push(async () => guard.stop())
  return guard
}

function startReload(
  { configuration, live, store, metrics, logger, loadAgain }: Foundation,
  told: Pick<ReloadOptions, 'readCertificates' | 'hasSpace' | 'onMoved'>,
): Reload {
  metrics.configurationReloads.set(1)
  return createReload({
    ...told, live, store, metrics,
    load: loadAgain ?? ((): typeof configuration => configuration),
    logger: logger.child({ part: 'configuration' }),
  })
}

function startSchedule(foundation: Foundation, parts: MailParts, mail: MailFeatures): Schedule {
  const { configuration, live, store, clock, realClock, metrics, logger, stops, outside } = foundation
  const { domains, dispatcher, webhookEngine, warmup, shaping, sts } = parts
  const { retention, webhooks } = configuration.server
  const schedule = createSchedule({
    store, clock, realClock, metrics, domains, warmup, shaping, sts,
    tlsReports: parts.reportsBy(mail.acceptSubmission),
    drive: outside?.driveJobs ?? null,
    unmatchedReportsKept: retention.inbound_unmatched,
    webhooksKept: { succeeded: retention.webhook_deliveries, failed: webhooks.dead_letter_retention },
    ipHistoryKept: { statistics: retention.statistics, audit: retention.audit },
    isClockSteady: foundation.isClockSteady,
    waitingByReason: () => dispatcher.waitingByReason(),
    uncertainRetry: () => live.current().server.delivery.uncertain_retry,
    logger: logger.child({ part: 'schedule' }),
    onQueued: () => dispatcher.wake(),
    onEvents: () => webhookEngine.wake(),
  })
  schedule.start()
  stops.push(() => schedule.stop())
  return schedule
}
