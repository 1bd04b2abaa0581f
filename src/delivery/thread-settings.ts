/** How many delivery threads there are, and what each one is told at its start. Asks for the cores and the memory. */
import { availableParallelism } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { Worker } from 'node:worker_threads'
import { MINUTE, SECOND } from '../base/clock.ts'
import { shareOfMemory } from '../base/share-of-memory.ts'
import type { Configuration } from '../config/load-configuration.ts'
import { senderIdOf } from '../content/message-fields.ts'
import type { DeliveryThreadSettings } from './session/delivery-thread.ts'
import type { RendererSettings } from './session/message-renderer.ts'

/**
 * Megabytes of old objects before the first full collection of a thread; V8 begins at a few. The bytes of a message
 * live for one or two commits, which is long enough to count as old: a thread under load would look through its whole
 * heap some times a second, for a tenth of all that a message costs. Read when a heap is made.
 */
const OLD_SPACE_MEGABYTES = 64
/** `auto`: all cores but one, at most 4 (config/README.md "sternpost.yaml"). */
const MOST_AUTOMATIC_THREADS = 4

/** Milliseconds that no file sets (delivery/README.md "The SMTP session"). `mark`: so long the store may take. */
const FURTHER_TIMEOUTS = {
  handshake: 30 * SECOND,
  body: 3 * MINUTE,
  mark: MINUTE,
  rset: 20 * SECOND,
  closing: 20 * SECOND,
}

/** Two of the largest, or some twenty with attachments as people send them. With little memory it is less. */
const LARGE_MESSAGES_BYTES = 96 * 2 ** 20

/** What no configuration file says. */
type ThreadFacts = Pick<DeliveryThreadSettings, 'storeLocation' | 'masterKey'> & Pick<RendererSettings, 'trackingUrl'>

export function threadCount(threads: 'auto' | number): number {
  return threads === 'auto' ? Math.min(Math.max(availableParallelism() - 1, 1), MOST_AUTOMATIC_THREADS) : threads
}

/** The longest that a session waits without anything happening. */
export function longestStage({ server }: Configuration): number {
  return Math.max(...Object.values(sessionTimeouts(server.delivery)))
}

function sessionTimeouts({ timeouts }: Configuration['server']['delivery']): DeliveryThreadSettings['timeouts'] {
  return { ...FURTHER_TIMEOUTS, ...timeouts }
}

export function threadSettings({ server }: Configuration, facts: ThreadFacts, threads: number): DeliveryThreadSettings {
  const { storeLocation, masterKey, trackingUrl } = facts
  const { delivery, domains, headers, hostname, retention, tls, tracking } = server
  return {
    storeLocation,
    masterKey,
    timeouts: sessionTimeouts(delivery),
    minTlsVersion: tls.min_version,
    caFile: tls.ca_file,
    connectionsMax: Math.max(1, Math.floor(delivery.connections_max / threads)),
    largeBytes: Math.floor(shareOfMemory(LARGE_MESSAGES_BYTES) / threads),
    render: {
      referenceHeader: headers.reference,
      cfbl: headers.cfbl,
      senderId: senderIdOf(hostname),
      trackingUrl,
      trackingHost: tracking.host,
      platformDomain: domains.dkim.platform_domain,
    },
    keepsTranscripts: retention.transcripts > 0,
  }
}

export function startWorker(workerData: DeliveryThreadSettings): Worker {
  setFlagsFromString(`--initial-old-space-size=${OLD_SPACE_MEGABYTES}`)
  return new Worker(new URL('./session/delivery-thread.ts', import.meta.url), { workerData, name: 'delivery' })
}
