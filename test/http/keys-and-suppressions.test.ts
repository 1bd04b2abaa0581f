/**
 * The routes of API keys and of the suppression list: what they answer, to whom, and what they refuse.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { ask, get, post, rawConnection, startApi, VALID_SEND, type Got, type KeyName } from './api-server.ts'
import { until } from '../support/until.ts'

const KEY = { name: 'x', mode: 'live', scopes: ['send'] }
const LONGER_THAN_A_SHORT_BODY = 150
const NO_KEY = 'key_01kapg6t3vq8x2m5r7w9y4c6d0'

const patch = (port: number, id: string, body: object, key: KeyName = 'admin'): Promise<Got> =>
  ask(port, { method: 'PATCH', path: `/v1/keys/${id}`, key, body: JSON.stringify(body) })
const revoke = (port: number, id: string, key: KeyName = 'admin'): Promise<Got> =>
  ask(port, { method: 'DELETE', path: `/v1/keys/${id}`, key })

/** Ids of the keys that this key sees, by name. */
async function keysSeenBy(port: number, key: KeyName): Promise<Record<string, string>> {
  const { text } = await get(port, '/v1/keys?limit=100', key)
  return Object.fromEntries(JSON.parse(text).data.map(({ name, id }: { name: string; id: string }) => [name, id]))
}

t.test('a key is made, listed, changed and revoked at once; only its creation shows it', async (t) => {
  const { port, clock, log } = await startApi(t)
  const made = await post(port, '/v1/keys', { ...KEY, scopes: ['domains'], domains: ['acme.com'] })
  const { key, ...record } = made.json.data ?? {}
  const id = String(record['id'])
  const use = (): Promise<Got> =>
    ask(port, { method: 'GET', path: '/v1/domains/acme.com', key: null, headers: { Authorization: `Bearer ${key}` } })
  t.equal((await use()).status, 200)
  const found = await get(port, `/v1/keys/${id}`)
  t.match(found.json.data, { ...record, last_used_at: clock.now() / 1_000 })
  t.notMatch(found.text, String(key).slice(8))
  const list = await get(port, '/v1/keys?limit=2')
  t.match(list.json, { has_more: true, next_cursor: String })
  t.equal((await get(port, `/v1/keys?limit=100&after=${String(Reflect.get(list.json, 'next_cursor'))}`)).status, 200)
  t.equal((await get(port, '/v1/keys?after=nonsense')).status, 422)
  t.notMatch(list.text, String(key).slice(8))
  const changed = await patch(port, id, { name: 'renamed', domains: ['other.com'], expires_at: null, mode: 'test' })
  t.match(changed.json.data, { id, name: 'renamed', domains: ['other.com'], mode: 'live', scopes: ['domains'] })
  t.equal(changed.headers['x-service-warnings'], 'mode')
  t.equal((await use()).status, 403, 'the change holds at once')
  const revoked = await revoke(port, id)
  t.match(revoked.json.data, { id, revoked_at: clock.now() / 1_000 })
  t.match((await use()).json.error, { code: 'unauthorized', details: /was revoked/ })
  t.equal((await revoke(port, id)).text, revoked.text, 'a second time changes nothing')
  for (const what of ['key created', 'key changed', 'key revoked']) {
    t.match(
      log.find(({ msg }) => msg === what),
      { key_id: id, api_key: 'admin …9f3a' },
    )
  }
  t.notMatch(JSON.stringify(log), String(key).slice(8))
})

t.test('a key that is revoked while a body comes does nothing with it', async (t) => {
  const { port, seen } = await startApi(t)
  const made = await post(port, '/v1/keys', KEY)
  const { key, id } = made.json.data ?? {}
  const body = JSON.stringify(VALID_SEND)
  const connection = await rawConnection(port)
  const before = seen.addresses.length
  const head = `POST /v1/email/send HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json`
  connection.write(`${head}\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 9)}`)
  await until('the key was looked at', () => seen.addresses.length > before)
  t.equal((await revoke(port, String(id))).status, 200)
  await sleep(LONGER_THAN_A_SHORT_BODY)
  connection.write(body.slice(9))
  await until('it is answered', () => connection.text().includes('\r\n\r\n{'))
  t.match(connection.text(), /^HTTP\/1\.1 401 [^]*was revoked/)
  t.same(seen.sends, [])
  connection.socket.destroy()
})

