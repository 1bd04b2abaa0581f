/**
 * Mail that comes by SMTP submission: what it becomes in the store, what is refused, and that a repeat is nothing new.
 */
import t from 'tap'
import { SECOND } from '../../src/base/clock.ts'
import { createAcceptSubmission } from '../../src/messages/accept/accept-submission.ts'
import { mailFingerprint, partsMadeAnew } from '../../src/messages/accept/mail-fingerprint.ts'
import type { AcceptSubmission, Caller, SubmissionRequest } from '../../src/messages/accept/send-request.ts'
import { anything } from '../store/store-samples.ts'
import {
  acceptanceParts,
  callerWith,
  LIFETIME,
  verdict,
  type AcceptanceParts,
  type AcceptanceSetup,
} from './acceptance-parts.ts'

const mail = (changes: string[] = [], body = 'Hi'): Uint8Array =>
  Buffer.from(['From: orders@acme.com', 'Message-ID: <1@acme.com>', ...changes, '', body, ''].join('\r\n'))

const submission = (changes: Partial<SubmissionRequest> = {}): SubmissionRequest => ({
  recipients: ['ada@example.net'],
  from: 'Acme <orders@acme.com>',
  subject: 'Order',
  raw: mail(),
  tags: undefined,
  ipPool: undefined,
  track: undefined,
  idempotencyKey: undefined,
  ...changes,
})

const KEY: Caller = callerWith({ source: 'smtp', apiKeyId: 'key_01kapg6t3vq8x2m5r7w9y4c6d0' })

interface SubmissionParts extends AcceptanceParts {
  submit: AcceptSubmission
}

async function submissionParts(
  t: Parameters<typeof acceptanceParts>[0],
  setup: AcceptanceSetup = {},
): Promise<SubmissionParts> {
  const parts = await acceptanceParts(t, setup)
  return { ...parts, submit: createAcceptSubmission(parts.options) }
}

t.test('each recipient is a message, all share the mail as it came', async (t) => {
  const { submit, stored, store, clock, metrics } = await submissionParts(t)
  const { messageIds } = await submit(
    submission({
      recipients: ['Ada@example.net', 'bob@EXAMPLE.org'],
      subject: 'Grüße\r\n an alle',
      tags: { campaign: 'spring' },
      ipPool: 'spare',
      track: { opens: false, clicks: true },
    }),
    KEY,
  )
  t.equal(messageIds.length, 2)
  t.match(stored[0], {
    apiKeyId: KEY.apiKeyId,
    isTest: false,
    domain: 'acme.com',
    pool: 'spare',
    stream: 'transactional',
    sendAt: null,
    batch: null,
    retryOf: null,
    content: {
      from: { name: 'Acme', address: 'orders@acme.com' },
      subject: 'Grüße an alle',
      html: null,
      text: null,
      hasVariables: false,
      addressees: null,
      headers: [],
      unsubscribe: null,
      tracking: { opens: false, clicks: true },
      raw: mail(),
    },
    messages: [
      { id: messageIds[0], to: { name: null, address: 'Ada@example.net' }, expiresAt: clock.now() + LIFETIME },
      { id: messageIds[1], to: { address: 'bob@example.org' }, recipientDomain: 'example.org' },
    ],
  })
  t.match(await store.lookupMessage(messageIds[1] ?? '', clock.now()), {
    state: 'queued',
    recipient: 'bob@example.org',
    subject: 'Grüße an alle',
    tags: { campaign: 'spring' },
  })
  await submit(submission({ raw: mail([], 'other') }), KEY)
  t.same(stored[1]?.content.tracking, { opens: true, clicks: false }, 'as the domain says')
  t.match(await metrics.registry.metrics(), 'sternpost_messages_accepted_total{source="smtp"} 3')
})

