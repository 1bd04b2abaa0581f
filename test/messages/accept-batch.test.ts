/**
 * Batches: what good recipients become, how bad ones are told, and when the whole is refused.
 */
import fc from 'fast-check'
import t from 'tap'
import { toUnixSeconds } from '../../src/base/clock.ts'
import { createAcceptBatch } from '../../src/messages/accept/accept-message.ts'
import type { AcceptBatch, AcceptedBatch, BatchRequest } from '../../src/messages/accept/send-request.ts'
import {
  accepted,
  acceptanceParts,
  batchRequest,
  BULK_LIFETIME,
  callerWith,
  file,
  verdict,
  type AcceptanceParts,
  type AcceptanceSetup,
} from './acceptance-parts.ts'

const FILLED = 'once its variables are filled in'

interface BatchParts extends AcceptanceParts {
  acceptBatch: AcceptBatch
  send(changes: Partial<BatchRequest>): Promise<AcceptedBatch>
  outcome(changes: Partial<BatchRequest>): Promise<string>
}

async function batchParts(t: Parameters<typeof acceptanceParts>[0], setup: AcceptanceSetup = {}): Promise<BatchParts> {
  const parts = await acceptanceParts(t, setup)
  const acceptBatch = createAcceptBatch(parts.options)
  return {
    ...parts,
    acceptBatch,
    send: (changes) => accepted(acceptBatch(batchRequest(changes), callerWith(), null)),
    outcome: (changes) => verdict(acceptBatch(batchRequest(changes), callerWith(), null)),
  }
}

/** What of each result is told: its status, or its refusal. */
const told = ({ results }: AcceptedBatch): string[] =>
  results.map((result) => ('code' in result ? `${result.code} ${result.details}` : result.status))

const recipients = (count: number, values: Record<string, unknown> = {}): Record<string, unknown>[] =>
  Array.from({ length: count }, (_, index) => ({ to: `r${index}@example.net`, ...values }))

t.test('each recipient is a message of its own, the content is stored once', async (t) => {
  const { send, stored, store, clock, metrics, told: announced } = await batchParts(t)
  const answer = await send({
    subject: 'Hello {{name}}',
    html: '<p>{{name}} {{no|0}} to {{to}}</p>',
    text: '{{name}}',
    ipPool: 'spare',
    attachments: [file()],
    recipients: [
      { to: 'Ada <ada@example.net>', name: 'Ada', no: 7, unused: 'x'.repeat(100), deep: { a: 1 } },
      { to: 'bob@EXAMPLE.org', name: 'Bob' },
      { to: 'bob@example.org', name: 'Bob again' },
    ],
  })
  t.match(answer, { batchId: /^bat_[0-9a-hjkmnp-tv-z]{26}$/, acceptedAt: clock.now(), estimatedStartAt: null })
  t.match(answer.results, [
    { messageId: /^msg_/, to: 'ada@example.net', status: 'queued', reason: null },
    { messageId: /^msg_/, to: 'bob@example.org', status: 'queued' },
    { to: 'bob@example.org', status: 'queued' },
  ])
  t.equal(stored.length, 1)
  const [request] = stored
  t.match(request, {
    batch: { id: answer.batchId, rejected: 0 },
    stream: 'bulk',
    pool: 'spare',
    content: { subject: 'Hello {{name}}', hasVariables: true, unsubscribe: { list: 'bulk' }, addressees: null },
    messages: [{ to: { name: 'Ada' }, expiresAt: clock.now() + BULK_LIFETIME }, {}, {}],
  })
  t.same(
    request?.messages.map(({ variables }) => ({ ...variables })),
    [
      { name: 'Ada', no: 7, to: 'Ada <ada@example.net>' },
      { name: 'Bob', to: 'bob@EXAMPLE.org' },
      { name: 'Bob again', to: 'bob@example.org' },
    ],
    'only what the templates use is stored',
  )
  t.match(await store.lookupBatch(answer.batchId, clock.now()), {
    accepted: 3,
    rejected: 0,
    subject: 'Hello {{name}}',
    states: { queued: 3 },
  })
  t.same(announced, { queued: 1, events: 0 })
  t.match(await metrics.registry.metrics(), 'sternpost_messages_accepted_total{source="api"} 3')
})

