/**
 * Before acceptance: the four cases of ip_not_warmed and no other, its figures, and the estimated start.
 */
import t from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import type { Pool } from '../../src/config/settings/pool-settings.ts'
import type { Projection, ProjectionRequest } from '../../src/egress/ips/egress-ip.ts'
import type { Egress } from '../../src/egress/egress.ts'
import {
  ipSettings,
  MIDNIGHT,
  poolOf,
  startAsked,
  startEgressWorld,
  warmed,
  withPools,
  type EgressWorld,
} from './egress-parts.ts'

const request = (changes: Partial<ProjectionRequest> = {}): ProjectionRequest => ({
  pool: 'default',
  isRequested: false,
  count: 1,
  stream: 'transactional',
  lifetime: 72 * HOUR,
  startsAt: MIDNIGHT,
  ...changes,
})

/** `ok`, or the code of the refusal. */
const answer = (egress: Egress, changes: Partial<ProjectionRequest> = {}): string => {
  const projection = egress.project(request(changes))
  return projection.kind === 'ok' ? 'ok' : projection.code
}

const startOf = (projection: Projection): number | null | string =>
  projection.kind === 'ok' ? projection.startsAt : projection.text

/** The clock goes on by some seconds in each test. */
const isNear = (projection: Projection, time: number): boolean => {
  const start = startOf(projection)
  return typeof start === 'number' && Math.abs(start - time) < MINUTE
}

/** One warming IP at stage 1: 50 a day, five at once. `queue` says what waits. */
async function warming(
  t: Parameters<typeof startEgressWorld>[0],
  changes: Partial<Pool> = {},
): Promise<EgressWorld & { queue(counts: Record<string, number>): Promise<void> }> {
  let backlog: Record<string, number> = {}
  const pools = { default: poolOf([ipSettings('127.0.0.11')], changes), spare: poolOf([ipSettings('127.0.0.21')]) }
  const world = await startEgressWorld(t, withPools(pools), { backlogOf: () => backlog })
  await world.warmup.start('127.0.0.11', startAsked(), 'cli')
  const queue = async (counts: Record<string, number>): Promise<void> => {
    backlog = counts
    await world.clock.advance(SECOND)
  }
  return { ...world, queue }
}

t.test('case 1: every IP that is not suspended or disabled is cold, here and in the overflow pool', async (t) => {
  const { egress, warmup } = await startEgressWorld(
    t,
    withPools({
      cold: poolOf([ipSettings('127.0.0.11'), warmed('127.0.0.12', { enabled: false })], { overflow_pool: 'cold2' }),
      cold2: poolOf([ipSettings('127.0.0.13')]),
      spilling: poolOf([ipSettings('127.0.0.14')], { overflow_pool: 'warm' }),
      deferring: poolOf([ipSettings('127.0.0.18')], { overflow: 'defer', overflow_pool: 'warm' }),
      warm: poolOf([warmed('127.0.0.15')]),
      lenient: poolOf([ipSettings('127.0.0.16')], { require_warmup: false }),
      halted: poolOf([warmed('127.0.0.17')]),
      empty: poolOf([]),
    }),
  )
  await warmup.suspendIp('127.0.0.17', null, 'cli')
  const cases: [string, string][] = [
    ['cold', 'ip_not_warmed'],
    ['spilling', 'ok'],
    ['deferring', 'ip_not_warmed'],
    ['warm', 'ok'],
    ['lenient', 'ok'],
    ['halted', 'unavailable'],
    ['empty', 'unavailable'],
    ['gone', 'unavailable'],
  ]
  for (const [pool, expected] of cases) t.equal(answer(egress, { pool }), expected, pool)
  t.match(egress.project(request({ pool: 'cold' })), {
    kind: 'refused',
    details: { cap: 0, granted: 0, backlog: 0, retry_after: 3_600 },
    retryAfterSeconds: 3_600,
    text: /cold: 127\.0\.0\.11, 127\.0\.0\.13 \(pool cold2\)\. Start its warmup with POST \/v1\/ips\/127\.0\.0\.11/,
  })
  t.match(egress.project(request({ pool: 'halted' })), { text: /127\.0\.0\.17 \(suspended by the operator\)/ })
})

t.test('case 2: overflow reject, as soon as the accepted mail uses up the day', async (t) => {
  const { egress, queue, clock } = await warming(t, { overflow: 'reject' })
  t.equal(answer(egress, { count: 50 }), 'ok')
  t.equal(answer(egress, { count: 51 }), 'ip_not_warmed')
  await queue({ gmail: 20, '': 29 })
  t.equal(answer(egress), 'ok', 'the fiftieth')
  const isStored = egress.expect('default', 1)
  t.match(
    egress.project(request()),
    { code: 'ip_not_warmed', details: { cap: 50, granted: 0, backlog: 50, retry_after: 86_399 } },
    'the fiftieth is being accepted',
  )
  isStored(false)
  t.equal(answer(egress), 'ok', 'it was not')
  egress.expect('default', 1)(true)
  t.equal(answer(egress), 'ip_not_warmed', 'it was; the queue is not counted again yet')
  await clock.advance(SECOND)
  await queue({})
  await egress.reserve([{ ip: '127.0.0.11', isp: 'gmail', count: 5 }])
  t.equal(answer(egress, { count: 45 }), 'ok')
  t.equal(answer(egress, { count: 46 }), 'ip_not_warmed')
  t.equal(answer(egress, { count: 50, startsAt: MIDNIGHT + DAY + HOUR }), 'ok', "another day's allowance")
  await clock.advance(DAY)
  t.equal(answer(egress, { count: 50, startsAt: MIDNIGHT + DAY }), 'ok', 'a new day')
})

