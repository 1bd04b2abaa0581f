/**
 * Listeners: ports, the admin socket, TLS, limits of connections and time, and an orderly stop.
 */
import { once } from 'node:events'
import { existsSync, linkSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { connect as connectTls } from 'node:tls'
import type { Middleware } from 'koa'
import t from 'tap'
import { ProcessExit } from '../../src/base/errors.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { startMetricsServer } from '../../src/http/metrics-server.ts'
import {
  ask,
  get,
  keyNamed,
  post,
  rawConnection,
  shareStore,
  startApi,
  TLS_SETTINGS,
  VALID_SEND,
} from './api-server.ts'
import { MAIL_CERTIFICATE, MAIL_KEY, OTHER_CERTIFICATE, OTHER_KEY } from './certificates.ts'
import { freePort } from '../support/serve-process.ts'
import { until } from '../support/until.ts'

shareStore(t)
const folder = mkdtempSync(join(tmpdir(), 'sternpost-http-'))
t.teardown(() => rmSync(folder, { recursive: true }))

/** What `action` threw, as exit code and message. */
async function exitOf(action: Promise<unknown>): Promise<{ exitCode: number; message: string }> {
  try {
    await action
  } catch (thrown) {
    if (thrown instanceof ProcessExit) return { exitCode: thrown.exitCode, message: thrown.message }
    throw thrown
  }
  return { exitCode: 0, message: '' }
}

t.test('a port that is taken ends with 75 and names port, address and setting', async (t) => {
  const { port } = await startApi(t)
  const { exitCode, message } = await exitOf(startApi(t, { listener: { port } }))
  t.equal(exitCode, 75)
  t.match(message, 'listen.http')
  t.match(message, `port ${port} of address 127.0.0.1`)
})

t.test('an address that is not on this machine ends with 75: it may come', async (t) => {
  const { exitCode, message } = await exitOf(startApi(t, { listener: { address: '192.0.2.1' } }))
  t.equal(exitCode, 75)
  t.match(message, '192.0.2.1')
})

t.test('when one listener fails the others are closed again', async (t) => {
  const api = await startApi(t)
  const taken = api.port
  const free = await new Promise<number>((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const bound = server.address()
      server.close(() => resolve(typeof bound === 'object' && bound !== null ? bound.port : 0))
    })
  })
  const other = await startApi(t, { listener: { port: free } })
  await other.servers.stop()
  const listener = { address: '127.0.0.1', tls: false, serve: ['api'] }
  const both = [
    { ...listener, port: free },
    { ...listener, port: taken },
  ]
  t.equal((await exitOf(other.servers.start(both, null))).exitCode, 75)
  await t.rejects(get(free, '/health', null), { code: 'ECONNREFUSED' })
})

t.test('the address * takes IPv4 and IPv6, and shows IPv4 clients as such', async (t) => {
  const {
    port,
    seen: { addresses },
  } = await startApi(t, { listener: { address: '*' } })
  t.equal((await post(port, '/v1/email/send', VALID_SEND)).status, 200)
  t.same(addresses, ['127.0.0.1'])
})

t.test('a listener that does not serve the API knows no path', async (t) => {
  const { port } = await startApi(t, {
    listener: { serve: ['acme'] },
    extraHandlers: [async (ctx) => void (ctx.body = 'reached')],
  })
  for (const path of ['/health', '/dev', '/']) {
    t.equal((await get(port, path, null)).status, 404, path)
  }
  t.equal((await post(port, '/v1/email/send', VALID_SEND)).status, 404)
})

t.test('on the admin socket every request is the administrator', async (t) => {
  const socketPath = join(folder, 'admin.sock')
  const { port, seen, log } = await startApi(t, { adminSocket: socketPath })
  t.equal(statSync(socketPath).mode & 0o777, 0o660)
  const body = JSON.stringify({ name: 'first', mode: 'live', scopes: ['admin'] })
  const got = await ask(0, { path: '/v1/keys', key: null, body, socketPath, headers: { 'X-Sternpost-User': 'ada' } })
  t.equal(got.status, 201)
  t.equal(seen.keys.length, 1)
  t.match(
    log.find(({ msg }) => msg === 'key created'),
    { api_key: 'ada' },
  )
  const mail = JSON.stringify(VALID_SEND)
  t.equal((await ask(0, { path: '/v1/email/send', key: null, body: mail, socketPath })).status, 200)
  const spoofed = await ask(port, { path: '/v1/keys', key: null, body, headers: { 'X-Sternpost-User': 'ada' } })
  t.equal(spoofed.status, 401, 'the header means nothing elsewhere')
})

