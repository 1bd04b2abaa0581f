/**
 * Mail from the wire to the inbox API: a real SMTP server, a real HTTP server.
 */
import { createSecretKey } from 'node:crypto'
import t from 'tap'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createLogger } from '../../src/base/logger.ts'
import { returnPathAddress } from '../../src/mail/message-token.ts'
import { createAdjustableClock } from '../../src/sandbox/adjustable-clock.ts'
import { createCaptureServer } from '../../src/capture/capture-server.ts'
import { createDevRoutes } from '../../src/sandbox/dev-routes.ts'
import { createInbox } from '../../src/sandbox/inbox.ts'
import { createCaptureReplies } from '../../src/capture/replies.ts'
import { behaviourOf, labelOf } from '../../src/capture/simulated-recipients.ts'
import { createWebhookInspector } from '../../src/sandbox/webhook-inspector.ts'
import { manualClock } from '../support/manual-clock.ts'
import { devServer, type DevServer } from './dev-server.ts'
import { sendMail, smtpDialogue } from './smtp-dialogue.ts'

const logger = createLogger({ level: 'silent' })
const NOW = 1_795_219_200_000
const BOUNCE_KEY = createSecretKey(Buffer.alloc(32, 7))

interface World {
  port: number
  dev: DevServer
  entries(query?: string): Promise<Record<string, unknown>[]>
}

async function withWorld(
  options: { keep?: number; isBroken?: boolean },
  work: (world: World) => Promise<void>,
): Promise<void> {
  const clock = manualClock(NOW)
  const inbox = createInbox({
    bounceKey: async () => BOUNCE_KEY,
    keep: options.keep ?? 500,
    logger,
    verifyDkim: async (bytes) => {
      if (bytes.includes('Broken-Signature')) throw new Error('no answer of the DNS')
      return { result: 'pass', domain: 'acme.com', selector: 'ps1' }
    },
  })
  const inspector = createWebhookInspector({ clock, secretsFor: () => [] })
  const onMail = options.isBroken === true ? async () => Promise.reject(new Error('no room')) : inbox.receive
  const capture = createCaptureServer({ clock, logger, onMail, inboundAddress: () => null })
  const port = await capture.start(0)
  const dev = await devServer((baseUrl) =>
    createDevRoutes({
      baseUrl,
      inbox,
      inspector,
      clock: createAdjustableClock({ speed: 1, ahead: 0 }),
      replies: createCaptureReplies(),
      onClockChange: () => {},
    }),
  )
  const entries: World['entries'] = async (query = '') =>
    (await dev.get(`/dev/inbox${query}`)).data as Record<string, unknown>[]
  try {
    await work({ port, dev, entries })
  } finally {
    inbox.close()
    await dev.close()
    await capture.stop()
  }
}

const PLAIN = [
  'From: Acme <orders@acme.com>',
  'To: ada@example.com',
  'Subject: Hello',
  'Message-ID: <m1@acme.com>',
  '',
  'Hi',
].join('\r\n')

const MULTIPART = [
  'From: orders@acme.com',
  'To: ada@example.com',
  'Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=',
  'Message-ID: <m2@acme.com>',
  'MIME-Version: 1.0',
  'Content-Type: multipart/mixed; boundary=b',
  '',
  '--b',
  'Content-Type: multipart/alternative; boundary=a',
  '',
  '--a',
  'Content-Type: text/plain',
  '',
  '..dots',
  '--a',
  'Content-Type: text/html; charset=utf-8',
  '',
  '<p>Hi <script>alert(1)</script></p>',
  '--a--',
  '--b',
  'Content-Type: text/html; name="a.html"',
  "Content-Disposition: attachment; filename*=utf-8''%C3%A4%22.html",
  'Content-Transfer-Encoding: base64',
  '',
  'PGI+eDwvYj4=',
  '--b',
  'Content-Type: application/pdf',
  'Content-Disposition: attachment; filename="b.pdf"',
  '',
  'pdf',
  '--b--',
].join('\r\n')

t.test('what the engine sends is in the inbox with the facts of the session', async (t) => {
  await withWorld({}, async ({ port, entries }) => {
    const replies = await smtpDialogue({ port, localAddress: '127.0.0.11' }, [
      'EHLO mta1.sternpost.test',
      'MAIL FROM:<bounces+x@acme.com>',
      'RCPT TO:<ada+one@example.com>',
      'DATA',
      `${PLAIN}\r\n.`,
    ])
    t.match(replies[0], /^220 mx\.capture\.sternpost\.test /)
    t.match(replies[1], /STARTTLS/)
    t.notMatch(replies[1], /AUTH/)
    t.match(replies[1], /8BITMIME/)
    t.match(replies.at(-1), /^250 2\.0\.0 /)
    const [entry, ...others] = await entries()
    t.equal(others.length, 0)
    const { id, ...facts } = entry ?? { id: '' }
    t.type(id, 'string')
    t.strictSame(facts, {
      from: 'orders@acme.com',
      to: ['ada@example.com'],
      subject: 'Hello',
      envelope: { from: 'bounces+x@acme.com', to: ['ada+one@example.com'] },
      received_at: NOW / 1_000,
      size: Buffer.byteLength(`${PLAIN}\r\n`),
      message_id: null,
      message_id_header: '<m1@acme.com>',
      dkim: { result: 'pass', domain: 'acme.com', selector: 'ps1' },
      remote_address: '127.0.0.11',
      ehlo_name: 'mta1.sternpost.test',
    })
  })
})

