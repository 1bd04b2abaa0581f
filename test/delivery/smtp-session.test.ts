import t from 'tap'
import type { SendEnd } from '../../src/delivery/session/transaction-end.ts'
import { createTranscript } from '../../src/delivery/session/transcript.ts'
import { MOST_REPLY_CHARACTERS } from '../../src/mail/reply/smtp-reply.ts'
import { selfSigned, type Script } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import { BYTES, ENVELOPE, job, mx, open, OPPORTUNISTIC, PLAIN, REQUIRED, session } from './session-kit.ts'

/** Where nobody answers. */
const SILENT_GREETING = { timeouts: { banner: 1_500, ehlo: 1_500, starttls: 1_500 } }
const SILENT_TRANSACTION = { timeouts: { mail: 300, rcpt: 300, data: 300 } }
const SILENT_DOT = { timeouts: { final_dot: 300 } }

const tls = selfSigned()
const withTls = tls === undefined ? {} : { tls }
const WITH_TLS = { skip: tls === undefined && 'openssl is not installed' }

const reasonOf = (end: SendEnd): string => ('reason' in end ? end.reason : '')

t.test('a message leaves from the bound address with the EHLO name, byte for byte', async (t) => {
  const server = await mx(t)
  const opened = await session(t, server)
  const end = await opened.deliver(ENVELOPE, BYTES)
  t.match(end, { kind: 'accepted', reply: { code: 250, enhancedCode: '2.0.0', text: '250 2.0.0 queued' } })
  t.match(server.connections, [{ remoteAddress: '127.0.0.11', ehloName: 'mail.acme.test' }])
  t.match(server.messages, [{ from: ENVELOPE.from, to: ENVELOPE.to }])
  t.ok(server.messages[0]?.bytes.equals(BYTES))
  t.match(server.connections[0]?.commands, [
    'EHLO mail.acme.test',
    `MAIL FROM:<${ENVELOPE.from}> SIZE=${BYTES.length}`,
    `RCPT TO:<${ENVELOPE.to}>`,
    'DATA',
  ])
  t.strictSame(opened.facts, { host: 'mx.test', localAddress: '127.0.0.11', remoteAddress: '127.0.0.2', tls: null })
  await opened.quit()
  t.equal(server.connections[0]?.commands.at(-1), 'QUIT')
  t.equal(opened.isUsable(), false)
})

t.test('a host that announces DSN gets the token of the return path', async (t) => {
  const server = await mx(t, { extensions: ['DSN'] })
  await (await session(t, server)).deliver(ENVELOPE, BYTES)
  t.match(server.connections[0]?.commands, [
    'EHLO mail.acme.test',
    'MAIL FROM:<b-token@bounces.acme.test> RET=HDRS ENVID=b-token',
    'RCPT TO:<anna@example.test> NOTIFY=FAILURE,DELAY',
    'DATA',
  ])
})

