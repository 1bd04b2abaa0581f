/**
 * The SQLite store as the main thread sees it: every verb is a call to the store thread, in batches.
 *
 * A promise of a writing verb settles after the commit. When the store thread dies, every open and later call is
 * rejected and `onDeath` is told once: the process must end and recover as after a kill. What was called before `close`
 * is finished; whatever comes later is rejected.
 *
 * Rejects with ProcessExit when the database can not be opened: see `openStore`.
 */
import { MessageChannel, Worker } from 'node:worker_threads'
import { EXIT, ProcessExit, ServiceError } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics.ts'
import { createThreadChannel, type ThreadChannel } from '../../base/threads/thread-channel.ts'
import type { PackedRequest } from '../records/accept-records.ts'
import { packContent } from '../records/packed-content.ts'
import type { OpenStoreOptions } from '../store-location.ts'
import type { Store } from '../store.ts'
import type { CommitReport } from './engine/group-commit.ts'
import { createQueueParts } from './queue-parts.ts'
import { createCountedCall, createIpCalls } from './ip-calls.ts'
import { createRetentionCalls } from './retention-calls.ts'
import { CLOSE_CALL, type StoreThreadData, type StoreThreadMessage } from './thread-messages.ts'
import type { Call, Verbs } from './verbs.ts'

type Opened = Extract<StoreThreadMessage, { kind: 'opened' }>

/** Messages that one transaction cancels at most. */
const CANCELED_AT_ONCE = 500

export async function openSqliteStore(options: OpenStoreOptions): Promise<Store> {
  const { port1, port2 } = new MessageChannel()
  const workerData: StoreThreadData = { location: options.location, verbs: port2 }
  const entry = new URL('./store-thread.ts', import.meta.url)
  // Without the flags of the process: what they load (a debugger, a test runner) has no business here.
  const worker = new Worker(entry, { workerData, transferList: [port2], name: 'store', execArgv: [] })
  options.metrics.watchThread('store', worker)
  const channel = createThreadChannel(port1, (note) => observeCommit(options.metrics, note as CommitReport))
  let state: 'opening' | 'open' | 'closing' = 'opening'
  let failure: Error | undefined
  const exited = watch(worker, (reason, code) => {
    if (code !== 0) failure = reason
    channel.fail(state === 'closing' ? storeClosed() : storeClosed(reason))
    port1.close()
    if (state === 'open') options.onDeath(reason)
  })
  const { durability, schemaVersion } = await hearThread(worker, exited)
  state = 'open'
  options.logger.info(
    {
      folder: options.location.folder,
      journal_mode: durability.journalMode,
      synchronous: durability.synchronous,
      schema_version: schemaVersion,
    },
    'store opened',
  )

  const ask: Ask = (...asked) => (state === 'closing' ? Promise.reject(storeClosed()) : channel.call(...asked))
  const close = async (): Promise<void> => {
    state = 'closing'
    // The thread's end may be seen before its answer, and is as good: a close that fails is an error of the thread.
    channel.call(CLOSE_CALL, undefined).catch(() => {})
    await exited
    if (failure !== undefined) throw failure
  }
  return { ...createStoreCalls(ask), close }
}

type Ask = ThreadChannel['call']

/** The verbs of a store whose thread is asked by `ask`. */
export function createStoreCalls(ask: Ask): Omit<Store, 'close'> {
  const call: Call = (verb, ...argument) => ask(verb, argument[0]) as Promise<ReturnType<Verbs[typeof verb]>>
  return { ...createVerbCalls(call), acceptMessages: createAcceptCall(ask) }
}

/** There is nothing to ask any more. */
function storeClosed(cause?: Error): ServiceError {
  return new ServiceError('unavailable', 'the store is closed', { cause })
}

/** The content moves to the store thread. */
function createAcceptCall(ask: Ask): Store['acceptMessages'] {
  return (request) => {
    const content = packContent(request.content)
    const packed: PackedRequest = { ...request, content }
    return ask('acceptMessages', packed, [content.bytes.buffer]) as ReturnType<Store['acceptMessages']>
  }
}