t.test('a stale socket file is replaced, a living one and a file are not', async (t) => {
  const stale = join(folder, 'stale.sock')
  const dead = createServer()
  await new Promise<void>((resolve) => dead.listen(stale, resolve))
  const { port } = await startApi(t, { adminSocket: join(folder, 'living.sock') })
  t.ok(port > 0)
  const living = await exitOf(startApi(t, { adminSocket: join(folder, 'living.sock') }))
  t.equal(living.exitCode, 75)
  t.match(living.message, /another server answers at .*living.sock/)
  const file = join(folder, 'file.sock')
  writeFileSync(file, 'precious')
  t.equal((await exitOf(startApi(t, { adminSocket: file }))).exitCode, 78)
  t.ok(existsSync(file))
  const nowhere = await exitOf(startApi(t, { adminSocket: join(folder, 'nowhere', 'admin.sock') }))
  t.match(nowhere, {
    exitCode: 78,
    message: /there is no folder .*nowhere; make it \(mkdir -p \S*nowhere\), or name another/,
  })
  // A second name for the socket outlives the listener, as the file does after a kill.
  const left = join(folder, 'left.sock')
  await linkAndClose(dead, stale, left)
  await startApi(t, { adminSocket: left })
  t.equal((await ask(0, { method: 'GET', path: '/health', key: null, socketPath: left })).status, 200)
})

async function linkAndClose(server: ReturnType<typeof createServer>, from: string, to: string): Promise<void> {
  linkSync(from, to)
  await new Promise((resolve) => server.close(resolve))
}

const files = { mail: [MAIL_CERTIFICATE, MAIL_KEY], other: [OTHER_CERTIFICATE, OTHER_KEY] }
mkdirSync(join(folder, 'tls'))
for (const [name, [certificate = '', key = '']] of Object.entries(files)) {
  writeFileSync(join(folder, 'tls', `${name}.crt`), certificate)
  writeFileSync(join(folder, 'tls', `${name}.key`), key)
}
const file = (name: string): string => join(folder, 'tls', name)
const certificates = ['mail', 'other'].map((name) => ({
  cert_file: file(`${name}.crt`),
  key_file: file(`${name}.key`),
}))

t.test('TLS listeners choose the certificate by name; the first is the default', async (t) => {
  const { port } = await startApi(t, { listener: { tls: true }, tls: { ...TLS_SETTINGS, certificates } })
  const nameFor = (servername: string): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const socket = connectTls({ host: '127.0.0.1', port, servername, rejectUnauthorized: false }, () => {
        socket.end('GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
        let answer = ''
        socket.on('data', (piece) => (answer += piece.toString()))
        socket.on('end', () => resolve([socket.getPeerCertificate().subject.CN, answer.slice(0, 15)]))
      })
      socket.on('error', reject)
    })
  t.same(await nameFor('mail.example.net'), ['mail.example.net', 'HTTP/1.1 200 OK'])
  t.same(await nameFor('api.other.example.net'), ['other.example.net', 'HTTP/1.1 200 OK'])
  t.same(await nameFor('unknown.example'), ['mail.example.net', 'HTTP/1.1 200 OK'])

  const without = await exitOf(startApi(t, { listener: { tls: true } }))
  t.equal(without.exitCode, 78)
  const mixed = [{ cert_file: file('mail.crt'), key_file: file('other.key') }]
  const unfit = await exitOf(startApi(t, { listener: { tls: true }, tls: { ...TLS_SETTINGS, certificates: mixed } }))
  t.equal(unfit.exitCode, 78)
  t.match(unfit.message, 'other.key')
})

