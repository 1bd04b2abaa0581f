/**
 * The life of a warmup on the real store: calls and their answers, days that close, pauses that end, idle IPs, what is
 * told and kept.
 */
import t from 'tap'
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import type { DnsAnswer } from '../../src/network/resolver.ts'
import type { Store } from '../../src/store/store.ts'
import type { WarmupDay } from '../../src/store/records/warmup-records.ts'
import { reversed } from '../../src/egress/ips/ip-facts.ts'
import type { Warmup } from '../../src/egress/moves/warmup.ts'
import {
  ipSettings,
  MIDNIGHT,
  poolOf,
  shipped,
  startAsked,
  startEgressWorld,
  warmed,
  withPools,
  type EgressWorld,
} from './egress-parts.ts'

const IP = '127.0.0.11'
const onePool = withPools({ default: poolOf([ipSettings(IP), warmed('127.0.0.12')]) })

async function code(answer: Promise<unknown>): Promise<string> {
  try {
    await answer
    return 'ok'
  } catch (thrown) {
    return thrown instanceof ServiceError ? thrown.code : String(thrown)
  }
}

const actions = async (warmup: Warmup, limit = 100): Promise<string[]> =>
  (await warmup.audit(IP, limit)).map(({ action, toStage }) => `${action} ${toStage ?? '-'}`).toReversed()

const untilState = async ({ egress, clock }: EgressWorld, state: string): Promise<void> => {
  for (let turn = 0; egress.ips()[0]?.state !== state; turn++) {
    if (turn > 10_000) throw new Error(`never ${state}`)
    await clock.advance(1)
  }
}

t.test('start, pause, resume, complete and restart, each answered as often as it is asked', async (t) => {
  const { warmup, clock } = await startEgressWorld(t, onePool)
  for (const call of [warmup.pause(IP, null, 'cli'), warmup.resume(IP, 'cli'), warmup.complete(IP, 'cli')]) {
    t.equal(await code(call), 'conflict', 'nothing was started')
  }
  t.equal((await warmup.find(IP)).warmup, null)
  const started = await warmup.start(IP, startAsked(), 'key_1')
  t.match(started, {
    ip: IP,
    pool: 'default',
    status: 'warming',
    isEnabled: true,
    isBindable: true,
    weight: 100,
    actor: 'key_1',
    ptr: { status: 'unknown', value: null },
    warmup: {
      status: 'warming',
      curve: 'standard',
      stage: 1,
      stages: 30,
      day: 1,
      startedAt: MIDNIGHT,
      dailyLimit: 50,
      hourlyLimit: 7,
      sentToday: 0,
      remainingToday: 50,
      resetsAt: MIDNIGHT + DAY,
      percent: 0,
      estimatedCompletion: MIDNIGHT + 30 * DAY,
      targetDailyVolume: 100_000,
      holdReason: null,
      pausedUntil: null,
      providers: {},
    },
  })
  await clock.advance(MINUTE)
  const again = await warmup.start(IP, startAsked({ stage: 9, curve: 'fast' }), 'key_2')
  t.same(again.warmup, started.warmup, 'unchanged')
  t.match(await warmup.pause(IP, 'a look at the lists', 'key_1'), {
    status: 'paused',
    reason: 'a look at the lists',
    warmup: { pausedUntil: null, estimatedCompletion: null },
  })
  t.match(await warmup.pause(IP, 'again', 'key_2'), { reason: 'a look at the lists', actor: 'key_1' })
  t.match(await warmup.start(IP, startAsked(), 'key_1'), { status: 'paused' }, 'resume continues')
  t.match(await warmup.resume(IP, 'key_1'), { status: 'warming', reason: null, warmup: { stage: 1 } })
  t.match(await warmup.resume(IP, 'key_1'), { status: 'warming' })
  t.match(await warmup.complete(IP, 'key_1'), {
    status: 'warmed',
    warmup: { percent: 100, dailyLimit: null, remainingToday: null, estimatedCompletion: null },
  })
  t.match(await warmup.complete(IP, 'key_1'), { status: 'warmed' })
  t.equal(await code(warmup.pause(IP, null, 'cli')), 'conflict')
  t.equal(await code(warmup.start(IP, startAsked(), 'cli')), 'conflict')
  const asked = startAsked({ restart: true, curve: 'fast', stage: 2, targetDailyVolume: 5_000 })
  const anew = await warmup.start(IP, asked, 'key_1')
  t.match(anew.warmup, { curve: 'fast', stage: 2, dailyLimit: 500, targetDailyVolume: 5_000 })
  t.equal(anew.warmup?.estimatedCompletion, MIDNIGHT + 6 * DAY, 'stage 5 of fast, three days at the target')
  t.same(await actions(warmup), ['start 1', 'pause 1', 'resume 1', 'complete 1', 'restart 2'])
})

