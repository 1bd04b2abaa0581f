/**
 * From queue rows to the final dot: the dispatcher, and the server on loopback that takes the mail which never leaves
 * the host (simulated recipients and test keys, http/README.md "Simulated recipients").
 */
import type { DiskGuard } from '../base/disk-guard.ts'
import { createDispatcher, type Dispatcher } from '../delivery/dispatcher.ts'
import { startWorker } from '../delivery/thread-settings.ts'
import { CAPTURE_ADDRESS, createCaptureServer } from '../capture/capture-server.ts'
import type { InboundPlace } from '../capture/simulation.ts'
import { createVisit, type OwnHttpServer } from '../capture/visit.ts'
import type { EgressParts } from './egress.ts'
import type { Foundation } from './foundation.ts'
import type { OutboundTls } from './outbound-tls.ts'
import type { Store } from '../store/store.ts'
import type { Webhooks } from './webhooks.ts'

/** Our own listeners as the capture server reaches them. */
export interface OwnListeners {
  /** Takes bounces and complaints, or null. */
  inbound: InboundPlace | null
  /** Serves tracked links, or null. */
  tracking: OwnHttpServer | null
}

export interface DeliveryParts extends EgressParts, OutboundTls, Webhooks {
  disk: DiskGuard
  /** Known when the doors are open: simulated recipients wait for it. */
  listeners: Promise<OwnListeners>
}

export async function startDelivery(foundation: Foundation, parts: DeliveryParts): Promise<Dispatcher> {
  const { live, store, logger, outside, working, nodes } = foundation
  const { queue, tlsResults, webhookEngine, disk, listeners } = parts
  const dispatcher = createDispatcher({
    ...foundation,
    ...parts,
    store: withoutTranscripts(store, () => !disk.isShort() && live.current().server.retention.transcripts > 0),
    captureAddress: outside?.captureAddress ?? (await startCapture(foundation, listeners)),
    configuration: live,
    startWorker,
    onConnectionTls: tlsResults.noteConnection,
    mayDeliver: () => disk.mayDeliver() && !nodes.isDraining(),
    hasOthers: () => nodes.living() > 1,
    storeLocation: foundation.location,
    masterKey: foundation.configuration.server.secrets.master_key,
    trackingUrl: outside?.trackingUrl ?? null,
    logger: logger.child({ part: 'delivery' }),
    onEvents: webhookEngine.wake,
  })
  queue.follow(dispatcher)
  await disk.start(dispatcher.resume)
  working.push(() => dispatcher.stop(live.current().server.delivery.drain))
  await dispatcher.start()
  return dispatcher
}

async function startCapture(
  { configuration, clock, logger, stops }: Foundation,
  listeners: Promise<OwnListeners>,
): Promise<{ address: string; port: number }> {
  const capture = createCaptureServer({
    clock,
    logger: logger.child({ part: 'capture' }),
    inboundAddress: async () => (await listeners).inbound,
    complaintAddress: configuration.server.inbound.complaint_address,
    visit: createVisit(async () => (await listeners).tracking),
  })
  const port = await capture.start(0)
  stops.push(() => capture.stop())
  return { address: CAPTURE_ADDRESS, port }
}

/** The same store, but the dialogues of tries are left out while they are not to be kept. */
function withoutTranscripts(store: Store, keepsTranscripts: () => boolean): Store {
  return {
    ...store,
    recordOutcomes(request) {
      if (keepsTranscripts()) return store.recordOutcomes(request)
      const outcomes = request.outcomes.map((outcome) => ({ ...outcome, transcript: null }))
      return store.recordOutcomes({ ...request, outcomes })
    },
  }
}
