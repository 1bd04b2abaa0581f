/**
 * Requests and answers of the API: routes, order of checks, headers, the envelope.
 */
import t from 'tap'
import type { Middleware } from 'koa'
import { ServiceError } from '../../src/base/errors.ts'
import {
  ACCEPTED_AT, ask, get, MESSAGE_ID, post, rawConnection, startApi, TEST_EVENT, VALID_SEND,
} from './api-server.ts'
import type { Asked, KeyName } from './api-server.ts'
import { until } from '../support/until.ts'

const PREFIXES = ['/v1', '/api/v1']

t.test('a send answers with exactly three fields, under both prefixes', async (t) => {
  const api = await startApi(t)
  for (const prefix of PREFIXES) {
    const { status, text, headers } = await post(api.port, `${prefix}/email/send`, VALID_SEND, 'send')
    t.equal(status, 200)
    t.equal(text, `{"success":true,"message_id":"${MESSAGE_ID}","timestamp":${ACCEPTED_AT / 1000}}`)
    t.equal(headers['content-type'], 'application/json; charset=utf-8')
    t.equal(headers['cache-control'], 'no-store')
    t.match(headers['x-request-id'], /^req_[0-9a-hjkmnp-tv-z]{26}$/)
    t.notOk(headers['x-service-warnings'])
    t.notOk(headers['x-service-mode'])
    t.notOk(headers['access-control-allow-origin'])
  }
  const line = api.log.find(({ msg }) => msg === 'message accepted')
  t.match(line, { message_id: MESSAGE_ID, request_id: /^req_/, api_key: 'send …9f3a', part: 'http' })
})

t.test('all fields of a send arrive as given, null and absent are the same', async (t) => {
  const { port, accepted } = await startApi(t)
  const attachments = [{ name: 'a.txt', content: 'QQ==', content_type: 'text/plain', content_id: null }]
  const more = { reply_to: 'help@acme.com', attachments, variables: { no: 1042 }, html: null }
  await post(port, '/v1/email/send', { ...VALID_SEND, ...more }, 'send')
  t.same(accepted[0], {
    request: {
      to: 'ada@example.net', from: 'Acme <orders@acme.com>', subject: 'Order', html: undefined, text: 'Hi',
      replyTo: 'help@acme.com',
      attachments: [{ name: 'a.txt', content: 'QQ==', contentType: 'text/plain', contentId: undefined }],
      variables: { no: 1042 },
      wrongTypes: [],
    },
    caller: { apiKeyId: 'key_01kapg6t3vq8x2m5r7w9y4c6d0', mode: 'live', domains: [], source: 'api' },
  })
  await post(port, '/v1/email/send', { ...VALID_SEND, variables: null }, 'send')
  t.equal(accepted[1]?.request.variables, null)
  await post(port, '/v1/email/send', { ...VALID_SEND, variables: {} }, 'send')
  t.same(accepted[2]?.request.variables, {})
})

t.test('a missing recipient is invalid_recipient and the details list the other problems', async (t) => {
  const { port } = await startApi(t)
  for (const to of [undefined, null, 5, ['a@b.c'], {}, 'a\u0000@example.net', 'a\ud800@example.net']) {
    const { status, json } = await post(port, '/v1/email/send', { ...VALID_SEND, to, subject: 7 }, 'send')
    t.equal(status, 422)
    t.equal(json.error?.code, 'invalid_recipient', `to: ${JSON.stringify(to)}`)
    t.equal(json.error?.message, 'The recipient address is not valid.')
    if (!JSON.stringify(to)?.includes('\\u')) t.match(json.error?.details, 'subject: expected a string, got a number')
  }
})

