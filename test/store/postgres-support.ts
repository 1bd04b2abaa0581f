/** PostgreSQL stores, for the tests of the engine. */
import type { PostgresLocation } from '../../src/store/store-location.ts'

export function postgresLocation(url: string): PostgresLocation {
  return { engine: 'postgres', url, commitLingerMilliseconds: 2, commitMostRows: 1_000 }
}
