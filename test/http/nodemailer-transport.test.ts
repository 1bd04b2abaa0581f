/**
 * The real nodemailer over the transport, against the real API: what arrives there, what goes wrong, what is repeated.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { createTransport } from 'nodemailer'
import t from 'tap'
import {
  SternpostError,
  sternpostTransport,
  type SternpostInfo,
} from '../../src/clients/nodemailer/nodemailer-transport.ts'
import { keyNamed, shareStore, startApi } from './api-server.ts'

shareStore(t)
const folder = mkdtempSync(join(tmpdir(), 'sternpost-nodemailer-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const MOST_BYTES = 10_485_760
const FROM = { name: 'Acme "Shop"', address: 'orders@acme.com' }
const MAIL = { from: FROM, to: 'Ada <ada@example.net>', subject: 'Order {{no}}', text: 'Hi' }

function transporterFor(port: number, apiKey = keyNamed('send')) {
  const transporter = createTransport(sternpostTransport({ url: `http://127.0.0.1:${port}/v1/`, apiKey, retries: 2 }))
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
    { icalEvent: { content: 'BEGIN:VCALENDAR' } },
    { sender: 'b@acme.com' },
    { priority: 'high' },
    { messageId: '<a@b>' },
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
  const forbidden = { attachments: [{ path: join(folder, 'terms.txt') }], disableFileAccess: true }
  t.match(await failureOf(send(forbidden)), { code: 'ECONTENT', message: /disableFileAccess/ })
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

t.test('429, 503 and broken connections are tried again with the same key, other answers are not', async (t) => {
  const asked: { key: unknown; at: number }[] = []
  const answers: (() => [status: number, headers: Record<string, string>, body: string] | null)[] = []
  const server = createServer((request, response) => {
    asked.push({ key: request.headers['idempotency-key'], at: performance.now() })
    request.resume().on('end', () => {
      const answer = answers.shift()?.() ?? null
      if (answer === null) return request.socket.destroy()
      response.writeHead(answer[0], answer[1]).end(answer[2])
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { send } = transporterFor((server.address() as AddressInfo).port)
  const accepted = JSON.stringify({ success: true, message_id: 'msg_1', timestamp: 1 })
  const refused = (code: string): string => JSON.stringify({ success: false, error: { code, message: 'No.' } })

  answers.push(
    () => [429, { 'Retry-After': '1' }, refused('rate_limited')],
    () => null,
    () => [200, {}, accepted],
  )
  t.match(await send({}), { messageId: 'msg_1' })
  t.equal(asked.length, 3)
  t.equal(new Set(asked.map(({ key }) => key)).size, 1)
  t.match(asked[0]?.key, /^[\da-f-]{36}-0$/)
  t.ok((asked[1]?.at ?? 0) - (asked[0]?.at ?? 0) >= 990, 'as long as Retry-After says')

  answers.push(() => [503, { 'Retry-After': '3600' }, refused('unavailable')])
  t.match(await failureOf(send({})), { code: 'unavailable', responseCode: 503 }, 'too long to wait for')
  answers.push(() => [502, {}, '<html>'])
  t.match(await failureOf(send({})), { code: 'internal_error', responseCode: 502 }, 'somebody between spoke')
  answers.push(
    () => null,
    () => null,
    () => null,
  )
  t.match(await failureOf(send({})), { code: 'ECONNECTION' })
  t.equal(asked.length, 8)
})