t.test('a wrong type is named with its path, what was expected and what came', async (t) => {
  const { port } = await startApi(t)
  const cases: [object, string][] = [
    [{ subject: 5 }, 'subject: expected a string, got a number'],
    [{ subject: undefined }, 'subject: is missing'],
    [{ from: null }, 'from: is missing'],
    [{ html: ['x'] }, 'html: expected a string, got a list'],
    [{ variables: [] }, 'variables: expected an object'],
    [{ variables: 'x' }, 'variables: expected an object'],
    [{ attachments: {} }, 'attachments: expected a list, got an object'],
    [{ attachments: [7] }, 'attachments[0]: expected an object, got a number'],
    [
      { attachments: [{ name: 'a', content: 'QQ==' }, { name: true }] },
      'attachments[1].name: expected a string, got true or false; attachments[1].content: is missing',
    ],
    [{ attachments: Array.from({ length: 21 }, () => ({})) }, 'attachments: 21 entries; at most 20 are allowed'],
    [{ text: 'a\u0000b' }, 'text: holds U+0000'],
    [{ text: 'a\u0000b', subject: 5 }, 'text: holds U+0000; subject: expected a string, got a number'],
    [
      { attachments: Array.from({ length: 21 }, () => 1), subject: 5 },
      'attachments: 21 entries; at most 20 are allowed; subject: expected a string, got a number',
    ],
    [{ variables: { name: 'x\udc00' } }, 'variables.name: holds an unpaired surrogate'],
    [{ attachments: [{ name: '\u0000', content: '' }] }, 'attachments[0].name: holds U+0000'],
  ]
  for (const [fields, details] of cases) {
    const { status, json } = await post(port, '/v1/email/send', { ...VALID_SEND, ...fields }, 'send')
    t.equal(status, 422, details)
    t.same(json, { success: false, error: { code: 'invalid_request', message: 'The request is not valid.', details } })
  }
})

t.test('the first failing check answers', async (t) => {
  const { port, accepted } = await startApi(t)
  const text = { 'Content-Type': 'text/plain' }
  const json = { 'Content-Type': 'application/json' }
  const large = { ...json, 'Content-Length': String(41 * 1024 * 1024) }
  const longBody = { ...json, 'Content-Length': String(256 * 1024 + 1) }
  const wrong = { headers: text, body: '{' }
  const cases: [at: string, asked: Asked, status: number, code: string][] = [
    ['no key before path', { path: '/v1/nope', key: null, ...wrong }, 401, 'unauthorized'],
    ['no key before method', { path: '/v1/email/send', method: 'PUT', key: null, ...wrong }, 401, 'unauthorized'],
    ['path before type', { path: '/v1/nope', key: 'read', ...wrong }, 404, 'not_found'],
    ['method before scope', { path: '/v1/keys', method: 'PUT', key: 'read', ...wrong }, 405, 'method_not_allowed'],
    ['scope before type', { path: '/v1/email/send', key: 'read', ...wrong }, 403, 'forbidden'],
    ['type before size', { path: '/v1/email/send', headers: { ...large, ...text } }, 415, 'invalid_request'],
    ['size before syntax', { path: '/v1/email/send', key: 'send', headers: large }, 413, 'attachment_too_large'],
    ['size elsewhere', { path: '/v1/webhooks', key: 'webhooks', headers: longBody }, 413, 'payload_too_large'],
    ['syntax before fields', { path: '/v1/email/send', key: 'send', body: '{"to":5' }, 400, 'invalid_request'],
    ['fields', { path: '/v1/email/send', key: 'send', body: '{"to":"a@b.c"}' }, 422, 'invalid_request'],
    ['no path outside the prefixes', { path: '/nope', key: null, ...wrong }, 404, 'not_found'],
  ]
  for (const [at, asked, status, code] of cases) {
    const got = await ask(port, { body: '{', ...asked })
    t.equal(got.status, status, at)
    t.equal(got.json.error?.code, code, at)
    t.type(got.json.error?.details, 'string')
    t.equal(got.json.success, false)
  }
  t.equal(accepted.length, 1, 'only the last one came as far as the feature')
})

t.test('only the header Authorization: Bearer carries a key', async (t) => {
  const { port } = await startApi(t)
  const path = '/v1/domains/acme.com'
  for (const Authorization of ['Bearer domains', 'bearer domains', 'BEARER   domains']) {
    const { status } = await ask(port, { method: 'GET', path, key: null, headers: { Authorization } })
    t.equal(status, 200, Authorization)
  }
  const wrong = ['', 'Bearer', 'Basic domains', 'domains', 'Bearer domains x', 'Bearer wrong', 'Bearer __proto__']
  for (const Authorization of wrong) {
    const { status, headers, json } = await ask(port, { method: 'GET', path, key: null, headers: { Authorization } })
    t.equal(status, 401, Authorization)
    t.equal(headers['www-authenticate'], 'Bearer')
    t.equal(json.error?.message, 'The API key is invalid.')
  }
  t.equal((await get(port, `${path}?api_key=domains`, null)).status, 401)
})

