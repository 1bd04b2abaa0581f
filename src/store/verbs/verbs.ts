/**
 * Every verb of the store in one table: those that write and share commits, and those that read and answer at once.
 *
 * A verb is a plain synchronous function with the arguments of the interface. Writing ones never begin or end a
 * transaction: the group commit does that around them.
 */
import type { PackedRequest } from '../records/accept-records.ts'
import { memoryOfContent, sizeOfBlocks } from '../records/packed-content.ts'
import { createAcceptMessages } from './queue/accept.ts'
import { createApiKeyReads, createApiKeyWrites } from './domains/api-keys.ts'
import { createAuthenticationReads, createAuthenticationWrites } from './domains/authentication-reports.ts'
import { createCertificateReads, createCertificateWrites } from './domains/certificates.ts'
import { createBatchAndLinkReads, createMessageReads } from './lookups/lookups.ts'
import { createAuditReads, createAuditWrites } from './console/audit.ts'
import { createLoginReads, createLoginWrites } from './console/logins.ts'
import { createCustomerActions, createRequestToRepeat } from './queue/cancel.ts'
import { createClaiming } from './queue/claim.ts'
import type { OpenEngine } from '../engine/open-engine.ts'
import { createDomainReads, createDomainWrites, createQueuedCount, createDomainRemoval } from './domains/domains.ts'
import { createRecordEngagement, createRecordUnsubscribe } from './outcomes/engagement.ts'
import { createEventStream } from './events/event-stream.ts'
import { createExpireDue } from './queue/expire.ts'
import { createFigures } from './lookups/figures.ts'
import { createFindIdempotent, createAnswerWrites } from './queue/kept-answers.ts'
import { createNodeReads, createNodeWrites } from './nodes/nodes.ts'
import { createLeasedRows, createLeaseWrites } from './queue/leases.ts'
import { createRecordOutcomes } from './outcomes/outcomes.ts'
import { createPruneWebhooks, createDeliveryLog } from './webhooks/webhook-log.ts'
import { createQueueActionStep } from './queue/queue-actions.ts'
import { createQueueGroupStep } from './queue/waiting-rows.ts'
import { createQueueKeys } from './queue/queue-keys.ts'
import { createCountSending, createCountWaiting, createMoveOrphans, createWatchQueue } from './queue/queue-upkeep.ts'
import { createRecordReport, createReportReads, createUnmatchedReportWrites } from './outcomes/reports.ts'
import { createAssignRoutes, createUnroutedDomains } from './queue/routes.ts'
import { createSearchMessages } from './lookups/search.ts'
import { createLinkHtmlReader } from './messages/stored-content.ts'
import { createPasskeyReads, createPasskeyWrites } from './console/passkeys.ts'
import { createSubjectWrites } from './lookups/subjects.ts'
import { createStatisticsReads, createStatisticsWrites } from './statistics/statistics.ts'
import { createSuppressionWrites, createListSuppressions } from './suppressions/suppressions.ts'
import {
  createClaimWebhooks,
  createEarliestWebhookDueAt,
  createRecordWebhookResults,
} from './webhooks/webhook-deliveries.ts'
import { createEndpointWrites, createFindWebhookEndpoint, createEndpointReads } from './webhooks/webhook-endpoints.ts'
import { createReplays } from './webhooks/webhook-replays.ts'
import { createEraseRecipient, createSpellingsOf } from './retention/erase-recipient.ts'
import { createForgetEvents, createForgetMessages } from './retention/forget-messages.ts'
import {
  createForgetContents,
  createContentReads,
  createForgetLinks,
  createPartRemovals,
} from './retention/forget-contents.ts'
import { createSizeWrites, createStorageFigures } from './retention/storage-figures.ts'
import { createReserveAllowance } from './ips/allowance.ts'
import { createForgetIpHistory, createIpWrites, createIpReads } from './ips/ip-records.ts'
import { createIpLookups } from './ips/ip-lookups.ts'
import { createTlsReads, createTlsWrites, createAddTlsResults } from './ips/outbound-tls.ts'
import { createAddWaitingCounts } from './ips/waiting-counts.ts'

type WriteVerbs = ReturnType<typeof createWriteVerbs>

type ReadVerbs = ReturnType<typeof createReadVerbs>

export type Verbs = WriteVerbs & ReadVerbs

