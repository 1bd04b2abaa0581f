/**
 * The composition root: makes every part once, in order, hands each one what it needs, and stops them in reverse.
 *
 * Here and in `assembly` alone the real clock, DNS, sockets and the store come in. The sandbox is the same appliance
 * with another outside world handed over: a resolver, further routes, settings. Starting either succeeds as a whole or
 * throws ProcessExit or ConfigurationError after stopping what had started.
 */
import { createCertificateWatch } from './assembly/certificates.ts'
import type { CertificateWatch } from './assembly/certificates.ts'
import { startDelivery } from './assembly/delivery.ts'
import type { OpenDoors } from './assembly/delivery.ts'
import { openDoors } from './assembly/doors.ts'
import type { BoundPorts, Doors } from './assembly/doors.ts'
import { startEgress } from './assembly/egress.ts'
import { openFoundation } from './assembly/foundation.ts'
import type { ApplianceOptions, Foundation } from './assembly/foundation.ts'
import { startHealthChecks } from './assembly/health-checks.ts'
import { createLogLevelKeeper } from './assembly/log-level.ts'
import type { LogLevelKeeper } from './assembly/log-level.ts'
import { createMailFeatures } from './assembly/mail.ts'
import { measureWhenRead } from './assembly/measures.ts'
import type { MailFeatures, MailParts } from './assembly/mail.ts'
import { startOutboundTls } from './assembly/outbound-tls.ts'
import { createReload } from './assembly/reload.ts'
import type { Reload, ReloadOptions } from './assembly/reload.ts'
import { tellForeignSecrets } from './assembly/sealed-secrets.ts'
import { createSenders } from './assembly/senders.ts'
import { serviceStatus } from './assembly/service-status.ts'
import { createBackupWriter, startRetention } from './assembly/upkeep.ts'
import { startWebhooks } from './assembly/webhooks.ts'
import { createDiskGuard } from './base/disk-guard.ts'
import type { DiskGuard } from './base/disk-guard.ts'
import type { Metrics } from './base/metrics.ts'
import { startWhole, stopTogether } from './base/service/start-whole.ts'
import type { Stops } from './base/service/start-whole.ts'
import { createSchedule } from './schedule.ts'
import type { Schedule } from './schedule.ts'
import type { Warmup } from './egress/moves/warmup.ts'
import type { HealthKeeper } from './health/health-keeper.ts'
import type { ApiKeys } from './senders/api-key.ts'
import type { Domains } from './senders/domains.ts'
import type { Backups } from './store/open/backups.ts'
import type { Retention } from './store/retention.ts'
import type { Store } from './store/store.ts'
import type { WebhookEndpoints } from './webhooks/endpoints.ts'

export type { ApplianceOptions } from './assembly/foundation.ts'

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
  /** How it is, in one line for the service manager. */
  describe(): Promise<string>
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
  await tellForeignSecrets(foundation)
  const opened: OpenDoors = { inbound: null, tracking: null }
  const webhooks = startWebhooks(foundation)
  const egress = await startEgress(foundation, webhooks)
  const senders = createSenders(foundation, egress.egress, webhooks)
  const outboundTls = await startOutboundTls(foundation)
  let resume = (): void => {}
  const retention = startRetention(foundation)
  const backups = createBackupWriter(foundation)
  const disk = await startDiskGuard(foundation, () => resume(), retention)
  const known = { ...egress, ...outboundTls, ...webhooks, ...senders, disk, doors: opened }
  const dispatcher = await startDelivery(foundation, known)
  resume = dispatcher.resume
  // There may be space again since.
  resume()
  const certificates = createCertificateWatch({
    clock: foundation.realClock,
    metrics,
    logger: options.logger.child({ part: 'tls' }),
  })
  const parts = { ...known, dispatcher, certificates, logLevel: startLogLevel(foundation) }
  measureWhenRead(foundation, parts)
  const mail = createMailFeatures(foundation, parts)
  let doors: Doors | undefined
  const { reload, onSignal } = startReload(foundation, {
    readCertificates: (files) => doors?.readCertificates(files) ?? ((): void => {}),
    hasSpace: () => disk.mayDeliver(),
    onMoved: () => dispatcher.wake(),
  })
  const health = startHealthChecks(foundation, { ...parts, acceptSubmission: mail.acceptSubmission, reload })
  const schedule = startSchedule(foundation, { ...parts, health, retention, backups }, mail)
  stops.push(() => stopTogether(foundation.working, options.logger))
  doors = await openDoors(foundation, { ...parts, mail, reload, health, backups })
  const isAlive = async (): Promise<void> => {
    await Promise.all([store.tick(), dispatcher.ticks()])
  }
  const { warmup, webhookEndpoints } = parts
  return {
    ports: doors.ports,
    metrics,
    store,
    ...senders,
    webhookEndpoints,
    warmup,
    schedule,
    isAlive,
    reload: onSignal,
    stop,
    describe: () => serviceStatus({ ...parts, store, clock: foundation.clock }),
  }
}

function startLogLevel({ setLogLevel, live, realClock, logger, stops }: Foundation): LogLevelKeeper {
  const keeper = createLogLevelKeeper({
    setLevel: setLogLevel ?? ((): void => {}),
    live,
    logger: logger.child({ part: 'log' }),
    clock: realClock,
  })
  stops.push(async () => keeper.stop())
  return keeper
}

async function startDiskGuard(
  { configuration, realClock, logger, stops }: Foundation,
  onDeliver: () => void,
  retention: Retention,
): Promise<DiskGuard> {
  const { data_dir: folder, storage } = configuration.server
  const guard = createDiskGuard({
    folder,
    onDeliver,
    onShort: () => void retention.run().catch((thrown: unknown) => logger.error({ err: thrown }, 'retention failed')),
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
  { configuration, live, store, metrics, logger, loadAgain, notices }: Foundation,
  told: Pick<ReloadOptions, 'readCertificates' | 'hasSpace' | 'onMoved'>,
): Reload {
  metrics.configurationReloads.set(1)
  return createReload({
    ...told,
    live,
    store,
    metrics,
    notices,
    load: loadAgain ?? ((): typeof configuration => configuration),
    logger: logger.child({ part: 'configuration' }),
  })
}

interface ScheduledParts extends MailParts {
  certificates: CertificateWatch
  health: Pick<HealthKeeper, 'runDue'>
  retention: Retention
  backups: Backups
}

function startSchedule(foundation: Foundation, parts: ScheduledParts, mail: MailFeatures): Schedule {
  const { live, store, clock, realClock, metrics, logger, working, outside } = foundation
  const { domains, dispatcher, webhookEngine, warmup, shaping, sts } = parts
  const schedule = createSchedule({
    store,
    clock,
    realClock,
    metrics,
    domains,
    warmup,
    shaping,
    sts,
    certificates: parts.certificates,
    // What stands in for the outside world has nothing to be watched.
    health: outside === undefined ? parts.health : { runDue: async () => {} },
    tlsReports: parts.reportsBy(mail.acceptSubmission),
    drive: outside?.driveJobs ?? null,
    retention: parts.retention,
    backups: {
      when: () => (outside === undefined ? live.current().server.backup.schedule : null),
      write: async () => void (await parts.backups.write(null)),
    },
    isClockSteady: foundation.isClockSteady,
    uncertainRetry: () => live.current().server.delivery.uncertain_retry,
    logger: logger.child({ part: 'schedule' }),
    onQueued: () => dispatcher.wake(),
    onEvents: () => webhookEngine.wake(),
  })
  schedule.start()
  live.onChange(() => schedule.replan())
  working.push(() => schedule.stop())
  return schedule
}