t.test('every route asks for its scope, and names it', async (t) => {
  const { port } = await startApi(t)
  const routes: [string, string, string][] = [
    ['POST', '/email/send', 'send'],
    ['GET', `/email/${MESSAGE_ID}`, 'messages:read'],
    ['GET', `/email/${MESSAGE_ID}/events`, 'messages:read'],
    ['POST', '/domains', 'domains'],
    ['GET', '/domains', 'domains'],
    ['GET', '/domains/acme.com', 'domains'],
    ['PATCH', '/domains/acme.com', 'domains'],
    ['DELETE', '/domains/acme.com', 'domains'],
    ['GET', '/domains/acme.com/zonefile', 'domains'],
    ['POST', '/domains/acme.com/dkim/rotate', 'domains'],
    ['POST', '/domains/acme.com/verify', 'domains'],
    ['POST', '/webhooks', 'webhooks'],
    ['POST', '/keys', 'admin'],
  ]
  const keyOf: Record<string, KeyName> = {
    send: 'send', 'messages:read': 'read', domains: 'domains', webhooks: 'webhooks', admin: 'admin',
  }
  for (const [method, path, scope] of routes) {
    for (const [other, key] of Object.entries(keyOf)) {
      const { status, json } = await ask(port, { method, path: `/v1${path}`, key })
      const isAllowed = other === scope || other === 'admin'
      t.equal(status === 403, !isAllowed, `${method} ${path} with the scope ${other}`)
      if (!isAllowed) t.equal(json.error?.details, `the key lacks the scope ${scope}`)
    }
  }
})

t.test('a known path with another method is 405 with Allow, and a fixed path is no parameter', async (t) => {
  const { port } = await startApi(t)
  const cases: [string, string, string][] = [
    ['GET', '/v1/email/send', 'POST'],
    ['DELETE', `/v1/email/${MESSAGE_ID}`, 'GET, HEAD'],
    ['OPTIONS', '/api/v1/domains/acme.com', 'DELETE, GET, HEAD, PATCH'],
    ['PUT', '/v1/domains', 'GET, HEAD, POST'],
    ['DELETE', '/v1/domains/acme.com/zonefile', 'GET, HEAD'],
    ['POST', '/health', 'GET, HEAD'],
    ['PROPFIND', '/v1/webhooks', 'POST'],
  ]
  for (const [method, path, allow] of cases) {
    const { status, headers, json } = await ask(port, { method, path })
    t.equal(status, 405, `${method} ${path}`)
    t.equal(headers.allow, allow)
    t.equal(json.error?.code, 'method_not_allowed')
  }
})

t.test('paths are case-sensitive, a trailing slash is ignored', async (t) => {
  const { port } = await startApi(t)
  t.equal((await post(port, '/v1/email/send/', VALID_SEND)).status, 200)
  t.equal((await post(port, '/api/v1/email/send/', VALID_SEND)).status, 200)
  const unknown = ['/v1', '/v1/', '/api/email/send', '/v1/email%2Fsend', '/v2/email/send', '//v1/email/send']
  for (const path of [...unknown, '/v1/Email/send', '/V1/email/send', '/v1/email/send//', '/v1/../v1/email/send']) {
    t.equal((await post(port, path, VALID_SEND)).status, 404, path)
  }
})

t.test('messages are looked up with their events', async (t) => {
  const { port } = await startApi(t)
  const found = await get(port, `/v1/email/${MESSAGE_ID}`, 'read')
  t.equal(found.status, 200)
  t.equal(found.json.data?.['message_id'], MESSAGE_ID)
  const events = await get(port, `/v1/email/${MESSAGE_ID}/events`, 'read')
  t.same(events.json, { success: true, data: [TEST_EVENT], has_more: false, next_cursor: null })
  const unknown = ['msg_unknown', 'msg_unknown/events', '%00', '__proto__']
  for (const path of unknown.map((id) => `/v1/email/${id}`)) {
    const { status, json } = await get(port, path, 'read')
    t.equal(status, 404, path)
    t.equal(json.error?.code, 'not_found')
  }
})

t.test('a message of a domain that is not for this key looks like one that does not exist', async (t) => {
  const { port } = await startApi(t)
  const foreign = await get(port, `/v1/email/${MESSAGE_ID}`, 'limited')
  const unknown = await get(port, '/v1/email/msg_unknown', 'limited')
  t.equal(foreign.status, 404)
  t.equal(foreign.text.replace(MESSAGE_ID, 'msg_unknown'), unknown.text)
  t.equal((await get(port, `/v1/email/${MESSAGE_ID}/events`, 'limited')).status, 404)
})