t.test('each kind of bad submission has its answer', async (t) => {
  const { submit, stored } = await submissionParts(t)
  const cases: [string, Partial<SubmissionRequest>, RegExp][] = [
    ['a bad recipient', { recipients: ['ada@example.net', 'b@@c'] }, /^invalid_recipient: 'b@@c' has two '@' signs$/],
    ['no recipient', { recipients: [] }, /^invalid_recipient: no recipient$/],
    ['a reserved recipient', { recipients: ['a@b.invalid'] }, /^invalid_recipient: /],
    ['a bad sender', { from: 'nobody' }, /^invalid_request: From: 'nobody' has no '@'$/],
    ['two senders', { from: 'a@acme.com, b@acme.com' }, /^invalid_request: From: /],
    ['a bad tag', { tags: { a: 'x\n' } }, /^invalid_request: tags\.a: /],
    ['an unknown pool', { ipPool: 'x' }, /^invalid_request: ip_pool: 'x' is no pool/],
    ['a bad key', { idempotencyKey: 'ü' }, /^invalid_request: X-Idempotency-Key: must be 1 to 256 printable/],
    ['an empty key', { idempotencyKey: '' }, /^invalid_request: X-Idempotency-Key: /],
    ['an unverified domain', { from: 'a@unknown.org' }, /^domain_not_verified: unknown\.org/],
    ['a cold pool', { ipPool: 'cold' }, /^ip_not_warmed: /],
  ]
  for (const [what, changes, expected] of cases) {
    t.match(await verdict(submit(submission(changes), KEY)), expected, what)
  }
  t.match(await verdict(submit(submission(), { ...KEY, domains: ['other.com'] })), /^forbidden: /)
  t.equal(stored.length, 0)
})

t.test('a repeat gives the first answer and stores nothing', async (t) => {
  const rates = { recipients: { count: 1, per_milliseconds: SECOND }, recipients_burst: 3 }
  const { submit, stored, clock, rate } = await submissionParts(t, { rates })
  const first = await submit(submission(), KEY)
  t.same(await submit(submission(), KEY), first)
  t.same(await Promise.all([submit(submission(), KEY), submit(submission(), KEY)]), [first, first])
  t.equal(stored.length, 1)
  t.equal(rate.state(KEY.apiKeyId)?.remaining, 2, 'and takes no tokens')
  const other = { ...KEY, apiKeyId: 'key_01kapg6t3vq8x2m5r7w9y4c6d1' }
  t.notSame(await submit(submission(), other), first, 'of another key it is new')
  t.notSame(await submit(submission({ recipients: ['bob@example.net'] }), KEY), first, 'for another recipient too')
  t.notSame(await submit(submission({ raw: mail([], 'Hello') }), KEY), first, 'and with another content')
  await clock.advance(24 * 3_600 * SECOND)
  t.notSame(await submit(submission(), KEY), first, 'and a day later')
})

t.test('two at once are stored once, whoever wins', async (t) => {
  const { submit, store, clock } = await submissionParts(t)
  const [left, right] = await Promise.all([submit(submission(), KEY), submit(submission(), KEY)])
  t.same(left, right)
  const { messages } = await store.searchMessages({ ...anything, now: clock.now() })
  t.equal(messages.length, 1)
})

t.test("a key of the sender's stands for one mail", async (t) => {
  const { submit, stored } = await submissionParts(t)
  const withKey = (changes: Partial<SubmissionRequest> = {}): SubmissionRequest =>
    submission({ idempotencyKey: 'receipt-1042', ...changes })
  const first = await submit(withKey(), KEY)
  t.same(await submit(withKey(), KEY), first)
  t.match(await verdict(submit(withKey({ raw: mail([], 'Hello') }), KEY)), /^conflict: /)
  t.equal(stored.length, 1)
  t.match(stored[0]?.idempotency?.entry, { apiKeyId: KEY.apiKeyId, key: 'smtp:receipt-1042' })
})

