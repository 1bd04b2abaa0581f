/** Where a store is and what it is opened with; the same for every engine. */
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'

/** Plain data: also handed to delivery threads. */
export interface StoreLocation {
  engine: 'sqlite'
  /** Folder of the database; made when missing. */
  folder: string
  pageCacheBytes: number
  walMaxBytes: number
  commitLingerMilliseconds: number
  commitMostRows: number
  /** By which an erased address is known again; left out: none can be erased. */
  erasureKey?: Uint8Array
}

export interface OpenStoreOptions {
  location: StoreLocation
  logger: Logger
  metrics: Metrics
  /** The store thread died: the process must end and recover as after a kill. */
  onDeath: (reason: Error) => void
}
