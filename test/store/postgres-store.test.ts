/**
 * The PostgreSQL store keeps every promise of the conformance suite.
 */
import t from 'tap'
import { openContentReader } from '../../src/store/open/open-store.ts'
import { startPostgres, skipWithoutPostgres } from '../support/postgres-cluster.ts'
import { testStoreConformance } from './conformance.ts'
import { openTestStore } from './sqlite-support.ts'
import { postgresLocation } from './postgres-support.ts'

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const cluster = await startPostgres(t)
  const like = await cluster.createDatabase()
  const { store } = await openTestStore(postgresLocation(cluster.url(like)))
  await store.close()
  testStoreConformance(async (t) => {
    const location = postgresLocation(cluster.url(await cluster.createDatabase(like)))
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
  })
}
