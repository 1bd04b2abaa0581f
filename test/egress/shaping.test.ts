/** Shaping as delivery sees it: back-off, rules, the ladder with its probes, restarts; the clock is moved by hand. */
import t from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import type { ConnectionNote, ShapedPath, TryNote } from '../../src/egress/shaping/shaping.ts'
import {
  closedFor,
  LANE,
  notConnected,
  openGate,
  OTHER_LANE,
  pathTo,
  poolOf,
  poolSettings,
  refused,
  reply,
  shapingWorld,
  SHIPPED_PROVIDERS,
  type World,
} from './shaping-world.ts'

const DELIVERED: TryNote = { kind: 'delivered' }
const BLOCK = refused('550 5.7.1 your host is not welcome', 'ip_block')
const UNKNOWN_ADDRESS = refused('550 5.1.1 no such user', 'invalid_recipient', 'rcpt')
const GREYLISTED = refused('451 4.7.1 try again later', 'greylist', 'rcpt')

/** Notes on the path, one after the other; then minutes until it opens. */
function after(world: World, path: ShapedPath, notes: readonly TryNote[], lane = LANE): number {
  for (const note of notes) world.shaping.noteTry(path, lane, note)
  return closedFor(world, path)
}

const times = <Value>(count: number, value: Value): Value[] => Array.from({ length: count }, () => value)

t.test('a path begins with two connections, that of a new IP with one, and the smallest limit wins', async (t) => {
  const { shaping } = await shapingWorld()
  const open = (path: ShapedPath): unknown => openGate(shaping.gate(path, LANE))
  const free = { underWay: Infinity, ofLane: Infinity }
  t.strictSame(open(pathTo('google')), { connections: 2, messages: 50, ...free })
  const newIpLimits = { connections: 2, messagesPerConnection: 10 }
  t.strictSame(open(pathTo('google', { newIpLimits })), { connections: 1, messages: 10, ...free })
  const limits = { ...SHIPPED_PROVIDERS.default, connections: 1, messages_per_connection: 3 }
  t.strictSame(open(pathTo(null, { limits })), { connections: 1, messages: 3, ...free })
})

t.test('connections grow while all are used, and stop at the limit of a new IP', async (t) => {
  const { shaping, clock } = await shapingWorld()
  const grown = async (path: ShapedPath): Promise<number> => {
    for (let round = 0; round < 40; round++) {
      const { connections } = openGate(shaping.gate(path, LANE))
      shaping.noteConnections(path, times(connections, { kind: 'opened', inFlight: 1 }))
      await clock.advance(SECOND)
      shaping.noteConnections(path, times(connections, { kind: 'ended-well', delivered: 1 }))
    }
    return openGate(shaping.gate(path, LANE)).connections
  }
  t.equal(await grown(pathTo('google')), 5)
  t.equal(await grown(pathTo('gmx', { newIpLimits: { connections: 2, messagesPerConnection: 10 } })), 2)
})

t.test('a path without an answer waits longer and longer, with one probe after each wait', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock, opened } = world
  const path = pathTo(null)
  const fail = (): void => shaping.noteConnections(path, [notConnected()])
  fail()
  fail()
  t.equal(closedFor(world, path), 0)
  for (const minutes of [1, 2, 5, 10, 15, 30, 60, 60]) {
    fail()
    t.equal(closedFor(world, path), minutes)
    t.equal(shaping.waitOf(path), minutes * MINUTE)
    fail()
    t.equal(closedFor(world, path), minutes, 'what was under way brings no news')
    t.match(shaping.explain(path, LANE), [/^the path from 192.0.2.1 to site-1 is left alone until .*Z, after: conn/])
    await clock.advance(minutes * MINUTE)
    t.equal(opened.at(-1), clock.now(), 'somebody is told')
    t.match(openGate(shaping.gate(path, LANE)), { connections: 1, underWay: 1 })
  }
  shaping.noteTry(path, LANE, UNKNOWN_ADDRESS)
  t.match(openGate(shaping.gate(path, LANE)), { connections: 1, underWay: Infinity })
  t.strictSame(shaping.explain(path, LANE), [])
})

