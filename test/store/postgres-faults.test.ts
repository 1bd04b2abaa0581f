/**
 * Every fault of PostgreSQL or the way to it has a right answer: what was answered is stored, what was refused is not,
 * and nothing happens twice. store/README.md "A server that does not answer".
 */
import { chownSync, mkdirSync, statSync } from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import t, { type Test } from 'tap'
import { EXIT, ServiceError } from '../../src/base/errors.ts'
import { skipWithoutPostgres, type PostgresCluster } from '../support/postgres-cluster.ts'
import { startPostgresProxy, type CommitFate, type PostgresProxy } from '../support/postgres-proxy.ts'
import { freePort } from '../support/serve-process.ts'
import { randomSource } from '../support/random-source.ts'
import { MIB, mountSmallDisk } from '../support/small-disk.ts'
import { until } from '../support/until.ts'
import { openTestStore, type OpenedStore } from './sqlite-support.ts'
import { postgresLocation, startWithTables } from './postgres-support.ts'
import { acceptOne, newMessage, NOW } from './store-samples.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const CUTS = IS_FULL ? 1_000 : 40
const CLIENTS = 4
/** As which the store works: what holds for one of several nodes holds for one alone. */
const NODE = 'node-1'
/** Sessions of a store. */
const OURS = `application_name like 'sternpost%'`

/** The faults of others cannot be brought about at will: a trigger says what the server would say. */
const FAULTS = `
  create table faults (recipient text, state text);
  create sequence fault_tries;
  create function raise_fault() returns trigger language plpgsql as $$
    declare fault text;
    begin
      select state into fault from faults where new.recipient like faults.recipient || '%';
      if fault is null then return new; end if;
      if fault like 'once %' then
        if nextval('fault_tries') > 1 then return new; end if;
        fault := substr(fault, 6);
      end if;
      raise exception 'a fault of the test' using errcode = fault;
    end $$;
  create trigger fault before insert on messages for each row execute function raise_fault();
  insert into faults values ('full@', '53100'), ('deadlock@', '40P01'), ('wrong@', '23514')`

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const { cluster, like } = await startWithTables(t)
  await t.test('a server that is gone for a moment is waited for', (t) => leaveForAMoment(t, cluster, like))
  await t.test('a connection that is cut around a commit', (t) => cutCommits(t, cluster, like))
  await t.test('sessions that others end, under load', (t) => endSessions(t, cluster, like))
  await t.test('what the server refuses', (t) => refuseStatements(t, cluster, like))
  await t.test('sessions that may not write', (t) => forbidWriting(t, cluster, like))
  await t.test('a server that hangs is away within seconds, and goes on', (t) => hang(t, cluster, like))
  await t.test('a cut that the server does not notice', (t) => swallowConnection(t, cluster, like))
  await t.test('a second of delay for each commit', (t) => commitSlowly(t, cluster, like))
  await t.test('a killed server', (t) => killServer(t, cluster, like))
  await t.test('a database that somebody else has written to ends the process', (t) => changeDatabase(t, cluster, like))
  await t.test('a start that cannot be', (t) => startInVain(t, cluster, like))
  await t.test('a migration does not wait behind a dump', (t) => migrateBehindDump(t, cluster, like))
  await t.test('a server that speaks German', speakGerman)
  // Last: without its disk the server does not start again.
  await t.test('a disk of the server that is full', (t) => fillDisk(t, cluster, like))
}

interface Bed extends OpenedStore {
  database: string
  /** Addresses. */
  refused: string[]
  proxy: PostgresProxy
}

async function openBed(
  t: Test,
  cluster: PostgresCluster,
  like: string,
  { tablespace = 'pg_default', ...rules }: Parameters<typeof startPostgresProxy>[1] & { tablespace?: string } = {},
): Promise<Bed> {
  const database = await cluster.createDatabase(`${like} tablespace ${tablespace}`)
  const proxy = await startPostgresProxy(cluster.port, rules)
  const opened = await openTestStore({ ...postgresLocation(cluster.url(database, proxy.port)), nodeId: NODE })
  t.teardown(async () => {
    await opened.store.close().catch(() => undefined)
    await proxy.close()
  })
  await opened.store.beginEpoch(NOW, NOW, NODE)
  return { ...opened, database, proxy, refused: [] }
}

