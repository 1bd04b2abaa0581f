/**
 * The real nodemailer over the transport, against the real API: what arrives there, what goes wrong, what is repeated.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { createTransport } from 'nodemailer'
import t, { type Test } from 'tap'
import {
  SternpostError,
  sternpostTransport,
  type SternpostInfo,
  type SternpostTransportOptions,
} from '../../src/clients/nodemailer/nodemailer-transport.ts'
import { keyNamed, shareStore, startApi } from './api-server.ts'

shareStore(t)
const folder = mkdtempSync(join(tmpdir(), 'sternpost-nodemailer-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const MOST_BYTES = 10_485_760
const FROM = { name: 'Acme "Shop"', address: 'orders@acme.com' }
const MAIL = { from: FROM, to: 'Ada <ada@example.net>', subject: 'Order {{no}}', text: 'Hi' }

function transporterFor(port: number, apiKey = keyNamed('send'), options: Partial<SternpostTransportOptions> = {}) {
  const url = `http://127.0.0.1:${port}/v1/`
  const transporter = createTransport(sternpostTransport({ url, apiKey, retries: 2, ...options }))
  return {
    // What the types of nodemailer say of a transport that they do not know is what SMTP gives.
    send: async (mail: object): Promise<SternpostInfo> => {
      const info: unknown = await transporter.sendMail({ ...MAIL, ...mail })
      return info as SternpostInfo
    },
    verify: () => transporter.verify(),
  }
}

async function failureOf(action: Promise<unknown>): Promise<SternpostError> {
  const thrown = await action.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (thrown instanceof SternpostError) return thrown
  throw new Error(`no SternpostError: ${String(thrown)}`)
}

t.test('what nodemailer takes arrives as a request of the API', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const file = join(folder, 'terms.txt')
  writeFileSync(file, 'no terms')
  const info = await transporterFor(port).send({
    html: '<p>Hi {{name}}</p>',
    replyTo: ['help@acme.com', 'Zoë <two@acme.com>'],
    inReplyTo: '<a@b>',
    references: ['<a@b>', '<c@d>'],
    headers: { 'X-Order': '1042' },
    attachments: [
      { filename: 'a.txt', content: 'plain', contentType: 'text/plain' },
      { filename: 'b.bin', content: 'AAEC', encoding: 'base64' },
      { filename: 'c.png', content: Buffer.from([1, 2]), cid: 'logo' },
      { filename: 'd.txt', content: Readable.from(['two ', 'pieces']) },
      { path: file },
      { filename: 'e.txt', path: 'data:text/plain;base64,aGk=' },
    ],
    sternpost: { tags: { kind: 'order' } },
  })
  t.match(info, { messageId: /^msg_/, accepted: ['ada@example.net'], rejected: [], response: /^200 / })
  t.equal(sends.length, 1)
  const { request } = sends[0] ?? {}
  t.match(request, {
    to: 'ada@example.net',
    from: '"Acme \\"Shop\\"" <orders@acme.com>',
    subject: 'Order {{no}}',
    text: 'Hi',
    html: '<p>Hi {{name}}</p>',
    replyTo: ['help@acme.com', '"Zoë" <two@acme.com>'],
    tags: { kind: 'order' },
    variables: null,
    headers: { 'X-Order': '1042', 'In-Reply-To': '<a@b>', References: '<a@b> <c@d>' },
  })
  const files = (request?.attachments ?? []).map(({ name, content, contentId }) => [
    name,
    Buffer.from(String(content ?? ''), 'base64').toString('latin1'),
    contentId,
  ])
  t.same(files, [
    ['a.txt', 'plain', undefined],
    ['b.bin', '\0\x01\x02', undefined],
    ['c.png', '\x01\x02', 'logo'],
    ['d.txt', 'two pieces', undefined],
    ['terms.txt', 'no terms', undefined],
    ['e.txt', 'hi', undefined],
  ])
})

t.test('what nodemailer takes in other shapes arrives too, and what is empty counts as left out', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const { send } = transporterFor(port)
  const file = join(folder, 'invoice #7.txt')
  writeFileSync(file, 'paid')
  const nothing = { alternatives: [], list: '', sender: '', priority: 'normal', dkim: false, html: '', inReplyTo: '' }
  await send({ ...nothing, attachments: { path: file }, references: [], headers: { 'X-Empty': '', 'X-A': ['1'] } })
  const [first] = sends
  t.same(
    first?.request.attachments?.map(({ name }) => name),
    ['invoice #7.txt'],
  )
  t.strictSame(first?.request.headers, { 'X-A': '1' })
  await send({
    inReplyTo: 'a@b',
    references: 'a@b <c@d>\t<e@ f>',
    xMailer: 'shop 2',
    headers: { 'in-reply-to': 'z@z' },
    attachments: [{ path: 'data:image/png;base64,AAEC', cid: 'logo' }],
  })
  t.match(sends[1]?.request, { attachments: [{ contentType: 'image/png', contentId: 'logo' }] })
  const ids = { 'In-Reply-To': '<a@b>', References: '<a@b> <c@d> <e@f>', 'X-Mailer': 'shop 2' }
  t.strictSame(sends[1]?.request.headers, ids)
  await send({ headers: { references: 'a@b' } })
  t.strictSame(sends[2]?.request.headers, { References: '<a@b>' })
  const attachments = [
    { filename: 'a', content: '', path: file },
    { filename: 'c', content: 'aGk', encoding: 'Base-64' },
  ]
  await send({ attachments })
  const contents = sends[3]?.request.attachments?.map(({ content }) => content)
  t.same(
    contents,
    ['paid', 'hi'].map((text) => Buffer.from(text).toString('base64')),
  )
  await send({ icalEvent: { method: 'request', content: 'paid', filename: 'a.ics' } })
  await send({ icalEvent: 'paid', attachments: [{ path: file }] })
  const content = Buffer.from('paid').toString('base64')
  const typeOf = (method: string): string => `text/calendar; charset=utf-8; method=${method}`
  t.match(sends[4]?.request.attachments, [{ name: 'a.ics', contentType: typeOf('REQUEST'), content }])
  t.match(sends[5]?.request.attachments, [{ name: 'invite.ics', contentType: typeOf('PUBLISH'), content }, { content }])
})

t.test('an empty body alone is sent as an empty text', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const { send } = transporterFor(port)
  const attachments = [{ filename: 'a.txt', content: 'plain' }]
  for (const mail of [{ text: '' }, { text: '', attachments }, { text: undefined, html: '' }]) {
    t.match(await send(mail), { accepted: ['ada@example.net'] })
    t.equal(sends.at(-1)?.request.text, '')
  }
  await send({ text: '', html: '<p>Hi</p>' })
  t.equal(sends.at(-1)?.request.text, undefined, 'beside another body it counts as left out')
  t.match(await failureOf(send({ text: undefined, attachments })), { responseCode: 422 })
})

t.test('every recipient gets a message of their own, and a bad one does not stop the others', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const info = await transporterFor(port).send({
    to: ['ada@example.net', 'ada@example.net'],
    cc: 'bob@example.net',
    bcc: ['bad@-', 'carol@example.org'],
  })
  t.same(info.accepted, ['ada@example.net', 'bob@example.net', 'carol@example.org'])
  t.equal(new Set(info.messageIds).size, 3)
  t.equal(info.messageId, info.messageIds[0])
  t.same(info.rejected, ['bad@-'])
  t.match(info.rejectedErrors[0], { code: 'invalid_recipient', recipient: 'bad@-' })
  t.same(sends.map(({ request }) => request.to).toSorted(), [
    'ada@example.net',
    'bad@-',
    'bob@example.net',
    'carol@example.org',
  ])
})

t.test('what is refused says why, and nothing is left out in silence', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const { send, verify } = transporterFor(port)
  t.equal(await verify(), true)
  t.match(await failureOf(send({ from: 'x@unknown.example' })), {
    code: 'domain_not_verified',
    responseCode: 403,
    details: /unknown\.example/,
  })
  const wrongKey = transporterFor(port, 'sk_live_wrong')
  t.match(await failureOf(wrongKey.send({})), { code: 'unauthorized', responseCode: 401 })
  t.match(await failureOf(wrongKey.verify()), { code: 'unauthorized', responseCode: 401 })
  const before = sends.length
  const unsendable = [
    { icalEvent: { content: 'BEGIN:VCALENDAR', headers: { 'X-A': '1' } } },
    { sender: 'b@acme.com' },
    { priority: 'high' },
    { messageId: '<a@b>' },
    { attachments: { content: 'x', headers: { 'X-A': '1' } } },
    { headers: { 'X-A': ['1', '2'] } },
    {
      headers: [
        { key: 'X-A', value: '1' },
        { key: 'X-A', value: '2' },
      ],
    },
  ]
  for (const mail of unsendable) t.match(await failureOf(send(mail)), { code: 'EUNSUPPORTED' }, JSON.stringify(mail))
  t.match(await failureOf(send({ attachments: [{ path: join(folder, 'missing') }] })), { code: 'ECONTENT' })
  for (const disableFileAccess of [true, 1, 'yes']) {
    const forbidden = { attachments: [{ path: join(folder, 'terms.txt') }], disableFileAccess }
    t.match(await failureOf(send(forbidden)), { code: 'ECONTENT', message: /disableFileAccess/ })
  }
  t.throws(() => sternpostTransport({ url: 'mail.example.net', apiKey: 'sk' }), /^url: "mail\.example\.net" is no http/)
  t.equal(sends.length, before, 'nothing was sent')
})

t.test('10 MiB pass, from a stream too, and one byte more does not', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const { send } = transporterFor(port)
  const streamOf = (bytes: number): Readable =>
    Readable.from(
      (function* () {
        for (let left = bytes; left > 0; left -= 65_536) yield Buffer.alloc(Math.min(left, 65_536), 'x')
      })(),
    )
  await send({ attachments: [{ filename: 'a', content: streamOf(MOST_BYTES) }] })
  t.strictSame(sends[0]?.request.attachments?.[0]?.content, { bytes: new Uint8Array(MOST_BYTES).fill(0x78) })
  for (const content of [streamOf(MOST_BYTES + 1), Buffer.alloc(MOST_BYTES + 1)]) {
    const failure = await failureOf(send({ attachments: [{ filename: 'a', content }] }))
    t.match(failure, { code: 'ECONTENT', message: `attachments[0]: more than ${MOST_BYTES} bytes` })
  }
})

type Answer = [status: number, headers: Record<string, string>, body: string]

/** Answers what it is told to: null cuts the connection, 'never' leaves the request open. */
async function scriptedApi(t: Test) {
  const asked: { key: unknown; to: unknown; at: number }[] = []
  const answers: (Answer | null | 'never')[] = []
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const { to } = JSON.parse(Buffer.concat(chunks).toString()) as { to: unknown }
      asked.push({ key: request.headers['idempotency-key'], to, at: performance.now() })
      const answer = answers.shift() ?? null
      if (answer === null) request.socket.destroy()
      else if (answer !== 'never') response.writeHead(answer[0], answer[1]).end(answer[2])
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { asked, answers, server, port: (server.address() as AddressInfo).port }
}

