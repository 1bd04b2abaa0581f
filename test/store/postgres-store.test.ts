/**
 * The PostgreSQL store keeps every promise of the conformance suite, whatever the defaults of its server.
 */
import t from 'tap'
import { skipWithoutPostgres } from '../support/postgres-cluster.ts'
import { testStoreConformance } from './conformance.ts'
import { storeUnderTest } from './sqlite-support.ts'
import { postgresLocation, startWithTables } from './postgres-support.ts'

const DEFAULTS = {
  bytea_output: 'escape',
  array_nulls: 'off',
  standard_conforming_strings: 'off',
  extra_float_digits: -10,
  quote_all_identifiers: 'on',
  idle_session_timeout: '1s',
  idle_in_transaction_session_timeout: '1ms',
}

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const { cluster, like } = await startWithTables(t, { settings: DEFAULTS })
  testStoreConformance(async (t) =>
    storeUnderTest(t, postgresLocation(cluster.url(await cluster.createDatabase(like)))),
  )
}
