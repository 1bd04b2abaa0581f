/**
 * Fairness (delivery/README.md "Fairness"): a provider that blocks, a batch that is large, or mail that comes back,
 * delays nobody else.
 *
 * The engine with a real store, real DNS and real SMTP. At the small size order and counts at the receivers decide, so
 * that no slow machine fails a test; the full size measures time as well, as a ratio within one run.
 */
import t, { type Test } from 'tap'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import type { Stream } from '../../src/mail/message.ts'
import { startEngine, type Engine, type EngineOptions } from '../delivery/start-engine.ts'
import { leapingClock } from '../support/leaping-clock.ts'
import {
  startOrderingSink,
  type Arrival,
  type OrderingSink,
  type OrderingSinkOptions,
} from '../support/ordering-sink.ts'
import { until } from '../support/until.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
/** Nothing but turns decides. */
const FAST = { rate: '100000/second', connection_rate: '1000/second' }
const ZONE = { 'other.test': { MX: ['10 mx.other.test'] }, 'mx.other.test': { A: ['127.0.0.3'] } }
/** One call of the API takes no more. */
const PER_ACCEPT = 1_000
const LONG = 10 * MINUTE
const BLOCK = '554 5.7.1 blocked using a list'
/** What one path may have in hand (delivery/README.md "From the table to the wire"). */
const MOST_IN_HAND = 200

async function sink(t: Test, options: OrderingSinkOptions = {}): Promise<OrderingSink> {
  const server = await startOrderingSink(options)
  t.teardown(() => server.close())
  return server
}

function engineFor(t: Test, server: OrderingSink, options: Partial<EngineOptions> = {}): Promise<Engine> {
  return startEngine(t, { port: server.port, zone: ZONE, providers: { default: FAST }, ...options })
}

function noMissedWake(t: Test, { log }: Engine): void {
  t.same(
    log.filter(({ msg }) => msg === 'scheduler.missed_wake'),
    [],
    'nothing was found by the net',
  )
}

interface Batch {
  count: number
  domain?: string
  stream?: Stream
}

async function queue(engine: Engine, recipient: string, { count, ...rest }: Batch): Promise<void> {
  for (let left = count; left > 0; left -= PER_ACCEPT) {
    await engine.accept(recipient, { ...rest, count: Math.min(left, PER_ACCEPT) })
  }
}

function countBy<Item>(items: readonly Item[], nameOf: (item: Item) => string): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const item of items) counts[nameOf(item)] = (counts[nameOf(item)] ?? 0) + 1
  return counts
}

const median = (numbers: readonly number[]): number =>
  numbers.toSorted((left, right) => left - right)[Math.floor(numbers.length / 2)] ?? 0

/** How the provider of a large queue can be of no use. */
const TROUBLES: { name: string; options: OrderingSinkOptions }[] = [
  { name: 'blocks the IP', options: { onCommand: (verb) => (verb === 'RCPT' ? BLOCK : undefined) } },
  { name: 'answers 421 to all', options: { onCommand: (verb) => (verb === 'MAIL' ? '421 4.3.2 not now' : undefined) } },
  { name: 'never answers the dot', options: { answerDelayMilliseconds: LONG } },
]

for (const { name, options } of TROUBLES) {
  t.test(`a provider that ${name}, with a large queue, delays nobody else`, async (t) => {
    const large = IS_FULL ? 100_000 : 2_000
    const good = await sink(t, { address: '127.0.0.3' })
    const bad = await sink(t, { ...options, port: good.port })
    const engine = await engineFor(t, good, { domains: ['beta.test'] })
    const medianOf = async (count: number): Promise<number> => {
      const before = good.arrivals.length
      const begun = performance.now()
      await queue(engine, 'x@other.test', { count, domain: 'beta.test' })
      await until('all have arrived', () => good.arrivals.length === before + count, LONG)
      return median(good.arrivals.slice(before).map(({ at }) => at - begun))
    }
    const alone = IS_FULL ? [await medianOf(200), await medianOf(200), await medianOf(200)] : []
    await queue(engine, 'x@dest.test', { count: large, stream: 'bulk' })
    const beside = await medianOf(200)
    t.equal(bad.arrivals.length, 0)
    await until('none is lost, and few are in hand', async () => {
      const { sending, waiting } = await engine.store.queueSummary(Date.now())
      return sending + waiting === large && sending <= MOST_IN_HAND
    })
    if (IS_FULL) {
      const quiet = median(alone)
      t.comment(`median of 200: ${Math.round(beside)} ms beside, ${Math.round(quiet)} ms on an empty system`)
      t.ok(beside <= 2 * quiet, 'at most twice the time it takes on an empty system')
    }
    noMissedWake(t, engine)
  })
}

