/** What the parts of shaping share; `create-shaping.ts` makes it. */
import type { Logger } from '../../base/logger.ts'
import type { ShapingRecords } from './records.ts'
import type { ShapingSignals } from './shaping.ts'
import type { StateKeeper } from './state-keeper.ts'

export interface ShapingParts {
  now: () => number
  logger: Logger
  records: ShapingRecords
  keeper: StateKeeper
  signals: ShapingSignals
  /** Something ends then. */
  wakeAt: (time: number) => void
  /** More may go now. */
  onOpen: () => void
}
