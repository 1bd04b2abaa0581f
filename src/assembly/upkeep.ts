/**
 * What looks after the data itself: retention by the times in force, backups, and what is left out while the disk runs
 * low.
 */
import { join } from 'node:path'
import { keptLinksText } from '../content/kept-links.ts'
import { createBackups } from '../store/open/backups.ts'
import type { Backups } from '../store/open/backups.ts'
import { createRetention } from '../store/retention.ts'
import type { Retention, RetentionTimes } from '../store/retention.ts'
import type { Store } from '../store/store.ts'
import type { Configuration } from '../config/load-configuration.ts'
import type { Foundation } from './foundation.ts'

export function startRetention({ live, store, clock, realClock, logger, stops }: Foundation): Retention {
  const retention = createRetention({
    store,
    keptLinksText,
    clock,
    realClock,
    times: () => retentionTimes(live.current()),
    logger: logger.child({ part: 'store' }),
  })
  stops.push(async () => retention.stop())
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

/** The same store, but the dialogues of tries are left out while they are not to be kept. */
export function withoutTranscripts(store: Store, keepsTranscripts: () => boolean): Store {
  return {
    ...store,
    recordOutcomes: (request) =>
      store.recordOutcomes(
        keepsTranscripts()
          ? request
          : { ...request, outcomes: request.outcomes.map((outcome) => ({ ...outcome, transcript: null })) },
      ),
  }
}

export function createBackupWriter({
  live,
  location,
  configurationFolder,
  clock,
  logger,
  metrics,
  working,
}: Foundation): Backups {
  const backups = createBackups({
    clock,
    metrics,
    databaseFile: join(location.folder, 'sternpost.db'),
    configurationFolder: configurationFolder ?? null,
    settings() {
      const { backup, storage } = live.current().server
      // Below twice the mark the disk is said to run low.
      return { ...backup, keptFreeBytes: 2 * storage.min_free_accept }
    },
    logger: logger.child({ part: 'store' }),
  })
  // With the schedule, which waits for a backup that it has begun.
  working.push(() => backups.stop())
  return backups
}
