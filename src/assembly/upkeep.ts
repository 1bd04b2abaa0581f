/**
 * What looks after the running server: retention by the times in force, backups, the free space, the schedule of all
 * jobs, the checks, the level of the log, and the reload.
 */
import { join } from 'node:path'
import { SECOND, systemClock } from '../base/clock.ts'
import { createDiskGuard, type DiskGuard } from '../base/disk-guard.ts'
import type { Configuration } from '../config/load-configuration.ts'
import { keptLinksText } from '../content/kept-links.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { DoorCertificates } from '../operations/certificates.ts'
import { createHealthKeeper, type HealthKeeper } from '../health/health-keeper.ts'
import { checkWorld, type CheckWorldParts } from '../operations/check-world.ts'
import { createLogLevelKeeper, type LogLevelKeeper } from '../operations/log-level.ts'
import { operatorChannels, type OperatorChannelParts } from '../operations/operator-channels.ts'
import { createReload, type Reload } from '../operations/reload.ts'
import { driveJobs } from '../operations/drive-jobs.ts'
import { createSchedule, type Schedule, type ScheduleOptions } from '../operations/schedule.ts'
import { createPlaceWatch, NOT_IN_PLACE } from '../base/database-place.ts'
import { createBackups, type Backups } from '../store/open/backups.ts'
import { createRetention, type Retention, type RetentionTimes } from '../store/retention.ts'
import { blocklistResolver, startGuardedRequest, type Foundation } from './foundation.ts'
import type { LargeWork, MailFeatures, MailParts } from './mail.ts'

export function createRetentionJobs(foundation: Foundation, { reader }: Pick<LargeWork, 'reader'>): Retention {
  const retention = createRetention({
    ...foundation,
    keptLinksText: async (html, hasVariables) => keptLinksText(await reader.links(html, hasVariables)),
    times: () => retentionTimes(foundation.live.current()),
    logger: foundation.logger.child({ part: 'store' }),
  })
  foundation.stops.push(async () => retention.stop())
  return retention
}

function retentionTimes({ server: { retention, webhooks } }: Configuration): RetentionTimes {
  return {
    content: retention.content,
    messages: retention.messages,
    transcripts: retention.transcripts,
    linkTargets: retention.link_targets,
    webhooksSucceeded: retention.webhook_deliveries,
    webhooksFailed: webhooks.dead_letter_retention,
    unmatchedReports: retention.inbound_unmatched,
    statistics: retention.statistics,
    audit: retention.audit,
    budget: retention.budget,
  }
}

export function createBackupWriter(foundation: Foundation): Backups {
  const { live, location, working } = foundation
  const backups = createBackups({
    ...foundation,
    databaseFile: location.engine === 'sqlite' ? join(location.folder, 'sternpost.db') : null,
    configurationFolder: foundation.configurationFolder ?? null,
    settings() {
      const { backup, storage } = live.current().server
      // Below twice the mark the disk is said to run low.
      return { ...backup, keptFreeBytes: 2 * storage.min_free_accept }
    },
    logger: foundation.logger.child({ part: 'store' }),
  })
  // With the schedule, which waits for a backup that it has begun.
  working.push(() => backups.stop())
  return backups
}

/** Started with the dispatcher, which it tells when there is space again. */
export function createSpaceGuard(
  { configuration, location, realClock, store, logger, stops }: Foundation,
  retention: Pick<Retention, 'run'>,
): DiskGuard {
  const { data_dir: folder, storage } = configuration.server
  const isFile = location.engine === 'sqlite'
  // The disk of another server is that one's to watch: it refuses a commit that it has no space for.
  const isInPlace = isFile ? createPlaceWatch(join(folder, 'sternpost.db')) : (): boolean => true
  const guard = createDiskGuard({
    folder,
    storeProblem: () => (isInPlace() ? store.problem() : NOT_IN_PLACE),
    onShort: () => void retention.run().catch((thrown: unknown) => logger.error({ err: thrown }, 'retention failed')),
    minFreeAccept: isFile ? storage.min_free_accept : 0,
    minFreeDeliver: isFile ? storage.min_free_deliver : 0,
    clock: realClock,
    logger: logger.child({ part: 'disk' }),
  })
  stops.push(async () => guard.stop())
  return guard
}

