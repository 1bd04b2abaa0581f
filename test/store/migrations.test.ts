/**
 * A filled database of an earlier version is brought to the present one: nothing in it is lost, and it works on.
 */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import Sqlite, { type Database } from 'better-sqlite3'
import t from 'tap'
import { newIdentifier } from '../../src/base/identifier.ts'
import { openContentReader } from '../../src/store/open/open-store.ts'
import { databasePath, openDatabase, openReader } from '../../src/store/sqlite/engine/database.ts'
import { schemaVersion, SCHEMA_VERSION } from '../../src/store/sqlite/engine/migrate.ts'
import { storedIdentifier } from '../../src/store/verbs/tools/stored-identifier.ts'
import type { SqliteLocation } from '../../src/store/store-location.ts'
import { writeOldDatabase } from './old-databases.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import {
  claim,
  dkimKey,
  domainCheck,
  LIFETIME,
  lookUp,
  NOW,
  POOL,
  anything,
  suppressionRecord,
} from './store-samples.ts'

const CHECK = { purpose: 'spf', status: 'verified', found: ['v=spf1 -all'], error: null, hint: null, checkedAt: NOW }

const MIGRATIONS = new URL('../../src/store/sqlite/migrations/', import.meta.url)

/** An empty database as the program of this version made it. */
function createVersion(location: SqliteLocation, version: number): Database {
  mkdirSync(location.folder, { recursive: true })
  const database = new Sqlite(databasePath(location)).unsafeMode()
  for (const file of readdirSync(MIGRATIONS).sort().slice(0, version)) {
    database.exec(readFileSync(new URL(file, MIGRATIONS), 'utf8'))
  }
  database.pragma('journal_mode = wal')
  database.pragma(`user_version = ${version}`)
  return database
}

/** As the program of the first version left it: two domains, an endpoint, 30 waiting messages. */
function writeFirstVersion(location: SqliteLocation): string[] {
  const database = createVersion(location, 1)
  const addDomain = database.prepare('insert into domains values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)')
  addDomain.run(
    'newer.com',
    'pending',
    'ps9',
    'MIIN',
    Buffer.of(4, 5),
    'bounces.newer.com',
    null,
    NOW - 5,
    null,
    null,
    '[]',
  )
  addDomain.run(
    'zeta.com',
    'verified',
    'ps1',
    'MIIZ',
    Buffer.of(9, 8, 7),
    'rp.zeta.com',
    'bulk',
    NOW - 9,
    NOW - 7,
    NOW - 6,
    JSON.stringify([CHECK]),
  )
  database
    .prepare(
      `
      insert into webhook_endpoints (id, url, events, status, sealed_secret, created_at)
      values (?, ?, ?, ?, ?, ?)`,
    )
    .run(storedIdentifier('wh', newIdentifier('wh', NOW)), 'https://x.test/', '["*"]', 'enabled', Buffer.of(1), NOW)
  const ids = addOldMessages(database, 'zeta.com', 30)
  database.close()
  return ids
}

/** Waiting messages of one request as versions 1 and 2 wrote them; returns their identifiers. */
function addOldMessages(database: Database, domain: string, count: number): string[] {
  const { lastInsertRowid: pool } = database.prepare(`insert into pools (name) values ('${POOL}')`).run()
  const { lastInsertRowid: lane } = database
    .prepare(`insert into lanes (domain, stream) values (?, 'transactional')`)
    .run(domain)
  const { lastInsertRowid: content } = database
    .prepare(
      `
      insert into contents (from_name, from_address, subject, has_variables, html_bytes)
      values ('Acme', 'orders@acme.com', 'Order', 0, 6)`,
    )
    .run()
  database
    .prepare('insert into content_parts (part_key, bytes) values (?, ?)')
    .run(Number(content) * 4_096, Buffer.from('Grüß'))
  const addMessage = database.prepare(`
    insert into messages
      (id, state, pool_id, lane_id, content_id, recipient, recipient_domain, next_at, expires_at, created_at)
    values (?, 'waiting', ?, ?, ?, 'ada@example.com', 'example.com', ?, ?, ?)`)
  const addData = database.prepare('insert into message_data (message_seq, to_name, variables) values (?, ?, ?)')
  const addEvent = database.prepare(`insert into events (id, message_seq, kind, at) values (?, ?, 'email.accepted', ?)`)
  return Array.from({ length: count }, () => {
    const id = newIdentifier('msg', NOW)
    const { lastInsertRowid: key } = addMessage.run(
      storedIdentifier('msg', id),
      pool,
      lane,
      content,
      NOW,
      NOW + LIFETIME,
      NOW,
    )
    addData.run(key, 'Ada', '{"n":1}')
    addEvent.run(storedIdentifier('evt', newIdentifier('evt', NOW)), key, NOW)
    return id
  })
}

