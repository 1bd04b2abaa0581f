/**
 * Pools and the choice of an IP: states from the files and the machine, tiers, kept and avoided IPs, closed paths, and
 * a reload.
 */
import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import type { EgressIp, IpRequest, PathState } from '../../src/egress/ips/egress-ip.ts'
import type { Egress } from '../../src/egress/egress.ts'
import { canBind } from '../../src/network/local-addresses.ts'
import {
  chosen,
  ipRequest,
  ipSettings,
  MIDNIGHT,
  open,
  poolOf,
  startAsked,
  startEgressWorld,
  warmed,
  withPools,
} from './egress-parts.ts'

const states = (egress: Egress): Record<string, string> =>
  Object.fromEntries(egress.ips().map(({ address, state, reason }) => [address, reason ?? state]))

/** The addresses of many messages. */
function spread(
  egress: Egress,
  changes: Partial<IpRequest> = {},
  pathOf: (ip: EgressIp) => PathState = open,
): Set<string> {
  const ids = Array.from({ length: 60 }, (_, index) => `msg_${index}`)
  return new Set(ids.map((messageId) => chosen(egress, { messageId, ...changes }, pathOf)))
}

const closedFor =
  (waitingFor: 'suspension' | 'connections', addresses: string[], until = MIDNIGHT + HOUR) =>
  (ip: EgressIp): PathState =>
    addresses.includes(ip.address) ? { kind: 'closed', until, waitingFor, text: 'closed' } : open()

t.test('states follow the configuration and the machine', async (t) => {
  const { egress, log } = await startEgressWorld(
    t,
    withPools({
      default: poolOf([
        warmed('127.0.0.11'),
        ipSettings('127.0.0.12'),
        warmed('127.0.0.13', { enabled: false }),
        warmed('127.0.0.14'),
        warmed('203.0.113.15', { source: '127.0.0.15' }),
      ]),
      lenient: poolOf([ipSettings('127.0.0.21')], { require_warmup: false }),
      empty: poolOf([]),
    }),
    { missing: ['127.0.0.14', '203.0.113.15'] },
  )
  t.same(states(egress), {
    '127.0.0.11': 'warmed',
    '127.0.0.12': 'cold',
    '127.0.0.13': 'disabled in pools.yaml',
    '127.0.0.14': 'unplumbed',
    '203.0.113.15': 'warmed',
    '127.0.0.21': 'cold',
  })
  t.same(
    egress.ips().map(({ sends }) => sends),
    ['all', 'nothing', 'nothing', 'nothing', 'all', 'all'],
  )
  t.same(egress.sendingPools(), ['default', 'lenient'])
  t.equal(log.filter((line) => line.includes('egress IP disabled')).length, 1)
  t.equal(chosen(egress, { pool: 'lenient' }), '127.0.0.21')
  t.match(egress.choose(ipRequest({ pool: 'empty' }), open), { kind: 'wait', until: null })
  t.match(egress.choose(ipRequest({ pool: 'gone' }), open), { kind: 'wait', until: null })
})

t.test('the bind test knows what this machine has', async (t) => {
  for (const address of ['127.0.0.1', '127.0.0.11']) t.equal(await canBind(address), true, address)
  const missing = ['192.0.2.1', '2001:db8::1', 'localhost', '', 'not an address', '127.1', '::1%lo', '127.0.0.1:25']
  for (const address of missing) t.equal(await canBind(address), false, JSON.stringify(address))
})

t.test('a message uses the pool of its domain, and the default pool when that is gone', async (t) => {
  const { egress } = await startEgressWorld(t, withPools({ default: poolOf([]), bulk: poolOf([]) }))
  const cases: [string | null, string][] = [
    ['bulk', 'bulk'],
    ['default', 'default'],
    [null, 'default'],
    ['gone', 'default'],
    ['', 'default'],
    ['constructor', 'default'],
    ['__proto__', 'default'],
  ]
  for (const [given, expected] of cases) t.equal(egress.poolFor(given), expected, String(given))
  t.same(egress.poolNames(), ['default', 'bulk'])
})

