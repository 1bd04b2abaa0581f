/**
 * Entry of a delivery thread: renders, signs and sends the rows it is given, and reports how each one ended.
 *
 * Reads the store, never writes to it, and decides nothing beyond one try. Results of one turn of the event loop travel
 * as one message. An error nobody caught ends the thread; its rows are due again at once (`delivery-threads.ts`).
 */
import { createSecureContext } from 'node:tls'
import type { SecureVersion } from 'node:tls'
import { parentPort, workerData } from 'node:worker_threads'
import { openContentReader } from '../store/open-store.ts'
import type { StoreLocation } from '../store/store-location.ts'
import type { DeliveryTools } from './deliver-message.ts'
import { createMessageRenderer } from './message-renderer.ts'
import type { RendererSettings } from './message-renderer.ts'
import { createPathSender } from './path-sender.ts'
import type { PathSender } from './path-sender.ts'
import { openSession } from './smtp-session.ts'
import type { SessionSettings } from './smtp-session.ts'
import { createTranscript } from './transcript.ts'
import type { FromThread, PathBatch, ToThread, TryResult } from './try-result.ts'

/** Plain data, handed over as `workerData`. */
export interface DeliveryThreadSettings {
  storeLocation: StoreLocation
  masterKey: Uint8Array
  timeouts: SessionSettings['timeouts']
  minTlsVersion: SecureVersion
  /** This thread's share of `delivery.connections_max`. */
  connectionsMax: number
  render: RendererSettings
  keepsTranscripts: boolean
}

const settings: DeliveryThreadSettings = workerData
if (parentPort === null) throw new Error('delivery-thread.ts runs as a worker only')
const port = parentPort

const reader = await openContentReader(settings.storeLocation)
const render = createMessageRenderer({ reader, masterKey: settings.masterKey, ...settings.render })
const session: SessionSettings = {
  timeouts: settings.timeouts,
  secureContext: createSecureContext({ minVersion: settings.minTlsVersion }),
}
const senders = new Map<string, PathSender>()
let clockOffset = 0
let connections = 0
let results: TryResult[] = []
let isDraining = false

const tools: DeliveryTools = {
  open: (target, transcript) => openSession(target, session, transcript),
  transcript: () => (settings.keepsTranscripts ? createTranscript() : null),
  render,
  now: () => Date.now() + clockOffset,
}

function post(message: FromThread): void {
  port.postMessage(message)
}

function report(result: TryResult): void {
  if (results.push(result) === 1) setImmediate(flush)
}

function flush(): void {
  if (results.length === 0) return
  post({ kind: 'results', results })
  results = []
}

function senderOf(path: PathBatch['path']): PathSender {
  const known = senders.get(path.key)
  if (known !== undefined) return known
  const sender = createPathSender(path, {
    tools,
    report,
    takeConnection() {
      if (connections >= settings.connectionsMax) return false
      connections++
      return true
    },
    releaseConnection() {
      // Another path may have waited for it.
      if (connections-- === settings.connectionsMax) setImmediate(growAll)
    },
    onIdle() {
      senders.delete(path.key)
      if (isDraining) finishDrain()
    },
  })
  senders.set(path.key, sender)
  return sender
}

function growAll(): void {
  for (const sender of senders.values()) sender.grow()
}

function finishDrain(): void {
  if (senders.size > 0) return
  flush()
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
      for (const batch of message.batches) senderOf(batch.path).add(batch)
      return
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
