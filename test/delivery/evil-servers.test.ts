import { X509Certificate } from 'node:crypto'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import t, { type Test } from 'tap'
import type { SendEnd } from '../../src/delivery/session/transaction-end.ts'
import type { HostTls } from '../../src/delivery/protocol/host-tls.ts'
import type { TlsTicket } from '../../src/delivery/session/start-tls.ts'
import { selfSigned } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import { BYTES, ENVELOPE, job, mx, open, OPPORTUNISTIC, REQUIRED, session, type Target } from './session-kit.ts'

const MiB = 2 ** 20
/** Far below what they send, far above what a quiet process wavers. */
const MOST_GROWTH = 60 * MiB
const EHLO = '250-mx.test\r\n250 PIPELINING\r\n'
const STEP_EHLO = '250 mx.test\r\n'

type Behaviour = (socket: Socket, lines: AsyncIterable<string>) => void | Promise<void>

interface RawServer {
  address: string
  port: number
  /** Every line that came. */
  heard: string[]
  sockets: Set<Socket>
}

/** Raw TCP: the behaviour does with it what it likes. */
async function raw(t: Test, behave: Behaviour): Promise<RawServer> {
  const heard: string[] = []
  const sockets = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    // A socket that is closed while it is read says so.
    void Promise.resolve(behave(socket, linesOf(socket, heard))).catch(() => {})
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.2', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { address: '127.0.0.2', port: (server.address() as AddressInfo).port, heard, sockets }
}

async function* linesOf(socket: Socket, heard: string[]): AsyncGenerator<string> {
  let rest = ''
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    const lines = `${rest}${String(chunk)}`.split('\r\n')
    rest = lines.pop() ?? ''
    for (const line of lines) {
      heard.push(line)
      yield line
    }
  }
}

/** Answers each line as it says, until the answer is missing. */
function answering(answers: string[], then?: (socket: Socket) => void): Behaviour {
  return async (socket, lines) => {
    const [banner = '', ...rest] = answers
    socket.write(banner)
    for await (const _line of lines) {
      const answer = rest.shift()
      if (answer !== undefined) socket.write(answer)
      if (rest.length === 0) {
        then?.(socket)
        return
      }
    }
  }
}

const halfClose = (socket: Socket): void => void socket.end()
const reset = (socket: Socket): void => void socket.resetAndDestroy()
const endless =
  (piece: string) =>
  (socket: Socket): void => {
    const write = (): void => {
      while (!socket.destroyed && socket.write(piece)) {}
      if (!socket.destroyed) socket.once('drain', write)
    }
    write()
  }
const dripping =
  (text: string) =>
  (socket: Socket): void => {
    let position = 0
    const timer: NodeJS.Timeout = setInterval(() => {
      if (socket.destroyed) return clearInterval(timer)
      socket.write(text.charAt(position++ % text.length))
    }, 20)
    socket.on('close', () => clearInterval(timer))
  }

for (const [name, behave, stage, reason] of [
  ['10 MB without a line end', endless('x'.repeat(65_536)), 'banner', /more than 65536 bytes/],
  ['endless lines', endless('220-hello\r\n'.repeat(1_000)), 'banner', /more than 100 lines/],
  ['one line of 64 KiB and more', answering([`220 ${'x'.repeat(70_000)}\r\n`]), 'banner', /more than 65536 bytes/],
  ['one byte at a time', dripping('220-drip\r\n'), 'banner', /nothing within/],
  ['no code', answering(['hello\r\n']), 'banner', /malformed reply: hello/],
  ['code 999', answering(['999 what\r\n']), 'banner', /malformed reply: 999/],
  ['code 199', answering(['199 what\r\n']), 'banner', /malformed reply: 199/],
  ['NUL and bare CR', answering(['\u0000220 x\r\n']), 'banner', /malformed reply/],
  ['a bare CR in place of CRLF', answering(['220 mx\r']), 'banner', /nothing within/],
  ['several codes in one reply', answering(['220-mx\r\n554 mx\r\n']), 'banner', /several codes/],
  ['a 421 of many lines', answering(['421-4.3.2 one\r\n421-4.3.2 two\r\n421 4.3.2 end\r\n']), 'banner', /one two end/],
  ['half a close', halfClose, 'banner', /closed the connection/],
  ['banner and EHLO reply in one', answering([`220 mx\r\n${EHLO}`]), 'banner|ehlo', /reply before its command/],
  ['the EHLO reply twice', answering(['220 mx\r\n', `${EHLO}${EHLO}`]), 'ehlo', /reply before its command/],
  ['a dripping EHLO reply', answering(['220 mx\r\n', ''], dripping('250-drip\r\n')), 'ehlo', /nothing within/],
  ['half a close after EHLO', answering(['220 mx\r\n', ''], halfClose), 'ehlo', /closed/],
  ['a reset after EHLO', answering(['220 mx\r\n', ''], reset), 'ehlo', /closed|ECONNRESET/],
] as const) {
  t.test(`a host that greets with ${name} is a failure of the path`, async (t) => {
    const server = await raw(t, behave)
    const before = process.memoryUsage().rss
    const opened = await open(server, { timeouts: { banner: 400, ehlo: 400 } })
    if (opened.kind !== 'failed') return t.fail(opened.kind)
    t.match(opened.failure.stage, new RegExp(`^(?:${stage})$`))
    t.match(opened.failure.reason, reason)
    t.notMatch(opened.failure.reason, /\p{Cc}/u)
    t.ok(opened.failure.reason.length <= 2_048)
    t.ok(process.memoryUsage().rss - before < MOST_GROWTH, 'memory is bounded')
  })
}

