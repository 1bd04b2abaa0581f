/**
 * Request rate, failed logins, a full queue, and requests that are repeated with an Idempotency-Key.
 */
import { createHash } from 'node:crypto'
import t from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import { canonicalDigest } from '../../src/http/exchange/read-json.ts'
import {
  ask,
  get,
  keyNamed,
  post,
  sendOne,
  startApi,
  VALID_SEND,
  type Asked,
  type Got,
  type KeyName,
} from './api-server.ts'

const PER_SECOND = { count: 2, per_milliseconds: SECOND }
const PER_MINUTE = { count: 60, per_milliseconds: MINUTE }

t.test('every answer to a known key tells of the bucket nearest to empty', async (t) => {
  const api = { requests: PER_SECOND, requests_burst: 4, recipients: PER_MINUTE, recipients_burst: 20 }
  const { port, clock } = await startApi(t, { api })
  const rateOf = ({ headers }: Got): unknown[] =>
    ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset'].map((name) => headers[name])
  t.same(rateOf(await get(port, '/v1/domains')), ['4', '3', '1'])
  t.same(rateOf(await get(port, '/v1/nope')), ['4', '3', '1'], 'a path that is not there takes nothing')
  t.same(rateOf(await post(port, '/v1/email/send', {})), ['4', '2', '1'], 'a refused request takes one')
  t.same(rateOf(await get(port, '/health', null)), [undefined, undefined, undefined])
  t.same(rateOf(await get(port, '/v1/domains', null)), [undefined, undefined, undefined])
  await clock.advance(2 * SECOND)
  const recipients = Array.from({ length: 18 }, (_, index) => ({ to: `user${index}@example.net` }))
  const batch = { ...VALID_SEND, to: undefined, recipients }
  t.same(rateOf(await post(port, '/v1/email/batch', batch)), ['20', '2', '18'])
  const refused = await post(port, '/v1/email/batch', batch)
  t.match(refused, { status: 429, json: { error: { code: 'rate_limited', details: /recipients/ } } })
  t.equal(refused.headers['retry-after'], '16')
  t.same(rateOf(await get(port, '/v1/domains', 'domains')), ['4', '3', '1'], 'each key has its own')
})

t.test('an empty request bucket is 429 with Retry-After, before the body is read', async (t) => {
  const { port, clock } = await startApi(t, { api: { requests: PER_SECOND, requests_burst: 1 } })
  t.equal((await get(port, '/v1/domains')).status, 200)
  const headers = { 'Content-Type': 'text/html' }
  const refused = await ask(port, { path: '/v1/email/send', body: 'x', headers })
  t.match(refused, { status: 429, json: { error: { code: 'rate_limited' } }, headers: { 'retry-after': '1' } })
  await clock.advance(500)
  t.equal((await get(port, '/v1/domains')).status, 200, 'a refusal takes nothing')
})

t.test('more than 20 failed logins a minute from one address are told to wait; a good key is let in', async (t) => {
  const { port, clock } = await startApi(t)
  const headers = { Authorization: `Bearer sk_live_${'x'.repeat(40)}` }
  const fail = (): Promise<Got> => ask(port, { method: 'GET', path: '/v1/domains', key: null, headers })
  for (let count = 0; count < 20; count += 1) t.equal((await fail()).status, 401)
  await clock.advance(20 * SECOND)
  const refused = await fail()
  t.match(refused, { status: 429, json: { error: { code: 'rate_limited' } }, headers: { 'retry-after': '40' } })
  t.equal((await get(port, '/v1/domains')).status, 200)
  await clock.advance(40 * SECOND)
  t.equal((await fail()).status, 401)
})

t.test('failed logins of very many addresses take bounded memory', async (t) => {
  const { port } = await startApi(t, { http: { trusted_proxies: ['127.0.0.1'] } })
  const from = (address: string): Promise<Got> =>
    ask(port, { method: 'GET', path: '/v1/domains', key: null, headers: { 'X-Forwarded-For': address } })
  for (let count = 0; count < 21; count += 1) await from('198.51.100.7')
  t.equal((await from('198.51.100.7')).status, 429)
  t.equal((await from('198.51.100.8')).status, 401)
})

