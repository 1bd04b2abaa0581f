/**
 * Webhook deliveries from the store to real endpoints: signatures, delays, dead letters, slow endpoints, a store that
 * fails.
 */
import { createHmac } from 'node:crypto'
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import type { Store } from '../../src/store/store.ts'
import {
  webhookReceiver,
  type ReceiverAnswer,
  type ReceivedRequest,
  type WebhookReceiver,
} from '../support/webhook-receiver.ts'
import { SECRET, startEngine, type EngineHarness } from './engine-harness.ts'

const DELAYS = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 24 * HOUR]

const hmac = (text: string | Buffer): string => createHmac('sha256', SECRET).update(text).digest('hex')
async function receiverFor(t: Test, ...answers: ReceiverAnswer[]): Promise<WebhookReceiver> {
  const receiver = await webhookReceiver(...answers)
  t.teardown(() => receiver.close())
  return receiver
}

/** The post of one event is under way when it resolves. */
async function startPosting(t: Test, receiver: WebhookReceiver): Promise<EngineHarness> {
  const harness = await startEngine(t)
  await harness.addEndpoint(receiver.url)
  await harness.deliver()
  await harness.pump('the post is under way', () => receiver.requests.length === 1)
  return harness
}

const header = (request: ReceivedRequest | undefined, name: string): string => String(request?.headers[name])

t.test('an event arrives as specified: bytes, signature, headers', async (t) => {
  const receiver = await receiverFor(t)
  const harness = await startEngine(t)
  const endpointId = await harness.addEndpoint(receiver.url)
  await harness.deliver()
  await harness.pump('the attempt is over', () => harness.attempts.length === 1)
  const [request] = receiver.requests
  const body = request?.body.toString('utf8') ?? ''
  const event = JSON.parse(body) as { event: string; timestamp: number; data: Record<string, string> }

  t.equal(request?.method, 'POST')
  t.same(Object.keys(event), ['event', 'timestamp', 'data'])
  t.equal(event.event, 'email.delivered')
  t.same(Object.keys(event.data), ['message_id', 'recipient', 'isp'])
  t.equal(header(request, 'content-type'), 'application/json')
  t.equal(header(request, 'x-service-signature'), hmac(request?.body ?? ''))
  t.match(header(request, 'x-service-event-id'), /^evt_[0-9a-hjkmnp-tv-z]{26}$/)
  t.match(header(request, 'x-service-delivery-id'), /^whd_[0-9a-hjkmnp-tv-z]{26}$/)
  t.equal(header(request, 'x-service-attempt'), '1')
  const timestamp = header(request, 'x-service-timestamp')
  t.equal(timestamp, String(Math.floor(harness.clock.now() / SECOND)))
  t.equal(header(request, 'x-service-signature-v2'), `t=${timestamp},v1=${hmac(`${timestamp}.${body}`)}`)
  t.equal(header(request, 'user-agent'), 'Sternpost/0.0.0')
  t.equal(harness.posts[0]?.timeoutMilliseconds, 10 * SECOND, 'ten seconds in all')
  const { ms, ...line } = harness.attempts[0] ?? { ms: -1 }
  t.ok(ms >= 0)
  t.match(line, {
    endpoint_id: endpointId,
    event_id: header(request, 'x-service-event-id'),
    attempt: 1,
    status: 200,
    delivery_id: header(request, 'x-service-delivery-id'),
    outcome: 'succeeded',
    next_at: null,
    level: 'info',
  })
  await harness.finish()
})