const TO_BODY = ['220 mx\r\n', STEP_EHLO, '250 ok\r\n', '250 ok\r\n', '354 go\r\n']
const SHORT: Target = { timeouts: { mail: 400, rcpt: 400, data: 400, final_dot: 400, body: 400, rset: 400, quit: 300 } }

for (const [name, answers, end, then] of [
  ['answers nothing to MAIL', ['220 mx\r\n', STEP_EHLO], { kind: 'lost', stage: 'mail' }],
  ['drips to MAIL', ['220 mx\r\n', STEP_EHLO, '2'], { kind: 'lost', stage: 'mail' }, dripping('50-x\r\n2')],
  ['half-closes after MAIL', ['220 mx\r\n', STEP_EHLO, '250 ok\r\n'], { kind: 'lost', stage: 'rcpt' }, halfClose],
  ['resets after RCPT', ['220 mx\r\n', STEP_EHLO, '250 ok\r\n', '250 ok\r\n'], { kind: 'lost', stage: 'data' }, reset],
  ['says 999 to RCPT', ['220 mx\r\n', STEP_EHLO, '250 ok\r\n', '999 ok\r\n'], { kind: 'lost', stage: 'rcpt' }],
  ['says 354 to RCPT', ['220 mx\r\n', STEP_EHLO, '250 ok\r\n', '354 ok\r\n'], { kind: 'lost', stage: 'rcpt' }],
  [
    'says 354 twice',
    ['220 mx\r\n', STEP_EHLO, '250 ok\r\n', '250 ok\r\n', '354 go\r\n354 go\r\n'],
    { kind: 'lost', stage: 'data', reason: /reply before its command: 354/ },
  ],
  [
    'answers the dot with 354',
    [...TO_BODY, ...dotted('354 go\r\n')],
    { kind: 'unanswered', reason: /unexpected answer to the final dot/ },
  ],
  [
    'answers the dot with NUL',
    [...TO_BODY, ...dotted('\u0000\r\n')],
    { kind: 'unanswered', reason: /malformed reply/ },
  ],
  [
    'answers the dot with 421 of many lines',
    [...TO_BODY, ...dotted('421-4.3.2 a\r\n421 4.3.2 b\r\n')],
    { kind: 'refused', stage: 'dot', reply: { code: 421, enhancedCode: '4.3.2' } },
  ],
  ['half-closes at the dot', [...TO_BODY, ...dotted('')], { kind: 'unanswered' }, halfClose],
  [
    'sends 64 KiB to the dot and no end',
    [...TO_BODY, ...dotted('')],
    { kind: 'unanswered', reason: /more than/ },
    endless('x'.repeat(65_536)),
  ],
  [
    'answers in latin-1',
    ['220 mx\r\n', STEP_EHLO, '550 5.7.1 gesch\u00fctzt\r\n'],
    { kind: 'refused', stage: 'mail', reply: { code: 550, text: '550 5.7.1 gesch\u00fctzt' } },
  ],
] as [string, string[], Partial<SendEnd>, ((socket: Socket) => void)?][]) {
  t.test(`a host that ${name}`, async (t) => {
    const server = await raw(t, answering(answers, then))
    const opened = await session(t, server, SHORT)
    const sent = job()
    opened.send(sent)
    t.match(await sent.end, end)
    if (end.kind !== 'refused') t.equal(opened.isUsable(), false)
    if (end.kind === 'lost') t.notOk(server.heard.includes('.'), 'no dot is sent')
  })
}

/** The lines of the body and the dot: the answer comes behind the last. */
function dotted(answer: string): string[] {
  return [
    ...BYTES.toString()
      .split('\r\n')
      .slice(0, -1)
      .map(() => ''),
    answer,
  ]
}

