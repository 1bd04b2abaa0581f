/**
 * The SQLite store keeps every promise of the conformance suite.
 */
import { testStoreConformance } from './conformance.ts'
import { locationIn, storeUnderTest } from './sqlite-support.ts'

testStoreConformance((t) => storeUnderTest(t, locationIn(t.testdir({}))))