for (const extensions of [['PIPELINING'], []]) {
  const way = extensions.length > 0 ? 'pipelined' : 'one by one'
  for (const [stage, reply] of [
    ['mail', '550 5.7.1 not you'],
    ['rcpt', '550-5.1.1 no\r\n550 5.1.1 such user'],
    ['rcpt', '450 4.7.1 later'],
    ['data', '554 5.7.0 no'],
    ['dot', '554 5.7.1 spam'],
    ['dot', '451 4.3.0 later'],
  ] as const) {
    t.test(`${way}: ${reply.slice(0, 3)} to ${stage} is told, and the connection serves the next`, async (t) => {
      const fallback = { mail: '250 ok', rcpt: '250 ok', data: '354 go', dot: '250 ok' }[stage]
      const server = await mx(t, { extensions, script: { [stage]: [reply, fallback] } })
      const opened = await session(t, server)
      const expected = { code: Number(reply.slice(0, 3)), enhancedCode: reply.slice(4, 9) }
      t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'refused', stage, reply: expected })
      t.equal(opened.isUsable(), true)
      t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
      t.equal(server.connections.length, 1)
      t.ok(server.connections[0]?.commands.includes('RSET'))
    })
  }
  for (const stage of ['mail', 'rcpt', 'data', 'dot'] as const) {
    t.test(`${way}: 421 to ${stage} is told with its stage and ends the connection`, async (t) => {
      const server = await mx(t, { extensions, script: { [stage]: '421-4.3.2 first\r\n421 4.3.2 closing' } })
      const opened = await session(t, server)
      t.match(await opened.deliver(ENVELOPE, BYTES), {
        kind: 'refused',
        stage,
        reply: { code: 421, enhancedCode: '4.3.2' },
      })
      t.equal(opened.isUsable(), false)
    })
  }
  for (const reply of ['close', 'silence'] as const) {
    t.test(`${way}: ${reply} before the dot is lost, after it unanswered`, async (t) => {
      for (const stage of ['mail', 'rcpt', 'data'] as const) {
        const server = await mx(t, { extensions, script: { [stage]: reply } })
        const opened = await session(t, server, reply === 'silence' ? SILENT_TRANSACTION : {})
        t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'lost' }, stage)
        t.equal(opened.isUsable(), false)
      }
      const server = await mx(t, { extensions, script: { dot: reply } })
      const opened = await session(t, server, reply === 'silence' ? SILENT_DOT : {})
      t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'unanswered' })
      t.equal(server.messages.length, 1)
      t.equal(opened.isUsable(), false)
    })
  }
}

for (const [name, reply] of [
  ['no code', 'hello'],
  ['several codes', '250-ok\r\n550 no'],
  ['an unfinished line', '550 5.1.1 no su\r\n'.slice(0, 3)],
  ['more than 100 lines', `${'250-ok\r\n'.repeat(101)}250 ok`],
  ['more than 64 KiB', `250-${'x'.repeat(70_000)}`],
] as const) {
  t.test(`a reply to the dot with ${name} answers nothing`, async (t) => {
    const server = await mx(t, { script: { dot: reply } })
    const end = await (await session(t, server)).deliver(ENVELOPE, BYTES)
    t.match(end, name === 'an unfinished line' ? { kind: 'refused', reply: { code: 550 } } : { kind: 'unanswered' })
  })
}

t.test('a reply to RCPT with several codes is a lost connection, not a bounce', async (t) => {
  const server = await mx(t, { script: { rcpt: '550-5.1.1 no\r\n250 ok' }, extensions: [] })
  t.match(await (await session(t, server)).deliver(ENVELOPE, BYTES), { kind: 'lost' })
})

for (const [name, script] of Object.entries<Script>({
  'RCPT twice': { rcpt: '250 ok\r\n250 ok' },
  'MAIL twice': { mail: '250 ok\r\n250 ok' },
  'DATA with 250': { data: '250 ok' },
})) {
  for (const [way, extensions] of Object.entries({ pipelined: ['PIPELINING'], 'one by one': [] })) {
    t.test(`${way}: a host that answers ${name} gets no body`, async (t) => {
      const server = await mx(t, { script, extensions })
      const opened = await session(t, server)
      t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'lost', reason: /no 354|reply before its command/ })
      await until('it is closed', () => server.connections[0]?.isClosed)
      t.equal(server.messages.length, 0)
      t.notOk(server.connections[0]?.commands.some((command) => command.startsWith('Subject')))
      t.equal(opened.isUsable(), false)
    })
  }
}

t.test('a message that may not be pipelined goes one command at a time, between others that may', async (t) => {
  const rcpt = ['250 ok', '550 5.1.1 no', '250 ok']
  const server = await mx(t, { script: { rcpt, dot: [{ afterMilliseconds: 100, reply: '250 ok' }, '250 ok'] } })
  const opened = await session(t, server)
  const [first, careful, third] = [job(), job({ mayPipeline: false }), job()]
  for (const one of [first, careful, third]) opened.send(one)
  t.match(await first.end, { kind: 'accepted' })
  t.match(await careful.end, { kind: 'refused', stage: 'rcpt' })
  t.match(await third.end, { kind: 'accepted' })
  const verbs = server.connections[0]?.commands.map((command) => command.slice(0, 4))
  t.strictSame(verbs, ['EHLO', 'MAIL', 'RCPT', 'DATA', 'MAIL', 'RCPT', 'RSET', 'MAIL', 'RCPT', 'DATA'])
})

