/**
 * Work starts by events: an idle engine does nothing, whatever waits in its queue; and nothing outlives its lifetime,
 * whatever holds it (delivery/README.md "Wake-ups" and "Expiry").
 */
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createSchedule, type Schedule } from '../../src/operations/schedule.ts'
import type { Store } from '../../src/store/store.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { startOrderingSink, type OrderingSink, type OrderingSinkOptions } from '../support/ordering-sink.ts'
import { startEngine, type Engine, type EngineOptions } from './start-engine.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const ANNA = 'anna@dest.test'
const IP = '127.0.0.11'
const LIFETIME = HOUR
/** test/README.md "What is promised". */
const LATEST_END = MINUTE
/** A try that fails later than this before the end may be the last one (delivery/README.md "Retries"). */
const MAY_END_BEFORE = 16 * MINUTE
const EXPIRE_EVERY = 5 * SECOND
const nothing = async (): Promise<void> => {}

async function sink(t: Test, options: OrderingSinkOptions = {}): Promise<OrderingSink> {
  const server = await startOrderingSink(options)
  t.teardown(() => server.close())
  return server
}

/** Counts what is asked of a store. */
function counted(calls: Record<string, number>): (store: Store) => Store {
  return (store) =>
    new Proxy(store, {
      get(target, name, receiver) {
        const verb: unknown = Reflect.get(target, name, receiver)
        if (typeof verb === 'function') calls[String(name)] = (calls[String(name)] ?? 0) + 1
        return verb
      },
    })
}

t.test('an engine with mail for later asks its store for nothing but the net and its leases', async (t) => {
  const calls: Record<string, number> = {}
  const clock = manualClock()
  const { port } = await sink(t)
  const engine = await startEngine(t, { port, clock, watchStore: counted(calls) })
  await engine.untilState((await engine.accept(ANNA))[0], 'delivered')
  const count = IS_FULL ? 100_000 : 5_000
  for (let left = count; left > 0; left -= 1_000) {
    await engine.accept(ANNA, { count: Math.min(left, 1_000), sendAt: clock.now() + HOUR })
  }
  await clock.advance(MINUTE)
  for (const verb of Object.keys(calls)) delete calls[verb]
  await clock.advance(10 * MINUTE)
  const { queueKeys = 0, unroutedDomains = 0, renewLeases = 0, leasedRows = 0, ...others } = calls
  t.strictSame(others, {})
  t.ok(queueKeys <= 21 && unroutedDomains <= 21, 'a walk each 30 s')
  t.ok(renewLeases <= 11 && leasedRows <= 11, 'leases each minute')
  t.notOk(engine.log.some(({ msg }) => msg === 'scheduler.missed_wake'))
})

t.test('an idle engine needs no CPU', async (t) => {
  const { port } = await sink(t)
  const engine = await startEngine(t, { port })
  const count = IS_FULL ? 100_000 : 5_000
  for (let left = count; left > 0; left -= 1_000) {
    await engine.accept(ANNA, { count: Math.min(left, 1_000), sendAt: Date.now() + HOUR })
  }
  const wait = IS_FULL ? 65 * SECOND : 2 * SECOND
  await new Promise((resolve) => void setTimeout(resolve, SECOND))
  const before = process.cpuUsage()
  await new Promise((resolve) => void setTimeout(resolve, wait))
  const { user, system } = process.cpuUsage(before)
  const share = (user + system) / 1_000 / wait
  t.comment(`${(share * 100).toFixed(2)} % of a CPU`)
  t.ok(share < (IS_FULL ? 0.01 : 0.1))
})

interface Holder {
  name: string
  options?: Partial<EngineOptions>
  sink?: OrderingSinkOptions
  recipient?: string
  /** Before the message is accepted, and after. */
  before?: (engine: Engine) => Promise<unknown>
  after?: (engine: Engine, clock: ManualClock) => Promise<unknown>
}

const WARMING = {
  ips: [{ address: IP, hostname: 'mta1.sternpost.test', warmed: false }],
  warmup: { curves: { standard: { stages: [50, 100] } } },
}
const startWarmup = ({ warmup }: Engine): Promise<unknown> =>
  warmup.start(IP, { curve: null, stage: null, targetDailyVolume: null, restart: false, force: true }, 'test')

