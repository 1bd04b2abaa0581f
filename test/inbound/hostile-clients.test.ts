/**
 * Clients that mean ill, at both doors: no second mail inside of one, no command from before TLS, no memory and no
 * connection without a bound. Published faults: CVE-2023-51764, CVE-2023-51765, CVE-2023-51766 (smuggling).
 */
import { connect } from 'node:net'
import { PassThrough } from 'node:stream'
import type { SMTPServerDataStream } from 'smtp-server'
import t from 'tap'
import { MINUTE } from '../../src/base/clock.ts'
import { createMessageReceiver } from '../../src/inbound/receive-message.ts'
import { until } from '../support/until.ts'
import { inboundParts, type InboundParts } from './inbound-parts.ts'
import { plainToken, rawClient, smtpClient, type SmtpClient } from './smtp-client.ts'
import { LIVE_SUPPRESSIONS } from '../store/store-samples.ts'

const MIB = 2 ** 20
const parts: InboundParts = await inboundParts(t)
const key = await parts.key()
const {
  ports: [plain = 0, starttls = 0],
} = await parts.submission(['none', 'starttls'])
const { port: inbound } = await parts.reports()
const { complaintAddress, messageId } = await parts.deliveredMessage()

/** The two doors, with a client that may send and a recipient it may send to. */
const DOORS = [
  {
    name: 'submission',
    recipient: 'ada@example.net',
    header: 'From: orders@acme.com\r\n\r\n',
    async open(): Promise<SmtpClient> {
      const client = await smtpClient({ port: plain })
      await client.greet(key)
      return client
    },
  },
  {
    name: 'reports',
    recipient: complaintAddress,
    header: 'Subject: report\r\n\r\n',
    async open(): Promise<SmtpClient> {
      const client = await smtpClient({ port: inbound })
      await client.greet()
      return client
    },
  },
]

/** inbound/README.md "End of data": what some server takes for the end of data. */
const WRONG_ENDS = [
  '\n.\n',
  '\n.\r',
  '\r.\n',
  '\r.\r',
  '\n.\r\n',
  '\r.\r\n',
  '\r\n.\n',
  '\r\n.\r',
  '\r\n\0.\r\n',
  '\r\n.\0\r\n',
  '\r\n.\r\r\n',
  '\r\r\n.\r\r\n',
]