t.test('case 3: a start later than max_defer, or than the lifetime', async (t) => {
  const { egress, queue } = await warming(t, { max_defer: 36 * HOUR, overflow: 'defer' })
  await queue({ '': 90 })
  t.equal(answer(egress), 'ok')
  t.match(egress.project(request({ count: 200 })), {
    code: 'ip_not_warmed',
    text: /127\.0\.0\.11 is at stage 1 of 30, cap=50 granted=0 backlog=90; .* limit 36 h/,
  })
  t.equal(answer(egress, { lifetime: HOUR }), 'ip_not_warmed', 'it would expire')
  t.equal(answer(egress, { lifetime: HOUR, startsAt: MIDNIGHT + 2.5 * DAY }), 'ok', 'but not when it is sent later')
  t.equal(answer(egress, { stream: 'bulk', count: 11 }), 'ok', 'the hundredth of 150 starts after 36 hours')
  t.equal(answer(egress, { stream: 'bulk', count: 12 }), 'ip_not_warmed')
})

t.test('case 4: the pool was asked for, and all its warming IPs are paused for longer than max_defer', async (t) => {
  const { egress, warmup, clock } = await warming(t)
  await warmup.pause('127.0.0.11', null, 'cli')
  t.equal(answer(egress, { isRequested: true }), 'ip_not_warmed')
  t.same(egress.project(request()), { kind: 'ok', startsAt: null }, 'its own domains wait')
  await warmup.resume('127.0.0.11', 'cli')
  egress.noteBlock({ ip: '127.0.0.11', isp: 'gmail', reason: 'blocked', isRule: true })
  while (egress.ips()[0]?.state !== 'paused') await clock.advance(1)
  t.equal(answer(egress, { isRequested: true }), 'ok', 'a pause of four hours is within a day')
})

t.test('no other: whatever is warmed, spilled to, or within the time is accepted', async (t) => {
  const { egress, queue, configuration, warmup } = await warming(t, { overflow_pool: 'spare' })
  await queue({ gmail: 1_000_000 })
  t.equal(answer(egress), 'ok', 'gmail has its share, others go beside it')
  await queue({ '': 1_000_000 })
  t.equal(answer(egress), 'ip_not_warmed', 'case 3')
  t.equal(answer(egress, { startsAt: MIDNIGHT + 90 * DAY }), 'ok', 'by then it is gone')
  await warmup.start('127.0.0.21', startAsked(), 'cli')
  t.equal(answer(egress), 'ip_not_warmed', 'a warming IP of the overflow pool takes no overflow')
  await warmup.complete('127.0.0.21', 'cli')
  t.same(egress.project(request({ count: 1_000 })), { kind: 'ok', startsAt: null })
  await configuration.replace(withPools({ default: poolOf([ipSettings('127.0.0.11'), warmed('127.0.0.12')]) }))
  t.same(egress.project(request({ count: 1_000 })), { kind: 'ok', startsAt: null }, 'a warmed one of its own')
})

t.test('the estimated start', async (t) => {
  const { egress, queue, clock } = await warming(t, { max_defer: 72 * HOUR })
  t.equal(startOf(egress.project(request({ count: 5 }))), null, 'a burst goes at once')
  t.equal(startOf(egress.project(request({ count: 40 }))), null, 'the first of a batch goes at once')
  await queue({ '': 25 })
  t.ok(isNear(egress.project(request()), MIDNIGHT + DAY / 2), 'behind half of the day')
  await queue({ '': 75 })
  t.ok(isNear(egress.project(request()), MIDNIGHT + 1.25 * DAY))
  await queue({})
  await egress.suspend('127.0.0.11', MIDNIGHT + HOUR, 'blocked by three providers', 'gate')
  t.equal(answer(egress), 'unavailable', 'suspended IPs promise nothing')
  await clock.advance(HOUR)
  while (egress.ips()[0]?.state !== 'warming') await clock.advance(1)
  egress.noteBlock({ ip: '127.0.0.11', isp: 'gmail', reason: 'blocked', isRule: true })
  while (egress.ips()[0]?.state !== 'paused') await clock.advance(1)
  t.ok(isNear(egress.project(request({ startsAt: clock.now() })), MIDNIGHT + 5 * HOUR), 'when the pause ends')
})

t.test('while a reload renames a pool its mail is accepted', async (t) => {
  const named = (pool: string): ReturnType<typeof withPools> =>
    withPools({ [pool]: poolOf([warmed('127.0.0.11')]) }, { default_pool: pool })
  const { egress, configuration } = await startEgressWorld(t, named('default'))
  const replaced = configuration.replace(named('other'))
  t.equal(answer(egress, { pool: egress.poolFor(null) }), 'ok')
  await replaced
  t.equal(answer(egress, { pool: 'other' }), 'ok')
})
