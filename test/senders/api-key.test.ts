/**
 * API keys: what they look like, what is kept of them, and every way in which one is refused.
 */
import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createApiKeys, hasScope, SCOPES, type ApiKeys, type CreateKeyRequest } from '../../src/senders/api-key.ts'
import type { ApiKeyRecord } from '../../src/store/records/sender-records.ts'
import type { Store } from '../../src/store/store.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { testStore } from './sender-parts.ts'

const FREELY = { keepsAdmin: false }

const request = (changes: Partial<CreateKeyRequest> = {}): CreateKeyRequest => ({
  name: 'shop',
  mode: 'live',
  scopes: ['send'],
  domains: [],
  allowedIps: [],
  expiresAt: null,
  ...changes,
})

interface Parts {
  store: Store
  clock: ManualClock
  apiKeys: ApiKeys
  reads: () => number
}

/** The real store, with its reads counted. */
async function parts(t: Test, mostKeys: number | null = null): Promise<Parts> {
  const real = await testStore(t)
  let reads = 0
  const store: Store = { ...real, findApiKey: (hash) => (reads++, real.findApiKey(hash)) }
  const clock = manualClock()
  const logger = createLogger({ level: 'silent' })
  return { store, clock, apiKeys: createApiKeys({ store, clock, mostKeys, logger }), reads: () => reads }
}

t.test('a new key is random, shown once and kept as its hash', async (t) => {
  const { store, apiKeys } = await parts(t)
  const scopes = ['send', 'send', 'messages:read']
  const { key, record } = await apiKeys.create(request({ scopes, domains: ['ACME.com.'] }))
  t.match(key, /^sk_live_[0-9A-Za-z]{40}$/)
  t.match(record, { name: 'shop', prefix: 'sk_live_', last4: key.slice(-4), domains: ['acme.com'], revokedAt: null })
  t.same(record.scopes, ['send', 'messages:read'], 'each scope once')
  t.match(record.id, /^key_[0-9a-hjkmnp-tv-z]{26}$/)
  t.notOk(JSON.stringify(record).includes(key.slice(8)), 'the record does not hold the key')
  t.same(await store.findApiKey(createHash('sha256').update(key).digest()), record)
  t.match((await apiKeys.create(request({ mode: 'test' }))).key, /^sk_test_/)
})

t.test('no more keys are made than the limit; revoked ones do not count', async (t) => {
  const { apiKeys } = await parts(t, 2)
  const first = await apiKeys.create(request())
  await apiKeys.create(request())
  await t.rejects(apiKeys.create(request()), { code: 'conflict' })
  await apiKeys.revoke(first.record.id, { keepsAdmin: false })
  await apiKeys.create(request())
})

t.test('what is changed is checked as at creation, the rest stays', async (t) => {
  const { clock, apiKeys } = await parts(t)
  const { key, record } = await apiKeys.create(request({ domains: ['acme.com'], expiresAt: clock.now() + HOUR }))
  const changed = await apiKeys.change(record.id, { name: 'web shop', domains: ['ACME.com', 'other.com.'] }, FREELY)
  t.same(changed, { ...record, name: 'web shop', domains: ['acme.com', 'other.com'] })
  t.same(await apiKeys.find(record.id), changed)
  t.equal((await apiKeys.change(record.id, { expiresAt: null }, FREELY)).expiresAt, null)
  t.match(await apiKeys.authenticate(key, '203.0.113.9'), { name: 'web shop', expiresAt: null })
  await t.rejects(apiKeys.change(record.id, { name: '', domains: ['com'], expiresAt: 1 }, FREELY), {
    code: 'invalid_request',
    details: /^name: .*; domains\[0\]: .*; expires_at: /,
  })
  for (const id of ['', 'key_x', 'x'.repeat(1_000), `key_${'0'.repeat(26)}`]) {
    await t.rejects(apiKeys.change(id, { name: 'x' }, FREELY), { code: 'not_found' })
    await t.rejects(apiKeys.find(id), { code: 'not_found', details: `key ${id.slice(0, 64)}` })
    await t.rejects(apiKeys.revoke(id, { keepsAdmin: true }), { code: 'not_found' })
  }
})

t.test('a revocation and a change hold at once, also for a key that was just looked up', async (t) => {
  const { clock, apiKeys } = await parts(t)
  const { key, record } = await apiKeys.create(request())
  await apiKeys.authenticate(key, '203.0.113.9')
  await apiKeys.change(record.id, { allowedIps: ['10.0.0.0/8'] }, FREELY)
  await t.rejects(apiKeys.authenticate(key, '203.0.113.9'), { code: 'unauthorized', details: /may not be used from/ })
  await apiKeys.authenticate(key, '10.1.2.3')
  const revoked = await apiKeys.revoke(record.id, { keepsAdmin: true })
  t.equal(revoked.revokedAt, clock.now())
  await t.rejects(apiKeys.authenticate(key, '10.1.2.3'), { code: 'unauthorized', details: /was revoked/ })
  await clock.advance(HOUR)
  t.same(await apiKeys.revoke(record.id, { keepsAdmin: true }), revoked, 'a second time changes nothing')
})

