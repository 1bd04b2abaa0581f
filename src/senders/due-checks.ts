/**
 * The checks whose time has come, a few side by side: a domain with a slow DNS holds up no other one.
 *
 * A check that fails is logged and stays due. Ends with the last of them; `stop` lets those under way end and starts no
 * more.
 */
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Store } from '../store/store.ts'

export interface DueChecks {
  run(): Promise<void>
  stop(): void
}

export interface DueChecksOptions {
  store: Pick<Store, 'domainsDueForCheck'>
  clock: Clock
  logger: Logger
  check: (name: string) => Promise<void>
}

const SIDE_BY_SIDE = 8
/** In one run; what is left is due in the next minute still. */
const MOST_IN_ONE_RUN = 400

export function createDueChecks({ store, clock, logger, check }: DueChecksOptions): DueChecks {
  let isStopped = false

  async function work(names: string[]): Promise<void> {
    for (let name = names.shift(); name !== undefined && !isStopped; name = names.shift()) {
      const domain = name
      await check(domain).catch((thrown: unknown) =>
        logger.error({ domain, error: errorText(thrown) }, 'domain check failed'),
      )
    }
  }

  return {
    async run() {
      if (isStopped) return
      const names = await store.domainsDueForCheck(clock.now(), MOST_IN_ONE_RUN)
      await Promise.all(Array.from({ length: SIDE_BY_SIDE }, () => work(names)))
    },
    stop() {
      isStopped = true
    },
  }
}
