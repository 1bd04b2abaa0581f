/** What egress works with and does not make itself; `egress.ts` completes it. */
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { LiveConfiguration } from '../../config/live-configuration.ts'
import type { Resolver } from '../../network/resolver.ts'
import type { Store } from '../../store/store.ts'
import type { WaitingMail } from './ip-statistics.ts'

export interface EgressOutside extends EgressQuestions {
  configuration: LiveConfiguration
  store: Store
  clock: Clock
  canBind: (address: string) => Promise<boolean>
  logger: Logger
  /** Reverse names and blocklists; null: nobody looks. */
  lookups: IpLookups | null
}

/** What need not be given: nothing waits, and the clock is steady. */
export interface EgressQuestions {
  /** First attempts of a pool that wait, by isp; '' for those whose provider is not known yet. Asked once a second. */
  backlogOf: (pool: string) => Record<string, number>
  /** Messages that could leave from an IP, by isp and reason; for the statistics. */
  waitingOf: (ip: string) => WaitingMail[]
  onEvents: () => void
  /** Why nothing may leave from an IP here, though the files name it: another node sends from it; null: it may. */
  refusalOf: (ip: string) => string | null
  /** Another node sends from it. */
  isElsewhere: (ip: string) => boolean
  /** False after a jump of the clock: warmup days are closed later (test/README.md "Clock"). */
  isClockSteady: () => boolean
}

export type IpLookups = Pick<Resolver, 'ptr' | 'addresses'> & {
  /** Asked for blocklists, which refuse public resolvers; left out: `addresses`. */
  blocklists?: Pick<Resolver, 'addresses'>
}