t.test('warming IPs come first, then those of the pool, then the overflow pool', async (t) => {
  const world = await startEgressWorld(
    t,
    withPools({
      default: poolOf([ipSettings('127.0.0.11'), warmed('127.0.0.12')], { overflow_pool: 'spare' }),
      deferring: poolOf([ipSettings('127.0.0.13')], { overflow: 'defer', overflow_pool: 'spare' }),
      spare: poolOf([warmed('127.0.0.21'), ipSettings('127.0.0.22')]),
    }),
  )
  const { egress, warmup } = world
  t.same(spread(egress), new Set(['127.0.0.12']), 'a cold one sends nothing')
  await warmup.start('127.0.0.11', startAsked(), 'cli')
  t.same(spread(egress), new Set(['127.0.0.11']))
  t.match(egress.choose(ipRequest(), open), { kind: 'ip', needsGrant: true, ip: { newIpLimits: { connections: 2 } } })
  t.same(spread(egress, { attempts: 1, lastIp: '127.0.0.12' }), new Set(['127.0.0.12']), 'a retry needs none')
  const [granted] = await egress.reserve([{ ip: '127.0.0.11', isp: 'gmail', count: 9 }])
  t.match(granted, { granted: 5, reason: 'warmup_hour', day: '2026-11-21' }, 'the burst')
  t.same(spread(egress), new Set(['127.0.0.12']), 'over the allowance')
  egress.disable('127.0.0.12', 'EADDRNOTAVAIL')
  t.same(spread(egress), new Set(['127.0.0.21']), 'spilled')
  egress.disable('127.0.0.21', 'EADDRNOTAVAIL')
  t.same(spread(egress), new Set(['warmup_hour']), 'never another source')
  const wait = egress.choose(ipRequest(), open)
  t.ok(wait.kind === 'wait' && wait.until !== null && wait.until > MIDNIGHT && wait.until <= MIDNIGHT + DAY)
  await warmup.start('127.0.0.13', startAsked(), 'cli')
  await egress.reserve([{ ip: '127.0.0.13', isp: 'gmail', count: 9 }])
  t.equal(chosen(egress, { pool: 'deferring' }), 'warmup_hour', 'a pool that defers never spills')
  t.equal(chosen(egress, { pool: 'deferring', attempts: 2, lastIp: '127.0.0.13' }), '127.0.0.13', 'its own retry goes')
})

t.test('candidates tell what may be hoped for and when', async (t) => {
  const { egress, warmup } = await startEgressWorld(
    t,
    withPools(
      {
        default: poolOf([ipSettings('127.0.0.11'), warmed('127.0.0.12')], { overflow_pool: 'spare' }),
        spare: poolOf([warmed('127.0.0.21')]),
      },
      { warmup_streams: ['transactional'] },
    ),
  )
  await warmup.start('127.0.0.11', startAsked(), 'cli')
  const candidates = (isRetry = false, stream: 'transactional' | 'bulk' = 'transactional') =>
    egress
      .candidates({ pool: 'default', stream, isp: 'gmail', isRetry })
      .map(({ ip, tier, hope }) => [ip.address, tier, hope])
  const others = [
    ['127.0.0.12', 2, Infinity],
    ['127.0.0.21', 3, Infinity],
  ]
  t.same(candidates(), [['127.0.0.11', 1, 5], ...others])
  t.same(candidates(true), [['127.0.0.11', 1, Infinity], ...others])
  t.same(candidates(false, 'bulk'), others, 'a stream that may not use warming IPs')
  await egress.reserve([{ ip: '127.0.0.11', isp: 'gmail', count: 5 }])
  const [refused] = egress.candidates({ pool: 'default', stream: 'transactional', isp: 'gmail', isRetry: false })
  t.match(refused, { hope: 0, waitingFor: 'warmup_hour' })
  t.ok((refused?.nextAt ?? 0) > MIDNIGHT)
  egress.noteRefund('127.0.0.11', 'gmail')
  t.match(candidates()[0], ['127.0.0.11', 1, 5])
  await warmup.pause('127.0.0.11', null, 'cli')
  t.same(
    candidates()
      .map(([address, , hope]) => [address, hope])
      .at(-1),
    ['127.0.0.11', 0],
  )
  t.same(candidates(true).at(-1), ['127.0.0.11', 1, Infinity])
})

