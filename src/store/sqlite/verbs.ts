/**
 * Every verb of the store in one table: those that write and share commits, and those that read and answer at once.
 *
 * A verb is a plain synchronous function of one argument. Writing ones never begin or end a transaction: the group
 * commit does that around them.
 */
import type { PackedRequest } from '../records/accept-records.ts'
import { createAcceptMessages } from './queue/accept.ts'
import {
  createAddApiKey,
  createFindApiKey,
  createFindApiKeyById,
  createListApiKeys,
  createNoteKeyUse,
  createRevokeApiKey,
  createUpdateApiKey,
} from './domains/api-keys.ts'
import { createLookupBatch } from './lookups/batches.ts'
import { createCancelBatch, createCancelMessage, createRetryNow } from './queue/cancel.ts'
import { createClaiming } from './queue/claim.ts'
import type { OpenDatabase } from './engine/database.ts'
import { createFindTrackingHost } from './domains/domain-rows.ts'
import {
  createAddDkimKeys,
  createAddDomain,
  createDomainsDueForCheck,
  createEarlierDkimKeys,
  createFindDomain,
  createFindReturnPath,
  createIsReturnPath,
  createListDomains,
  createRecordDomainCheck,
  createUpdateDomain,
} from './domains/domains.ts'
import { createRecordEngagement } from './outcomes/engagement.ts'
import { createEventPosition, createEventsAfter } from './events/event-stream.ts'
import { createExpireDue } from './queue/expire.ts'
import { createFigures } from './lookups/figures.ts'
import { createFindIdempotent, createForgetAnswers, createKeepAnswer } from './queue/kept-answers.ts'
import { createIpReadVerbs, createIpWriteVerbs } from './ips/ip-verbs.ts'
import {
  createBeginEpoch,
  createLeasedRows,
  createMarkDotSent,
  createRecoverLapsedLeases,
  createRenewLeases,
  createUnclaim,
} from './queue/leases.ts'
import { createLinkSource } from './lookups/link-source.ts'
import { createLookupMessage, createMessageEvents, createRoadSummary, createTranscripts } from './lookups/lookups.ts'
import { createRecordOutcomes } from './outcomes/outcomes.ts'
import { createPruneWebhooks } from './webhooks/prune-webhooks.ts'
import { createQueueActionStep } from './queue/queue-actions.ts'
import { createQueueGroupStep } from './queue/queue-groups.ts'
import { createQueueKeys } from './queue/queue-keys.ts'
import { createCountSending, createCountWaiting, createMoveOrphans, createWatchQueue } from './queue/queue-upkeep.ts'
import { createCancelPurged, createQueuedCount, createRemoveDomain } from './domains/remove-domain.ts'
import { createRequestToRepeat } from './queue/repeat.ts'
import { createRecordReport } from './outcomes/reports.ts'
import { createReportSums } from './outcomes/report-sums.ts'
import { createRetentionReadVerbs, createRetentionWriteVerbs } from './retention/retention-verbs.ts'
import { createAssignRoutes, createUnroutedDomains } from './queue/routes.ts'
import { createSearchMessages } from './lookups/search.ts'
import { createLinkHtmlReader } from './messages/stored-content.ts'
import {
  createAddSuppression,
  createAddSuppressions,
  createListSuppressions,
  createRemoveSuppressions,
} from './suppressions/suppressions.ts'
import {
  createForgetUnmatchedReports,
  createKeepUnmatchedReport,
  createListUnmatchedReports,
} from './outcomes/unmatched-reports.ts'
import { createRecordUnsubscribe } from './outcomes/unsubscribe.ts'
import {
  createClaimWebhooks,
  createEarliestWebhookDueAt,
  createRecordWebhookResults,
} from './webhooks/webhook-deliveries.ts'
import {
  createAddWebhookEndpoint,
  createFindWebhookEndpoint,
  createFindWebhookTarget,
  createListWebhookEndpoints,
  createRemoveWebhookEndpoint,
  createRotateWebhookSecret,
  createUpdateWebhookEndpoint,
} from './webhooks/webhook-endpoints.ts'
import { createFindWebhookDelivery, createListWebhookDeliveries } from './webhooks/webhook-log.ts'
import { createReplayWebhook, createReplayWebhooks } from './webhooks/webhook-replays.ts'

type WriteVerbs = ReturnType<typeof createWriteVerbs>
type ReadVerbs = ReturnType<typeof createReadVerbs>
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
interface VerbWeight {
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