t.test('mail of ours is told the message that it is, by the token of its envelope sender', async (t) => {
  await withWorld({}, async ({ port, entries }) => {
    const id = newIdentifier('msg', NOW)
    const senders = [returnPathAddress(id, 'acme.com', BOUNCE_KEY), `b-${id}@acme.com`, '']
    for (const from of senders) {
      const say = ['EHLO me', `MAIL FROM:<${from}>`, 'RCPT TO:<ada@example.com>', 'DATA', `${PLAIN}\r\n.`]
      t.match((await smtpDialogue({ port }, say)).at(-1), /^250 /)
    }
    t.same(
      (await entries()).map((entry) => entry['message_id']),
      [null, null, id],
    )
  })
})

t.test('simulated recipients behave as their table says', async (t) => {
  await withWorld({}, async ({ port, entries }) => {
    const rcpt = async (to: string): Promise<string | undefined> =>
      (await smtpDialogue({ port }, ['EHLO me', 'MAIL FROM:<>', `RCPT TO:<${to}>`])).at(-1)
    for (const hard of ['hard@simulator', 'hard+signup@simulator', 'HARD@Simulator']) {
      const to = `${hard}.Sternpost.test`
      t.match(await rcpt(to), /^550 5\.1\.1 The email account that you tried to reach does not exist$/, to)
    }
    const fine = ['delivered+x@simulator.sternpost.test', 'constructor@simulator.sternpost.test', 'hard@example.com']
    for (const to of fine) {
      t.match(await rcpt(to), /^250 /, to)
    }
    // A refused transaction can be followed by another on the same connection.
    const replies = await smtpDialogue({ port }, [
      'EHLO me',
      'MAIL FROM:<>',
      'RCPT TO:<hard@simulator.sternpost.test>',
      'RSET',
      'MAIL FROM:<>',
      'RCPT TO:<delivered+x@simulator.sternpost.test>',
      'DATA',
      `${PLAIN}\r\n.`,
    ])
    t.match(replies.at(-1), /^250 /)
    t.equal((await entries()).length, 1)
  })
  t.equal(behaviourOf('hard').kind, 'deliver', 'an address without a domain is no simulated one')
  t.equal(labelOf('hard+a+b@simulator.sternpost.test'), 'a+b')
  t.equal(labelOf('hard@simulator.sternpost.test'), null)
})

t.test('one connection carries many messages, and limits hold', async (t) => {
  await withWorld({}, async ({ port, entries }) => {
    const transaction = ['MAIL FROM:<>', 'RCPT TO:<ada@example.com>', 'DATA', `${PLAIN}\r\n.`]
    const replies = await smtpDialogue({ port }, ['EHLO me', ...Array.from({ length: 30 }, () => transaction).flat()])
    t.ok(replies.slice(2).every((reply) => /^(250|354) /.test(reply)))
    t.equal((await entries('?limit=100')).length, 30)
    const tooLarge = await smtpDialogue({ port }, ['EHLO me', 'MAIL FROM:<> SIZE=60000000'])
    t.match(tooLarge.at(-1), /^552 /)
    const many = Array.from({ length: 101 }, (_, index) => `RCPT TO:<r${index}@example.com>`)
    t.match((await smtpDialogue({ port }, ['EHLO me', 'MAIL FROM:<>', ...many])).at(-1), /^452 /)
  })
  await withWorld({ isBroken: true }, async ({ port }) => {
    const reply = await sendMail({ port, to: 'ada@example.com', message: PLAIN })
    t.match(reply, /^451 4\.3\.0 /, 'what is not kept is not taken')
  })
})

t.test('messages are found by recipient, sender, subject and label, newest first', async (t) => {
  await withWorld({}, async ({ port, dev, entries }) => {
    await sendMail({ port, to: 'ada+one@example.com', message: PLAIN })
    await sendMail({ port, to: 'bob@example.com', message: PLAIN.replace('Hello', 'Order 7') })
    await sendMail({ port, to: 'ada+two@example.com', message: PLAIN.replace('Hello', 'Order 8') })
    const subjects = async (query: string): Promise<unknown[]> => (await entries(query)).map(({ subject }) => subject)
    t.same(await subjects(''), ['Order 8', 'Order 7', 'Hello'])
    t.same(await subjects('?limit=1'), ['Order 8'])
    t.same(await subjects('?to=BOB@example.com'), ['Order 7'], 'of the envelope, in any case')
    t.same(await subjects('?to=ada@example.com'), ['Order 8', 'Order 7', 'Hello'], 'of the header')
    t.same(await subjects('?to=ob@example.com'), [], 'whole addresses only')
    t.same(await subjects('?from=orders@acme.com&subject=order'), ['Order 8', 'Order 7'])
    t.same(await subjects('?from=bounces@acme.com&label=one'), ['Hello'])
    t.same(await subjects('?label=on'), [])
    for (const query of ['?limit=0', '?limit=101', '?limit=x', '?wait=10', '?wait=soon']) {
      const { status, data } = await dev.get(`/dev/inbox${query}`)
      t.equal(status, 422, query)
      t.match(data, { success: false, error: { code: 'invalid_request', details: /^(limit|wait): / } })
    }
    const { text } = await dev.get('/dev/inbox')
    t.match(JSON.parse(text), { success: true, has_more: false, next_cursor: null })
  })
})

