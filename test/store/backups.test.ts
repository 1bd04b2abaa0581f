/**
 * Backups beside a store that works: what is kept and removed, what a failure leaves, and that damage is found before
 * anything is touched.
 */
import { execFileSync } from 'node:child_process'
import {
  closeSync,
  copyFileSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { DAY, HOUR } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { utcDay } from '../../src/base/utc-day.ts'
import { createBackups } from '../../src/store/open/backups.ts'
import { databaseParts, restoreBackup, verifyBackup, verifyDatabase } from '../../src/store/open/offline.ts'
import type { SuppressionRecord } from '../../src/store/records/suppression-records.ts'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'
import { SCHEMA_VERSION } from '../../src/store/sqlite/engine/migrate.ts'
import { manualClock } from '../support/manual-clock.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { acceptOne, apiKey, claim, lookUp, NOW, webhookEndpoint, suppressionRecord } from './store-samples.ts'
import { ask, ipChange } from './warmup-samples.ts'

async function scene(t: Test, keep = 3) {
  const config = { 'sternpost.yaml': 'version: 1\n', 'master.key': 'c2VjcmV0', 'pools.d': { '20-a.yaml': '' } }
  const folder = t.testdir({ config })
  const location = locationIn(folder)
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const clock = manualClock(NOW)
  const lines: Record<string, unknown>[] = []
  const metrics = createMetrics()
  const dir = join(folder, 'backups')
  const disk = { keptFreeBytes: 0 }
  const backups = createBackups({
    databaseFile: databasePath(location),
    configurationFolder: join(folder, 'config'),
    clock,
    metrics,
    settings: () => ({ dir, keep, keptFreeBytes: disk.keptFreeBytes }),
    logger: createLogger({ level: 'info', write: (line) => void lines.push(JSON.parse(line)) }),
  })
  return { folder, location, store, clock, lines, metrics, dir, backups, disk }
}

t.test("the newest few are kept; what is written elsewhere is nobody's to remove", async (t) => {
  const { store, backups, clock, dir, folder, metrics } = await scene(t, 2)
  await acceptOne(store)
  t.same(backups.list(), [])
  writeFileSync(join(folder, 'note'), '')
  for (let night = 0; night < 3; night += 1) {
    await backups.write(null)
    await clock.advance(DAY)
  }
  const elsewhere = await backups.write(join(folder, 'elsewhere'))
  t.same(
    readdirSync(dir).sort(),
    [22, 23].map((day) => `sternpost-202611${day}T120000Z-${SCHEMA_VERSION}.tar`),
  )
  t.match(backups.list(), [{ madeAt: NOW + 2 * DAY }, { madeAt: NOW + DAY }])
  t.match(elsewhere, { schema: SCHEMA_VERSION, madeAt: NOW + 3 * DAY, manifest: { counts: { undelivered: 1 } } })
  const text = await metrics.text()
  t.match(text, new RegExp(`backup_last_success_timestamp_seconds ${(NOW + 2 * DAY) / 1_000}\n`))
  const names = execFileSync('tar', ['-tf', elsewhere.path], { encoding: 'utf8' }).trim().split('\n')
  t.same(names, ['manifest.json', 'sternpost.db', 'config/pools.d/20-a.yaml', 'config/sternpost.yaml'])
  t.notOk(readFileSync(elsewhere.path).includes('c2VjcmV0'))
})

t.test('drop-ins behind a link are in it; what cannot be read is told; root unpacks it for any user', async (t) => {
  const { backups, folder, lines } = await scene(t)
  const config = join(folder, 'config')
  mkdirSync(join(folder, 'linked'))
  writeFileSync(join(folder, 'linked', '10-b.yaml'), '', { mode: 0o600 })
  symlinkSync('../linked', join(config, 'sternpost.d'))
  symlinkSync('nowhere', join(config, 'warmup.yaml'))
  symlinkSync('bounces.d', join(config, 'bounces.d'))
  mkdirSync(join(config, 'old.yaml'))
  const { path, manifest } = await backups.write(null)
  const listed = execFileSync('tar', ['-tvf', path], { encoding: 'utf8' }).trim().split('\n')
  const names = ['pools.d/20-a.yaml', 'sternpost.d/10-b.yaml', 'sternpost.yaml']
  t.match(
    listed.slice(2),
    names.map((name) => new RegExp(`^-rw-r--r-- .* config/${name}$`)),
  )
  t.equal(listed.length, 2 + names.length)
  t.match(manifest.left_out.slice(-3).toSorted(), [
    /^config\/bounces\.d, which could not be copied: ELOOP/,
    /^config\/old\.yaml, which could not be copied: .*EISDIR/,
    /^config\/warmup\.yaml, which could not be copied: ENOENT/,
  ])
  t.match(lines.at(-1), { level: 'warn', msg: 'files of the configuration are not in the backup' })
})

t.test(
  'where variables say everything there is no folder of the configuration, and a backup all the same',
  async (t) => {
    const { backups, folder, lines } = await scene(t)
    rmSync(join(folder, 'config'), { recursive: true })
    const { manifest } = await backups.write(null)
    t.match(manifest.left_out.at(-1), /variables of the environment say it/)
    t.same(Object.keys(manifest.files), ['sternpost.db'])
    t.match(lines.at(-1), { msg: 'backup written' }, 'which is no warning')
  },
)

t.test('names of a clock that ran ahead, and one that cannot be read, keep no new one from its place', async (t) => {
  const { backups, clock, dir } = await scene(t, 2)
  mkdirSync(dir)
  for (const year of [2098, 2099]) writeFileSync(join(dir, `sternpost-${year}0101T000000Z-20.tar`), '')
  symlinkSync('nowhere', join(dir, 'sternpost-20250101T000000Z-20.tar'))
  const first = await backups.write(null)
  t.same(backups.list()[0]?.path, first.path)
  t.match(readdirSync(dir).sort(), [/^sternpost-2025/, /^sternpost-20261121/, /^sternpost-2099/])
  await clock.advance(DAY)
  await backups.write(null)
  t.match(readdirSync(dir).sort(), [/^sternpost-2025/, /^sternpost-20261121/, /^sternpost-20261122/])
})

t.test('one that holds sealed keys of ACME is marked, in its manifest and in the listing', async (t) => {
  const { store, backups, clock, dir, folder } = await scene(t)
  await backups.write(null)
  const sealedKey = Buffer.from('sealed')
  await store.saveAcmeAccount({ directory: 'https://ca.test/dir', sealedKey, url: null })
  const order = { directory: 'https://ca.test/dir', url: null, sealedKey, proof: null }
  const issued = { chain: 'chain', sealedKey, renewAt: 1, directory: null }
  const state = { failures: 0, nextTryAt: 0, problem: null }
  await store.saveCertificate({ name: 'a.test', names: ['a.test'], issued, order, ...state })
  await clock.advance(HOUR)
  const { path, manifest } = await backups.write(null)
  t.equal(manifest.sealed_acme_keys, 3)
  // Written by a version before, and by somebody else.
  for (const [hour, content] of ['', JSON.stringify({ format: 1 })].entries()) {
    writeFileSync(join(dir, `sternpost-20261120T0${hour}0000Z-20.tar`), content)
  }
  t.same(
    backups.list().map(({ sealedAcmeKeys }) => sealedAcmeKeys),
    [3, 0, null, null],
  )
  mkdirSync(join(folder, 'unpacked'))
  t.equal(verifyBackup(path, join(folder, 'unpacked'), () => {}).manifest?.sealed_acme_keys, 3)
})

t.test('one at a time; one that fails removes nothing, and says why', async (t) => {
  const { backups, clock, dir, folder, lines, disk } = await scene(t, 1)
  const first = backups.write(null)
  await t.rejects(backups.write(null), { name: 'BackupError' })
  t.match(backups.progress(), { stage: 'copying' })
  await first
  t.equal(backups.progress(), null)
  await clock.advance(HOUR)
  const inTheWay = join(folder, 'file')
  writeFileSync(inTheWay, '')
  await t.rejects(backups.write(join(inTheWay, 'below')), { message: /below is below a file, not a folder. Fix: / })
  symlinkSync('nowhere', join(folder, 'link'))
  const advice = /^nothing may be written into .* \(ENOENT.* Fix: .*"ReadWritePaths=-/
  await t.rejects(backups.write(join(folder, 'link', 'below')), { message: advice })
  t.equal(readdirSync(dir).length, 1)
  t.match(lines.at(-1), { level: 'error', msg: 'no backup was written' })
  disk.keptFreeBytes = 2 ** 60
  await t.rejects(
    backups.write(null),
    { message: /^\d+ bytes are needed in .*, \d+ are free$/ },
    'the server keeps the space it needs to take mail',
  )
  disk.keptFreeBytes = 0
  t.match(readdirSync(dir), [/^sternpost-20261121T120000Z/])
  const left = join(dir, '.backup-unfinished')
  mkdirSync(left)
  writeFileSync(join(left, 'archive'), 'of a process that was killed')
  await backups.write(null)
  t.match(readdirSync(dir), [/^sternpost-20261121T130000Z/])
})

t.test('a stop gives up the one under way, which is no error', async (t) => {
  const { store, backups, lines } = await scene(t)
  await acceptOne(store)
  const written = backups.write(null)
  await Promise.all([t.rejects(written), backups.stop()])
  t.match(lines, [{ level: 'warn', msg: 'no backup was written', error: 'the server stops' }])
})

t.test('damage anywhere in it is found, and a restore of it touches nothing', async (t) => {
  const { store, backups, location, folder } = await scene(t)
  await acceptOne(store)
  const { path } = await backups.write(null)
  await store.close()
  const work = (name: string): string => {
    mkdirSync(join(folder, name))
    return join(folder, name)
  }
  t.match(
    verifyBackup(path, work('good'), () => {}),
    { schema: SCHEMA_VERSION, mark: NOW },
  )
  const before = readdirSync(location.folder).sort()
  const size = statSync(path).size
  for (const [index, place] of [0.3, 0.6].entries()) {
    const bad = join(folder, `bad-${index}.tar`)
    copyFileSync(path, bad)
    const file = openSync(bad, 'r+')
    writeSync(file, Buffer.from('damage'), 0, 6, Math.floor(size * place))
    closeSync(file)
    const damage = { message: /sternpost\.db in it is not what was written/ }
    t.throws(() => verifyBackup(bad, work(`work-${index}`), () => {}), damage)
    t.throws(() => restoreBackup({ file: bad, location, now: NOW, keepsAllowance: false, onStage() {} }), damage)
  }
  const cut = join(folder, 'cut.tar')
  writeFileSync(cut, readFileSync(path).subarray(0, size / 2))
  t.throws(() => verifyBackup(cut, work('cut'), () => {}), { message: /tar failed: .*Unexpected EOF/ })
  const linked = work('linked')
  writeFileSync(join(linked, 'elsewhere'), 'as it is')
  symlinkSync('elsewhere', join(linked, 'sternpost.db'))
  writeFileSync(
    join(linked, 'manifest.json'),
    JSON.stringify({
      format: 1,
      schema: SCHEMA_VERSION,
      mark: '',
      counts: {},
      files: { 'sternpost.db': { bytes: 8, sha256: '' } },
    }),
  )
  execFileSync('tar', ['-cf', join(folder, 'linked.tar'), '-C', linked, 'manifest.json', 'sternpost.db'])
  t.throws(() => verifyBackup(join(folder, 'linked.tar'), work('unlinked'), () => {}), { message: /in it is no file/ })
  writeFileSync(join(folder, 'letter.tar'), 'Dear Sir or Madam')
  t.throws(() => verifyBackup(join(folder, 'letter.tar'), work('letter'), () => {}), { name: 'BackupError' })
  t.throws(() => verifyBackup(folder, work('folder'), () => {}), { name: 'BackupError', message: /is a folder; name/ })
  t.throws(() => verifyBackup(join(folder, 'none.tar'), work('none'), () => {}), { message: /there is no such file/ })
  t.same(readdirSync(location.folder).sort(), before)
  t.same(verifyDatabase(location).problems, [])
})

t.test("restored mail is held with the lifetime it had, and today's warmup allowance counts as used", async (t) => {
  const { store, backups, location } = await scene(t)
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await store.addWebhookEndpoint(webhookEndpoint())
  const [waiting, sending] = [await acceptOne(store), await acceptOne(store)]
  await claim(store, epoch, NOW, 1)
  const scheduled = await acceptOne(store, { sendAt: NOW + 3 * DAY }, { expiresAt: NOW + 72 * HOUR })
  const now = NOW + 2 * DAY
  const day = utcDay(now)
  const database = new Sqlite(databasePath(location))
  database.exec(`
    update messages set waiting_for = 'held' where state = 'waiting' and seq = 3;
    insert into egress_ips (ip, state, actor, since, days_held, days_at_target, paused_at, version)
      values ('127.0.0.11', 'warming', 'cli', 0, 0, 0, '[]', 1), ('127.0.0.12', 'warmed', 'cli', 0, 0, 0, '[]', 1),
        ('127.0.0.13', 'warming', 'cli', 0, 0, 0, '[]', 1);
    insert into egress_ips (ip, state, former_state, actor, since, days_held, days_at_target, paused_at, version)
      values ('127.0.0.14', 'suspended', 'warming', 'cli', 0, 0, 0, '[]', 1);
    insert into warmup_days (ip, day, isp, cap, granted, arrival_at, interval_milliseconds)
      values ('127.0.0.11', '${day}', '*', 50, 20, 0, 1), ('127.0.0.11', '${day}', 'gmail', 25, 5, 0, 1);
    insert into people (id, name, role, created_at) values (x'01', 'ada', 'owner', 0);
    insert into login_links (hash, person_id, expires_at) values (x'01', x'01', ${now + DAY});
    insert into sessions (id, hash, person_id, address, user_agent, created_at, used_at, expires_at)
      values (zeroblob(16), x'01', x'01', '', '', 0, ${now}, ${now + DAY})`)
  t.equal((await store.listSessions()).length, 1)
  database.close()
  const { path } = await backups.write(null)
  await acceptOne(store)
  await store.close()
  // As a server leaves it that was killed.
  writeFileSync(`${databasePath(location)}-wal`, 'log')
  mkdirSync(join(location.folder, '.restore-killed'))
  const summary = restoreBackup({ file: path, location, now, keepsAllowance: false, onStage() {} })
  t.match(summary, {
    held: 3,
    heldBefore: 1,
    warmingIps: 3,
    mark: NOW,
    schema: SCHEMA_VERSION,
    counts: { messages: 3, undelivered: 3, webhook_endpoints: 1 },
  })
  t.same(readdirSync(summary.movedTo ?? '').sort(), ['sternpost.db', 'sternpost.db-wal'], 'with its log')
  t.notOk(
    readdirSync(location.folder).some((name) => /^\.restore-|-wal$/.test(name)),
    'and nothing is left here',
  )
  const { store: restored } = await openTestStore(location)
  t.teardown(() => restored.close())
  const { epoch: next, newestAt: _, ...found } = await restored.beginEpoch(now, now)
  t.same(found, { recovered: 0, uncertain: 0 })
  t.same(await claim(restored, next, now + DAY), [], 'nothing is due')
  t.same(await restored.listSessions(), [], 'who was logged in logs in again')
  t.same(new Sqlite(databasePath(location)).prepare('select * from login_links').all(), [])
  for (const id of [waiting, sending]) {
    t.match(await lookUp(restored, id, now), {
      state: 'queued',
      waitingFor: 'held',
      expiresAt: NOW + 72 * HOUR + 2 * DAY,
      isPossibleDuplicate: true,
    })
    t.same(await restored.cancelMessage(id, now), { kind: 'uncertain' }, 'nobody says that it was not sent')
  }
  t.match(await lookUp(restored, scheduled, now), { waitingFor: 'held', isPossibleDuplicate: false })
  const rows = (await restored.warmupDays('127.0.0.11', day)).map(({ isp, cap, granted }) => [isp, cap, granted])
  t.same(rows.sort(), [
    ['*', 50, 20],
    ['gmail', 25, 5],
  ])
  for (const ip of ['127.0.0.13', '127.0.0.14']) {
    t.match(await restored.warmupDays(ip, day), [{ isp: '*', cap: 0, granted: 0 }])
  }
  // As a start sets them, when the stage has become another one.
  const caps = { day, cap: 100, providerCaps: {}, defaultProviderCap: 50 }
  for (const record of await restored.ipRecords()) await restored.changeIp(ipChange(record, { audit: [], caps }))
  for (const ip of ['127.0.0.11', '127.0.0.13', '127.0.0.14']) {
    t.match(await restored.reserveAllowance(ask(now, 1, { ip })), [{ granted: 0, reason: 'warmup_day' }])
    t.match(await restored.reserveAllowance(ask(now + DAY, 1, { ip })), [{ granted: 1 }], 'until midnight')
  }
  t.same(await restored.warmupDays('127.0.0.12', day), [])
  const filter = { isHeld: true, acceptedBefore: NOW }
  const request = { action: { kind: 'drop' } as const, now, limit: 9, isDryRun: false }
  t.match(await restored.actOnQueue({ ...request, filter }), { messages: 0 })
  t.match(await restored.actOnQueue({ ...request, filter: { ...filter, acceptedBefore: NOW + 1 } }), { messages: 3 })

  await restored.close()
  const kept = restoreBackup({ file: path, location, now, keepsAllowance: true, onStage() {} })
  t.equal(kept.movedTo, `${summary.movedTo}-2`, 'of the same second')
  t.equal(kept.warmingIps, 0)
  const { store: third } = await openTestStore(location)
  t.teardown(() => third.close())
  t.match(await third.warmupDays('127.0.0.11', day), [
    { cap: 50, granted: 20 },
    { cap: 25, granted: 5 },
  ])
})

t.test('a restore keeps what came onto the suppression list since the backup, and what was revoked', async (t) => {
  const { store, backups, location } = await scene(t)
  const [leaked, revoked, kept] = [apiKey(), apiKey({ revokedAt: NOW }), apiKey()]
  for (const [index, key] of [leaked, revoked, kept].entries())
    await store.addApiKey(key, Buffer.alloc(32, index), null)
  const add = (email: string, changes: Partial<SuppressionRecord> = {}) =>
    store.addSuppression(suppressionRecord({ email, reason: 'hard_bounce', owners: ['a.com'], ...changes }))
  for (const email of ['same@x.org', 'joined@x.org', 'removed@x.org']) await add(email)
  const { path } = await backups.write(null)
  await add('bounced@x.org', { messageId: newIdentifier('msg', NOW) })
  await add('bounced@x.org', { reason: 'manual', owners: [] })
  await add('dead@x.org', { reason: 'manual', owners: [] })
  await add('dead@x.org', { messageId: newIdentifier('msg', NOW) })
  await add('imported@x.org', { reason: 'manual', owners: [] })
  await add('bounced-elsewhere@x.org', { owners: [] })
  await add('by-customer@x.org', { reason: 'manual', domain: 'a.com' })
  await add('same@x.org', { reason: 'manual', owners: [] })
  await add('preferences@x.org', { reason: 'unsubscribe', domain: 'a.com' })
  await add(`erased:${'0f'.repeat(32)}`, { reason: 'manual', owners: [] })
  await add('new@x.org', { reason: 'unsubscribe', scope: 'news' })
  await add('joined@x.org', { reason: 'complaint', owners: ['b.com'], createdAt: NOW + 1 })
  await store.removeSuppressions({ email: 'removed@x.org', scope: null, isTest: false, domains: [] })
  await store.revokeApiKey(leaked.id, NOW + 1, false)
  await store.close()
  const options = { file: path, location, now: NOW, keepsAllowance: true, onStage() {} }
  t.match(restoreBackup(options), { newerSuppressions: 6, newerRevocations: 1, counts: { suppressions: 8 } })
  const { store: restored } = await openTestStore(location)
  const found = await Promise.all([leaked, revoked, kept].map(({ id }) => restored.findApiKeyById(id)))
  t.same(
    found.map((key) => key?.revokedAt),
    [NOW + 1, NOW, null],
  )
  const every = { domains: [], email: null, reason: null, scope: null, since: null, limit: 9, after: null }
  const { suppressions } = await restored.listSuppressions({ ...every, isTest: false })
  t.match(suppressions.map(({ email, reason, owners }) => [email, reason, owners.join()]).sort(), [
    ['bounced@x.org', 'hard_bounce', 'a.com'],
    ['dead@x.org', 'hard_bounce', 'a.com'],
    [/^erased:/, 'manual', ''],
    ['joined@x.org', 'complaint', 'a.com,b.com'],
    ['new@x.org', 'unsubscribe', 'a.com'],
    ['preferences@x.org', 'unsubscribe', 'a.com'],
    ['removed@x.org', 'hard_bounce', 'a.com'],
    ['same@x.org', 'hard_bounce', 'a.com'],
  ])
  await restored.close()
  const present = new Sqlite(databasePath(location))
  present.exec(`update suppressions set owners = 'a.com' where address = 'new@x.org'`)
  present.close()
  const notRead = { newerSuppressions: null, counts: { suppressions: 3 } }
  t.match(
    restoreBackup({ ...options, now: NOW + HOUR }),
    { ...notRead, newerRevocations: 1, presentSchema: SCHEMA_VERSION },
    'a damaged row',
  )
  writeFileSync(databasePath(location), 'no database')
  t.match(restoreBackup({ ...options, now: NOW + DAY }), { ...notRead, newerRevocations: null, presentSchema: null })
})

t.test('a database that a killed server left is restored with what stands in its log', async (t) => {
  const { store, location, folder } = await scene(t)
  await acceptOne(store)
  const left = join(folder, 'left')
  mkdirSync(left)
  for (const name of ['sternpost.db', 'sternpost.db-wal']) copyFileSync(join(location.folder, name), join(left, name))
  await store.close()
  // Where little is written, the log is the newer one by hours.
  utimesSync(join(left, 'sternpost.db'), NOW / 1_000 - 3_600, NOW / 1_000 - 3_600)
  utimesSync(join(left, 'sternpost.db-wal'), NOW / 1_000, NOW / 1_000)
  const options = { location, now: NOW, keepsAllowance: false, onStage() {} }
  t.match(restoreBackup({ ...options, file: join(left, 'sternpost.db') }), {
    held: 1,
    counts: { messages: 1 },
    mark: NOW,
  })
  t.same(verifyDatabase(location).problems, [])
})

t.test('a log whose database is gone goes aside, and is not played into what is restored', async (t) => {
  const { store, backups, location } = await scene(t)
  const before = await acceptOne(store)
  const { path } = await backups.write(null)
  const after = await acceptOne(store)
  const log = `${databasePath(location)}-wal`
  copyFileSync(log, `${log}.kept`)
  await store.close()
  rmSync(databasePath(location))
  renameSync(`${log}.kept`, log)
  t.same(databaseParts(location.folder), ['sternpost.db-wal'])
  const { movedTo } = restoreBackup({ file: path, location, now: NOW, keepsAllowance: false, onStage() {} })
  t.same(readdirSync(movedTo ?? ''), ['sternpost.db-wal'])
  const { store: restored } = await openTestStore(location)
  t.match(await lookUp(restored, before, NOW), { waitingFor: 'held' })
  t.equal(await lookUp(restored, after, NOW), null)
  await restored.close()
  t.same(verifyDatabase(location).problems, [])
})

t.test('a server that runs keeps its database', async (t) => {
  const { store, backups, location } = await scene(t)
  await acceptOne(store)
  const { path } = await backups.write(null)
  const options = { file: path, location, now: NOW, keepsAllowance: false, onStage() {} }
  t.throws(() => restoreBackup(options), { message: /another Sternpost is running/ })
  t.throws(() => verifyDatabase(location), { message: /another Sternpost is running/ })
  t.equal((await store.queueSummary(NOW)).waiting, 1)
})

t.test('invariants: what must not be is named', async (t) => {
  const { store, location } = await scene(t)
  await acceptOne(store)
  await store.close()
  t.same(verifyDatabase(location).problems, [])
  const database = new Sqlite(databasePath(location))
  database.exec(`update messages set final_at = 5; delete from content_parts; delete from events`)
  database.close()
  const { problems } = verifyDatabase(location)
  t.match(problems, [/final without the time/, /lost their bytes/, /no line of their acceptance/])
  t.equal(problems.length, 3)
})