const ACCEPTED: Answer = [200, {}, JSON.stringify({ success: true, message_id: 'msg_1', timestamp: 1 })]
const refused = (code: string): string => JSON.stringify({ success: false, error: { code, message: 'No.' } })

t.test('429, 503 and broken connections are tried again with the same key, other answers are not', async (t) => {
  const { asked, answers, port } = await scriptedApi(t)
  const { send } = transporterFor(port)
  answers.push([429, { 'Retry-After': '1' }, refused('rate_limited')], null, ACCEPTED)
  t.match(await send({}), { messageId: 'msg_1' })
  t.equal(asked.length, 3)
  t.equal(new Set(asked.map(({ key }) => key)).size, 1)
  t.match(asked[0]?.key, /^[\da-f-]{36}-0$/)
  t.ok((asked[1]?.at ?? 0) - (asked[0]?.at ?? 0) >= 990, 'as long as Retry-After says')

  answers.push([503, { 'Retry-After': '3600' }, refused('unavailable')])
  t.match(await failureOf(send({})), { code: 'unavailable', responseCode: 503 }, 'too long to wait for')
  answers.push([502, {}, '<html>'])
  t.match(await failureOf(send({})), { code: 'internal_error', responseCode: 502 }, 'somebody between spoke')
  answers.push([409, {}, refused('conflict')])
  t.match(await failureOf(send({})), { code: 'conflict', responseCode: 409 })
  answers.push(null, null, null)
  t.match(await failureOf(send({})), { code: 'ECONNECTION' })
  t.equal(asked.length, 9)
})