t.test('mail that may not use warming IPs says so', async (t) => {
  const pools = withPools({ default: poolOf([ipSettings('127.0.0.11')]) }, { warmup_streams: ['transactional'] })
  const { egress, warmup } = await startEgressWorld(t, pools)
  await warmup.start('127.0.0.11', startAsked(), 'cli')
  t.match(egress.choose(ipRequest({ stream: 'bulk' }), open), { kind: 'wait', until: null, text: /warmup_streams/ })
  const mail = { pool: 'default', isRequested: false, count: 1, lifetime: DAY, startsAt: MIDNIGHT }
  t.match(egress.project({ ...mail, stream: 'bulk' }), { code: 'ip_not_warmed', text: /take no bulk mail/ })
  t.match(egress.project({ ...mail, stream: 'transactional' }), { kind: 'ok' })
})

t.test('weight 0 is used only when no other IP of the pool can send', async (t) => {
  const { egress } = await startEgressWorld(
    t,
    withPools({
      default: poolOf(
        [warmed('127.0.0.11', { weight: 0 }), warmed('127.0.0.12', { weight: 0 }), warmed('127.0.0.13', { weight: 1 })],
        { overflow_pool: 'spare' },
      ),
      spare: poolOf([warmed('127.0.0.21')]),
    }),
  )
  t.same(spread(egress), new Set(['127.0.0.13']))
  t.same(spread(egress, {}, closedFor('connections', ['127.0.0.13'])), new Set(['connections']), 'busy can')
  t.same(spread(egress, {}, closedFor('suspension', ['127.0.0.13'])), new Set(['127.0.0.11', '127.0.0.12']))
  egress.disable('127.0.0.13', 'test')
  t.same(spread(egress), new Set(['127.0.0.11', '127.0.0.12']))
})

t.test('a kept IP: waited for when bound, left when it cannot send', async (t) => {
  const { egress, warmup, clock } = await startEgressWorld(
    t,
    withPools({
      default: poolOf([warmed('127.0.0.11'), warmed('127.0.0.12')], { overflow_pool: 'spare' }),
      spare: poolOf([warmed('127.0.0.21')]),
      other: poolOf([warmed('127.0.0.31')]),
    }),
  )
  for (const lastIp of ['127.0.0.11', '127.0.0.12', '127.0.0.21']) {
    t.same(spread(egress, { lastIp, keepIpUntil: 0, attempts: 1 }), new Set([lastIp]))
  }
  const both = new Set(['127.0.0.11', '127.0.0.12'])
  for (const lastIp of ['127.0.0.31', '192.0.2.1']) {
    t.same(spread(egress, { lastIp, keepIpUntil: 0, attempts: 1 }), both, 'of another pool, or gone')
  }
  t.same(spread(egress, { lastIp: '127.0.0.11', attempts: 1 }), both, 'free choice')
  const bound = { lastIp: '127.0.0.11', attempts: 1, keepIpUntil: MIDNIGHT + 4 * HOUR }
  t.same(spread(egress, { ...bound, avoidIps: ['127.0.0.11'] }), new Set(['127.0.0.12']), 'blocked since')
  const suspended = closedFor('suspension', ['127.0.0.11'], MIDNIGHT + 9 * HOUR)
  t.match(egress.choose(ipRequest(bound), suspended), { kind: 'wait', until: MIDNIGHT + 4 * HOUR })
  t.same(spread(egress, { ...bound, keepIpUntil: 0 }, suspended), new Set(['127.0.0.12']))
  const busy = closedFor('connections', ['127.0.0.11'])
  t.match(egress.choose(ipRequest({ ...bound, keepIpUntil: 0 }), busy), { kind: 'wait', waitingFor: 'connections' })
  await warmup.suspendIp('127.0.0.11', 'by hand', 'cli')
  t.match(egress.choose(ipRequest(bound), open), {
    kind: 'wait',
    waitingFor: 'suspension',
    until: MIDNIGHT + 4 * HOUR,
    text: '127.0.0.11 is suspended: by hand.',
  })
  t.same(spread(egress, { ...bound, keepIpUntil: 0 }), new Set(['127.0.0.12']))
  await clock.advance(4 * HOUR)
  t.same(spread(egress, bound), new Set(['127.0.0.12']), 'after four hours free choice')
})

