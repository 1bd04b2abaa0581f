/**
 * What customers do with endpoints and deliveries: look, change, disable, replay, rotate, remove, try out. Real posts,
 * a real store, a clock moved by hand.
 */
import { createHmac } from 'node:crypto'
import t, { type Test } from 'tap'
import { EVERYTHING } from '../../src/mail/reach.ts'
import { DAY, MINUTE, SECOND } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { INCLUDED_FIELDS } from '../../src/store/records/webhook-records.ts'
import { sealSecret } from '../../src/webhooks/endpoint-secret.ts'
import { webhookEndpoint } from '../store/store-samples.ts'
import { until } from '../support/until.ts'
import {
  webhookReceiver,
  type ReceivedRequest,
  type ReceiverAnswer,
  type WebhookReceiver,
} from '../support/webhook-receiver.ts'
import { SECRET, startEngine, type EngineHarness } from './engine-harness.ts'

const ALL = { state: null, kind: null, messageId: null, limit: 100, after: null }
const DEAD_AND_ALL = { since: null, until: null, status: null, events: null }

async function receiverFor(t: Test, ...answers: ReceiverAnswer[]): Promise<WebhookReceiver> {
  const receiver = await webhookReceiver(...answers)
  t.teardown(() => receiver.close())
  return receiver
}

const hmac = (body: Buffer | string, secret: string): string => createHmac('sha256', secret).update(body).digest('hex')
const bodyOf = (request: ReceivedRequest | undefined): { data: Record<string, unknown> } =>
  JSON.parse(request?.body.toString() ?? '{}') as { data: Record<string, unknown> }
const idsOf = (receiver: WebhookReceiver, name: string): unknown[] =>
  receiver.requests.map(({ headers }) => headers[name])

async function codeOf(call: Promise<unknown>): Promise<string> {
  const thrown: unknown = await call.then(
    () => 'fulfilled',
    (error: unknown) => error,
  )
  return thrown instanceof ServiceError ? thrown.code : String(thrown)
}

/** Lets deliveries fail through all their retries until so many more are dead letters. */
async function bury(harness: EngineHarness, count: number): Promise<void> {
  const { clock, store, posts } = harness
  const buried = (): number => harness.attempts.filter(({ outcome }) => outcome === 'dead-letter').length
  const target = buried() + count
  await until(`${count} more dead letters`, async () => {
    await clock.advance(0)
    if (buried() === target) return true
    const dueAt = (await store.earliestWebhookDueAt()) ?? clock.now()
    if (posts.length === harness.attempts.length) await clock.advance(Math.max(0, dueAt - clock.now()))
    return false
  })
  await harness.settle()
}

t.test('a delivery is shown with its body and every attempt', async (t) => {
  const receiver = await receiverFor(t, 500, 200)
  const harness = await startEngine(t)
  const id = await harness.addEndpoint(receiver.url)
  const [messageId = ''] = await harness.deliver()
  await harness.pump('the first attempt is over', () => harness.attempts.length === 1)
  await harness.settle()
  t.match(await harness.endpoints.find(id, EVERYTHING), { pending: 1, consecutive_failures: 1, last_success_at: null })
  t.match((await harness.endpoints.find(id, EVERYTHING)).last_failure_at, harness.clock.now() / SECOND)
  await harness.clock.advance(MINUTE * 1.02)
  await harness.pump('it succeeds', () => harness.attempts.length === 2)
  await harness.settle()
  const {
    deliveries: [shown],
  } = await harness.deliveries.list({ ...ALL, endpointId: id })
  t.match(shown, {
    webhook_id: id,
    message_id: messageId,
    event: 'email.delivered',
    status: 'succeeded',
    attempts: 2,
    next_attempt_at: null,
    event_id: String(receiver.requests[0]?.headers['x-service-event-id']),
  })
  const detail = await harness.deliveries.find(id, shown?.id ?? '')
  t.equal(detail.body, receiver.requests[1]?.body.toString())
  t.match(detail.attempts, [
    { n: 1, status: 500, error: 'answered 500; only 200 counts', answer: 'thank you' },
    { n: 2, status: 200, error: null, answer: 'thank you' },
  ])
  t.match(await harness.endpoints.find(id, EVERYTHING), { pending: 0, consecutive_failures: 0, dead_letters: 0 })
  t.equal((await harness.endpoints.find(id, EVERYTHING)).last_success_at, Math.floor(harness.clock.now() / SECOND))
})

