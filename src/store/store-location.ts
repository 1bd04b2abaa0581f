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

interface StoredBy {
  data_dir: string
  storage: { page_cache: number; wal_max: number; commit: { linger: number; rows: number } }
}

/** By the settings of the server. */
export function locationFor({ data_dir, storage }: StoredBy): StoreLocation {
  return {
    engine: 'sqlite',
    folder: data_dir,
    pageCacheBytes: storage.page_cache,
    walMaxBytes: storage.wal_max,
    commitLingerMilliseconds: storage.commit.linger,
    commitMostRows: storage.commit.rows,
  }
}

export interface OpenStoreOptions {
  location: StoreLocation
  logger: Logger
  metrics: Metrics
  /** The store thread died: the process must end and recover as after a kill. */
  onDeath: (reason: Error) => void
}
