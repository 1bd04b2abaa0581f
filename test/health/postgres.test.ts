/**
 * What `doctor` says of a server of PostgreSQL, and whom it is spoken to with: TLS as `sslmode` asks for it, and no pooler
 * in between.
 */
import { spawn } from 'node:child_process'
import { chownSync, existsSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import t from 'tap'
import { readDatabaseUrl } from '../../src/config/settings/database-url.ts'
import { judgePostgres, postgresFindings } from '../../src/health/checks/check-postgres.ts'
import { checkOf } from '../../src/health/checks/check.ts'
import { postgresFacts, type PostgresFacts } from '../../src/store/open/server-facts.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { freePort } from '../support/serve-process.ts'
import { createTestAuthority } from '../support/test-authority.ts'
import { until } from '../support/until.ts'

const POOLER = '/usr/sbin/pgbouncer'
const skipWithoutPooler = existsSync(POOLER) ? false : 'Debian package pgbouncer is not installed'
const VERDICTS = checkOf('database', 'Everything is in it.')
const WELL: PostgresFacts = {
  version: 150_018,
  versionText: '15.18',
  schema: 6,
  knownSchema: 6,
  isStandby: false,
  isReadOnly: false,
  unsafe: [],
  standbys: 0,
  synchronousStandbyNames: '',
  hasAutovacuum: true,
  tables: [{ table: 'messages', liveRows: 1_000_000, deadRows: 900_000 }],
  oldestSnapshotSeconds: 3,
  seesOthers: true,
  blockers: [{ process: 7, name: 'psql', seconds: 1 }],
  connections: 12,
  mostConnections: 97,
  aheadMilliseconds: -1_900,
  tls: 'TLSv1.3',
  isHere: false,
}
const URL_OF_IT = 'postgres://db/mail?sslmode=verify-full'

const FAULTS: [changes: Partial<PostgresFacts>, result: string, seen: RegExp][] = [
  [{ version: 140_010, versionText: '14.10' }, 'fail', /14.10 is too old/],
  [{ schema: 7 }, 'warn', /its schema is 7, this program knows 6/],
  [{ isStandby: true }, 'fail', /is a standby/],
  [{ isReadOnly: true }, 'fail', /default_transaction_read_only is on/],
  [{ unsafe: ['fsync'] }, 'fail', /fsync is off: a power cut loses mail/],
  [{ standbys: 2 }, 'fail', /no commit waits for any of its 2 standbys/],
  [{ hasAutovacuum: false }, 'warn', /autovacuum is off/],
  [{ tables: [{ table: 'messages', liveRows: 5, deadRows: 100_001 }] }, 'warn', /messages has 100001 dead rows/],
  [{ oldestSnapshotSeconds: 1_801 }, 'warn', /open for 30 min/],
  [{ blockers: [{ process: 7, name: 'psql', seconds: 4 }] }, 'fail', /has waited 4 s for a lock of session 7 \(psql\)/],
  [{ seesOthers: false }, 'warn', /cannot be seen by our role/],
  [{ connections: 90 }, 'warn', /90 of 97 connections are used/],
  [{ aheadMilliseconds: 2_100 }, 'warn', /2.1 s ahead of ours/],
  [{ tls: null }, 'warn', /in plain text/],
]

t.test('each fault of the server is a finding with its fix', async (t) => {
  t.match(judgePostgres(WELL, URL_OF_IT, VERDICTS), [{ result: 'ok', seen: /15.18, TLSv1.3, 12 of 97/ }])
  t.equal(judgePostgres({ ...WELL, standbys: 2, synchronousStandbyNames: 'ANY 1 (*)' }, URL_OF_IT, VERDICTS).length, 1)
  t.equal(judgePostgres({ ...WELL, tls: null, isHere: true }, URL_OF_IT, VERDICTS).length, 1)
  for (const [changes, result, seen] of FAULTS) {
    const [, finding, ...others] = judgePostgres({ ...WELL, ...changes }, URL_OF_IT, VERDICTS)
    t.match(finding, { result, seen, fix: /\w/ }, seen.source)
    t.strictSame(others, [])
  }
  const [, unverified] = judgePostgres(WELL, 'postgres://db/mail?sslmode=require', VERDICTS)
  t.match(unverified, { result: 'warn', seen: /certificate is not looked at/, fix: /verify-full/ })
  t.match(await postgresFindings('', VERDICTS), [{ result: 'skip' }])
})

t.test('a real server', { skip: skipWithoutPostgres }, async (t) => {
  const cluster = await startPostgres(t)
  const database = await cluster.createDatabase()
  const [root, other] = [createTestAuthority(), createTestAuthority('Another Root')]
  t.teardown(() => void [root.close(), other.close()])
  const { key, chain } = root.issue(['localhost'])
  const [{ folder } = {}] = (await cluster.query(`select current_setting('data_directory') as folder`)) as {
    folder: string
  }[]
  const owner = statSync(folder ?? '')
  for (const [name, text] of [['server.key', key] as const, ['server.crt', chain] as const]) {
    writeFileSync(join(folder ?? '', name), text, { mode: 0o600 })
    chownSync(join(folder ?? '', name), owner.uid, owner.gid)
  }
  const plain = cluster.url(database)

  t.test('is looked at', async (t) => {
    await cluster.query('create table messages ()', database)
    const facts = await postgresFacts(plain)
    t.same(facts.tables, [{ table: 'messages', liveRows: 0, deadRows: 0 }])
    t.match(facts, { versionText: /^\d+/, hasAutovacuum: Boolean, synchronousStandbyNames: '' })
    t.equal(facts.schema, 0, 'there are no tables of ours')
    await cluster.query('create table schema_version as select 99 as version', database)
    t.match(await postgresFacts(plain), { schema: 99, knownSchema: Number })
    t.match(facts, { mostConnections: Number, oldestSnapshotSeconds: Number, connections: Number })
    t.match(facts, {
      unsafe: ['fsync'],
      isStandby: false,
      isReadOnly: false,
      standbys: 0,
      tls: null,
      isHere: true,
      seesOthers: true,
    })
    t.ok(facts.version >= 150_000 && facts.connections >= 1 && Math.abs(facts.aheadMilliseconds) < 1_000)
    t.same(facts.blockers, [])
    const [holder, waiter] = [
      new pg.Client(plain),
      new pg.Client({ connectionString: plain, application_name: 'sternpost 1' }),
    ]
    await Promise.all([holder.connect(), waiter.connect()])
    await holder.query(`set application_name = 'vacuumdb'; begin; lock table messages`)
    const waiting = waiter.query('select from messages')
    await until('it is seen', async () => (await postgresFacts(plain)).blockers[0]?.name === 'vacuumdb')
    await holder.query('rollback')
    await waiting
    await Promise.all([holder.end(), waiter.end()])
    await cluster.query('create role little login')
    const little = await postgresFacts(plain.replace('postgres@', 'little@'))
    t.equal(little.seesOthers, false, 'a role without rights is told so')
  })

  t.test('has a standby that no commit waits for', async (t) => {
    const [{ setting } = {}] = (await cluster.query(`select setting from pg_config where name = 'BINDIR'`)) as {
      setting: string
    }[]
    const words = ['-h', '127.0.0.1', '-p', String(cluster.port), '-U', 'postgres', '-D', t.testdir({})]
    const standby = spawn(join(setting ?? '', 'pg_receivewal'), words, { stdio: 'ignore' })
    t.teardown(() => standby.kill('SIGKILL'))
    const isToldOf = async (): Promise<boolean> =>
      (await postgresFindings(plain, VERDICTS)).some(({ seen }) =>
        /no commit waits for any of its 1 standbys/.test(seen),
      )
    await until('the failure', isToldOf)
    await cluster.query(`alter system set synchronous_standby_names = 'ANY 1 (*)'`)
    await cluster.query('select pg_reload_conf()')
    await until('it is waited for', async () => !(await isToldOf()))
    await cluster.query('alter system reset synchronous_standby_names')
    await cluster.query('select pg_reload_conf()')
  })

  t.test('speaks TLS as sslmode asks for it', async (t) => {
    await cluster.query('alter system set ssl = on')
    await cluster.query('select pg_reload_conf()')
    const ask = (host: string, parameters: string): Promise<string | null> => {
      const reading = readDatabaseUrl(`${plain.replace('127.0.0.1', host)}?${parameters}`)
      if (!reading.ok) throw new Error(reading.problem)
      return postgresFacts(reading.value).then(({ tls }) => tls)
    }
    await until('the server speaks TLS', () => ask('127.0.0.1', 'sslmode=require').catch(() => null))
    const right = `sslrootcert=${root.file}`
    t.equal(await ask('127.0.0.1', 'sslmode=disable'), null)
    t.equal(await ask('127.0.0.1', ''), null, 'this machine, by default')
    t.match(await ask('127.0.0.1', 'sslmode=require'), 'TLSv1.3')
    t.match(await ask('127.0.0.1', `sslmode=verify-ca&${right}`), 'TLSv1.3', 'whatever its name')
    t.match(await ask('localhost', `sslmode=verify-full&${right}`), 'TLSv1.3')
    for (const wrong of [`verify-ca&sslrootcert=${other.file}`, `require&sslrootcert=${other.file}`, 'verify-full']) {
      await t.rejects(ask('localhost', `sslmode=${wrong}`), /certificate/, wrong)
    }
    await t.rejects(ask('127.0.0.1', `sslmode=verify-full&${right}`), /does not match/, 'another name')
  })

  t.test('does not speak through a pooler', { skip: skipWithoutPooler }, async (t) => {
    const port = await freePort()
    const settings = join(t.testdir({}), 'pgbouncer.ini')
    writeFileSync(
      settings,
      `[databases]\n* = host=127.0.0.1 port=${cluster.port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = ${port}\n` +
        'unix_socket_dir =\nauth_type = any\npool_mode = transaction\nserver_tls_sslmode = disable\n',
    )
    t.teardown(() => pooler.kill('SIGKILL'))
    const pooler = spawn(POOLER, [settings], { uid: owner.uid, gid: owner.gid, stdio: 'ignore' })
    let said = ''
    await until('the pooler is refused', async () => {
      const [finding] = await postgresFindings(`postgres://postgres@127.0.0.1:${port}/${database}`, VERDICTS)
      said = finding?.seen ?? ''
      return !said.includes('ECONNREFUSED')
    })
    t.match(said, /a pooler stands before the server/)
  })
})
