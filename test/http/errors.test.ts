/**
 * Errors over HTTP: each code with its status and envelope, and what a defect and a failing store are answered with.
 */
import t from 'tap'
import { SERVICE_ERROR_CODES, ServiceError } from '../../src/base/errors.ts'
import { describedRoutes } from '../support/response-check.ts'
import { ask, get, post, sendOne, shareStore, startApi, VALID_SEND, type Got } from './api-server.ts'

shareStore(t)

/** An id that nobody has. */
const NO_MESSAGE = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'

t.test('a defect is 500 with the request id alone; the log has the rest', async (t) => {
  const fail = async (): Promise<never> => {
    throw Object.assign(new TypeError('x of undefined in /opt/sternpost/secret.ts'), { code: 'ERR_X' })
  }
  const api = await startApi(t, { features: { acceptMessage: fail, mailRefusal: async () => null, health: fail } })
  for (const got of [await post(api.port, '/v1/email/send', VALID_SEND), await get(api.port, '/v1/health')]) {
    const id = got.headers['x-request-id']
    t.equal(got.status, 500)
    t.same(got.json.error, { code: 'internal_error', message: 'Internal error.', details: `request ${id}` })
    const line = api.log.find(({ request_id }) => request_id === id)
    t.match(line, { level: 'error', error: /secret.ts/, stack: /Error/ })
  }
})

/** What asks the store for nothing: domains and IPs are remembered, and a cold IP has nothing to pause. */
const FROM_MEMORY = [
  'POST /email/preview',
  'GET /ips',
  'GET /ips/:ip',
  'GET /ips/:ip/warmup',
  'POST /ips/:ip/warmup/pause',
  'POST /ips/:ip/warmup/resume',
  'POST /ips/:ip/warmup/complete',
  'POST /admin/ips/:ip/resume',
  'GET /admin/pools',
  'GET /admin/paths',
  'POST /admin/paths/resume',
  'GET /admin/domains/:domain/route',
  'GET /admin/checks',
  'POST /admin/checks',
  'GET /admin/backups',
  'POST /admin/backups',
  'GET /admin/certificates',
  'POST /admin/certificates/:name/renew',
  // There is one node.
  'GET /admin/nodes',
  'POST /admin/nodes/:node_id/drain',
  'DELETE /admin/nodes/:node_id',
  'GET /admin/server',
  'POST /admin/log-level',
]

t.test('a store that fails is 503 with Retry-After on every route, and tells nothing of itself', async (t) => {
  let failure: Error | null = null
  const { port, log } = await startApi(t, { storeFailure: () => failure })
  const id = await sendOne(port)
  failure = Object.assign(new Error('disk I/O error: /var/lib/secret.db'), { code: 'SQLITE_IOERR_WRITE' })
  const bodies: Record<string, object> = {
    '/email/send': VALID_SEND,
    '/domains': { domain: 'new.com' },
    '/email/batch': { ...VALID_SEND, recipients: [{ to: 'a@b.de' }] },
    '/suppressions': { email: 'a@b.de' },
    '/keys': { name: 'x', mode: 'live', scopes: ['send'] },
    '/webhooks': { url: 'https://127.0.0.1/hooks' },
    '/admin/queue/actions': { action: 'hold' },
    '/admin/people': { name: 'ada' },
    '/admin/people/:person_id': { role: 'reader' },
  }
  for (const { method, path, scope, body } of describedRoutes()) {
    if (scope === null || FROM_MEMORY.includes(`${method} ${path}`)) continue
    const ids = {
      ':message_id': id,
      ':batch_id': id.replace('msg', 'bat'),
      ':id': id,
      ':domain': 'acme.com',
      ':ip': '127.0.0.14',
    }
    const target = Object.entries(ids).reduce((text, [name, value]) => text.replace(name, value), path)
    const isCsv = body?.contentType === 'text/csv'
    const { status, headers, json, text } = await ask(port, {
      method,
      path: `/v1${target}`
        .replace('/keys/msg', '/keys/key')
        .replace(/:email|:address/, 'a@b.de')
        .replace(/forecast$/, 'forecast?recipients=1'),
      headers: { 'Content-Type': body?.contentType ?? 'application/json', 'Idempotency-Key': 'x' },
      ...(body === null ? {} : { body: isCsv ? 'email\na@b.de' : JSON.stringify(bodies[path] ?? {}) }),
    })
    t.equal(status, 503, `${method} ${path}: ${text}`)
    t.equal(json.error?.code, 'unavailable')
    t.match(headers['retry-after'], /^\d+$/)
    t.notMatch(text, /SQLITE|secret|disk/)
  }
  t.equal((await get(port, '/v1/keys', 'read')).status, 503, 'a key that has to be looked up first')
  t.match(
    log.find(({ error }) => String(error).includes('secret.db')),
    { level: 'error', part: 'http' },
  )
})

