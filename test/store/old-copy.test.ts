/**
 * An older copy of a PostgreSQL database, as a dump, its archived log or a standby gives it: a start on the machine that
 * had worked with more than that knows it, and does not send its mail again by itself. `sternpost restore --as-of` says
 * it elsewhere. And an empty database in the place of what was there.
 */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { DAY, HOUR, SECOND } from '../../src/base/clock.ts'
import { utcDay } from '../../src/base/utc-day.ts'
import { holdMailOfCopy } from '../../src/store/open/older-copy.ts'
import { openDatabase } from '../../src/store/sqlite/engine/database.ts'
import { skipWithoutPostgres, type PostgresCluster } from '../support/postgres-cluster.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { postgresLocation, startWithTables } from './postgres-support.ts'
import { acceptOne, claim, lookUp } from './store-samples.ts'
import { ask, IP, ipChange, warmingRecord } from './warmup-samples.ts'

const AGE = 10 * DAY

type Bed = PostgresCluster & { createTables(): Promise<string> }

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const { cluster, like } = await startWithTables(t)
  const bed = { ...cluster, createTables: () => cluster.createDatabase(like) }
  await t.test('mail of an older copy is held and lives on', async (t) => holdAtStart(t, bed))
  await t.test('mail of the last minute goes out, marked', async (t) => markAtStart(t, bed))
  await t.test('of several nodes one does it for all', async (t) => holdOnce(t, bed))
  await t.test('what another node does on the copy stays', async (t) => leaveOthers(t, bed))
  await t.test('what is no older copy is not taken for one', async (t) => knowOthers(t, bed))
  await t.test('an operator says of which time a copy is', async (t) => holdAsOf(t, bed))
  await t.test('an empty database is not begun with', async (t) => refuseEmpty(t, bed))
}

async function holdAtStart(t: Test, cluster: Bed): Promise<void> {
  const { copy, ids, later } = await makeCopy(t, cluster, AGE)
  const { store, errors } = await openTestStore(copy)
  t.teardown(() => store.close())
  t.match(errors, [/older copy, of 20.*until 20.*; 3 messages are held.*queue release --held/])
  const now = Date.now()
  const { epoch } = await store.beginEpoch(now, now, 'a')
  await store.expireDue(now, 100)
  for (const id of ids) {
    const found = await lookUp(store, id, now)
    t.match(found, { state: 'queued', waitingFor: 'held', isPossibleDuplicate: true })
    t.ok(Math.abs((found?.expiresAt ?? 0) - now - AGE - DAY) < HOUR, 'its lifetime stood still')
  }
  t.match(await lookUp(store, later, now), { waitingFor: 'held', isPossibleDuplicate: false }, 'its time is to come')
  t.equal((await claim(store, epoch, now, 2)).length, 0)
  const caps = { day: utcDay(now), cap: 100, providerCaps: {}, defaultProviderCap: 50 }
  t.ok(await store.changeIp(ipChange(warmingRecord(), { audit: [], caps })), 'a start sets the caps of its curve')
  t.match(await store.reserveAllowance(ask(now, 1)), [{ granted: 0 }], `the allowance of ${IP} counts as used`)
  const action = { filter: {}, action: { kind: 'release' }, now, limit: 100, isDryRun: false } as const
  t.equal((await store.actOnQueue(action)).messages, 3)
  t.equal((await claim(store, epoch, now, 2)).length, 2)
}

async function markAtStart(t: Test, cluster: Bed): Promise<void> {
  const { copy, ids, later } = await makeCopy(t, cluster, 0)
  const { store, errors } = await openTestStore(copy)
  t.teardown(() => store.close())
  t.match(errors, [/older copy.*; 3 messages may have been sent since, and go out marked/])
  const now = Date.now()
  const { epoch } = await store.beginEpoch(now, now, 'a')
  for (const id of ids) t.match(await lookUp(store, id, now), { waitingFor: null, isPossibleDuplicate: true })
  t.match(await lookUp(store, later, now), { isPossibleDuplicate: false }, 'its time is to come')
  t.equal((await claim(store, epoch, now, 9)).length, 2)
}

async function holdOnce(t: Test, cluster: Bed): Promise<void> {
  const first = { folder: t.testdir({ first: {}, second: {} }), database: await cluster.createTables() }
  const nodes = ['first', 'second'].map((nodeId) =>
    locationOf(cluster, first.database, join(first.folder, nodeId), nodeId),
  )
  for (const node of nodes) await workWith(node)
  const copy = await cluster.createDatabase(first.database)
  for (const node of nodes) await workWith(node)
  await cluster.query(`update nodes set beat_at = beat_at - ${AGE}`, copy)
  const said: string[] = []
  for (const node of [...nodes, ...nodes]) {
    const { store, errors } = await openTestStore({ ...node, url: cluster.url(copy) })
    await store.close()
    said.push(...errors)
  }
  t.match(said, [/older copy/])
  t.equal(said.length, 1)
}