t.test('a redirect is final whatever the size, and says where it leads', async (t) => {
  const { asked, answers, port } = await scriptedApi(t)
  const { send, verify } = transporterFor(port)
  const to = ['a@example.net', 'b@example.net']
  const Location = 'https://127.0.0.1:9/v1/email/send'
  for (const text of ['Hi', 'x'.repeat(1_000_000)]) {
    asked.length = 0
    answers.splice(0, Infinity, [308, { Location }, '<html>'], ACCEPTED)
    t.match(await failureOf(send({ to, text })), {
      code: 'EREDIRECT',
      responseCode: 308,
      details: Location,
      message: `308 leads to ${Location}: give the final URL`,
      recipient: 'a@example.net',
    })
    t.equal(asked.length, 1, 'it is not repeated, and the next recipient would be told the same')
  }
  answers.splice(0, Infinity, [302, {}, ''])
  t.match(await failureOf(verify()), { code: 'EREDIRECT', responseCode: 302, message: /^302 leads to nowhere: / })
})

t.test('an earlier try that is still under way is waited for, beyond the further tries', async (t) => {
  const { asked, answers, port } = await scriptedApi(t)
  const underWay: Answer = [409, { 'Retry-After': '0' }, refused('conflict')]
  answers.push(null, underWay, underWay, underWay, underWay, ACCEPTED)
  t.match(await transporterFor(port).send({}), { messageId: 'msg_1' })
  t.equal(new Set(asked.map(({ key }) => key)).size, 1)
  const patient: Answer = [409, { 'Retry-After': '1' }, refused('conflict')]
  answers.push(patient)
  const { send } = transporterFor(port, undefined, { longestWait: 900 })
  t.match(await failureOf(send({})), { code: 'conflict' }, 'as long as one wait may be')
})