t.test('whatever a host says is told as one short line', async (t) => {
  const said = `250-early\u0000\u0007\r\n250-${'x'.repeat(10_000)}\r\n250 early`
  const early = await session(t, await mx(t, { script: { data: `354 go on\r\n${said}` } }))
  const banner = said.replaceAll('250', '554')
  const greeting = await open(await mx(t, { script: { banner } }))
  const reasons = [
    reasonOf(await early.deliver(ENVELOPE, Buffer.alloc(10_000_000, 'a line\r\n'))),
    greeting.kind === 'failed' ? greeting.failure.reason : '',
  ]
  for (const reason of reasons) {
    t.match(reason, /early/)
    t.notMatch(reason, /\p{Cc}/u)
    t.ok(reason.length <= MOST_REPLY_CHARACTERS, `${reason.length} characters`)
  }
})

t.test('a large body that the host stops reading is lost before the dot', async (t) => {
  const server = await mx(t, {
    extensions: [],
    script: {
      data: (_line, connection) => {
        setTimeout(() => connection.isClosed || void server.close(), 50)
        return '354 go'
      },
    },
  })
  const opened = await session(t, server)
  const end = await opened.deliver(ENVELOPE, Buffer.alloc(200 * 1024 * 1024, 'a line\r\n'))
  t.match(end, { kind: 'lost', stage: 'data' })
})

t.test('a message larger than the host takes is not offered to it', async (t) => {
  const server = await mx(t, { extensions: ['SIZE 20'] })
  const opened = await session(t, server)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'unacceptable', cause: 'too_large' })
  t.equal(opened.isUsable(), true)
  t.notOk(server.connections[0]?.commands.some((command) => command.startsWith('MAIL')))
})

t.test('a non-ASCII address needs SMTPUTF8', async (t) => {
  const envelope = { ...ENVELOPE, to: 'jörg@example.test', needsUtf8: true }
  const plain = await mx(t)
  t.match(await (await session(t, plain)).deliver(envelope, BYTES), { kind: 'unacceptable', cause: 'not_ascii' })
  const modern = await mx(t, { extensions: ['SMTPUTF8'] })
  t.match(await (await session(t, modern)).deliver(envelope, BYTES), { kind: 'accepted' })
  t.equal(modern.messages[0]?.to, 'jörg@example.test')
})

t.test('a body beyond US-ASCII is announced where the host knows how', async (t) => {
  const bytes = Buffer.from('Subject: x\r\n\r\nGr\u00fc\u00dfe\r\n')
  for (const [extensions, body] of [
    [['8BITMIME'], ' BODY=8BITMIME'],
    [[], ''],
  ] as const) {
    const server = await mx(t, { extensions: [...extensions] })
    t.match(await (await session(t, server)).deliver({ ...ENVELOPE, is8Bit: true }, bytes), { kind: 'accepted' })
    t.equal(server.connections[0]?.commands[1], `MAIL FROM:<${ENVELOPE.from}>${body}`)
    t.ok(server.messages[0]?.bytes.equals(bytes), 'byte for byte')
  }
})

t.test('everything that fails before MAIL names its stage', async (t) => {
  const cases = [
    ['a 5xx banner', { script: { banner: '554 5.7.1 no service' } }, 'banner', '4.3.2', /no service/],
    ['a 4xx banner', { script: { banner: '450 4.3.2 too busy' } }, 'banner', '4.3.2', /too busy/],
    ['a silent banner', { script: { banner: 'silence' } }, 'banner', '4.4.1', /./],
    ['a closed banner', { script: { banner: 'close' } }, 'banner', '4.4.1', /./],
    ['EHLO and HELO refused', { script: { ehlo: '550 no', helo: '550 no' } }, 'ehlo', '4.3.2', /no/],
    ['421 to EHLO', { script: { ehlo: '421 4.3.2 later' } }, 'ehlo', '4.3.2', /later/],
    ['a closed EHLO', { script: { ehlo: 'close' } }, 'ehlo', '4.4.2', /./],
    ['a silent EHLO', { script: { ehlo: 'silence' } }, 'ehlo', '4.4.2', /./],
    ['STARTTLS refused', { tls: 'broken', script: { starttls: '454 4.7.0 not now' } }, 'starttls', '4.7.4', /not now/],
    ['a broken handshake', { tls: 'broken' }, 'starttls', '4.7.4', /./],
    ['a closed STARTTLS', { tls: 'broken', script: { starttls: 'close' } }, 'starttls', '4.7.4', /./],
  ] as const
  for (const [name, options, stage, code, reason] of cases) {
    const opened = await open(await mx(t, options), name.startsWith('a silent') ? SILENT_GREETING : {})
    t.match(opened, { kind: 'failed', failure: { stage, code, reason }, facts: { remoteAddress: '127.0.0.2' } }, name)
  }
})