t.test('closed paths: the next score, then the earliest time; the overflow pool not for busy ones', async (t) => {
  const { egress } = await startEgressWorld(
    t,
    withPools({
      default: poolOf([warmed('127.0.0.11'), warmed('127.0.0.12')], { overflow_pool: 'spare' }),
      spare: poolOf([warmed('127.0.0.21')]),
    }),
  )
  const own = ['127.0.0.11', '127.0.0.12']
  t.same(spread(egress, {}, closedFor('connections', ['127.0.0.11'])), new Set(['127.0.0.12']))
  t.same(spread(egress, {}, closedFor('connections', own)), new Set(['connections']))
  t.same(spread(egress, {}, closedFor('suspension', own)), new Set(['127.0.0.21']))
  const pathOf = (ip: EgressIp): PathState => ({
    kind: 'closed',
    waitingFor: 'suspension',
    text: `${ip.address} suspended`,
    until: ip.address === '127.0.0.12' ? MIDNIGHT + MINUTE : MIDNIGHT + HOUR,
  })
  t.match(egress.choose(ipRequest(), pathOf), { kind: 'wait', until: MIDNIGHT + MINUTE, text: '127.0.0.12 suspended' })
  t.match(
    egress.choose(ipRequest(), closedFor('suspension', [...own, '127.0.0.21'], MIDNIGHT - HOUR)),
    { until: MIDNIGHT + SECOND },
    'never a time that has passed',
  )
})

t.test('avoided IPs are left out, unless all are', async (t) => {
  const ips = [warmed('127.0.0.11'), warmed('127.0.0.12')]
  const { egress } = await startEgressWorld(t, withPools({ default: poolOf(ips) }))
  t.same(spread(egress, { attempts: 1, avoidIps: ['127.0.0.11'] }), new Set(['127.0.0.12']))
  const all = ['127.0.0.11', '127.0.0.12']
  t.same(spread(egress, { attempts: 2, avoidIps: all }), new Set(all))
})

t.test('an IP reaches hosts of its own family only', async (t) => {
  const { egress } = await startEgressWorld(
    t,
    withPools({
      default: poolOf([warmed('127.0.0.11')], { overflow_pool: 'spare' }),
      spare: poolOf([warmed('::1'), warmed('203.0.113.9', { source: '10.0.0.9' })]),
    }),
  )
  const cases: [(4 | 6)[], string][] = [
    [[4], '127.0.0.11'],
    [[6], '::1'],
    [[4, 6], '127.0.0.11'],
    [[], 'ip_paused'],
  ]
  for (const [families, expected] of cases) t.equal(chosen(egress, { families }), expected)
  t.equal(chosen(egress, { families: [6], lastIp: '127.0.0.11', keepIpUntil: 0, attempts: 1 }), '::1')
})

t.test('the preferred family goes first, the other one where that cannot send', async (t) => {
  const { egress, warmup } = await startEgressWorld(
    t,
    withPools({ default: poolOf([warmed('127.0.0.11'), warmed('::1')]) }),
  )
  const both: [4, 6] = [4, 6]
  t.same(spread(egress, { families: both }), new Set(['127.0.0.11']))
  t.same(spread(egress, { families: [6, 4] }), new Set(['::1']))
  const blocked = { attempts: 1, lastIp: '127.0.0.11', avoidIps: ['127.0.0.11'] }
  t.equal(chosen(egress, { ...blocked, families: both }), '::1')
  t.equal(chosen(egress, { ...blocked, families: [4] }), '127.0.0.11', 'the other one cannot reach the hosts')
  t.equal(chosen(egress, { families: both }, closedFor('suspension', ['127.0.0.11'])), '::1')
  t.equal(chosen(egress, { families: both }, closedFor('connections', ['127.0.0.11'])), 'connections', 'merely busy')
  await warmup.suspendIp('127.0.0.11', 'a test', 'test')
  t.equal(chosen(egress, { families: both }), '::1')
})

