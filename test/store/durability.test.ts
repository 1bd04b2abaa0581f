/**
 * What survives a kill, and what refuses to start: a second process, a newer schema, a damaged file.
 */
import { execFile, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdirSync, openSync, statSync, writeFileSync, writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { ProcessExit } from '../../src/base/errors.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { openStore } from '../../src/store/open/open-store.ts'
import type { SqliteLocation } from '../../src/store/store-location.ts'
import { databasePath, openDatabase, readDurability } from '../../src/store/sqlite/engine/database.ts'
import { schemaVersion, SCHEMA_VERSION } from '../../src/store/sqlite/engine/migrate.ts'
import { unwritableText } from '../../src/store/sqlite/engine/unwritable.ts'
import { packContent } from '../../src/store/records/packed-content.ts'
import { createContentReader, createContentWriter } from '../../src/store/verbs/messages/stored-content.ts'
import { until } from '../support/until.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { acceptOne, acceptRequest, lookUp, newMessage, NOW, sampleContent } from './store-samples.ts'

const run = promisify(execFile)

/** How `accept-forever.ts` begins: it holds this many rows when it is killed. */
const CLAIMED_BY_CHILD = 20

/** A process that accepts messages and says each identifier that was answered. */
function startAccepting(t: Test, location: SqliteLocation): { child: ChildProcess; answered: string[] } {
  const entry = fileURLToPath(new URL('./accept-forever.ts', import.meta.url))
  const child = spawn(process.execPath, [entry, JSON.stringify(location)], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => child.kill('SIGKILL'))
  const answered: string[] = []
  createInterface({ input: child.stdout }).on('line', (line) => answered.push(line))
  return { child, answered }
}

async function kill(child: ChildProcess): Promise<void> {
  const closed = once(child, 'close')
  child.kill('SIGKILL')
  await closed
}

/** How opening this store is refused. */
async function refusal(location: SqliteLocation): Promise<ProcessExit> {
  try {
    const { store } = await openTestStore(location)
    await store.close()
  } catch (thrown) {
    if (thrown instanceof ProcessExit) return thrown
    throw thrown
  }
  throw new Error('the store was opened')
}

t.test('what was answered is there after kill -9, and what was held is due again', async (t) => {
  const location = locationIn(t.testdir({}))
  const { child, answered } = startAccepting(t, location)
  await until('messages were accepted', () => answered.length > 300, 120_000)
  const second = await refusal(location)
  t.equal(second.exitCode, 75)
  t.match(second.message, /^another Sternpost is running with the data in .*data; stop it first$/)
  await kill(child)

  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  t.comment(`${answered.length} were answered before the kill`)
  const found = await Promise.all(answered.map((id) => lookUp(store, id)))
  t.equal(found.filter((message) => message !== null).length, answered.length)
  const { recovered } = await store.beginEpoch(NOW, NOW)
  t.equal(recovered, CLAIMED_BY_CHILD)
  const { waiting, sending } = await store.queueSummary(NOW)
  t.ok(waiting >= answered.length)
  t.equal(sending, 0)
})

t.test('the writing connection is in WAL mode with synchronous=FULL, and says so when it opens', async (t) => {
  const location = locationIn(t.testdir({}))
  const database = openDatabase(location)
  t.same(readDurability(database.writer), { journalMode: 'wal', synchronous: 2 })
  t.equal(database.writer.pragma('foreign_keys', { simple: true }), 1)
  t.throws(() => database.reader.exec('delete from events'), { code: 'SQLITE_READONLY' })
  database.close()
  t.equal(statSync(location.folder).mode & 0o777, 0o700, 'for its user alone')

  const lines: string[] = []
  const logger = createLogger({ level: 'info', write: (line) => lines.push(line) })
  const store = await openStore({ location, logger, metrics: createMetrics(), onDeath: () => undefined })
  await store.close()
  t.match(JSON.parse(lines[0] ?? ''), {
    msg: 'store opened',
    journal_mode: 'wal',
    synchronous: 2,
    schema_version: SCHEMA_VERSION,
  })
})

t.test('a second store in the same process is refused, and can open after the first has closed', async (t) => {
  const location = locationIn(t.testdir({}))
  const { store } = await openTestStore(location)
  t.equal((await refusal(location)).exitCode, 75)
  const id = await acceptOne(store)
  await store.close()
  const again = await openTestStore(location)
  t.equal((await lookUp(again.store, id))?.state, 'queued')
  await again.store.close()
  t.same(again.deaths, [], 'a close is no death')
})

t.test('a newer schema is refused, naming both versions', async (t) => {
  const location = locationIn(t.testdir({}))
  const database = openDatabase(location)
  t.equal(schemaVersion(database.writer), SCHEMA_VERSION)
  database.writer.pragma(`user_version = ${SCHEMA_VERSION + 1}`)
  database.close()
  const refused = await refusal(location)
  t.equal(refused.exitCode, 78)
  t.match(
    refused.message,
    `has schema version ${SCHEMA_VERSION + 1}, this program knows versions up to ${SCHEMA_VERSION}`,
  )
})

t.test('what is no database, or cannot be written, is refused with its reason', async (t) => {
  const location = locationIn(t.testdir({}))
  mkdirSync(location.folder)
  writeFileSync(databasePath(location), 'this is a letter, not a database '.repeat(200))
  const refused = await refusal(location)
  t.equal(refused.exitCode, 74)
  t.match(refused.message, /sternpost\.db cannot be opened: SQLITE_NOTADB: .*; check the disk, or restore a backup/)

  const readOnly = Object.assign(new Error('EROFS: read-only file system'), { code: 'EROFS' })
  t.match(unwritableText('/srv', readOnly), /\(EROFS.*\)\. Fix: where findmnt -T \/srv says "ro", mend that disk/)

  const file = `${t.testdir({ file: '' })}/file`
  const folderless = await refusal(locationIn(file))
  t.equal(folderless.exitCode, 78)
  t.match(folderless.message, /is below a file, not a folder\. Fix: name another folder/)
})

const asRoot = process.getuid?.() === 0 ? {} : { skip: 'needs root' }

t.test('what another user made in the folder is no damage', asRoot, async (t) => {
  const location = locationIn(t.testdir({}))
  const { store } = await openTestStore(location)
  await store.close()
  const module = new URL('../../src/store/sqlite/engine/database.ts', import.meta.url).href
  const script = `import { chownSync } from 'node:fs'
    const { openDatabase } = await import('${module}')
    const folder = process.argv[1]
    chownSync(folder, 65534, 65534)
    process.chdir(folder)
    process.setuid(65534)
    try { openDatabase({ folder: '.' }) } catch (thrown) { console.log(thrown.exitCode, thrown.message) }`
  const words = [...process.execArgv, '--input-type=module', '--eval', script, location.folder]
  const { stdout, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8' })
  t.match(stdout, /^78 data_dir: user \d+ may not write into .*sternpost\.db'\)\. Fix: chown -R /, stderr)
})

t.test('damage met while running rejects the caller and ends the store', async (t) => {
  const location = locationIn(t.testdir({}))
  const first = await openTestStore(location)
  const id = await acceptOne(first.store, { content: { ...sampleContent, html: 'x'.repeat(100_000) } })
  await first.store.close()
  damagePagesOf('messages', databasePath(location))

  const { store, deaths } = await openTestStore(location)
  await t.rejects(lookUp(store, id), { code: 'SQLITE_CORRUPT' })
  await until('the death is told', () => deaths.length > 0)
  t.match(deaths, [{ message: /malformed/ }])
  await t.rejects(store.tick(), { code: 'unavailable', cause: { message: /malformed/ } })
})

t.test('a disk that takes no more refuses verbs and ends nothing', async (t) => {
  const location = locationIn(t.testdir({}))
  const entry = fileURLToPath(new URL('./fill-disk.ts', import.meta.url))
  // In units of 512 bytes: room for the log to grow above the size at which it is moved, and not for what moves then.
  // The test runner's options would bring in a handler that ends the process at the signal of a full file.
  const script = 'unset NODE_OPTIONS; ulimit -f 60000; exec "$0" "$@"'
  const { stdout } = await run('sh', ['-c', script, process.execPath, entry, JSON.stringify(location)])
  const { answered, codes, deaths } = JSON.parse(stdout) as { answered: string[]; codes: string[]; deaths: number }
  t.equal(deaths, 0)
  t.match(codes, [/^SQLITE_(?:IOERR_WRITE|FULL)$/])
  t.ok(answered.length > 0)

  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  for (const id of answered) t.ok(await lookUp(store, id))
  await acceptOne(store)
})

t.test("a verb that violates a rule of the schema is refused and names the engine's code", async (t) => {
  const { store, deaths } = await openTestStore(locationIn(t.testdir({})))
  t.teardown(() => store.close())
  const message = newMessage()
  await store.acceptMessages(acceptRequest({ messages: [message] }))
  const twice = store.acceptMessages(acceptRequest({ messages: [message] }))
  await t.rejects(twice, { code: 'SQLITE_CONSTRAINT_UNIQUE' })
  t.same(deaths, [], 'a refusal is no death')
})

/** Overwrites the first page of this table: nothing in it can be read any more, the schema can. */
function damagePagesOf(table: string, path: string): void {
  const database = new Sqlite(path)
  const findRoot = database.prepare<[string], number>('select rootpage from sqlite_schema where name = ?').pluck()
  const root = findRoot.get(table)
  const pageBytes = Number(database.pragma('page_size', { simple: true }))
  database.close()
  const file = openSync(path, 'r+')
  writeSync(file, Buffer.alloc(pageBytes, 0xff), 0, pageBytes, ((root ?? 1) - 1) * pageBytes)
  closeSync(file)
}

t.test('a content whose bytes were removed is gone, one that lost some of them is damaged', async (t) => {
  const location = locationIn(t.testdir({}))
  const opened = openDatabase(location)
  t.teardown(() => opened.close())
  const writeContent = createContentWriter(opened.writer)
  const facts = { isTest: false, sendAt: null, retryOf: null }
  const [removed, damaged, empty] = [
    { ...sampleContent, html: 'x'.repeat(2_000_000) },
    { ...sampleContent, html: 'x'.repeat(2_000_000) },
    { ...sampleContent, html: null, text: '' },
  ].map((content) => writeContent(packContent(content), facts))
  const readContent = createContentReader(opened.reader)
  opened.writer.exec(`delete from content_parts where part_key / 4096 = ${removed}`)
  opened.writer.exec(`delete from content_parts where part_key = ${damaged} * 4096 + 1`)
  t.equal(readContent(removed ?? 0), undefined)
  t.throws(() => readContent(damaged ?? 0), { message: /content ends after 1048576 bytes/ })
  t.match(readContent(empty ?? 0), { html: null, text: '' })
})