async function leaveOthers(t: Test, cluster: Bed): Promise<void> {
  const { copy, ids } = await makeCopy(t, cluster, AGE)
  const now = Date.now()
  const other = locationOf(cluster, databaseOf(copy), join(t.testdirName, 'other'), 'other')
  mkdirSync(other.markFolder, { recursive: true })
  const { store: others } = await openTestStore(other)
  t.teardown(() => others.close())
  const { epoch } = await others.beginEpoch(now + SECOND, now + SECOND, 'other')
  const [taken] = await claim(others, epoch, now + SECOND, 1)
  const accepted = await acceptOne(others, { now: now + SECOND }, { expiresAt: now + DAY })
  const { store, errors } = await openTestStore(copy)
  t.teardown(() => store.close())
  t.match(errors, [/; 2 messages are held/])
  const held = []
  for (const id of [...ids, accepted]) {
    if ((await lookUp(store, id, now))?.waitingFor === 'held') held.push(id)
  }
  t.strictSame(
    held,
    ids.filter((id) => id !== taken?.id),
  )
}

async function knowOthers(t: Test, cluster: Bed): Promise<void> {
  const { original, copy } = await makeCopy(t, cluster, AGE)
  const mark = join(original.markFolder, 'sternpost.made')
  const noted = readFileSync(mark, 'utf8')
  const isQuiet = async (location: typeof copy, reason: string): Promise<void> => {
    const { store, errors } = await openTestStore(location)
    t.strictSame(errors, [], reason)
    await store.close()
  }
  await isQuiet(original, 'what it had worked with last')
  const others = await cluster.createTables()
  const joined = locationOf(cluster, others, join(t.testdirName, 'joined'), 'joined')
  mkdirSync(joined.markFolder, { recursive: true })
  await workWith(joined)
  writeFileSync(mark, noted)
  await isQuiet({ ...original, url: cluster.url(others) }, 'a database of others, which it has never worked with')
  for (const text of [noted.slice(0, 100), `${noted.split('\n')[0]}\n{"nodeId":7}`, `${noted.split('\n')[0]}\n`]) {
    writeFileSync(mark, text)
    await isQuiet(copy, 'a note that is torn says nothing')
  }
}

async function holdAsOf(t: Test, cluster: Bed): Promise<void> {
  const { copy, ids, original } = await makeCopy(t, cluster, AGE)
  const now = Date.now()
  const { nodeId: _, markFolder: __, ...location } = copy
  t.strictSame(holdMailOfCopy(location, now - 2 * DAY, now), { held: 3, heldBefore: 0 })
  t.strictSame(holdMailOfCopy(location, now, now), { held: 3, heldBefore: 3 }, 'again')
  const { store, errors } = await openTestStore({ ...copy, markFolder: original.markFolder })
  t.teardown(() => store.close())
  t.strictSame(errors, [], 'and a start has nothing to add')
  const found = await lookUp(store, ids[0] ?? '', now)
  t.match(found, { state: 'queued', waitingFor: 'held', isPossibleDuplicate: true })
  t.ok(Math.abs((found?.expiresAt ?? 0) - now - 3 * DAY) < HOUR, 'its lifetime stood still')
  const empty = postgresLocation(cluster.url(await cluster.createDatabase()))
  t.throws(() => holdMailOfCopy(empty, now, now), { exitCode: 78, message: /no Sternpost has worked with/ })
}

async function refuseEmpty(t: Test, cluster: Bed): Promise<void> {
  const file = locationIn(t.testdir({}))
  const location = locationOf(cluster, await cluster.createTables(), file.folder, 'a')
  await workWith(location)
  const empty = await cluster.createDatabase()
  const emptied = { ...location, url: cluster.url(empty) }
  const refusal =
    /^there was data, and the database that storage\.url names is empty: .*migrate --to postgres.*sternpost\.made/
  await t.rejects(openTestStore(emptied), { exitCode: 74, message: refusal })
  t.throws(() => openDatabase(file), { exitCode: 74, message: /there was data/ }, 'nor is a file')
  const tables = `select count(*)::int as count from pg_tables where schemaname = 'public'`
  t.match(await cluster.query(tables, empty), [{ count: 0 }], 'a dump still fits in')

  rmSync(join(location.markFolder, 'sternpost.made'))
  const { store: anew } = await openTestStore(emptied)
  await anew.close()
  t.ok(existsSync(join(location.markFolder, 'sternpost.made')), 'who wants to begin anew can')
}

function locationOf(cluster: Bed, database: string, markFolder: string, nodeId: string) {
  return { ...postgresLocation(cluster.url(database)), markFolder, nodeId }
}

function databaseOf({ url }: { url: string }): string {
  return new URL(url).pathname.slice(1)
}

/** As a server that starts, and stops at once. */
async function workWith(location: ReturnType<typeof locationOf>): Promise<void> {
  const { store } = await openTestStore(location)
  await store.beginEpoch(Date.now(), Date.now(), location.nodeId)
  await store.close()
}

/** A copy with three messages, one of them under way and one for later, that is older by `age` than what came behind it. */
async function makeCopy(t: Test, cluster: Bed, age: number) {
  const database = await cluster.createTables()
  const original = locationOf(cluster, database, t.testdir({}), 'a')
  const { store } = await openTestStore(original)
  const now = Date.now()
  const { epoch } = await store.beginEpoch(now, now, 'a')
  const lived = { expiresAt: now + DAY }
  const ids = [await acceptOne(store, { now }, lived), await acceptOne(store, { now }, lived)]
  t.equal((await claim(store, epoch, now, 1)).length, 1, 'one is under way')
  const later = await acceptOne(store, { now, sendAt: now + HOUR }, lived)
  await store.addIpRecords([warmingRecord()])
  await store.close()
  const copied = await cluster.createDatabase(database)
  await cluster.query(`update nodes set beat_at = beat_at - ${age}`, copied)
  await workWith(original)
  return { original, copy: { ...original, url: cluster.url(copied) }, ids, later }
}
