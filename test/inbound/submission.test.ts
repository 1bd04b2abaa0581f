import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import t from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import { readServerCertificates } from '../../src/base/service/server-certificates.ts'
import { createAcceptSubmission } from '../../src/messages/accept/accept-submission.ts'
import type { MailRefused } from '../../src/messages/accept/mail-refusal.ts'
import { until } from '../support/until.ts'
import { inboundParts, type InboundParts } from './inbound-parts.ts'
import { base64, plainToken, rawClient, smtpClient, type SmtpClient } from './smtp-client.ts'

const MAIL = [
  'From: =?utf-8?Q?Caf=C3=A9?= <orders@acme.com>',
  'To: ada@example.net',
  'Subject: Order 7',
  'Message-ID: <7@acme.com>',
  '',
  'Thank you.',
  '..',
  '.',
]
  .join('\r\n')
  .replace(/^\./gm, '..')

const parts: InboundParts = await inboundParts(t)

async function loggedIn(port: number, key?: string): Promise<SmtpClient> {
  const client = await smtpClient({ port })
  const reply = await client.greet(key ?? (await parts.key()))
  if (!reply.startsWith('235')) throw new Error(reply)
  return client
}

/** Answers to a bad login come late: the clock is moved until it is there. */
async function refusedLogin(client: SmtpClient, line: string): Promise<string> {
  let reply: string | undefined
  void client.say(line).then((text) => (reply = text))
  return until('the answer to a login', async () => {
    await parts.clock.advance(SECOND / 10)
    return reply
  })
}

t.test('a mail is answered after its commit with the ids of its messages, one for each recipient', async (t) => {
  const {
    ports: [port = 0],
  } = await parts.submission(['none'])
  const client = await loggedIn(port)
  const reply = await client.mail(['ada@example.net', 'bob@example.org'], MAIL)
  // The whole reply: code, enhanced code, and two ids.
  const ids = /^250 2\.0\.0 queued as (msg_\w{26}) (msg_\w{26})$/.exec(reply)?.slice(1) ?? []
  t.equal(ids.length, 2, reply)
  const views = await Promise.all(ids.map((id) => parts.look(id)))
  t.same(
    views.map(({ recipient, state }) => [recipient, state]),
    [
      ['ada@example.net', 'queued'],
      ['bob@example.org', 'queued'],
    ],
  )
  t.match(views[0], { from: 'orders@acme.com', subject: 'Order 7', domain: 'acme.com' })
  const stored = parts.stored.splice(0)
  t.equal(stored.length, 1, 'they share one content')
  t.equal(Buffer.from(stored[0]?.content.raw ?? []).toString(), `${MAIL.replace(/^\.\./gm, '.')}\r\n`)
  t.same(stored[0]?.content.from, { name: 'Café', address: 'orders@acme.com' })
  t.equal(await client.mail(['ada@example.net', 'bob@example.org'], MAIL), reply, 'a repeat has the first answer')
  t.equal((await parts.metrics.messagesAccepted.get()).values[0]?.labels.source, 'smtp')
  client.destroy()
})