t.test('the last live admin key stays', async (t) => {
  const { clock, apiKeys } = await parts(t)
  const scopes = ['admin']
  const first = await apiKeys.create(request({ scopes }))
  await apiKeys.create(request({ scopes, mode: 'test' }))
  await apiKeys.create(request({ scopes, expiresAt: clock.now() + 1 }))
  await clock.advance(1)
  await t.rejects(apiKeys.revoke(first.record.id, { keepsAdmin: true }), { code: 'conflict' })
  await apiKeys.create(request({ scopes }))
  await apiKeys.revoke(first.record.id, { keepsAdmin: true })
})

t.test('the last use is written, at most every five minutes', async (t) => {
  const { store, clock, apiKeys } = await parts(t)
  const { key, record } = await apiKeys.create(request())
  const written = async (): Promise<number | null> => (await store.findApiKeyById(record.id))?.lastUsedAt ?? null
  const firstUse = clock.now()
  await apiKeys.authenticate(key, '203.0.113.9')
  await until('the first use', async () => (await written()) === firstUse)
  await clock.advance(5 * MINUTE - 1)
  await apiKeys.authenticate(key, '203.0.113.9')
  t.equal(await written(), firstUse)
  await clock.advance(1)
  await apiKeys.authenticate(key, '203.0.113.9')
  await until('the next one', async () => (await written()) === firstUse + 5 * MINUTE)
})

t.test('keys are listed newest first, page by page', async (t) => {
  const { clock, apiKeys } = await parts(t)
  const ids: string[] = []
  for (let index = 0; index < 3; index++) {
    ids.unshift((await apiKeys.create(request())).record.id)
    await clock.advance(1)
  }
  const first = await apiKeys.list(2, null)
  const second = await apiKeys.list(2, first.next)
  t.same(
    [...first.keys, ...second.keys].map(({ id }) => id),
    ids,
  )
  t.equal(second.next, null)
})

t.test('the characters of keys are spread evenly', async (t) => {
  const { apiKeys } = await parts(t)
  const counts = new Map<string, number>()
  for (let index = 0; index < 200; index++) {
    const { key } = await apiKeys.create(request())
    for (const character of key.slice(8)) counts.set(character, (counts.get(character) ?? 0) + 1)
  }
  // 8,000 characters, 129 of each of 62 on average, deviation 11: seven deviations never happen by chance.
  t.equal(counts.size, 62)
  t.ok(
    [...counts.values()].every((count) => count > 50 && count < 210),
    JSON.stringify([...counts]),
  )
})

t.test('every problem of a request for a key is listed', async (t) => {
  const { clock, apiKeys } = await parts(t)
  const cases: [Partial<CreateKeyRequest>, RegExp][] = [
    [{ name: '' }, /^name: must have 1 to 100/],
    [{ name: 'x'.repeat(101) }, /^name: must have 1 to 100/],
    [{ name: 'a\nb' }, /^name: has a control character$/],
    [{ name: 'a\ud800' }, /^name: has an unpaired surrogate$/],
    [{ scopes: [] }, /^scopes: at least one/],
    [{ scopes: ['send', 'everything'] }, /^scopes\[1\]: unknown; known are send, /],
    [{ scopes: ['constructor'] }, /^scopes\[0\]: unknown/],
    [{ domains: ['acme.com', '*.acme.com'] }, /^domains\[1\]: is a wildcard$/],
    [{ allowedIps: ['10.0.0.0/33'] }, /^allowed_ips\[0\]: is no address/],
    [{ expiresAt: clock.now() }, /^expires_at: must be in the future$/],
    [{ expiresAt: Number.NaN }, /^expires_at: must be in the future$/],
    [{ name: '', scopes: [], domains: ['com'] }, /^name: .*; scopes: .*; domains\[0\]: /],
  ]
  for (const [changes, details] of cases) {
    await t.rejects(apiKeys.create(request(changes)), { code: 'invalid_request', details }, String(details))
  }
  await apiKeys.create(request({ name: 'ü'.repeat(100), scopes: [...SCOPES], expiresAt: clock.now() + 1 }))
})

