/**
 * A filled database of every earlier schema migrates with all its rows, after a snapshot; what goes wrong on the way
 * says how to go back.
 */
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { ProcessExit } from '../../src/base/errors.ts'
import { migrateNow, planMigration, restoreBackup, verifyDatabase } from '../../src/store/open/offline.ts'
import { databasePath, openDatabase } from '../../src/store/sqlite/engine/database.ts'
import { migrate, schemaVersion, SCHEMA_VERSION } from '../../src/store/sqlite/engine/migrate.ts'
import { listSnapshots } from '../../src/store/sqlite/engine/snapshot.ts'
import { mountSmallDisk } from '../support/small-disk.ts'
import { MIGRATION_FILES, tableCounts, tableSums, writeOldDatabase } from './old-databases.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { NOW } from './store-samples.ts'

/** What a migration, or the start, adds to a table that is there. */
const ADDED: Record<string, number> = { routes: 0, dkim_keys: 0, nodes: 1 }
/** Tables that nothing fills but a server. */
const OF_SERVER = ['meta', 'nodes', 'last_commits', 'ip_owners']

for (let version = 1; version < SCHEMA_VERSION; version += 1) {
  t.test(`a filled database of schema ${version}`, async (t) => {
    const location = locationIn(t.testdir({}))
    const before = writeOldDatabase(location, version)
    t.ok(
      Object.entries(before).every(([table, count]) => count > 0 || OF_SERVER.includes(table)),
      'every table has rows',
    )
    const sums = tableSums(location)
    const plan = planMigration(location)
    t.same(plan.migrations, MIGRATION_FILES.slice(version))
    t.ok(plan.snapshotBytes > 0 && plan.seconds > 0)

    const { store } = await openTestStore(location)
    await store.beginEpoch(NOW, NOW)
    await store.close()
    const verdict = verifyDatabase(location)
    t.same(verdict.problems, [])
    t.equal(verdict.counts?.messages, before['messages'])
    const database = new Sqlite(databasePath(location), { readonly: true })
    const after = tableCounts(database)
    t.equal(database.pragma('auto_vacuum', { simple: true }), 2, 'it can give pages back')
    database.close()
    for (const [table, count] of Object.entries(before)) t.equal(after[table], count + (ADDED[table] ?? 0), table)
    t.same(tableSums(location), sums)

    const [snapshot] = listSnapshots(location.folder)
    t.match(snapshot, { from: version, to: SCHEMA_VERSION })
    const copy = new Sqlite(snapshot?.path ?? '', { readonly: true })
    t.equal(schemaVersion(copy), version)
    t.same(tableCounts(copy), before, 'the snapshot is what was there')
    copy.close()
    t.same(migrateNow(location).migrations, [], 'and it is done once')
  })
}

t.test('a newer schema is refused, and the way back to the snapshot is the command that is named', async (t) => {
  const location = locationIn(t.testdir({}))
  writeOldDatabase(location, 8)
  openDatabase(location).close()
  // As a later program would leave it.
  const database = new Sqlite(databasePath(location))
  database.pragma(`user_version = ${SCHEMA_VERSION + 1}`)
  database.close()
  const made = join(location.folder, `pre-migration-8-${SCHEMA_VERSION}.db`)
  const later = join(location.folder, `pre-migration-9-${SCHEMA_VERSION + 1}.db`)
  const copy = new Sqlite(made)
  copy.prepare('vacuum into ?').run(later)
  copy.close()
  const refused = catchExit(() => openDatabase(location))
  t.equal(refused.exitCode, 78)
  t.match(refused.message, `schema version ${SCHEMA_VERSION + 1}, this program knows versions up to ${SCHEMA_VERSION}`)
  t.ok(refused.message.endsWith(`sternpost restore ${later}`), refused.message)
  t.equal(catchExit(() => planMigration(location)).exitCode, 78)

  const summary = restoreBackup({ file: later, location, now: NOW, keepsAllowance: false, onStage() {} })
  t.match(summary, { fromSchema: 8, schema: SCHEMA_VERSION, held: 50, counts: { messages: 200 } })
  t.ok(existsSync(join(summary.movedTo ?? '', 'sternpost.db')), 'the newer one is kept')
  t.same(verifyDatabase(location).problems, [])
})

t.test('the last two snapshots are kept', async (t) => {
  const location = locationIn(t.testdir({}))
  for (const version of [3, 5, 7]) {
    for (const name of ['', '-wal', '-shm']) {
      const path = `${databasePath(location)}${name}`
      rmSync(path, { force: true })
    }
    writeOldDatabase(location, version)
    openDatabase(location).close()
  }
  t.same(
    listSnapshots(location.folder).map(({ from }) => from),
    [7, 5],
  )
  t.same(
    readdirSync(location.folder).filter((name) => name.includes('unfinished')),
    [],
  )
})

