/**
 * Requests and answers of the API: routes, order of checks, headers, the envelope.
 */
import t from 'tap'
import {
  ask,
  get,
  keyNamed,
  post,
  sendOne,
  shareStore,
  startApi,
  VALID_SEND,
  type Asked,
  type KeyName,
} from './api-server.ts'

shareStore(t)

const PREFIXES = ['/v1', '/api/v1']
/** An id that nobody has. */
const NO_MESSAGE = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'

t.test('a send answers with exactly three fields, under both prefixes', async (t) => {
  const api = await startApi(t)
  for (const prefix of PREFIXES) {
    const { status, text, headers, json } = await post(api.port, `${prefix}/email/send`, VALID_SEND, 'send')
    t.equal(status, 200)
    t.equal(text, `{"success":true,"message_id":"${json.message_id}","timestamp":${api.clock.now() / 1000}}`)
    t.equal(headers['content-type'], 'application/json; charset=utf-8')
    t.equal(headers['cache-control'], 'no-store')
    t.match(headers['x-request-id'], /^req_[0-9a-hjkmnp-tv-z]{26}$/)
    t.notOk(headers['x-service-warnings'])
    t.notOk(headers['x-service-mode'])
    t.notOk(headers['access-control-allow-origin'])
  }
  const line = api.log.find(({ msg }) => msg === 'message accepted')
  t.match(line, {
    message_id: /^msg_/,
    request_id: /^req_/,
    api_key: 'send …9f3a',
    part: 'messages',
    recipient: 'ada@example.net',
    domain: 'acme.com',
    pool: 'default',
    source: 'api',
  })
})

t.test('all fields of a send arrive as given, null and absent are the same', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const attachments = [{ name: 'a.txt', content: 'QQ==', content_type: 'text/plain', content_id: null }]
  const more = { reply_to: 'help@acme.com', attachments, variables: { no: 1042 }, html: null }
  await post(port, '/v1/email/send', { ...VALID_SEND, ...more }, 'send')
  t.match(sends[0]?.caller, { apiKeyId: /^key_/, mode: 'live', domains: [], source: 'api' })
  t.same(sends[0]?.request, {
    to: 'ada@example.net',
    cc: [],
    bcc: [],
    from: 'Acme <orders@acme.com>',
    subject: 'Order',
    html: undefined,
    text: 'Hi',
    replyTo: 'help@acme.com',
    attachments: [{ name: 'a.txt', content: 'QQ==', contentType: 'text/plain', contentId: undefined }],
    variables: { no: 1042 },
    headers: undefined,
    tags: undefined,
    metadata: undefined,
    sendAt: undefined,
    expiresIn: undefined,
    ipPool: undefined,
    stream: undefined,
    track: undefined,
    unsubscribe: undefined,
    wrongTypes: [],
  })
  await post(port, '/v1/email/send', { ...VALID_SEND, variables: null }, 'send')
  t.equal(sends[1]?.request.variables, null)
  await post(port, '/v1/email/send', { ...VALID_SEND, variables: {} }, 'send')
  t.same(sends[2]?.request.variables, {})
  const emptyOfPhp = { variables: [], headers: [], tags: [], metadata: [] }
  await post(port, '/v1/email/send', { ...VALID_SEND, ...emptyOfPhp }, 'send')
  t.strictSame(sends.pop()?.request.variables, {}, 'an empty list is an empty object')
  const further = {
    cc: ['b@example.net'],
    bcc: ['c@example.net'],
    headers: { 'X-A': 'b' },
    tags: { a: 'b' },
    metadata: { a: [1] },
    stream: 'bulk',
    track: { opens: false },
    unsubscribe: { list: 'news' },
  }
  const numbers = { send_at: 1_795_300_000, expires_in: 600, ip_pool: 'spare' }
  t.equal((await post(port, '/v1/email/send', { ...VALID_SEND, ...further, ...numbers }, 'send')).status, 200)
  t.match(sends[3]?.request, {
    ...further,
    track: { opens: false, clicks: undefined },
    unsubscribe: { list: 'news', url: undefined },
    sendAt: 1_795_300_000,
    expiresIn: 600,
    ipPool: 'spare',
  })
  await post(port, '/v1/email/send', { ...VALID_SEND, unsubscribe: false }, 'send')
  t.equal(sends[4]?.request.unsubscribe, false)
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
    [{ variables: [1] }, 'variables: expected an object'],
    [{ variables: 'x' }, 'variables: expected an object'],
    [{ attachments: {} }, 'attachments: expected a list, got an object'],
    [{ attachments: 'QUJD'.repeat(20) }, 'attachments: expected a list, got a string'],
    [{ send_at: 1e16 }, 'send_at: expected a Unix time in seconds'],
    [{ send_at: '2026-11-30T12:00:00Z' }, 'send_at: expected a Unix time in seconds'],
    [{ expires_in: '1h' }, 'expires_in: expected a whole number of seconds'],
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
  const { port, seen } = await startApi(t)
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
  t.equal(seen.sends.length, 1, 'only the last one came as far as the feature')
})