/** `accepted`: the answer; otherwise it was refused as it should be. */
async function tryToAccept(t: Test, { store, refused }: Bed, to: string): Promise<boolean> {
  try {
    await acceptOne(store, {}, { to: { ...newMessage().to, address: to } })
    return true
  } catch (thrown) {
    if (!(thrown instanceof ServiceError) || thrown.code !== 'unavailable') t.error(thrown)
    refused.push(to)
    return false
  }
}

async function storedRecipients(cluster: PostgresCluster, database: string): Promise<string[]> {
  const rows = await cluster.query('select recipient from messages', database)
  return rows.map(({ recipient }) => String(recipient))
}

async function leaveForAMoment(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const bed = await openBed(t, cluster, like)
  const nobody = await freePort()
  let isAccepted = false
  // On a busy machine the moment may last for longer than it is waited for.
  for (let tries = 0; tries < 5 && !isAccepted; tries += 1) {
    await until('it accepts', () => tryToAccept(t, bed, `before-${tries}@dest.test`))
    bed.proxy.lead(nobody)
    bed.proxy.cutAll()
    await until('the connections are lost', () => bed.proxy.connections() === 0)
    setTimeout(() => bed.proxy.lead(cluster.port), 100)
    isAccepted = await tryToAccept(t, bed, `meanwhile-${tries}@dest.test`)
  }
  t.ok(isAccepted)
}

async function cutCommits(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const random = randomSource(24)
  const fates: CommitFate[] = ['cut before', 'cut after', 'cut at once']
  let isCutting = false
  let cuts = 0
  const bed = await openBed(t, cluster, like, {
    fateOf() {
      if (!isCutting || random.integer(3) > 0) return 'pass'
      return fates[cuts++ % fates.length] ?? 'pass'
    },
  })
  isCutting = true
  const answers = new Map<string, boolean>()
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, client) => {
      for (let number = 0; cuts < CUTS; number += 1) {
        const to = `reader-${client}-${number}@dest.test`
        answers.set(to, await tryToAccept(t, bed, to))
      }
    }),
  )
  isCutting = false
  await until('it accepts again', () => tryToAccept(t, bed, 'last@dest.test'))
  answers.set('last@dest.test', true)
  const stored = await storedRecipients(cluster, bed.database)
  t.same(stored.toSorted(), [...answers].flatMap(([to, isAccepted]) => (isAccepted ? [to] : [])).toSorted())
  t.comment(`${cuts} cuts; ${stored.length} stored of ${answers.size} asked`)
}

/** Accepts with several clients until `act` is over; then what was answered is what is stored. */
async function acceptWhile(
  t: Test,
  cluster: PostgresCluster,
  bed: Bed,
  act: () => Promise<unknown>,
): Promise<{ accepted: number; refused: number }> {
  const answers = new Map<string, boolean>()
  let isOver = false
  const asking = Array.from({ length: CLIENTS }, async (_, client) => {
    for (let number = 0; !isOver; number += 1) {
      const to = `reader-${client}-${number}@dest.test`
      const isAccepted = await tryToAccept(t, bed, to)
      answers.set(to, isAccepted)
      // A store that is away answers at once.
      if (!isAccepted) await sleep(5)
    }
  })
  try {
    await act()
  } finally {
    isOver = true
  }
  await Promise.all(asking)
  await until('it accepts again', () => tryToAccept(t, bed, 'last@dest.test'))
  const accepted = [...answers].flatMap(([to, isAccepted]) => (isAccepted ? [to] : []))
  const stored = await storedRecipients(cluster, bed.database)
  t.same(stored.toSorted(), [...accepted, 'last@dest.test'].toSorted(), 'what was answered is what is stored')
  t.same(bed.deaths, [])
  return { accepted: accepted.length, refused: answers.size - accepted.length }
}