t.test('a path that has worked may fail as often as its provider allows, with one connection left', async (t) => {
  const world = await shapingWorld()
  const path = pathTo('google')
  const trouble: [string, ConnectionNote, boolean][] = [
    ['refused', notConnected(), true],
    ['banner', notConnected({ stage: 'banner', reply: reply('554 go away') }), true],
    ['required TLS', notConnected({ stage: 'starttls', wasRequiredTls: true }), true],
    ['opportunistic TLS', notConnected({ stage: 'starttls' }), false],
    ['421', { kind: 'closing', reply: reply('421 4.4.2 timeout') }, true],
    ['dropped', { kind: 'dropped', reason: 'reset' }, false],
  ]
  for (const [name, note, counts] of trouble) {
    await world.shaping.resume({})
    after(world, path, [DELIVERED])
    world.shaping.noteConnections(path, times(4, note))
    t.equal(closedFor(world, path), 0, name)
    world.shaping.noteConnections(path, [note])
    t.equal(closedFor(world, path), counts ? 1 : 0, name)
    await world.clock.advance(HOUR)
  }
  await world.shaping.resume({})
  after(world, path, [DELIVERED])
  t.equal(after(world, path, times(5, refused('421 4.3.0 closing', 'temporary', 'mail'))), 1, '421 to a message')
  await world.clock.advance(MINUTE)
  t.equal(after(world, path, [refused('450 4.2.0 later')]), 0, 'any other answer means that it works')
})

t.test('a rule suspends after so many matches within its time, counted for each path', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock, said } = world
  const [path, other] = [pathTo('google'), pathTo('google', { ip: '192.0.2.2' })]
  const detected = refused('550-5.7.1 Our system has detected that this message is likely unsolicited', 'spam_content')
  t.equal(after(world, path, times(4, detected)), 0)
  t.equal(after(world, other, times(4, detected)), 0)
  await clock.advance(HOUR)
  t.equal(after(world, path, times(4, detected)), 0, 'the first four are over')
  t.strictSame(said, [])
  t.equal(after(world, path, [detected]), 60)
  t.strictSame(said, ['block 192.0.2.1 gmail rule'])
  t.equal(closedFor(world, other), 0, 'another IP goes on')
  t.equal(after(world, path, times(9, detected)), 60)
  shaping.noteConnections(path, times(9, { kind: 'closing', reply: reply('421 4.7.0 closing') }))
  t.strictSame(said, ['block 192.0.2.1 gmail rule'], 'what was under way is the same block')
  t.equal(shaping.waitOf(path), 0, 'and no failure')
  t.match(shaping.gate(path, LANE), { kind: 'closed', waitingFor: 'suspension', rule: 'google-detected' })
  t.match(shaping.views(), [
    {
      ip: '192.0.2.1',
      route: 'google',
      isp: 'gmail',
      status: 'suspended',
      step: 3,
      holds: [{ kind: 'suspension', scope: 'path', rule: 'google-detected', cause: /^550-5\.7\.1 Our system/ }],
    },
  ])
})

t.test('a limited path is slower for the time of the rule, then twice as fast every 10 min', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock } = world
  const path = pathTo('gmx')
  shaping.noteConnections(path, [{ kind: 'opened', inFlight: 1 }])
  after(world, path, times(3, refused('450 4.7.0 slow down, rate limit', 'rate')))
  const [hold] = shaping.views()[0]?.holds ?? []
  t.match(hold, { kind: 'limit', rule: 'any-rate', rate: { count: 10, per_milliseconds: MINUTE } })
  t.equal(hold?.until, clock.now() + 30 * MINUTE)
  t.strictSame(shaping.take(path, 5), { granted: 1, nextAt: clock.now() + 6 * SECOND })
  t.match(shaping.gate(path, LANE), { kind: 'closed', waitingFor: 'rate', until: clock.now() + 6 * SECOND })
  await clock.advance(6 * SECOND)
  t.equal(world.opened.at(-1), clock.now(), 'woken for the next token')
  t.equal(shaping.take(path, 5).granted, 1)
  t.match(shaping.explain(path, LANE), [/is limited to 10\/minute until .* by the rule any-rate, after: 450/])
  await clock.advance(30 * MINUTE)
  t.match(shaping.views()[0]?.holds, [{ rate: { count: 20 } }])
  after(world, path, times(3, refused('421 gmx.net Service not available; Too many connections', 'rate')))
  t.equal(openGate(shaping.gate(path, LANE)).connections, 1)
  await clock.advance(3 * HOUR)
  for (let tick = 0; tick < 6; tick++) await shaping.tick()
  t.strictSame(shaping.views(), [])
})

