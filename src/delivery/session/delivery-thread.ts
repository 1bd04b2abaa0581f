/**
 * Entry of a delivery thread: opens the store for reading, and gives `serve-thread.ts` real connections and a renderer.
 * An error nobody caught ends the thread; its rows are due again at once (`delivery-threads.ts`).
 */
import { flushCompileCache } from 'node:module'
import { createSecureContext, getCACertificates, type SecureContext, type SecureVersion } from 'node:tls'
import { parentPort, threadId, workerData } from 'node:worker_threads'
import { LRUCache } from 'lru-cache'
import { readRegularFile } from '../../base/regular-file.ts'
import { HOUR, SECOND } from '../../base/clock.ts'
import { giveWay } from '../../base/threads/thread-priority.ts'
import { tidyUp } from '../../base/threads/tidy-up.ts'
import { openContentReader } from '../../store/open/open-store.ts'
import type { StoreLocation } from '../../store/store-location.ts'
import { createMessageRenderer, type RendererSettings } from './message-renderer.ts'
import { serveThread } from './serve-thread.ts'
import { openSession, type SessionSettings, type SessionTimeouts } from './smtp-session.ts'
import type { TlsTicket } from './start-tls.ts'
import { createTranscript } from './transcript.ts'

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
  /** This thread's share of what large messages may take of the memory. */
  largeBytes: number
  render: RendererSettings
  keepsTranscripts: boolean
}

const MOST_TICKETS = 5_000
const TICKET_LIFETIME = HOUR
/** A message that leaves much garbage. */
const LARGE_BYTES = 1024 * 1024
/** Some twenty more than the thread has under load without any garbage. */
const MUCH_BYTES = 56 * 1024 * 1024
const TIDY_EVERY = 2 * SECOND
const MOST_TRIES = 30
/** This one, and those of the pool that sign. */
const PATIENT_THREADS = ['delivery', 'libuv-worker']

// Now, not at the end of the thread, which a kill would take away: else the next start strips types anew.
flushCompileCache()
giveWay(PATIENT_THREADS)
const settings: DeliveryThreadSettings = workerData
if (parentPort === null) throw new Error('delivery-thread.ts runs as a worker only')
const port = parentPort

const reader = await openContentReader(settings.storeLocation)
const { masterKey, largeBytes } = settings
const renderer = createMessageRenderer({ reader, masterKey, largeBytes, ...settings.render })
const session: SessionSettings = {
  timeouts: settings.timeouts,
  secureContext: makeSecureContext(settings),
  tickets: new LRUCache<string, TlsTicket>({ max: MOST_TICKETS, ttl: TICKET_LIFETIME }),
}

/** Tries to collect what a large message left, as long as it is being sent. */
let triesLeft = 0
setInterval(() => {
  if (triesLeft > 0) triesLeft = tidyUp(MUCH_BYTES) ? 0 : triesLeft - 1
}, TIDY_EVERY).unref()

const receive = serveThread({
  threadId,
  post: (message) => port.postMessage(message),
  connectionsMax: settings.connectionsMax,
  open: (target, transcript) => openSession(target, session, transcript),
  transcript: () => (settings.keepsTranscripts ? createTranscript() : null),
  async render(row, form) {
    const message = await renderer.render(row, form)
    if (message.bytes.length > LARGE_BYTES) triesLeft = MOST_TRIES
    return message
  },
  readAhead: (rows) => void renderer.readAhead(rows),
  forget: renderer.forget,
  end,
})
port.on('message', receive)

/** What is still open by now waits for nobody. */
async function end(): Promise<void> {
  await reader.close()
  process.exit()
}

function makeSecureContext({ minTlsVersion: minVersion, caFile }: DeliveryThreadSettings): SecureContext {
  if (caFile === null) return createSecureContext({ minVersion })
  return createSecureContext({
    minVersion,
    ca: [...getCACertificates('default'), readRegularFile(caFile).toString('utf8')],
  })
}