t.test('a key is known again, by that key alone', async (t) => {
  const { clock, apiKeys } = await parts(t)
  const { key, record } = await apiKeys.create(request())
  t.same(await apiKeys.authenticate(key, '203.0.113.9'), { ...record, lastUsedAt: clock.now() })
  const other = `${key.slice(0, -4)}9f3a`
  await t.rejects(apiKeys.authenticate(other, '203.0.113.9'), {
    code: 'unauthorized',
    details: 'no such key ending in 9f3a',
  })
  const wrongForms = [
    '',
    'secret',
    key.slice(0, -1),
    `${key}x`,
    ` ${key}`,
    key.toUpperCase(),
    key.replace('live', 'test '),
    `sk_prod_${key.slice(8)}`,
    `${key.slice(0, -1)}ü`,
    `${key}\n`,
  ]
  for (const text of wrongForms) {
    const { details } = await apiKeys.authenticate(text, '203.0.113.9').then(
      () => ({ details: 'accepted' }),
      (thrown: { details: string }) => thrown,
    )
    t.match(details, /^the key is not sk_live_ or sk_test_/, JSON.stringify(text))
    if (text.length > 3) t.notOk(details.includes(text.slice(-4)), 'nothing of it is shown')
  }
})

t.test('revoked, expired, used from elsewhere: the answer says which, with four characters of the key', async (t) => {
  const { store, clock, apiKeys } = await parts(t)
  const expiring = await apiKeys.create(request({ expiresAt: clock.now() + HOUR }))
  await apiKeys.authenticate(expiring.key, '203.0.113.9')
  await clock.advance(HOUR - 1)
  await apiKeys.authenticate(expiring.key, '203.0.113.9')
  await clock.advance(1)
  await t.rejects(apiKeys.authenticate(expiring.key, '203.0.113.9'), {
    code: 'unauthorized',
    details: `Key ending in ${expiring.record.last4} expired at ${clock.now() / SECOND}.`,
  })

  const local = await apiKeys.create(request({ allowedIps: ['203.0.113.0/24', '2001:db8::1'] }))
  for (const address of ['203.0.113.9', '::ffff:203.0.113.9', '2001:DB8::1']) {
    await apiKeys.authenticate(local.key, address)
  }
  for (const address of ['203.0.114.9', '2001:db8::2', '']) {
    await t.rejects(apiKeys.authenticate(local.key, address), {
      code: 'unauthorized',
      details: `Key ending in ${local.record.last4} may not be used from ${address}.`,
    })
  }

  const key = `sk_live_${'a'.repeat(36)}9f3a`
  const revoked: ApiKeyRecord = {
    ...local.record,
    id: `key_${'0'.repeat(26)}`,
    last4: '9f3a',
    allowedIps: [],
    revokedAt: 1_795_200_000_000,
  }
  await store.addApiKey(revoked, createHash('sha256').update(key).digest(), null)
  await t.rejects(apiKeys.authenticate(key, '203.0.113.9'), {
    code: 'unauthorized',
    details: 'Key ending in 9f3a was revoked at 1795200000.',
  })
})

t.test('one that expired or is for elsewhere is not revoked', async (t) => {
  const { clock, apiKeys } = await parts(t)
  const { key, record } = await apiKeys.create(
    request({ allowedIps: ['203.0.113.0/24'], expiresAt: clock.now() + HOUR }),
  )
  await clock.advance(2 * HOUR)
  t.equal(await apiKeys.isRevoked(key), false)
  await apiKeys.revoke(record.id, { keepsAdmin: false })
  t.equal(await apiKeys.isRevoked(key), true)
  t.equal(await apiKeys.isRevoked('sk_test_unknown'), true, 'nor does anybody have it')
})

t.test('a known key is read once in 5 s, an unknown one every time', async (t) => {
  const { clock, apiKeys, reads } = await parts(t)
  const { key } = await apiKeys.create(request())
  for (let index = 0; index < 10; index++) await apiKeys.authenticate(key, '203.0.113.9')
  t.equal(reads(), 1)
  await clock.advance(5 * SECOND - 1)
  await apiKeys.authenticate(key, '203.0.113.9')
  t.equal(reads(), 1)
  await clock.advance(1)
  await apiKeys.authenticate(key, '203.0.113.9')
  t.equal(reads(), 2)
  const unknown = `sk_test_${'z'.repeat(40)}`
  for (let index = 0; index < 3; index++) await t.rejects(apiKeys.authenticate(unknown, '203.0.113.9'))
  t.equal(reads(), 5)
})

t.test('admin stands for every scope, no other scope for another', async (t) => {
  for (const scope of SCOPES) {
    t.ok(hasScope({ scopes: ['admin'] }, scope))
    t.ok(hasScope({ scopes: [scope] }, scope))
    t.notOk(hasScope({ scopes: [] }, scope))
    if (scope !== 'send') t.notOk(hasScope({ scopes: ['send'] }, scope))
  }
})
