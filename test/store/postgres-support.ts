/** PostgreSQL stores, for the tests of the engine. */
import type { PostgresLocation } from '../../src/store/store-location.ts'
import { startPostgres, type PostgresCluster } from '../support/postgres-cluster.ts'
import { openTestStore } from './sqlite-support.ts'

export function postgresLocation(url: string): PostgresLocation {
  return { engine: 'postgres', url, commitLingerMilliseconds: 2, commitMostRows: 1_000 }
}

/** A cluster, and the name of a database in it that has its tables and nothing else. */
export async function startWithTables(
  ...given: Parameters<typeof startPostgres>
): Promise<{ cluster: PostgresCluster; like: string }> {
  const cluster = await startPostgres(...given)
  const like = await cluster.createDatabase()
  const { store } = await openTestStore(postgresLocation(cluster.url(like)))
  await store.close()
  return { cluster, like }
}
