/**
 * The PostgreSQL store keeps every promise of the conformance suite.
 */
import t from 'tap'
import { startPostgres, skipWithoutPostgres } from '../support/postgres-cluster.ts'
import { testStoreConformance } from './conformance.ts'
import { openTestStore, storeUnderTest } from './sqlite-support.ts'
import { postgresLocation } from './postgres-support.ts'

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const cluster = await startPostgres(t)
  const like = await cluster.createDatabase()
  const { store } = await openTestStore(postgresLocation(cluster.url(like)))
  await store.close()
  testStoreConformance(async (t) =>
    storeUnderTest(t, postgresLocation(cluster.url(await cluster.createDatabase(like)))),
  )
}
