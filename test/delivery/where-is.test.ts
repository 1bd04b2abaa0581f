/**
 * Where a message is that is `sending`, asked of a running engine, and what `explain` makes of it.
 */
import { EVERYTHING } from '../../src/mail/reach.ts'
import type { ExplanationJson } from '../../src/api/message.ts'
import { EventEmitter } from 'node:events'
import type { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND, systemClock, type Clock } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createDeliveryThreads, type DeliveryThreads } from '../../src/delivery/delivery-threads.ts'
import { createWhereIs, type HeldRow } from '../../src/delivery/holders.ts'
import type { PlacedRow } from '../../src/delivery/place/place-messages.ts'
import { serveThread } from '../../src/delivery/session/serve-thread.ts'
import { threadSettings } from '../../src/delivery/thread-settings.ts'
import type { FromThread } from '../../src/delivery/protocol/try-result.ts'
import type { ThreadPlace, ThreadStage, Whereabouts } from '../../src/mail/whereabouts.ts'
import { createExplainMessage } from '../../src/messages/lookup/explain-message.ts'
import type { ClaimedMessage } from '../../src/store/records/claim-records.ts'
import type { StoreLocation } from '../../src/store/store-location.ts'
import { claimMessages } from '../support/claim-messages.ts'
import { manualClock } from '../support/manual-clock.ts'
import { scriptedMx, type ScriptedMx, type ScriptedMxOptions } from '../support/scripted-mx.ts'
import { hostOf } from './path-kit.ts'
import { startEngine, type Engine, type EngineOptions } from './start-engine.ts'

const ANNA = 'anna@dest.test'
const ROAD = { from: '127.0.0.11', to: 'dest.test' }
const SERVER = { host: 'mx.dest.test', address: '127.0.0.2' }
/** Of a new store: the engine's. */
const FIRST_EPOCH = 1
const NO_STORE: StoreLocation = {
  engine: 'sqlite',
  folder: '',
  pageCacheBytes: 0,
  walMaxBytes: 0,
  commitLingerMilliseconds: 0,
  commitMostRows: 0,
}
const ONE_CONNECTION = { providers: { default: { connections: 1 } } }

async function world(
  t: Test,
  mx: ScriptedMxOptions,
  options: Partial<EngineOptions> = {},
): Promise<Engine & { server: ScriptedMx }> {
  const server = await scriptedMx({ address: '127.0.0.2', ...mx })
  t.teardown(() => server.close())
  return { ...(await startEngine(t, { port: server.port, ...options })), server }
}

async function explain(
  { store, dispatcher }: Engine,
  id: string | undefined,
  clock: Clock = systemClock,
): Promise<ExplanationJson> {
  return createExplainMessage({
    store,
    clock,
    domains: { find: async () => null },
    whyWaiting: dispatcher.whyWaiting,
    whereIs: ({ id }) => dispatcher.whereIs(id),
    longestStageMilliseconds: 10 * MINUTE,
    classify: () => ({ category: 'unknown', rule: null, suppress: 'never', inReports: null }),
  })(id ?? '', EVERYTHING)
}

function untilAt(
  engine: Engine,
  id: string | undefined,
  wanted: ThreadStage,
): Promise<Extract<Whereabouts, { kind: 'thread' }>> {
  return engine.until(`it is at ${wanted}`, async () => {
    const where = await engine.dispatcher.whereIs(id ?? '')
    return where?.kind === 'thread' && where.place?.stage === wanted && where
  })
}

t.test('an answer to the final dot that does not come', async (t) => {
  const engine = await world(t, { script: { dot: 'silence' } })
  const [id] = await engine.accept(ANNA)
  const where = await untilAt(engine, id, 'dot')
  t.match(where, { thread: 0, ...ROAD, place: SERVER })
  t.ok((where.place?.milliseconds ?? -1) >= 0 && (where.place?.milliseconds ?? MINUTE) < MINUTE)
  t.match(await explain(engine, id), {
    state: 'sending',
    waiting_for: null,
    advice: ['Nothing to do.'],
    checks: [{ check: 'delivery', status: 'pass', seen: 'delivery thread 0' }],
    summary: new RegExp(
      '^It has been on its way for [\\w ]+: delivery thread 0 sends it from 127\\.0\\.0\\.11 to ' +
        'mx\\.dest\\.test \\[127\\.0\\.0\\.2\\]; the final dot went out [\\w ]+ ago\\.$',
    ),
  })
  await engine.server.close()
  await engine.untilState(id, 'deferred')
  t.equal(await engine.dispatcher.whereIs(id ?? ''), undefined)
})