t.test('HEAD answers as GET without a body', async (t) => {
  const { port } = await startApi(t)
  const whole = await get(port, '/health', null)
  const head = await ask(port, { method: 'HEAD', path: '/health', key: null })
  t.equal(head.status, 200)
  t.equal(head.text, '')
  t.equal(head.headers['content-length'], whole.headers['content-length'])
  t.equal((await ask(port, { method: 'HEAD', path: '/v1/email/msg_unknown', key: 'read' })).status, 404)
})

t.test('health needs no key and is 503 when no mail is accepted', async (t) => {
  const healthy = await startApi(t)
  for (const path of ['/health', '/v1/health', '/api/v1/health']) {
    const { status, json } = await get(healthy.port, path, null)
    t.equal(status, 200, path)
    t.same(json.data, { status: 'ok', queue_depth: 12, oldest_due_seconds: 3, db: 'ok', smtp_out: 'ok' })
  }
  const report = { status: 'unavailable', queue_depth: 0, oldest_due_seconds: 0, db: 'down', smtp_out: 'ok' } as const
  const ill = await startApi(t, { features: { health: async () => report } })
  const { status, headers, json } = await get(ill.port, '/health', null)
  t.equal(status, 503)
  t.ok(Number(headers['retry-after']) > 0)
  t.equal(json.error?.code, 'unavailable')
})

t.test('a webhook is 201; a generated secret is shown, a given one never', async (t) => {
  const { port, created } = await startApi(t)
  const generated = await post(port, '/v1/webhooks', { url: 'https://app.acme.com/hooks' })
  t.equal(generated.status, 201)
  t.equal(generated.json.data?.['secret'], 'whsec_generated')
  t.same(created.webhook[0], { url: 'https://app.acme.com/hooks', events: null, secret: null, description: null })
  const all = { url: 'https://app.acme.com/hooks', events: ['*'], secret: 'short' }
  const given = await post(port, '/api/v1/webhooks', all)
  t.notMatch(given.text, 'short')
  t.match(given.headers['x-service-warnings'], /secret/)
  t.equal((await post(port, '/v1/webhooks', { url: 7 })).status, 422)
  const many = await post(port, '/v1/webhooks', { url: 'https://x.de', events: Array.from({ length: 51 }, () => '*') })
  t.match(many.json.error?.details, 'events: 51 entries')
})

t.test('a key is 201 and shown once', async (t) => {
  const { port, created } = await startApi(t)
  const given = { name: 'shop', mode: 'live', scopes: ['send'] }
  const { status, json } = await post(port, '/v1/keys', { ...given, expires_at: 1_800_000_000 })
  t.equal(status, 201)
  t.same(json.data, {
    id: 'key_01kapg6t3vq8x2m5r7w9y4c6d0', name: 'shop', mode: 'live', scopes: ['send'], domains: [], allowed_ips: [],
    prefix: 'sk_live_', last4: '9f3a', key: 'sk_live_secret9f3a', created_at: ACCEPTED_AT / 1000,
    expires_at: 1_800_000_000, last_used_at: null, revoked_at: null,
  })
  t.same(created.key[0], { ...given, domains: [], allowedIps: [], expiresAt: 1_800_000_000_000 })
  const wrong = await post(port, '/v1/keys', { mode: 'both', scopes: 'send', expires_at: 1.5 })
  t.same(wrong.json.error?.details.split('; '), [
    'name: is missing', 'mode: expected one of live, test', 'scopes: expected a list, got a string',
    'expires_at: expected a whole number, got a number',
  ])
})

t.test('a key cannot make one that may do more than itself', async (t) => {
  const { port, created } = await startApi(t)
  const key = { name: 'x', mode: 'live', scopes: ['send'], domains: ['acme.com'], allowed_ips: ['127.0.0.1'] }
  t.equal((await post(port, '/v1/keys', key, 'limited')).status, 201)
  for (const wider of [
    { domains: [] }, { domains: null }, { domains: ['acme.com', 'other.com'] }, { allowed_ips: [] },
    { allowed_ips: ['0.0.0.0/0'] }, { allowed_ips: ['127.0.0.0/7'] }, { allowed_ips: ['127.0.0.1', '10.0.0.1'] },
  ]) {
    const { status, json } = await post(port, '/v1/keys', { ...key, ...wider }, 'limited')
    t.equal(status, 403, JSON.stringify(wider))
    t.equal(json.error?.code, 'forbidden')
  }
  t.equal((await post(port, '/v1/keys', key, 'test')).status, 403, 'a test key makes no live key')
  t.equal((await post(port, '/v1/keys', { ...key, mode: 'test' }, 'test')).status, 201)
  t.equal(created.key.length, 2)
})

