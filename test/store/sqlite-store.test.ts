/**
 * The SQLite store keeps every promise of the conformance suite.
 */
import { openContentReader } from '../../src/store/open/open-store.ts'
import { testStoreConformance } from './conformance.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'

testStoreConformance(async (t) => {
  const location = locationIn(t.testdir({}))
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