async function endSessions(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const bed = await openBed(t, cluster, like)
  const end = `select pg_terminate_backend(pid) from pg_stat_activity where ${OURS} and datname = '${bed.database}'`
  const result = await acceptWhile(t, cluster, bed, async () => {
    for (let times = 0; times < (IS_FULL ? 200 : 15); times += 1) {
      await cluster.query(end)
      await sleep(100)
    }
    // Idle in a transaction, as the server judges it: between two questions of a verb.
    await cluster.query(`alter database ${bed.database} set idle_in_transaction_session_timeout = 2`)
    await cluster.query(end)
    await sleep(1_000)
    await cluster.query(`alter database ${bed.database} reset idle_in_transaction_session_timeout`)
    await cluster.query(end)
  })
  t.ok(result.accepted > 0 && result.refused > 0, JSON.stringify(result))
}

async function refuseStatements(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const bed = await openBed(t, cluster, like)
  await cluster.query(FAULTS, bed.database)
  for (const state of ['40P01', '40001', '55P03', '57014']) {
    await cluster.query(
      `insert into faults values ('once-${state}@', 'once ${state}'); select setval('fault_tries', 1, false)`,
      bed.database,
    )
    t.ok(await tryToAccept(t, bed, `once-${state}@dest.test`), `${state} once: it is run again`)
  }
  const [good, deadlock] = await Promise.all(
    ['good@dest.test', 'deadlock@dest.test'].map((to) => tryToAccept(t, bed, to)),
  )
  t.same([good, deadlock], [true, false], 'one that always fails takes nobody along')
  t.equal(bed.store.refusal(), null)
  t.notOk(await tryToAccept(t, bed, 'full@dest.test'), 'a full disk is told as unavailable')
  await until('the store knows why', () => bed.store.refusal() === 'a fault of the test')
  t.equal(bed.store.problem(), null, 'it answers')
  const wrong = acceptOne(bed.store, {}, { to: { ...newMessage().to, address: 'wrong@dest.test' } })
  await t.rejects(wrong, { code: '23514' }, 'a defect is not told as trouble of the server')
  t.ok(await tryToAccept(t, bed, 'after@dest.test'))
  t.same((await storedRecipients(cluster, bed.database)).filter((to) => !to.startsWith('once')).toSorted(), [
    'after@dest.test',
    'good@dest.test',
  ])
}

/** As some providers do while the disk is full: later sessions may write again, those that were there may not. */
async function forbidWriting(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const bed = await openBed(t, cluster, like)
  const end = `select pg_terminate_backend(pid) from pg_stat_activity where ${OURS} and datname = '${bed.database}'`
  await acceptWhile(t, cluster, bed, async () => {
    await cluster.query(`alter database ${bed.database} set default_transaction_read_only = on`)
    await cluster.query(end)
    await until('it is away', () => bed.store.problem() !== null)
    await cluster.query(`alter database ${bed.database} reset default_transaction_read_only`)
    await until('it is there again', () => bed.store.problem() === null)
    await cluster.query('alter system set default_transaction_read_only = on')
    await cluster.query('select pg_reload_conf()')
    await until('it is away, with the sessions that it had', () => bed.store.problem() !== null)
    await cluster.query('alter system reset default_transaction_read_only')
    await cluster.query('select pg_reload_conf()')
    await until('it is there again', () => bed.store.problem() === null)
  })
}

/** Milliseconds until `store` says that it is away. */
async function timeUntilAway({ store }: Bed): Promise<number> {
  const startedAt = performance.now()
  await until('it is away', () => store.problem() !== null)
  return performance.now() - startedAt
}

async function refusesAtOnce(t: Test, bed: Bed): Promise<void> {
  const startedAt = performance.now()
  t.notOk(await tryToAccept(t, bed, 'away@dest.test'), 'it refuses')
  await bed.store.tick()
  t.ok(performance.now() - startedAt < 500, 'it refuses at once, and the watchdog is answered')
}

