/**
 * Entry of a delivery thread: renders, signs and sends the rows it is given, and reports how each one ended.
 *
 * Reads the store, never writes to it, and decides nothing beyond one try. Results of one turn of the event loop travel
 * as one message. An error nobody caught ends the thread; its rows are due again at once (`delivery-threads.ts`).
 */
import { readFileSync } from 'node:fs'
import { flushCompileCache } from 'node:module'
import { createSecureContext, getCACertificates } from 'node:tls'
import type { SecureContext, SecureVersion } from 'node:tls'
import { parentPort, threadId, workerData } from 'node:worker_threads'
import { LRUCache } from 'lru-cache'
import { HOUR } from '../../base/clock.ts'
import { giveWay } from '../../base/thread-priority.ts'
import { openContentReader } from '../../store/open-store.ts'
import type { StoreLocation } from '../../store/store-location.ts'
import { createConnectionSlots } from './connection-slots.ts'
import type { DeliveryTools } from './connection-worker.ts'
import { createHostMemory } from './host-memory.ts'
import { createMessageRenderer } from './message-renderer.ts'
import type { RendererSettings } from './message-renderer.ts'
import { createOutbox } from './outbox.ts'
import { createPathSender } from './path-sender.ts'
import type { PathSender } from './path-sender.ts'
import { openSession } from './smtp-session.ts'
import type { SessionSettings, SessionTimeouts } from './smtp-session.ts'
import type { TlsTicket } from './start-tls.ts'
import { createTranscript } from './transcript.ts'
import type { FromThread, PathBatch, ToThread } from '../try-result.ts'

/** Plain data, handed over as `workerData`. */
export interface DeliveryThreadSettings {
  storeLocation: StoreLocation
  masterKey: Uint8Array
  timeouts: SessionTimeouts
  minTlsVersion: SecureVersion
  /** PEM file of authorities beside the known ones, or null. */
  caFile: string | null
  /** This thread's share of `delivery.connections_max`. */
  connectionsMax: number
  render: RendererSettings
  keepsTranscripts: boolean
}

const MOST_TICKETS = 5_000
const TICKET_LIFETIME = HOUR
/** This one, and those of the pool that sign. */
const PATIENT_THREADS = ['delivery', 'libuv-worker']

// Now, not at the end of the thread, which a kill would take away: else the next start strips types anew.
flushCompileCache()
giveWay(PATIENT_THREADS)
const settings: DeliveryThreadSettings = workerData
if (parentPort === null) throw new Error('delivery-thread.ts runs as a worker only')
const port = parentPort

const reader = await openContentReader(settings.storeLocation)
const renderer = createMessageRenderer({ reader, masterKey: settings.masterKey, ...settings.render })
const session: SessionSettings = {
  timeouts: settings.timeouts,
  secureContext: makeSecureContext(settings),
  tickets: new LRUCache<string, TlsTicket>({ max: MOST_TICKETS, ttl: TICKET_LIFETIME }),
}
const senders = new Map<string, PathSender>()
const slots = createConnectionSlots<PathSender>(settings.connectionsMax)
let clockOffset = 0
let isDraining = false

const post = (message: FromThread): void => port.postMessage(message)
const outbox = createOutbox(post, threadId)

const tools: DeliveryTools = {
  open: (target, transcript) => openSession(target, session, transcript),
  transcript: () => (settings.keepsTranscripts ? createTranscript() : null),
  hosts: createHostMemory(),
  note: outbox.note,
  askMark: outbox.askMark,
  render: renderer.render,
  now: () => Date.now() + clockOffset,
}

function senderOf(path: PathBatch['path']): PathSender {
  const known = senders.get(path.key)
  if (known !== undefined) return known
  const sender: PathSender = createPathSender(path, {
    tools,
    report: outbox.report,
    takeConnection: (isUrgent) => slots.take(sender, isUrgent),
    releaseConnection: slots.release,
    onRest: () => slots.rests(sender),
    onIdle() {
      senders.delete(path.key)
      slots.forget(sender)
      if (isDraining) finishDrain()
    },
  })
  senders.set(path.key, sender)
  return sender
}

function finishDrain(): void {
  if (senders.size > 0) return
  outbox.flush()
  post({ kind: 'drained' })
}

function drain(): void {
  isDraining = true
  for (const sender of senders.values()) sender.drain()
  finishDrain()
}

/** What is still open by now waits for nobody. */
async function end(): Promise<void> {
  await reader.close()
  process.exit()
}

port.on('message', (message: ToThread) => {
  switch (message.kind) {
    case 'dispatch':
      clockOffset = message.clockOffset
      void renderer.readAhead(message.batches.flatMap(({ rows }) => rows))
      for (const batch of message.batches) senderOf(batch.path).add(batch)
      return
    case 'marked':
      clockOffset = message.clockOffset
      return outbox.marked(message)
    case 'limit':
      return senders.get(message.pathKey)?.limit(message)
    case 'tick':
      return post({ kind: 'tick', id: message.id })
    case 'drain':
      return drain()
    case 'abort':
      for (const sender of senders.values()) sender.abort()
      return
    case 'end':
      return void end()
  }
})

function makeSecureContext({ minTlsVersion: minVersion, caFile }: DeliveryThreadSettings): SecureContext {
  if (caFile === null) return createSecureContext({ minVersion })
  return createSecureContext({ minVersion, ca: [...getCACertificates('default'), readFileSync(caFile, 'utf8')] })
}
