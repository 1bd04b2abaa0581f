/** Where a store is and what it is opened with; the same for every engine. */
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'

interface CommonLocation {
  commitLingerMilliseconds: number
  commitMostRows: number
  /** By which an erased address is known again; left out: none can be erased. */
  erasureKey?: Uint8Array
}

export interface SqliteLocation extends CommonLocation {
  engine: 'sqlite'
  /** Folder of the database; made when missing. */
  folder: string
  pageCacheBytes: number
  walMaxBytes: number
}

export interface PostgresLocation extends CommonLocation {
  engine: 'postgres'
  /** With its password: never logged. */
  url: string
  /** Of this process among others that work with the database; left out: nobody else does. */
  nodeId?: string
  /** Where this server notes that it had data: then an empty database is refused. Left out: any is taken. */
  markFolder?: string
}

/** Plain data: also handed to delivery threads. */
export type StoreLocation = SqliteLocation | PostgresLocation

interface StoredBy {
  data_dir: string
  node_id: string
  storage: {
    engine: 'sqlite' | 'postgres'
    url: string | null
    page_cache: number
    wal_max: number
    commit: { linger: number; rows: number }
  }
}

/** By the settings of the server. */
export function locationFor(server: StoredBy): StoreLocation {
  const { engine, url } = server.storage
  return engine === 'sqlite' || url === null
    ? fileLocationFor(server)
    : { ...postgresLocationFor(server, url), nodeId: server.node_id, markFolder: server.data_dir }
}

export function postgresLocationFor({ storage: { commit } }: StoredBy, url: string): PostgresLocation {
  return { engine: 'postgres', url, commitLingerMilliseconds: commit.linger, commitMostRows: commit.rows }
}

/** Where SQLite keeps it, whatever the engine. */
export function fileLocationFor({ data_dir, storage }: StoredBy): SqliteLocation {
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