t.test('a blocked IP sends again where the only other one may not have the mail', async (t) => {
  const pools = { default: poolOf([warmed('127.0.0.11'), ipSettings('127.0.0.12')]) }
  const { egress, warmup } = await startEgressWorld(t, withPools(pools, { warmup_streams: ['bulk'] }))
  await warmup.start('127.0.0.12', startAsked(), 'cli')
  const blocked = { attempts: 1, lastIp: '127.0.0.11', avoidIps: ['127.0.0.11'] }
  t.equal(chosen(egress, blocked), '127.0.0.11')
  t.equal(chosen(egress, { ...blocked, stream: 'bulk' }), '127.0.0.12')
})

t.test('affinity: by message, or by recipient domain', async (t) => {
  const ips = Array.from({ length: 8 }, (_, index) => warmed(`127.0.1.${index}`))
  const byMessage = await startEgressWorld(t, withPools({ default: poolOf(ips) }))
  t.ok(spread(byMessage.egress).size > 1)
  t.test('domain', async (t) => {
    const byDomain = await startEgressWorld(t, withPools({ default: poolOf(ips) }, { affinity: 'recipient_domain' }))
    t.equal(spread(byDomain.egress).size, 1)
    const domains = Array.from({ length: 60 }, (_, index) => chosen(byDomain.egress, { recipientDomain: `d${index}` }))
    t.ok(new Set(domains).size > 1)
  })
})

t.test('a disabled address is tried each minute, and used again when it is back', async (t) => {
  const world = await startEgressWorld(t, withPools({ default: poolOf([warmed('127.0.0.11')]) }))
  const { egress, warmup, missing, clock, log } = world
  egress.disable('127.0.0.11', 'EADDRNOTAVAIL')
  egress.disable('127.0.0.11', 'EADDRNOTAVAIL')
  egress.disable('192.0.2.1', 'never ours')
  t.equal(log.filter((line) => line.includes('egress IP disabled')).length, 1, 'logged once')
  missing.add('127.0.0.11')
  await warmup.closeDays()
  t.equal(states(egress)['127.0.0.11'], 'EADDRNOTAVAIL')
  missing.clear()
  await warmup.closeDays()
  t.equal(states(egress)['127.0.0.11'], 'warmed')
  egress.disable('127.0.0.11', 'filtered')
  await warmup.closeDays()
  t.equal(states(egress)['127.0.0.11'], 'filtered', 'that it can be bound is no news')
  await clock.advance(30 * MINUTE)
  await warmup.closeDays()
  t.equal(states(egress)['127.0.0.11'], 'warmed')
})

t.test('one whose address was gone for a moment need not wait, and one of another node is not tested', async (t) => {
  const ofOthers = new Map([['127.0.0.12', 'the node b sends from it']])
  const pools = withPools({ default: poolOf([warmed('127.0.0.11'), warmed('127.0.0.12')]) })
  const refusalOf = (ip: string): string | null => ofOthers.get(ip) ?? null
  const world = await startEgressWorld(t, pools, { refusalOf, missing: ['127.0.0.12'] })
  const { egress, warmup, missing, log } = world
  t.equal(states(egress)['127.0.0.12'], 'the node b sends from it')
  t.notOk(log.some((line) => line.includes('egress IP disabled')))
  missing.add('127.0.0.11')
  egress.disable('127.0.0.11', 'EADDRNOTAVAIL')
  await setImmediate()
  missing.clear()
  ofOthers.clear()
  await warmup.closeDays()
  t.same(states(egress), { '127.0.0.11': 'warmed', '127.0.0.12': 'warmed' })
})

t.test('one of another node is shown, and forecast, as it is there', async (t) => {
  const ip = '127.0.0.12'
  const isElsewhere = (address: string): boolean => address === ip
  const refusalOf = (address: string): string | null => (isElsewhere(address) ? 'the node b sends from it' : null)
  const pools = withPools({ default: poolOf([warmed('127.0.0.11'), warmed(ip)]) })
  const { egress, warmup } = await startEgressWorld(t, pools, { refusalOf, isElsewhere })
  t.equal(states(egress)[ip], 'the node b sends from it')
  t.match(await warmup.find(ip), { status: 'warmed', reason: null })
  const asked = { recipients: 100, isp: null, startAt: null }
  t.same((await warmup.forecast(ip, asked)).days, (await warmup.forecast('127.0.0.11', asked)).days)
  t.match(await warmup.suspendIp(ip, 'listed', 'cli'), { status: 'suspended', reason: 'listed' })
})