t.test('a filled database of version 1 keeps its domains, their keys and its mail', async (t) => {
  const location = locationIn(t.testdir({}))
  const ids = writeFirstVersion(location)
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const database = openReader(location)
  t.equal(schemaVersion(database), SCHEMA_VERSION)
  t.same(database.pragma('foreign_key_check'), [])
  t.same(database.pragma('integrity_check'), [{ integrity_check: 'ok' }])
  database.close()

  const found = await store.findDomain('zeta.com')
  t.match(found, {
    name: 'zeta.com',
    state: 'verified',
    returnPath: 'rp.zeta.com',
    trackingDomain: 't.zeta.com',
    ipPool: 'bulk',
    tracking: { opens: true, clicks: true },
    allowSubdomains: false,
    createdAt: NOW - 9,
    verifiedAt: NOW - 7,
    lastCheckedAt: NOW - 6,
    failingSince: null,
    failedChecks: 0,
    degradedAt: null,
    checks: [CHECK],
    keys: [
      {
        selector: 'ps1',
        algorithm: 'rsa-sha256',
        role: 'active',
        publicKey: 'MIIZ',
        createdAt: NOW - 9,
        seenAt: NOW - 7,
        retireAt: null,
      },
    ],
  })
  t.equal(found?.keys.length, 1)
  t.match(await store.findDomain('newer.com'), { state: 'pending', keys: [{ selector: 'ps9', seenAt: null }] })
  const list = await store.listDomains({ states: null, limit: 9, after: null })
  t.same(
    list.domains.map(({ name }) => name),
    ['newer.com', 'zeta.com'],
    'by their age',
  )
  t.same(await store.domainsDueForCheck(NOW, 9), ['zeta.com', 'newer.com'], 'each is checked soon')

  const reader = await openContentReader(location)
  t.teardown(() => reader.close())
  const signing = await reader.signingKeys('zeta.com')
  t.match(signing, [{ domain: 'zeta.com', selector: 'ps1', algorithm: 'rsa-sha256' }])
  t.same([...(signing[0]?.sealedPrivateKey ?? [])], [9, 8, 7])
  const { epoch } = await store.beginEpoch(NOW, NOW)
  t.same((await claim(store, epoch, NOW, 99)).map(({ id }) => id).toSorted(), ids.toSorted())
})

t.test('a domain of version 1 is checked, gets a key and is removed as any other', async (t) => {
  const location = locationIn(t.testdir({}))
  writeFirstVersion(location)
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  await store.addDkimKeys('zeta.com', [dkimKey({ selector: 'ps2', role: 'next' })])
  const keys = [dkimKey({ role: 'retiring', retireAt: NOW + 1 }), dkimKey({ selector: 'ps2' })]
  t.match(await store.recordDomainCheck(domainCheck({ name: 'zeta.com', keys })), {
    keys: [
      { selector: 'ps1', role: 'retiring', publicKey: 'MIIZ' },
      { selector: 'ps2', role: 'active' },
    ],
  })
  t.same(await store.removeDomain({ name: 'zeta.com', now: NOW, purge: true }), { queuedMessages: 30 })
  t.match(await store.queueSummary(NOW), { waiting: 0 })
})

/** As the program of the second version left it: messages in every state it knew, a key, a delivery under way. */
function writeSecondVersion(location: SqliteLocation): string[] {
  const database = createVersion(location, 2)
  const ids = addOldMessages(database, 'zeta.com', 4)
  database.exec(`
    update messages set state = 'delivered', final_at = ${NOW + 1}, attempts = 1, isp = 'gmail' where seq = 1;
    update messages set state = 'bounced', final_at = ${NOW + 2}, attempts = 1 where seq = 2;
    insert into bounces (message_seq, type, category, code, description)
      values (2, 'hard', 'invalid_recipient', '5.1.1', '550 no');
    update messages set state = 'sending', lease_epoch = 1, lease_until = ${NOW + 9} where seq = 3;
    insert into attempts (message_seq, at, result, duration_milliseconds, ip, stage, reply)
      values
        (1, ${NOW}, 'delivered', 9, '127.0.0.11', 'dot', '250 ok'),
        (2, ${NOW}, 'bounced', 9, null, 'rcpt', '550 no')`)
  database
    .prepare(
      `
      insert into api_keys (id, hash, name, mode, scopes, domains, allowed_ips, prefix, last4, created_at)
      values (?, ?, 'first', 'live', '["admin"]', '[]', '[]', 'sk_live_', 'wxyz', ?)`,
    )
    .run(storedIdentifier('key', newIdentifier('key', NOW)), Buffer.alloc(32, 1), NOW)
  database.close()
  return ids
}

