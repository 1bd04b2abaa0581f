/**
 * An old copy of a PostgreSQL database, as a dump or its archived log gives it: what systemd/README.md "PostgreSQL" says
 * to run before a server starts on it. And an empty one in the place of what was there.
 */
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { DAY, HOUR } from '../../src/base/clock.ts'
import { utcDay } from '../../src/base/utc-day.ts'
import { openDatabase } from '../../src/store/sqlite/engine/database.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { postgresLocation } from './postgres-support.ts'
import { acceptOne, claim } from './store-samples.ts'
import { ask, IP, ipChange, warmingRecord } from './warmup-samples.ts'

/** The one SQL of the page, for a copy of that moment. */
function statementsFor(copiedAt: number): string {
  const page = readFileSync(join(import.meta.dirname, '../../systemd/README.md'), 'utf8')
  const sql = /^```sql\n(.*?)^```$/ms.exec(page)?.[1] ?? ''
  return sql.replace(/timestamptz '[^']*'/, `timestamptz '${new Date(copiedAt).toISOString()}'`)
}

t.test('mail of an old copy is held and lives on', { skip: skipWithoutPostgres }, async (t) => {
  const cluster = await startPostgres(t)
  const database = await cluster.createDatabase()
  const file = locationIn(t.testdir({}))
  const markFolder = file.folder
  const location = { ...postgresLocation(cluster.url(database)), markFolder }
  const now = Date.now()
  const copiedAt = now - 10 * DAY
  const { store: before } = await openTestStore(location)
  const { epoch } = await before.beginEpoch(copiedAt - HOUR, copiedAt - HOUR)
  const lived = { now: copiedAt - HOUR }
  const ids = [
    await acceptOne(before, lived, { expiresAt: copiedAt + DAY }),
    await acceptOne(before, lived, { expiresAt: copiedAt + DAY }),
  ]
  t.equal((await claim(before, epoch, copiedAt, 1)).length, 1, 'one is under way')
  await before.addIpRecords([warmingRecord()])
  await before.close()

  const empty = await cluster.createDatabase()
  const emptied = { ...location, url: cluster.url(empty) }
  const refusal =
    /^there was data, and the database that storage\.url names is empty: .*migrate --to postgres.*sternpost\.made/
  await t.rejects(openTestStore(emptied), { exitCode: 74, message: refusal }, 'an empty database is not begun with')
  t.throws(() => openDatabase(file), { exitCode: 74, message: /there was data/ }, 'nor is a file')
  const tables = `select count(*)::int as count from pg_tables where schemaname = 'public'`
  t.match(await cluster.query(tables, empty), [{ count: 0 }], 'a dump still fits in')

  await cluster.query(statementsFor(copiedAt), database)
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const begun = await store.beginEpoch(now, now)
  await store.expireDue(now, 100)
  for (const id of ids) {
    const found = await store.lookupMessage(id, now)
    t.match(found, { state: 'queued', waitingFor: 'held', isPossibleDuplicate: true })
    t.ok(Math.abs((found?.expiresAt ?? 0) - now - DAY) < HOUR, 'its lifetime stood still')
  }
  t.equal((await claim(store, begun.epoch, now, 2)).length, 0)
  const caps = { day: utcDay(now), cap: 100, providerCaps: {}, defaultProviderCap: 50 }
  t.ok(await store.changeIp(ipChange(warmingRecord(), { audit: [], caps })), 'a start sets the caps of its curve')
  t.match(await store.reserveAllowance(ask(now, 1)), [{ granted: 0 }], `the allowance of ${IP} counts as used`)
  const action = { filter: {}, action: { kind: 'release' }, now, limit: 100, isDryRun: false } as const
  t.equal((await store.actOnQueue(action)).messages, 2)
  t.equal((await claim(store, begun.epoch, now, 2)).length, 2)

  rmSync(join(markFolder, 'sternpost.made'))
  const { store: anew } = await openTestStore(emptied)
  await anew.close()
  t.ok(existsSync(join(markFolder, 'sternpost.made')), 'who wants to begin anew can')
})