t.test('a host that takes DATA without a recipient gets a lone dot, and the next message after it', async (t) => {
  const toVoid = ['220 mx\r\n', EHLO, '250 ok\r\n', '550 5.1.1 no\r\n', '354 go\r\n']
  const next = ['250 reset\r\n', '250 ok\r\n', '250 ok\r\n', '354 go\r\n', ...dotted('250 2.0.0 queued\r\n')]
  const server = await raw(t, answering([...toVoid, '554 5.5.1 no valid recipients\r\n', ...next]))
  const opened = await session(t, server, SHORT)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'refused', stage: 'rcpt', reply: { code: 550 } })
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
  t.strictSame(server.heard.slice(4, 6), ['.', 'RSET'])
  const taken = await session(t, await raw(t, answering([...toVoid, '250 2.0.0 queued\r\n'])), SHORT)
  t.match(await taken.deliver(ENVELOPE, BYTES), { kind: 'refused', stage: 'rcpt', reply: { code: 550 } })
  t.equal(taken.isUsable(), false, 'nobody knows what it has')
})

t.test('latin-1 and UTF-8 are both read', async (t) => {
  const server = await raw(t, async (socket, lines) => {
    socket.write('220 mx\r\n')
    const answers = [Buffer.from(STEP_EHLO), Buffer.from('550 5.7.1 gesch\u00fctzt\r\n', 'latin1')]
    for await (const _line of lines) socket.write(answers.shift() ?? '250 ok\r\n')
  })
  const end = await (await session(t, server, SHORT)).deliver(ENVELOPE, BYTES)
  t.match(end, { reply: { text: '550 5.7.1 gesch\u00fctzt' } })
})

t.test('a host that never answers QUIT is left after its time', async (t) => {
  const server = await mx(t, { script: { quit: 'silence' } })
  const opened = await session(t, server, SHORT)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
  await opened.quit()
  t.match(await opened.ended, { kind: 'ended-well', delivered: 1 })
})

t.test('a 421 between two messages is told of the connection, one to a message with that message', async (t) => {
  const closing = await raw(t, answering(['220 mx\r\n', EHLO]))
  const idle = await session(t, closing, SHORT)
  for (const socket of closing.sockets) socket.end('421 4.4.2 good night\r\n')
  t.match(await idle.ended, { kind: 'closing', reply: { code: 421, text: '421 4.4.2 good night' } })
  const server = await mx(t, { script: { rcpt: '421 4.3.2 later' } })
  const opened = await session(t, server, SHORT)
  await opened.deliver(ENVELOPE, BYTES)
  t.match(await opened.ended, { kind: 'ended-well', delivered: 0 })
})

const tls = selfSigned()
const WITH_TLS = { skip: tls === undefined && 'openssl is not installed' }

/** STARTTLS, then whatever comes next on the raw socket. */
function afterStartTls(then: (socket: Socket) => void): Behaviour {
  return async (socket, lines) => {
    socket.write('220 mx\r\n')
    for await (const line of lines) {
      if (line.startsWith('EHLO')) socket.write('250-mx\r\n250 STARTTLS\r\n')
      if (line !== 'STARTTLS') continue
      socket.write('220 go\r\n')
      return then(socket)
    }
  }
}

const VERIFIED: HostTls = { kind: 'verified', names: ['mx.test'], by: 'sts', policy: { type: 'sts', id: '1' } }
const DANE: HostTls = {
  kind: 'dane',
  names: ['mx.test'],
  policy: { type: 'dane', id: '' },
  records: [{ usage: 3, selector: 1, matching: 1, data: '00'.repeat(32) }],
}

t.test('a handshake that resets, stays silent or drips fails in its time', async (t) => {
  const behaviours: Record<string, (socket: Socket) => void> = {
    reset,
    'half-close': halfClose,
    silence: () => {},
    drip: dripping('\u0016\u0003'),
  }
  for (const [name, then] of Object.entries(behaviours)) {
    for (const policy of [OPPORTUNISTIC, REQUIRED, VERIFIED, DANE]) {
      const opened = await open(await raw(t, afterStartTls(then)), { tls: policy, timeouts: { handshake: 300 } })
      t.match(opened, { kind: 'failed', failure: { stage: 'starttls', code: '4.7.4', isInjection: false } }, name)
    }
  }
})

