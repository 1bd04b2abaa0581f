/**
 * From which IP a message leaves, through the whole engine: allowance, greylisting, blocks.
 */
import t, { type Test } from 'tap'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { scriptedMx, type ScriptedMx, type ScriptedMxOptions } from '../support/scripted-mx.ts'
import { startEngine, type Engine, type EngineOptions } from './start-engine.ts'

const ANNA = 'anna@dest.test'
const START = Date.UTC(2026, 10, 21, 12)
const [FIRST, SECOND_IP] = ['127.0.0.11', '127.0.0.12'] as const
const WARM = [FIRST, SECOND_IP].map((address, index) => ({
  address,
  hostname: `mta${index + 1}.sternpost.test`,
  warmed: true,
}))
const WARMING = WARM.map((ip) => ({ ...ip, warmed: ip.address !== FIRST }))
/** A day of 50: bursts of 5, then one every 14 minutes in the second half of the day. */
const CURVE = { curves: { standard: { stages: [50, 100, 200] } } }

interface World extends Engine {
  server: ScriptedMx
  clock: ManualClock
}

type Script = NonNullable<ScriptedMxOptions['script']>

async function world(
  t: Test,
  options: Partial<EngineOptions>,
  script: Script = {},
  mx: ScriptedMxOptions = {},
): Promise<World> {
  const server = await scriptedMx({ address: '127.0.0.2', script, ...mx })
  t.teardown(() => server.close())
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock, warmup: CURVE, ...options })
  return { ...engine, server, clock }
}

const startWarmup = (engine: Engine): Promise<unknown> =>
  engine.warmup.start(FIRST, { curve: null, stage: null, targetDailyVolume: null, restart: false, force: true }, 'test')

const sourcesOf = ({ messages }: ScriptedMx): Record<string, number> => {
  const counts: Record<string, number> = {}
  for (const {
    connection: { remoteAddress },
  } of messages)
    counts[remoteAddress] = (counts[remoteAddress] ?? 0) + 1
  return counts
}

t.test('mail beyond the allowance of a warming IP leaves from the warmed one of its pool', async (t) => {
  const engine = await world(t, { ips: WARMING })
  await startWarmup(engine)
  const ids = await engine.accept(ANNA, { count: 20 })
  for (const id of ids) await engine.untilState(id, 'delivered')
  t.same(sourcesOf(engine.server), { [FIRST]: 5, [SECOND_IP]: 15 })
  const [day] = await engine.store.warmupDays(FIRST, '2026-11-21')
  t.match(day, { granted: 5, firstAttempts: 5 })
})

t.test('without a warmed IP it waits for the allowance, and the reason is known', async (t) => {
  const engine = await world(t, { ips: WARMING.slice(0, 1) })
  await startWarmup(engine)
  const ids = await engine.accept(ANNA, { count: 8 })
  await engine.until('the burst is out', () => engine.server.messages.length === 5)
  const waiting = await engine.until('the others wait', async () => {
    const views = await Promise.all(ids.map((id) => engine.message(id)))
    const queued = views.filter(({ state }) => state === 'queued')
    return queued.length === 3 && queued
  })
  for (const view of waiting) {
    t.match(engine.dispatcher.whyWaiting(view), { waitingFor: 'warmup_hour', untilMilliseconds: Number })
  }
  t.match(engine.dispatcher.waitingOf(FIRST), [{ isp: 'dest.test', reason: 'warmup_hour', count: 3 }])
  t.strictSame({ ...engine.dispatcher.backlogOf('default') }, { 'dest.test': 3 })
  // The allowance of an hour, and the pace of the day.
  for (let more = 6; more <= 8; more++) {
    await engine.until('one more', async () => {
      await engine.clock.advance(5 * MINUTE)
      return engine.server.messages.length >= more
    })
  }
  t.ok(engine.clock.now() - START > 30 * MINUTE, 'not at once')
  for (const id of ids) await engine.untilState(id, 'delivered')
  t.same(sourcesOf(engine.server), { [FIRST]: 8 })
})