t.test('bad recipients are told and the others accepted, in the order of the request', async (t) => {
  const { send, stored, store, clock } = await batchParts(t)
  const answer = await send({
    subject: 'Hi {{name}}',
    html: '{{name}} {{no|0}}',
    recipients: [
      { to: 'ada@example.net', name: 'Ada' },
      { to: 'bob@@x', name: 'Bob' },
      { to: 'carol@example.org' },
      null,
      { name: 'Dave' },
      { to: 5 },
      { to: null },
      { to: 'eve@example.net', name: 'x\r\nBcc: y@z.org' },
      { to: 'fay@example.net', name: 'x'.repeat(999) },
      { to: 'gus@example.net', name: { a: 1 } },
      { to: 'hal@example.net', name: 'x', no: 'a\0b' },
      { to: 'ivy@example.net', name: 'x', no: '\ud800' },
      { to: 'jan@example.net', name: '' },
      Object.create({ to: 'kim@example.net', name: 'Kim' }),
      { to: 'lou@a.test', name: 'x' },
      { to: 'moe@example.net', name: 'x', unused: '\0' },
    ],
  })
  t.same(told(answer), [
    'queued',
    "invalid_recipient recipients[1].to: 'bob@@x' has two '@' signs",
    'invalid_request recipients[2].name: used in subject and html, not given',
    'invalid_recipient recipients[3]: must be an object',
    'invalid_recipient recipients[4].to: is missing',
    'invalid_recipient recipients[5].to: must be a string',
    'invalid_recipient recipients[6].to: is missing',
    `invalid_request recipients[7]: subject has a line break or another control character ${FILLED}`,
    `invalid_request recipients[8]: subject has more than 998 characters ${FILLED}`,
    'invalid_request recipients[9].name: used in subject and html, must be a string, number or boolean, not an object',
    'invalid_request recipients[10].no: has the character U+0000',
    'invalid_request recipients[11].no: has an unpaired surrogate',
    'queued',
    'invalid_recipient recipients[13].to: is missing',
    "invalid_recipient recipients[14].to: 'lou@a.test' is under the reserved name .test, which no mail server has",
    'invalid_request recipients[15].unused: has the character U+0000',
  ])
  t.same(
    answer.results.map(({ to }) => to).slice(0, 6),
    ['ada@example.net', 'bob@@x', 'carol@example.org', '', '', ''],
    'with the address as it was given',
  )
  t.match(stored[0], { batch: { rejected: 14 } })
  t.equal(stored[0]?.messages.length, 2)
  t.match(await store.lookupBatch(answer.batchId, clock.now()), { accepted: 2, rejected: 14 })
})

t.test('strict: one bad recipient refuses all, and ten are named', async (t) => {
  const { outcome, stored } = await batchParts(t)
  const bad = Array.from({ length: 12 }, (_, index) => ({ to: `bad${index}` }))
  const answer = await outcome({ isStrict: true, recipients: [...recipients(2), ...bad] })
  t.match(answer, /^invalid_recipient: recipients\[2\]\.to: 'bad0' has no '@'; recipients\[3\]/)
  t.equal(answer.split('; ').length, 10)
  t.equal(
    await outcome({ isStrict: true, html: '{{a}}', recipients: [{ to: 'a@example.net' }, { to: 'b' }] }),
    "invalid_request: recipients[0].a: used in html, not given; recipients[1].to: 'b' has no '@'",
  )
  t.equal(stored.length, 0)
  t.equal(await outcome({ isStrict: true, recipients: recipients(2) }), 'accepted')
})