t.test('a migration that fails changes nothing, exits 78 and names the snapshot', async (t) => {
  const location = locationIn(t.testdir({}))
  writeOldDatabase(location, 8)
  const database = new Sqlite(databasePath(location))
  database.exec('create table kept_links (in_the_way integer)')
  database.close()
  const failed = catchExit(() => openDatabase(location))
  t.equal(failed.exitCode, 78)
  t.match(failed.message, /^the migration 0010-retention\.sql failed: table kept_links already exists; the data as/)
  const after = new Sqlite(databasePath(location), { readonly: true })
  t.equal(schemaVersion(after), 9, 'those before it are done')
  after.close()
})

t.test('a migration without space exits 74, and goes on once there is some', async (t) => {
  const location = locationIn(t.testdir({}))
  writeOldDatabase(location, 8)
  const database = new Sqlite(databasePath(location))
  database.pragma(`max_page_count = ${database.pragma('page_count', { simple: true })}`)
  const failed = catchExit(() => migrate(database, location.folder))
  t.match(failed, { exitCode: 74, message: /^the migration \d{4}-[a-z-]+\.sql failed: database or disk is full/ })
  database.pragma('max_page_count = 4294967294')
  migrate(database, location.folder)
  t.equal(schemaVersion(database), SCHEMA_VERSION)
  database.close()
})

t.test('a migration beside a shell that writes exits 75', async (t) => {
  const location = locationIn(t.testdir({}))
  writeOldDatabase(location, 8)
  const [database, shell] = [new Sqlite(databasePath(location), { timeout: 0 }), new Sqlite(databasePath(location))]
  shell.exec('begin immediate')
  const failed = catchExit(() => migrate(database, location.folder))
  t.match(failed, { exitCode: 75, message: /^the migration 0009-outbound-tls.sql failed: database is locked/ })
  shell.close()
  migrate(database, location.folder)
  t.equal(schemaVersion(database), SCHEMA_VERSION)
  database.close()
})

t.test('an upgrade that ended in the middle, twice, goes on with the snapshot of its beginning', async (t) => {
  const location = locationIn(t.testdir({}))
  const before = writeOldDatabase(location, 8)
  const path = join(location.folder, `pre-migration-8-${SCHEMA_VERSION}.db`)
  for (const table of ['kept_links', 'statistics', 'certificates']) {
    const database = new Sqlite(databasePath(location))
    database.exec(`create table ${table} (in_the_way integer)`)
    database.close()
    const failed = catchExit(() => openDatabase(location))
    t.ok(failed.message.endsWith(`the data as it was before is in ${path}`), failed.message)
    t.equal(planMigration(location).snapshotBytes, 0, 'no space is asked for')
    const mended = new Sqlite(databasePath(location))
    mended.exec(`drop table ${table}`)
    mended.close()
  }
  openDatabase(location).close()
  t.same(
    listSnapshots(location.folder).map(({ from }) => from),
    [8],
  )
  const copy = new Sqlite(path, { readonly: true })
  t.match(tableCounts(copy), before, 'the earlier program finds what it left')
  copy.close()

  const after = new Sqlite(databasePath(location))
  t.equal(tableCounts(after)['meta'], before['meta'], 'nothing is left of it')
  after.exec('drop table nodes; drop table last_commits; drop table ip_owners')
  after.exec('alter table certificates drop column order_proof')
  after.pragma('user_version = 21')
  after.close()
  openDatabase(location).close()
  t.same(
    listSnapshots(location.folder).map(({ from }) => from),
    [21, 8],
    'the next upgrade has its own',
  )
})

t.test('a plan of a file that cannot be read ends as the start would', async (t) => {
  const location = locationIn(t.testdir({ data: { 'sternpost.db': 'no database at all' } }))
  const refused = catchExit(() => planMigration(location))
  t.equal(refused.exitCode, 74)
  t.match(refused.message, /sternpost\.db cannot be read: file is not a database; check the disk and its free space$/)
})

const disk = mountSmallDisk(8 * 1_024 * 1_024)
if (disk === undefined) {
  t.pass('left out', { skip: 'a small disk cannot be mounted here: that takes root and the right to mount' })
} else {
  t.teardown(() => disk.remove())
  t.test('without space for the snapshot nothing is migrated, and the bytes are named', async (t) => {
    const location = { ...locationIn(disk.folder), folder: join(disk.folder, 'data') }
    writeOldDatabase(location, 9)
    t.equal(catchExit(() => planMigration(location)).exitCode, 74, 'an upgrade asks before it stops the server')
    const refused = catchExit(() => openDatabase(location))
    t.equal(refused.exitCode, 74)
    t.equal(refused.exitCode, 74)
    t.match(refused.message, /: \d+ bytes are needed in .*, \d+ are free; nothing was changed$/)
    const after = new Sqlite(databasePath(location), { readonly: true })
    t.equal(schemaVersion(after), 9)
    after.close()
    t.ok(statSync(databasePath(location)).size > 0)
  })
}

function catchExit(open: () => unknown): ProcessExit {
  try {
    open()
  } catch (thrown) {
    if (thrown instanceof ProcessExit) return thrown
    throw thrown
  }
  throw new Error('it was not refused')
}
