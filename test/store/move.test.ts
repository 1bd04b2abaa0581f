/**
 * All data from SQLite to PostgreSQL and back, killed twice on each way: nothing is lost, nothing is there twice, and no
 * server starts on half of it. TEST_SCALE=full: 100,000 waiting messages.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createHash } from 'node:crypto'
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { moveData, moveToFile, verifyDatabase } from '../../src/store/open/offline.ts'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'
import type { SqliteLocation, StoreLocation } from '../../src/store/store-location.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { MIGRATION_FILES, tableCounts, writeOldDatabase } from './old-databases.ts'
import { postgresLocation } from './postgres-support.ts'
import { freshLocation, openTestStore } from './sqlite-support.ts'
import { acceptOne, claim, lookUp, NOW } from './store-samples.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const NOT_MOVED = new Set(['ip_owners', 'last_commits', 'meta', 'nodes', 'subjects'])
const MESSAGES = IS_FULL ? 100_000 : 600
const BODY_BYTES = IS_FULL ? 10_000 : 3_000

t.setTimeout(IS_FULL ? 3_600_000 : 300_000)

/** Rows in every table, and many messages that wait. */
function writeSource(location: SqliteLocation): void {
  writeOldDatabase(location, MIGRATION_FILES.length)
  const database = new Sqlite(databasePath(location))
  database.exec(`
    create temp table numbers as
      with recursive n (n) as (select 1000 union all select n + 1 from n where n < ${999 + MESSAGES}) select n from n;
    insert into contents (content_id, from_address, subject, has_variables, text_bytes, metadata)
      select n, 'a@zeta.com', 'Number ' || n || char(0) || ' “ö”', 0, ${BODY_BYTES}, null from numbers;
    insert into content_parts select n * 4096, randomblob(${BODY_BYTES}) from numbers;
    insert into messages (id, state, pool_id, lane_id, content_id, recipient, recipient_domain, next_at, expires_at,
      created_at, attempts, route_id, lease_epoch, lease_until, claim, dot_sent)
    select randomblob(16), iif(n % 50, 'waiting', 'sending'), 1, 1, n, 'r' || n || '@example.com', 'example.com', ${NOW},
      ${NOW} + 90000000, ${NOW}, n % 3, 0, iif(n % 50, null, 3), iif(n % 50, null, ${NOW}), iif(n % 50, null, n), n % 50 = 0
    from numbers;
    insert into events (id, message_seq, kind, at, body)
      select randomblob(16), seq, 'email.accepted', created_at, null from messages where content_id >= 1000;
    update messages set waiting_for = 'held' where state <> 'sending' and seq % 3 = 0`)
  database.close()
}

const PROGRAM = `
const { writeSync } = await import('node:fs')
const { moveData, moveToFile } = await import(process.argv[1])
const { from, to, now } = JSON.parse(process.argv[2])
const tell = (what) => void writeSync(1, JSON.stringify(what) + '\\n')
const options = { from, to, now, onProgress: tell }
tell({ done: await (to.engine === 'sqlite' ? moveToFile(options) : moveData(options)) })
`

interface Ways {
  from: StoreLocation
  to: StoreLocation
}

type Moved = Awaited<ReturnType<typeof moveData>> & { movedTo?: string }

/** `killAt`: of a table, so many rows have moved. Returns null then. */
async function runMove(ways: Ways, killAt?: { table: string; rows: number }): Promise<Moved | null> {
  const offline = new URL('../../src/store/open/offline.ts', import.meta.url).href
  const words = ['--input-type=module', '-e', PROGRAM, offline, JSON.stringify({ ...ways, now: NOW })]
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  let moved: Moved | null = null
  for await (const line of createInterface({ input: child.stdout })) {
    const { done, table, rows } = JSON.parse(line) as { done?: Moved; table: string; rows: number }
    moved = done ?? moved
    if (killAt !== undefined && table === killAt.table && rows >= killAt.rows) child.kill('SIGKILL')
  }
  const [code] = (await ended) as [number | null]
  if (code !== 0 && code !== null) throw new Error(`the move ended with ${code}`)
  return moved
}