t.test('a filled database of version 2 keeps its messages, and all that is new works on them', async (t) => {
  const location = locationIn(t.testdir({}))
  const ids = writeSecondVersion(location)
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const database = openReader(location)
  t.equal(schemaVersion(database), SCHEMA_VERSION)
  t.same(database.pragma('foreign_key_check'), [])
  t.same(database.pragma('integrity_check'), [{ integrity_check: 'ok' }])
  database.close()

  const [first, second, third, fourth] = await Promise.all(ids.map((id) => lookUp(store, id)))
  const common = {
    from: 'orders@acme.com',
    subject: 'Order',
    variables: { n: 1 },
    batchId: null,
    tags: {},
    metadata: {},
    isTest: false,
    sendAt: null,
    complainedAt: null,
    opens: 0,
    retryOf: null,
    pool: POOL,
    domain: 'zeta.com',
  }
  t.match(first, { ...common, state: 'delivered', deliveredAt: NOW + 1, isp: 'gmail', ip: '127.0.0.11' })
  t.match(second, { ...common, state: 'bounced', bouncedAt: NOW + 2, bounce: { type: 'hard', isLate: false } })
  t.match(third, { ...common, state: 'queued', isPossibleDuplicate: true })
  t.match(fourth, { ...common, state: 'queued' })
  t.match(await store.findApiKey(Buffer.alloc(32, 1)), { name: 'first', lastUsedAt: null })
  t.same(
    (await store.transcripts(ids[0] ?? ''))?.map(({ dialogue }) => dialogue),
    [null],
  )

  for (const asked of [{ recipient: 'ada@example.com' }, { from: 'orders@acme.com' }, {}]) {
    const { messages } = await store.searchMessages({ ...anything, ...asked })
    t.same(
      messages.map(({ id }) => id),
      ids.toReversed(),
    )
  }
  const repeat = await store.requestToRepeat(ids[1] ?? '', NOW)
  t.match(repeat?.content, {
    html: 'Grüß',
    text: null,
    raw: null,
    addressees: null,
    headers: [],
    tracking: { opens: false, clicks: false },
    unsubscribe: null,
  })
  t.same(await store.cancelMessage(ids[2] ?? '', NOW), { kind: 'uncertain' })
  await store.addSuppression(suppressionRecord({ reason: 'complaint' }))
  t.same(await claim(store, epoch), [])
  t.match(await lookUp(store, ids[3] ?? ''), { state: 'suppressed', bounce: { type: 'suppressed' } })
})

/** What version 6 knew of a message that may still be sent: its state, its pool, and its tries as [at, result, IP]. */
interface OldRow {
  state: string
  pool?: string
  attempts?: number
  sticky?: string
  tries?: [at: number, result: string, ip: string | null][]
}

const OLD_ROWS: Record<string, OldRow> = {
  waiting: { state: 'waiting' },
  deferred: {
    state: 'waiting',
    attempts: 2,
    sticky: '127.0.0.11',
    tries: [
      [NOW - 3, 'deferred', '127.0.0.11'],
      [NOW - 2, 'deferred', '127.0.0.12'],
      [NOW - 1, 'path-failed', '127.0.0.13'],
    ],
  },
  failed: { state: 'waiting', tries: [[NOW - 2, 'path-failed', '127.0.0.11']] },
  sending: { state: 'sending', attempts: 1, sticky: '127.0.0.11', tries: [[NOW - 2, 'deferred', '127.0.0.11']] },
  captured: { state: 'waiting', pool: '(capture)' },
  capturing: { state: 'sending', pool: '(capture)' },
  delivered: { state: 'delivered', attempts: 1, sticky: '127.0.0.11' },
  bounced: { state: 'bounced', attempts: 1 },
  suppressed: { state: 'suppressed' },
  canceled: { state: 'canceled' },
}