/** The interface's verbs over the thread's, which take one argument each. */
function createVerbCalls(call: Call): Omit<Store, 'close' | 'acceptMessages'> {
  return {
    beginEpoch: (now, uncertainAt) => call('beginEpoch', { now, uncertainAt }),
    findIdempotent: (entry, now) => call('findIdempotent', { entry, now }),
    keepAnswer: (entry, answer, now) => call('keepAnswer', { entry, answer, now }),
    forgetAnswers: (now, limit) => call('forgetAnswers', { now, limit }),
    claimDue: (request) => call('claimDue', request),
    claimUnrouted: (request) => call('claimUnrouted', request),
    unroutedDomains: (limit) => call('unroutedDomains', limit),
    queueKeys: (after, mostRows) => call('queueKeys', { after, mostRows }),
    unclaim: (request) => call('unclaim', request),
    markDotSent: (epoch, rows) => call('markDotSent', { epoch, rows }),
    recordOutcomes: (request) => call('recordOutcomes', request),
    renewLeases: (epoch, rows, leaseUntil) => call('renewLeases', { epoch, rows, leaseUntil }),
    leasedRows: (epoch, after, limit) => call('leasedRows', { epoch, after, limit }),
    recoverLapsedLeases: (leasesBefore, now, uncertainAt) =>
      call('recoverLapsedLeases', { leasesBefore, now, uncertainAt }),
    expireDue: (now, limit) => call('expireDue', { now, limit }),
    watchQueue: (overdueBefore, leasedBefore) => call('watchQueue', { overdueBefore, leasedBefore }),
    ...createQueueParts(call),
    lookupMessage: (id, now) => call('lookupMessage', { id, now }),
    messageEvents: (id) => call('messageEvents', id),
    searchMessages: (request) => call('searchMessages', request),
    transcripts: (id) => call('transcripts', id),
    roadSummary: (isp, ip, since) => call('roadSummary', { isp, ip, since }),
    lookupBatch: (id, now) => call('lookupBatch', { id, now }),
    cancelMessage: (id, now) => call('cancelMessage', { id, now }),
    cancelBatch: (id, now) => call('cancelBatch', { id, now }),
    retryNow: (id, now) => call('retryNow', { id, now }),
    requestToRepeat: (id, now) => call('requestToRepeat', { id, now }),
    recordReport: (report) => call('recordReport', report),
    keepUnmatchedReport: (report) => call('keepUnmatchedReport', report),
    listUnmatchedReports: (limit) => call('listUnmatchedReports', limit),
    forgetUnmatchedReports: (before) => call('forgetUnmatchedReports', before),
    reportSums: (since) => createCountedCall(call)('reportSums', since),
    addApiKey: (key, hash, most) => call('addApiKey', { key, hash, most }),
    findApiKey: (hash) => call('findApiKey', hash),
    findApiKeyById: (id) => call('findApiKeyById', id),
    listApiKeys: (limit, after) => call('listApiKeys', { limit, after }),
    updateApiKey: (id, change) => call('updateApiKey', { id, change }),
    revokeApiKey: (id, now, keepsAdmin) => call('revokeApiKey', { id, now, keepsAdmin }),
    noteKeyUse: (uses) => call('noteKeyUse', uses),
    addSuppression: (suppression) => call('addSuppression', suppression),
    addSuppressions: (suppressions) => call('addSuppressions', suppressions),
    removeSuppressions: (email, scope, isTest) => call('removeSuppressions', { email, scope, isTest }),
    listSuppressions: (request) => call('listSuppressions', request),
    recordEngagement: (request) => call('recordEngagement', request),
    recordUnsubscribe: (request) => call('recordUnsubscribe', request),
    linkSource: (messageId) => call('linkSource', messageId),
    linkHtml: (contentId) => call('linkHtml', contentId),
    addDomain: (domain, most) => call('addDomain', { domain, most }),
    findDomain: (name) => call('findDomain', name),
    findReturnPath: (name) => call('findReturnPath', name),
    findTrackingHost: (name) => call('findTrackingHost', name),
    isReturnPath: (host) => call('isReturnPath', host),
    listDomains: (request) => call('listDomains', request),
    updateDomain: (name, change) => call('updateDomain', { name, change }),
    recordDomainCheck: (result) => call('recordDomainCheck', result),
    earlierDkimKeys: (name) => call('earlierDkimKeys', name),
    addDkimKeys: (name, keys) => call('addDkimKeys', { name, keys }),
    domainsDueForCheck: (now, limit) => call('domainsDueForCheck', { now, limit }),
    queuedMessages: (domain) => call('queuedMessages', domain),
    async removeDomain(request) {
      const removed = await call('removeDomain', request)
      if (removed !== null && request.purge) await cancelAllPurged(call, request.now)
      return removed
    },
    cancelPurged: (now, limit) => call('cancelPurged', { now, limit }),
    ...createWebhookCalls(call),
    ...createIpCalls(call),
    ...createRetentionCalls(call),
    figures: () => call('figures'),
    tick: () => call('tick'),
  }
}