t.test('allowance comes back when no recipient was named', async (t) => {
  const engine = await world(t, { ips: WARMING.slice(0, 1) }, { banner: ['554 no', '220 mx.test'] })
  await startWarmup(engine)
  const [id] = await engine.accept(ANNA)
  await engine.untilState(id, 'deferred')
  t.match((await engine.store.warmupDays(FIRST, '2026-11-21'))[0], { granted: 0, refunded: 1 })
  await engine.clock.advance(MINUTE)
  await engine.untilState(id, 'delivered')
  t.match((await engine.store.warmupDays(FIRST, '2026-11-21'))[0], { granted: 1, firstAttempts: 1 })
})

t.test('an attempt that gave its allowance back has paid for nothing: the next one takes some', async (t) => {
  const script = { mail: ['451 4.3.2 not now', '250 ok'] }
  const engine = await world(t, { ips: WARMING.slice(0, 1) }, script, { extensions: [] })
  await startWarmup(engine)
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'deferred'), { attempts: [{ ip: FIRST, stage: 'mail' }] })
  t.match((await engine.store.warmupDays(FIRST, '2026-11-21'))[0], { granted: 0, refunded: 1 })
  await engine.clock.advance(MINUTE)
  await engine.untilState(id, 'delivered')
  t.match((await engine.store.warmupDays(FIRST, '2026-11-21'))[0], { granted: 1, refunded: 1 })
})

t.test('a greylisted message comes back from the same IP, also when that costs a wait', async (t) => {
  const engine = await world(t, { ips: WARM }, { rcpt: ['451 4.7.1 Greylisted, please try again later', '250 ok'] })
  const [id] = await engine.accept(ANNA)
  const { ip } = await engine.untilState(id, 'deferred')
  t.ok(ip)
  await engine.warmup.suspendIp(ip ?? '', 'a test', 'test')
  await engine.clock.advance(5 * MINUTE)
  const why = await engine.until('it waits for its IP', async () =>
    engine.dispatcher.whyWaiting(await engine.message(id)),
  )
  t.match(why, { waitingFor: 'suspension' })
  t.equal(engine.server.messages.length, 0)
  await engine.warmup.resumeIp(ip ?? '', 'test')
  await engine.clock.advance(15 * MINUTE)
  await engine.untilState(id, 'delivered')
  t.same(sourcesOf(engine.server), { [ip ?? '']: 1 })
})

t.test('after four hours a greylisted message takes any IP', async (t) => {
  const engine = await world(t, { ips: WARM }, { rcpt: ['451 4.7.1 Greylisted, please try again later', '250 ok'] })
  const [id] = await engine.accept(ANNA)
  const { ip } = await engine.untilState(id, 'deferred')
  await engine.warmup.suspendIp(ip ?? '', 'a test', 'test')
  await engine.clock.advance(3 * HOUR)
  t.equal(engine.server.messages.length, 0)
  await engine.clock.advance(HOUR + 5 * MINUTE)
  await engine.untilState(id, 'delivered')
  t.same(
    Object.keys(sourcesOf(engine.server)),
    [FIRST, SECOND_IP].filter((address) => address !== ip),
  )
})

t.test('an IP that is suspended for one provider leaves that mail to the others until it is resumed', async (t) => {
  const engine = await world(t, {
    ips: WARM,
    providers: { providers: { mill: { domains: ['dest.test'], scope: 'provider' } } },
  })
  const hold = (ip: string): Promise<void> =>
    engine.shaping.suspend({ ip, provider: 'mill', reason: null, actor: 'test' })
  await hold(FIRST)
  for (const id of await engine.accept(ANNA, { count: 20 })) await engine.untilState(id, 'delivered')
  t.same(sourcesOf(engine.server), { [SECOND_IP]: 20 })
  await hold(SECOND_IP)
  const ids = await engine.accept(ANNA, { count: 5 })
  const why = await engine.until('it waits', async () =>
    engine.dispatcher.whyWaiting(await engine.message(ids[0] ?? '')),
  )
  t.match(why, { waitingFor: 'suspension' })
  await engine.clock.advance(HOUR)
  t.equal(engine.server.messages.length, 20)
  await engine.shaping.resume({ ip: FIRST, provider: 'mill' })
  for (const id of ids) await engine.untilState(id, 'delivered')
  t.same(sourcesOf(engine.server), { [FIRST]: 5, [SECOND_IP]: 20 })
})

