/**
 * Every verb of the store in one table: those that write and share commits, and those that read and answer at once.
 *
 * A verb is a plain synchronous function of one argument. Writing ones never begin or end a transaction: the group
 * commit does that around them.
 */
import type { PackedRequest } from '../accept-records.ts'
import { createAcceptMessages } from './accept.ts'
import {
  createAddApiKey, createFindApiKey, createFindApiKeyById, createListApiKeys, createNoteKeyUse, createRevokeApiKey,
  createUpdateApiKey,
} from './api-keys.ts'
import { createLookupBatch } from './batches.ts'
import { createCancelBatch, createCancelMessage, createRetryNow } from './cancel.ts'
import { createClaiming } from './claim.ts'
import type { OpenDatabase } from './database.ts'
import { createFindTrackingHost } from './domain-rows.ts'
import {
  createAddDkimKeys, createAddDomain, createDomainsDueForCheck, createEarlierDkimKeys, createFindDomain,
  createFindReturnPath, createIsReturnPath, createListDomains, createRecordDomainCheck, createUpdateDomain,
} from './domains.ts'
import { createRecordEngagement } from './engagement.ts'
import { createEventPosition, createEventsAfter } from './event-stream.ts'
import { createExpireDue } from './expire.ts'
import { createFigures } from './figures.ts'
import { createFindIdempotent, createForgetAnswers, createKeepAnswer } from './idempotency.ts'
import { createIpReadVerbs, createIpWriteVerbs } from './ip-verbs.ts'
import {
  createBeginEpoch, createLeasedRows, createMarkDotSent, createRecoverLapsedLeases, createRenewLeases, createUnclaim,
} from './leases.ts'
import { createLinkSource } from './link-source.ts'
import { createLookupMessage, createMessageEvents, createRoadSummary, createTranscripts } from './lookups.ts'
import { createRecordOutcomes } from './outcomes.ts'
import { createPruneWebhooks } from './prune-webhooks.ts'
import { createQueueActionStep } from './queue-actions.ts'
import { createQueueGroupStep } from './queue-groups.ts'
import { createQueueKeys } from './queue-keys.ts'
import { createCountSending, createCountWaiting, createMoveOrphans, createWatchQueue } from './queue-upkeep.ts'
import { createCancelPurged, createQueuedCount, createRemoveDomain } from './remove-domain.ts'
import { createRequestToRepeat } from './repeat.ts'
import { createRecordReport } from './reports.ts'
import { createReportSums } from './report-sums.ts'
import { createRetentionReadVerbs, createRetentionWriteVerbs } from './retention/retention-verbs.ts'
import { createAssignRoutes, createUnroutedDomains } from './routes.ts'
import { createSearchMessages } from './search.ts'
import { createLinkHtmlReader } from './stored-content.ts'
import {
  createAddSuppression, createAddSuppressions, createListSuppressions, createRemoveSuppressions,
} from './suppressions.ts'
import {
  createForgetUnmatchedReports, createKeepUnmatchedReport, createListUnmatchedReports,
} from './unmatched-reports.ts'
import { createRecordUnsubscribe } from './unsubscribe.ts'
import { createClaimWebhooks, createEarliestWebhookDueAt, createRecordWebhookResults } from './webhook-deliveries.ts'
import {
  createAddWebhookEndpoint, createFindWebhookEndpoint, createFindWebhookTarget, createListWebhookEndpoints,
  createRemoveWebhookEndpoint, createRotateWebhookSecret, createUpdateWebhookEndpoint,
} from './webhook-endpoints.ts'
import { createFindWebhookDelivery, createListWebhookDeliveries } from './webhook-log.ts'
import { createReplayWebhook, createReplayWebhooks } from './webhook-replays.ts'

export type WriteVerbs = ReturnType<typeof createWriteVerbs>
export type ReadVerbs = ReturnType<typeof createReadVerbs>
export type Verbs = WriteVerbs & ReadVerbs

/** A verb called from the main thread. */
export type Call = <Verb extends keyof Verbs>(
  verb: Verb,
  ...argument: Parameters<Verbs[Verb]>
) => Promise<ReturnType<Verbs[Verb]>>