t.test('X-Forwarded-For is believed from trusted proxies only, from the right', async (t) => {
  const direct = await startApi(t)
  const behind = await startApi(t, { http: { trusted_proxies: ['127.0.0.0/8', '10.0.0.0/8'] } })
  const addressAt = async (api: typeof direct, forwarded?: string): Promise<string | undefined> => {
    const headers: Record<string, string> = forwarded === undefined ? {} : { 'X-Forwarded-For': forwarded }
    await ask(api.port, { method: 'GET', path: '/v1/domains/acme.com', headers })
    return api.seen.addresses.at(-1)
  }
  t.equal(await addressAt(direct, '198.51.100.7'), '127.0.0.1')
  t.equal(await addressAt(behind), '127.0.0.1')
  t.equal(await addressAt(behind, '198.51.100.7'), '198.51.100.7')
  const long = await addressAt(behind, '1.2.3.4, 198.51.100.7, 10.0.0.9')
  t.equal(long, '198.51.100.7', 'what the client wrote itself is not believed')
  t.equal(await addressAt(behind, '::ffff:198.51.100.7'), '198.51.100.7')
  t.equal(await addressAt(behind, '2001:DB8::1'), '2001:db8::1')
  t.equal(await addressAt(behind, '1.2.3.4, nonsense'), '127.0.0.1')
})

t.test('connections above the limit of an address or of all are closed', async (t) => {
  const perAddress = await startApi(t, { http: { connections: { total: 100, per_address: 2 } } })
  const first = await rawConnection(perAddress.port)
  const second = await rawConnection(perAddress.port)
  await t.rejects(get(perAddress.port, '/health', null))
  first.socket.destroy()
  await until('room for another', async () => {
    const got = await get(perAddress.port, '/health', null).catch(() => undefined)
    return got?.status === 200
  })
  second.socket.destroy()

  const connections = { total: 3, per_address: 1 }
  const proxied = await startApi(t, { http: { connections, trusted_proxies: ['127.0.0.1'] } })
  const held = [await rawConnection(proxied.port), await rawConnection(proxied.port), await rawConnection(proxied.port)]
  await t.rejects(get(proxied.port, '/health', null), 'a trusted proxy is not exempt from the limit of all')
  t.notOk(
    held.some((connection) => connection.isClosed()),
    'but from the one per address',
  )
  for (const { socket } of held) socket.destroy()
})