t.test('what cannot be answered', async (t) => {
  const world = await startEgressWorld(t, onePool)
  const { warmup, egress, missing } = world
  t.equal(await code(warmup.find('192.0.2.9')), 'not_found')
  t.equal(await code(warmup.find('not an IP')), 'invalid_request')
  t.equal(await code(warmup.start(IP, startAsked({ curve: 'steep' }), 'cli')), 'invalid_request')
  t.equal(await code(warmup.start(IP, startAsked({ stage: 31 }), 'cli')), 'invalid_request')
  t.equal(await code(warmup.start('127.0.0.12', startAsked(), 'cli')), 'conflict', 'configured as warmed')
  const range = { from: MIDNIGHT - 17 * DAY, to: MIDNIGHT, interval: 'hour' as const }
  t.equal(await code(warmup.statistics(IP, range)), 'invalid_request', 'more than 400 points')
  t.equal(await code(warmup.statistics(IP, { ...range, from: MIDNIGHT })), 'invalid_request')
  egress.disable(IP, 'EADDRNOTAVAIL')
  missing.add(IP)
  await warmup.closeDays()
  t.equal(await code(warmup.start(IP, startAsked(), 'cli')), 'conflict', 'not bindable')
  t.equal(await code(warmup.start(IP, startAsked({ force: true }), 'cli')), 'ok')
  t.match(await warmup.find(IP), { status: 'disabled', isBindable: false, reason: 'EADDRNOTAVAIL' })
})

/** Every granted message was delivered, as if the wire were there. */
function delivering(store: Store, changes: Partial<WarmupDay> = {}): Store {
  return {
    ...store,
    async warmupDays(ip, from) {
      const rows = await store.warmupDays(ip, from)
      return rows.map((row) => ({ ...row, firstAttempts: row.granted, delivered: row.granted, ...changes }))
    },
  }
}

t.test('days close with the first grant or look of a later one, and a restart goes on', async (t) => {
  const first = await startEgressWorld(t, onePool)
  const seen: string[] = []
  const world = await startEgressWorld(t, onePool, {
    store: delivering(first.store),
    now: MIDNIGHT,
    onEvents: () => void seen.push('event'),
  })
  const { egress, warmup, clock, restart } = world
  await warmup.start(IP, startAsked(), 'cli')
  for (let hour = 0; hour < 24; hour++) {
    await egress.reserve([
      { ip: IP, isp: 'gmail', count: 50 },
      { ip: IP, isp: 'example.net', count: 50 },
    ])
    await clock.advance(HOUR)
  }
  const [granted] = await egress.reserve([{ ip: IP, isp: 'gmail', count: 1 }])
  t.match(granted, { granted: 1, day: '2026-11-22' })
  const { warmup: view } = await warmup.find(IP)
  t.match(view, { stage: 2, day: 2, dailyLimit: 100, sentToday: 1 })
  t.same(view?.providers, { gmail: { dailyLimit: 50, sentToday: 1 } })
  t.same(seen, ['event'])
  await clock.advance(3 * DAY)
  const again = await restart()
  t.match((await again.warmup.find(IP)).warmup, { stage: 2, day: 5, holdReason: 'idle: no mail', sentToday: 0 })
  t.same(await actions(again.warmup), ['start 1', 'advance 2', 'hold 2', 'hold 2', 'hold 2'])
  await again.warmup.closeDays()
  t.equal((await actions(again.warmup)).length, 5, 'each day once')
})