t.test('only the header Authorization: Bearer carries a key', async (t) => {
  const { port } = await startApi(t)
  const path = '/v1/domains/acme.com'
  const key = keyNamed('domains')
  for (const Authorization of [`Bearer ${key}`, `bearer ${key}`, `BEARER   ${key}`]) {
    const { status } = await ask(port, { method: 'GET', path, key: null, headers: { Authorization } })
    t.equal(status, 200, Authorization)
  }
  const wrong = ['', 'Bearer', `Basic ${key}`, key, `Bearer ${key} x`, `Bearer ${key}x`, 'Bearer __proto__']
  for (const Authorization of wrong) {
    const { status, headers, json } = await ask(port, { method: 'GET', path, key: null, headers: { Authorization } })
    t.equal(status, 401, Authorization)
    t.equal(headers['www-authenticate'], 'Bearer')
    t.equal(json.error?.message, 'The API key is invalid.')
  }
  t.equal((await get(port, `${path}?api_key=${key}`, null)).status, 401)
})

t.test('every route asks for its scope, and names it', async (t) => {
  const { port } = await startApi(t)
  const routes: [string, string, string][] = [
    ['POST', '/email/send', 'send'],
    ['POST', '/email/batch', 'send'],
    ['POST', '/email/preview', 'send'],
    ['GET', '/email', 'messages:read'],
    ['GET', `/email/${NO_MESSAGE}`, 'messages:read'],
    ['GET', `/email/${NO_MESSAGE}/events`, 'messages:read'],
    ['GET', `/email/${NO_MESSAGE}/explain`, 'messages:read'],
    ['GET', `/email/${NO_MESSAGE}/transcript`, 'messages:read'],
    ['POST', `/email/${NO_MESSAGE}/cancel`, 'send'],
    ['POST', `/email/${NO_MESSAGE}/retry`, 'send'],
    ['GET', '/email/batch/x', 'messages:read'],
    ['POST', '/email/batch/x/cancel', 'send'],
    ['GET', '/suppressions', 'suppressions'],
    ['POST', '/suppressions', 'suppressions'],
    ['POST', '/suppressions/import', 'suppressions'],
    ['DELETE', '/suppressions/x@y.de', 'suppressions'],
    ['POST', '/domains', 'domains'],
    ['GET', '/domains', 'domains'],
    ['GET', '/domains/acme.com', 'domains'],
    ['PATCH', '/domains/acme.com', 'domains'],
    ['DELETE', '/domains/new.com', 'domains'],
    ['GET', '/domains/acme.com/zonefile', 'domains'],
    ['POST', '/domains/acme.com/dkim/rotate', 'domains'],
    ['POST', '/domains/acme.com/verify', 'domains'],
    ['POST', '/webhooks', 'webhooks'],
    ['POST', '/keys', 'admin'],
    ['GET', '/keys', 'admin'],
    ['GET', '/keys/x', 'admin'],
    ['PATCH', '/keys/x', 'admin'],
    ['DELETE', '/keys/x', 'admin'],
  ]
  const keyOf: Record<string, KeyName> = {
    send: 'send',
    'messages:read': 'read',
    domains: 'domains',
    webhooks: 'webhooks',
    suppressions: 'suppressions',
    admin: 'admin',
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
    ['DELETE', `/v1/email/${NO_MESSAGE}`, 'GET, HEAD'],
    ['POST', '/v1/email', 'GET, HEAD'],
    ['DELETE', '/v1/suppressions/import', 'POST'],
    ['OPTIONS', '/api/v1/domains/acme.com', 'DELETE, GET, HEAD, PATCH'],
    ['PUT', '/v1/domains', 'GET, HEAD, POST'],
    ['DELETE', '/v1/domains/acme.com/zonefile', 'GET, HEAD'],
    ['POST', '/health', 'GET, HEAD'],
    ['PROPFIND', '/v1/webhooks', 'GET, HEAD, POST'],
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
  const id = await sendOne(port)
  const found = await get(port, `/v1/email/${id}`, 'read')
  t.equal(found.status, 200)
  t.equal(found.json.data?.['message_id'], id)
  const events = await get(port, `/v1/email/${id}/events`, 'read')
  t.match(events.json, { success: true, data: [{ event: 'email.accepted' }], has_more: false, next_cursor: null })
  const unknown = ['msg_unknown', 'msg_unknown/events', '%00', '__proto__']
  for (const path of unknown.map((id) => `/v1/email/${id}`)) {
    const { status, json } = await get(port, path, 'read')
    t.equal(status, 404, path)
    t.equal(json.error?.code, 'not_found')
  }
})

t.test('a message of a domain that is not for this key looks like one that does not exist', async (t) => {
  const { port } = await startApi(t)
  const id = await sendOne(port, { from: 'x@other.com' })
  const own = await sendOne(port)
  t.equal((await get(port, `/v1/email/${own}`, 'limited')).status, 200)
  for (const [method, path] of [
    ['GET', ''],
    ['GET', '/events'],
    ['GET', '/explain'],
    ['GET', '/transcript'],
    ['POST', '/cancel'],
    ['POST', '/retry'],
  ] as const) {
    const foreign = await ask(port, { method, path: `/v1/email/${id}${path}`, key: 'limited' })
    const unknown = await ask(port, { method, path: `/v1/email/${NO_MESSAGE}${path}`, key: 'limited' })
    t.equal(foreign.status, 404, path)
    t.equal(foreign.text.replace(id, NO_MESSAGE), unknown.text)
  }
  const { text } = await get(port, '/v1/email', 'limited')
  t.match(text, own)
  t.notMatch(text, 'other.com')
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
    t.same(json.data, { status: 'ok', queue_depth: 12, oldest_due_seconds: 3, db: 'ok', mail_in: 'ok', smtp_out: 'ok' })
  }
  const report = {
    status: 'unavailable',
    queue_depth: 0,
    oldest_due_seconds: 0,
    mail_in: 'ok',
    smtp_out: 'ok',
  } as const
  for (const [db, details] of [
    ['down', 'the store does not answer'],
    ['ok', 'this node drains'],
  ] as const) {
    const ill = await startApi(t, { features: { health: async () => ({ ...report, db }) } })
    const { status, headers, json } = await get(ill.port, '/health', null)
    t.equal(status, 503)
    t.ok(Number(headers['retry-after']) > 0)
    t.match(json.error, { code: 'unavailable', details })
  }
})

