/**
 * Posts that never end: their slots come free, their deliveries are tried again, and what they answer at last is
 * ignored.
 */
import t from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import type { GuardedAnswer } from '../../src/network/guarded-request.ts'
import type { Store } from '../../src/store/store.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'
import { startEngine, type EngineHarness } from './engine-harness.ts'

const ORPHAN = "webhook delivery in nobody's hand"
const ANSWERED: GuardedAnswer = { kind: 'answered', status: 200, answer: 'late' }

/** Posts that end when they are told to. */
function hangingPosts(most = Infinity): {
  post: () => Promise<GuardedAnswer> | undefined
  ends: ((answer: GuardedAnswer) => void)[]
} {
  const ends: ((answer: GuardedAnswer) => void)[] = []
  return {
    ends,
    post() {
      if (ends.length >= most) return undefined
      return new Promise((resolve) => void ends.push(resolve))
    },
  }
}

async function orphansCounted({ metrics }: EngineHarness): Promise<Record<string, number>> {
  const { values } = await metrics.orphans.get()
  return Object.fromEntries(values.map(({ labels, value }) => [String(labels.kind), value]))
}

t.test('a post that does not end is a failed attempt, and its delivery is tried again', async (t) => {
  const receiver = await webhookReceiver(200)
  t.teardown(() => receiver.close())
  const { post, ends } = hangingPosts(1)
  const harness = await startEngine(t, { post, concurrency: { total: 1, per_endpoint: 1 } })
  t.same(await orphansCounted(harness), { message: 0, webhook: 0 }, 'both are told from the beginning')
  const endpointId = await harness.addEndpoint(receiver.url)
  await harness.deliver(2)
  await harness.pump('the post is under way', () => ends.length === 1)
  await harness.realClock.advance(MINUTE)
  await harness.settle()
  t.equal(harness.attempts.length, 0, 'it may have begun just before the first look')
  t.equal(receiver.requests.length, 0, 'it holds the only slot')

  await harness.realClock.advance(MINUTE)
  await harness.pump('the other one has the slot', () => receiver.requests.length === 1)
  const warning = harness.lines.find(({ msg }) => msg === ORPHAN)
  t.match(warning, {
    level: 'warn',
    endpoint_id: endpointId,
    delivery_id: /^whd_/,
    event_id: /^evt_/,
    attempt: 1,
    since: new Date(harness.clock.now()).toISOString(),
  })
  const orphan = String(warning?.['delivery_id'])
  t.match(harness.attempts[0], {
    delivery_id: orphan,
    outcome: 'retry',
    status: null,
    error: 'the post did not end',
    attempt: 1,
  })
  t.same(await orphansCounted(harness), { message: 0, webhook: 1 })

  ends[0]?.(ANSWERED)
  await harness.settle()
  t.match(
    await harness.deliveries.find(endpointId, orphan),
    { status: 'pending', attempts: [{ n: 1, error: 'the post did not end' }] },
    'its answer is ignored',
  )
  t.equal(harness.attempts.filter(({ delivery_id: id }) => id === orphan).length, 1)
  await harness.clock.advance((harness.attempts[0]?.next_at ?? 0) - harness.clock.now())
  await harness.finish()
  t.equal(receiver.requests.length, 2)
  t.equal(receiver.requests[1]?.headers['x-service-delivery-id'], orphan)
  t.equal(receiver.requests[1]?.headers['x-service-attempt'], '2')
})

t.test('the late end of a post takes nothing from the post that came after it', async (t) => {
  const { post, ends } = hangingPosts()
  const harness = await startEngine(t, { post })
  await harness.addEndpoint('http://127.0.0.1:9/')
  await harness.deliver()
  await harness.pump('the first post is under way', () => ends.length === 1)
  for (let look = 1; look <= 2; look += 1) await harness.realClock.advance(MINUTE)
  await harness.pump('it was let go', () => harness.attempts.length === 1)
  await harness.settle()
  await harness.clock.advance((harness.attempts[0]?.next_at ?? 0) - harness.clock.now())
  await harness.pump('the second post is under way', () => ends.length === 2)
  ends[0]?.({ kind: 'failed', reason: 'late' })
  await harness.settle()
  t.equal(harness.attempts.length, 1)
  ends[1]?.(ANSWERED)
  await harness.pump('the second one is over', () => harness.attempts.length === 2)
  t.match(harness.attempts[1], { attempt: 2, outcome: 'succeeded' })
  await harness.finish()
})

t.test('a post that throws is a failed attempt', async (t) => {
  const harness = await startEngine(t, { post: () => Promise.reject(new Error('no such thing')) })
  await harness.addEndpoint('http://127.0.0.1:9/')
  await harness.deliver()
  await harness.pump('the attempt is over', () => harness.attempts.length === 1)
  t.match(harness.attempts[0], { outcome: 'retry', status: null, error: 'no such thing' })
  await harness.settle()
})

t.test('a stop does not wait for a post that never ends', async (t) => {
  const { post, ends } = hangingPosts()
  const harness = await startEngine(t, { post })
  await harness.addEndpoint('http://127.0.0.1:9/')
  await harness.deliver()
  await harness.pump('the post is under way', () => ends.length === 1)
  const stopping = harness.engine.stop()
  await harness.settle()
  await harness.realClock.advance(20 * SECOND - 1)
  await harness.settle()
  t.equal(harness.attempts.length, 0)
  await harness.realClock.advance(1)
  await stopping
  t.match(harness.attempts, [{ outcome: 'retry', error: 'the post did not end' }])
  t.equal(await harness.store.earliestWebhookDueAt(), harness.attempts[0]?.next_at, 'it is recorded')
})

for (const verb of ['claimWebhooks', 'recordWebhookResults'] as const) {
  t.test(`a stop does not wait for ever for a store that does not answer ${verb}`, async (t) => {
    const receiver = await webhookReceiver(200)
    t.teardown(() => receiver.close())
    const { promise: noAnswer, reject: fail } = Promise.withResolvers<never>()
    let asked = 0
    let isAway = false
    const wrapStore = (store: Store): Store => ({
      ...store,
      [verb](request: never) {
        asked += 1
        return isAway ? noAnswer : store[verb](request)
      },
    })
    const harness = await startEngine(t, { wrapStore })
    await harness.addEndpoint(receiver.url)
    await harness.settle()
    asked = 0
    isAway = true
    await harness.deliver()
    await harness.pump('it was asked', () => asked === 1)
    let isStopped = false
    const stopping = harness.engine.stop().then(() => (isStopped = true))
    await harness.realClock.advance(20 * SECOND - 1)
    await harness.settle()
    t.notOk(isStopped)
    await harness.realClock.advance(1)
    await stopping
    isAway = false
    fail(new Error('the test is over'))
  })
}

t.test('what came due while the clock leapt is found within a minute', async (t) => {
  const receiver = await webhookReceiver(500, 200)
  t.teardown(() => receiver.close())
  const harness = await startEngine(t)
  await harness.addEndpoint(receiver.url)
  await harness.deliver()
  await harness.pump('it has failed once', () => harness.attempts.length === 1)
  await harness.settle()
  harness.clock.set(harness.clock.now() + 2 * MINUTE)
  await harness.settle()
  t.equal(receiver.requests.length, 1, 'the timer knows nothing of it')
  await harness.realClock.advance(MINUTE)
  await harness.pump('the retry has arrived', () => receiver.requests.length === 2)
  await harness.finish()
})