/** A checksum for each table, as SQLite has it, but for what is made anew where it arrives. */
function sumsOf(location: SqliteLocation): Record<string, string> {
  const database = new Sqlite(databasePath(location), { readonly: true })
  const names = Object.keys(tableCounts(database)).filter((name) => name !== 'meta' && name !== 'subjects')
  const sums = names.map((name) => {
    const hash = createHash('sha256')
    const key = database
      .prepare<[string], string>('select name from pragma_table_info(?) where pk > 0 order by pk')
      .pluck()
      .all(name)
    for (const row of database
      .prepare(`select * from ${name} order by ${key.join(', ')}`)
      .raw()
      .iterate()) {
      hash.update(JSON.stringify(row).replaceAll(String.raw`\u0000`, '\uFFFD'))
    }
    return [name, hash.digest('hex')] as const
  })
  database.close()
  return Object.fromEntries(sums)
}

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const cluster = await startPostgres(t)
  t.test('to PostgreSQL and back, killed twice on each way', async (t) => {
    const file = freshLocation(t)
    writeSource(file)
    const server = postgresLocation(cluster.url(await cluster.createDatabase()))
    const there = { from: file, to: server }

    const startedAt = performance.now()
    t.equal(await runMove(there, { table: 'content_parts', rows: MESSAGES / 3 }), null, 'killed')
    await t.rejects(openTestStore(server), { message: /not all of it is here/ }, 'no server starts on a half')
    const half = { from: server, to: file, now: NOW, onProgress() {} }
    await t.rejects(moveToFile(half), { message: /not all of it is here/ }, 'nor does a half come back')
    const none = postgresLocation(cluster.url(await cluster.createDatabase()))
    await t.rejects(moveToFile({ ...half, from: none }), { message: /no Sternpost has worked/ }, 'nor nothing at all')
    t.ok(existsSync(databasePath(file)), 'what was there is in its place')
    t.equal(await runMove(there, { table: 'messages', rows: MESSAGES / 2 }), null, 'killed again')
    const moved = await runMove(there)
    t.comment(`there in ${Math.round(performance.now() - startedAt)} ms`)
    t.match(moved, { isResumed: true })
    const database = new Sqlite(databasePath(file), { readonly: true })
    const counts = Object.fromEntries(Object.entries(tableCounts(database)).filter(([table]) => !NOT_MOVED.has(table)))
    const held = database
      .prepare<[], number>(`select count(*) from messages where state = 'waiting' or state = 'sending'`)
      .pluck()
      .get()
    const before = database
      .prepare<[], number>(`select count(*) from messages where state = 'waiting' and waiting_for = 'held'`)
      .pluck()
      .get()
    const [epoch] = database.prepare('select value from meta where name = ?').pluck().all('epoch')
    database.close()
    t.strictSame(moved?.counts, counts, 'every row of every table')
    t.equal(moved?.held, held)
    t.equal(moved?.heldBefore, before)
    await t.rejects(
      moveData({ ...there, onProgress() {} }),
      { message: /has data in its table/ },
      'not over what is there',
    )

    const backAt = performance.now()
    const back = { from: server, to: file }
    t.equal(await runMove(back, { table: 'messages', rows: MESSAGES / 3 }), null, 'killed')
    t.ok(existsSync(databasePath(file)), 'what was there is in its place')
    t.equal(await runMove(back, { table: 'content_parts', rows: MESSAGES / 2 }), null, 'killed again')
    const returned = await runMove(back)
    t.comment(`back in ${Math.round(performance.now() - backAt)} ms`)
    t.match(returned, { isResumed: true, counts, checksum: moved?.checksum, movedTo: join(file.folder, 'before-move') })

    const aside = { folder: returned?.movedTo ?? '' }
    const original = new Sqlite(databasePath(aside))
    original.exec(`
    update messages
    set state = 'waiting', next_at = ${Date.UTC(9999, 11, 31)}, waiting_for = 'held', dot_sent = 0, lease_epoch = null,
      possible_duplicate = max(possible_duplicate, state = 'sending'), lease_until = null, claim = null
    where state = 'waiting' or state = 'sending'`)
    original.close()
    t.strictSame(sumsOf(file), sumsOf({ ...file, ...aside }), 'byte for byte as it was, and held')
    t.strictSame(verifyDatabase(file).problems, [])

    for (const location of [server, file]) {
      const { store } = await openTestStore(location)
      const begun = await store.beginEpoch(NOW, NOW)
      t.equal(begun.epoch, Number(epoch) + 1, `${location.engine}: epochs go on`)
      t.strictSame(await claim(store, begun.epoch), [], 'nothing leaves before it is released')
      const id = await acceptOne(store)
      t.ok(await lookUp(store, id), 'and new mail has numbers of its own')
      await store.close()
    }
  })

  t.test('a source that was started meanwhile moves from the beginning', async (t) => {
    const file = freshLocation(t)
    writeSource(file)
    const to = postgresLocation(cluster.url(await cluster.createDatabase()))
    const stopAt = (name: string) => ({
      from: file,
      to,
      onProgress({ table }: { table: string }) {
        if (table === name) throw new Error('stopped')
      },
    })
    await t.rejects(moveData(stopAt('messages')), { message: 'stopped' })
    const { store } = await openTestStore(file)
    await t.rejects(moveData(stopAt('')), { message: /another Sternpost is running/ })
    await store.beginEpoch(NOW, NOW)
    await acceptOne(store)
    await store.close()
    const moved = await moveData(stopAt(''))
    t.equal(moved.isResumed, false)
    const killedAtTheEnd = freshLocation(t)
    const work = { ...killedAtTheEnd, folder: join(killedAtTheEnd.folder, '.move-unfinished') }
    await moveData({ from: to, to: work, onProgress() {} })
    const placed = await moveToFile({ from: to, to: killedAtTheEnd, now: NOW, onProgress() {} })
    t.match(placed, { counts: moved.counts, checksum: moved.checksum, isResumed: false, movedTo: null })
    await moveData({ from: to, to: work, onProgress() {} })
    rmSync(databasePath(work))
    const again = await moveToFile({ from: to, to: killedAtTheEnd, now: NOW, onProgress() {} })
    t.match(again, { checksum: moved.checksum, movedTo: /before-move-/ }, 'also when it had been placed')
    t.equal(
      moved.held,
      (await cluster.query(`select * from messages where state = 'waiting'`, to.url.split('/').at(-1))).length,
    )
  })
  t.test('rows that differ are told, and the next move begins anew', async (t) => {
    const file = freshLocation(t)
    writeSource(file)
    const database = await cluster.createDatabase()
    const ways = { from: file, to: postgresLocation(cluster.url(database)) }
    const stop = ({ table }: { table: string }): void => {
      if (table === 'traces') throw new Error('stopped')
    }
    await t.rejects(moveData({ ...ways, onProgress: stop }), { message: 'stopped' })
    await cluster.query('update messages set attempts = attempts + 1 where seq = 7', database)
    await t.rejects(moveData({ ...ways, onProgress() {} }), {
      message: /the rows of messages are not the same on both sides from \[7\] on/,
    })
    await t.rejects(openTestStore(ways.to), { message: /not all of it is here/ })
    t.match(await moveData({ ...ways, onProgress() {} }), { isResumed: false })
  })
}