async function hang(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const bed = await openBed(t, cluster, like)
  const sessions = `select pid from pg_stat_activity where ${OURS} and datname = '${bed.database}'`
  const signal = (pids: number[], name: NodeJS.Signals): void => pids.forEach((pid) => process.kill(pid, name))
  const result = await acceptWhile(t, cluster, bed, async () => {
    await sleep(200)
    const pids = (await cluster.query(sessions)).map(({ pid }) => Number(pid))
    signal(pids, 'SIGSTOP')
    try {
      const milliseconds = await timeUntilAway(bed)
      t.ok(milliseconds < 6_000, `away after ${Math.round(milliseconds)} ms`)
      await refusesAtOnce(t, bed)
      // Longer than a connection is waited for, so that it is lost.
      await sleep(15_000)
    } finally {
      signal(pids, 'SIGCONT')
    }
    await until('it is there again', () => bed.store.problem() === null)
  })
  t.comment(JSON.stringify(result))
  const figures = await bed.metrics.text()
  t.match(figures, /^sternpost_store_absences_total 1$/m)
  t.match(figures, /^sternpost_store_answers 1$/m)
}

async function swallowConnection(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  let fate: CommitFate = 'pass'
  const bed = await openBed(t, cluster, like, {
    fateOf() {
      const next = fate
      fate = 'pass'
      return next
    },
  })
  await acceptWhile(t, cluster, bed, async () => {
    // The session lives on at the server, with the lock of the database.
    fate = 'swallow'
    await timeUntilAway(bed)
    await refusesAtOnce(t, bed)
    await until('it is there again', () => bed.store.problem() === null)
  })
}

async function commitSlowly(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const bed = await openBed(t, cluster, like, { delay: 1_000 })
  const { refused } = await acceptWhile(t, cluster, bed, () => sleep(IS_FULL ? 30_000 : 3_000))
  t.equal(refused, 0, 'slow is not away')
}

async function fillDisk(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const disk = mountSmallDisk(48 * MIB)
  if (disk === undefined) return void t.pass('left out', { skip: 'a small disk cannot be mounted here' })
  t.teardown(() => disk.remove())
  const folder = join(disk.folder, 'tables')
  mkdirSync(folder)
  const { uid, gid } = statSync(cluster.folder)
  chownSync(folder, uid, gid)
  await cluster.query(`create tablespace small location '${folder}'`)
  const bed = await openBed(t, cluster, like, { tablespace: 'small' })
  const result = await acceptWhile(t, cluster, bed, async () => {
    disk.fill(0)
    const before = bed.refused.length
    const startedAt = performance.now()
    await until('it refuses', () => bed.refused.length > before)
    t.equal(bed.store.problem(), null, 'the server answers: the disk is full, not away')
    await until('the store knows why', () => /No space left/.test(bed.store.refusal() ?? ''))
    t.comment(`refused after ${Math.round(performance.now() - startedAt)} ms`)
    disk.free()
  })
  t.comment(JSON.stringify(result))
}

async function killServer(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const bed = await openBed(t, cluster, like)
  const result = await acceptWhile(t, cluster, bed, async () => {
    for (let times = 0; times < (IS_FULL ? 50 : 2); times += 1) {
      await cluster.kill()
      const milliseconds = await timeUntilAway(bed)
      t.ok(milliseconds < 2_000, `away after ${Math.round(milliseconds)} ms`)
      await refusesAtOnce(t, bed)
      await cluster.start()
      const backAt = performance.now()
      await until('it accepts again', () => bed.store.problem() === null)
      t.ok(performance.now() - backAt < 5_000, `again after ${Math.round(performance.now() - backAt)} ms`)
      await sleep(200)
    }
  })
  t.comment(JSON.stringify(result))
  await cluster.kill()
  const startedAt = performance.now()
  await bed.store.close()
  t.ok(performance.now() - startedAt < 5_000, 'a stop does not wait for a server that is down')
  await cluster.start()
}