for (const { name, recipient, header, open } of DOORS) {
  t.test(`${name}: no wrong end of data splits a mail, and none is taken`, async (t) => {
    const client = await open()
    for (const end of WRONG_ENDS) {
      const smuggled = `MAIL FROM:<evil@example.org>\r\nRCPT TO:<${recipient}>\r\nDATA\r\n${header}smuggled`
      const reply = await client.mail([recipient], `${header}first${end}${smuggled}`)
      t.match(reply, /^554 5\.6\.0 /, JSON.stringify(end))
      t.equal(await client.say('NOOP'), '250 2.0.0 OK', 'one reply for the one mail')
    }
    const bares = [
      ['a\rb', 'bare CR'],
      ['a\nb', 'bare LF'],
      ['a\0b', 'NUL'],
      ['\n', 'bare LF'],
      ['a\r', 'bare CR'],
    ] as const
    const line = header.split('\r\n').length + 1
    for (const [bare, what] of bares) {
      const reply = await client.mail([recipient], `${header}good\r\n${bare}`)
      t.match(reply, `554 5.6.0 line ${line} of the message has a ${what}: `, JSON.stringify(bare))
    }
    const good = await client.mail([recipient], `${header}.leading dot`.replace(/^\./gm, '..'))
    t.match(good, /^250 2\.0\.0 /, 'and the right one is')
    client.destroy()
    t.equal(parts.stored.splice(0).filter(({ content }) => String(content.raw).includes('smuggled')).length, 0)
  })

  t.test(`${name}: whatever the sender is, it does not matter`, async (t) => {
    const client = await open()
    const senders = ['root', 'www-data@web_1', 'root@host.', 'user.@example.org', '"a b"@example.org', 'a@b@c', '#@[]']
    for (const sender of senders) {
      t.equal(await client.say(`MAIL FROM:<${sender}> SIZE=10`), '250 2.1.0 Accepted', sender)
      await client.say('RSET')
    }
    for (const rest of ['<root> SIZE=x', '<root', 'root', '<ro\x07ot>']) {
      t.match(await client.say(`MAIL FROM:${rest}`), /^501 5\.[15]\.\d /, rest)
    }
    t.match(await client.say('MAIL FROM:<a@b.test> REQUIRETLS'), /^555 5\.5\.4 /, 'nobody can rely on it')
    client.destroy()
  })

  t.test(`${name}: who closes its half behind the mail, as Exim does, gets the answer`, async (t) => {
    const client = await open()
    for (const line of ['MAIL FROM:<a@example.org>', `RCPT TO:<${recipient}>`, 'DATA']) await client.say(line)
    client.write(`${header}last\r\n.\r\nQUIT\r\n`)
    client.end()
    t.match(await client.reply(), /^250 2\.0\.0 /)
    t.match(await client.reply(), /^221 /)
    await client.closed()
    const cut = await open()
    for (const line of ['MAIL FROM:<a@example.org>', `RCPT TO:<${recipient}>`, 'DATA']) await cut.say(line)
    cut.write(`${header}in the middle`)
    cut.end()
    t.equal(await cut.reply(), 'closed')
    t.notMatch(
      parts.stored
        .splice(0)
        .map(({ content }) => String(content.raw))
        .join(),
      'in the middle',
    )
  })

  t.test(`${name}: bytes cut anywhere give the same one mail`, async (t) => {
    const client = await open()
    for (const line of ['MAIL FROM:<a@example.org>', `RCPT TO:<${recipient}>`, 'DATA']) await client.say(line)
    for (const byte of `${header}..dots\r\n..\r\nend\r\n.\r\nNOOP\r\n`) {
      client.write(byte)
      await new Promise(setImmediate)
    }
    t.match(await client.reply(), /^250 2\.0\.0 /)
    t.equal(await client.reply(), '250 2.0.0 OK')
    client.destroy()
    const [stored] = parts.stored.splice(0)
    if (name === 'submission') t.match(Buffer.from(stored?.content.raw ?? []).toString(), '\r\n.dots\r\n.\r\nend\r\n')
  })
}

t.test('the same inside of TLS; who leaves in the middle of a handshake is gone', async (t) => {
  const client = await smtpClient({ port: starttls })
  await client.startTls()
  await client.greet(key)
  for (const line of ['MAIL FROM:<>', 'RCPT TO:<ada@example.net>', 'DATA']) await client.say(line)
  client.write('From: orders@acme.com\r\n\r\nlast\r\n.\r\nQUIT\r\n')
  client.end()
  t.match(await client.reply(), /^250 2\.0\.0 /)
  t.match(await client.reply(), /^221 /)
  await client.closed()
  parts.stored.splice(0)
  const leaving = await smtpClient({ port: starttls })
  await leaving.say('STARTTLS')
  leaving.end()
  await leaving.closed()
})

t.test('what was sent before TLS is forgotten', async (t) => {
  const client = await smtpClient({ port: starttls })
  await client.say('EHLO before.example')
  const flood = 'NOOP\r\n'.repeat(300)
  await client.startTls(`${flood}AUTH PLAIN ${plainToken(key)}\r\nMAIL FROM:<evil@example.org>\r\n`)
  t.match(await client.say('MAIL FROM:<a@acme.com>'), /^503 5\.5\.1 .*HELO\/EHLO first/, 'the name, too')
  await client.say('EHLO after.example')
  t.match(await client.say('MAIL FROM:<a@acme.com>'), /^530 5\.7\.0 /)
  t.match(await client.say('STARTTLS'), /^50\d /)
  client.destroy()
})

t.test('nor does a report begin before TLS and go on behind it', async (t) => {
  const client = await smtpClient({ port: inbound })
  await client.say('EHLO before.example')
  const before = parts.stored.length
  await client.startTls(`MAIL FROM:<>\r\nRCPT TO:<${complaintAddress}>\r\nDATA\r\nSubject: injected\r\n\r\n.\r\n`)
  t.match(await client.say(`RCPT TO:<${complaintAddress}>`), /^503 /)
  await client.say('EHLO after.example')
  t.match(await client.say('DATA'), /^503 /)
  t.equal(parts.stored.length, before)
  client.destroy()
})

