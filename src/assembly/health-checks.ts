/**
 * The checks of the running server.
 */
import { join } from 'node:path'
import { SECOND, systemClock } from '../base/clock.ts'
import { createHealthKeeper } from '../health/health-keeper.ts'
import type { HealthKeeper } from '../health/health-keeper.ts'
import { checkWorld } from '../operations/check-world.ts'
import type { CheckWorldParts } from '../operations/check-world.ts'
import { operatorChannels } from '../operations/operator-channels.ts'
import type { OperatorChannelParts } from '../operations/operator-channels.ts'
import { blocklistResolver, startGuardedRequest } from './foundation.ts'
import type { Foundation } from './foundation.ts'

type HealthParts = Pick<CheckWorldParts, 'domains' | 'warmup' | 'reload'> & OperatorChannelParts

const DOCUMENT_MILLISECONDS = 5 * SECOND

export function startHealthChecks(foundation: Foundation, parts: HealthParts): HealthKeeper {
  const { live, metrics, logger, configuration } = foundation
  const { data_dir: folder, hostname } = configuration.server
  // The registries of domains are public: nothing is fetched from our own network.
  const request = startGuardedRequest(
    foundation,
    { allowPrivateAddresses: false, allowHttp: false },
    foundation.resolver,
  )
  const looked = {
    ...foundation,
    ...parts,
    folder,
    blocklistResolver: blocklistResolver(foundation),
    fetchDocument: (url: string) => request.get({ url, timeoutMilliseconds: DOCUMENT_MILLISECONDS }),
  }
  return createHealthKeeper({
    hostname,
    metrics,
    file: join(folder, 'health.json'),
    world: (asked, isAwaited, growthPerDay) => checkWorld({ ...looked, growthPerDay }, asked, isAwaited),
    channels: () => operatorChannels(live.current().server, parts),
    interval: () => live.current().server.health.interval,
    // Real upkeep of a real machine, whatever time schedules follow.
    clock: systemClock,
    logger: logger.child({ part: 'health' }),
  })
}