t.test('unknown fields are accepted and named in X-Service-Warnings', async (t) => {
  const { port } = await startApi(t)
  const attachments = [{ name: 'a', content: '', filename: 'b' }]
  const body = { ...VALID_SEND, cc: ['x@y.z'], 'größe,1': 1, attachments }
  const { status, headers } = await post(port, '/v1/email/send', body)
  t.equal(status, 200)
  t.equal(headers['x-service-warnings'], 'cc,gr\\u00f6\\u00dfe\\u002c1,attachments[0].filename')
  const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`field\r\n${index}`, 1]))
  const long = await post(port, '/v1/email/send', { ...VALID_SEND, ...many })
  const value = String(long.headers['x-service-warnings'])
  t.ok(value.length > 500 && value.length <= 1_000, `${value.length} bytes`)
  t.match(value, /^[\x20-\x7e]+$/)
  const refused = await post(port, '/v1/email/send', { to: 5, tpo: 'a@b.c' })
  t.equal(refused.headers['x-service-warnings'], 'tpo', 'a refusal names them too')
})

t.test('a harmless request id of the client is kept, another one is replaced', async (t) => {
  const { port } = await startApi(t)
  const idFor = async (id: string) =>
    (await ask(port, { method: 'GET', path: '/health', headers: { 'X-Request-Id': id } })).headers['x-request-id']
  t.equal(await idFor('order-1042.A_b'), 'order-1042.A_b')
  t.equal(await idFor('a'.repeat(128)), 'a'.repeat(128))
  for (const id of ['', 'a'.repeat(129), 'a b', 'a"b', 'é', '<x>']) t.match(await idFor(id), /^req_/, id)
})

t.test('X-Service-Mode tells of test keys and of a sandbox server', async (t) => {
  const live = await startApi(t)
  t.equal((await post(live.port, '/v1/email/send', VALID_SEND, 'test')).headers['x-service-mode'], 'test')
  t.equal((await post(live.port, '/v1/email/send', {}, 'test')).headers['x-service-mode'], 'test', 'on errors too')
  t.equal((await post(live.port, '/v1/email/send', VALID_SEND)).headers['x-service-mode'], undefined)
  const sandbox = await startApi(t, { testMode: true })
  t.equal((await get(sandbox.port, '/health', null)).headers['x-service-mode'], 'test')
})

t.test('nothing of the Host header or of an absolute target comes back', async (t) => {
  const { port } = await startApi(t)
  const headers = { Host: 'evil.example', 'X-Forwarded-Host': 'evil.example', Referer: 'https://evil.example/' }
  const absolute = ['http://evil.example/health', 'http://evil.example/v1/domains/acme.com', 'https://evil.example']
  for (const path of ['/health', '/v1/nope', '/', '/v1/email/send', ...absolute]) {
    const { headers: got, text } = await ask(port, { method: 'GET', path, headers })
    t.notMatch(`${JSON.stringify(got)}${text}`, 'evil.example', path)
  }
  t.equal((await ask(port, { method: 'GET', path: 'http://evil.example/health', key: null, headers })).status, 200)
  t.equal((await ask(port, { method: 'GET', path: 'http://[bad/health', key: null, headers })).status, 200)
  t.equal((await ask(port, { method: 'OPTIONS', path: '*', key: null })).status, 404)
})

t.test('a defect is 500 with the request id alone; the log has the rest', async (t) => {
  const fail = async () => {
    throw Object.assign(new Error('SQLITE_IOERR: /var/lib/secret.db'), { code: 'SQLITE_IOERR' })
  }
  const api = await startApi(t, { features: { acceptMessage: fail, lookupMessage: fail } })
  for (const got of [await post(api.port, '/v1/email/send', VALID_SEND), await get(api.port, '/v1/email/x')]) {
    const id = got.headers['x-request-id']
    t.equal(got.status, 500)
    t.same(got.json.error, { code: 'internal_error', message: 'Internal error.', details: `request ${id}` })
    const line = api.log.find(({ request_id }) => request_id === id)
    t.match(line, { level: 'error', error: /secret.db/, stack: /Error/ })
  }
})

