/**
 * The reason for which a message waits, as `explain` and the statistics of an IP tell it: one test for each cause of
 * delivery/README.md "Why a message waits", made by the world and not by a stub.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createClassifier } from '../../src/mail/reply/classify-reply.ts'
import { createExplainMessage } from '../../src/messages/lookup/explain-message.ts'
import type { QueuedRows, WaitingFor } from '../../src/store/records/queue-records.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { startOrderingSink, type OrderingSink, type OrderingSinkOptions } from '../support/ordering-sink.ts'
import { startEngine, type Engine, type EngineOptions } from './start-engine.ts'

const ANNA = 'anna@dest.test'
const IP = '127.0.0.11'
const WARMING = { ips: [{ address: IP, hostname: 'mta1.sternpost.test', warmed: false }] }
const VIEWER = { isTest: false, domains: [] }
const ON_LINUX = { skip: process.platform !== 'linux' && 'prlimit is of Linux' }
const BLOCK = '554 5.7.1 blocked using a list'

interface World extends Engine {
  sink: OrderingSink
  clock: ManualClock
}

async function world(
  t: Test,
  options: Partial<EngineOptions> = {},
  sinkOptions: OrderingSinkOptions = {},
): Promise<World> {
  const sink = await startOrderingSink(sinkOptions)
  t.teardown(() => sink.close())
  const clock = manualClock()
  return { ...(await startEngine(t, { port: sink.port, clock, ...options })), sink, clock }
}

async function warmingWorld(t: Test, warmup: Record<string, unknown>): Promise<World> {
  const engine = await world(t, { ...WARMING, warmup })
  await engine.warmup.start(
    IP,
    { curve: null, stage: null, targetDailyVolume: null, restart: false, force: true },
    'test',
  )
  return engine
}

/** Accepts so many; resolves when so many of them were taken and the next one waits for this reason everywhere. */
async function expectReason(
  t: Test,
  engine: World,
  wanted: WaitingFor,
  { count = 1, taken = 0 }: { count?: number; taken?: number } = {},
): Promise<void> {
  const ids = await engine.accept(ANNA, { count })
  await engine.until('the first ones are taken', () => engine.sink.arrivals.length >= taken)
  const waiting = await engine.until('the others wait', async () => {
    const views = await Promise.all(ids.map((id) => engine.message(id)))
    const left = views.filter(({ state }) => state === 'queued' || state === 'deferred')
    return left.length === count - taken && left
  })
  for (const { id } of waiting.slice(0, 3)) await tell(t, engine, id, wanted)
}

async function tell(t: Test, engine: World, id: string | undefined, wanted: WaitingFor): Promise<void> {
  const { clock, store, dispatcher } = engine
  const explain = createExplainMessage({
    store,
    clock,
    domains: { find: async () => null },
    classify: createClassifier([]),
    whyWaiting: dispatcher.whyWaiting,
    whereIs: ({ id }) => dispatcher.whereIs(id),
    longestStageMilliseconds: 10 * MINUTE,
  })
  const { waiting_for: reason, summary } = await engine.until(`explain says ${wanted}`, async () => {
    const explanation = await explain(id ?? '', VIEWER)
    return explanation.waiting_for !== null && explanation
  })
  t.equal(reason, wanted, summary)
  await engine.until(`the statistics of the IP say ${wanted}`, () =>
    dispatcher.waitingOf(IP).some(({ isp, reason: counted }) => isp === 'dest.test' && counted === wanted),
  )
  t.ok((dispatcher.waitingByReason()[wanted] ?? 0) > 0, 'the sum over all')
}

/** Takes all file descriptors that this process may still open, and gives them back: prlimit(1), which is there by then. */
function fileLimit(t: Test): { take(): Promise<void>; giveBack(): Promise<void> } {
  const script =
    'old=$(prlimit -p "$1" -n -o SOFT --noheadings); while read n; do prlimit -p "$1" -n"${n:-$old}:"; echo; done'
  const shell = spawn('sh', ['-c', script, 'sh', String(process.pid)], { stdio: ['pipe', 'pipe', 'inherit'] })
  async function set(limit: string): Promise<void> {
    shell.stdin.write(`${limit}\n`)
    await once(shell.stdout, 'data')
  }
  t.teardown(async () => {
    await set('')
    shell.stdin.end()
  })
  return { take: () => set('3'), giveBack: () => set('') }
}

t.test('send_at', async (t) => {
  const engine = await world(t)
  await engine.untilState((await engine.accept(ANNA))[0], 'delivered')
  const [id] = await engine.accept(ANNA, { sendAt: engine.clock.now() + HOUR })
  await tell(t, engine, id, 'send_at')
})

t.test('retry_delay', async (t) => {
  const engine = await world(t, {}, { refuse: () => '450 4.2.0 later' })
  const [id] = await engine.accept(ANNA)
  await engine.untilState(id, 'deferred')
  await tell(t, engine, id, 'retry_delay')
})

t.test('retry_delay of a greylisted message', async (t) => {
  const engine = await world(
    t,
    {},
    { onCommand: (verb) => (verb === 'RCPT' ? '451 4.7.1 Greylisted, please try again later' : undefined) },
  )
  const [id] = await engine.accept(ANNA)
  await engine.untilState(id, 'deferred')
  await tell(t, engine, id, 'retry_delay')
})