t.test('no day closes while the clock is not steady', async (t) => {
  let isSteady = false
  const { warmup, clock } = await startEgressWorld(t, onePool, { isClockSteady: () => isSteady })
  await warmup.start(IP, startAsked(), 'cli')
  await clock.advance(DAY)
  await warmup.closeDays()
  t.same(await actions(warmup), ['start 1'])
  isSteady = true
  await warmup.closeDays()
  t.same(await actions(warmup), ['start 1', 'hold 1'])
})

t.test('days go on after a clock that ran ahead was set back', async (t) => {
  const { warmup, clock } = await startEgressWorld(t, onePool, { now: MIDNIGHT })
  await warmup.start(IP, startAsked(), 'cli')
  clock.set(MIDNIGHT + 3 * DAY)
  await warmup.closeDays()
  t.same(await actions(warmup), ['start 1', 'hold 1', 'hold 1', 'hold 1'])
  clock.set(MIDNIGHT + HOUR)
  await warmup.closeDays()
  await clock.advance(DAY)
  await warmup.closeDays()
  t.equal((await actions(warmup)).length, 4, 'today was closed')
  await clock.advance(DAY)
  await warmup.closeDays()
  t.equal((await actions(warmup)).length, 5, 'tomorrow closes')
})

t.test('a block pauses for four hours, the next ones for longer, up to a day', async (t) => {
  const world = await startEgressWorld(t, onePool)
  const { egress, warmup, clock } = world
  await warmup.start(IP, startAsked(), 'cli')
  const block = (isRule: boolean): void => egress.noteBlock({ ip: IP, isp: 'gmail', reason: '550 blocked', isRule })
  for (let count = 0; count < 4; count++) block(false)
  await clock.advance(MINUTE)
  t.equal(egress.ips()[0]?.state, 'warming', 'four replies are not five')
  block(false)
  await untilState(world, 'paused')
  t.match(egress.ips()[0], { sends: 'retries', reason: 'block: gmail: 550 blocked' })
  for (const hours of [4, 8, 16, 24, 24]) {
    const { until = 0 } = egress.ips()[0] ?? {}
    t.equal(Math.round(((until ?? 0) - clock.now()) / HOUR), hours)
    await clock.advance(hours * HOUR)
    await untilState(world, 'warming')
    block(true)
    await untilState(world, 'paused')
  }
  t.equal((await warmup.find(IP)).warmup?.stage, 1, 'at the same stage')
})

t.test('a pause by hand takes over that of a gate, which would end by itself', async (t) => {
  const world = await startEgressWorld(t, onePool)
  const { egress, warmup, clock } = world
  await warmup.start(IP, startAsked(), 'cli')
  egress.noteBlock({ ip: IP, isp: 'gmail', reason: '550 blocked', isRule: true })
  await untilState(world, 'paused')
  const paused = { status: 'paused', reason: 'a look at it', actor: 'key_1', warmup: { pausedUntil: null } }
  t.match(await warmup.pause(IP, 'a look at it', 'key_1'), paused)
  await clock.advance(5 * HOUR)
  await warmup.closeDays()
  t.match(await warmup.find(IP), paused)
  t.match(await warmup.resume(IP, 'key_1'), { status: 'warming' })
  t.same(await actions(warmup), ['start 1', 'pause 1', 'pause 1', 'resume 1'])
})

t.test('the gates of the last hour', async (t) => {
  const first = await startEgressWorld(t, onePool)
  const health = { firstAttempts: 100, hard: 10, complained: 0, delivered: 90, blocks: 0 }
  const since: number[] = []
  const store: Store = {
    ...first.store,
    async ipHealth(_ip, from) {
      since.push(from)
      return health
    },
  }
  const world = await startEgressWorld(t, onePool, { store })
  await world.warmup.start(IP, startAsked(), 'cli')
  await world.clock.advance(2 * HOUR)
  await world.warmup.checkGates()
  t.match(world.egress.ips()[0], { state: 'paused', reason: /^hard_bounce: 10 of 100/ })
  await world.clock.advance(4 * HOUR)
  await untilState(world, 'warming')
  await world.clock.advance(10 * MINUTE)
  health.hard = 0
  health.blocks = 5
  await world.warmup.checkGates()
  t.match(world.egress.ips()[0], { state: 'paused', reason: /^block: 5 replies/ })
  t.equal(since[0], MIDNIGHT + HOUR)
  t.ok((since[1] ?? 0) >= MIDNIGHT + 6 * HOUR, 'what led to the first pause does not lead to the second')
})

