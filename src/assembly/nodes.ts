/** This node among others (nodes/README.md), made before the parts that ask it. */
import { createHash, createHmac } from 'node:crypto'
import { systemClock, type Clock } from '../base/clock.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import { packageVersion } from '../base/package-version.ts'
import type { Stops } from '../base/service/start-whole.ts'
import type { LiveConfiguration } from '../config/live-configuration.ts'
import type { Configuration } from '../config/load-configuration.ts'
import { canBind } from '../network/local-addresses.ts'
import { ALONE, createNodes, type Nodes } from '../nodes/nodes.ts'
import type { StoreLocation } from '../store/store-location.ts'
import type { Store } from '../store/store.ts'

/** Undefined: nobody else works with the database. */
export const nodeIdOf = (location: StoreLocation): string | undefined =>
  location.engine === 'postgres' ? location.nodeId : undefined

interface NodesParts {
  live: LiveConfiguration
  clock: Clock
  realClock: Clock
  metrics: Metrics
  store: Store
  location: StoreLocation
  epoch: number
  keyRing: KeyRing
  stops: Stops
  onFatal: (reason: Error) => void
  logger: Logger
  /** Another world outside has one node. */
  outside?: object
}

export async function startNodes(parts: NodesParts): Promise<Nodes> {
  const { live, location, keyRing, outside, stops } = parts
  const nodeId = nodeIdOf(location)
  if (nodeId === undefined || outside !== undefined) return ALONE
  const nodes = createNodes({
    ...parts,
    nodeId,
    version: packageVersion(),
    configHash: () => hashOf(live.current(), keyRing),
    configuredIps: () =>
      Object.values(live.current().pools.pools).flatMap(({ ips }) => ips.filter(({ enabled }) => enabled)),
    hook: () => live.current().server.cluster,
    canBind,
    realClock: systemClock,
    uncertainRetry: () => live.current().server.delivery.uncertain_retry,
    logger: parts.logger.child({ part: 'nodes' }),
  })
  // After all that works has ended, and before the store.
  stops.push(nodes.stop)
  await nodes.start()
  return nodes
}

/** Of what has to be the same on all nodes; of the master key it tells nothing. */
function hashOf({ server, pools, providers, bounces, warmup }: Configuration, keyRing: KeyRing): string {
  const { hostname, public_url, domains, tracking, retention, delivery, webhooks, api, headers } = server
  const same = { hostname, public_url, domains, tracking, retention, delivery, webhooks, api, headers }
  const text = JSON.stringify([same, Object.keys(pools.pools).toSorted(), providers, bounces, warmup])
  return createHmac('sha256', keyRing.key('erasure')).update(createHash('sha256').update(text).digest()).digest('hex')
}