t.test('Bcc and control headers are read and cut out, every other byte stays', async (t) => {
  const {
    ports: [port = 0],
  } = await parts.submission(['none'])
  const client = await loggedIn(port)
  const mail = [
    'X-Tags: order=7, shop=a=b',
    'From: The Orders of Acme',
    '\t<orders@acme.com>',
    'Bcc: secret@example.org,',
    '\tother@example.org',
    'X-Track: clicks',
    'Subject:  two  blanks',
    'X-Idempotency-Key: order-7',
    'DKIM-Signature: v=1; d=other.example',
    'x-pool: default',
    'Return-Path: <orders@acme.com>',
    'Resent-Bcc: secret@example.org',
    'delivered-to: ada@example.net',
    'ARC-Seal: i=1; cv=none',
    'x-sternpost-ref: forged',
    'X-SERVICE-Mode: live',
    'SENDER:\tOffice',
    '\t<office@ACME.com>',
    'Received: from app by laptop; Sat, 21 Nov 2026 12:00:00 +0000',
    'AUTHENTICATION-results: mx.acme.com;',
    '\tdmarc=pass header.from=acme.com',
    'authentication-results: mx.example.net; spf=pass',
    '',
    'BCC: this is text',
    '',
  ].join('\r\n')
  const reply = await client.mail(['ada@example.net'], mail)
  t.match(reply, /^250 2\.0\.0 queued as msg_/)
  const [{ content, pool } = { content: undefined, pool: '' }] = parts.stored.splice(0)
  t.match(content, { tags: { order: '7', shop: 'a=b' }, tracking: { opens: false, clicks: true } })
  t.equal(pool, 'default')
  t.equal(
    Buffer.from(content?.raw ?? []).toString(),
    [
      'From: The Orders of Acme',
      '\t<orders@acme.com>',
      'Subject:  two  blanks',
      'DKIM-Signature: v=1; d=other.example',
      'SENDER:\tOffice',
      '\t<office@ACME.com>',
      'Received: from app by laptop; Sat, 21 Nov 2026 12:00:00 +0000',
      '',
      'BCC: this is text',
      '',
      '',
    ].join('\r\n'),
  )
  t.equal(await client.mail(['ada@example.net'], mail), reply)
  t.match(await client.mail(['bob@example.net'], mail), /^554 5\.6\.0 conflict: /, 'the key is for another mail')
  parts.stored.splice(0)
  client.destroy()
})

t.test('comments beside an address are read over; one alone is the name', async (t) => {
  const {
    ports: [port = 0],
  } = await parts.submission(['none'])
  const client = await loggedIn(port)
  const mail = (from: string): Promise<string> =>
    client.mail(['ada@example.net'], `From: ${from}\r\nSender: ${from}\r\nSubject: x\r\n\r\nhi`)
  for (const [from, name] of [
    ['root@acme.com (Cron Daemon)', 'Cron Daemon'],
    ['root@acme.com\r\n\t(=?utf-8?Q?Caf=C3=A9?=)', 'Café'],
    ['root@acme.com ()', null],
    ['root@acme.com (Shop, Inc.: [x];)', 'Shop, Inc.: [x];'],
    ['(x) root@acme.com', 'x'],
    ['root@acme.com (a) (b)', 'b'],
    ['Root <root@acme.com> (x)', 'Root'],
    ['Root (of web1) <root@acme.com>', 'Root'],
    ['"Root (a" (b) <root@acme.com>', 'Root (a'],
  ] as const) {
    t.match(await mail(from), /^250 /, from)
    t.strictSame(parts.stored.splice(0)[0]?.content.from, { name, address: 'root@acme.com' })
  }
  for (const from of [
    'root@acme.com (a <b@acme.org>)',
    'root@acme.com (b@acme.org)',
    'root@acme.com (a (b))',
    'a@acme.com,b@acme.org (x)',
    'root(x)@acme.com',
    'Root <root@acme.com (x)>',
    'a@acme.com (x) b@acme.org',
    `root@acme.com (${'a'.repeat(600)}\r\n ${'a'.repeat(600)})`,
  ]) {
    t.match(await mail(from), /^554 5\.6\.0 /, from)
  }
  client.destroy()
})

