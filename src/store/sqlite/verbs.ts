/**
 * Every verb of the store in one table: those that write and share commits, and those that read and answer at once.
 *
 * A verb is a plain synchronous function of one argument. Writing ones never begin or end a transaction: the group
 * commit does that around them.
 */
import type { AcceptRequest } from '../records.ts'
import { createAcceptMessages } from './accept.ts'
import { createAddApiKey, createFindApiKey } from './api-keys.ts'
import {
  createBeginEpoch, createClaimDue, createEarliestDueAt, createMoveOrphans, createRecoverLapsedLeases,
  createRenewLeases, createUnclaim,
} from './claim.ts'
import type { OpenDatabase } from './database.ts'
import {
  createAddDkimKeys, createAddDomain, createDomainsDueForCheck, createEarlierDkimKeys, createFindDomain,
  createFindReturnPath, createListDomains, createRecordDomainCheck, createUpdateDomain,
} from './domains.ts'
import { createExpireDue } from './expire.ts'
import { createLookupMessage, createMessageEvents, createQueueSummary } from './lookups.ts'
import { createRecordOutcomes } from './outcomes.ts'
import { createCancelPurged, createQueuedCount, createRemoveDomain } from './remove-domain.ts'
import {
  createAddWebhookEndpoint, createClaimWebhooks, createEarliestWebhookDueAt, createRecordWebhookResults,
} from './webhook-deliveries.ts'

export type WriteVerbs = ReturnType<typeof createWriteVerbs>
export type ReadVerbs = ReturnType<typeof createReadVerbs>
export type Verbs = WriteVerbs & ReadVerbs

export function createWriteVerbs({ writer }: OpenDatabase) {
  return {
    beginEpoch: createBeginEpoch(writer),
    acceptMessages: createAcceptMessages(writer),
    claimDue: createClaimDue(writer),
    unclaim: createUnclaim(writer),
    recordOutcomes: createRecordOutcomes(writer),
    renewLeases: createRenewLeases(writer),
    recoverLapsedLeases: createRecoverLapsedLeases(writer),
    expireDue: createExpireDue(writer),
    moveOrphans: createMoveOrphans(writer),
    addApiKey: createAddApiKey(writer),
    addDomain: createAddDomain(writer),
    updateDomain: createUpdateDomain(writer),
    recordDomainCheck: createRecordDomainCheck(writer),
    addDkimKeys: createAddDkimKeys(writer),
    removeDomain: createRemoveDomain(writer),
    cancelPurged: createCancelPurged(writer),
    addWebhookEndpoint: createAddWebhookEndpoint(writer),
    claimWebhooks: createClaimWebhooks(writer),
    recordWebhookResults: createRecordWebhookResults(writer),
  }
}

export function createReadVerbs({ reader }: OpenDatabase) {
  // A read of a real page: the watchdog asks whether the disk answers.
  const tick = reader.prepare(`select value from meta where name = 'epoch'`)
  return {
    earliestDueAt: createEarliestDueAt(reader),
    queueSummary: createQueueSummary(reader),
    lookupMessage: createLookupMessage(reader),
    messageEvents: createMessageEvents(reader),
    findApiKey: createFindApiKey(reader),
    findDomain: createFindDomain(reader),
    findReturnPath: createFindReturnPath(reader),
    earlierDkimKeys: createEarlierDkimKeys(reader),
    listDomains: createListDomains(reader),
    domainsDueForCheck: createDomainsDueForCheck(reader),
    queuedMessages: createQueuedCount(reader),
    earliestWebhookDueAt: createEarliestWebhookDueAt(reader),
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
  if (verb !== 'acceptMessages') return { messages: 0, rows: 1, bytes: ROW_BYTES }
  const { content, messages } = argument as AcceptRequest
  const attachmentBytes = content.attachments.reduce((sum, attachment) => sum + attachment.bytes.length, 0)
  const textBytes = (content.html?.length ?? 0) + (content.text?.length ?? 0)
  const bytes = textBytes + attachmentBytes + messages.length * ROW_BYTES
  return { messages: messages.length, rows: messages.length, bytes }
}
