/**
 * URLs that others chose: none of them reaches an address of our own network (test/README.md "Attacks",
 * network/README.md "Addresses never connected to"), and no receiver holds us longer than its time or makes us read
 * more than its share (A17). All connections stay on loopback.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer as createHttpsServer } from 'node:https'
import { createServer, type IncomingMessage } from 'node:http'
import { createServer as createTcpServer, type Server, type Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import {
  createGuardedRequest,
  type AddressLookup,
  type GuardedRequest,
  type GuardedRequestOptions,
} from '../../src/network/guarded-request.ts'
import { until } from '../support/until.ts'
import { INWARD_LITERALS, INWARD_NAMES, INWARD_TEXTS, PUBLIC } from './inward-urls.ts'

/** Key and self-signed certificate for the name hooks.test. */
const CERTIFICATE = fileURLToPath(new URL('../fixtures/hooks.test.pem', import.meta.url))
const TIMEOUT = 400
/** Where it ends the request after the beginning of an answer. */
const ANSWER_TIMEOUT = 1_500
/** Where it is not the time that ends the request. */
const LONG_TIMEOUT = 20_000
/** A busy machine is late. */
const SLACK = 20_000

function guardFor(t: Test, options: Partial<GuardedRequestOptions> = {}): GuardedRequest {
  const guard = createGuardedRequest({ allowPrivateAddresses: false, allowHttp: true, ...options })
  t.teardown(() => guard.close())
  return guard
}

async function listenOn(t: Test, server: Server, host = '127.0.0.1'): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
  })
  server.listen(0, host)
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** Listens on every address of this machine and counts who comes. */
async function startCanary(t: Test): Promise<{ port: number; connections: () => number }> {
  let connections = 0
  const canary = createTcpServer((socket) => {
    connections += 1
    socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
  })
  return { port: await listenOn(t, canary, '::'), connections: () => connections }
}

const send = (
  guard: GuardedRequest,
  url: string,
  timeoutMilliseconds = LONG_TIMEOUT,
): ReturnType<GuardedRequest['post']> => guard.post({ url, headers: {}, body: '{}', timeoutMilliseconds })

t.test('no form of a private address is connected to', async (t) => {
  const canary = await startCanary(t)
  const lookup: AddressLookup = async (hostname) => INWARD_NAMES[hostname] ?? ['127.0.0.1']
  const guard = guardFor(t, { lookup })
  const urls = [
    ...INWARD_LITERALS.map((host) => `http://${host}:${canary.port}/hook`),
    ...Object.keys(INWARD_NAMES).map((host) => `http://${host}:${canary.port}/hook`),
    ...INWARD_TEXTS.map((text) => text.replaceAll('PORT', String(canary.port))),
  ]
  t.ok(urls.length >= 60, `${urls.length} forms`)
  for (const url of urls) {
    t.type(await guard.check(url), 'string', `refused at creation: ${JSON.stringify(url.slice(0, 60))}`)
    const result = await send(guard, url)
    t.equal(result.kind, 'failed', `refused at connect: ${JSON.stringify(url.slice(0, 60))}`)
    t.notMatch(result, { reason: /no answer|connection|unreachable/ }, 'by the guard and not by the network')
  }
  t.equal(canary.connections(), 0)
})

t.test('with the allowance the same canary is reached', async (t) => {
  const canary = await startCanary(t)
  const guard = guardFor(t, { allowPrivateAddresses: true, lookup: async () => ['127.0.0.1'] })
  for (const host of ['127.0.0.1', '[::1]', '2130706433', '[::ffff:7f00:1]', 'loopback.test']) {
    t.same(await guard.check(`http://${host}:${canary.port}/`), undefined)
    t.match(await send(guard, `http://${host}:${canary.port}/`), { kind: 'answered', status: 200 }, host)
  }
  t.equal(canary.connections(), 5)
})

t.test('a name that turns inwards between check and connect gains nothing', async (t) => {
  const canary = await startCanary(t)
  const answers = [[PUBLIC], ['127.0.0.1'], [PUBLIC, '::1']]
  const guard = guardFor(t, { lookup: async () => answers.shift() ?? [] })
  const url = `http://rebinding.test:${canary.port}/`
  t.equal(await guard.check(url), undefined)
  const refused = { kind: 'failed', reason: 'the address is private, local or reserved' }
  t.same(await send(guard, url), refused)
  t.same(await send(guard, url), refused)
  t.same(await send(guard, url), { kind: 'failed', reason: 'the host name does not resolve' })
  t.equal(canary.connections(), 0)
})

