/**
 * What a key may ask for in a time, and what a repeated request is answered.
 */
import fc from 'fast-check'
import t from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createRateLimit } from '../../src/base/rate-limit.ts'
import { createIdempotencyKeys } from '../../src/messages/accept/idempotency.ts'
import type { AcceptedMessages, Idempotent } from '../../src/messages/accept/send-request.ts'
import { createSendingRate } from '../../src/messages/accept/sending-rate.ts'
import type { IdempotencyEntry } from '../../src/store/records/accept-records.ts'
import { testStore } from '../senders/sender-parts.ts'
import { manualClock } from '../support/manual-clock.ts'
import { acceptanceParts, acceptedId, callerWith, sendRequest, verdict } from './acceptance-parts.ts'

const KEY = 'key_01kapg6t3vq8x2m5r7w9y4c6d0'

t.test('a bucket refills continuously and refuses without taking', async (t) => {
  const clock = manualClock()
  const limit = createRateLimit({ clock, count: 10, perMilliseconds: SECOND, burst: 20 })
  t.equal(limit.take('a', 20), 0)
  t.equal(limit.take('a'), 100, 'a token comes every 100 ms')
  t.equal(limit.take('a', 5), 500)
  t.same(limit.state('a'), { remaining: 0, millisecondsUntilFull: 2_000 })
  await clock.advance(250)
  t.same(limit.state('a'), { remaining: 2, millisecondsUntilFull: 1_750 })
  t.equal(limit.take('a', 3), 50, 'half a token is missing')
  t.equal(limit.take('a', 2), 0)
  t.equal(limit.take('b', 20), 0, 'keys do not share')
  await clock.advance(HOUR)
  t.same(limit.state('a'), { remaining: 20, millisecondsUntilFull: 0 })
  t.equal(limit.take('a', 50), 0, 'more than the bucket holds waits for a full one')
  t.equal(limit.take('a'), 3_100, 'and is paid for')
  limit.giveBack('a', 50)
  t.equal(limit.state('a').remaining, 20)
  limit.giveBack('a', 5)
  t.equal(limit.state('a').remaining, 20, 'never above full')
})

t.test('a clock that goes back gives nothing, and what is remembered is bounded', async (t) => {
  let now = 1_000_000
  const limit = createRateLimit({ clock: { now: () => now }, count: 1, perMilliseconds: SECOND, burst: 1, mostKeys: 2 })
  limit.take('a')
  now -= 500_000
  t.equal(limit.take('a'), 1_000)
  now += SECOND
  t.equal(limit.take('a'), 0)
  limit.take('b')
  limit.take('c')
  t.equal(limit.take('b'), 1_000)
  t.equal(limit.take('a'), 0, 'the one used longest ago was forgotten')
})

t.test('property: in any time no more than the rate and one bucket', async (t) => {
  const steps = fc.array(fc.tuple(fc.nat(3_000), fc.integer({ min: 1, max: 12 })), { maxLength: 200 })
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(steps, fc.integer({ min: 1, max: 50 }), (takes, count) => {
        let now = 0
        let taken = 0
        const limit = createRateLimit({ clock: { now: () => now }, count, perMilliseconds: SECOND, burst: 12 })
        for (const [wait, tokens] of takes) {
          now += wait
          const left = limit.take('k', tokens)
          if (left === 0) taken += tokens
          // What the refusal says is when it is taken.
          else {
            now += left
            if (limit.take('k', tokens) !== 0) return false
            taken += tokens
          }
          if (taken > 12 + (now * count) / SECOND + 1e-3) return false
        }
        return true
      }),
    ),
  )
})

