/**
 * What a reload of warmup.yaml and pools.yaml does to IPs that are warming up, and what a suspension does not do to one
 * that is warmed.
 */
import t from 'tap'
import { DAY } from '../../src/base/clock.ts'
import type { Configuration } from '../../src/config/load-configuration.ts'
import type { WarmupCurve } from '../../src/config/settings/warmup-settings.ts'
import {
  ipSettings,
  poolOf,
  shipped,
  startAsked,
  startEgressWorld,
  withPools,
  type EgressWorld,
} from './egress-parts.ts'

const IP = '127.0.0.11'
const onePool = withPools({ default: poolOf([ipSettings(IP)]) })
const standard = shipped.warmup.curves['standard']
if (standard === undefined) throw new Error('the shipped files have a curve called standard')
const base: WarmupCurve = standard

const withCurves = (curves: Record<string, WarmupCurve>): Configuration => ({
  ...onePool,
  warmup: { ...onePool.warmup, curves: { standard: base, ...curves } },
})

const slow: WarmupCurve = { ...base, stages: Array.from({ length: 40 }, (_, index) => 50 + index * 10) }

async function caps({ store, clock }: EgressWorld): Promise<Record<string, number>> {
  const rows = await store.warmupDays(IP, new Date(clock.now()).toISOString().slice(0, 10))
  return Object.fromEntries(rows.map(({ isp, cap }) => [isp, cap]))
}

t.test('a curve that is gone: the new one allows no more than it did', async (t) => {
  t.test('while running', async (t) => {
    const { warmup, configuration } = await startEgressWorld(t, withCurves({ slow }))
    await warmup.start(IP, startAsked({ curve: 'slow', stage: 40 }), 'cli')
    await configuration.replace(withCurves({}))
    t.match((await warmup.find(IP)).warmup, { curve: 'standard', stage: 4, dailyLimit: 350 })
    t.match(await warmup.audit(IP, 1), [{ action: 'stage', actor: 'config', fromStage: 40, toStage: 4 }])
  })
  t.test('found at a start', async (t) => {
    const world = await startEgressWorld(t, withCurves({ slow }))
    await world.warmup.start(IP, startAsked({ curve: 'slow', stage: 40 }), 'cli')
    await world.egress.reserve([{ ip: IP, isp: 'gmail', count: 1 }])
    const again = await startEgressWorld(t, withCurves({}), { store: world.store })
    t.match((await again.warmup.find(IP)).warmup, { curve: 'standard', stage: 4 }, 'as the last day allowed')
  })
  t.test('of which nothing is known', async (t) => {
    const world = await startEgressWorld(t, withCurves({ slow }))
    await world.warmup.start(IP, startAsked({ curve: 'slow', stage: 40 }), 'cli')
    const again = await startEgressWorld(t, withCurves({}), { store: world.store })
    t.match((await again.warmup.find(IP)).warmup, { curve: 'standard', stage: 1 })
  })
})

t.test('other numbers in a curve hold for the day that has begun, never below what was granted', async (t) => {
  const world = await startEgressWorld(t, withCurves({}))
  const { warmup, egress, configuration, restart } = world
  await warmup.start(IP, startAsked({ stage: 7 }), 'cli')
  await egress.reserve([{ ip: IP, isp: 'gmail', count: 10 }])
  t.same(await caps(world), { '*': 1_000, gmail: 500 })
  await configuration.replace(withCurves({ standard: { ...base, stages: base.stages.map((cap) => cap / 10) } }))
  t.same(await caps(world), { '*': 100, gmail: 50 })
  const reason = 'curve standard: 1000 -> 100 a day'
  t.match(await warmup.audit(IP, 1), [{ action: 'stage', actor: 'config', reason }])
  const least = base.stages.map((cap) => Math.ceil(cap / 200))
  await configuration.replace(withCurves({ standard: { ...base, stages: least } }))
  t.same(await caps(world), { '*': 10, gmail: 10 }, '5 a day, of which 10 are gone')
  const rows = (await warmup.audit(IP, 100)).length
  const again = await restart()
  t.equal((await again.warmup.audit(IP, 100)).length, rows, 'nothing is news to a restart')
})