t.test('garbage ends the connection, and nothing else', async (t) => {
  const lines: [string, RegExp][] = [
    ['WIZ\r\nSHELL\r\nKILL\r\nXCLIENT ADDR=1.2.3.4\r\nXFORWARD ADDR=1.2.3.4\r\n' + 'FOO\r\n'.repeat(5), /^421 /],
    ['GET / HTTP/1.1\r\nHost: mail.example.net\r\n\r\n', /^421 /],
    [`${'A'.repeat(5_000)}\r\n`, /^421 .*too long/],
    ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'.repeat(500), /^421 /],
    ['EHLO x\r\n' + 'MAIL FROM:<\r\n'.repeat(60), /^421 .*too many (?:errors|unauthenticated commands)/],
  ]
  for (const port of [plain, inbound]) {
    for (const [bytes, expected] of lines) {
      const client = await smtpClient({ port })
      client.write(Buffer.from(bytes, 'latin1'))
      let reply = await client.reply()
      let last = reply
      while (reply !== 'closed') {
        last = reply
        reply = await client.reply()
      }
      t.match(last, expected, JSON.stringify(bytes.slice(0, 30)))
    }
    const early = await rawClient({ port })
    early.write('EHLO too.soon\r\n')
    t.match(await early.reply(), /^421 .*too soon/)
    const fine = await smtpClient({ port })
    t.match(await fine.greet(), /^250/)
    fine.destroy()
  }
})

t.test('a message above the limit is read to its end and refused', async (t) => {
  const small = { message: MIB, recipients: 100, connections: 100, connections_per_address: 20 }
  const settings = { submission: { limits: small, auth_failures: { count: 5, per_milliseconds: MINUTE } } }
  const {
    ports: [port = 0],
  } = await parts.submission(['none'], { settings })
  const client = await smtpClient({ port })
  t.match(await client.greet(), /^250.SIZE 1048576$/m)
  await client.say(`AUTH PLAIN ${plainToken(key)}`)
  t.match(await client.say(`MAIL FROM:<a@acme.com> SIZE=${MIB + 1}`), /^552 5\.3\.4 /)
  const lines = `${'x'.repeat(76)}\r\n`.repeat(14_000)
  const reply = await client.mail(['ada@example.net'], `From: orders@acme.com\r\n\r\n${lines}`)
  t.match(reply, /^552 5\.3\.4 /)
  const fitting = `From: orders@acme.com\r\n\r\n${lines.slice(0, 1_000_000 - (1_000_000 % 78))}`
  t.match(await client.mail(['ada@example.net'], fitting), /^250 /)
  parts.stored.splice(0)
  client.destroy()
})

t.test('what all messages hold in memory is bounded, and given back', async (t) => {
  const receive = createMessageReceiver({ keptBytes: MIB, memoryBytes: MIB + MIB / 2 })
  const stream = (): SMTPServerDataStream => Object.assign(new PassThrough(), { byteLength: 0, sizeExceeded: false })
  const fill = Buffer.alloc(MIB, 'a')
  const [first, second, third] = [stream(), stream(), stream()]
  let release = (): void => {}
  const held = receive(first, ({ bytes, sizeBytes }) => {
    t.same([bytes.length, sizeBytes], [MIB, 2 * MIB], 'the rest is counted, not kept')
    structuredClone(null, { transfer: [bytes.buffer as ArrayBuffer] })
    return new Promise<void>((resolve) => (release = resolve))
  })
  first.write(fill)
  first.end(fill)
  await until('the first is being handled', () => first.readableEnded)
  second.end(fill)
  await t.rejects(
    receive(second, async () => {}),
    { responseCode: 452, message: /^4\.3\.1 / },
  )
  release()
  await held
  third.end(fill)
  t.equal(await receive(third, async ({ bytes }) => bytes.length), MIB)
  for (let turn = 0; turn < 20; turn++) {
    const short = stream()
    short.end(fill.subarray(0, 100_000))
    t.equal(await receive(short, async ({ bytes }) => bytes.length), 100_000, 'what was taken ahead is given back')
  }
})

