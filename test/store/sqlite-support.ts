/**
 * SQLite stores in folders of their own, for the tests of the engine.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics, type Metrics } from '../../src/base/metrics.ts'
import { openStore } from '../../src/store/open/open-store.ts'
import type { SqliteLocation, StoreLocation } from '../../src/store/store-location.ts'
import type { Store } from '../../src/store/store.ts'

const MEBIBYTE = 1_024 * 1_024

export function locationIn(folder: string, changes: Partial<SqliteLocation> = {}): SqliteLocation {
  return {
    engine: 'sqlite',
    folder: join(folder, 'data'),
    pageCacheBytes: 8 * MEBIBYTE,
    walMaxBytes: 64 * MEBIBYTE,
    commitLingerMilliseconds: 2,
    commitMostRows: 1_000,
    ...changes,
  }
}

/** In a folder of its own, whatever else the test makes folders for. */
export function freshLocation(t: { teardown(clean: () => void): void }): SqliteLocation {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  return locationIn(folder)
}

export interface OpenedStore {
  store: Store
  metrics: Metrics
  /** Reasons that `onDeath` was told. */
  deaths: Error[]
}

export async function openTestStore(location: StoreLocation): Promise<OpenedStore> {
  const metrics = createMetrics()
  const deaths: Error[] = []
  const store = await openStore({
    location,
    metrics,
    logger: createLogger({ level: 'silent' }),
    onDeath: (reason) => deaths.push(reason),
  })
  return { store, metrics, deaths }
}