t.test('deliveries are found by status, kind and message, page by page', async (t) => {
  const receiver = await receiverFor(t)
  const harness = await startEngine(t)
  const id = await harness.addEndpoint(receiver.url)
  const messageIds = await harness.deliver(5)
  await harness.finish()
  const list = (filter: object): ReturnType<typeof harness.deliveries.list> =>
    harness.deliveries.list({ ...ALL, endpointId: id, ...filter })
  t.equal((await list({ state: 'succeeded' })).deliveries.length, 5)
  t.equal((await list({ state: 'failed' })).deliveries.length, 0)
  t.equal((await list({ kind: 'email.bounced' })).deliveries.length, 0)
  t.same(
    (await list({ messageId: messageIds[3] })).deliveries.map((each) => each.message_id),
    [messageIds[3]],
  )
  t.same((await list({ messageId: 'nonsense' })).deliveries, [])
  for (const filter of [{}, { state: 'succeeded' }]) {
    const seen: string[] = []
    let after: string | null = null
    do {
      const page: Awaited<ReturnType<typeof list>> = await list({ ...filter, limit: 2, after })
      seen.push(...page.deliveries.map((each) => each.id))
      after = page.next
    } while (after !== null)
    t.equal(seen.length, 5)
    t.same(seen, seen.toSorted().toReversed(), 'newest first')
  }
  t.equal(await codeOf(list({ after: 'nonsense' })), 'invalid_request')
  t.equal(await codeOf(list({ endpointId: 'wh_x' })), 'not_found')
  t.equal(await codeOf(harness.deliveries.find(id, 'whd_x')), 'not_found')
})

t.test('a disabled endpoint gets nothing; its events are kept and replayed once it is enabled', async (t) => {
  const receiver = await receiverFor(t)
  const harness = await startEngine(t)
  const id = await harness.addEndpoint(receiver.url)
  const other = await harness.addEndpoint(receiver.url)
  await harness.endpoints.remove(other)
  t.match(await harness.endpoints.update(id, { status: 'disabled' }), { status: 'disabled', disabled_reason: 'manual' })
  await harness.deliver(3)
  await harness.settle()
  t.equal(receiver.requests.length, 0)
  const { deliveries } = await harness.deliveries.list({ ...ALL, endpointId: id, state: 'skipped' })
  t.equal(deliveries.length, 3)
  t.equal(await codeOf(harness.deliveries.replayRange(id, { ...DEAD_AND_ALL, status: 'skipped' })), 'conflict')
  t.match(await harness.endpoints.update(id, { status: 'enabled' }), { status: 'enabled', disabled_reason: null })
  t.equal(await harness.deliveries.replayRange(id, DEAD_AND_ALL), 0, 'no dead letters')
  t.equal(await harness.deliveries.replayRange(id, { ...DEAD_AND_ALL, status: 'skipped', events: ['email.opened'] }), 0)
  t.equal(await harness.deliveries.replayRange(id, { ...DEAD_AND_ALL, status: 'skipped', until: 1 }), 0)
  await harness.clock.advance(SECOND)
  t.equal(await harness.deliveries.replayRange(id, { ...DEAD_AND_ALL, status: 'skipped' }), 3)
  t.equal(await harness.deliveries.replayRange(id, { ...DEAD_AND_ALL, status: 'skipped' }), 0, 'not a second time')
  await harness.pump('all arrive', () => receiver.requests.length === 3)
  await harness.finish()
  t.same(idsOf(receiver, 'x-service-event-id').toSorted(), deliveries.map((each) => each.event_id).toSorted())
  t.equal(harness.toldAgain.length, 3)
})