t.test('what a webhook URL may be', async (t) => {
  const lookup: AddressLookup = async (hostname) => {
    if (hostname === 'gone.test') throw Object.assign(new Error('gone'), { code: 'ENOTFOUND' })
    return hostname === 'empty.test' ? [] : [PUBLIC, '2606:4700::1']
  }
  const strict = guardFor(t, { allowHttp: false, lookup })
  const good = [
    'https://good.test',
    'https://good.test/',
    'HTTPS://Good.Test:8443/hook?a=b&c=%20',
    'https://8.8.8.8/',
    'https://[2606:4700::1]:8443/',
    'https://good.test/a@b',
    'https://bücher.test/',
    `https://good.test/${'x'.repeat(2048 - 18)}`,
  ]
  for (const url of good) t.equal(await strict.check(url), undefined, url.slice(0, 60))
  t.equal(await strict.check('https://gone.test/'), undefined, 'a name that does not resolve now is taken')
  t.equal(await strict.check('https://empty.test/'), undefined)
  // The host is a public one, so only the text can be what is refused.
  const bad: [string, string][] = [
    ['http://good.test/', 'must be an https URL'],
    ['//good.test/', 'must be an https URL'],
    ['https:/good.test/', 'must be an https URL'],
    ['https:\\\\good.test/', 'must be an https URL'],
    ['https://user@good.test/', 'must not hold a user name or password'],
    ['https://:@good.test/', 'must not hold a user name or password'],
    ['https://@good.test/', 'must not hold a user name or password'],
    ['https://good.test/#', 'must not have a fragment'],
    ['https://good.test#part', 'must not have a fragment'],
    ['https://good.test/a b', 'must not hold blanks, control characters or backslashes'],
    ['https://good.test/\n', 'must not hold blanks, control characters or backslashes'],
    ['https://good.test/\u0000', 'must not hold blanks, control characters or backslashes'],
    ['https://good.test/\\..\\x', 'must not hold blanks, control characters or backslashes'],
    ['https://good.test:99999/', 'is not a valid URL'],
    [`https://good.test/${'x'.repeat(2048 - 17)}`, 'must have at most 2048 characters'],
  ]
  for (const [url, problem] of bad) t.equal(await strict.check(url), problem, JSON.stringify(url.slice(0, 60)))
  t.same(await send(strict, 'http://good.test/'), { kind: 'failed', reason: 'must be an https URL' })
  t.equal(await guardFor(t, { lookup }).check('http://good.test/'), undefined)
  const own = guardFor(t, { lookup, ownAddresses: () => ['2606:4700:0:0::1'] })
  t.match(await own.check('https://good.test/'), /must not lead to our network/, 'an own address is refused')
})

t.test('a name with thousands of addresses is judged by 100, and our own are read once', async (t) => {
  const many = Array.from({ length: 6_000 }, (_, index) => `8.8.${index >> 8}.${index & 0xff}`)
  let reads = 0
  const ownAddresses = (): string[] => {
    reads += 1
    return ['9.9.9.9']
  }
  const answers = [
    [...many.slice(0, 99), '10.0.0.1', ...many],
    [...many.slice(0, 100), '10.0.0.1', ...many],
  ]
  const guard = guardFor(t, { ownAddresses, lookup: async () => answers.shift() ?? [] })
  t.match(await guard.check('https://wide.test/'), /must not lead to our network/)
  t.equal(await guard.check('https://wide.test/'), undefined, 'where nothing is connected to, nothing is refused')
  t.equal(reads, 2)
})