t.test('a waiting request answers as soon as a message matches, and at the end of its time with none', async (t) => {
  await withWorld({}, async ({ port, entries }) => {
    const startedAt = performance.now()
    const waiting = entries('?to=ada@example.com&subject=second&wait=30s')
    await sendMail({ port, to: 'ada@example.com', message: PLAIN })
    await sendMail({ port, to: 'ada@example.com', message: PLAIN.replace('Hello', 'The second') })
    t.same(
      (await waiting).map(({ subject }) => subject),
      ['The second'],
    )
    t.ok(performance.now() - startedAt < 30_000)
    t.same(await entries('?to=nobody@example.com&wait=1s'), [])
    t.equal((await entries('?subject=second&wait=60s')).length, 1, 'what is there already is given at once')
  })
})

t.test('the parts of a message are served so that they can do nothing', async (t) => {
  await withWorld({}, async ({ port, dev, entries }) => {
    await sendMail({ port, to: 'ada@example.com', message: MULTIPART.replace('..dots', '...dots') })
    const [entry] = await entries()
    const path = `/dev/inbox/${String(entry?.['id'])}`
    t.equal(entry?.['subject'], 'Grüße')
    const { data } = await dev.get(path)
    t.match(data, { text: /^\.\.dots/, html: /<p>Hi/, envelope: { to: ['ada@example.com'] } })
    t.match((data as { attachments: unknown }).attachments, [
      { n: 1, name: 'ä".html', content_type: 'text/html', size: 8, url: `${path}/attachments/1` },
      { n: 2, name: 'b.pdf', content_type: 'application/pdf' },
    ])
    t.ok((data as { headers: { name: string }[] }).headers.some(({ name }) => name === 'MIME-Version'))

    const raw = await dev.get(`${path}/raw`)
    t.equal(raw.text, `${MULTIPART}\r\n`, 'the bytes as they were sent')
    const html = await dev.get(`${path}/html`)
    t.match(html.text, '<script>alert(1)</script>')
    t.equal(html.headers.get('content-type'), 'text/html; charset=utf-8')
    const attachment = await dev.get(`${path}/attachments/1`)
    t.equal(attachment.text, '<b>x</b>')
    t.match(attachment.headers.get('content-disposition'), /^attachment; /)
    for (const part of [raw, html, attachment, await dev.get(`${path}/text`)]) {
      t.equal(part.status, 200)
      t.match(part.headers.get('content-security-policy'), /^sandbox; default-src 'none'; img-src data:;/)
      t.equal(part.headers.get('x-content-type-options'), 'nosniff')
    }
    for (const end of ['/attachments/3', '/attachments/0', '/attachments/x', 'none', '/other']) {
      const missing = `${path}${end}`
      const answer = await dev.get(missing)
      t.equal(answer.status, 404, missing)
      t.match(answer.data, { success: false, error: { code: 'not_found' } })
    }
    await sendMail({ port, to: 'ada@example.com', message: PLAIN })
    const [plain] = await entries()
    t.equal((await dev.get(`/dev/inbox/${String(plain?.['id'])}/html`)).status, 404)
  })
})

t.test('the inbox keeps the newest, survives strange mail, and can be emptied', async (t) => {
  await withWorld({ keep: 2 }, async ({ port, dev, entries }) => {
    for (const subject of ['one', 'two', 'three']) {
      await sendMail({ port, to: 'a@example.com', message: PLAIN.replace('Hello', subject) })
    }
    t.same(
      (await entries()).map(({ subject }) => subject),
      ['three', 'two'],
    )
    await sendMail({ port, to: 'a@example.com', message: 'Broken-Signature: yes\r\n\r\n' })
    t.match((await entries())[0], { subject: '', from: null, dkim: { result: 'temperror', domain: null } })
    const part = (index: number): string => `Content-Type: multipart/mixed; boundary=b${index}\r\n\r\n--b${index}\r\n`
    const nested = Array.from({ length: 300 }, (_, index) => part(index)).join('')
    await sendMail({ port, to: 'a@example.com', message: nested })
    const [deep] = await entries()
    t.match(deep, { subject: '', message_id_header: null }, 'nested too deeply to be read, and kept')
    t.equal((await dev.get(`/dev/inbox/${String(deep?.['id'])}`)).status, 409)
    t.equal((await dev.get(`/dev/inbox/${String(deep?.['id'])}/raw`)).status, 200)
    t.same((await dev.ask('DELETE', '/dev/inbox')).data, { deleted: 2 })
    t.same(await entries(), [])
  })
})