t.test('a connection that sends too many requests without waiting is cut, others are served', async (t) => {
  const { port } = await startApi(t)
  const request = 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n'
  const few = await rawConnection(port)
  few.write(request.repeat(99) + request.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'))
  await until('the end', few.isClosed)
  t.equal(few.text().match(/HTTP\/1.1 200/g)?.length, 100, 'as many as may wait')
  const many = await rawConnection(port)
  many.write(request.repeat(20_000))
  await until('the end', many.isClosed)
  const answered = many.text().match(/HTTP\/1.1 200/g)?.length ?? 0
  t.ok(answered < 20_000, `${answered} of 20,000 were answered`)
  t.equal((await get(port, '/health')).status, 200)
})

t.test('a slow head and a slow body are answered with 408', async (t) => {
  const { port } = await startApi(t, { http: { timeouts: { headers: 100, request: 200 } } })
  const start = 'POST /v1/email/send HTTP/1.1\r\nHost: x\r\n'
  const head = await rawConnection(port)
  head.write(start)
  const body = await rawConnection(port)
  body.write(`${start}Authorization: Bearer ${keyNamed('send')}\r\nContent-Length: 100\r\n\r\n{`)
  for (const connection of [head, body]) {
    await until('the answer', () => connection.text().includes('}}'))
    t.match(connection.text(), /^HTTP\/1.1 408 /)
    await until('the end', connection.isClosed)
  }
  t.equal((await get(port, '/health', null)).status, 200, 'others are served')
})

t.test('a handshake that does not end, or is none, leaves room for others', async (t) => {
  const { port } = await startApi(t, {
    listener: { tls: true },
    tls: { ...TLS_SETTINGS, certificates },
    http: { timeouts: { headers: 100, request: 10_000 } },
  })
  const silent = await rawConnection(port)
  const begun = await rawConnection(port)
  // The head of a ClientHello of 512 bytes, and nothing of it.
  begun.write(Buffer.of(0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3))
  const plain = await rawConnection(port)
  plain.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  await until('the end of all', () => [silent, begun, plain].every((connection) => connection.isClosed()))
  const patient = await startApi(t, {
    listener: { tls: true },
    tls: { ...TLS_SETTINGS, certificates },
    http: { timeouts: { headers: 120_000, request: 120_000 } },
  })
  const leaving = await rawConnection(patient.port)
  leaving.socket.end(Buffer.of(0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3))
  await until('the end of who leaves in the middle of it', leaving.isClosed, 10_000)
})

t.test('a client that reads nothing of its answer is cut, one whose answer takes long is not', async (t) => {
  const secure = { listener: { tls: true }, tls: { ...TLS_SETTINGS, certificates } }
  const tryDoor = async (name: string, doors: object): Promise<void> => {
    const large = Promise.withResolvers<ServerResponse>()
    const answer: Middleware = async (ctx, next) => {
      if (ctx.path === '/slow') await setTimeout(1_500)
      else if (ctx.path !== '/large') return next()
      if (ctx.path === '/large') ctx.res.once('close', () => large.resolve(ctx.res))
      ctx.body = 'x'.repeat(ctx.path === '/large' ? 32 * 1024 * 1024 : 1)
    }
    const { port } = await startApi(t, {
      ...doors,
      http: { timeouts: { headers: 1_000, request: 1_000 } },
      extraHandlers: [answer],
    })
    const ask = async (path: string): Promise<Socket> => {
      const socket = name === 'plain' ? connect(port) : connectTls({ port, rejectUnauthorized: false })
      socket.on('error', () => {})
      await once(socket, name === 'plain' ? 'connect' : 'secureConnect')
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`)
      return socket
    }
    const slow = await ask('/slow')
    const slowAnswer = once(slow, 'data')
    const deaf = await ask('/large')
    t.match(String(await slowAnswer), 'HTTP/1.1 200', name)
    t.equal((await large.promise).writableFinished, false, name)
    for (const socket of [slow, deaf]) socket.destroy()
  }
  await Promise.all([tryDoor('plain', {}), tryDoor('with TLS', secure)])
})

t.test('what cannot be read behind a request is answered behind it', async (t) => {
  let finish = (): void => {}
  const isHeld = new Promise<void>((resolve) => (finish = resolve))
  const slow: Middleware = async (ctx, next) => {
    if (ctx.path !== '/slow') return next()
    await isHeld
    ctx.body = 'slow'
  }
  const { port } = await startApi(t, { extraHandlers: [slow], http: { timeouts: { headers: 100, request: 10_000 } } })
  const request = 'GET /slow HTTP/1.1\r\nHost: x\r\n\r\n'
  const garbage = await rawConnection(port)
  garbage.write(`${request}${request}no HTTP\r\n\r\n`)
  const half = await rawConnection(port)
  half.write(`${request}GET /`)
  const badBody = await rawConnection(port)
  const head = `POST /v1/email/send HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${keyNamed('send')}\r\n`
  badBody.write(`${request}${head}Transfer-Encoding: chunked\r\n\r\nno chunk\r\n`)
  // Each second node:http looks for heads that are late.
  await setTimeout(1_200)
  garbage.write('nor this\r\n\r\n')
  t.same([garbage.text(), half.text(), badBody.text()], ['', '', ''])
  finish()
  await until('all ends', () => [garbage, half, badBody].every((connection) => connection.isClosed()))
  const statuses = (text: string): string[] => [...text.matchAll(/HTTP\/1.1 (\d+)/g)].map(([, status = '']) => status)
  t.same(statuses(garbage.text()), ['200', '200', '400'])
  t.same(statuses(half.text()), ['200', '408'])
  t.same(statuses(badBody.text()), ['200', '400'])
})

t.test('a client that closes its half behind its requests gets their answers', async (t) => {
  let finish = (): void => {}
  const isHeld = new Promise<void>((resolve) => (finish = resolve))
  let held = 0
  const slow: Middleware = async (_ctx, next) => {
    held += 1
    await isHeld
    await next()
  }
  const settings = { extraHandlers: [slow] }
  const [plain, secure] = await Promise.all([
    startApi(t, settings),
    startApi(t, { ...settings, listener: { tls: true }, tls: { ...TLS_SETTINGS, certificates } }),
  ])
  const request = 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n'
  const client = { host: '127.0.0.1', allowHalfOpen: true, rejectUnauthorized: false }
  const sockets = [connect({ ...client, port: plain.port }), connectTls({ ...client, port: secure.port })]
  const answers = sockets.map(async (socket) => {
    socket.end(request + request)
    let text = ''
    for await (const piece of socket) text += String(piece)
    return text.match(/HTTP\/1.1 \d+/g)
  })
  await until('all requests are held', () => held === 4)
  // Time for the end of what the clients send.
  await setTimeout(100)
  finish()
  const both = ['HTTP/1.1 200', 'HTTP/1.1 200']
  t.strictSame(await Promise.all(answers), [both, both])
})

t.test('stop lets running requests finish and answers new ones with 503', async (t) => {
  let finish = (): void => {}
  const isHeld = new Promise<void>((resolve) => (finish = resolve))
  let isRunning = false
  const api = await startApi(t, {
    features: {
      async health() {
        isRunning = true
        await isHeld
        return { status: 'ok', queue_depth: 0, oldest_due_seconds: 0, db: 'ok', mail_in: 'ok', smtp_out: 'ok' }
      },
    },
  })
  const kept = await rawConnection(api.port)
  kept.write('GET /nope HTTP/1.1\r\nHost: x\r\n\r\n')
  await until('the first answer', () => kept.text().includes('}}'))
  const running = get(api.port, '/health', null)
  await until('a running request', () => isRunning)
  let isStopped = false
  const stopped = api.servers.stop().then(() => (isStopped = true))
  kept.write('GET /health HTTP/1.1\r\nHost: x\r\n\r\n')
  await until('the second answer', () => kept.text().includes('unavailable'))
  t.match(kept.text(), /503 Service Unavailable/)
  t.match(kept.text(), /Retry-After: \d+/)
  await until('the end of the kept connection', kept.isClosed)
  await t.rejects(get(api.port, '/health', null), { code: 'ECONNREFUSED' })
  t.equal(isStopped, false)
  finish()
  t.equal((await running).status, 200)
  await stopped
})

t.test('stop does not wait for connections without a request', async (t) => {
  const api = await startApi(t)
  const silent = await rawConnection(api.port)
  const half = await rawConnection(api.port)
  half.write('POST /v1/email/se')
  const startedAt = performance.now()
  await api.servers.stop()
  t.ok(performance.now() - startedAt < 8_000)
  await until('both ends', () => silent.isClosed() && half.isClosed())
})

t.test('metrics are served on every address where that is asked for, and a taken port is told', async (t) => {
  const port = await freePort()
  const options = { metrics: createMetrics(), port, token: 'a token' }
  const server = await startMetricsServer({ ...options, address: '*' })
  t.teardown(() => server.stop())
  t.equal((await fetch(`http://127.0.0.1:${port}/metrics`)).status, 200)
  t.match(await exitOf(startMetricsServer({ ...options, address: '127.0.0.1' })), {
    exitCode: 75,
    message: `listen.metrics: port ${port} of address 127.0.0.1 is taken`,
  })
})

t.test('whoever may not read the metrics keeps no place among those who may', async (t) => {
  const port = await freePort()
  const server = await startMetricsServer({ metrics: createMetrics(), address: '*', port, token: null })
  t.teardown(() => server.stop())
  const crowd = await Promise.all(Array.from({ length: 20 }, () => rawConnection(port)))
  const oneMore = await rawConnection(port)
  await until('the end of one more', oneMore.isClosed)
  for (const { socket } of crowd) socket.destroy()
  const refused = await until('room', () => fetch(`http://127.0.0.1:${port}/`).catch(() => undefined))
  t.match([refused.status, refused.headers.get('connection')], [404, 'close'])
})
