/**
 * How many delivery threads there are, and what each one is told at its start. Pure but for asking for the cores.
 */
import { createHash } from 'node:crypto'
import { availableParallelism } from 'node:os'
import type { Configuration } from '../config/load-configuration.ts'
import type { StoreLocation } from '../store/store-location.ts'
import type { DeliveryThreadSettings } from './delivery-thread.ts'

/** `auto`: all cores but one, at most 4 (operations.md 4.1). */
const MOST_AUTOMATIC_THREADS = 4
/** Feedback-ID wants 5 to 15 characters that stay the same for a server (engine.md 16.2). */
const SENDER_ID_CHARACTERS = 12

export function threadCount(threads: 'auto' | number): number {
  return threads === 'auto' ? Math.min(Math.max(availableParallelism() - 1, 1), MOST_AUTOMATIC_THREADS) : threads
}

export function threadSettings(
  { server }: Configuration,
  { storeLocation, masterKey }: { storeLocation: StoreLocation; masterKey: Uint8Array },
  threads: number,
): DeliveryThreadSettings {
  const { delivery, headers, hostname, tls } = server
  return {
    storeLocation, masterKey,
    port: delivery.port,
    timeouts: delivery.timeouts,
    minTlsVersion: tls.min_version,
    connectionsMax: Math.max(1, Math.floor(delivery.connections_max / threads)),
    referenceHeader: headers.reference,
    senderId: createHash('sha256').update(hostname).digest('hex').slice(0, SENDER_ID_CHARACTERS),
  }
}