t.test('a suspension ends by itself and leads back to the state before', async (t) => {
  let told = 0
  const world = await startEgressWorld(t, onePool, {
    onEvents: () => {
      told += 1
    },
  })
  const { egress, warmup, clock } = world
  await warmup.start(IP, startAsked(), 'cli')
  await egress.suspend(IP, MIDNIGHT + HOUR, 'blocked by three providers', 'gate')
  t.equal(told, 1)
  t.match(egress.ips()[0], { state: 'suspended', sends: 'nothing', until: MIDNIGHT + HOUR })
  await egress.suspend(IP, MIDNIGHT + MINUTE, 'shorter', 'gate')
  await egress.suspend(IP, MIDNIGHT + 2 * HOUR, 'longer', 'gate')
  t.match(egress.ips()[0], { until: MIDNIGHT + 2 * HOUR, reason: 'longer' })
  await clock.advance(2 * HOUR)
  await untilState(world, 'warming')
  await warmup.pause(IP, null, 'cli')
  told = 0
  await warmup.suspendIp(IP, null, 'cli')
  t.equal(told, 0, 'one by hand is no news')
  t.match(await warmup.resumeIp(IP, 'cli'), { status: 'paused' }, 'also back into a pause by hand')
  await warmup.suspendIp(IP, null, 'cli')
  t.equal(await code(warmup.resume(IP, 'cli')), 'conflict')
  t.match(await warmup.start(IP, startAsked({ restart: true }), 'cli'), { status: 'warming', until: null })
})

t.test('thirty idle days: back to half of the best day', async (t) => {
  const first = await startEgressWorld(t, onePool)
  let best = 3_000
  const store: Store = {
    ...first.store,
    ipDays: async () => [
      { day: '2026-11-01', messages: 10 },
      { day: '2026-10-30', messages: best },
    ],
  }
  const { egress, warmup, clock } = await startEgressWorld(t, onePool, { store })
  await warmup.start(IP, startAsked({ stage: 12 }), 'cli')
  await clock.advance(29 * DAY)
  await warmup.closeDays()
  t.match(
    egress.ips().map(({ state }) => state),
    ['warming', 'warmed'],
  )
  t.equal((await warmup.find(IP)).warmup?.stage, 12)
  await clock.advance(DAY)
  await warmup.closeDays()
  const [one, other] = await warmup.list()
  t.match(one?.warmup, { stage: 8, dailyLimit: 1_500, day: 1 })
  t.match(other, { status: 'warming', actor: 'clock', warmup: { stage: 8 } }, 'one configured as warmed as well')
  await warmup.pause(IP, null, 'cli')
  await clock.advance(31 * DAY)
  best = 100
  t.match((await warmup.resume(IP, 'cli')).warmup, { stage: 1, day: 1 })
})