t.test('what keeps one recipient waiting keeps no other', async (t) => {
  const { asked, answers, port } = await scriptedApi(t)
  const { send } = transporterFor(port, undefined, { answerWithin: 200, retries: 1 })
  const to = ['a@example.net', 'b@example.net', 'c@example.net', 'd@example.net']
  answers.push(ACCEPTED, [422, {}, refused('invalid_recipient')], 'never', 'never', ACCEPTED)
  const { accepted, rejected, rejectedErrors } = await send({ to })
  t.same([accepted, rejected], [['a@example.net'], to.slice(1)])
  t.match(rejectedErrors, [
    { code: 'invalid_recipient', recipient: 'b@example.net' },
    { code: 'ECONNECTION', recipient: 'c@example.net', message: /^no answer from .*: nothing within 0\.2 s$/ },
    { code: 'ECONNECTION', recipient: 'd@example.net', message: /^not tried, after it failed for c@example\.net: / },
  ])
  t.same(
    asked.map((request) => request.to),
    ['a@example.net', 'b@example.net', 'c@example.net', 'c@example.net'],
  )
  answers.splice(0, Infinity, [413, {}, refused('attachment_too_large')], ACCEPTED)
  t.match(await failureOf(send({ to })), { code: 'attachment_too_large', recipient: 'a@example.net' })
  t.equal(asked.length, 5, 'nor is the same large body sent to be refused again')
})

t.test('a large mail on a slow line takes longer than an answer may', async (t) => {
  const { answers, server, port } = await scriptedApi(t)
  server.prependListener('request', (request: IncomingMessage) => {
    let bytes = 0
    request.on('data', (chunk: Buffer) => {
      const megabytes = bytes >> 20
      bytes += chunk.length
      if (bytes >> 20 === megabytes) return
      request.pause()
      setTimeout(() => request.resume(), 40)
    })
  })
  answers.push(ACCEPTED)
  const { send } = transporterFor(port, undefined, { answerWithin: 400, retries: 0 })
  t.match(await send({ attachments: { filename: 'a', content: Buffer.alloc(MOST_BYTES) } }), { messageId: 'msg_1' })
})