t.test('without a good recipient, or with a bad shared field, nothing is stored', async (t) => {
  const { outcome, stored } = await batchParts(t)
  t.equal(
    await outcome({ recipients: [{ to: 'x' }, { to: 'ada@example.net', a: 1 }], html: '{{b}}' }),
    "invalid_recipient: recipients[0].to: 'x' has no '@'; recipients[1].b: used in html, not given",
  )
  t.match(
    await outcome({ recipients: recipients(20), html: '{{b}}' }),
    /^invalid_request: (recipients.*; ){9}recipients\[9\]/,
  )
  t.equal(await outcome({ recipients: undefined }), 'invalid_request: recipients: is missing')
  t.equal(
    await outcome({ recipients: undefined, wrongTypes: ['recipients: expected an array, got null'] }),
    'invalid_request: recipients: expected an array, got null',
  )
  t.equal(await outcome({ recipients: [] }), 'invalid_request: recipients: is empty')
  t.equal(
    await outcome({ recipients: recipients(1_001) }),
    'invalid_request: recipients: 1001 entries; at most 1000 are allowed',
  )
  t.equal(
    await outcome({ recipients: [{ to: 'x' }], from: 'y', tags: { a: 1 } }),
    "invalid_recipient: recipients[0].to: 'x' has no '@'; from: 'y' has no '@'; " +
      'tags.a: must be a string of at most 256 characters of printable ASCII',
  )
  t.equal(
    await outcome({ recipients: [{ to: 'x' }, ...recipients(1)], from: 'y' }),
    "invalid_request: from: 'y' has no '@'",
  )
  t.equal(
    await outcome({ subject: 'a\nb{{name}}', recipients: recipients(2, { name: 'x' }) }),
    'invalid_request: subject: has a line break or another control character',
  )
  t.match(
    await outcome({ html: 'x'.repeat(5 * 2 ** 20 + 1), recipients: recipients(2) }),
    /^invalid_request: html: has 5242881 bytes/,
  )
  const tooLarge = file({ content: Buffer.alloc(10_485_761).toString('base64') })
  t.match(await outcome({ attachments: [tooLarge] }), /^attachment_too_large: /)
  t.match(await outcome({ from: 'a@unknown.org' }), /^domain_not_verified: /)
  t.match(await outcome({ ipPool: 'cold' }), /^ip_not_warmed: /)
  t.equal(stored.length, 0)
})

t.test('what the door found about one recipient refuses that one alone', async (t) => {
  const { send } = await batchParts(t)
  const answer = await send({
    wrongTypes: ['recipients[0].to: holds U+0000', 'recipients[2].total: holds an unpaired surrogate'],
    recipients: [{ to: 'a\0@example.net' }, ...recipients(2)],
  })
  t.same(told(answer), [
    'invalid_recipient recipients[0].to: holds U+0000',
    'queued',
    'invalid_request recipients[2].total: holds an unpaired surrogate',
  ])
})

t.test('a value used often is measured, not built', async (t) => {
  const { send, outcome } = await batchParts(t)
  const html = '{{big}}'.repeat(100)
  const bigs = [
    { to: 'a@example.net', big: 'x' },
    { to: 'b@example.net', big: 'x'.repeat(60_000) },
  ]
  const answer = await send({ html, recipients: bigs })
  t.same(told(answer), [
    'queued',
    `invalid_request recipients[1]: html has 6000000 bytes, at most 5242880 are allowed ${FILLED}`,
  ])
  t.match(
    await outcome({ html: '{{b}}', recipients: [{ to: 'a@example.net', b: '&'.repeat(1_100_000) }] }),
    /html has 5500000 bytes/,
    'as it is after escaping',
  )
})

t.test('the address to unsubscribe at is there, unless the recipient has a value of that name', async (t) => {
  const { send, outcome, stored } = await batchParts(t)
  const html = '<a href="{{unsubscribe_url}}">Leave</a>'
  await send({ html, recipients: [{ to: 'a@example.net' }, { to: 'b@example.net', unsubscribe_url: 'https://own/' }] })
  t.same(
    stored[0]?.messages.map(({ variables }) => ({ ...variables })),
    [{}, { unsubscribe_url: 'https://own/' }],
  )
  t.equal(
    await outcome({ html, unsubscribe: false }),
    'invalid_request: recipients[0].unsubscribe_url: used in html, not given',
    'where there is none it is missing',
  )
  t.equal(
    await outcome({ html, stream: 'transactional' }),
    'invalid_request: recipients[0].unsubscribe_url: used in html, not given',
  )
})