t.test('a transactional message waits for one turn of the connections that bulk mail has', async (t) => {
  const [large, connections] = [IS_FULL ? 1_000_000 : 3_000, 3]
  const server = await sink(t)
  const engine = await engineFor(t, server, { providers: { default: { ...FAST, connections } } })
  await queue(engine, 'bulk@dest.test', { count: large, stream: 'bulk' })
  for (let turn = 1; turn <= 3; turn++) {
    await until('bulk mail flows', () => server.arrivals.length >= turn * 50)
    server.hold()
    await until('a connection waits for its answer', () => server.held() > 0)
    const [id] = await engine.accept('urgent@dest.test')
    await until('it is claimed', async () => (await engine.message(id)).state === 'sending')
    // From the claim to the thread it is a few turns of the event loop, and perhaps a question to the store.
    for (let turns = 0; turns < 20; turns++) await Promise.all([engine.dispatcher.ticks(), engine.message(id)])
    const before = server.arrivals.length
    server.release()
    await engine.untilState(id, 'delivered')
    const between = server.arrivals.slice(before).findIndex(({ recipient }) => recipient === 'urgent@dest.test')
    // Each connection has one message under way and the next behind its dot; the others may take one more meanwhile.
    t.ok(between < 3 * connections, `${between} bulk messages arrive before it`)
  }
  t.ok(server.arrivals.length < large / 2, 'the queue was long all the time')
  noMissedWake(t, engine)
})

t.test('thousands of retries leave at least half of the turns to new mail', async (t) => {
  const count = IS_FULL ? 5_000 : 150
  let isRefusing = true
  const server = await sink(t, { refuse: () => (isRefusing ? '450 4.2.0 later' : undefined) })
  const clock = leapingClock()
  const engine = await engineFor(t, server, { clock })
  await queue(engine, 'old@dest.test', { count, stream: 'bulk' })
  await until(
    'all were tried',
    async () => {
      const { waiting, oldestDueAt } = await engine.store.queueSummary(clock.now())
      return waiting === count && oldestDueAt === null
    },
    LONG,
  )
  isRefusing = false
  const sendAt = clock.now() + HOUR
  await engine.accept('new@dest.test', { count, stream: 'bulk', sendAt })
  clock.leap(HOUR + MINUTE)
  await until('all have arrived', () => server.arrivals.length === 2 * count, LONG)
  const last = server.arrivals.findLastIndex(({ recipient }) => recipient === 'new@dest.test')
  const retries = server.arrivals.slice(0, last).filter(({ recipient }) => recipient === 'old@dest.test').length
  t.ok(retries <= last / 2 + 10, `${retries} of ${last} turns were retries'`)
  noMissedWake(t, engine)
})

t.test('fifty tenants share a destination, whatever the size of their batches', async (t) => {
  const domains = Array.from({ length: 50 }, (_, index) => `tenant${index}.test`)
  const server = await sink(t)
  let mayDeliver = true
  const engine = await engineFor(t, server, { domains, mayDeliver: () => mayDeliver })
  await isRouted(engine)
  mayDeliver = false
  const smallest = IS_FULL ? 100 : 10
  const sizeOf = (index: number): number => smallest * (1 + (index % 5))
  for (const [index, domain] of domains.entries()) {
    await queue(engine, 'x@dest.test', { count: sizeOf(index), domain, stream: 'bulk' })
  }
  mayDeliver = true
  engine.dispatcher.resume()
  const shared = (smallest * domains.length * 3) / 4
  await until('enough have arrived', () => server.arrivals.length >= shared, LONG)
  const counts = Object.values(countBy(server.arrivals.slice(1, shared), ({ domain }: Arrival) => domain))
  t.equal(counts.length, domains.length)
  t.ok(Math.max(...counts) - Math.min(...counts) <= 3, `${Math.min(...counts)} to ${Math.max(...counts)} messages each`)
  noMissedWake(t, engine)
})

t.test('of five turns four are transactional while both streams wait', async (t) => {
  const server = await sink(t)
  let mayDeliver = true
  const engine = await engineFor(t, server, { mayDeliver: () => mayDeliver })
  await isRouted(engine)
  mayDeliver = false
  const count = IS_FULL ? 10_000 : 200
  await queue(engine, 'bulk@dest.test', { count, stream: 'bulk' })
  await queue(engine, 'urgent@dest.test', { count })
  mayDeliver = true
  engine.dispatcher.resume()
  await until('the transactional mail is out', () => countOf(server, 'urgent@dest.test') === count, LONG)
  // The last ones are left out: bulk mail takes all turns while they are on the wire.
  const counted = count * 0.8
  let [urgent, bulk] = [0, 0]
  for (const { recipient } of server.arrivals) {
    if (recipient === 'urgent@dest.test') urgent += 1
    else if (recipient === 'bulk@dest.test') bulk += 1
    if (urgent === counted) break
  }
  t.ok(Math.abs(bulk - counted / 4) <= 10, `${bulk} bulk messages beside ${counted}`)
  noMissedWake(t, engine)
})

/** What comes later has its place among the queue keys at once. */
async function isRouted(engine: Engine): Promise<void> {
  const [id] = await engine.accept('first@dest.test')
  await engine.untilState(id, 'delivered')
}

const countOf = ({ arrivals }: OrderingSink, wanted: string): number =>
  arrivals.filter(({ recipient }) => recipient === wanted).length