t.test('what acceptance refuses has the code of the contract, and nothing is stored', async (t) => {
  const {
    ports: [port = 0],
  } = await parts.submission(['none'])
  const client = await loggedIn(port, await parts.key({ domains: ['acme.com', 'acme.net'] }))
  const from = (header: string): string => `${header}\r\nSubject: x\r\n\r\nhi`
  const cases: [string, RegExp][] = [
    [from('From: a@acme.net'), /^550 5\.7\.1 domain_not_verified: /],
    [from('From: a@acme.org'), /^550 5\.7\.1 forbidden: /],
    [
      from('From: a@acme.com\r\nSender: b@acme.org'),
      /^550 5\.7\.1 forbidden: sender: this key may not send as acme\.org/,
    ],
    [
      from('From: a@acme.com\r\nRESENT-from:\r\n b@acme.net'),
      /^550 5\.7\.1 domain_not_verified: resent-from: acme\.net/,
    ],
    [from('From: a@acme.com\r\nResent-Sender: a@acme.com, b@x.org'), /^554 5\.6\.0 invalid_request: resent-sender: /],
    [from('X-A: b'), /^554 5\.6\.0 invalid_request: the message has no From header$/],
    [from('From: a@acme.com\r\nFrom: b@acme.com'), /^554 5\.6\.0 invalid_request: .*more than one From/],
    [from('From: a@acme.com\r\nSender: a@acme.com\r\nSender: b@acme.com'), /^554 5\.6\.0 .*more than one Sender/],
    [from(`From: a@acme.com\r\n${'X: y\r\n'.repeat(1_000)}X: z`), /^554 5\.6\.0 .*more than 1000 fields/],
    [
      from('From: root'),
      /^554 5\.6\.0 invalid_request: From: 'root' has no '@': write a whole address .*set_from_header/,
    ],
    [from('From: root (Cron Daemon)'), /'root' has no '@': write a whole address/],
    [from('From: "(Cron Daemon)" <root@web1>'), /'root@web1' has a domain without a dot: write a whole address/],
    [from('From: a..b@acme.com'), /two dots in a row before the '@'$/],
    ['hello', /^554 5\.6\.0 invalid_request: line 1 of the header is no header field: .*an empty line ends/],
    [from('From: a@acme.com, b@acme.com'), /^554 5\.6\.0 invalid_request: From: .*comma/],
    [from('From: a@acme.com (x) <b@acme.org>'), /^554 5\.6\.0 invalid_request: From: /],
    [from('From : a@acme.com'), /^554 5\.6\.0 invalid_request: line 1 of the header is no header field/],
    [from('From: a@acme.com\r\n \r\nFrom: b@acme.org'), /^554 5\.6\.0 invalid_request: line 2 of the header/],
    [
      from(`From: a@acme.com\r\nX-Long: a ${'b'.repeat(991)}`),
      /^554 5\.6\.0 invalid_request: X-Long has a line of more/,
    ],
    [from('From: a@acme.com\r\nX-Tags: order'), /^554 5\.6\.0 invalid_request: x-tags: must be key=value/],
    [from('From: a@acme.com\r\nX-Track: yes'), /^554 5\.6\.0 invalid_request: x-track: must be /],
    [from('From: a@acme.com\r\nX-Pool: none'), /^554 5\.6\.0 invalid_request: .*pool/],
    [from('From: a@acme.com\r\nX-Pool: cold'), /^451 4\.7\.0 ip_not_warmed: /],
  ]
  for (const [mail, expected] of cases) t.match(await client.mail(['ada@example.net'], mail), expected, mail)
  t.equal(parts.stored.length, 0)
  client.destroy()
})