t.test('a batch takes as many tokens as it has accepted recipients, all or none', async (t) => {
  const rates = { recipients: { count: 10, per_milliseconds: 1_000 }, recipients_burst: 10 }
  const { acceptBatch, clock, stored, rate } = await batchParts(t, { rates })
  const key = callerWith({ apiKeyId: 'key_01kapg6t3vq8x2m5r7w9y4c6d0' })
  const outcome = (changes: Partial<BatchRequest>): Promise<string> =>
    verdict(acceptBatch(batchRequest(changes), key, null))
  t.equal(await outcome({ recipients: [...recipients(8), { to: 'bad' }] }), 'accepted')
  t.equal(rate.state(key.apiKeyId)?.remaining, 2)
  t.equal(await outcome({ recipients: recipients(3) }), 'rate_limited: 10 recipients/s for this key; retry in 1 s')
  t.equal(rate.state(key.apiKeyId)?.remaining, 2, 'a refusal takes nothing')
  t.match(await outcome({ ipPool: 'cold', recipients: recipients(2) }), /^ip_not_warmed/)
  t.equal(rate.state(key.apiKeyId)?.remaining, 2, 'nor does one of a later step')
  t.equal(await outcome({ recipients: recipients(2) }), 'accepted')
  await clock.advance(300)
  t.equal(await outcome({ recipients: recipients(3) }), 'accepted')
  t.equal(stored.length, 3)
})

t.test('scheduled and suppressed recipients are told apart', async (t) => {
  const { send, clock, store, told: announced } = await batchParts(t)
  await store.addSuppression({
    id: 'sup_01kapg6t3vq8x2m5r7w9y4c6dq',
    email: 'r1@example.net',
    reason: 'unsubscribe',
    scope: 'bulk',
    domain: null,
    owners: [],
    isTest: false,
    messageId: null,
    createdAt: clock.now(),
  })
  const answer = await send({ recipients: [{ to: 'bad' }, ...recipients(3)], sendAt: toUnixSeconds(clock.now()) + 60 })
  t.match(answer.results, [
    { code: 'invalid_recipient' },
    { status: 'scheduled' },
    { status: 'suppressed', reason: 'unsubscribe' },
    { status: 'scheduled' },
  ])
  t.equal(announced.events, 1)
})

t.test('property: each recipient is accepted or refused, whatever its object holds', async (t) => {
  const { acceptBatch, stored } = await batchParts(t)
  const names = fc.constantFrom('to', 'name', '__proto__', 'constructor', 'toString', 'unsubscribe_url')
  const value = fc.oneof(fc.string(), fc.jsonValue(), fc.constant('a@example.net'))
  const values = fc.array(fc.tuple(fc.oneof(names, fc.string()), value), { maxLength: 5 })
  const entry = fc.oneof(
    fc.constant(null),
    values.map((pairs): Record<string, unknown> => {
      const object: Record<string, unknown> = Object.create(null)
      for (const [name, value] of pairs) object[name] = value
      return object
    }),
  )
  const template = '{{name}} {{__proto__|x}} {{constructor|y}} {{unsubscribe_url}}'
  await fc.assert(
    fc.asyncProperty(fc.array(entry, { minLength: 1, maxLength: 8 }), async (entries) => {
      const before = stored.length
      const request = batchRequest({ subject: 'x', html: template, recipients: entries })
      const answer = await acceptBatch(request, callerWith(), null).catch((thrown: { code?: string }) => thrown.code)
      if (typeof answer !== 'object') {
        return (answer === 'invalid_recipient' || answer === 'invalid_request') && stored.length === before
      }
      if (answer.kind !== 'accepted') return false
      const good = answer.accepted.results.filter((result) => 'messageId' in result)
      return answer.accepted.results.length === entries.length && stored.at(-1)?.messages.length === good.length
    }),
    { numRuns: process.env['TEST_SCALE'] === 'full' ? 2_000 : 100 },
  )
  t.equal(Reflect.get({}, 'name'), undefined)
})

t.test('the largest batch is checked once, its recipients each by what they use', async (t) => {
  const { send, stored } = await batchParts(t)
  const html = `${'<p>text</p>'.repeat(50_000)}${['a', 'b', 'c', 'd', 'e'].map((key) => `{{${key}}}`).join(' ')}`
  const ignored = Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`ignored${index}`, 'x'.repeat(20)]))
  const values = { a: 1, b: 'two', c: true, d: 'vier', e: 5.5, ...ignored }
  const answer = await send({ html, recipients: recipients(1_000, values) })
  t.equal(answer.results.length, 1_000)
  t.ok(stored[0]?.messages.every(({ variables }) => Object.keys(variables).length === 5))
})