t.test('blocks that no rule knows climb the ladder; three messages that pass open the path', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock } = world
  const path = pathTo('proofpoint')
  t.equal(after(world, path, times(4, BLOCK)), 0)
  t.equal(after(world, path, [BLOCK]), 15)
  t.strictSame(world.said, times(5, 'block 192.0.2.1 proofpoint reply'))
  for (const minutes of [30, 60, 120, 240, 480, 480]) {
    await clock.advance(closedFor(world, path) * MINUTE)
    t.match(openGate(shaping.gate(path, LANE)), { connections: 1, underWay: 1 }, 'one message')
    t.equal(after(world, path, [BLOCK]), minutes)
    t.equal(after(world, path, [BLOCK, DELIVERED]), minutes, 'stragglers bring no news')
  }
  await clock.advance(480 * MINUTE)
  t.equal(after(world, path, [GREYLISTED, DELIVERED, UNKNOWN_ADDRESS, { kind: 'neither' }]), 0)
  t.match(openGate(shaping.gate(path, LANE)), { underWay: 1 }, 'two have passed')
  after(world, path, [DELIVERED])
  t.match(openGate(shaping.gate(path, LANE)), { connections: 1, underWay: Infinity })
  t.equal(after(world, path, times(4, BLOCK)), 0, 'counted anew')
  t.equal(after(world, path, [BLOCK]), 480, 'the step is remembered')
  await shaping.resume({})
  await clock.advance(3 * DAY)
  t.equal(after(world, path, times(5, BLOCK)), 120, 'and falls by one a day')
})

t.test('three providers that block within an hour suspend the IP, which comes back with one message', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock, said } = world
  const suspended = (path: ShapedPath): number => after(world, path, times(5, BLOCK))
  const ipSigns = (): string[] => said.filter((sign) => sign.startsWith('ip '))
  const [first, second, third, fourth] = [pathTo('google'), pathTo('yahoo'), pathTo('zoho'), pathTo('kpn')]
  suspended(first)
  suspended(second)
  await clock.advance(HOUR)
  suspended(third)
  t.strictSame(ipSigns(), [], 'the first two are over')
  suspended(fourth)
  t.strictSame(ipSigns(), [])
  suspended(pathTo('comcast'))
  t.strictSame(ipSigns(), ['ip 192.0.2.1 60 min'])
  await clock.advance(HOUR)
  const [fresh, other] = [pathTo('fastmail'), pathTo('proton')]
  t.match(openGate(shaping.gate(fresh, LANE)), { connections: 1, underWay: 1 })
  t.equal(shaping.take(fresh, 1).granted, 1)
  t.equal(closedFor(world, other), 20, 'while one path is tried, no other is')
  t.equal(closedFor(world, pathTo('proton', { ip: '192.0.2.2' })), 0, 'another IP has nothing to do with it')
  shaping.noteTry(fresh, LANE, BLOCK)
  t.strictSame(ipSigns(), ['ip 192.0.2.1 60 min', 'ip 192.0.2.1 120 min'], 'blocked again')
  await clock.advance(2 * HOUR)
  for (let passed = 0; passed < 3; passed++) {
    t.match(openGate(shaping.gate(other, LANE)), { underWay: 1 })
    shaping.take(other, 1)
    shaping.noteTry(other, LANE, DELIVERED)
  }
  t.match(openGate(shaping.gate(other, LANE)), { underWay: Infinity })
})