t.test('what is heard of the source before a reload disables nothing', async (t) => {
  const from = (source: string): ReturnType<typeof withPools> =>
    withPools({ default: poolOf([warmed('127.0.0.11', { source })]) })
  const { egress, configuration } = await startEgressWorld(t, from('127.0.0.21'))
  await configuration.replace(from('127.0.0.22'))
  egress.disable('127.0.0.11', 'EADDRNOTAVAIL', '127.0.0.21')
  t.same(states(egress), { '127.0.0.11': 'warmed' })
  egress.disable('127.0.0.11', 'EADDRNOTAVAIL', '127.0.0.22')
  t.same(states(egress), { '127.0.0.11': 'EADDRNOTAVAIL' })
})

t.test('a reload takes over what the files say, and keeps what the machine learned', async (t) => {
  const files = (curve: string | null): ReturnType<typeof withPools> =>
    withPools({ default: poolOf([ipSettings('127.0.0.11', { curve }), warmed('127.0.0.12')]) })
  const { egress, warmup, configuration, missing } = await startEgressWorld(t, files(null))
  let changes = 0
  egress.onChange(() => {
    changes += 1
  })
  await warmup.start('127.0.0.11', startAsked({ stage: 4 }), 'cli')
  missing.add('127.0.0.14')
  const moved = ipSettings('127.0.0.11', { weight: 5, hostname: 'other.example' })
  await configuration.replace(
    withPools({ default: poolOf([ipSettings('127.0.0.13'), ipSettings('127.0.0.14')]), bulk: poolOf([moved]) }),
  )
  t.ok(changes > 0)
  t.same(states(egress), { '127.0.0.13': 'cold', '127.0.0.14': 'unplumbed', '127.0.0.11': 'warming' })
  t.match(egress.ips().at(-1), { pool: 'bulk', weight: 5, hostname: 'other.example' })
  await configuration.replace(files('conservative'))
  t.same(states(egress), { '127.0.0.11': 'warming', '127.0.0.12': 'warmed' }, 'one that comes back is as it was')
  await configuration.replace(files('fast'))
  t.match((await warmup.find('127.0.0.11')).warmup, { curve: 'fast', stage: 1, dailyLimit: 200 }, 'no more')
  await configuration.replace(files('conservative'))
  t.match(
    (await warmup.find('127.0.0.11')).warmup,
    { curve: 'conservative', stage: 7, dailyLimit: 300 },
    'and what it had when that is taken back',
  )
  const audit = await warmup.audit('127.0.0.11', 1)
  t.match(audit, [{ action: 'stage', actor: 'config', reason: 'curve fast -> conservative' }])
})

t.test('warmed: true is read once, and a restart keeps states and stages', async (t) => {
  const { warmup, restart, configuration, clock } = await startEgressWorld(
    t,
    withPools({ default: poolOf([ipSettings('127.0.0.11'), ipSettings('127.0.0.12'), warmed('127.0.0.13')]) }),
  )
  await warmup.start('127.0.0.12', startAsked({ stage: 3 }), 'key_1')
  await warmup.pause('127.0.0.12', 'just so', 'key_1')
  await warmup.suspendIp('127.0.0.13', null, 'cli')
  await configuration.replace(
    withPools({ default: poolOf([warmed('127.0.0.11'), warmed('127.0.0.12'), ipSettings('127.0.0.13')]) }),
  )
  await clock.advance(HOUR)
  const again = await restart()
  t.same(states(again.egress), {
    '127.0.0.11': 'cold',
    '127.0.0.12': 'just so',
    '127.0.0.13': 'suspended by the operator',
  })
  t.match((await again.warmup.find('127.0.0.12')).warmup, { status: 'paused', stage: 3, pausedUntil: null })
  await again.warmup.resumeIp('127.0.0.13', 'cli')
  t.equal(states(again.egress)['127.0.0.13'], 'warmed')
})