t.test('HELO is good enough for a host that knows no EHLO', async (t) => {
  const server = await mx(t, { script: { ehlo: '502 5.5.1 what' } })
  t.match(await (await session(t, server)).deliver(ENVELOPE, BYTES), { kind: 'accepted' })
})

t.test('nobody listening is a failed connection', async (t) => {
  const server = await mx(t)
  await server.close()
  t.match(await open(server), { kind: 'failed', failure: { stage: 'connect', code: '4.4.1', reason: /ECONNREFUSED/ } })
})

t.test('an address that this machine does not have is a result of its own', async (t) => {
  const server = await mx(t)
  t.match(await open(server, { source: '198.51.100.7' }), {
    kind: 'local',
    why: 'source-gone',
    reason: /198\.51\.100\.7|EADDRNOTAVAIL/,
  })
  t.equal(server.connections.length, 0)
})

t.test('STARTTLS is used when announced, with any certificate, and EHLO is sent again', WITH_TLS, async (t) => {
  for (const policy of [OPPORTUNISTIC, REQUIRED]) {
    const server = await mx(t, withTls)
    const opened = await session(t, server, { tls: policy })
    t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
    const known = { protocol: 'TLSv1.3', cipher: /^TLS_/, fingerprint: /^[0-9a-f]{64}$/, isVerified: false }
    t.match(opened.facts.tls, known)
    t.equal(server.messages[0]?.connection.isTls, true)
    t.match(server.connections[0]?.commands.slice(0, 3), ['EHLO mail.acme.test', 'STARTTLS', 'EHLO mail.acme.test'])
  }
  const plain = await mx(t, withTls)
  await (await session(t, plain, { tls: PLAIN })).deliver(ENVELOPE, BYTES)
  t.equal(plain.messages[0]?.connection.isTls, false)
})

t.test('what stands in plain text behind the 220 to STARTTLS is a failure of the path', WITH_TLS, async (t) => {
  for (const injected of ['250-evil\r\n250 SMTPUTF8\r\n', '250 half of a li']) {
    const server = await mx(t, { ...withTls, script: { starttls: `220 go\r\n${injected}\r\n`.replace('li\r\n', '') } })
    for (const policy of [OPPORTUNISTIC, REQUIRED]) {
      const failure = { stage: 'starttls', code: '4.7.4', isInjection: true }
      t.match(await open(server, { tls: policy }), { kind: 'failed', failure })
    }
  }
})

t.test('required TLS never falls back to plain text', async (t) => {
  for (const options of [{}, { tls: 'broken' as const }]) {
    const server = await mx(t, { ...options, script: options.tls === undefined ? { starttls: '502 5.5.1 what' } : {} })
    t.match(await open(server, { tls: REQUIRED }), { kind: 'failed', failure: { stage: 'starttls', code: '4.7.4' } })
    t.equal(server.messages.length, 0)
  }
})

t.test('a session that the host closes while idle is not usable any more', async (t) => {
  const server = await mx(t)
  const opened = await session(t, server)
  await opened.deliver(ENVELOPE, BYTES)
  t.equal(opened.isUsable(), true)
  await server.close()
  await until('the session noticed', () => !opened.isUsable())
})