export function createWriteVerbs({ writer, giveBackPages }: Pick<OpenEngine, 'writer' | 'giveBackPages'>) {
  return {
    acceptMessages: together(createAcceptMessages(writer)),
    ...createAnswerWrites(writer),
    ...createClaiming(writer),
    assignSomeRoutes: createAssignRoutes(writer),
    ...createNodeWrites(writer),
    ...createLeaseWrites(writer),
    recordOutcomes: together(createRecordOutcomes(writer)),
    expireDue: createExpireDue(writer),
    moveSomeOrphans: createMoveOrphans(writer),
    actOnSomeOfQueue: createQueueActionStep(writer),
    ...createCustomerActions(writer),
    recordReport: createRecordReport(writer),
    ...createUnmatchedReportWrites(writer),
    ...createAuthenticationWrites(writer),
    ...createApiKeyWrites(writer),
    ...createCertificateWrites(writer),
    ...createLoginWrites(writer),
    ...createStatisticsWrites(writer),
    ...createPasskeyWrites(writer),
    ...createSubjectWrites(writer),
    ...createAuditWrites(writer),
    ...createSuppressionWrites(writer),
    recordEngagement: createRecordEngagement(writer),
    recordUnsubscribe: createRecordUnsubscribe(writer),
    ...createDomainWrites(writer),
    ...createDomainRemoval(writer),
    ...createEndpointWrites(writer),
    claimWebhooks: createClaimWebhooks(writer),
    recordWebhookResults: createRecordWebhookResults(writer),
    ...createReplays(writer),
    pruneWebhooks: createPruneWebhooks(writer),
    addWaitingCounts: createAddWaitingCounts(writer),
    ...createIpWrites(writer),
    reserveAllowance: createReserveAllowance(writer),
    forgetIpHistory: createForgetIpHistory(writer),
    ...createTlsWrites(writer),
    addTlsResults: createAddTlsResults(writer),
    forgetContents: createForgetContents(writer),
    forgetMessages: createForgetMessages(writer),
    forgetEvents: createForgetEvents(writer),
    ...createPartRemovals(writer),
    forgetLinks: createForgetLinks(writer),
    ...createSizeWrites(writer),
    giveBackPages,
    eraseSomeOfRecipient: createEraseRecipient(writer),
  }
}

export function createReadVerbs({ reader, databaseSize }: Pick<OpenEngine, 'reader' | 'databaseSize'>) {
  // A read of a real page: the watchdog asks whether the disk answers.
  const tick = reader.prepare(`select value from meta where name = 'epoch'`)
  return {
    unroutedDomains: createUnroutedDomains(reader),
    queueKeys: createQueueKeys(reader),
    ...createNodeReads(reader),
    leasedRows: createLeasedRows(reader),
    watchQueue: createWatchQueue(reader),
    someQueueGroups: createQueueGroupStep(reader),
    countSomeWaiting: createCountWaiting(reader),
    countSending: createCountSending(reader),
    figures: createFigures(reader, databaseSize),
    ...createMessageReads(reader),
    findIdempotent: createFindIdempotent(reader),
    searchMessages: createSearchMessages(reader),
    spellingsOf: createSpellingsOf(reader),
    requestToRepeat: createRequestToRepeat(reader),
    ...createBatchAndLinkReads(reader),
    linkHtml: createLinkHtmlReader(reader),
    ...createApiKeyReads(reader),
    ...createCertificateReads(reader),
    ...createLoginReads(reader),
    ...createPasskeyReads(reader),
    ...createStatisticsReads(reader),
    ...createAuditReads(reader),
    listSuppressions: createListSuppressions(reader),
    ...createDomainReads(reader),
    ...createReportReads(reader),
    ...createAuthenticationReads(reader),
    queuedMessages: createQueuedCount(reader),
    earliestWebhookDueAt: createEarliestWebhookDueAt(reader),
    ...createEndpointReads(reader),
    findWebhookEndpoint: createFindWebhookEndpoint(reader),
    ...createDeliveryLog(reader),
    ...createEventStream(reader),
    ...createIpReads(reader),
    ...createIpLookups(reader),
    ...createTlsReads(reader),
    ...createContentReads(reader),
    databaseSize,
    storageFigures: createStorageFigures(reader, databaseSize),
    tick: () => void tick.get(),
  }
}

/** Calls of this verb in one group run as one. */
interface TogetherVerb<Request, Answer> {
  (request: Request): Answer
  together(requests: readonly Request[]): Answer[]
}

function together<Request, Answer>(many: (requests: readonly Request[]) => Answer[]): TogetherVerb<Request, Answer> {
  const one = (request: Request): Answer => {
    const [answer] = many([request])
    return answer as Answer
  }
  return Object.assign(one, { together: many })
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
  const bytes = sizeOfBlocks(content) + messages.length * ROW_BYTES
  return { messages: messages.length, rows: messages.length, bytes }
}

/** Frees the memory of the content that a call brought with it. Its verb will not run again. */
export function freeContent(verb: string, argument: unknown): void {
  // Left to the garbage collector, the contents would have it look through the whole heap again and again.
  if (verb !== 'acceptMessages') return
  for (const memory of memoryOfContent((argument as PackedRequest).content)) memory.transfer(0)
}
