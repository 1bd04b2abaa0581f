/**
 * API keys: what every store engine must do with those who may ask.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { ApiKeyRecord } from '../../src/store/records/sender-records.ts'
import type { Store } from '../../src/store/store.ts'
import type { Cases } from './conformance-case.ts'
import { apiKey, NOW } from './store-samples.ts'

let added = 0

async function addKey(store: Store, changes: Partial<ApiKeyRecord> = {}): Promise<ApiKeyRecord> {
  added += 1
  const key = apiKey({ id: newIdentifier('key', NOW + added), ...changes })
  await store.addApiKey(key, Buffer.from(String(added).padStart(32)), null)
  return key
}

const admin = { scopes: ['admin'] }

export const apiKeys: Cases = {
  'a key is found by its hash and by its id, and changes what it is told to': async (t, { store }) => {
    const key = apiKey()
    await store.addApiKey(key, Buffer.alloc(32, 1), null)
    t.same(await store.findApiKey(Buffer.alloc(32, 1)), key)
    t.same(await store.findApiKeyById(key.id), key)
    t.equal(await store.findApiKey(Buffer.alloc(32, 2)), null)
    await t.rejects(store.addApiKey(apiKey(), Buffer.alloc(32, 1), null), 'a hash is there once')
    const changed = { ...key, name: 'shop 2', domains: [], allowedIps: ['::1/128'], expiresAt: NOW + 5 }
    t.same(await store.updateApiKey(key.id, { name: 'shop 2' }), { ...key, name: 'shop 2' })
    t.same(await store.updateApiKey(key.id, { domains: [], allowedIps: ['::1/128'], expiresAt: NOW + 5 }), changed)
    t.same(await store.findApiKeyById(key.id), changed)
    t.match(await store.updateApiKey(key.id, { expiresAt: null }), { expiresAt: null, name: 'shop 2' })
    for (const id of [newIdentifier('key', NOW), 'key_', '%', key.id.toUpperCase(), `${key.id}\0`]) {
      t.equal(await store.findApiKeyById(id), null)
      t.equal(await store.updateApiKey(id, { name: 'x' }), null)
      t.equal(await store.revokeApiKey(id, NOW, true), null)
    }
  },
  'no more living keys than the limit': async (t, { store }) => {
    const revoked = await addKey(store)
    await addKey(store, { expiresAt: NOW })
    await store.revokeApiKey(revoked.id, NOW, false)
    await addKey(store)
    const add = (most: number, seed: number) => store.addApiKey(apiKey(), Buffer.alloc(32, seed), most)
    await t.rejects(add(1, 1), { message: /conflict.*1 API keys/ })
    await add(2, 2)
    await t.rejects(add(2, 3), { message: /conflict/ })
  },
  'keys are listed newest first, revoked ones too': async (t, { store }) => {
    const keys = []
    for (let count = 0; count < 5; count++) keys.push(await addKey(store))
    await store.revokeApiKey(keys[2]?.id ?? '', NOW, false)
    const first = await store.listApiKeys(2, null)
    await addKey(store)
    const second = await store.listApiKeys(2, first.next)
    const third = await store.listApiKeys(2, second.next)
    const listed = [first, second, third].flatMap((page) => page.keys)
    t.same(
      listed.map(({ id }) => id),
      keys.map(({ id }) => id).reverse(),
    )
    t.same(
      listed.map(({ revokedAt }) => revokedAt),
      [null, null, NOW, null, null],
    )
    t.equal(third.next, null)
    await t.rejects(store.listApiKeys(2, '5'), { message: /invalid_request/ })
  },
  'the last living admin key of live mode stays when that is asked for': async (t, { store }) => {
    const last = await addKey(store, admin)
    await addKey(store, { ...admin, mode: 'test' })
    await addKey(store, { ...admin, expiresAt: NOW })
    await addKey(store, { scopes: ['send', 'administer'] })
    const gone = await addKey(store, admin)
    t.match(await store.revokeApiKey(gone.id, NOW + 1, true), { revokedAt: NOW + 1 })
    t.match(await store.revokeApiKey(gone.id, NOW + 2, true), { revokedAt: NOW + 1 }, 'an earlier time stays')
    await t.rejects(store.revokeApiKey(last.id, NOW + 2, true), { message: /conflict/ })
    await t.rejects(store.updateApiKey(last.id, { expiresAt: NOW + 9 }, NOW + 2), { message: /conflict/ })
    t.match(await store.findApiKeyById(last.id), { revokedAt: null, expiresAt: null })
    const named = { name: 'last', expiresAt: null }
    t.match(await store.updateApiKey(last.id, named, NOW + 2), named, 'nothing ends earlier')
    const shorter = await addKey(store, { ...admin, expiresAt: NOW + 8 })
    await t.rejects(store.updateApiKey(last.id, { expiresAt: NOW + 8 }, NOW + 2), { message: /conflict/ })
    t.match(await store.updateApiKey(last.id, { expiresAt: NOW + 7 }, NOW + 2), { expiresAt: NOW + 7 })
    t.match(await store.updateApiKey(last.id, { expiresAt: NOW + 9 }, NOW + 2), { expiresAt: NOW + 9 }, 'it ends later')
    t.match(await store.updateApiKey(last.id, { expiresAt: NOW + 6 }), { expiresAt: NOW + 6 }, 'not asked for')
    t.match(await store.updateApiKey(last.id, { expiresAt: null }, NOW + 2), { expiresAt: null })
    await store.revokeApiKey(shorter.id, NOW + 2, true)
    t.match(await store.revokeApiKey(last.id, NOW + 3, false), { revokedAt: NOW + 3 })
    const other = await addKey(store)
    t.match(await store.revokeApiKey(other.id, NOW + 3, true), { revokedAt: NOW + 3 }, 'it was no admin')
  },
  'the time of use never moves back': async (t, { store }) => {
    const [one, two] = [await addKey(store), await addKey(store)]
    await store.noteKeyUse([
      { id: one.id, at: NOW + 5 },
      { id: two.id, at: NOW + 6 },
      { id: one.id, at: NOW + 3 },
    ])
    await store.noteKeyUse([{ id: newIdentifier('key', NOW), at: NOW }])
    t.equal((await store.findApiKeyById(one.id))?.lastUsedAt, NOW + 5)
    t.equal((await store.findApiKeyById(two.id))?.lastUsedAt, NOW + 6)
  },
}