t.test('a stop returns the message before its dot, and waits for the answer behind it', async (t) => {
  const returned = { kind: 'returned', why: 'stopping' }
  for (const [stage, end] of [
    ['rcpt', returned],
    ['dot', { kind: 'accepted' }],
  ] as const) {
    const server = await mx(t, { script: { [stage]: { afterMilliseconds: 200, reply: '250 ok' } } })
    const opened = await session(t, server)
    const sending = opened.deliver(ENVELOPE, BYTES)
    const isReached = (): boolean =>
      stage === 'rcpt' ? server.connections[0]?.commands.length === 3 : opened.isPastDot()
    await until('the stage is reached', isReached)
    opened.stop('stop')
    t.match(await sending, end)
    t.match(await opened.ended, { kind: 'ended-well' })
    t.equal(opened.isUsable(), false)
  }
})

t.test('the transcript has the dialogue without the message, and of a kept connection only this message', async (t) => {
  const script = { rcpt: ['250 ok', '550-5.1.1 no\r\n550 5.1.1 such user'] }
  const server = await mx(t, { extensions: ['PIPELINING'], script })
  const [first, second] = [createTranscript(), createTranscript()]
  const opened = await session(t, server, { transcript: first })
  await opened.deliver(ENVELOPE, BYTES, first)
  await opened.deliver(ENVELOPE, BYTES, second)
  await opened.quit()
  const connection = `connected to mx.test [127.0.0.2] from [127.0.0.11]`
  t.strictSame(first.text()?.split('\n'), [
    `* ${connection}`,
    '< 220 mx.test ESMTP',
    '> EHLO mail.acme.test',
    '< 250-mx.test',
    '< 250 PIPELINING',
    `> MAIL FROM:<${ENVELOPE.from}>`,
    `> RCPT TO:<${ENVELOPE.to}>`,
    '> DATA',
    '< 250 2.1.0 ok',
    '< 250 ok',
    '< 354 go on',
    `* the message, ${BYTES.length} bytes, and the final dot`,
    '< 250 2.0.0 queued',
  ])
  t.strictSame(second.text()?.split('\n'), [
    `* ${connection}; this connection has carried 1 before`,
    `> MAIL FROM:<${ENVELOPE.from}>`,
    `> RCPT TO:<${ENVELOPE.to}>`,
    '> DATA',
    '< 250 2.1.0 ok',
    '< 550-5.1.1 no',
    '< 550 5.1.1 such user',
    '< 503 5.5.1 no valid recipients',
  ])
})

t.test('the transcript names protocol and cipher, and why there was no session', WITH_TLS, async (t) => {
  const secure = createTranscript()
  const server = await mx(t, withTls)
  await (await session(t, server, { transcript: secure })).deliver(ENVELOPE, BYTES, secure)
  const text = secure.text()
  t.match(text, /> STARTTLS\n< 220 2\.0\.0 go ahead\n\* encrypted: TLSv1\.3 with TLS_\w+; the certificate is not/)
  t.match(text, /verified: .+\n> EHLO /)
  const refused = createTranscript()
  await open(await mx(t, { script: { banner: '554 5.7.1 no service' } }), { transcript: refused })
  t.match(refused.text(), /\n< 554 5\.7\.1 no service\n\* banner failed: 554 5\.7\.1 no service$/)
  const nobody = createTranscript()
  const gone = await mx(t)
  await gone.close()
  await open(gone, { transcript: nobody })
  t.match(nobody.text(), /^\* no connection to mx\.test \[127\.0\.0\.2\] from \[127\.0\.0\.11\]: .*ECONNREFUSED/)
})

t.test('a transcript stays bounded and one line a line, whatever the host says', async (t) => {
  const transcript = createTranscript()
  const server = await mx(t, { script: { rcpt: `250-${'\u001b[2J x'.repeat(900)}\r\n`.repeat(5) + '250 ok' } })
  await (await session(t, server, { transcript })).deliver(ENVELOPE, BYTES, transcript)
  const text = transcript.text() ?? ''
  t.ok(text.length <= 16 * 1024)
  t.match(text, /\n\* the rest is left out$/)
  t.notMatch(text, /[^\P{Cc}\n]/u)
  t.ok(text.split('\n').every((line) => /^[<>*] /.test(line)))
})
