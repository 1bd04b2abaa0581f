/**
 * Where the data is, for verbs that work on it while the server is stopped: as sternpost.yaml says. No secret is read.
 * Throws ConfigurationError.
 */
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { loadConfiguration } from '../../config/load-configuration.ts'
import { BackupError } from '../../store/records/backup-records.ts'
import type { StoreLocation } from '../../store/store-location.ts'
import { configurationFolder, SHIPPED_FOLDER } from './shared-options.ts'
import type { Given } from './verb.ts'

export type LocationFlags = Given<'config'>

export function dataLocation({ config }: LocationFlags): StoreLocation {
  const { server } = loadConfiguration({
    folder: configurationFolder(config),
    shippedFolder: SHIPPED_FOLDER,
    offline: true,
    neededSecrets: 'none',
  })
  const { page_cache: pageCacheBytes, wal_max: walMaxBytes, commit } = server.storage
  return {
    engine: 'sqlite',
    folder: server.data_dir,
    pageCacheBytes,
    walMaxBytes,
    commitLingerMilliseconds: commit.linger,
    commitMostRows: commit.rows,
  }
}

/** A backup that cannot be used is a disk error for the shell. `end` comes behind the work in any case. */
export function withBackupErrors<Result>(work: () => Result, end: () => void): Result {
  try {
    return work()
  } catch (thrown) {
    if (!(thrown instanceof BackupError)) throw thrown
    throw new ProcessExit(EXIT.disk, `sternpost: ${thrown.message}.`, { cause: thrown })
  } finally {
    end()
  }
}