for (const [stage, script] of [
  ['connect', { banner: 'silence' }],
  ['connect', { ehlo: 'silence' }],
  ['mail', { mail: 'silence' }],
  ['rcpt', { rcpt: 'silence' }],
  ['data', { data: 'silence' }],
] as const) {
  t.test(`${stage}: ${Object.keys(script).join()} without an answer`, async (t) => {
    const engine = await world(t, { script })
    const [id] = await engine.accept(ANNA)
    t.match(await untilAt(engine, id, stage), { thread: 0, ...ROAD, place: SERVER })
  })
}

t.test('a dot that waits for the store, and an outcome that does', async (t) => {
  const engine = await world(t, {})
  const { store } = engine
  const { markDotSent: mark, recordOutcomes: record } = store
  const [mayMark, mayRecord] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  store.markDotSent = async (...request) => {
    await mayMark.promise
    return mark(...request)
  }
  store.recordOutcomes = async (request) => {
    await mayRecord.promise
    return record(request)
  }
  const [id] = await engine.accept(ANNA)
  await untilAt(engine, id, 'mark')
  mayMark.resolve()
  await engine.until('it is recorded', async () => (await engine.dispatcher.whereIs(id ?? ''))?.kind === 'recording')
  t.match(await explain(engine, id), { summary: /what became of it has been on the way into the store for/ })
  mayRecord.resolve()
  await engine.untilState(id, 'delivered')
})

t.test('rows that wait: for the one before, for a connection, for room on their path', async (t) => {
  const engine = await world(t, { script: { dot: 'silence' }, extensions: [] }, ONE_CONNECTION)
  const ids = await engine.accept(ANNA, { count: 4 })
  const stageOf = (where: Whereabouts | undefined): string | undefined =>
    where?.kind === 'thread' ? where.place?.stage : where?.kind
  const places = await engine.until('one has sent its dot', async () => {
    const found = await Promise.all(ids.map((id) => engine.dispatcher.whereIs(id)))
    return found.some((where) => stageOf(where) === 'dot') && found
  })
  t.same(places.map(stageOf).toSorted(), ['dot', 'path', 'queue', 'turn'])
  const waiting = places.findIndex((where) => where?.kind === 'path')
  t.same(places[waiting], { kind: 'path', ...ROAD })
  t.match(await explain(engine, ids[waiting]), {
    state: 'sending',
    summary: /: it waits for room on the path from 127\.0\.0\.11 to dest\.test\.$/,
    advice: ['Nothing to do.'],
  })
})

t.test('a name that is looked up', async (t) => {
  const engine = await world(t, {})
  const { store, dispatcher } = engine
  const find = store.findReturnPath
  const gate = Promise.withResolvers<void>()
  store.findReturnPath = async (domain) => {
    await gate.promise
    return find(domain)
  }
  const [id] = await engine.accept(ANNA)
  t.same(await engine.until('it is placed', () => dispatcher.whereIs(id ?? '')), { kind: 'placing' })
  gate.resolve()
  await engine.untilState(id, 'delivered')
})

t.test('a row that is leased and that nobody holds', async (t) => {
  const clock = manualClock()
  const engine = await world(t, {}, { clock, mayDeliver: () => false })
  const { store, dispatcher } = engine
  const [id] = await engine.accept(ANNA)
  const claimedAt = clock.now()
  const claimed = await claimMessages(store, {
    now: claimedAt,
    epoch: FIRST_EPOCH,
    leaseUntil: claimedAt + HOUR,
    pools: ['default'],
    limit: 1,
  })
  t.equal(claimed.length, 1)
  t.match(await engine.message(id), { state: 'sending', claimedAt, nextAttemptAt: null })
  t.equal(await dispatcher.whereIs(id ?? ''), undefined)
  t.match(await explain(engine, id, clock), { summary: /just taken from the queue/, advice: ['Nothing to do.'] })
  await clock.advance(10 * SECOND)
  t.match(await explain(engine, id, clock), {
    state: 'sending',
    summary: /^It has been on its way for 10 seconds, and it is in nobody's hand/,
    checks: [{ check: 'delivery', status: 'fail', seen: "in nobody's hand" }],
    advice: [/every minute/, String, String],
  })
})

