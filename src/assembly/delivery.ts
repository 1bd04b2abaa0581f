/**
 * From queue rows to the final dot: the dispatcher, and the server on loopback that takes the mail which never leaves
 * the host (simulated recipients and test keys, http/README.md "Simulated recipients").
 */
import type { DiskGuard } from '../base/disk-guard.ts'
import { createDispatcher } from '../delivery/dispatcher.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import { startWorker } from '../delivery/start-worker.ts'
import { CAPTURE_ADDRESS, createCaptureServer } from '../capture/capture-server.ts'
import { createVisit } from '../capture/visit.ts'
import type { OwnHttpServer } from '../capture/visit.ts'
import type { EgressParts } from './egress.ts'
import type { Foundation } from './foundation.ts'
import type { OutboundTls } from './outbound-tls.ts'
import { withoutTranscripts } from './upkeep.ts'
import type { Webhooks } from './webhooks.ts'

/** What is only known once the doors are open. */
export interface OpenDoors {
  /** Takes bounces and complaints, or null. */
  inbound: { address: string; port: number } | null
  /** Serves tracked links, or null. */
  tracking: OwnHttpServer | null
}

export interface DeliveryParts extends EgressParts, OutboundTls, Webhooks {
  disk: DiskGuard
  doors: OpenDoors
}

export async function startDelivery(foundation: Foundation, parts: DeliveryParts): Promise<Dispatcher> {
  const { configuration, live, store, clock, realClock, metrics, logger, epoch, location, working } = foundation
  const { egress, shaping, queue, findRoute, tlsMemory, tlsResults, webhookEngine, disk, doors } = parts
  const { secrets } = configuration.server
  const captureAddress = foundation.outside?.captureAddress ?? (await startCapture(foundation, doors))
  const dispatcher = createDispatcher({
    store: withoutTranscripts(store, () => !disk.isShort() && live.current().server.retention.transcripts > 0),
    clock,
    realClock,
    metrics,
    egress,
    shaping,
    findRoute,
    tlsMemory,
    epoch,
    captureAddress,
    configuration: live,
    startWorker,
    onConnectionTls: (ip, note) => tlsResults.noteConnection(ip, note),
    mayDeliver: () => disk.mayDeliver(),
    onFatal: foundation.onFatal,
    storeLocation: location,
    masterKey: secrets.master_key,
    trackingUrl: foundation.outside?.trackingUrl ?? null,
    logger: logger.child({ part: 'delivery' }),
    onEvents: () => webhookEngine.wake(),
  })
  queue.backlogOf = (pool) => dispatcher.backlogOf(pool)
  queue.waitingOf = (ip) => dispatcher.waitingOf(ip)
  working.push(() => dispatcher.stop(live.current().server.delivery.drain))
  await dispatcher.start()
  return dispatcher
}

async function startCapture(
  { configuration, clock, logger, stops }: Foundation,
  doors: OpenDoors,
): Promise<{ address: string; port: number }> {
  const capture = createCaptureServer({
    clock,
    logger: logger.child({ part: 'capture' }),
    inboundAddress: () => doors.inbound,
    complaintAddress: configuration.server.inbound.complaint_address,
    visit: createVisit(() => doors.tracking),
  })
  const port = await capture.start(0)
  stops.push(() => capture.stop())
  return { address: CAPTURE_ADDRESS, port }
}
