/**
 * The composition root: makes every part once, in order, hands each one what it needs, and stops them in reverse. Here
 * and in `assembly` alone the real clock, DNS, sockets and the store come in. The sandbox is the same appliance with
 * another outside world handed over: a resolver, further routes, settings. Starting either succeeds as a whole or
 * throws ProcessExit or ConfigurationError after stopping what had started.
 */
import { startCertificates } from './assembly/certificates.ts'
import { startDelivery, type OwnListeners } from './assembly/delivery.ts'
import { openDoors, type BoundPorts } from './assembly/doors.ts'
import { startEgress } from './assembly/egress.ts'
import { openFoundation, type ApplianceOptions } from './assembly/foundation.ts'
import { createLargeWork, createMailFeatures, createSenders } from './assembly/mail.ts'
import { followNodes } from './assembly/follow-nodes.ts'
import { startOutboundTls } from './assembly/outbound-tls.ts'
import {
  createBackupWriter,
  createRetentionJobs,
  createSpaceGuard,
  prepareReload,
  startHealthChecks,
  startLogLevel,
  startSchedule,
} from './assembly/upkeep.ts'
import { startWebhooks } from './assembly/webhooks.ts'
import type { Metrics } from './base/metrics.ts'
import { startWhole, stopTogether, type Stops } from './base/service/start-whole.ts'
import type { Warmup } from './egress/moves/warmup.ts'
import { measureWhenRead } from './operations/measures.ts'
import type { Schedule } from './operations/schedule.ts'
import { tellForeignSecrets } from './operations/sealed-secrets.ts'
import { createServiceStatus } from './operations/service-status.ts'
import type { Logins } from './http/exchange/logins.ts'
import type { ApiKeys } from './senders/api-key.ts'
import type { Domains } from './senders/domains.ts'
import { startProblem } from './store/passing-failure.ts'
import type { Store } from './store/store.ts'
import type { WebhookEndpoints } from './webhooks/endpoints.ts'

export type { ApplianceOptions } from './assembly/foundation.ts'

export interface Appliance {
  ports: BoundPorts
  metrics: Metrics
  store: Store
  apiKeys: ApiKeys
  domains: Domains
  webhookEndpoints: WebhookEndpoints
  warmup: Warmup
  logins: Logins
  consoleUrl: string | null
  schedule: Schedule
  /** Resolves when store and delivery threads have answered; the watchdog's question. */
  isAlive(): Promise<void>
  /** How it is, in one line for the service manager. */
  describe(): Promise<string>
  /** The configuration files may have changed: reads them, and takes over all of it or nothing. */
  reload(): void
  stop(): Promise<void>
}

export async function startAppliance(options: ApplianceOptions): Promise<Appliance> {
  try {
    return await startWhole(options.logger, (stops, stop) => startParts(options, stops, stop))
  } catch (thrown) {
    throw startProblem(thrown)
  }
}

async function startParts(options: ApplianceOptions, stops: Stops, stop: () => Promise<void>): Promise<Appliance> {
  const foundation = await openFoundation(options, stops)
  const { store, metrics, clock, realClock, configuration, logger } = foundation
  const { server: settings } = configuration
  await tellForeignSecrets(foundation)
  const webhooks = startWebhooks(foundation)
  const egress = await startEgress(foundation, webhooks)
  const { certificates, ...tls } = await startCertificates(foundation)
  const senders = createSenders(foundation, egress.egress, { ...webhooks, ...tls })
  options.outside?.useDomains(senders.domains)
  const outboundTls = await startOutboundTls(foundation)
  const largeWork = createLargeWork(foundation)
  const retention = createRetentionJobs(foundation, largeWork)
  const backups = createBackupWriter(foundation)
  const disk = createSpaceGuard(foundation, retention)
  const { promise: listeners, resolve: doorsAreOpen } = Promise.withResolvers<OwnListeners>()
  const sending = { ...egress, ...outboundTls, ...webhooks, ...senders, ...largeWork, disk, listeners }
  const dispatcher = await startDelivery(foundation, sending)
  followNodes(foundation, { ...sending, dispatcher, certificates })
  const logLevel = startLogLevel(foundation)
  measureWhenRead({ ...foundation, ...sending, dispatcher }, settings.storage)
  const mail = createMailFeatures(foundation, { ...sending, dispatcher })
  const { doorCertificates } = tls
  const { reload, onSignal } = prepareReload(foundation, { doorCertificates, disk, dispatcher })
  const health = startHealthChecks(foundation, { ...sending, ...mail, reload })
  const { isDraining } = foundation.nodes
  const status = createServiceStatus({ ...sending, ...mail, store, clock, realClock, health, isDraining })
  const parts = { ...sending, dispatcher, mail, certificates, health, retention, backups }
  const schedule = startSchedule(foundation, parts)
  stops.push(() => stopTogether(foundation.working, logger))
  const doors = await openDoors(foundation, { ...parts, ...tls, reload, logLevel, status })
  doorsAreOpen(doors.listeners)
  // Not before port 80 answers; a server that waits for an authority is up all the same.
  void schedule.run('issue-certificates')
  const { warmup, webhookEndpoints } = sending
  return {
    ports: doors.ports,
    logins: doors.logins,
    consoleUrl: doors.consoleUrl,
    metrics,
    store,
    ...senders,
    webhookEndpoints,
    warmup,
    schedule,
    isAlive: async () => void (await Promise.all([store.tick(), dispatcher.ticks()])),
    describe: status.describe,
    reload: onSignal,
    stop,
  }
}