t.test('every code has its status, its sentence and its headers; details are cut at 2,000 characters', async (t) => {
  const statuses = {
    invalid_recipient: 422, unauthorized: 401, domain_not_verified: 403, ip_not_warmed: 409, rate_limited: 429,
    attachment_too_large: 413, invalid_request: 422, forbidden: 403, not_found: 404, method_not_allowed: 405,
    conflict: 409, payload_too_large: 413, unavailable: 503, internal_error: 500,
  } as const
  let error = new ServiceError('conflict')
  const { port } = await startApi(t, { features: { acceptMessage: async () => Promise.reject(error) } })
  const messages = new Set<string>()
  for (const [code, status] of Object.entries(statuses)) {
    error = new ServiceError(code as keyof typeof statuses, '\ud83d\ude00'.repeat(1_500))
    const got = await post(port, '/v1/email/send', VALID_SEND)
    t.equal(got.status, status, code)
    t.equal(got.json.error?.code, code)
    t.equal(got.json.error?.details.length, 2_000)
    if ([429, 503].includes(status) || code === 'ip_not_warmed') t.match(got.headers['retry-after'], /^\d+$/, code)
    messages.add(got.json.error?.message ?? '')
  }
  t.equal(messages.size, Object.keys(statuses).length, 'one sentence per code')
  error = new ServiceError('ip_not_warmed', '', { headers: { 'Retry-After': '25200' } })
  const got = await post(port, '/v1/email/send', VALID_SEND)
  t.equal(got.headers['retry-after'], '25200', 'the header of the error wins')
  t.equal(got.json.error?.details, '', 'details are a string even when there is nothing to say')
})

t.test('handlers handed over run before the routes and may answer', async (t) => {
  const hello: Middleware = async (ctx, next) => {
    if (ctx.path !== '/dev/hello') return next()
    ctx.body = 'hello'
  }
  const failing: Middleware = async (ctx, next) => {
    if (ctx.path === '/dev/fail') throw new ServiceError('conflict', 'no')
    return next()
  }
  const { port } = await startApi(t, { extraHandlers: [hello, failing] })
  t.equal((await get(port, '/dev/hello', null)).text, 'hello')
  t.equal((await get(port, '/dev/fail', null)).status, 409)
  t.equal((await get(port, '/dev/nope', null)).status, 404)
  t.equal((await post(port, '/v1/email/send', VALID_SEND)).status, 200)
})

t.test('metrics have the pattern of the route, never the path, and count refused messages', async (t) => {
  const { port, metrics } = await startApi(t)
  await get(port, `/v1/email/${MESSAGE_ID}`)
  await ask(port, { method: 'PROPFIND', path: '/v1/whatever' })
  const text = await metrics.registry.getSingleMetricAsString('posthorn_http_request_seconds')
  t.match(text, 'route="/email/:id",method="GET",status="200"')
  t.match(text, 'route="none",method="other",status="404"')
  t.notMatch(text, /msg_|whatever/)
  await post(port, '/v1/email/send', { ...VALID_SEND, to: 5 })
  await ask(port, { path: '/v1/email/send', key: null })
  const rejected = await metrics.registry.getSingleMetricAsString('posthorn_messages_rejected_total')
  t.match(rejected, 'code="invalid_recipient"} 1')
  t.match(rejected, 'code="unauthorized"} 1')
})

t.test('a request without Host, or that is no HTTP, gets the envelope too', async (t) => {
  const { port } = await startApi(t)
  const cases: [string, number][] = [
    ['GET /health HTTP/1.1\r\n\r\n', 400],
    ['what is this\r\n\r\n', 400],
    [`GET /health HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(17_000)}\r\n\r\n`, 431],
    ['POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n', 400],
  ]
  for (const [text, status] of cases) {
    const connection = await rawConnection(port)
    connection.write(text)
    await until('an answer', () => connection.text().includes('}}'))
    t.match(connection.text(), new RegExp(`^HTTP/1.1 ${status} `))
    t.match(connection.text(), '"code":"invalid_request"')
    t.match(connection.text(), /X-Request-Id: req_/)
    connection.socket.destroy()
  }
})