export function createWriteVerbs({ writer }: OpenDatabase) {
  return {
    beginEpoch: createBeginEpoch(writer),
    acceptMessages: createAcceptMessages(writer),
    keepAnswer: createKeepAnswer(writer),
    forgetAnswers: createForgetAnswers(writer),
    ...createClaiming(writer),
    assignSomeRoutes: createAssignRoutes(writer),
    unclaim: createUnclaim(writer),
    markDotSent: createMarkDotSent(writer),
    recordOutcomes: createRecordOutcomes(writer),
    renewLeases: createRenewLeases(writer),
    recoverLapsedLeases: createRecoverLapsedLeases(writer),
    expireDue: createExpireDue(writer),
    moveSomeOrphans: createMoveOrphans(writer),
    actOnSomeOfQueue: createQueueActionStep(writer),
    cancelMessage: createCancelMessage(writer),
    cancelBatch: createCancelBatch(writer),
    retryNow: createRetryNow(writer),
    recordReport: createRecordReport(writer),
    keepUnmatchedReport: createKeepUnmatchedReport(writer),
    forgetUnmatchedReports: createForgetUnmatchedReports(writer),
    addApiKey: createAddApiKey(writer),
    updateApiKey: createUpdateApiKey(writer),
    revokeApiKey: createRevokeApiKey(writer),
    noteKeyUse: createNoteKeyUse(writer),
    addSuppression: createAddSuppression(writer),
    addSuppressions: createAddSuppressions(writer),
    removeSuppressions: createRemoveSuppressions(writer),
    recordEngagement: createRecordEngagement(writer),
    recordUnsubscribe: createRecordUnsubscribe(writer),
    addDomain: createAddDomain(writer),
    updateDomain: createUpdateDomain(writer),
    recordDomainCheck: createRecordDomainCheck(writer),
    addDkimKeys: createAddDkimKeys(writer),
    removeDomain: createRemoveDomain(writer),
    cancelPurged: createCancelPurged(writer),
    addWebhookEndpoint: createAddWebhookEndpoint(writer),
    claimWebhooks: createClaimWebhooks(writer),
    recordWebhookResults: createRecordWebhookResults(writer),
    updateWebhookEndpoint: createUpdateWebhookEndpoint(writer),
    removeWebhookEndpoint: createRemoveWebhookEndpoint(writer),
    rotateWebhookSecret: createRotateWebhookSecret(writer),
    replayWebhook: createReplayWebhook(writer),
    replayWebhooks: createReplayWebhooks(writer),
    pruneWebhooks: createPruneWebhooks(writer),
    ...createIpWriteVerbs(writer),
    ...createRetentionWriteVerbs(writer),
  }
}

export function createReadVerbs({ reader }: OpenDatabase) {
  // A read of a real page: the watchdog asks whether the disk answers.
  const tick = reader.prepare(`select value from meta where name = 'epoch'`)
  return {
    unroutedDomains: createUnroutedDomains(reader),
    queueKeys: createQueueKeys(reader),
    leasedRows: createLeasedRows(reader),
    watchQueue: createWatchQueue(reader),
    someQueueGroups: createQueueGroupStep(reader),
    countSomeWaiting: createCountWaiting(reader),
    countSending: createCountSending(reader),
    figures: createFigures(reader),
    lookupMessage: createLookupMessage(reader),
    messageEvents: createMessageEvents(reader),
    findIdempotent: createFindIdempotent(reader),
    searchMessages: createSearchMessages(reader),
    transcripts: createTranscripts(reader),
    roadSummary: createRoadSummary(reader),
    lookupBatch: createLookupBatch(reader),
    requestToRepeat: createRequestToRepeat(reader),
    linkSource: createLinkSource(reader),
    linkHtml: createLinkHtmlReader(reader),
    findApiKey: createFindApiKey(reader),
    findApiKeyById: createFindApiKeyById(reader),
    listApiKeys: createListApiKeys(reader),
    listSuppressions: createListSuppressions(reader),
    findDomain: createFindDomain(reader),
    findReturnPath: createFindReturnPath(reader),
    findTrackingHost: createFindTrackingHost(reader),
    isReturnPath: createIsReturnPath(reader),
    listUnmatchedReports: createListUnmatchedReports(reader),
    reportSums: createReportSums(reader),
    earlierDkimKeys: createEarlierDkimKeys(reader),
    listDomains: createListDomains(reader),
    domainsDueForCheck: createDomainsDueForCheck(reader),
    queuedMessages: createQueuedCount(reader),
    earliestWebhookDueAt: createEarliestWebhookDueAt(reader),
    listWebhookEndpoints: createListWebhookEndpoints(reader),
    findWebhookEndpoint: createFindWebhookEndpoint(reader),
    findWebhookTarget: createFindWebhookTarget(reader),
    listWebhookDeliveries: createListWebhookDeliveries(reader),
    findWebhookDelivery: createFindWebhookDelivery(reader),
    eventsAfter: createEventsAfter(reader),
    eventPosition: createEventPosition(reader),
    ...createIpReadVerbs(reader),
    ...createRetentionReadVerbs(reader),
    tick: () => void tick.get(),
  }
}

/** What a call puts on its group: it ends at so many rows or bytes. */
export interface VerbWeight {
  messages: number
  rows: number
  bytes: number
}

/** Rough size of a row without bodies. */
const ROW_BYTES = 512

export function weigh(verb: string, argument: unknown): VerbWeight {
  if (verb === 'addSuppressions' && Array.isArray(argument)) {
    return { messages: 0, rows: argument.length, bytes: argument.length * ROW_BYTES }
  }
  if (verb !== 'acceptMessages') return { messages: 0, rows: 1, bytes: ROW_BYTES }
  const { content, messages } = argument as PackedRequest
  const bytes = content.bytes.length + messages.length * ROW_BYTES
  return { messages: messages.length, rows: messages.length, bytes }
}

/** Frees the memory of the content that a call brought with it. Its verb will not run again. */
export function freeContent(verb: string, argument: unknown): void {
  // Left to the garbage collector, the contents would have it look through the whole heap again and again.
  if (verb === 'acceptMessages') (argument as PackedRequest).content.bytes.buffer.transfer(0)
}