t.test('the bytes and headers go out as they are, and the answer comes back as one short line', async (t) => {
  const seen: { method: string | undefined; path: string | undefined; type: string | undefined; body: string }[] = []
  const port = await listenOn(
    t,
    createServer((incoming, answer) => {
      collect(incoming, (body) => {
        seen.push({ method: incoming.method, path: incoming.url, type: incoming.headers['content-type'], body })
        answer.end(`taken\r\n\u0007by \u001b[31mus\u2028${'ä'.repeat(600)}`)
      })
    }),
  )
  const guard = guardFor(t, { allowPrivateAddresses: true })
  const result = await guard.post({
    url: `http://127.0.0.1:${port}/hook?x=1`,
    headers: { 'Content-Type': 'application/json' },
    body: '{"event":"email.delivered","ü":1}',
    timeoutMilliseconds: 5_000,
  })
  t.same(seen, [
    { method: 'POST', path: '/hook?x=1', type: 'application/json', body: '{"event":"email.delivered","ü":1}' },
  ])
  t.match(result, { kind: 'answered', status: 200, answer: /^taken by  \[31mus ä+/ })
  t.ok(result.kind === 'answered' && Buffer.byteLength(result.answer) <= 515)
})

t.test('connections are used again', async (t) => {
  const server = createServer((incoming, answer) => collect(incoming, () => answer.end('ok')))
  let connections = 0
  server.on('connection', () => (connections += 1))
  const port = await listenOn(t, server)
  const guard = guardFor(t, { allowPrivateAddresses: true })
  for (let round = 0; round < 20; round++) t.match(await send(guard, `http://127.0.0.1:${port}/`), { status: 200 })
  // The first answer may still be on its way out of the client when the second request comes.
  t.ok(connections <= 2, `${connections} connections`)
})

t.test('an idle connection is ended before servers do that, some after 2 s', async (t) => {
  let answeredAt = Number.NaN
  const server = createTcpServer((socket) => {
    socket.once('data', () => {
      answeredAt = Date.now()
      socket.write('HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n')
    })
  })
  const connected = once(server, 'connection')
  const guard = guardFor(t, { allowPrivateAddresses: true })
  t.match(await send(guard, `http://127.0.0.1:${await listenOn(t, server)}/`), { status: 200 })
  const [socket] = (await connected) as [Socket]
  await once(socket, 'close')
  t.ok(Date.now() - answeredAt < 3_000)
})

t.test('redirects are not followed, and every status is handed back', async (t) => {
  const canary = await startCanary(t)
  const port = await listenOn(
    t,
    createServer((incoming, answer) => {
      const status = Number(incoming.url?.slice(1))
      answer.writeHead(status, { Location: `http://127.0.0.1:${canary.port}/` }).end()
    }),
  )
  const guard = guardFor(t, { allowPrivateAddresses: true })
  for (const status of [201, 204, 301, 302, 307, 308, 401, 410, 500]) {
    t.match(await send(guard, `http://127.0.0.1:${port}/${status}`), { kind: 'answered', status })
  }
  t.equal(canary.connections(), 0)
})

interface Attack {
  what: string
  /** Talks to one connection, after its request came in. */
  talk: (socket: Socket) => void
  expected: object
  /** It sends so much that we end it before the time is up. */
  endsEarly?: boolean
}

const repeat = (socket: Socket, text: string, everyMilliseconds: number, start: string): void => {
  socket.write(start)
  const timer = setInterval(() => socket.writable && socket.write(text), everyMilliseconds)
  socket.on('close', () => clearInterval(timer))
}
const flood = (socket: Socket, text: string): void => {
  const chunk = text.repeat(Math.ceil(16_384 / text.length))
  const more = (): void => {
    while (socket.writable && socket.write(chunk));
  }
  socket.on('drain', more)
  more()
}
const OK = 'HTTP/1.1 200 OK\r\n'
const LATE = { kind: 'failed', reason: `no answer within ${TIMEOUT / 1000} s` }

const ATTACKS: Attack[] = [
  { what: 'says nothing', talk: () => {}, expected: LATE },
  { what: 'drips its status line', talk: (socket) => repeat(socket, 'O', 40, 'HTTP/1.1 200 '), expected: LATE },
  { what: 'drips its headers', talk: (socket) => repeat(socket, 'X-More: x\r\n', 20, OK), expected: LATE },
  {
    what: 'sends headers without end',
    talk: (socket) => {
      socket.write(OK)
      flood(socket, 'X-More: xxxxxxxxxxxxxxxx\r\n')
    },
    expected: { kind: 'failed', reason: 'the headers of the answer are too large' },
    endsEarly: true,
  },
  {
    what: 'sends one header line without end',
    talk: (socket) => {
      socket.write(`${OK}X-Long: `)
      flood(socket, 'x')
    },
    expected: { kind: 'failed', reason: 'the headers of the answer are too large' },
    endsEarly: true,
  },
  { what: 'floods with 1xx', talk: (socket) => flood(socket, 'HTTP/1.1 103 Early Hints\r\n\r\n'), expected: LATE },
  {
    what: 'sends a body without end',
    talk: (socket) => {
      socket.write(`${OK}\r\n`)
      flood(socket, 'body ')
    },
    expected: { kind: 'answered', status: 200, answer: /^body body/ },
    endsEarly: true,
  },
  {
    what: 'promises a huge body',
    talk: (socket) => {
      socket.write(`${OK}Content-Length: 99999999999\r\n\r\n`)
      flood(socket, 'body ')
    },
    expected: { kind: 'answered', status: 200, answer: /^body body/ },
    endsEarly: true,
  },
  {
    what: 'drips its body',
    talk: (socket) => repeat(socket, 'b', 40, `${OK}Content-Length: 1000\r\n\r\n`),
    expected: { kind: 'answered', status: 200, answer: /^b+$/ },
  },
  {
    what: 'promises a body and sends none',
    talk: (socket) => void socket.write(`${OK}Content-Length: 10\r\n\r\n`),
    expected: { kind: 'answered', status: 200, answer: '' },
  },
  {
    what: 'hangs up in the body',
    talk: (socket) => void socket.write(`${OK}Content-Length: 10\r\n\r\nbod`, () => socket.destroy()),
    expected: { kind: 'answered', status: 200, answer: 'bod' },
    endsEarly: true,
  },
  { what: 'hangs up', talk: (socket) => void socket.end(), expected: { kind: 'failed' }, endsEarly: true },
  {
    what: 'resets the connection',
    talk: (socket) => void socket.resetAndDestroy(),
    expected: { kind: 'failed', reason: 'the connection was reset' },
    endsEarly: true,
  },
  {
    what: 'does not speak HTTP',
    talk: (socket) => void socket.end('220 mx.example ESMTP\r\n'),
    expected: { kind: 'failed', reason: 'the answer is not HTTP' },
    endsEarly: true,
  },
]

t.test('no receiver holds us longer than its time', async (t) => {
  for (const { what, talk, expected, endsEarly = false } of ATTACKS) {
    await t.test(`a receiver that ${what}`, async (t) => {
      let closed = false
      const port = await listenOn(
        t,
        createTcpServer((socket) => {
          socket.once('data', () => talk(socket))
          socket.on('close', () => (closed = true))
        }),
      )
      const startedAt = performance.now()
      const guard = guardFor(t, { allowPrivateAddresses: true })
      const isAnswered = 'answer' in expected
      const timeout = endsEarly ? LONG_TIMEOUT : isAnswered ? ANSWER_TIMEOUT : TIMEOUT
      t.match(await send(guard, `http://127.0.0.1:${port}/`, timeout), expected)
      const took = performance.now() - startedAt
      t.ok(took < (endsEarly ? LONG_TIMEOUT : timeout + SLACK), `took ${Math.round(took)} ms`)
      await until('the connection is closed', () => closed)
    })
  }
})

t.test('the time includes the lookup', async (t) => {
  const guard = guardFor(t, { lookup: () => new Promise(() => {}) })
  t.same(await send(guard, 'http://slow.test/', TIMEOUT), LATE)
})

t.test('a connection that is refused says so without an address', async (t) => {
  const server = createTcpServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  await new Promise((resolve) => server.close(resolve))
  t.same(await send(guardFor(t, { allowPrivateAddresses: true }), `http://127.0.0.1:${port}/`), {
    kind: 'failed',
    reason: 'the connection was refused',
  })
})

t.test('certificates are checked, with the authorities of the file', async (t) => {
  const pem = readFileSync(CERTIFICATE, 'utf8')
  const port = await listenOn(
    t,
    createHttpsServer({ key: pem, cert: pem }, (incoming, answer) => {
      collect(incoming, () => answer.end('ok'))
    }),
  )
  const options = { allowPrivateAddresses: true, allowHttp: false, lookup: async () => ['127.0.0.1'] }
  t.same(await send(guardFor(t, options), `https://hooks.test:${port}/`), {
    kind: 'failed',
    reason: 'the certificate is self-signed',
  })
  const trusting = guardFor(t, { ...options, caFile: CERTIFICATE })
  t.match(await send(trusting, `https://hooks.test:${port}/`), { kind: 'answered', status: 200, answer: 'ok' })
  t.same(await send(trusting, `https://other.test:${port}/`), {
    kind: 'failed',
    reason: 'the certificate is for another host name',
  })
  t.same(await send(guardFor(t, options), `https://127.0.0.1:${await plainPort(t)}/`), {
    kind: 'failed',
    reason: 'TLS failed',
  })
})

async function plainPort(t: Test): Promise<number> {
  return listenOn(
    t,
    createTcpServer((socket) => void socket.end('HTTP/1.1 200 OK\r\n\r\n')),
  )
}

function collect(incoming: IncomingMessage, done: (body: string) => void): void {
  const chunks: Buffer[] = []
  incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
  incoming.on('end', () => done(Buffer.concat(chunks).toString('utf8')))
}