const HOLDERS: Holder[] = [
  {
    name: 'a suspended path',
    sink: { onCommand: (verb) => (verb === 'RCPT' ? '554 5.7.1 blocked using a list' : undefined) },
    async before(engine) {
      for (let block = 0; block < 5; block++) await engine.untilState((await engine.accept(ANNA))[0], 'deferred')
    },
  },
  { name: 'a suspended IP', before: (engine) => engine.warmup.suspendIp(IP, 'a test', 'test') },
  {
    name: 'a paused IP',
    options: WARMING,
    async before(engine) {
      await startWarmup(engine)
      await engine.warmup.pause(IP, 'a test', 'test')
    },
  },
  {
    name: 'a cap',
    options: { ...WARMING, warmup: { curves: { standard: { stages: [20, 30] } } } },
    async before(engine) {
      await startWarmup(engine)
      await engine.accept(ANNA, { count: 40 })
    },
  },
  { name: 'a DNS that fails', options: { zone: { 'dead.test': 'SERVFAIL' } }, recipient: 'anna@dead.test' },
  {
    name: 'hosts that do not answer',
    options: { zone: { 'dead.test': { MX: ['10 mx.dead.test'] }, 'mx.dead.test': { A: ['127.0.0.99'] } } },
    recipient: 'anna@dead.test',
  },
  { name: 'a host that says later', sink: { refuse: () => '450 4.2.0 later' } },
  {
    name: 'the operator',
    options: { mayDeliver: () => false },
    after: (engine, clock) =>
      engine.store.actOnQueue({ filter: {}, action: { kind: 'hold' }, now: clock.now(), limit: 10, isDryRun: false }),
  },
  { name: 'a full disk', options: { mayDeliver: () => false } },
]

for (const holder of HOLDERS) {
  t.test(`a message ends with its lifetime when ${holder.name} holds it`, async (t) => {
    const clock = manualClock()
    const { port } = await sink(t, holder.sink)
    const engine = await startEngine(t, { port, clock, ...holder.options })
    const schedule = upkeep(engine, clock)
    await holder.before?.(engine)
    const [id] = await engine.accept(holder.recipient ?? ANNA, { lifetime: LIFETIME })
    await holder.after?.(engine, clock)
    const end = clock.now() + LIFETIME
    const liveUntil = async (time: number): Promise<void> => {
      while (clock.now() < time) {
        await clock.advance(MINUTE)
        await engine.dispatcher.ticks()
      }
    }
    await liveUntil(end - MAY_END_BEFORE)
    t.notOk((await engine.message(id)).bounce, 'it lives as long as a try may come')
    await liveUntil(end - MINUTE)
    while (clock.now() < end + LATEST_END) {
      await clock.advance(EXPIRE_EVERY)
      await schedule.run('expire-messages')
    }
    // The clock stands: a last try may still be under way, which takes real time.
    const { bounce } = await engine.until('it has ended', async () => {
      await schedule.run('expire-messages')
      const view = await engine.message(id)
      return view.state === 'expired' && view
    })
    t.match(bounce, { category: 'expired', type: 'soft' })
    t.match(await engine.store.watchQueue(clock.now() - LATEST_END, clock.now() - HOUR), { overdue: 0 })
    const ends = (await engine.events(id)).filter(({ kind }) => kind !== 'email.deferred')
    t.match(ends, [{ kind: 'email.bounced', data: { bounce_code: '4.4.7' } }], 'one event')
    t.notOk(engine.log.some(({ msg }) => msg === 'scheduler.missed_wake'))
  })
}

function upkeep({ store, metrics, dispatcher }: Engine, clock: ManualClock): Schedule {
  return createSchedule({
    store,
    clock,
    realClock: clock,
    metrics,
    drive: () => ({ stop: async () => {} }),
    logger: createLogger({ level: 'silent' }),
    domains: { checkDue: nothing, stop: nothing },
    warmup: { closeDays: nothing, checkGates: nothing },
    shaping: { tick: nothing },
    statistics: { sum: async () => {} },
    messages: { indexSubjects: async () => {} },
    sts: { refresh: nothing },
    tlsReports: { sendDue: nothing },
    retention: { async run() {}, async watchBudget() {}, stop() {} },
    backups: { when: () => null, async write() {} },
    uncertainRetry: () => 1,
    epoch: 1,
    isFirst: () => true,
    certificates: { check() {}, issue: nothing },
    health: { runDue: nothing },
    isClockSteady: () => true,
    renewLeases: dispatcher.renewLeases,
    onQueued() {},
    onEvents() {},
  })
}