t.test('dead letters turn a failing endpoint off after five days; enabling starts anew', async (t) => {
  const receiver = await receiverFor(t, 503)
  const harness = await startEngine(t, { disableAfter: 5 * DAY, concurrency: { total: 100, per_endpoint: 20 } })
  const id = await harness.addEndpoint(receiver.url)
  await harness.deliver(9)
  await bury(harness, 9)
  await harness.clock.advance(5 * DAY)
  t.match(
    await harness.endpoints.find(id, EVERYTHING),
    { status: 'enabled', dead_letters: 9, pending: 0 },
    'nine are not enough',
  )
  await harness.deliver()
  await bury(harness, 1)
  t.match(await harness.endpoints.find(id, EVERYTHING), {
    status: 'disabled',
    disabled_reason: 'failing',
    dead_letters: 10,
    consecutive_failures: 60,
  })
  t.match(
    harness.lines.filter(({ msg }) => msg === 'webhook endpoint disabled'),
    [{ endpoint_id: id, level: 'warn' }],
  )
  await harness.deliver()
  t.equal((await harness.deliveries.list({ ...ALL, endpointId: id, state: 'skipped' })).deliveries.length, 1)

  receiver.answerWith(200)
  t.match(await harness.endpoints.update(id, { status: 'enabled' }), {
    status: 'enabled',
    disabled_reason: null,
    dead_letters: 0,
    consecutive_failures: 0,
  })
  const before = receiver.requests.length
  t.equal(await harness.deliveries.replayRange(id, { ...DEAD_AND_ALL, status: 'all' }), 11)
  await harness.pump('dead letters and skipped ones arrive', () => receiver.requests.length === before + 11)
  await harness.finish()
  const replayed = receiver.requests.slice(before).map(({ headers }) => headers['x-service-event-id'])
  t.equal(new Set(replayed).size, 11)
  t.equal(await harness.deliveries.replayRange(id, DEAD_AND_ALL), 0, 'they got through: no dead letters any more')
})

t.test('ten dead letters within five days, or a success between, turn nothing off', async (t) => {
  const receiver = await receiverFor(t, 503)
  const harness = await startEngine(t, { disableAfter: 5 * DAY, concurrency: { total: 100, per_endpoint: 20 } })
  const id = await harness.addEndpoint(receiver.url)
  await harness.deliver(12)
  await bury(harness, 12)
  t.match(await harness.endpoints.find(id, EVERYTHING), { status: 'enabled', dead_letters: 12 }, 'a day has passed')
  await harness.clock.advance(5 * DAY)
  receiver.answerWith(200)
  await harness.deliver()
  await harness.finish()
  receiver.answerWith(503)
  await harness.deliver()
  await bury(harness, 1)
  t.match(await harness.endpoints.find(id, EVERYTHING), { status: 'enabled', dead_letters: 13 })
})