t.test('a blocked message goes back to its IP where an operator holds the only other one', async (t) => {
  const engine = await world(
    t,
    { ips: WARM, providers: { providers: { mill: { domains: ['dest.test'], scope: 'provider' } } } },
    { rcpt: ['554 5.7.1 Client host blocked using a list', '250 ok'] },
  )
  const [id] = await engine.accept(ANNA)
  const { ip } = await engine.untilState(id, 'deferred')
  const other = ip === FIRST ? SECOND_IP : FIRST
  await engine.shaping.suspend({ ip: other, provider: 'mill', reason: null, actor: 'test' })
  await engine.until('it has left', async () => {
    await engine.clock.advance(HOUR)
    return (await engine.message(id)).state === 'delivered'
  })
  t.same(sourcesOf(engine.server), { [String(ip)]: 1 })
})

t.test('a block of the IP sends the next attempt from another one, five minutes later', async (t) => {
  const engine = await world(t, { ips: WARM }, { rcpt: ['554 5.7.1 Client host blocked using a list', '250 ok'] })
  const [id] = await engine.accept(ANNA)
  const view = await engine.untilState(id, 'deferred')
  t.equal(view.nextAttemptAt, START + 5 * MINUTE)
  await engine.clock.advance(5 * MINUTE)
  await engine.untilState(id, 'delivered')
  t.same(
    Object.keys(sourcesOf(engine.server)),
    [FIRST, SECOND_IP].filter((address) => address !== view.ip),
  )
})

t.test('rows that wait for a path leave from another IP as soon as theirs is taken out', async (t) => {
  const script: Script = { rcpt: (_line, { remoteAddress }) => (remoteAddress === FIRST ? 'silence' : '250 ok') }
  const engine = await world(t, { ips: WARM, providers: { default: { connections: 1 } } }, script)
  const ids = await engine.accept(ANNA, { count: 16 })
  const inThread = await engine.until('all but those of the silent one are out', () => {
    const { messages, connections } = engine.server
    return connections.some(({ remoteAddress }) => remoteAddress === FIRST) && messages.length > 0 && messages.length
  })
  t.ok(inThread < ids.length)
  engine.egress.disable(FIRST, 'a test')
  // Three are with the thread already: one on its way, one behind it, and one that is being rendered.
  await engine.until('the others left', () => engine.server.messages.length >= ids.length - 3)
  t.same(Object.keys(sourcesOf(engine.server)), [SECOND_IP])
})

t.test('what is being placed while its pool loses its IPs leaves as soon as there is one again', async (t) => {
  let isReplaced = false
  const enable = (engine: Engine, enabled: boolean): Promise<void> => {
    const { pools, ...others } = engine.live.current()
    const { default: pool } = pools.pools
    if (pool === undefined) throw new Error('the engine has one pool')
    const ips = pool.ips.map((ip) => ({ ...ip, enabled }))
    return engine.live.replace({ ...others, pools: { ...pools, pools: { default: { ...pool, ips } } } })
  }
  const engine: World = await world(t, {
    ips: WARM,
    watchStore: (store) => ({
      ...store,
      async claimDue(request) {
        const claimed = await store.claimDue(request)
        if (claimed.messages.length === 0 || isReplaced) return claimed
        await enable(engine, false)
        isReplaced = true
        return claimed
      },
    }),
  })
  const [id = ''] = await engine.accept(ANNA)
  await engine.until('it is given back', async () => isReplaced && (await engine.message(id)).state === 'queued')
  await enable(engine, true)
  await engine.untilState(id, 'delivered')
})

t.test('what a thread has not begun leaves from another IP when its own is suspended', async (t) => {
  const script: Script = { rcpt: (_line, { remoteAddress }) => (remoteAddress === FIRST ? 'silence' : '250 ok') }
  const engine = await world(t, { ips: WARM, providers: { default: { connections: 1 } } }, script)
  const ids = await engine.accept(ANNA, { count: 16 })
  const hasBegun = (): boolean =>
    engine.server.connections.some(
      ({ remoteAddress, commands }) => remoteAddress === FIRST && commands.some((line) => line.startsWith('RCPT')),
    )
  await engine.until('one of them is under way', hasBegun)
  await engine.warmup.suspendIp(FIRST, 'a test', 'test')
  await engine.until('all others left', () => engine.server.messages.length === ids.length - 1)
  t.same(Object.keys(sourcesOf(engine.server)), [SECOND_IP])
})