t.test('a curve that is taken back at once costs no stage', async (t) => {
  const pools = (curve: string): Configuration => {
    const ips = [ipSettings(IP, { curve })]
    return { ...withCurves({ slow }), pools: { ...onePool.pools, pools: { default: poolOf(ips) } } }
  }
  const { warmup, configuration } = await startEgressWorld(t, pools('standard'))
  await warmup.start(IP, startAsked({ stage: 5 }), 'cli')
  const refuse = async (): Promise<void> => {
    throw new Error('a later part refuses it')
  }
  await t.rejects(configuration.replace(pools('slow'), refuse))
  t.match((await warmup.find(IP)).warmup, { curve: 'standard', stage: 5 }, 'a reload that fails')
  await configuration.replace(pools('slow'))
  t.match((await warmup.find(IP)).warmup, { curve: 'slow', stage: 40 }, 'as much as it had, or less')
  await configuration.replace(pools('standard'))
  t.match((await warmup.find(IP)).warmup, { curve: 'standard', stage: 5 }, 'and the way back')
})

t.test('what a day that is used up may send more can go at once', async (t) => {
  const withFirst = (cap: number): Configuration => withCurves({ standard: { ...base, stages: [cap, 200] } })
  const { warmup, egress, configuration } = await startEgressWorld(t, withFirst(10))
  await warmup.start(IP, startAsked({}), 'cli')
  const ask = [{ ip: IP, isp: 'gmail', count: 10 }]
  t.match(await egress.reserve(ask), [{ granted: 5, reason: 'provider_share' }])
  await configuration.replace(withFirst(100))
  t.match(await egress.reserve(ask), [{ granted: 5, reason: 'provider_share' }], 'a burst')
})

t.test('another curve allows no more than the former one did, also when that gets other numbers at once', async (t) => {
  const { warmup, configuration } = await startEgressWorld(t, withCurves({}))
  await warmup.start(IP, startAsked({ stage: 4 }), 'cli')
  const { warmup: settings } = withCurves({ standard: { ...base, stages: base.stages.map((cap) => cap * 10) }, slow })
  await configuration.replace({
    ...withPools({ default: poolOf([ipSettings(IP, { curve: 'slow' })]) }),
    warmup: settings,
  })
  t.match((await warmup.find(IP)).warmup, { curve: 'slow', stage: 31, dailyLimit: 350 })
})

t.test('a suspended IP that was warmed has no warmup days', async (t) => {
  const { warmup, clock } = await startEgressWorld(t, onePool)
  await warmup.start(IP, startAsked(), 'cli')
  await warmup.complete(IP, 'cli')
  await clock.advance(DAY)
  await warmup.suspendIp(IP, null, 'cli')
  await clock.advance(3 * DAY)
  await warmup.closeDays()
  t.match(await warmup.find(IP), { status: 'suspended', warmup: { percent: 100, dailyLimit: null, holdReason: null } })
  await warmup.resumeIp(IP, 'cli')
  t.match(await warmup.find(IP), { status: 'warmed' })
  t.same(
    (await warmup.audit(IP, 100)).map(({ action }) => action),
    ['unsuspend', 'suspend', 'complete', 'start'],
  )
})

t.test('of two starts at once the second changes nothing', async (t) => {
  const { warmup } = await startEgressWorld(t, onePool)
  await Promise.all([warmup.start(IP, startAsked({ stage: 3 }), 'key_1'), warmup.start(IP, startAsked(), 'key_2')])
  t.match((await warmup.find(IP)).warmup, { stage: 3 })
  t.same(
    (await warmup.audit(IP, 100)).map(({ action }) => action),
    ['start'],
  )
})
