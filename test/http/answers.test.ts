/**
 * What stands around an answer: warnings, request ids, modes, handlers that run before, metrics, broken requests.
 */
import t from 'tap'
import type { Middleware } from 'koa'
import { ServiceError } from '../../src/base/errors.ts'
import { ask, get, post, rawConnection, shareStore, startApi, VALID_SEND } from './api-server.ts'
import { until } from '../support/until.ts'

shareStore(t)

/** An id that nobody has. */
const NO_MESSAGE = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'

t.test('unknown fields are accepted and named in X-Service-Warnings', async (t) => {
  const { port } = await startApi(t)
  const attachments = [{ name: 'a', content: '', filename: 'b' }]
  const body = { ...VALID_SEND, size: 1, 'größe,1': 1, attachments }
  const { status, headers } = await post(port, '/v1/email/send', body)
  t.equal(status, 200)
  t.equal(headers['x-service-warnings'], 'size,gr\\u00f6\\u00dfe\\u002c1,attachments[0].filename')
  const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`field\r\n${index}`, 1]))
  const long = await post(port, '/v1/email/send', { ...VALID_SEND, ...many })
  const value = String(long.headers['x-service-warnings'])
  t.ok(value.length > 500 && value.length <= 1_000, `${value.length} bytes`)
  t.match(value, /^[\x20-\x7e]+$/)
  const name = 'é'.repeat(10_000)
  const huge = await post(port, '/v1/email/send', { ...VALID_SEND, [name]: 1, subjekt: 1 })
  t.equal(huge.headers['x-service-warnings'], `${'\\u00e9'.repeat(80)}\\u2026,subjekt`, 'of a long name the start')
  const faulty = await post(port, '/v1/email/send', { ...VALID_SEND, variables: { [name]: { a: '\0', b: '\0' } } })
  const shownName = `variables.${'é'.repeat(80)}…`
  t.equal(faulty.json.error?.details, `${shownName}.a: holds U+0000; ${shownName}.b: holds U+0000`)
  const refused = await post(port, '/v1/email/send', { to: 5, tpo: 'a@b.c' })
  t.equal(refused.headers['x-service-warnings'], 'tpo', 'a refusal names them too')
  const braces = await post(port, '/v1/email/send', { ...VALID_SEND, text: 'Hi {{name}}' }, 'send')
  t.equal(braces.headers['x-service-warnings'], 'variables: not given: {{ stays as it is')
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
  await get(port, `/v1/email/${NO_MESSAGE}`)
  await ask(port, { method: 'PROPFIND', path: '/v1/whatever' })
  const text = await metrics.registry.getSingleMetricAsString('sternpost_http_request_seconds')
  t.match(text, 'route="/email/:message_id",method="GET",status="404"')
  t.match(text, 'route="none",method="other",status="404"')
  t.notMatch(text, /msg_|whatever/)
  await post(port, '/v1/email/send', { ...VALID_SEND, to: 5 })
  await ask(port, { path: '/v1/email/send', key: null })
  const rejected = await metrics.registry.getSingleMetricAsString('sternpost_messages_rejected_total')
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
