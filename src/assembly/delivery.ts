/**
 * From queue rows to the final dot: egress IPs, the dispatcher, and the server on loopback that takes the mail which
 * never leaves the host (simulated recipients and test keys, contract.md 11).
 */
import { createDispatcher } from '../delivery/dispatcher.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import { createEgress } from '../egress/pool.ts'
import type { Egress } from '../egress/pool.ts'
import { createCachedResolver } from '../network/cached-resolver.ts'
import { canBind } from '../network/local-addresses.ts'
import { createMailHosts } from '../network/mail-hosts.ts'
import { CAPTURE_ADDRESS, createCaptureServer } from '../sandbox/capture-server.ts'
import { createVisit } from '../sandbox/visit.ts'
import type { OwnHttpServer } from '../sandbox/visit.ts'
import { ownAddresses } from './foundation.ts'
import type { Foundation } from './foundation.ts'
import type { Webhooks } from './webhooks.ts'

/** What is only known once the doors are open. */
export interface OpenDoors {
  /** Takes bounces and complaints, or null. */
  inbound: { address: string; port: number } | null
  /** Serves tracked links, or null. */
  tracking: OwnHttpServer | null
}

export async function startEgress({ configuration, logger, store }: Foundation): Promise<Egress> {
  const egress = createEgress({ pools: configuration.pools, canBind, logger: logger.child({ part: 'egress' }) })
  await egress.start()
  const { default_pool: target } = configuration.pools
  const moved = await store.moveOrphans(egress.poolNames(), target)
  if (moved > 0) logger.warn({ part: 'egress', messages: moved, pool: target }, 'messages of removed pools moved')
  return egress
}

export async function startDelivery(
  foundation: Foundation,
  egress: Egress,
  { webhookEngine }: Webhooks,
  doors: OpenDoors,
): Promise<Dispatcher> {
  const { configuration, store, clock, realClock, metrics, logger, epoch, location, resolver, stops } = foundation
  const { delivery, dns, secrets } = configuration.server
  const captureAddress = foundation.outside?.captureAddress ?? (await startCapture(foundation, doors))
  const mailHosts = createMailHosts({
    resolver: createCachedResolver({ resolver, cache: dns.cache, clock }),
    allowPrivateAddresses: delivery.allow_private_addresses,
    ownAddresses: () => ownAddresses(configuration),
    mostAddresses: delivery.addresses_max,
  })
  const dispatcher = createDispatcher({
    store, clock, realClock, metrics, egress, mailHosts, configuration, epoch, captureAddress,
    onFatal: foundation.onFatal,
    storeLocation: location,
    masterKey: secrets.master_key,
    trackingUrl: foundation.outside?.trackingUrl ?? null,
    logger: logger.child({ part: 'delivery' }),
    onEvents: () => webhookEngine.wake(),
  })
  stops.push(() => dispatcher.stop(delivery.drain))
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