async function changeDatabase(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const bed = await openBed(t, cluster, like)
  t.ok(await tryToAccept(t, bed, 'first@dest.test'))
  await cluster.query('update last_commits set number = number - 1', bed.database)
  t.ok(
    await tryToAccept(t, bed, 'second@dest.test'),
    'a connection that is held is one of a database that is as it was',
  )
  await cluster.query('update last_commits set number = number - 1', bed.database)
  bed.proxy.cutAll()
  // It is seen by who asks, once there is a connection again.
  await until('the store has died', async () => {
    t.notOk(await tryToAccept(t, bed, 'third@dest.test'))
    return bed.deaths.length > 0
  })
  t.same((await storedRecipients(cluster, bed.database)).toSorted(), ['first@dest.test', 'second@dest.test'])
}

async function startInVain(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const start = (url: string) => openTestStore(postgresLocation(url)).then(({ store }) => store.close())
  const refused = async (url: string, exitCode: number, message: RegExp): Promise<void> => {
    await t.rejects(start(url), { exitCode, message })
  }
  const { tryAgain, configuration } = EXIT
  const bed = await openBed(t, cluster, like)
  await refused(cluster.url(bed.database), tryAgain, /another Sternpost works with this database; stop it first/)
  await refused(cluster.url(bed.database, 1), tryAgain, /ECONNREFUSED/)
  await refused(cluster.url('no_such'), configuration, /database "no_such" does not exist/)
  const as = (user: string, database: string): string => cluster.url(database).replace('postgres@', `${user}@`)
  await refused(as('nobody', bed.database), configuration, /role "nobody" does not exist/)
  await cluster.query('create role weak login; create role app login')
  const empty = await cluster.createDatabase()
  await refused(as('weak', empty), configuration, /permission denied/)
  await cluster.query(`alter database ${empty} owner to app; alter role app connection limit 1`)
  await refused(as('app', empty), tryAgain, /too many connections/)
  await cluster.query('alter role app connection limit -1')
  await start(as('app', empty))
  await start(as('app', empty))
  await cluster.query(`create role "${userInfo().username}" superuser login`)
  process.env['USER'] = 'of-another'
  await start(cluster.url(empty).replace('postgres@', ''))
}

async function migrateBehindDump(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const database = await cluster.createDatabase(like)
  const dump = new pg.Client({ connectionString: cluster.url(database) })
  await dump.connect()
  await dump.query('update schema_version set version = 3')
  await dump.query('alter table certificates drop column order_proof')
  await dump.query('begin')
  await dump.query('lock table content_parts in access share mode')
  const start = () => openTestStore(postgresLocation(cluster.url(database)))
  await t.rejects(start(), {
    exitCode: EXIT.tryAgain,
    message: /0004-compressed-bodies.sql needs a table that another/,
  })
  await dump.end()
  const { store } = await start()
  await store.close()
}

async function speakGerman(t: Test): Promise<void> {
  const { cluster, like } = await startWithTables(t, { language: 'de' })
  const said = await cluster.query('select 1 / 0').catch(({ severity }: { severity: string }) => severity)
  if (said !== 'FEHLER') return void t.pass('left out', { skip: 'the German texts of PostgreSQL are not installed' })
  await t.test('what the server refuses', (t) => refuseStatements(t, cluster, like))
  await t.test('sessions that others end, under load', (t) => endSessions(t, cluster, like))
  await t.test('a node that was declared dead', async (t) => {
    const bed = await openBed(t, cluster, like)
    await cluster.query(`update nodes set state = 'dead' where node_id = '${NODE}'`, bed.database)
    t.notOk(await tryToAccept(t, bed, 'late@dest.test'))
    await until('the store has died', () => bed.deaths.length > 0)
  })
  await t.test('a start without a right', async (t) => {
    const empty = await cluster.createDatabase()
    await cluster.query('create role weak login')
    const url = cluster.url(empty).replace('postgres@', 'weak@')
    await t.rejects(openTestStore(postgresLocation(url)), { exitCode: EXIT.configuration, message: /Schema public/ })
  })
}
