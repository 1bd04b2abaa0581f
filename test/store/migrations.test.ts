/**
 * A filled database of an earlier version is brought to the present one: nothing in it is lost, and it works on.
 */
import { mkdirSync, readFileSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { newIdentifier } from '../../src/base/identifier.ts'
import { openContentReader } from '../../src/store/open-store.ts'
import { databasePath, openReader } from '../../src/store/sqlite/database.ts'
import { schemaVersion, SCHEMA_VERSION } from '../../src/store/sqlite/migrate.ts'
import { createAcceptMessages } from '../../src/store/sqlite/accept.ts'
import { storedIdentifier } from '../../src/store/sqlite/stored-identifier.ts'
import type { StoreLocation } from '../../src/store/store-location.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { acceptRequest, claim, dkimKey, domainCheck, newMessage, NOW } from './store-samples.ts'

const CHECK = { purpose: 'spf', status: 'verified', found: ['v=spf1 -all'], error: null, hint: null, checkedAt: NOW }

/** As the program of the first version left it: two domains, an endpoint, 30 waiting messages. */
function writeFirstVersion(location: StoreLocation): string[] {
  mkdirSync(location.folder, { recursive: true })
  const database = new Sqlite(databasePath(location))
  const statements = new URL('../../src/store/sqlite/migrations/0001-initial.sql', import.meta.url)
  database.exec(readFileSync(statements, 'utf8'))
  database.pragma('journal_mode = wal')
  database.pragma('user_version = 1')
  const addDomain = database.prepare('insert into domains values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)')
  addDomain.run(
    'newer.com', 'pending', 'ps9', 'MIIN', Buffer.of(4, 5), 'bounces.newer.com', null, NOW - 5, null, null, '[]',
  )
  addDomain.run(
    'zeta.com', 'verified', 'ps1', 'MIIZ', Buffer.of(9, 8, 7), 'rp.zeta.com', 'bulk', NOW - 9, NOW - 7, NOW - 6,
    JSON.stringify([CHECK]),
  )
  database
    .prepare(`
      insert into webhook_endpoints (id, url, events, status, sealed_secret, created_at)
      values (?, ?, ?, ?, ?, ?)`)
    .run(storedIdentifier('wh', newIdentifier('wh', NOW)), 'https://x.test/', '["*"]', 'enabled', Buffer.of(1), NOW)
  const messages = Array.from({ length: 30 }, () => newMessage())
  createAcceptMessages(database)(acceptRequest({ domain: 'zeta.com', messages }))
  database.close()
  return messages.map(({ id }) => id)
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
    name: 'zeta.com', state: 'verified', returnPath: 'rp.zeta.com', trackingDomain: 't.zeta.com', ipPool: 'bulk',
    tracking: { opens: true, clicks: true }, allowSubdomains: false, createdAt: NOW - 9, verifiedAt: NOW - 7,
    lastCheckedAt: NOW - 6, failingSince: null, failedChecks: 0, degradedAt: null, checks: [CHECK],
    keys: [{
      selector: 'ps1', algorithm: 'rsa-sha256', role: 'active', publicKey: 'MIIZ', createdAt: NOW - 9,
      seenAt: NOW - 7, retireAt: null,
    }],
  })
  t.equal(found?.keys.length, 1)
  t.match(await store.findDomain('newer.com'), { state: 'pending', keys: [{ selector: 'ps9', seenAt: null }] })
  const list = await store.listDomains({ states: null, limit: 9, after: null })
  t.same(list.domains.map(({ name }) => name), ['newer.com', 'zeta.com'], 'by their age')
  t.same(await store.domainsDueForCheck(NOW, 9), ['zeta.com', 'newer.com'], 'each is checked soon')

  const reader = await openContentReader(location)
  t.teardown(() => reader.close())
  const signing = await reader.signingKeys('zeta.com')
  t.match(signing, [{ domain: 'zeta.com', selector: 'ps1', algorithm: 'rsa-sha256' }])
  t.same([...signing[0]?.sealedPrivateKey ?? []], [9, 8, 7])
  const { epoch } = await store.beginEpoch(NOW)
  t.same((await claim(store, epoch, NOW, 99)).map(({ id }) => id).toSorted(), ids.toSorted())
})

t.test('a domain of version 1 is checked, gets a key and is removed as any other', async (t) => {
  const location = locationIn(t.testdir({}))
  writeFirstVersion(location)
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  await store.addDkimKeys('zeta.com', [dkimKey({ selector: 'ps2', role: 'next' })])
  const keys = [dkimKey({ role: 'retiring', retireAt: NOW + 1 }), dkimKey({ selector: 'ps2' })]
  t.match(await store.recordDomainCheck(domainCheck({ name: 'zeta.com', keys })), { keys: [
    { selector: 'ps1', role: 'retiring', publicKey: 'MIIZ' }, { selector: 'ps2', role: 'active' },
  ] })
  t.same(await store.removeDomain({ name: 'zeta.com', now: NOW, purge: true }), { queuedMessages: 30 })
  t.match(await store.queueSummary(NOW), { waiting: 0 })
})