t.test(
  'a host that ends the connection in place of its first word over TLS has failed in the handshake',
  WITH_TLS,
  async (t) => {
    if (tls === undefined) return
    const wantsCertificate = { requestCert: true, rejectUnauthorized: true }
    const hosts: [string, object, 'starttls' | 'ehlo', ((socket: Socket) => void)?][] = [
      ['wants a certificate, by TLS 1.2', { ...wantsCertificate, maxVersion: 'TLSv1.2' }, 'starttls'],
      ['wants a certificate, by TLS 1.3', wantsCertificate, 'starttls'],
      ['closes at once', {}, 'starttls', (socket) => void socket.end()],
      ['breaks off', {}, 'starttls', (socket) => void socket.destroy()],
      ['refuses', {}, 'ehlo', (socket) => void socket.once('data', () => socket.end('421 4.3.2 not now\r\n'))],
      ['refuses unasked', {}, 'ehlo', (socket) => void socket.end('421 4.3.2 not now\r\n')],
    ]
    for (const [name, options, stage, onSecure] of hosts) {
      const secure = createTlsServer({ ...tls, ...options }, (socket) => {
        socket.on('error', () => {})
        onSecure?.(socket)
      })
      t.teardown(() => secure.close())
      const server = await raw(
        t,
        afterStartTls((socket) => void secure.emit('connection', socket)),
      )
      const tickets = new Map<string, TlsTicket>()
      t.match(await open(server, { tickets }), { kind: 'failed', failure: { stage, isInjection: false } }, name)
      if (stage === 'starttls') t.equal(tickets.size, 0, 'no ticket for a handshake that failed')
    }
  },
)

t.test('a certificate that nobody vouches for is good enough where any is, and nowhere else', WITH_TLS, async (t) => {
  if (tls === undefined) return
  const expected = [
    [OPPORTUNISTIC, true],
    [REQUIRED, true],
    [VERIFIED, false],
    [DANE, false],
  ] as const
  for (const [policy, isTaken] of expected) {
    const server = await mx(t, { tls })
    const opened = await open(server, { tls: policy })
    t.equal(opened.kind === 'open', isTaken, policy.kind)
    if (opened.kind === 'open') opened.session.stop('over')
    else t.match(opened, { failure: { stage: 'starttls', tlsResult: /certificate|tlsa|validation/ } })
    await until('it is closed', () => server.connections.every(({ isClosed }) => isClosed))
    t.equal(server.messages.length, 0)
  }
})

t.test('a ticket takes a session up again where the certificate does not matter', WITH_TLS, async (t) => {
  if (tls === undefined) return
  let resumed = 0
  const secure = createTlsServer({ ...tls }, (socket) => {
    if (socket.isSessionReused()) resumed++
    socket.on('error', () => {})
    socket.on('data', (bytes) => socket.write(String(bytes).startsWith('QUIT') ? '221 bye\r\n' : STEP_EHLO))
  })
  t.teardown(() => secure.close())
  const server = await raw(
    t,
    afterStartTls((socket) => void secure.emit('connection', socket)),
  )
  const tickets = new Map<string, TlsTicket>()
  for (const policy of [REQUIRED, REQUIRED, OPPORTUNISTIC]) {
    const opened = await session(t, server, { tls: policy, tickets })
    const problem = 'the certificate is self-signed'
    t.match(opened.facts.tls, { protocol: 'TLSv1.3', isVerified: false, fingerprint: /^[0-9a-f]{64}$/, problem })
    await opened.quit()
  }
  t.equal(resumed, 2)
  t.equal(tickets.size, 1)
})

t.test('a ticket over which a handshake failed is not offered again', WITH_TLS, async (t) => {
  if (tls === undefined) return
  let isBroken = false
  const secure = createTlsServer({ ...tls }, (socket) => {
    socket.on('error', () => {})
    socket.on('data', (bytes) => socket.write(String(bytes).startsWith('QUIT') ? '221 bye\r\n' : STEP_EHLO))
  })
  t.teardown(() => secure.close())
  const server = await raw(
    t,
    afterStartTls((socket) => {
      if (isBroken) reset(socket)
      else secure.emit('connection', socket)
    }),
  )
  const tickets = new Map<string, TlsTicket>()
  const opened = await session(t, server, { tls: REQUIRED, tickets })
  await opened.quit()
  t.equal(tickets.size, 1)
  isBroken = true
  t.match(await open(server, { tls: REQUIRED, tickets }), { kind: 'failed', failure: { stage: 'starttls' } })
  t.equal(tickets.size, 0)
})

t.test('a certificate that cannot be judged fails the connection alone', WITH_TLS, async (t) => {
  if (tls === undefined) return
  const key = new X509Certificate(tls.cert).publicKey.export({ type: 'spki', format: 'der' }).toString('hex')
  const policy: HostTls = {
    ...DANE,
    kind: 'dane',
    // A name that OpenSSL takes for a mistake of its caller.
    names: ['mx\u0000.test'],
    records: [{ usage: 2, selector: 1, matching: 0, data: key }],
  }
  t.match(await open(await mx(t, { tls }), { tls: policy }), { kind: 'failed', failure: { stage: 'starttls' } })
})