t.test('a closed store is 503 with Retry-After, with an idempotency key and without', async (t) => {
  const { port, store, log } = await startApi(t, { ownStore: true })
  // The key is remembered, and so are the sending domain and that there is room.
  await sendOne(port)
  const closed = store.close()
  const send = { path: '/v1/email/send', body: JSON.stringify(VALID_SEND) }
  const batch = { path: '/v1/email/batch', body: JSON.stringify({ ...VALID_SEND, recipients: [{ to: 'a@b.de' }] }) }
  const headers = { 'Content-Type': 'application/json' }
  const askAll = (): Promise<Got[]> =>
    Promise.all(
      [send, batch].flatMap((asked) => [
        ask(port, { ...asked, headers }),
        ask(port, { ...asked, headers: { ...headers, 'Idempotency-Key': 'x' } }),
      ]),
    )
  const whileItCloses = await askAll()
  await closed
  for (const got of [...whileItCloses, ...(await askAll())]) {
    t.match(got, { status: 503, json: { error: { code: 'unavailable' } }, headers: { 'retry-after': /^\d+$/ } })
  }
  t.notOk(
    log.some(({ level, part }) => level === 'error' && part === 'http'),
    'it is no defect',
  )
})

t.test('every code has its status, its sentence and its headers; details are cut at 2,000 characters', async (t) => {
  const statuses = {
    invalid_recipient: 422,
    unauthorized: 401,
    domain_not_verified: 403,
    ip_not_warmed: 409,
    rate_limited: 429,
    attachment_too_large: 413,
    invalid_request: 422,
    forbidden: 403,
    not_found: 404,
    method_not_allowed: 405,
    conflict: 409,
    payload_too_large: 413,
    unavailable: 503,
    internal_error: 500,
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

t.test('every code is met in real life', async (t) => {
  const { port } = await startApi(t)
  const slow = await startApi(t, { api: { requests: { count: 1, per_milliseconds: 60_000 }, requests_burst: 1 } })
  await get(slow.port, '/v1/domains')
  const broken = await startApi(t, { features: { health: () => Promise.reject(new Error('a defect')) } })
  const send = (fields: object): Promise<Got> => post(port, '/v1/email/send', { ...VALID_SEND, ...fields }, 'send')
  const large = Buffer.alloc(10 * 1024 * 1024 + 1).toString('base64')
  const cases: [code: string, status: number, got: Promise<Got>][] = [
    ['invalid_recipient', 422, send({ to: 'a@@b' })],
    ['unauthorized', 401, get(port, '/v1/domains', null)],
    ['domain_not_verified', 403, send({ from: 'x@unknown.com' })],
    ['ip_not_warmed', 409, send({ ip_pool: 'cold' })],
    ['rate_limited', 429, get(slow.port, '/v1/domains')],
    ['attachment_too_large', 413, send({ attachments: [{ name: 'a', content: large }] })],
    ['invalid_request', 422, send({ subject: 7 })],
    ['forbidden', 403, get(port, '/v1/keys', 'send')],
    ['not_found', 404, get(port, `/v1/email/${NO_MESSAGE}`)],
    ['method_not_allowed', 405, get(port, '/v1/email/send')],
    ['payload_too_large', 413, post(port, '/v1/webhooks', { url: 'x'.repeat(300_000) })],
    ['unavailable', 503, send({ ip_pool: 'off' })],
    ['internal_error', 500, get(broken.port, '/health', null)],
  ]
  const canceled = await sendOne(port)
  await ask(port, { path: `/v1/email/${canceled}/cancel` })
  cases.push(['conflict', 409, ask(port, { path: `/v1/email/${canceled}/retry` })])
  for (const [code, status, answer] of cases) {
    const { json, status: got } = await answer
    t.equal(json.error?.code, code)
    t.equal(got, status, code)
  }
  t.same(cases.map(([code]) => code).toSorted(), [...SERVICE_ERROR_CODES].toSorted())
})