t.test('a full queue takes no mail until it has room; everything else goes on', async (t) => {
  const { port, clock } = await startApi(t, { api: { queue_max: 2 } })
  const ids = [await sendOne(port), await sendOne(port)]
  await clock.advance(SECOND)
  for (const path of ['/v1/email/send', '/v1/email/batch', `/v1/email/${ids[0]}/retry`]) {
    const { status, headers, json } = await ask(port, { path, key: null, body: '{}' })
    t.equal(status, 503, `${path}, before the key is looked at`)
    t.match(json.error, { code: 'unavailable', details: 'the queue is full' })
    t.equal(headers['retry-after'], '30')
  }
  t.equal((await get(port, '/v1/email')).status, 200)
  t.equal((await ask(port, { path: `/v1/email/${ids[0]}/cancel` })).status, 200)
  await clock.advance(SECOND)
  await sendOne(port)
})

t.test('a disk that is nearly full takes no mail for longer, until it has space', async (t) => {
  let hasSpace = false
  const { port } = await startApi(t, { hasSpace: () => hasSpace })
  t.match(await post(port, '/v1/email/send', VALID_SEND), {
    status: 503,
    headers: { 'retry-after': '60' },
    json: { error: { code: 'unavailable', details: 'the disk is nearly full' } },
  })
  t.equal((await get(port, '/v1/email')).status, 200)
  hasSpace = true
  await sendOne(port)
})

const withKey = (path: string, idempotencyKey: string, body: unknown, key: KeyName = 'admin'): Asked => ({
  path,
  key,
  headers: { 'Idempotency-Key': idempotencyKey },
  body: JSON.stringify(body),
})

t.test('a repeat gets the stored answer; nothing new is sent', async (t) => {
  const { port, clock } = await startApi(t)
  await post(port, '/v1/suppressions', { email: 'gone@example.net' })
  const cases: [path: string, body: object][] = [
    ['/v1/email/send', VALID_SEND],
    ['/v1/email/send', { ...VALID_SEND, to: 'gone@example.net', cc: ['b@example.net'] }],
    [
      '/v1/email/batch',
      { ...VALID_SEND, recipients: [{ to: 'x' }, { to: 'gone@example.net' }, { to: 'c@example.net' }] },
    ],
  ]
  for (const [index, [path, body]] of cases.entries()) {
    const first = await ask(port, withKey(path, `k${index}`, body))
    t.equal(first.status, 200)
    t.equal(first.headers['idempotent-replayed'], undefined)
    await clock.advance(MINUTE)
    const turned = Object.fromEntries(Object.entries(body).toReversed())
    const again = await ask(port, withKey(`/api${path}/`, `k${index}`, turned))
    t.equal(again.status, 200)
    t.equal(again.headers['idempotent-replayed'], 'true')
    t.equal(again.text, first.text, 'also what was suppressed')
  }
  const { json } = await get(port, '/v1/email')
  t.equal(json.data?.['length'], 5, 'one, two and two messages')
  const other = await ask(port, { ...withKey('/v1/email/send', 'k0', VALID_SEND, 'send') })
  t.equal(other.headers['idempotent-replayed'], undefined, 'a key of another API key is another key')
  const alias = { ...withKey('/v1/email/send', '', VALID_SEND), headers: { 'X-Idempotency-Key': 'k0' } }
  t.equal((await ask(port, alias)).headers['idempotent-replayed'], 'true')
  await clock.advance(24 * 60 * MINUTE)
  t.equal((await ask(port, withKey('/v1/email/send', 'k0', VALID_SEND))).headers['idempotent-replayed'], undefined)
})

t.test('another request with the same key is 409, a key that is none 400', async (t) => {
  const { port } = await startApi(t)
  await ask(port, withKey('/v1/email/send', 'k', VALID_SEND))
  for (const [path, body] of [
    ['/v1/email/send', { ...VALID_SEND, subject: 'other' }],
    ['/v1/email/preview', VALID_SEND],
    ['/v1/suppressions', { email: 'a@b.de' }],
  ] as const) {
    const { status, json } = await ask(port, withKey(path, 'k', body))
    if (path === '/v1/email/preview') t.equal(status, 200, 'a route that takes no key')
    else t.match({ status, json }, { status: 409, json: { error: { code: 'conflict' } } }, path)
  }
  for (const key of ['', 'a'.repeat(257), 'gr\u00fc\u00df', 'a\tb']) {
    const { status, json } = await ask(port, withKey('/v1/email/send', key, VALID_SEND))
    t.equal(status, 400)
    t.match(json.error, { code: 'invalid_request', details: /^Idempotency-Key: / })
  }
  t.equal((await ask(port, withKey('/v1/email/send', ' ~'.repeat(128).trim(), VALID_SEND))).status, 200)
  t.equal((await ask(port, withKey('/v1/email/send', 'bad', { to: 5 }))).status, 422)
  const mended = await ask(port, withKey('/v1/email/send', 'bad', VALID_SEND))
  t.equal(mended.status, 200, 'only successes are kept: a refused request changed nothing')
})