t.test('what is refused before it is read stands in the log: programs keep replies to themselves', async (t) => {
  const {
    ports: [port = 0],
  } = await parts.submission(['none'])
  const client = await loggedIn(port)
  parts.log.splice(0)
  t.match(await client.mail(['ada@example.net'], 'From: orders@acme.com\r\n\r\na\nb'), /^554 /)
  await client.say('MAIL FROM:<>')
  await client.say('RCPT TO:<ada@example.net>')
  await client.say('DATA')
  client.destroy()
  const refused = () => parts.log.filter((line) => line.includes('"submission refused"'))
  await until('both are in the log', () => refused().length === 2)
  t.match(refused()[0], /"remote_address":"127\.0\.0\.1","api_key_id":"key_\w+","reason":"5\.6\.0 line 3 .* bare LF/)
  t.match(refused()[1], /"reason":"4\.4\.2 the connection was lost"/)
})

t.test('a store that fails is 451, a full disk 452, and the client keeps the mail', async (t) => {
  for (const [code, expected] of [
    ['SQLITE_IOERR', /^451 4\.3\.0 /],
    ['SQLITE_FULL', /^452 4\.3\.1 /],
  ] as const) {
    const store = { ...parts.store, acceptMessages: () => Promise.reject(Object.assign(new Error('disk'), { code })) }
    const acceptSubmission = createAcceptSubmission({ ...parts.options, store })
    const {
      ports: [port = 0],
    } = await parts.submission(['none'], { acceptSubmission })
    const client = await loggedIn(port)
    t.match(await client.mail(['ada@example.net'], MAIL), expected)
    t.equal(await client.say('NOOP'), '250 2.0.0 OK')
    client.destroy()
  }
})

t.test('while no mail is taken, MAIL is 452 or 451 with the reason, until it is taken again', async (t) => {
  let refusal: MailRefused | null = { reason: 'the disk is nearly full', retryAfterSeconds: 60 }
  const {
    ports: [port = 0],
  } = await parts.submission(['none'], { mailRefusal: async () => refusal })
  const client = await loggedIn(port)
  t.equal(await client.say('MAIL FROM:<>'), '452 4.3.1 the disk is nearly full, try again later')
  refusal = { reason: 'the store does not answer', retryAfterSeconds: 2, isStore: true }
  t.equal(await client.say('MAIL FROM:<>'), '451 4.3.0 the store does not answer, try again later')
  refusal = null
  t.equal(await client.say('MAIL FROM:<>'), '250 2.1.0 Accepted')
  client.destroy()
})

const LIMITS = { message: 2 ** 20, recipients: 3, connections: 100, connections_per_address: 20 }

t.test('recipients are judged at RCPT, by one grammar of addresses', async (t) => {
  const {
    ports: [port = 0],
  } = await parts.submission(['none'], {
    settings: { submission: { limits: LIMITS, auth_failures: { count: 5, per_milliseconds: MINUTE } } },
  })
  const client = await loggedIn(port)
  t.equal(await client.say('MAIL FROM:<> SMTPUTF8'), '250 2.1.0 Accepted', 'the sender does not matter')
  const refused = [
    '<"a b"@example.net>',
    '<"ada"@example.net>',
    '<"a@b"@example.net>',
    '<@relay.example:ada@example.net>',
    '<@a.example,@b.example:ada@example.net>',
    '<ada@[192.0.2.1]>',
    '<ada@localhost>',
    '<ada@mail.test>',
    '<ada>',
    '<postmaster>',
    '<ada@example.net@other.example>',
    '<a(b)@example.net>',
    '<ada@exa\u00admple.net>',
    '<ada\uff20example.net>',
    '<ada@@example.net>',
    '<>',
    'ada@example.net',
    '<ada@example.net',
    '<.ada@example.net>',
  ]
  t.match(await client.say('RCPT TO:<root>'), /not of the form <user@example\.com>$/)
  for (const path of refused) t.match(await client.say(`RCPT TO:${path}`), /^553 5\.1\.3 invalid_recipient/, path)
  client.write(Buffer.from('RCPT TO:<ren\xe9@example.net>\r\n', 'latin1'))
  t.match(await client.reply(), /^553 5\.1\.3 .*UTF-8/, 'Latin-1 would be the address of somebody else, or of nobody')
  for (const path of ['<ada%other.example@example.net>', '<grüße@exämple.net>', "<o'neil+tag@example.net>"]) {
    t.equal(await client.say(`RCPT TO:${path}`), '250 2.1.5 Accepted', path)
  }
  for (let count = 0; count < 60; count++) {
    const reply = await client.say(`RCPT TO:<more${count}@example.net>`)
    t.equal(reply, '452 4.5.3 Error: too many recipients', 'also more often than other refusals')
  }
  client.write('DATA\r\n')
  t.match(await client.reply(), /^354/)
  client.write(`${MAIL}\r\n.\r\n`)
  t.match(await client.reply(), /^250 2\.0\.0 queued as/)
  t.same(
    parts.stored.splice(0)[0]?.messages.map(({ to }) => to.address),
    ['ada%other.example@example.net', 'grüße@xn--exmple-cua.net', "o'neil+tag@example.net"],
    'local parts as given, domains as A-labels',
  )
  client.destroy()
})

t.test('one connection carries a whole list, with bad addresses in it and pauses', async (t) => {
  const sockets: Socket[] = []
  const onSocket = (message: unknown): void => void sockets.push((message as { socket: Socket }).socket)
  subscribe('net.server.socket', onSocket)
  t.teardown(() => unsubscribe('net.server.socket', onSocket))
  const {
    ports: [port = 0],
  } = await parts.submission(['none'])
  const silent = await smtpClient({ port })
  const client = await loggedIn(port)
  t.strictSame(
    sockets.map(({ timeout }) => timeout),
    [MINUTE, 5 * MINUTE],
  )
  silent.destroy()
  for (let mail = 0; mail < 150; mail++) {
    if (mail % 50 === 0) await parts.clock.advance(9 * MINUTE)
    const recipients = mail % 2 === 0 ? ['ada', 'ada@example.net'] : ['ada@example.net']
    const reply = await client.mail(recipients, `${MAIL}\r\n${mail}`)
    if (!reply.startsWith('250')) return t.fail(`${mail}: ${reply}`)
  }
  t.equal(parts.stored.splice(0).length, 150)
  await parts.clock.advance(10 * MINUTE)
  t.match(await client.reply(), /^421 4\.4\.2 /, 'the time of a mail has its end')
  await client.closed()
})

t.test('the reply of a mail to a hundred recipients stays within the limit of a line', async (t) => {
  const {
    ports: [port = 0],
  } = await parts.submission(['none'])
  const client = await loggedIn(port)
  const reply = await client.mail(
    Array.from({ length: 100 }, (_, index) => `to${index}@example.net`),
    MAIL,
  )
  const lines = reply.split('\n')
  t.ok(lines.length > 1 && lines.every((line) => line.length <= 510), `${lines.length} lines`)
  t.ok(lines.every((line, index) => line.startsWith(index < lines.length - 1 ? '250-2.0.0 ' : '250 2.0.0 ')))
  t.equal(new Set(reply.match(/msg_\w{26}/g)).size, 100)
  parts.stored.splice(0)
  client.destroy()
})

t.test('AUTH is offered under TLS alone, and asked for before any mail', async (t) => {
  const {
    ports: [port = 0, implicit = 0],
  } = await parts.submission(['starttls', 'implicit'])
  const key = await parts.key()
  const client = await smtpClient({ port })
  const plain = await client.greet()
  t.match(plain, /^250-STARTTLS$/m)
  t.notMatch(plain, /AUTH/)
  t.match(plain, /^250.SIZE 41943040$/m)
  t.match(plain, /^250-SMTPUTF8$/m)
  for (const line of [`AUTH PLAIN ${plainToken(key)}`, 'AUTH LOGIN', 'MAIL FROM:<a@acme.com>']) {
    t.equal(await client.say(line), '530 5.7.0 must issue a STARTTLS command first', line)
  }
  await client.startTls()
  const secure = await client.greet()
  t.match(secure, /^250-AUTH PLAIN LOGIN$/m)
  t.notMatch(secure, /STARTTLS/)
  t.match(await client.say('MAIL FROM:<a@acme.com>'), /^530 5\.7\.0 log in first, with an API key/)
  t.match(await client.say('AUTH CRAM-MD5'), /^504 5\.5\.4 .*: use PLAIN or LOGIN$/)
  t.match(await client.say(`AUTH PLAIN ${plainToken(key)}`), /^235 2\.7\.0 /)
  t.match(await client.mail(['ada@example.net'], MAIL), /^250 2\.0\.0 queued/)
  parts.stored.splice(0)
  client.destroy()

  const second = await smtpClient({ port: implicit, implicitTls: 'mail.example.net' })
  await second.greet()
  t.match(await second.say('AUTH LOGIN'), /^334/)
  t.match(await second.say(base64('anybody')), /^334/)
  t.match(await second.say(base64(key)), /^235 2\.7\.0 /)
  second.destroy()
})

t.test('a login needs a living key with the scope, from an allowed address', async (t) => {
  const {
    ports: [port = 0],
  } = await parts.submission(['none'], {
    settings: { submission: { limits: LIMITS, auth_failures: { count: 100, per_milliseconds: MINUTE } } },
  })
  const wrong = `sk_live_${'a'.repeat(40)}`
  const cases: [string, RegExp][] = [
    [wrong, /^535 5\.7\.8 unauthorized: no such key ending in aaaa$/],
    ['password', /^535 5\.7\.8 unauthorized: the key is not sk_live_/],
    [await parts.key({ scopes: ['stats'] }), /^535 5\.7\.8 unauthorized: the key ending in \w{4} has no scope send$/],
    [await parts.key({ allowedIps: ['192.0.2.0/24'] }), /^535 5\.7\.8 unauthorized: .*may not be used from 127\.0/],
  ]
  for (const [key, expected] of cases) {
    const client = await smtpClient({ port })
    await client.greet()
    t.match(await refusedLogin(client, `AUTH PLAIN ${plainToken(key)}`), expected)
    t.match(await client.say('MAIL FROM:<a@acme.com>'), /^530/)
    client.destroy()
  }
  t.notMatch(parts.log.join('\n'), new RegExp(`${wrong}|${plainToken(wrong)}`), 'no key in the log')
  const allowed = await loggedIn(port, await parts.key({ allowedIps: ['127.0.0.0/8'] }))
  allowed.destroy()

  const narrowed = await parts.key()
  const before = await loggedIn(port, narrowed)
  t.match(await before.mail(['ada@example.com'], MAIL), /^250 2\.0\.0 queued as /)
  const idOf = async (key: string): Promise<string> =>
    (await parts.store.listApiKeys(100, null)).keys.find(({ last4 }) => key.endsWith(last4))?.id ?? ''
  await parts.store.updateApiKey(await idOf(narrowed), { domains: ['other.example'] })
  await parts.clock.advance(6 * SECOND)
  const other = await before.mail(['ada@example.com'], MAIL.replace('7@', '8@'))
  t.match(other, /^550 5\.7\.1 forbidden: /, 'an open connection has the new limits')
  parts.stored.splice(0)
  before.destroy()

  const revoked = await parts.key()
  const open = await loggedIn(port, revoked)
  const sending = await loggedIn(port, revoked)
  await sending.say('MAIL FROM:<a@acme.com>')
  await sending.say('RCPT TO:<ada@example.com>')
  await sending.say('DATA')
  await parts.store.revokeApiKey(await idOf(revoked), parts.clock.now(), false)
  await parts.clock.advance(6 * SECOND)
  t.match(await open.say('MAIL FROM:<a@acme.com>'), /^421 4\.7\.0 .*was revoked/, 'an open connection sends no more')
  t.match(await sending.say(`${MAIL}\r\n.`), /^421 4\.7\.0 .*was revoked/, 'nor what it was sending')
  await Promise.all([open.closed(), sending.closed()])
  t.same(parts.stored, [])
  open.destroy()
  sending.destroy()
})

t.test('guessing keys is slow, and ends with 421; a good key of the address is let in', async (t) => {
  parts.metrics.submissionSessions.reset()
  const {
    ports: [port = 0],
  } = await parts.submission(['none'])
  const key = await parts.key()
  const client = await smtpClient({ port })
  await client.greet()
  for (let guess = 0; guess < 5; guess++) {
    const token = plainToken(`sk_live_${String(guess).repeat(40)}`)
    t.match(await refusedLogin(client, `AUTH PLAIN ${token}`), /^535 5\.7\.8 /)
  }
  const before = parts.clock.now()
  const bad = plainToken(`sk_live_${'x'.repeat(40)}`)
  t.match(await client.say(`AUTH PLAIN ${bad}`), /^421 4\.7\.0 too many failed logins/)
  t.equal(parts.clock.now(), before)
  await client.closed()
  const other = await smtpClient({ port })
  t.match(await other.greet(key), /^235/, 'a good key is let in')
  other.destroy()
  await parts.clock.advance(MINUTE)
  const later = await smtpClient({ port })
  await later.greet()
  t.match(await refusedLogin(later, `AUTH PLAIN ${bad}`), /^535/, 'a bad one hears why after a while')
  later.destroy()
  const counted = (await parts.metrics.submissionSessions.get()).values
  t.same(
    counted.map(({ labels, value }) => [labels.result, value]),
    [
      ['refused', 6],
      ['limited', 1],
      ['accepted', 1],
    ],
  )
})

t.test('certificates are chosen by name, and can be changed while connections are open', async (t) => {
  const {
    door,
    ports: [port = 0, starttls = 0],
  } = await parts.submission(['implicit', 'starttls'])
  const subjectFor = async (servername: string): Promise<string | undefined> => {
    const socket = connectTls({ port, host: '127.0.0.1', servername, rejectUnauthorized: false })
    await once(socket, 'secureConnect')
    const { subject } = socket.getPeerCertificate()
    socket.destroy()
    return String(subject.CN)
  }
  t.equal(await subjectFor('mail.example.net'), 'mail.example.net')
  t.equal(await subjectFor('other.example.net'), 'other.example.net')
  t.equal(await subjectFor('elsewhere.example'), 'mail.example.net', 'the first is the default')

  const open = await smtpClient({ port: starttls })
  await open.greet()
  door.setCertificates(readServerCertificates([parts.certificates.other], 'TLSv1.2'))
  t.equal(await subjectFor('mail.example.net'), 'other.example.net')
  await open.startTls()
  t.match(await open.greet(await parts.key()), /^235/)
  open.destroy()
  const missing = { ...parts.certificates.mail, key_file: '/nowhere/key.pem' }
  const problem = { exitCode: 78, message: /tls\.certificates: .*\/nowhere\/key\.pem cannot be used/ }
  t.throws(() => readServerCertificates([missing], 'TLSv1.2'), problem)
})

t.test('a door that cannot be opened is one clear line', async (t) => {
  const {
    ports: [taken = 0],
  } = await parts.submission(['none'])
  const tls = { certificates: [], min_version: 'TLSv1.2' as const }
  for (const kind of ['starttls', 'implicit'] as const) {
    await t.rejects(parts.submission([kind], { settings: { tls } }), {
      exitCode: 78,
      message: /^listen\.submission: a TLS listener needs a certificate/,
    })
  }
  const { door } = await parts.submission([])
  await t.rejects(door.start([{ address: '127.0.0.1', port: taken, tls: 'none' }]), {
    exitCode: 75,
    message: /^listen\.submission: port \d+ of address 127\.0\.0\.1 is taken/,
  })
})

t.test('a stop ends idle connections at once and lets a message under way finish', async (t) => {
  const {
    door,
    ports: [port = 0, implicit = 0],
  } = await parts.submission(['none', 'implicit'])
  const idle = await loggedIn(port)
  const handshake = await rawClient({ port: implicit })
  const busy = await loggedIn(port)
  for (const line of ['MAIL FROM:<a@acme.com>', 'RCPT TO:<ada@example.net>', 'DATA']) await busy.say(line)
  busy.write('From: orders@acme.com\r\n\r\nhalf')
  const stopped = door.stop()
  t.match(await idle.reply(), /^421 4\.3\.2 /)
  await Promise.all([idle.closed(), handshake.closed()])
  busy.write(' and half\r\n.\r\n')
  t.match(await busy.reply(), /^250 2\.0\.0 queued as/)
  t.match(await busy.reply(), /^421 4\.3\.2 /)
  await Promise.all([busy.closed(), stopped])
  t.equal(parts.stored.length, 1)
  await t.rejects(rawClient({ port }), { code: 'ECONNREFUSED' })
})