const FAILURES: { answer: ReceiverAnswer; error: string }[] = [
  { answer: 500, error: 'answered 500; only 200 counts' },
  { answer: 204, error: 'answered 204; only 200 counts' },
  { answer: 'hang', error: 'no answer within 0.1 s' },
]
for (const { answer, error } of FAILURES) {
  const what = answer === 'hang' ? 'hangs' : `answers ${String(answer)}`
  t.test(`an endpoint that ${what} gets five retries`, async (t) => {
    const receiver = await receiverFor(t, answer)
    const harness = await startEngine(t, answer === 'hang' ? { timeoutMilliseconds: SECOND / 10 } : {})
    await harness.addEndpoint(receiver.url)
    await harness.deliver()
    for (const [index, delay] of DELAYS.entries()) {
      const number = index + 1
      await harness.pump(`attempt ${number} is over`, () => harness.attempts.length === number)
      const line = harness.attempts.at(-1)
      t.match(line, { attempt: number, outcome: 'retry', error, msg: 'webhook attempt' })
      const waits = (line?.next_at ?? 0) - harness.clock.now()
      t.ok(waits >= delay && waits <= delay * 1.02, `retry ${number} waits ${waits} ms, for ${delay} ms and 2 %`)
      await harness.settle()
      await harness.clock.advance(waits - 1)
      await harness.settle()
      t.equal(receiver.requests.length, number, `retry ${number} is not early`)
      await harness.clock.advance(1)
    }
    await harness.pump('the last attempt is over', () => harness.attempts.length === 6)
    await harness.finish()
    t.match(harness.attempts.at(-1), {
      attempt: 6,
      outcome: 'dead-letter',
      next_at: null,
      msg: 'webhook dead letter',
      level: 'warn',
    })
    await harness.clock.advance(48 * HOUR)
    await harness.settle()
    t.equal(receiver.requests.length, 6, 'a dead letter is left alone')

    const values = (name: string): string[] => receiver.requests.map((request) => header(request, name))
    t.equal(new Set(receiver.requests.map(({ body }) => body.toString('base64'))).size, 1, 'the same bytes each time')
    t.equal(new Set(values('x-service-signature')).size, 1, 'the same signature each time')
    t.equal(values('x-service-signature')[5], hmac(receiver.requests[5]?.body ?? ''))
    t.equal(new Set(values('x-service-event-id')).size, 1)
    t.equal(new Set(values('x-service-delivery-id')).size, 1)
    t.same(values('x-service-attempt'), ['1', '2', '3', '4', '5', '6'])
    const counts = await harness.metrics.webhookDeliveries.get()
    t.same(Object.fromEntries(counts.values.map(({ labels, value }) => [labels['result'], value])), {
      retry: 5,
      'dead-letter': 1,
    })
  })
}

t.test('every other answer than 200 is a failure, and a later 200 ends the retries', async (t) => {
  const receiver = await receiverFor(t, 201, 301, 401, 410, 'close', 200)
  const harness = await startEngine(t)
  await harness.addEndpoint(receiver.url)
  await harness.deliver()
  for (let number = 1; number <= 6; number += 1) {
    await harness.pump(`attempt ${number} is over`, () => harness.attempts.length === number)
    await harness.settle()
    await harness.clock.advance((harness.attempts.at(-1)?.next_at ?? harness.clock.now()) - harness.clock.now())
  }
  t.same(
    harness.attempts.map(({ status }) => status),
    [201, 301, 401, 410, null, 200],
  )
  t.same(
    harness.attempts.map(({ outcome }) => outcome),
    [...Array<string>(5).fill('retry'), 'succeeded'],
  )
})

t.test('a hanging endpoint keeps its four slots and delays nobody else', async (t) => {
  const hanging = await receiverFor(t, 'hang')
  const healthy = await receiverFor(t, 500, 200)
  const harness = await startEngine(t, { concurrency: { total: 6, per_endpoint: 4 } })
  await harness.addEndpoint(hanging.url)
  await harness.addEndpoint(healthy.url)
  await harness.deliver(30)
  await harness.pump('the healthy endpoint has all events', () => healthy.requests.length === 30)
  t.notOk(
    harness.attempts.some(({ status }) => status === null),
    'before the first 10 s of the other one are over',
  )
  t.ok(hanging.requests.length <= 4, 'no more than four at a time')

  // The retry of the one failure: rows of the hanging endpoint are due all the time and must not hide it.
  const retryAt = harness.attempts.find(({ outcome }) => outcome === 'retry')?.next_at ?? 0
  await harness.settle()
  await harness.clock.advance(retryAt - harness.clock.now() - SECOND)
  await harness.settle()
  t.equal(healthy.requests.length, 30, 'not early')
  await harness.clock.advance(SECOND)
  await harness.settle()
  await harness.clock.advance(SECOND)
  await harness.pump('the retry arrives', () => healthy.requests.length === 31)
  t.equal(hanging.requests.length, 4)
  await hanging.close()
})

t.test('an endpoint that answers waits for no time while others hold most of the slots', async (t) => {
  const hanging = await receiverFor(t, 'hang')
  const healthy = await receiverFor(t)
  const harness = await startEngine(t, { concurrency: { total: 10, per_endpoint: 4 } })
  const { setTimeout: later } = globalThis
  // Rounds that a timer brings never come.
  t.intercept(globalThis, 'setTimeout', {
    value: (callback: () => void, ...rest: unknown[]) =>
      callback === harness.engine.wake ? undefined : Reflect.apply(later, globalThis, [callback, ...rest]),
  })
  for (const path of ['/a', '/b']) await harness.addEndpoint(hanging.url + path)
  await harness.addEndpoint(healthy.url)
  await harness.deliver(10)
  await harness.pump('the healthy endpoint has all events', () => healthy.requests.length === 10)
  t.notOk(
    harness.attempts.some(({ status }) => status === null),
    'while the others hang still',
  )
  await hanging.close()
})