t.test('20 clients send the same at once: one message, and the others wait or get its answer', async (t) => {
  const { port } = await startApi(t)
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => ask(port, withKey('/v1/email/send', 'receipt-1042', VALID_SEND))),
  )
  const done = answers.filter(({ status }) => status === 200)
  const waiting = answers.filter(({ status }) => status === 409)
  t.equal(done.length + waiting.length, 20)
  t.equal(done.filter(({ headers }) => headers['idempotent-replayed'] === undefined).length, 1)
  t.equal(new Set(done.map(({ text }) => text)).size, 1)
  for (const { headers } of waiting) t.equal(headers['retry-after'], '1')
  t.equal((await get(port, '/v1/email')).json.data?.['length'], 1)
  const later = await ask(port, withKey('/v1/email/send', 'receipt-1042', VALID_SEND))
  t.equal(later.text, done[0]?.text)
})

t.test('a replay holds no secret', async (t) => {
  const { port } = await startApi(t)
  const cases: [path: string, body: object, secret: string, status: number][] = [
    ['/v1/keys', { name: 'x', mode: 'live', scopes: ['send'] }, 'key', 201],
    ['/v1/webhooks', { url: 'https://127.0.0.1/hooks' }, 'secret', 201],
    ['/v1/suppressions', { email: 'a@b.de' }, 'none', 201],
    ['/v1/domains', { domain: 'acme.com' }, 'none', 200],
  ]
  for (const [path, body, secret, status] of cases) {
    const first = await ask(port, withKey(path, path, body))
    t.equal(first.status, status, path)
    t.equal(typeof first.json.data?.[secret], secret === 'none' ? 'undefined' : 'string')
    const again = await ask(port, withKey(path, path, body))
    t.equal(again.status, status, path)
    t.equal(again.headers['idempotent-replayed'], 'true', path)
    const { [secret]: shown, ...rest } = first.json.data ?? {}
    t.same(again.json.data, rest, `${path}, without ${String(shown).slice(0, 8)}`)
  }
})

t.test('canonical JSON is the same for the same request, however it is written', async (t) => {
  const document = JSON.parse('{"b":[1.0,1e2,{"z":null,"a":"\\u00e4"}],"a":{"__proto__":1,"\\u0000":true}}')
  const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest()
  const canonical = '{"a":{"\\u0000":true,"__proto__":1},"b":[1,100,{"a":"ä","z":null}]}'
  t.same(canonicalDigest(document), sha256(canonical))
  const long = 'x'.repeat(70_000)
  t.same(canonicalDigest({ b: long, a: [long, long] }), sha256(`{"a":["${long}","${long}"],"b":"${long}"}`))
})

t.test('answers to a test key say so, on a live server too', async (t) => {
  const { port } = await startApi(t)
  const made = await post(port, '/v1/keys', { name: 'x', mode: 'test', scopes: ['send'] }, 'test')
  t.equal(made.status, 201)
  t.equal(made.headers['x-service-mode'], 'test')
  const key = String(made.json.data?.['key'])
  const sent = await ask(port, {
    path: '/v1/email/send',
    key: null,
    headers: { Authorization: `Bearer ${key}` },
    body: JSON.stringify(VALID_SEND),
  })
  t.equal(sent.status, 200)
  t.equal(sent.headers['x-service-mode'], 'test')
  t.equal(Object.keys(sent.json).length, 3)
  t.not(key, keyNamed('test'))
})

t.test('a large request is repeated and told apart like a small one', async (t) => {
  const { port } = await startApi(t)
  // Read by the thread for large bodies.
  const large = (text: string): object => ({ ...VALID_SEND, text: text.repeat(100_000) })
  const first = await ask(port, withKey('/v1/email/send', 'large', large('a')))
  t.equal(first.status, 200)
  const again = await ask(port, withKey('/v1/email/send', 'large', large('a')))
  t.equal(again.headers['idempotent-replayed'], 'true')
  t.equal(again.json.message_id, first.json.message_id)
  t.equal((await ask(port, withKey('/v1/email/send', 'large', large('b')))).status, 409)
})