t.test('reverse names and blocklists', async (t) => {
  const found = (...records: string[]): DnsAnswer<string> => ({ kind: 'found', records })
  const answers = new Map<string, DnsAnswer<string>>([
    ['11.0.0.127.in-addr.arpa', { kind: 'no-name' }],
    ['12.0.0.127.in-addr.arpa', found('MTA-127.0.0.12.example')],
    ['mta-127.0.0.12.example', found('127.0.0.12')],
    ['11.0.0.127.one.example', found('127.0.0.2')],
    ['12.0.0.127.one.example', { kind: 'no-name' }],
    ['11.0.0.127.two.example', found('127.255.255.254')],
    ['12.0.0.127.two.example', { kind: 'no-answer', reason: 'timeout' }],
  ])
  let lookups = 0
  const look = async (name: string): Promise<DnsAnswer<string>> => {
    lookups += 1
    return answers.get(name) ?? { kind: 'no-record' }
  }
  const server = { ...shipped.server, health: { ...shipped.server.health, blocklists: ['one.example', 'two.example'] } }
  const lookUps = { lookups: { ptr: look, addresses: look } }
  const { warmup, clock } = await startEgressWorld(t, { ...onePool, server }, lookUps)
  const unknown = (zone: string): object => ({ zone, isListed: null, checkedAt: null })
  t.same((await warmup.find(IP)).blocklists, [unknown('one.example'), unknown('two.example')], 'no request waits')
  t.equal(lookups, 0)
  await warmup.checkGates()
  const checkedAt = clock.now()
  const [one, other] = await warmup.list()
  t.same(one?.ptr, { status: 'missing', value: null, checkedAt })
  t.same(
    one?.blocklists.map(({ isListed }) => isListed),
    [true, null],
  )
  t.same(other?.ptr, { status: 'ok', value: 'mta-127.0.0.12.example', checkedAt })
  t.same(
    other?.blocklists.map(({ isListed }) => isListed),
    [false, null],
  )
  const before = lookups
  await warmup.checkGates()
  t.equal(lookups, before, 'at most hourly')
  t.equal(await code(warmup.start(IP, startAsked(), 'cli')), 'conflict', 'no reverse name')
  answers.set('11.0.0.127.in-addr.arpa', found('host.provider.example'))
  await clock.advance(HOUR)
  await warmup.checkGates()
  t.equal(await code(warmup.start(IP, startAsked(), 'cli')), 'conflict', 'not ours')
  answers.set('11.0.0.127.in-addr.arpa', found('mta-127.0.0.11.example'))
  answers.set('mta-127.0.0.11.example', found('127.0.0.11'))
  t.equal(await code(warmup.start(IP, startAsked(), 'cli')), 'ok', 'what was mended is seen at once')
  t.equal(reversed('2001:db8::567:89ab'), 'b.a.9.8.7.6.5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2')
})

t.test('forecast and statistics of an IP', async (t) => {
  const backlog: Record<string, number> = {}
  const { warmup } = await startEgressWorld(t, onePool, {
    backlogOf: () => backlog,
    waitingOf: () => [{ isp: 'gmail', count: 12, reason: 'provider_share' }],
  })
  const asked = { recipients: 1_000, isp: null, startAt: null }
  t.match(await warmup.forecast(IP, asked), {
    ip: IP,
    recipients: 1_000,
    backlog: 0,
    startAt: MIDNIGHT,
    finishAt: MIDNIGHT + 4.6 * DAY,
    fitsMaxDefer: false,
    fitsLifetime: false,
    days: [
      { date: '2026-11-21', stage: 1, dailyLimit: 50, planned: 50, boundBy: 'cap' },
      { planned: 100 },
      { planned: 200 },
      { planned: 350 },
      { date: '2026-11-25', stage: 5, dailyLimit: 500, planned: 300, boundBy: null },
    ],
  })
  t.match(await warmup.forecast(IP, { ...asked, recipients: 40, isp: 'gmail' }), {
    fitsMaxDefer: false,
    fitsLifetime: true,
    days: [{ planned: 25, boundBy: 'share:gmail' }, { planned: 15 }],
  })
  t.match(await warmup.forecast('127.0.0.12', { ...asked, recipients: 1_000_000 }), { fitsMaxDefer: true })
  backlog['gmail'] = 25
  t.match(await warmup.forecast(IP, { ...asked, recipients: 10 }), { backlog: 0 }, 'it leaves from the warmed one')
  const range = { from: MIDNIGHT - 7 * DAY, to: MIDNIGHT, interval: 'day' as const }
  const view = await warmup.statistics(IP, range)
  t.match(view, {
    ip: IP,
    totals: { messages: 0, delivered: 0, queuedNow: 12 },
    rates: { delivery: 0, bounce: 0 },
    byProvider: [],
    waiting: [{ isp: 'gmail', count: 12, reason: 'provider_share' }],
  })
  t.equal(view.series.length, 7)
})
