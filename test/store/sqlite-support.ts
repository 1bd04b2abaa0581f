/**
 * SQLite stores in folders of their own, for the tests of the engine.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics, type Metrics } from '../../src/base/metrics.ts'
import { openContentReader, openStore } from '../../src/store/open/open-store.ts'
import type { SqliteLocation, StoreLocation } from '../../src/store/store-location.ts'
import type { Store } from '../../src/store/store.ts'
import type { StoreUnderTest } from './conformance-case.ts'

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

/** A store for a case of the conformance suite. */
export async function storeUnderTest(
  t: { teardown(clean: () => unknown): void },
  location: StoreLocation,
): Promise<StoreUnderTest> {
  const { store } = await openTestStore(location)
  // A case may have closed it already.
  t.teardown(() => store.close().catch(() => undefined))
  return {
    store,
    async contentReader() {
      const reader = await openContentReader(location)
      t.teardown(() => reader.close())
      return reader
    },
  }
}

export interface OpenedStore {
  store: Store
  metrics: Metrics
  /** Reasons that `onDeath` was told. */
  deaths: Error[]
  /** Lines of the log, from `error` on. */
  errors: string[]
}

export async function openTestStore(location: StoreLocation): Promise<OpenedStore> {
  const metrics = createMetrics()
  const deaths: Error[] = []
  const errors: string[] = []
  const store = await openStore({
    location,
    metrics,
    logger: createLogger({ level: 'error', write: (line) => errors.push(line) }),
    onDeath: (reason) => deaths.push(reason),
  })
  return { store, metrics, deaths, errors }
}