t.test('a sending domain is suspended on a route of its pool, whatever the IP; others go on', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock, said } = world
  const [path, otherIp] = [pathTo('google'), pathTo('google', { ip: '192.0.2.2' })]
  const unauthenticated = refused('550-5.7.26 This mail has been blocked: unauthenticated.', 'auth_failed')
  after(world, path, times(4, unauthenticated), OTHER_LANE)
  after(world, otherIp, times(4, unauthenticated))
  t.equal(closedFor(world, path, LANE), 0, 'each domain is counted for itself')
  after(world, path, [unauthenticated])
  t.equal(closedFor(world, otherIp, LANE), 60)
  t.equal(closedFor(world, path, OTHER_LANE), 0)
  t.equal(closedFor(world, pathTo('yahoo'), LANE), 0)
  t.strictSame(said, ['lane default google acme.test 60 min'])
  for (const minutes of [120, 240, 480, 480]) {
    await clock.advance(closedFor(world, path, LANE) * MINUTE)
    t.match(openGate(shaping.gate(path, LANE)), { underWay: Infinity, ofLane: 1 })
    after(world, path, [unauthenticated])
    t.equal(closedFor(world, path, LANE), minutes)
  }
  await clock.advance(480 * MINUTE)
  after(world, path, times(3, DELIVERED))
  t.match(openGate(shaping.gate(path, LANE)), { ofLane: Infinity })
  const listed = refused('550 5.7.1 the domain is listed', 'domain_block')
  after(world, pathTo('zoho'), times(5, listed))
  t.equal(closedFor(world, pathTo('zoho'), LANE), 60, 'also without a rule')
  t.equal(closedFor(world, pathTo('zoho'), OTHER_LANE), 0)
})

t.test('a restart forgets no limit, no wait, no suspension and no step', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock } = world
  after(world, pathTo('proofpoint'), times(5, BLOCK))
  after(world, pathTo('google'), times(5, refused('550-5.7.26 blocked, unauthenticated', 'auth_failed')))
  after(world, pathTo('gmx'), times(3, refused('450 4.7.0 rate limit', 'rate')))
  shaping.noteConnections(pathTo(null), times(3, notConnected()))
  after(world, pathTo('kpn'), times(4, BLOCK))
  const paths = ['proofpoint', 'google', 'gmx', null, 'kpn'].map((provider) => pathTo(provider))
  const before = { views: shaping.views(), closed: paths.map((path) => closedFor(world, path, LANE)) }
  t.equal(before.views.length, 4)
  await clock.advance(0)
  t.ok(world.rows.size >= 4, 'what matters is saved at once')
  await shaping.tick()
  const killed = await world.restart()
  t.strictSame(killed.shaping.views(), before.views)
  t.strictSame(
    paths.map((path) => closedFor(killed, path, LANE)),
    before.closed,
  )
  t.equal(after(killed, pathTo('kpn'), [BLOCK]), 15, 'what was counted, too')
  await clock.advance(15 * MINUTE)
  t.ok(killed.opened.includes(clock.now()), 'the end of a suspension of the process before wakes')
  t.equal(after(killed, pathTo('proofpoint'), [BLOCK]), 30)
  await killed.shaping.stop()
  const stopped = await killed.restart()
  t.equal(closedFor(stopped, pathTo('proofpoint')), 30)
})