t.test('wrong changes and unknown keys are refused', async (t) => {
  const { port } = await startApi(t)
  const ids = await keysSeenBy(port, 'admin')
  const wrong = await patch(port, ids['send'] ?? '', { name: '', domains: ['com'], allowed_ips: ['x'], expires_at: 1 })
  t.equal(wrong.status, 422)
  t.match(wrong.json.error?.details, /^name: .*; domains\[0\]: .*; allowed_ips\[0\]: .*; expires_at: /)
  for (const id of [NO_KEY, 'x', '%00', '..%2f']) {
    for (const got of [await get(port, `/v1/keys/${id}`), await patch(port, id, {}), await revoke(port, id)]) {
      t.equal(got.status, 404, id)
    }
  }
})

t.test('a key changes neither itself nor what it may not grant, and does not see it', async (t) => {
  const { port } = await startApi(t)
  const ids = await keysSeenBy(port, 'admin')
  const itself = await patch(port, ids['limited'] ?? '', { name: 'wider' }, 'limited')
  t.match(itself, { status: 403, json: { error: { code: 'forbidden', details: /itself/ } } })
  t.same(Object.keys(await keysSeenBy(port, 'limited')), ['limited'], 'keys for other domains are not shown')
  t.same(Object.keys(await keysSeenBy(port, 'test')), ['test'], 'nor live keys to a test key')
  for (const key of ['limited', 'test'] as const) {
    for (const got of [
      await get(port, `/v1/keys/${ids['send']}`, key),
      await patch(port, ids['send'] ?? '', { name: 'x' }, key),
      await revoke(port, ids['admin'] ?? '', key),
    ])
      t.match(got, { status: 404, text: /"key key_/ })
  }
  const own = { ...KEY, domains: ['acme.com'], allowed_ips: ['127.0.0.1'] }
  const made = await post(port, '/v1/keys', own, 'limited')
  const id = String(made.json.data?.['id'])
  for (const change of [
    { domains: [] },
    { domains: ['other.com'] },
    { allowed_ips: [] },
    { allowed_ips: ['0.0.0.0/0'] },
  ]) {
    const { status, json } = await patch(port, id, change, 'limited')
    t.match({ status, json }, { status: 403, json: { error: { code: 'forbidden' } } }, JSON.stringify(change))
  }
  t.equal((await patch(port, id, { name: 'y', domains: null }, 'limited')).status, 200)
  t.equal((await revoke(port, id, 'limited')).status, 200)
})

t.test('a key that expires makes none that outlives it, and nobody who opens the console', async (t) => {
  const { port, clock, features } = await startApi(t)
  const seconds = Math.floor(clock.now() / 1_000) + 3_600
  const admin = { name: 'x', mode: 'live' as const, scopes: ['admin'], domains: [], allowedIps: [], expiresAt: null }
  const { key: short } = await features.apiKeys.create({ ...admin, expiresAt: seconds * 1_000 })
  const { key: here } = await features.apiKeys.create({ ...admin, allowedIps: ['127.0.0.1'] })
  const asked = (key: string, path: string, fields: object, method = 'POST') =>
    ask(port, { method, path, key: null, headers: { Authorization: `Bearer ${key}` }, body: JSON.stringify(fields) })
  for (const expires_at of [undefined, seconds + 1]) {
    const refused = await asked(short, '/v1/keys', { ...KEY, expires_at })
    t.match(refused, { status: 403, text: /expires_at: later than that of this key/ })
  }
  const made = await asked(short, '/v1/keys', { ...KEY, expires_at: seconds })
  t.equal(made.status, 201)
  const path = `/v1/keys/${String(made.json.data?.['id'])}`
  t.equal((await asked(short, path, { expires_at: seconds + 1 }, 'PATCH')).status, 403)
  t.equal((await asked(short, path, { name: 'y' }, 'PATCH')).status, 200)
  const lasting = await features.apiKeys.create({ ...admin, domains: ['acme.com'], allowedIps: ['10.0.0.0/8'] })
  const longer = `/v1/keys/${lasting.record.id}`
  for (const more of [{ domains: ['acme.com', 'other.com'] }, { domains: [] }, { allowed_ips: ['0.0.0.0/0'] }]) {
    const refused = await asked(short, longer, more, 'PATCH')
    t.match(refused, { status: 403, text: /expires_at: later/ }, `${JSON.stringify(more)} would outlive it`)
  }
  const less = { name: 'y', allowed_ips: ['10.1.0.0/16'], domains: ['acme.com'] }
  t.equal((await asked(short, longer, less, 'PATCH')).status, 200, 'less is granted to any')
  t.equal((await asked(short, longer, { domains: ['other.com'], expires_at: seconds }, 'PATCH')).status, 200)
  for (const key of [short, here]) {
    const { status, text } = await asked(key, '/v1/admin/people', { name: 'eve', role: 'owner' })
    t.match({ status, text }, { status: 403, text: /lets nobody into the console/ })
  }
})

t.test('the last live admin key stays, but for the administrator', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-keys-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const socketPath = join(folder, 'admin.sock')
  const { port, features } = await startApi(t, { adminSocket: socketPath })
  const ids = await keysSeenBy(port, 'admin')
  t.equal((await revoke(port, ids['limited'] ?? '')).status, 200)
  const last = await revoke(port, ids['admin'] ?? '')
  t.match(last, { status: 409, json: { error: { code: 'conflict' } } })
  t.equal((await get(port, '/v1/keys')).status, 200)
  const path = `/v1/keys/${ids['admin']}`
  const body = JSON.stringify({ expires_at: 4_000_000_000 })
  const fields = { name: 'x', mode: 'live' as const, scopes: ['admin'], domains: [], allowedIps: [] }
  const { key } = await features.apiKeys.create({ ...fields, expiresAt: 4_000_000_000_000 })
  const headers = { Authorization: `Bearer ${key}` }
  const ending = await ask(port, { method: 'PATCH', path, body, key: null, headers })
  t.match(ending, { status: 409, json: { error: { code: 'conflict' } } }, 'none would be left then')
  t.equal((await ask(0, { method: 'PATCH', path, body, key: null, socketPath })).status, 200)
  const byAdministrator = await ask(0, { method: 'DELETE', path: `/v1/keys/${ids['admin']}`, key: null, socketPath })
  t.equal(byAdministrator.status, 200)
  t.equal((await get(port, '/v1/keys')).status, 401)
})

t.test('more keys than the limit are refused', async (t) => {
  const { port } = await startApi(t, { api: { counts_max: { domains: 2, webhooks: 50, keys: 11 } } })
  t.equal((await post(port, '/v1/keys', KEY)).status, 201)
  const refused = await post(port, '/v1/keys', KEY)
  t.match(refused, { status: 409, json: { error: { code: 'conflict' } } })
})

t.test('an address is put on the list once, found, and taken off', async (t) => {
  const { port, clock, log } = await startApi(t)
  const first = await post(port, '/v1/suppressions', { email: 'Ada@EXAMPLE.net', scope: 'news' }, 'suppressions')
  t.equal(first.status, 201)
  t.match(first.json.data, {
    id: /^sup_/,
    email: 'ada@example.net',
    reason: 'manual',
    scope: 'news',
    message_id: null,
    created_at: clock.now() / 1_000,
  })
  const again = await post(port, '/v1/suppressions', { email: 'Ada@example.net', scope: 'news' })
  t.equal(again.status, 200)
  t.equal(again.text, first.text)
  t.equal((await post(port, '/v1/suppressions', { email: 'Ada@example.net' })).status, 201, 'another scope')
  t.equal(log.filter(({ msg }) => msg === 'suppression added').length, 2)
  const counts: [string, number][] = [
    ['', 2],
    ['?email=Ada@example.net', 2],
    ['?email=ada@example.net', 2],
    ['?email=ad@example.net', 0],
    ['?scope=all', 1],
    ['?reason=complaint', 0],
    [`?since=${clock.now() / 1_000 + 1}`, 0],
    ['?limit=1', 1],
  ]
  for (const [query, count] of counts) {
    const { json } = await get(port, `/v1/suppressions${query}`, 'suppressions')
    t.equal(json.data?.['length'], count, query)
  }
  const remove = (path: string): Promise<Got> => ask(port, { method: 'DELETE', path: `/v1/suppressions/${path}` })
  t.same((await remove('Ada%40example.net?scope=news')).json.data, { email: 'Ada@example.net', deleted: 1 })
  t.equal((await remove('Ada@example.net?scope=news')).status, 404)
  t.same((await remove('Ada@example.net')).json.data, { email: 'Ada@example.net', deleted: 1 })
  t.equal((await remove('Ada@example.net')).status, 404)
  const told = log.filter(({ msg }) => msg === 'suppression removed')
  t.match(told, [{ domain: 'example.net', scope: 'news', deleted: 1 }, { deleted: 1 }])
  const { text } = await get(port, '/v1/admin/audit?q=suppression')
  t.match(text, /suppression removed/)
  t.notMatch(`${JSON.stringify(told)}${text}`, /Ada@/i, 'who was on the list is in no log and no audit')
})

t.test('wrong entries and queries of the list are refused', async (t) => {
  const { port } = await startApi(t)
  const bodies: [object, RegExp][] = [
    [{}, /^email: is missing/],
    [{ email: 'x' }, /^email: /],
    [{ email: 'a@b.de', reason: 'x' }, /^reason: /],
    [{ email: 'a@b.de', scope: 'X Y' }, /^scope: /],
    [{ email: 'a@b.de', reason: 'complaint', scope: 'news' }, /^scope: /],
    [{ email: 7, reason: [] }, /^email: .*; reason: /],
  ]
  for (const [body, details] of bodies) {
    t.match(await post(port, '/v1/suppressions', body), { status: 422, json: { error: { details } } })
  }
  for (const query of ['email=x', 'reason=x', 'scope=X', 'since=x', 'after=x', 'after=0', 'after=01', 'limit=x']) {
    const { status, json } = await get(port, `/v1/suppressions?${query}`)
    t.equal(status, 422, query)
    t.match(json.error?.details, query.split('=')[0] ?? '')
  }
  t.equal((await ask(port, { method: 'DELETE', path: '/v1/suppressions/nonsense' })).status, 422)
})

t.test('the list of test keys is another one', async (t) => {
  const { port } = await startApi(t)
  await post(port, '/v1/suppressions', { email: 'ada@example.net' }, 'test')
  t.same((await get(port, '/v1/suppressions')).json.data, [])
  t.equal((await get(port, '/v1/suppressions', 'test')).json.data?.['length'], 1)
  t.equal((await post(port, '/v1/email/send', VALID_SEND)).json.status, undefined)
  t.equal((await post(port, '/v1/email/send', VALID_SEND, 'test')).json.status, 'suppressed')
})

t.test('a CSV file is imported; bad lines are counted and told', async (t) => {
  const { port, log } = await startApi(t)
  const load = (body: string | Uint8Array, type = 'text/csv; charset=utf-8'): Promise<Got> =>
    ask(port, { path: '/v1/suppressions/import', headers: { 'Content-Type': type }, body })
  const file = '\ufeffemail,reason,scope\r\na@b.de,complaint,all\r\n"c@d.de",,news\r\nnonsense,,\r\na@b.de,,\r\n'
  const imported = await load(file)
  t.match(imported.json.data, { added: 2, existing: 1, rejected: 1, errors: [/^line 4: email: /] })
  t.match(
    log.find(({ msg }) => msg === 'suppressions imported'),
    { added: 2 },
  )
  t.equal((await get(port, '/v1/suppressions')).json.data?.['length'], 2)
  t.equal((await load(file, 'application/json')).status, 415)
  t.equal((await load('name\nx\n')).status, 422)
  t.equal((await load('')).status, 422)
  t.equal((await load(Buffer.from([0x65, 0xff]))).status, 400)
  const large = await load(Buffer.alloc(10 * 1024 * 1024 + 1, 'a'))
  t.match(large, { status: 413, json: { error: { code: 'payload_too_large' } } })
})