t.test('a replay is a new delivery of the same bytes, behind what is due', async (t) => {
  const receiver = await receiverFor(t)
  const harness = await startEngine(t, { concurrency: { total: 1, per_endpoint: 1 } })
  const id = await harness.addEndpoint(receiver.url)
  await harness.deliver(4)
  await harness.finish()
  await harness.clock.advance(SECOND)
  const first = receiver.requests[0]
  const replayed = await harness.deliveries.replay(id, String(first?.headers['x-service-delivery-id']))
  await harness.finish()
  const again = receiver.requests[4]
  t.same(again?.body, first?.body)
  t.equal(again?.headers['x-service-signature'], first?.headers['x-service-signature'])
  t.equal(again?.headers['x-service-event-id'], first?.headers['x-service-event-id'])
  t.equal(again?.headers['x-service-delivery-id'], replayed.id)
  t.not(replayed.id, first?.headers['x-service-delivery-id'])
  t.equal(again?.headers['x-service-attempt'], '1')

  await harness.clock.advance(SECOND)
  const { promise: behind, resolve: free } = Promise.withResolvers<void>()
  receiver.answerWith({ status: 200, behind }, 200)
  await harness.deliver()
  await harness.pump('the only slot is taken', () => harness.posts.length === 6)
  t.equal(await harness.deliveries.replayRange(id, { ...DEAD_AND_ALL, status: 'all' }), 4)
  await harness.deliver(2)
  free()
  await harness.finish()
  const events = idsOf(receiver, 'x-service-event-id')
  t.notOk(
    events.slice(6, 8).some((event) => events.slice(0, 4).includes(event)),
    'live events first',
  )
  const { deliveries } = await harness.deliveries.list({ ...ALL, endpointId: id })
  const oldestFirst = deliveries
    .toReversed()
    .slice(0, 4)
    .map((each) => each.event_id)
  t.same(events.slice(8).toSorted(), oldestFirst.toSorted(), 'then the replayed ones')
  t.equal(await codeOf(harness.deliveries.replay(id, 'whd_x')), 'not_found')
})

t.test('during a rotation the old secret signs, then the new one alone', async (t) => {
  const receiver = await receiverFor(t)
  const harness = await startEngine(t)
  const id = await harness.addEndpoint(receiver.url)
  const { secret, switchAt } = await harness.endpoints.rotateSecret(id, { secret: null, graceSeconds: null })
  t.match(secret, /^whsec_[A-Za-z0-9_-]{43}$/)
  t.equal(switchAt, harness.clock.now() + DAY)
  t.equal(await codeOf(harness.endpoints.rotateSecret(id, { secret: 'x', graceSeconds: 0 })), 'conflict')
  const next = secret ?? ''
  const latest = async (): Promise<ReceivedRequest> => {
    await harness.deliver()
    await harness.finish()
    return receiver.requests.at(-1) as ReceivedRequest
  }
  const signatures = ({ headers, body }: ReceivedRequest): Record<string, boolean> => {
    const timestamp = String(headers['x-service-timestamp'])
    const v2 = (by: string): boolean =>
      headers['x-service-signature-v2'] === `t=${timestamp},v1=${hmac(`${timestamp}.${body.toString()}`, by)}`
    return {
      old: headers['x-service-signature'] === hmac(body, SECRET) && v2(SECRET),
      new: headers['x-service-signature'] === hmac(body, next) && v2(next),
      next: headers['x-service-signature-next'] === hmac(body, next),
      none: headers['x-service-signature-next'] === undefined,
    }
  }
  t.same(signatures(await latest()), { old: true, new: false, next: true, none: false })
  await harness.clock.advance(DAY - 1)
  t.same(signatures(await latest()), { old: true, new: false, next: true, none: false })
  await harness.clock.advance(1)
  t.same(signatures(await latest()), { old: false, new: true, next: false, none: true })
  const at = harness.clock.now()
  await harness.store.pruneWebhooks({ now: at, succeededBefore: 0, failedBefore: 0, limit: 10 })
  t.same(signatures(await latest()), { old: false, new: true, next: false, none: true }, 'the old one is gone')
  const given = await harness.endpoints.rotateSecret(id, { secret: 'short', graceSeconds: 0 })
  t.match(given, { secret: null, switchAt: harness.clock.now(), warnings: [/shorter than 16/] })
  const { headers, body } = await latest()
  t.equal(headers['x-service-signature'], hmac(body, 'short'), 'without grace at once')
  t.equal(await codeOf(harness.endpoints.rotateSecret(id, { secret: '', graceSeconds: 0 })), 'invalid_request')
  t.equal(await codeOf(harness.endpoints.rotateSecret(id, { secret: null, graceSeconds: 604_801 })), 'invalid_request')
  t.equal(await codeOf(harness.endpoints.rotateSecret('wh_x', { secret: null, graceSeconds: null })), 'not_found')
})