export function startLogLevel({ setLogLevel, live, realClock, logger, stops }: Foundation): LogLevelKeeper {
  const keeper = createLogLevelKeeper({
    setLevel: setLogLevel ?? ((): void => {}),
    live,
    logger: logger.child({ part: 'log' }),
    clock: realClock,
  })
  stops.push(async () => keeper.stop())
  return keeper
}

interface ReloadedParts {
  doorCertificates: Pick<DoorCertificates, 'read'>
  disk: Pick<DiskGuard, 'mayDeliver'>
  dispatcher: Pick<Dispatcher, 'wake'>
}

export function prepareReload(foundation: Foundation, { doorCertificates, disk, dispatcher }: ReloadedParts): Reload {
  foundation.metrics.configurationReloads.set(1)
  return createReload({
    ...foundation,
    load: foundation.loadAgain ?? ((): Configuration => foundation.configuration),
    readCertificates: doorCertificates.read,
    hasSpace: disk.mayDeliver,
    onMoved: dispatcher.wake,
    logger: foundation.logger.child({ part: 'configuration' }),
  })
}

interface ScheduledParts extends MailParts, Pick<ScheduleOptions, 'certificates' | 'health' | 'retention'> {
  mail: Pick<MailFeatures, 'acceptSubmission' | 'statistics' | 'messages'>
  backups: Backups
}

export function startSchedule(foundation: Foundation, parts: ScheduledParts): Schedule {
  const { live, logger, working, outside, nodes } = foundation
  const schedule = createSchedule({
    ...foundation,
    ...parts,
    // What stands in for the outside world has nothing to be watched.
    health: outside === undefined ? parts.health : { runDue: async () => {} },
    statistics: parts.mail.statistics,
    messages: parts.mail.messages,
    tlsReports: parts.reportsBy(parts.mail.acceptSubmission),
    drive: (jobs) => driveJobs(jobs, outside?.clock ?? systemClock),
    backups: {
      when: () => (outside === undefined ? live.current().server.backup.schedule : null),
      write: async () => void (await parts.backups.write(null)),
    },
    uncertainRetry: () => live.current().server.delivery.uncertain_retry,
    isFirst: nodes.isFirst,
    logger: logger.child({ part: 'schedule' }),
    renewLeases: parts.dispatcher.renewLeases,
    onQueued: parts.dispatcher.wake,
    onEvents: parts.webhookEngine.wake,
  })
  schedule.start()
  live.onChange(() => schedule.replan())
  working.push(() => schedule.stop())
  return schedule
}

type HealthParts = Pick<CheckWorldParts, 'domains' | 'warmup' | 'reload'> & OperatorChannelParts

const DOCUMENT_MILLISECONDS = 5 * SECOND

export function startHealthChecks(foundation: Foundation, parts: HealthParts): HealthKeeper {
  const { live, metrics, logger, configuration } = foundation
  const { data_dir: folder, hostname } = configuration.server
  // The registries of domains are public: nothing is fetched from our own network.
  const rules = { allowPrivateAddresses: false, allowHttp: false }
  const request = startGuardedRequest(foundation, rules, foundation.resolver)
  const looked = {
    ...foundation,
    ...parts,
    folder,
    blocklistResolver: blocklistResolver(foundation),
    fetchDocument: (url: string) => request.get({ url, timeoutMilliseconds: DOCUMENT_MILLISECONDS }),
  }
  return createHealthKeeper({
    hostname,
    metrics,
    file: join(folder, 'health.json'),
    world: (asked, isAwaited, growthPerDay) => checkWorld({ ...looked, growthPerDay }, asked, isAwaited),
    channels: () => operatorChannels(live.current().server, parts),
    interval: () => live.current().server.health.interval,
    // Real upkeep of a real machine, whatever time schedules follow.
    clock: systemClock,
    logger: logger.child({ part: 'health' }),
  })
}
