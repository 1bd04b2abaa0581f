/**
 * The PostgreSQL store keeps every promise of the conformance suite.
 */
import t from 'tap'
import { skipWithoutPostgres } from '../support/postgres-cluster.ts'
import { testStoreConformance } from './conformance.ts'
import { storeUnderTest } from './sqlite-support.ts'
import { postgresLocation, startWithTables } from './postgres-support.ts'

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const { cluster, like } = await startWithTables(t)
  testStoreConformance(async (t) =>
    storeUnderTest(t, postgresLocation(cluster.url(await cluster.createDatabase(like)))),
  )
}