t.test(
  'where the old secret does not open, as after a restore without the key, a rotation takes effect at once',
  async (t) => {
    const receiver = await receiverFor(t)
    const harness = await startEngine(t)
    const { clock, store, endpoints } = harness
    const id = newIdentifier('wh', clock.now())
    const sealedSecret = sealSecret(createKeyRing(Buffer.alloc(32, 6)), id, SECRET)
    await store.addWebhookEndpoint(webhookEndpoint({ id, url: receiver.url, sealedSecret }))
    // It was under way when the backup was made.
    const rotation = { sealedSecret, switchAt: clock.now() + DAY, now: clock.now() }
    t.same(await store.rotateWebhookSecret(id, rotation), { kind: 'rotated' })
    await harness.deliver()
    await harness.pump('it cannot be signed', () => harness.attempts.length === 1)
    t.match(harness.attempts, [{ status: null, error: /cannot be opened/ }])
    const { secret, switchAt } = await endpoints.rotateSecret(id, { secret: null, graceSeconds: null })
    t.equal(switchAt, clock.now())
    // The failed one is noted behind its line of the log: when it is due again is not known before.
    await until('it is signed', async () => {
      await clock.advance(MINUTE)
      return receiver.requests.length > 0
    })
    await harness.finish()
    t.equal(receiver.requests[0]?.headers['x-service-signature'], hmac(receiver.requests[0]?.body ?? '', secret ?? ''))
    t.equal(await codeOf(endpoints.rotateSecret(id, { secret: null, graceSeconds: null })), 'fulfilled')
    t.equal(await codeOf(endpoints.rotateSecret(id, { secret: null, graceSeconds: null })), 'conflict', 'as ever')
  },
)

t.test('an endpoint gets the further fields it asked for, and others the standard bytes', async (t) => {
  const [plain, tags, every] = [await receiverFor(t), await receiverFor(t), await receiverFor(t)]
  const harness = await startEngine(t)
  await harness.addEndpoint(plain.url)
  await harness.addEndpoint(tags.url, SECRET, ['tags'])
  await harness.addEndpoint(every.url, SECRET, [...INCLUDED_FIELDS])
  await harness.deliver(1, { tags: { order: '1042' }, metadata: { note: 'Grüße' } })
  await harness.finish()
  t.same(Object.keys(bodyOf(plain.requests[0]).data), ['message_id', 'recipient', 'isp'])
  t.same(bodyOf(tags.requests[0]).data, { ...bodyOf(plain.requests[0]).data, tags: { order: '1042' } })
  t.same(bodyOf(every.requests[0]).data, {
    ...bodyOf(plain.requests[0]).data,
    tags: { order: '1042' },
    metadata: { note: 'Grüße' },
    ip: '127.0.0.11',
    smtp_response: '250 2.0.0 OK',
  })
  for (const {
    requests: [request],
  } of [plain, tags, every]) {
    t.equal(request?.headers['x-service-signature'], hmac(request?.body ?? '', SECRET))
  }
})

t.test('a removed endpoint gets nothing more, and its rows go', async (t) => {
  const receiver = await receiverFor(t, 'hang')
  const harness = await startEngine(t, { timeoutMilliseconds: SECOND / 10 })
  const id = await harness.addEndpoint(receiver.url)
  await harness.deliver(6)
  await harness.pump('some are under way', () => receiver.requests.length === 4)
  await harness.endpoints.remove(id)
  t.equal(await codeOf(harness.endpoints.find(id, EVERYTHING)), 'not_found')
  t.equal(await codeOf(harness.endpoints.remove(id)), 'not_found')
  await harness.pump('they end', () => harness.attempts.length === 4)
  await harness.deliver()
  await harness.settle()
  await harness.clock.advance(2 * DAY)
  await harness.settle()
  t.equal(receiver.requests.length, 4)
  const prune = (): Promise<number> =>
    harness.store.pruneWebhooks({ now: harness.clock.now(), succeededBefore: 0, failedBefore: 0, limit: 4 })
  t.same([await prune(), await prune(), await prune()], [4, 2, 0], 'in parts')
  t.same(await harness.endpoints.list(EVERYTHING, 10, null), { endpoints: [], next: null })
})