t.test('results are kept while the store cannot record, and nothing is claimed meanwhile', async (t) => {
  let failuresLeft = 3
  let claims = 0
  let claimsWhileFailing = 0
  const wrapStore = (store: Store): Store => ({
    ...store,
    claimWebhooks(request) {
      claims += 1
      return store.claimWebhooks(request)
    },
    async recordWebhookResults(request) {
      if (failuresLeft > 0) {
        failuresLeft -= 1
        claimsWhileFailing = claims
        throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' })
      }
      t.equal(claims, claimsWhileFailing, 'no claim before the results are recorded')
      return store.recordWebhookResults(request)
    },
  })
  const receiver = await receiverFor(t)
  const harness = await startEngine(t, { wrapStore })
  await harness.addEndpoint(receiver.url)
  const roundsFailed = (): number => harness.lines.filter(({ msg }) => msg === 'webhook round failed').length
  await harness.deliver()
  for (const left of [2, 1, 0]) {
    await harness.pump(`failure ${3 - left} has happened`, () => failuresLeft === left && roundsFailed() > 0)
    await harness.settle()
    t.equal(failuresLeft, left, 'the next try comes after a second')
    await harness.clock.advance(SECOND)
  }
  await harness.finish()
  t.equal(receiver.requests.length, 1, 'the event was posted once')
  t.equal(roundsFailed(), 1, 'the log says it once')
})

t.test('a process that dies with posts under way loses no event', async (t) => {
  const receiver = await receiverFor(t, 'hang', 200)
  const first = await startPosting(t, receiver)
  // The next process begins its epoch while the row is still leased by the first.
  const { epoch } = await first.store.beginEpoch(first.clock.now(), first.clock.now())
  const claimed = await first.store.claimWebhooks({
    now: first.clock.now(),
    epoch,
    leaseUntil: first.clock.now() + MINUTE,
    limit: 10,
    perEndpoint: 4,
    busy: {},
  })
  t.equal(claimed.length, 1, 'the delivery is due again')
  t.equal(claimed[0]?.body, receiver.requests[0]?.body.toString('utf8'))
  t.equal(claimed[0]?.id, header(receiver.requests[0], 'x-service-delivery-id'))
  await receiver.close()
  await first.pump('the old process gives up', () => first.attempts.length === 1)
  await first.settle()
  t.equal(await first.store.earliestWebhookDueAt(), first.clock.now() + MINUTE, 'its result changes nothing any more')
})

t.test('a clock that leaps beyond the lease does not post a delivery beside itself', async (t) => {
  const receiver = await receiverFor(t, { status: 200, afterMilliseconds: 1_000 })
  const harness = await startPosting(t, receiver)
  await harness.clock.advance(HOUR)
  await harness.settle()
  await harness.finish()
  t.equal(receiver.requests.length, 1)
  t.strictSame(
    harness.attempts.map(({ outcome }) => outcome),
    ['succeeded'],
  )
})

t.test('stop waits for posts under way and records them', async (t) => {
  const receiver = await receiverFor(t, { status: 200, afterMilliseconds: 200 })
  const harness = await startPosting(t, receiver)
  await harness.engine.stop()
  t.equal(harness.attempts.at(-1)?.outcome, 'succeeded')
  t.equal(await harness.store.earliestWebhookDueAt(), null, 'it is recorded')
  await harness.deliver()
  await harness.settle()
  t.equal(receiver.requests.length, 1, 'a stopped engine claims nothing')
})

t.test('a secret sealed with another master key is a failed attempt with a reason', async (t) => {
  const receiver = await receiverFor(t)
  const harness = await startEngine(t, {
    wrapStore: (store) => ({
      ...store,
      claimWebhooks: async (request) =>
        (await store.claimWebhooks(request)).map((delivery) => ({ ...delivery, sealedSecret: Buffer.alloc(40, 1) })),
    }),
  })
  await harness.addEndpoint(receiver.url)
  await harness.deliver()
  await harness.pump('the attempt is over', () => harness.attempts.length === 1)
  t.match(harness.attempts[0], { outcome: 'retry', status: null, error: /cannot be opened with this master key/ })
  t.equal(receiver.requests.length, 0, 'nothing goes out unsigned')
})
