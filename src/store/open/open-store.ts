/** Chooses the engine. The one place to extend when another engine comes. */
import type { ContentReader } from '../content-reader.ts'
import { openSqliteContentReader } from '../sqlite/sqlite-content-reader.ts'
import { openSqliteStore } from '../sqlite/sqlite-store.ts'
import type { OpenStoreOptions, StoreLocation } from '../store-location.ts'
import type { Store } from '../store.ts'

/**
 * Opens the database, runs outstanding migrations and starts the store thread. Throws ProcessExit: 75 when another
 * process holds the database, 78 when its schema is newer, 74 when it cannot be read.
 */
export async function openStore(options: OpenStoreOptions): Promise<Store> {
  return openSqliteStore(options)
}

export async function openContentReader(location: StoreLocation): Promise<ContentReader> {
  return openSqliteContentReader(location)
}