/** As the program of the sixth version left it; returns the identifiers by name. */
function writeSixthVersion(location: SqliteLocation): Record<string, string> {
  const database = createVersion(location, 6)
  const names = Object.keys(OLD_ROWS)
  const ids = addOldMessages(database, 'zeta.com', names.length)
  const { lastInsertRowid: captured } = database.prepare(`insert into pools (name) values ('(capture)')`).run()
  const change = database.prepare(`
    update messages
    set state = ?, pool_id = coalesce(?, pool_id), attempts = ?, sticky_ip = ?, lease_epoch = ?, lease_until = ?
    where seq = ?`)
  const addTry = database.prepare(`
    insert into attempts (message_seq, at, result, ip, duration_milliseconds, stage, reply, tls)
    values (?, ?, ?, ?, 9, 'rcpt', '450 later', 'TLSv1.2')`)
  for (const [index, { state, pool, attempts, sticky, tries }] of Object.values(OLD_ROWS).entries()) {
    const lease = state === 'sending' ? [1, NOW + 9] : [null, null]
    change.run(state, pool === undefined ? null : captured, attempts ?? 0, sticky ?? null, ...lease, index + 1)
    for (const each of tries ?? []) addTry.run(index + 1, ...each)
  }
  database.close()
  return Object.fromEntries(names.map((name, index) => [name, ids[index] ?? '']))
}

t.test('the queue of version 6 stands under keys, whatever state its rows were in', async (t) => {
  const location = locationIn(t.testdir({}))
  const ids = writeSixthVersion(location)
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const { epoch, ...found } = await store.beginEpoch(NOW, NOW + 300_000)
  t.match(found, { recovered: 0, uncertain: 2 }, 'there was no mark: what was under way may have been delivered')
  const database = openReader(location)
  t.same(database.pragma('foreign_key_check'), [])
  t.same(database.pragma('integrity_check'), [{ integrity_check: 'ok' }])
  database.close()

  const key = { pool: POOL, route: '', domain: 'zeta.com', stream: 'transactional', isRetry: false }
  t.same((await store.queueKeys(null, 99)).keys, [
    { ...key, earliestAt: NOW, waiting: 2 },
    { ...key, isRetry: true, earliestAt: NOW, waiting: 2 },
    { ...key, pool: '(capture)', route: 'capture', earliestAt: NOW, waiting: 2 },
  ])
  t.same(await store.unroutedDomains(9), [{ domain: 'example.com', earliestAt: NOW }])
  t.match(await store.assignRoutes([{ domain: 'example.com', route: 'google', isp: 'gmail' }]), [
    { route: 'google', isRetry: false, waiting: 2 },
    { route: 'google', isRetry: true, waiting: 2 },
  ])
  const claimed = await claim(store, epoch, NOW + 300_000)
  const byName = Object.fromEntries(Object.keys(ids).map((name) => [name, claimed.find(({ id }) => id === ids[name])]))
  t.match(byName['waiting'], { attempts: 0, lastIp: null, keepIpUntil: null, avoidIps: [], route: 'google' })
  t.match(byName['deferred'], { attempts: 2, lastIp: '127.0.0.12' }, 'the last IP, no more the first')
  t.match(byName['failed'], { attempts: 0 })
  t.match(byName['sending'], { attempts: 1, lastIp: '127.0.0.11' })
  for (const name of ['captured', 'capturing', 'delivered', 'bounced', 'suppressed', 'canceled']) {
    t.equal(byName[name], undefined, name)
  }
  t.match(await lookUp(store, ids['sending'] ?? ''), { isPossibleDuplicate: true })
  for (const name of ['delivered', 'bounced', 'suppressed', 'canceled']) {
    t.match(await lookUp(store, ids[name] ?? ''), { state: name, nextAttemptAt: null })
  }
  t.match((await lookUp(store, ids['deferred'] ?? ''))?.attempts[0]?.tls, { protocol: 'TLSv1.2', policy: 'none' })
})

t.test('the states of version 11 are the states still, and no others', (t) => {
  const location = locationIn(t.testdir({}))
  writeOldDatabase(location, 11)
  const { writer, close } = openDatabase(location)
  t.teardown(close)
  t.equal(schemaVersion(writer), SCHEMA_VERSION)
  t.same(writer.pragma('integrity_check'), [{ integrity_check: 'ok' }])
  for (const [table, states] of [
    ['messages', ['waiting', 'sending', 'delivered', 'bounced', 'suppressed', 'canceled']],
    ['webhook_deliveries', ['pending', 'succeeded', 'failed', 'skipped']],
  ] as const) {
    const change = writer.prepare(`update ${table} set state = ?`)
    const rows = writer.prepare(`select count(*) from ${table}`).pluck().get()
    for (const state of states) t.equal(change.run(state).changes, rows, `${table}: ${state}`)
    for (const wrong of ['', 'unknown', 'Waiting', null]) {
      t.throws(() => change.run(wrong), /constraint failed/, `${table}: ${wrong}`)
    }
  }
  t.throws(() => writer.exec(`update sqlite_schema set sql = ''`), /may not be modified/, 'only a migration may do so')
  t.end()
})