t.test('learnt connections are kept, and what says nothing is not stored', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock } = world
  const path = pathTo('comcast')
  for (let round = 0; round < 10; round++) {
    const { connections } = openGate(shaping.gate(path, LANE))
    shaping.noteConnections(path, times(connections, { kind: 'opened', inFlight: 1 }))
    shaping.noteConnections(path, times(connections, { kind: 'ended-well', delivered: 1 }))
  }
  after(world, pathTo('kpn'), [DELIVERED])
  const learnt = openGate(shaping.gate(path, LANE)).connections
  t.ok(learnt > 5)
  await shaping.tick()
  t.strictSame([...world.rows.keys()], ['192.0.2.1 comcast'])
  const next = await world.restart()
  t.equal(openGate(next.shaping.gate(path, LANE)).connections, learnt)
  await clock.advance(10 * MINUTE)
  t.equal(openGate(next.shaping.gate(path, LANE)).connections, 2)
  world.rows.set('192.0.2.1 zoho', { ip: '192.0.2.1', route: 'zoho', state: '{"version":9}', savedAt: 0 })
  world.rows.set('192.0.2.1 kpn', { ip: '192.0.2.1', route: 'kpn', state: 'not ours', savedAt: 0 })
  const unread = await next.restart()
  t.equal(closedFor(unread, pathTo('zoho')), 0, 'what cannot be read starts as new')
})

t.test('what many paths have learnt is saved, all of it', async (t) => {
  const world = await shapingWorld()
  const isps = Array.from({ length: 250 }, (_, index) => `isp-${index}.test`)
  for (const isp of isps) {
    for (const delivered of [1, 1]) {
      world.shaping.noteConnections(pathTo(isp), times(2, { kind: 'opened', inFlight: 1 }))
      world.shaping.noteConnections(pathTo(isp), times(2, { kind: 'ended-well', delivered }))
    }
  }
  await world.shaping.tick()
  t.equal(world.rows.size, isps.length)
  const next = await world.restart()
  const unknown = openGate(next.shaping.gate(pathTo('unknown.test'), LANE)).connections
  t.ok(isps.every((isp) => openGate(next.shaping.gate(pathTo(isp), LANE)).connections > unknown))
})

t.test('an operator lifts what he names, and the ladder keeps its step', async (t) => {
  const world = await shapingWorld()
  const { shaping } = world
  const [path, other] = [pathTo('proofpoint'), pathTo('proofpoint', { ip: '192.0.2.2' })]
  after(world, path, times(5, BLOCK))
  after(world, other, times(5, BLOCK))
  after(world, pathTo('google'), times(5, refused('550-5.7.26 unauthenticated', 'auth_failed')))
  t.equal(await shaping.resume({ ip: '192.0.2.2' }), 1)
  t.strictSame([closedFor(world, path), closedFor(world, other)], [15, 0])
  t.equal(await shaping.resume({ route: 'google' }), 1)
  t.equal(closedFor(world, pathTo('google'), LANE), 0)
  t.equal(await shaping.resume({}), 1)
  t.strictSame(shaping.views(), [])
  t.equal(after(world, path, times(5, BLOCK)), 30)
})

t.test('a pool has a rate and connections of its own', async (t) => {
  const pools = poolSettings({
    default: poolOf(['192.0.2.1', '192.0.2.2'], { rate: { count: 3, per_milliseconds: SECOND }, connections_max: 3 }),
    free: poolOf(['192.0.2.3']),
  })
  const world = await shapingWorld({ pools })
  const { shaping, clock } = world
  const [path, otherPath] = [pathTo('google'), pathTo('yahoo', { ip: '192.0.2.2' })]
  const otherPool = pathTo('google', { ip: '192.0.2.3' })
  t.equal(shaping.take(path, 2).granted, 2)
  const short = shaping.take(otherPath, 2)
  t.strictSame(short, { granted: 1, nextAt: clock.now() + 334 })
  t.equal(shaping.take(otherPool, 50).granted, 50)
  shaping.giveBack(path, 1)
  t.equal(shaping.take(otherPath, 2).granted, 1)
  await clock.advance(SECOND)
  shaping.noteConnections(path, times(3, { kind: 'opened', inFlight: 1 }))
  t.match(shaping.gate(otherPath, LANE), { kind: 'closed', waitingFor: 'connections', until: null })
  t.equal(closedFor(world, path), 0, 'a path that has connections goes on')
  t.equal(closedFor(world, otherPool), 0)
  const told = world.opened.length
  shaping.noteConnections(path, [{ kind: 'ended-well', delivered: 1 }])
  t.equal(world.opened.length, told + 1)
  t.equal(closedFor(world, otherPath), 0)
})