t.test('what ended long enough ago is forgotten', async (t) => {
  const receiver = await receiverFor(t, 200, 500)
  const harness = await startEngine(t, { concurrency: { total: 100, per_endpoint: 20 } })
  const id = await harness.addEndpoint(receiver.url)
  await harness.deliver()
  await harness.finish()
  await harness.clock.advance(1)
  await harness.deliver(2)
  await bury(harness, 2)
  await harness.deliver()
  await harness.pump('one waits', () => harness.attempts.length === 14)
  await harness.settle()
  const statuses = async (): Promise<string[]> =>
    (await harness.deliveries.list({ ...ALL, endpointId: id })).deliveries.map(({ status }) => status)
  const prune = (succeededBefore: number, failedBefore: number): Promise<number> =>
    harness.store.pruneWebhooks({ now: harness.clock.now(), succeededBefore, failedBefore, limit: 100 })
  const now = harness.clock.now()
  t.equal(await prune(now - 2 * DAY, now - DAY), 0)
  t.same(await statuses(), ['pending', 'failed', 'failed', 'succeeded'])
  t.equal(await prune(now - DAY, now - DAY), 1, 'the success of a day ago')
  t.equal(await prune(now, now + 1), 2, 'dead letters')
  t.same(await statuses(), ['pending'])
})

t.test('a trial posts one signed sample of each kind, and nothing remembers it', async (t) => {
  const receiver = await receiverFor(t, 200, 200, 404, 'close')
  const harness = await startEngine(t)
  const id = await harness.addEndpoint(receiver.url)
  const { duration_ms: took, ...first } = await harness.tryEndpoint(id, null)
  t.same(first, { ok: true, status: 200, error: null, answer: 'thank you' })
  t.ok(took >= 0)
  t.match(await harness.tryEndpoint(id, 'email.bounced'), { ok: true })
  const refused = { ok: false, status: 404, error: 'answered 404; only 200 counts' }
  t.match(await harness.tryEndpoint(id, 'email.opened'), refused)
  t.match(await harness.tryEndpoint(id, 'email.clicked'), { ok: false, status: null, error: String })
  const [test, bounce] = receiver.requests
  t.match(JSON.parse(test?.body.toString() ?? ''), { event: 'webhook.test', timestamp: harness.clock.now() / SECOND })
  const fields = ['message_id', 'recipient', 'bounce_type', 'bounce_code', 'bounce_description']
  t.same(Object.keys(bodyOf(bounce).data), fields)
  t.equal(bounce?.headers['x-service-signature'], hmac(bounce?.body ?? '', SECRET))
  t.match(bounce?.headers['x-service-delivery-id'], /^whd_/)
  t.equal(await codeOf(harness.tryEndpoint(id, 'email.sent')), 'invalid_request')
  t.equal(await codeOf(harness.tryEndpoint('wh_x', null)), 'not_found')
  t.same((await harness.deliveries.list({ ...ALL, endpointId: id })).deliveries, [])
  t.match(await harness.endpoints.find(id, EVERYTHING), {
    last_success_at: null,
    last_failure_at: null,
    consecutive_failures: 0,
  })
  t.same(harness.toldAgain, ['webhook.test', 'email.bounced', 'email.opened', 'email.clicked'])
  receiver.answerWith('hang')
  const slow = Array.from({ length: 4 }, () => harness.tryEndpoint(id, null))
  await harness.pump('four are under way', () => receiver.requests.length === 8)
  t.equal(await codeOf(harness.tryEndpoint(id, null)), 'rate_limited')
  await receiver.close()
  await Promise.all(slow)
})