t.test('a mail that is written anew under its key is the same one', async (t) => {
  const { submit, stored } = await submissionParts(t)
  const lines = (run: string, text: string): string[] => [
    `Date: Sat, 21 Nov 2026 12:00:0${run} +0000`,
    `Message-ID: <${run}@app>`,
    'From: orders@acme.com',
    'Content-Type: multipart/mixed;',
    ` boundary="part${run}"`,
    '',
    `--part${run}`,
    `Content-Type: multipart/alternative; boundary=part${run}1`,
    '',
    `--part${run}1 `,
    '',
    text,
    `--part${run}1--`,
    `--part${run}--`,
    '',
  ]
  const written = (run: string, text = 'Hi', added: string[] = []): SubmissionRequest =>
    submission({ idempotencyKey: 'receipt-1042', raw: Buffer.from([...added, ...lines(run, text)].join('\r\n')) })
  const first = await submit(written('1'), KEY)
  t.same(await submit(written('2', 'Hi', ['Received: from app']), KEY), first)
  const others = [
    'Hello',
    'Hi\r\n--',
    'Hi\r\n--part41\r\n',
    'Hi\r\n--part41x',
    'Hi boundary=part4',
    'Hi\r\n--part4 \r\n',
  ]
  for (const text of others) t.match(await verdict(submit(written('4', text), KEY)), /^conflict: /, text)
  t.equal(stored.length, 1)
})

t.test('what only looks like a boundary is content', async (t) => {
  const bodies = [
    'boundary=a\r\n\r\n--a\r\n',
    'boundary=b\r\n\r\n--b\r\n',
    '--\r\n',
    '--a\r\nContent-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n',
    '--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n',
  ]
  const types = ['text/plain; boundary=a', 'multipart/mixed; boundary=--', 'multipart/mixed; boundary=mixed']
  const raws = ['text/plain', ...types].flatMap((type) => bodies.map((body) => mail([`Content-Type: ${type}`], body)))
  const found = await Promise.all(raws.map((raw) => mailFingerprint(['ada@example.net'], raw, partsMadeAnew(raw))))
  t.equal(new Set(found.map((each) => each.toString('hex'))).size, raws.length)
})

t.test('recipients in another order are the same ones', async (t) => {
  const { submit, stored } = await submissionParts(t)
  const recipients = ['bob@example.net', 'ada@example.net', 'eve@example.net']
  for (const idempotencyKey of [undefined, 'receipt-1042']) {
    const request = submission({ idempotencyKey, recipients, raw: mail(['Message-ID: <1@app>']) })
    const first = await submit(request, KEY)
    t.equal(first.messageIds.length, 3)
    t.same(await submit({ ...request, recipients: recipients.toReversed() }, KEY), first)
  }
  t.equal(stored.length, 2)
})

t.test('an answer that 0.1.0 kept is given again', async (t) => {
  const { submit, store, clock, stored } = await submissionParts(t)
  const several = submission({ recipients: ['bob@example.net', 'ada@example.net'], raw: mail(['Message-ID: <1@app>']) })
  const whole = await mailFingerprint(several.recipients, several.raw, [])
  const byContent = { apiKeyId: KEY.apiKeyId, key: `smtp:${whole.toString('hex')}`, fingerprint: whole }
  await store.keepAnswer(byContent, { status: 250, body: '["msg_1","msg_2"]' }, clock.now())
  t.same((await submit(several, KEY)).messageIds, ['msg_1', 'msg_2'])
  const request = submission({ idempotencyKey: 'receipt-1042', raw: mail(['Date: Sat, 21 Nov 2026 12:00:00 +0000']) })
  const fingerprint = await mailFingerprint(request.recipients, request.raw, [])
  const entry = { apiKeyId: KEY.apiKeyId, key: 'smtp:receipt-1042', fingerprint }
  await store.keepAnswer(entry, { status: 250, body: '["msg_1"]' }, clock.now())
  t.same((await submit(request, KEY)).messageIds, ['msg_1'])
  t.equal(stored.length, 0)
})

t.test('mail without a Message-ID is always new', async (t) => {
  const { submit, stored } = await submissionParts(t)
  const raws = ['From: a@acme.com\r\n\r\nMessage-ID: <1@a>\r\n', 'From: a@acme.com\r\nMessage-ID:\r\n\r\nx', '']
  for (const raw of raws) {
    const request = submission({ raw: Buffer.from(raw) })
    t.notSame(await submit(request, KEY), await submit(request, KEY), JSON.stringify(raw))
  }
  t.equal(stored.length, 6)
  for (const field of ['message-id: <1@a>', 'MESSAGE-ID:\r\n <2@a>']) {
    const request = submission({ raw: Buffer.from(`From: a@acme.com\r\n${field}\r\n\r\nx`) })
    t.same(await submit(request, KEY), await submit(request, KEY), field)
  }
})