t.test('a key has a bucket of requests and one of recipients', async (t) => {
  const clock = manualClock()
  const rate = createSendingRate({
    clock,
    settings: {
      requests: { count: 2, per_milliseconds: SECOND },
      requests_burst: 4,
      recipients: { count: 60, per_milliseconds: MINUTE },
      recipients_burst: 100,
    },
  })
  t.same(rate.state(KEY), { limit: 4, remaining: 4, resetSeconds: 0 })
  rate.takeRequest(KEY)
  t.same(rate.state(KEY), { limit: 4, remaining: 3, resetSeconds: 1 })
  rate.takeRecipients(KEY, 90)
  t.same(rate.state(KEY), { limit: 100, remaining: 10, resetSeconds: 90 }, 'the one nearest to empty')
  t.throws(() => rate.takeRecipients(KEY, 17), {
    code: 'rate_limited',
    details: '60 recipients/min for this key; retry in 7 s',
    headers: { 'Retry-After': '7' },
  })
  await clock.advance(7 * SECOND)
  rate.takeRecipients(KEY, 17)
  for (let count = 0; count < 4; count++) rate.takeRequest(KEY)
  t.throws(() => rate.takeRequest(KEY), { code: 'rate_limited', details: /^2 requests\/s for this key; retry in 1 s$/ })
  for (let count = 0; count < 1_000; count++) rate.takeRequest(null)
  rate.takeRecipients(null, 1_000_000)
  t.equal(rate.state(null), null, 'the administrator has no limits')
})

t.test('a rate that is off refuses nobody', async (t) => {
  const clock = manualClock()
  const requests = { count: 2, per_milliseconds: SECOND }
  const rate = createSendingRate({
    clock,
    settings: { requests, requests_burst: 4, recipients: null, recipients_burst: 1 },
  })
  rate.takeRecipients(KEY, 1_000_000)
  t.match(rate.state(KEY), { limit: 4 })
  const off = createSendingRate({
    clock,
    settings: { requests: null, requests_burst: 1, recipients: null, recipients_burst: 1 },
  })
  off.takeRequest(KEY)
  off.takeRequest(KEY)
  t.equal(off.state(KEY), null)
})

t.test('a send takes a token for each recipient, and one that is refused later gives them back', async (t) => {
  const rates = { recipients: { count: 1, per_milliseconds: SECOND }, recipients_burst: 5 }
  const { accept, rate } = await acceptanceParts(t, { rates })
  const key = callerWith({ apiKeyId: KEY })
  const cc = ['b@example.net', 'c@example.net']
  await accept(sendRequest({ cc }), key, null)
  t.equal(rate.state(KEY)?.remaining, 2)
  t.match(await verdict(accept(sendRequest({ to: 'bad' }), key, null)), /^invalid_recipient/)
  t.match(await verdict(accept(sendRequest({ from: 'a@unknown.org' }), key, null)), /^domain_not_verified/)
  t.match(await verdict(accept(sendRequest({ ipPool: 'cold' }), key, null)), /^ip_not_warmed/)
  t.match(await verdict(accept(sendRequest({ cc }), key, null)), /^rate_limited/)
  t.equal(rate.state(KEY)?.remaining, 2)
  const cause = Object.assign(new Error('full'), { code: 'SQLITE_FULL' })
  const broken = await acceptanceParts(t, { rates, storeFailure: cause })
  t.match(await verdict(broken.accept(sendRequest(), key, null)), /^unavailable/)
  t.doesNotThrow(() => broken.rate.takeRecipients(KEY, 5), 'all of them')
})

const entryWith = (changes: Partial<IdempotencyEntry> = {}): IdempotencyEntry => ({
  apiKeyId: null,
  key: 'receipt-1042',
  fingerprint: Buffer.alloc(32, 1),
  ...changes,
})

const keeping = (entry: IdempotencyEntry): Idempotent<AcceptedMessages> => ({
  entry,
  answer: ({ recipients }) => ({ status: 200, body: JSON.stringify(recipients) }),
})