t.test('a message that finds no memory leaves what it had to the others', async (t) => {
  const receive = createMessageReceiver({ keptBytes: MIB, memoryBytes: MIB + MIB / 2 })
  const stream = (): SMTPServerDataStream => Object.assign(new PassThrough(), { byteLength: 0, sizeExceeded: false })
  const half = Buffer.alloc(MIB / 2 + 1, 'a')
  const streams = [stream(), stream()]
  const received = streams.map((each) =>
    receive(each, async ({ bytes }) => bytes.length).catch((refusal: { responseCode: number }) => refusal.responseCode),
  )
  for (const each of streams) each.write(half)
  await until('both have come by half', () => streams.every(({ readableLength }) => readableLength === 0))
  for (const each of streams) each.end(half.subarray(2))
  t.same(await Promise.all(received), [452, MIB])
})

t.test('connections have limits, in all and from one address, also after STARTTLS', async (t) => {
  const limits = { message: MIB, recipients: 100, connections: 5, connections_per_address: 3 }
  const settings = { submission: { limits, auth_failures: { count: 5, per_milliseconds: MINUTE } } }
  const { ports } = await parts.submission(['starttls', 'implicit'], { settings })
  const [port = 0, implicit = 0] = ports
  const first = await smtpClient({ port })
  await first.greet()
  await first.startTls()
  const second = await smtpClient({ port: implicit, implicitTls: 'mail.example.net' })
  const third = await smtpClient({ port })
  const refused = await rawClient({ port })
  t.match(await refused.reply(), /^421 4\.7\.0 too many connections/)
  await refused.closed()
  await t.rejects(rawClient({ port: implicit, implicitTls: 'mail.example.net' }), 'no word before TLS')
  const other = await Promise.all(['127.0.0.2', '127.0.0.3'].map((localAddress) => smtpClient({ port, localAddress })))
  const full = await rawClient({ port, localAddress: '127.0.0.4' })
  t.match(await full.reply(), /^421 4\.7\.0 too many connections/)
  for (const client of [first, second, third, ...other]) client.destroy()
  // A connection that never finishes its handshake counts as well, until it goes.
  const silent = await Promise.all(
    [1, 2, 3].map(
      () =>
        new Promise<ReturnType<typeof connect>>((resolve) => {
          const socket = connect({ port: implicit, host: '127.0.0.1' }, () => resolve(socket))
          socket.on('error', () => {})
        }),
    ),
  )
  await until('everything is given back', async () => {
    const client = await rawClient({ port, localAddress: '127.0.0.5' })
    const reply = await client.reply()
    client.destroy()
    return reply.startsWith('220')
  })
  for (const socket of silent) socket.destroy()
  const again = await until('this address, too', async () => {
    const client = await rawClient({ port })
    if ((await client.reply()).startsWith('220')) return client
    client.destroy()
    return undefined
  })
  again.destroy()
})

t.test('a session has its end: ten minutes, a hundred messages', async (t) => {
  const old = await smtpClient({ port: inbound })
  await old.greet()
  await parts.clock.advance(8 * MINUTE)
  t.match(await old.say('MAIL FROM:<>'), /^421 4\.7\.0 enough on this connection/)
  const idle = await smtpClient({ port: inbound })
  await parts.clock.advance(10 * MINUTE)
  t.match(await idle.reply(), /^421 4\.4\.2 /)
  await idle.closed()
  const busy = await smtpClient({ port: inbound })
  await busy.greet()
  for (let mail = 0; mail < 100; mail++) {
    const reply = await busy.mail([complaintAddress], 'Subject: hello\r\n\r\nhello')
    if (!reply.startsWith('250')) t.fail(`${mail}: ${reply}`)
  }
  t.match(await busy.say('MAIL FROM:<>'), /^421 4\.7\.0 /)
})

t.test('after all of this nothing has changed', async (t) => {
  t.match(await parts.look(messageId), { state: 'delivered', complainedAt: null })
  t.same((await parts.store.listSuppressions(LIVE_SUPPRESSIONS)).suppressions, [])
})