t.test('a webhook is 201; a generated secret is shown, a given one never', async (t) => {
  const { port, seen } = await startApi(t)
  const generated = await post(port, '/v1/webhooks', { url: 'https://app.acme.com/hooks' })
  t.equal(generated.status, 201)
  t.match(generated.json.data?.['secret'], /^whsec_.{43}$/)
  t.match(seen.webhooks[0], { url: 'https://app.acme.com/hooks', events: null, secret: null, description: null })
  const all = { url: 'https://app.acme.com/hooks', events: ['*'], secret: 'short' }
  const given = await post(port, '/api/v1/webhooks', all)
  t.notMatch(given.text, '"short')
  t.match(given.headers['x-service-warnings'], /secret/)
  t.equal((await post(port, '/v1/webhooks', { url: 7 })).status, 422)
  const many = await post(port, '/v1/webhooks', { url: 'https://x.de', events: Array.from({ length: 51 }, () => '*') })
  t.match(many.json.error?.details, 'events: 51 entries')
})

t.test('a key is 201 and shown once', async (t) => {
  const { port, clock, seen } = await startApi(t)
  const given = { name: 'shop', mode: 'live', scopes: ['send'] }
  const { status, json } = await post(port, '/v1/keys', { ...given, expires_at: 1_800_000_000 })
  t.equal(status, 201)
  t.match(json.data, {
    id: /^key_/,
    name: 'shop',
    mode: 'live',
    scopes: ['send'],
    domains: [],
    allowed_ips: [],
    prefix: 'sk_live_',
    last4: /^\w{4}$/,
    key: /^sk_live_\w{40}$/,
    created_at: clock.now() / 1000,
    expires_at: 1_800_000_000,
    last_used_at: null,
    revoked_at: null,
  })
  t.same(seen.keys[0], { ...given, domains: [], allowedIps: [], expiresAt: 1_800_000_000_000 })
  const wrong = await post(port, '/v1/keys', { mode: 'both', scopes: 'send', expires_at: 1.5 })
  t.same(wrong.json.error?.details.split('; '), [
    'name: is missing',
    'mode: expected one of live, test',
    'scopes: expected a list, got a string',
    'expires_at: expected a whole number, got a number',
  ])
})

t.test('a key cannot make one that may do more than itself', async (t) => {
  const { port, seen } = await startApi(t)
  const key = { name: 'x', mode: 'live', scopes: ['send'], domains: ['acme.com'], allowed_ips: ['127.0.0.1'] }
  t.equal((await post(port, '/v1/keys', key, 'limited')).status, 201)
  for (const wider of [
    { domains: [] },
    { domains: null },
    { domains: ['acme.com', 'other.com'] },
    { allowed_ips: [] },
    { allowed_ips: ['0.0.0.0/0'] },
    { allowed_ips: ['127.0.0.0/7'] },
    { allowed_ips: ['127.0.0.1', '10.0.0.1'] },
  ]) {
    const { status, json } = await post(port, '/v1/keys', { ...key, ...wider }, 'limited')
    t.equal(status, 403, JSON.stringify(wider))
    t.equal(json.error?.code, 'forbidden')
  }
  t.equal((await post(port, '/v1/keys', { ...key, domains: ['ACME.com'] }, 'limited')).status, 201, 'in any form')
  t.equal((await post(port, '/v1/keys', key, 'test')).status, 403, 'a test key makes no live key')
  t.equal((await post(port, '/v1/keys', { ...key, mode: 'test' }, 'test')).status, 201)
  t.equal(seen.keys.length, 3)
})
