/** Chooses the engine. */
import type { ContentReader } from '../content-reader.ts'
import { openSqliteContentReader } from '../sqlite/sqlite-content-reader.ts'
import type { StoreLocation } from '../store-location.ts'

export { openThreadedStore as openStore } from '../thread/threaded-store.ts'

/** Of a delivery thread. The driver of PostgreSQL is loaded where it is needed. */
export async function openContentReader(location: StoreLocation): Promise<ContentReader> {
  if (location.engine === 'sqlite') return openSqliteContentReader(location)
  const { openPostgresContentReader } = await import('../postgresql/postgres-content-reader.ts')
  return openPostgresContentReader(location)
}
