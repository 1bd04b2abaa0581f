/**
 * Idempotency keys: what every store engine must do with a request that comes again.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { AcceptRequest, IdempotencyEntry } from '../../src/store/records/accept-records.ts'
import type { Cases } from './conformance-case.ts'
import { acceptRequest, lookUp, newMessage, NOW, suppressionRecord } from './store-samples.ts'

const DAY = 86_400_000
const OWNER = newIdentifier('key', NOW)
const ANSWER = { status: 200, body: '{"success":true}' }

function entry(changes: Partial<IdempotencyEntry> = {}): IdempotencyEntry {
  return { apiKeyId: OWNER, key: 'receipt-1042', fingerprint: Buffer.alloc(32, 7), ...changes }
}

function keyedRequest(changes: Partial<AcceptRequest> = {}): AcceptRequest {
  return acceptRequest({ idempotency: { entry: entry(), answer: ANSWER }, messages: [newMessage()], ...changes })
}

export const idempotency: Cases = {
  'a repeat within 24 h gets the kept answer and stores nothing': async (t, { store }) => {
    await store.addSuppression(suppressionRecord())
    const messages = [newMessage({ to: { name: null, address: 'bob@example.com' } }), newMessage()]
    const suppressed = [{ index: 1, reason: 'manual' }]
    t.same(await store.findIdempotent(entry(), NOW), { kind: 'new' })
    t.match(await store.acceptMessages(keyedRequest({ messages })), { kind: 'accepted', suppressed })
    const replayed = { kind: 'replayed', answer: ANSWER, suppressed }
    await store.removeSuppressions({ email: 'ada@example.com', scope: null, isTest: false, domains: [] })
    const repeated = newMessage()
    t.same(await store.acceptMessages(keyedRequest({ now: NOW + DAY - 1, messages: [repeated] })), replayed)
    t.equal(await lookUp(store, repeated.id), null)
    t.same(await store.findIdempotent(entry(), NOW + DAY - 1), replayed)
    t.same(await store.findIdempotent(entry(), NOW + DAY), { kind: 'new' })
    t.match(await store.acceptMessages(keyedRequest({ now: NOW + DAY, messages: [repeated] })), {
      kind: 'accepted',
      suppressed: [],
    })
    t.match(await store.findIdempotent(entry(), NOW + DAY + 1), { kind: 'replayed', suppressed: [] })
  },
  'the same key for another request is a mismatch; another owner has keys of its own': async (t, { store }) => {
    await store.acceptMessages(keyedRequest())
    const other = entry({ fingerprint: Buffer.alloc(32, 8) })
    t.same(await store.findIdempotent(other, NOW), { kind: 'mismatch' })
    const refused = newMessage()
    const request = keyedRequest({ messages: [refused], idempotency: { entry: other, answer: ANSWER } })
    t.same(await store.acceptMessages(request), { kind: 'mismatch' })
    t.equal(await lookUp(store, refused.id), null)
    for (const changes of [{ apiKeyId: null }, { apiKeyId: newIdentifier('key', NOW) }, { key: 'receipt-1043' }]) {
      t.same(await store.findIdempotent(entry(changes), NOW), { kind: 'new' })
    }
    for (const key of ['%', '_'.repeat(12), 'Receipt-1042', ' '.repeat(256), "'; drop --"]) {
      await store.keepAnswer(entry({ apiKeyId: null, key }), { status: 201, body: key }, NOW)
      t.match(await store.findIdempotent(entry({ apiKeyId: null, key }), NOW), { answer: { body: key } })
    }
    t.match(await store.findIdempotent(entry(), NOW), { answer: ANSWER })
  },
  'a request that fails keeps no key, and of equal ones at the same time one is stored': async (t, { store }) => {
    const known = newMessage()
    await store.acceptMessages(acceptRequest({ messages: [known] }))
    await t.rejects(store.acceptMessages(keyedRequest({ messages: [newMessage(), known] })))
    t.same(await store.findIdempotent(entry(), NOW), { kind: 'new' })
    const results = await Promise.all(Array.from({ length: 20 }, () => store.acceptMessages(keyedRequest())))
    t.equal(results.filter(({ kind }) => kind === 'accepted').length, 1)
    t.equal(results.filter(({ kind }) => kind === 'replayed').length, 19)
    t.equal((await store.queueSummary(NOW)).waiting, 2)
  },
  'an answer without messages is kept once, and old ones are forgotten a few at a time': async (t, { store }) => {
    await store.keepAnswer(entry(), ANSWER, NOW)
    await store.keepAnswer(entry({ fingerprint: Buffer.alloc(32, 8) }), { status: 201, body: 'other' }, NOW + 1)
    t.same(await store.findIdempotent(entry(), NOW + 1), { kind: 'replayed', answer: ANSWER, suppressed: [] })
    for (let index = 1; index < 5; index++) await store.keepAnswer(entry({ key: `key ${index}` }), ANSWER, NOW + index)
    const forget = (before: number, limit: number, after = 0) =>
      store.forgetAnswers({ before, now: NOW + DAY, after, limit })
    t.same(await forget(NOW, 9), { removed: 0, next: null })
    const first = await forget(NOW + 4, 2)
    t.match(first, { removed: 2, next: Number })
    t.same(await forget(NOW + 4, 9, first.next ?? 0), { removed: 2, next: null })
    t.same(await forget(NOW + 4, 9), { removed: 0, next: null })
    t.match(await store.findIdempotent(entry({ key: 'key 4' }), NOW + 5), { kind: 'replayed' })
    await store.keepAnswer(entry({ key: 'key 4' }), { status: 202, body: 'anew' }, NOW + 2 * DAY)
    t.match(await store.findIdempotent(entry({ key: 'key 4' }), NOW + 2 * DAY), { answer: { status: 202 } })
  },
}
