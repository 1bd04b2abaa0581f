/** Dedicated IPs: pools, warmup, and what receivers let through. Delivery asks both for each message. */
import { createEgress, type Egress } from '../egress/egress.ts'
import { createShaping } from '../egress/shaping/create-shaping.ts'
import type { Shaping } from '../egress/shaping/shaping.ts'
import type { Warmup } from '../egress/moves/warmup.ts'
import { canBind } from '../network/local-addresses.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import { blocklistResolver, type Foundation } from './foundation.ts'
import type { Webhooks } from './webhooks.ts'

export interface EgressParts {
  egress: Egress
  warmup: Warmup
  shaping: Shaping
  queue: ReturnType<typeof createQueueFigures>
}

type QueueCounts = Pick<Dispatcher, 'backlogOf' | 'waitingOf'>

/**
 * The queue as egress sees it. Dispatcher and egress need each other: the dispatcher is made of the egress, and counts
 * the queue once it is there. Until then nothing waits.
 */
function createQueueFigures() {
  let counts: QueueCounts = { backlogOf: () => ({}), waitingOf: () => [] }
  return {
    backlogOf: (pool: string) => counts.backlogOf(pool),
    waitingOf: (ip: string) => counts.waitingOf(ip),
    follow: (dispatcher: QueueCounts): void => void (counts = dispatcher),
  }
}

/** A suspension that receivers brought about. */
const SHAPING = 'shaping'

export async function startEgress(foundation: Foundation, { webhookEngine }: Webhooks): Promise<EgressParts> {
  const { live, resolver, stops, nodes } = foundation
  const logger = foundation.logger.child({ part: 'egress' })
  const queue = createQueueFigures()
  const { egress, warmup } = createEgress({
    ...foundation,
    ...queue,
    configuration: live,
    canBind,
    logger,
    refusalOf: nodes.refusalOf,
    isElsewhere: nodes.isElsewhere,
    lookups: { ...resolver, blocklists: blocklistResolver(foundation) },
    onEvents: webhookEngine.wake,
  })
  const shaping = createShaping({
    ...foundation,
    logger,
    settings: live.current,
    isElsewhere: (ip) => ip !== '' && nodes.refusalOf(ip) !== null,
    signals: {
      onBlock: egress.noteBlock,
      onIpSuspension(ip, until, reason) {
        egress.suspend(ip, until, reason, SHAPING).catch((thrown: unknown) => {
          logger.error({ ip, err: thrown }, 'suspension of an IP could not be stored')
        })
      },
      onIpUnreachable: egress.disable,
      onLaneSuspension: (lane) => logger.warn(lane, 'sending domain suspended at a provider'),
    },
  })
  await egress.start()
  stops.push(egress.stop)
  await shaping.start()
  stops.push(shaping.stop)
  await moveOrphans(foundation, egress)
  return { egress, warmup, shaping, queue }
}

/** Mail of pools that are gone moves to the default pool. */
async function moveOrphans({ live, store, logger }: Foundation, egress: Egress): Promise<void> {
  const { default_pool: target } = live.current().pools
  for (const { pool, messages } of await store.moveOrphans(egress.poolNames(), target)) {
    logger.warn({ part: 'egress', pool, messages, target }, 'messages of a removed pool moved')
  }
}