t.test('the answer is committed with the message, and a repeat gets it and stores nothing', async (t) => {
  const { accept, stored, store, clock, rate } = await acceptanceParts(t)
  const keys = createIdempotencyKeys({ store, clock })
  const entry = entryWith()
  t.same(await keys.begin(entry), { kind: 'new' })
  const id = await acceptedId(accept(sendRequest(), callerWith(), keeping(entry)))
  keys.end(entry)
  const kept = JSON.stringify([{ messageId: id, to: 'ada@example.net', status: 'queued', reason: null }])
  t.same(stored[0]?.idempotency, { entry, answer: { status: 200, body: kept } })
  const replay = { kind: 'replayed', answer: { status: 200, body: kept }, suppressed: [] }
  t.same(await keys.begin(entry), replay)
  t.same(await keys.begin(entry), replay, 'a replay is not under way')
  const key = callerWith({ apiKeyId: null })
  t.same(await accept(sendRequest(), key, keeping(entry)), replay, 'also when it comes as far as the store')
  t.equal(rate.state(KEY)?.remaining, 400)
  await t.rejects(keys.begin(entryWith({ fingerprint: Buffer.alloc(32, 2) })), {
    code: 'conflict',
    details: /another request/,
    headers: {},
  })
  await t.rejects(accept(sendRequest(), key, keeping(entryWith({ fingerprint: Buffer.alloc(32, 2) }))), {
    code: 'conflict',
    details: /another request/,
  })
  await clock.advance(24 * HOUR)
  t.same(await keys.begin(entry), { kind: 'new' }, 'a day later the key is new')
})

t.test('which messages are suppressed is kept beside the answer', async (t) => {
  const { accept } = await acceptanceParts(t)
  const request = sendRequest({ cc: ['suppressed@simulator.sternpost.test'] })
  const first = await accept(request, callerWith(), keeping(entryWith()))
  t.match(first, { kind: 'accepted', accepted: { recipients: [{ status: 'queued' }, { status: 'suppressed' }] } })
  const again = await accept(request, callerWith(), keeping(entryWith()))
  t.match(again, { kind: 'replayed', suppressed: [{ index: 1, reason: 'manual' }] })
  t.notMatch(again.kind === 'replayed' ? again.answer.body : '', /suppressed"/)
})

t.test('while the first is under way the second waits, and a refused one leaves nothing', async (t) => {
  const store = await testStore(t)
  const clock = manualClock()
  const keys = createIdempotencyKeys({ store, clock })
  const begun = await Promise.allSettled([keys.begin(entryWith()), keys.begin(entryWith())])
  t.match(begun, [
    { status: 'fulfilled', value: { kind: 'new' } },
    { status: 'rejected', reason: { code: 'conflict', details: /under way/, headers: { 'Retry-After': '1' } } },
  ])
  await t.rejects(keys.begin(entryWith({ fingerprint: Buffer.alloc(32, 2) })), { code: 'conflict', headers: {} })
  const others = [{ apiKeyId: KEY }, { key: 'receipt' }, { apiKeyId: 'key_01kapg6t3vq8x2m5r7w9y4c6d1' }]
  for (const other of others) t.same(await keys.begin(entryWith(other)), { kind: 'new' })
  keys.end(entryWith())
  t.same(await keys.begin(entryWith()), { kind: 'new' }, 'nothing was kept')
  const failing = createIdempotencyKeys({
    clock,
    store: {
      findIdempotent: () => Promise.reject(new Error('no answer')),
      keepAnswer: () => Promise.reject(new Error('no answer')),
    },
  })
  await t.rejects(failing.begin(entryWith()), { message: 'no answer' })
  await t.rejects(failing.begin(entryWith()), { message: 'no answer' }, 'a failed look-up leaves nothing under way')
})

t.test('answers of other requests are kept for themselves', async (t) => {
  const store = await testStore(t)
  const keys = createIdempotencyKeys({ store, clock: manualClock() })
  await keys.begin(entryWith())
  await keys.keepAnswer(entryWith(), { status: 201, body: '{}' })
  keys.end(entryWith())
  t.same(await keys.begin(entryWith()), { kind: 'replayed', answer: { status: 201, body: '{}' }, suppressed: [] })
})