type WebhookCalls = Pick<
  Store,
  | 'addWebhookEndpoint'
  | 'listWebhookEndpoints'
  | 'findWebhookEndpoint'
  | 'updateWebhookEndpoint'
  | 'removeWebhookEndpoint'
  | 'rotateWebhookSecret'
  | 'findWebhookTarget'
  | 'claimWebhooks'
  | 'recordWebhookResults'
  | 'earliestWebhookDueAt'
  | 'listWebhookDeliveries'
  | 'findWebhookDelivery'
  | 'replayWebhook'
  | 'replayWebhooks'
  | 'pruneWebhooks'
  | 'eventsAfter'
  | 'eventPosition'
>

function createWebhookCalls(call: Call): WebhookCalls {
  return {
    addWebhookEndpoint: (endpoint, most = null) => call('addWebhookEndpoint', { endpoint, most }),
    listWebhookEndpoints: (limit, after) => call('listWebhookEndpoints', { limit, after }),
    findWebhookEndpoint: (id) => call('findWebhookEndpoint', id),
    updateWebhookEndpoint: (id, change, now) => call('updateWebhookEndpoint', { id, change, now }),
    removeWebhookEndpoint: (id, now) => call('removeWebhookEndpoint', { id, now }),
    rotateWebhookSecret: (id, rotation) => call('rotateWebhookSecret', { id, ...rotation }),
    findWebhookTarget: (id) => call('findWebhookTarget', id),
    claimWebhooks: (request) => call('claimWebhooks', request),
    recordWebhookResults: (request) => call('recordWebhookResults', request),
    earliestWebhookDueAt: () => call('earliestWebhookDueAt'),
    listWebhookDeliveries: (request) => call('listWebhookDeliveries', request),
    findWebhookDelivery: (endpointId, id) => call('findWebhookDelivery', { endpointId, id }),
    replayWebhook: (endpointId, id, now) => call('replayWebhook', { endpointId, id, now }),
    replayWebhooks: (request) => call('replayWebhooks', request),
    pruneWebhooks: (request) => call('pruneWebhooks', request),
    eventsAfter: (position, limit) => call('eventsAfter', { position, limit }),
    eventPosition: (lastEventId, since) => call('eventPosition', { lastEventId, since }),
  }
}

/** In parts, so that it never holds the store for long. */
async function cancelAllPurged(call: Call, now: number): Promise<void> {
  let canceled: number
  do {
    canceled = await call('cancelPurged', { now, limit: CANCELED_AT_ONCE })
  } while (canceled === CANCELED_AT_ONCE)
}

/** Resolves when the thread has ended; `onEnd` gets the reason once, and 0 for an end that was asked for. */
function watch(worker: Worker, onEnd: (reason: Error, exitCode: number) => void): Promise<void> {
  let reason: Error | undefined
  worker.on('error', (error) => {
    reason ??= error instanceof Error ? error : new Error(String(error))
  })
  return new Promise((resolve) => {
    worker.on('exit', (code) => {
      onEnd(reason ?? new Error(`the store thread ended with code ${code}`), code)
      resolve()
    })
  })
}

/** Resolves when the thread has opened the database. */
function hearThread(worker: Worker, exited: Promise<void>): Promise<Opened> {
  return new Promise((resolve, reject) => {
    worker.once('message', (message: StoreThreadMessage) => {
      if (message.kind === 'opened') resolve(message)
      else reject(new ProcessExit(message.exitCode, message.sentence))
    })
    worker.once('error', (error) => {
      reject(new ProcessExit(EXIT.disk, 'the store thread failed while it opened the database', { cause: error }))
    })
    void exited.then(() => reject(new ProcessExit(EXIT.disk, 'the store thread ended while it opened the database')))
  })
}

function observeCommit(metrics: Metrics, report: CommitReport): void {
  metrics.storeBatchSize.observe(report.verbs)
  metrics.storeCommitSeconds.observe(report.seconds)
  if (report.messages > 0) metrics.storeMessagesPerCommit.observe(report.messages)
}