t.test('warmup_day', async (t) => {
  const engine = await warmingWorld(t, {
    curves: { standard: { stages: [20, 50] } },
    defaults: { provider_share: { default: 1 }, smoothing: { min_burst: 22, hourly_fraction: 1 } },
  })
  await expectReason(t, engine, 'warmup_day', { count: 22, taken: 20 })
  const { warmup, ...others } = engine.live.current()
  const higher = Object.entries(warmup.curves).map(([name, curve]) => [name, { ...curve, stages: [22, 50] }])
  await engine.live.replace({ ...others, warmup: { ...warmup, curves: Object.fromEntries(higher) } })
  await engine.until('a higher cap lets the others go at once', () => engine.sink.arrivals.length === 22)
})

t.test('warmup_hour', async (t) => {
  const engine = await warmingWorld(t, { curves: { standard: { stages: [50, 100] } } })
  await expectReason(t, engine, 'warmup_hour', { count: 8, taken: 5 })
})

t.test('provider_share', async (t) => {
  const engine = await warmingWorld(t, {
    curves: { standard: { stages: [50, 100] } },
    defaults: { provider_share: { default: 0.1 } },
  })
  await expectReason(t, engine, 'provider_share', { count: 7, taken: 5 })
})

t.test('rate', async (t) => {
  const engine = await world(t, { providers: { default: { rate: '1/hour' } } })
  await expectReason(t, engine, 'rate', { count: 3, taken: 1 })
})

t.test('rate of the pool', async (t) => {
  const engine = await world(t, { pool: { rate: '2/minute' } })
  await expectReason(t, engine, 'rate', { count: 8, taken: 1 })
})

t.test('connections', async (t) => {
  const engine = await world(t, { providers: { default: { connections: 1 } } })
  engine.sink.hold()
  await engine.accept(ANNA, { count: 300 })
  const [id] = await engine.accept(ANNA)
  await engine.until('one is under way', () => engine.sink.held() > 0)
  await tell(t, engine, id, 'connections')
  engine.sink.release()
})

t.test('sockets, of which this machine has none left for a moment', ON_LINUX, async (t) => {
  const engine = await world(t, { providers: { default: { messages_per_connection: 1 } } })
  await engine.untilState((await engine.accept(ANNA))[0], 'delivered')
  const files = fileLimit(t)
  await files.take()
  const ids = await engine.accept(ANNA, { count: 2 })
  const said = (): typeof engine.log => engine.log.filter(({ msg }) => /no socket or port free/.test(String(msg)))
  await engine.until('the log says so', () => said().length > 0)
  await tell(t, engine, ids[1], 'sockets')
  t.match(said(), [{ ip: IP, reason: /EMFILE/ }], 'once')
  t.same(engine.shaping.views(), [], 'the host has no fault in it')
  await files.giveBack()
  await engine.clock.advance(10 * SECOND)
  for (const id of ids) t.equal((await engine.untilState(id, 'delivered')).attempts.length, 1)
})

t.test('suspension of the path', async (t) => {
  const engine = await world(t, {}, { onCommand: (verb) => (verb === 'RCPT' ? BLOCK : undefined) })
  for (let block = 0; block < 5; block++) await engine.untilState((await engine.accept(ANNA))[0], 'deferred')
  await expectReason(t, engine, 'suspension')
})

t.test('suspension of the sending domain', async (t) => {
  const engine = await world(
    t,
    {
      providers: {
        replies: [
          {
            id: 'no-acme',
            match: 'we do not like your domain',
            do: 'suspend_lane',
            for: '1h',
            example: '554 5.7.1 we do not like your domain',
          },
        ],
      },
    },
    { onCommand: (verb) => (verb === 'RCPT' ? '554 5.7.1 we do not like your domain' : undefined) },
  )
  await engine.accept(ANNA)
  await engine.until('it was refused', () => engine.log.some(({ msg }) => msg === 'lane suspended'))
  await expectReason(t, engine, 'suspension')
})

t.test('suspension of the whole IP', async (t) => {
  const engine = await world(t)
  await engine.untilState((await engine.accept(ANNA))[0], 'delivered')
  await engine.egress.suspend(IP, engine.clock.now() + HOUR, 'blocked by three', 'shaping')
  await expectReason(t, engine, 'suspension')
})

t.test('suspension after path errors', async (t) => {
  const engine = await world(
    t,
    {},
    { onCommand: (verb) => (['EHLO', 'HELO'].includes(verb) ? '554 5.3.2 no service' : undefined) },
  )
  for (let tries = 0; tries < 3; tries++) {
    await engine.untilState((await engine.accept(ANNA))[0], 'deferred')
    await engine.clock.advance(MINUTE / 4)
  }
  await engine.until('the path is left alone', () => engine.log.some(({ msg }) => msg === 'path left alone'))
  await expectReason(t, engine, 'suspension')
})

t.test('ip_paused', async (t) => {
  const engine = await warmingWorld(t, { curves: { standard: { stages: [50, 100] } } })
  await engine.untilState((await engine.accept(ANNA))[0], 'delivered')
  await engine.warmup.pause(IP, 'a test', 'test')
  await expectReason(t, engine, 'ip_paused')
})

t.test('held', async (t) => {
  let mayDeliver = true
  const engine = await world(t, { mayDeliver: () => mayDeliver })
  await engine.untilState((await engine.accept(ANNA))[0], 'delivered')
  mayDeliver = false
  const [id] = await engine.accept(ANNA)
  const act = (kind: 'hold' | 'release'): Promise<{ messages: number; queued: QueuedRows }> =>
    engine.store.actOnQueue({ filter: {}, action: { kind }, now: engine.clock.now(), limit: 10, isDryRun: false })
  await act('hold')
  mayDeliver = true
  engine.dispatcher.resume()
  await tell(t, engine, id, 'held')
  t.equal(engine.sink.arrivals.length, 1)
  engine.dispatcher.noteQueued((await act('release')).queued)
  await engine.untilState(id, 'delivered')
})