t.test('what a thread says is heeded only while the row is there', async (t) => {
  const row = { facts: { isp: ROAD.to, plan: { source: ROAD.from } }, ip: null } as PlacedRow
  const of = (claim: number): ClaimedMessage => ({ id: 'msg_1', claim }) as ClaimedMessage
  const held = new Map<number, HeldRow>([
    [2, { message: of(2), by: 'thread', row, thread: 1 }],
    [1, { message: of(1), by: 'recorder', at: 0 }],
  ])
  let answer: () => ThreadPlace | null | undefined = () => null
  const whereIs = createWhereIs({
    clock: manualClock(5 * SECOND),
    holders: () => held,
    threads: { where: async () => answer() },
  })
  t.equal(await whereIs('msg_2'), undefined)
  t.equal(await whereIs('msg_1'), undefined, 'its thread does not have it')
  answer = () => undefined
  t.same(await whereIs('msg_1'), { kind: 'thread', thread: 1, ...ROAD, place: null }, 'its thread is silent')
  answer = () => {
    held.set(2, { message: of(2), by: 'recorder', at: SECOND })
    return null
  }
  t.same(await whereIs('msg_1'), { kind: 'recording', milliseconds: 4 * SECOND }, 'it has ended meanwhile')
})

t.test('a thread tells what has ended before it says that it does not have it', async (t) => {
  const posted: FromThread[] = []
  const receive = serveThread({
    threadId: 1,
    connectionsMax: 10,
    transcript: () => null,
    readAhead: () => {},
    forget: () => {},
    end: async () => {},
    post: (message) => void posted.push(message),
    render: () => new Promise(() => {}),
    open: async () => ({ kind: 'local', why: 'source-gone', reason: 'the address is gone' }),
  })
  const path = {
    key: 'path',
    port: 25,
    source: '127.0.0.11',
    hostname: 'mail.acme.test',
    connections: 1,
    messagesPerConnection: 1,
    inFlight: 1,
    carefulHosts: [],
    idleMilliseconds: 1,
    connectionRate: null,
  }
  const row = {
    claim: 7,
    key: 1,
    messageId: 'msg_1',
    contentId: 1,
    domain: 'acme.test',
    returnPath: 'bounces.acme.test',
    recipientDomain: 'dest.test',
    expiresAt: Infinity,
    isCaptured: false,
    isUrgent: false,
    wasInDoubt: false,
  }
  receive({
    kind: 'dispatch',
    clockOffset: 0,
    batches: [{ path, site: { key: 'site', hosts: [hostOf({ address: '127.0.0.2' })] }, rows: [row] }],
  })
  receive({ kind: 'where', id: 1, claim: 7 })
  t.match(posted, [{ kind: 'where', id: 1, place: { stage: 'connect', host: 'mx.test', address: '127.0.0.2' } }])
  // Its connection fails within this turn of the event loop.
  for (let tick = 0; tick < 20; tick++) await Promise.resolve()
  receive({ kind: 'where', id: 2, claim: 7 })
  t.match(posted.slice(1), [
    { kind: 'turn', turn: { results: [{ claim: 7 }] } },
    { kind: 'where', id: 2, place: null },
  ])
})

t.test('a thread that does not answer, or dies meanwhile, keeps nobody waiting', async (t) => {
  const engine = await world(t, {})
  const workers: EventEmitter[] = []
  const threads: DeliveryThreads = createDeliveryThreads({
    count: 1,
    clock: systemClock,
    logger: createLogger({ level: 'silent' }),
    settings: threadSettings(
      engine.live.current(),
      { storeLocation: NO_STORE, masterKey: new Uint8Array(), trackingUrl: null },
      1,
    ),
    startWorker() {
      const worker = Object.assign(new EventEmitter(), { threadId: 1, postMessage: () => {}, terminate: () => {} })
      workers.push(worker)
      return worker as unknown as Worker
    },
    onResults: () => {},
    onMark: () => {},
    onConnections: () => {},
    onStart: () => {},
    onDeath: () => {},
    onFatal: () => {},
  })
  threads.start()
  const before = performance.now()
  t.equal(await threads.where(0, 1), undefined)
  t.ok(performance.now() - before > SECOND - 50)
  const asked = threads.where(0, 1)
  const isDead = performance.now()
  workers[0]?.emit('exit', 1)
  t.equal(await asked, undefined)
  t.ok(performance.now() - isDead < SECOND / 2)
})