t.test('an IP that reaches nobody while others do is told once', async (t) => {
  const { shaping, clock, said } = await shapingWorld()
  const routes = ['google', 'yahoo', 'zoho']
  const fail = (ip: string): void => {
    for (const route of routes) shaping.noteConnections(pathTo(route, { ip }), [notConnected()])
  }
  const reach = (ip: string): void => shaping.noteConnections(pathTo('zoho', { ip }), [{ kind: 'opened', inFlight: 1 }])
  fail('192.0.2.1')
  await clock.advance(6 * MINUTE)
  fail('192.0.2.1')
  t.strictSame(said, [], 'nobody else was asked')
  reach('192.0.2.2')
  fail('192.0.2.2')
  t.strictSame(said, [], 'it has just worked')
  fail('192.0.2.1')
  fail('192.0.2.1')
  t.strictSame(said, ['unreachable 192.0.2.1'])
})

t.test('our own words are never taken for a reply', async (t) => {
  const world = await shapingWorld()
  const path = pathTo(null)
  after(world, path, [DELIVERED])
  const words = 'blocked using a blocklist: rate limit, too many connections, suspended until'
  world.shaping.noteConnections(path, times(5, notConnected({ reason: words })))
  world.shaping.noteConnections(path, times(5, { kind: 'dropped', reason: words }))
  t.strictSame(world.shaping.views(), [])
  const banner = notConnected({ stage: 'banner', reply: reply('554 blocked using a blocklist') })
  world.shaping.noteConnections(path, [banner, banner])
  t.strictSame(world.shaping.views(), [])
  world.shaping.noteConnections(path, [banner])
  t.match(world.shaping.views(), [{ status: 'suspended', holds: [{ rule: 'blocklisted' }] }], 'a banner is one')
})

t.test('a reload holds from the next message on', async (t) => {
  const world = await shapingWorld()
  const path = pathTo('proofpoint')
  const [rule] = SHIPPED_PROVIDERS.replies.filter(({ id }) => id === 'gmx-violation')
  if (rule === undefined) throw new Error('gmx-violation is gone')
  after(world, path, [refused('554 our own words')])
  const replies = [{ ...rule, id: 'own', provider: 'proofpoint', match: 'our own words', for: 5 * MINUTE }]
  world.settings.providers = { ...SHIPPED_PROVIDERS, replies }
  t.equal(after(world, path, [refused('554 our own words')]), 5)
})

t.test(
  'a host for which flights went wrong is remembered for a day, over a restart, until it is resumed',
  async (t) => {
    const world = await shapingWorld()
    const path = pathTo('google')
    const carefulOf = ({ shaping }: World): readonly string[] => {
      const gate = shaping.gate(path, LANE)
      return gate.kind === 'open' ? gate.carefulHosts : []
    }
    t.same(carefulOf(world), [])
    const note = (host: string): ConnectionNote => ({ kind: 'careful', host, reason: 'it was out of step: 250 ok' })
    world.shaping.noteConnections(path, [note('mx1.test'), note('mx2.test'), note('mx1.test')])
    t.same(carefulOf(world), ['mx1.test', 'mx2.test'])
    const cause = 'mx1.test: it was out of step: 250 ok'
    t.match(world.shaping.views(), [
      { status: 'open', holds: [{ kind: 'careful', scope: 'path', rule: null, cause }, {}] },
    ])
    await world.shaping.tick()
    const again = await world.restart()
    t.same(carefulOf(again), ['mx1.test', 'mx2.test'])
    await again.clock.advance(DAY - MINUTE)
    t.same(carefulOf(again), ['mx1.test', 'mx2.test'])
    await again.clock.advance(MINUTE)
    t.same(carefulOf(again), [])
    t.same(again.shaping.views(), [])
    again.shaping.noteConnections(path, [note('mx1.test')])
    t.equal(await again.shaping.resume({ route: path.route }), 1)
    t.same(carefulOf(again), [])
  },
)
