/**
 * An operator suspends the mail of one IP to one provider: all of its routes, known or not, until it is resumed.
 */
import t from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import type { PathFilter, PathView } from '../../src/egress/shaping/shaping.ts'
import { closedFor, LANE, pathTo, shapingWorld, type World } from './shaping-world.ts'

const IP = '192.0.2.1'
const GOOGLE = pathTo('google')
const SITES = ['office365-a', 'office365-b'].map((route) => pathTo('office365', { route }))

const suspend = ({ shaping }: World, provider: string, reason: string | null = 'delisting'): Promise<void> =>
  shaping.suspend({ ip: IP, provider, reason, actor: 'cli:ada' })

const listed = ({ shaping }: World): Pick<PathView, 'ip' | 'route'>[] =>
  shaping.views().map(({ ip, route }) => ({ ip, route }))

t.test('nothing leaves from the IP to the provider until it is resumed, whatever the route', async (t) => {
  const world = await shapingWorld()
  const { shaping, clock, opened } = world
  await suspend(world, 'office365')
  for (const path of SITES) t.equal(closedFor(world, path, LANE), Infinity)
  t.match(shaping.gate(SITES[0] ?? GOOGLE, null), {
    kind: 'closed',
    until: null,
    waitingFor: 'suspension',
    rule: null,
    text:
      `the paths from ${IP} to office365 are suspended by cli:ada: delisting, since 2026-11-21T12:00:00Z; ` +
      `sternpost ip resume ${IP} --provider office365 ends that`,
  })
  for (const path of [GOOGLE, pathTo(null), pathTo('office365', { ip: '192.0.2.2', route: 'office365-a' })]) {
    t.equal(closedFor(world, path, LANE), 0, path.key)
  }
  await clock.advance(24 * 30 * HOUR)
  for (let tick = 0; tick < 6; tick++) await shaping.tick()
  t.equal(closedFor(world, GOOGLE, LANE), 0)
  t.equal(closedFor(world, SITES[1] ?? GOOGLE, LANE), Infinity, 'no time ends it')
  const before = opened.length
  t.equal(await shaping.resume({ ip: IP, provider: 'office365' }), 1)
  t.equal(opened.length, before + 1, 'who waits is told')
  for (const path of SITES) t.equal(closedFor(world, path, LANE), 0)
  t.equal(await shaping.resume({ ip: IP, provider: 'office365' }), 0)
})

t.test('it is listed with who did it, first of all, and explained', async (t) => {
  const world = await shapingWorld()
  await suspend(world, 'google', null)
  for (let count = 0; count < 3; count++) {
    world.shaping.noteConnections(pathTo('yahoo'), [
      { kind: 'failed', stage: 'connect', host: null, reply: null, reason: 'refused', wasRequiredTls: false },
    ])
  }
  t.match(world.shaping.views(), [
    {
      ip: IP,
      pool: null,
      route: 'google',
      provider: 'google',
      isp: 'gmail',
      domain: null,
      status: 'suspended',
      step: 0,
      holds: [
        {
          kind: 'suspension',
          scope: 'provider',
          rule: null,
          cause: 'by cli:ada',
          since: world.clock.now(),
          until: null,
        },
      ],
    },
    { route: 'yahoo', holds: [{ kind: 'wait' }] },
  ])
  const [text] = world.shaping.explain(GOOGLE, LANE)
  t.match(text, /^the paths from 192\.0\.2\.1 to google are suspended by cli:ada, since /)
  t.same(world.shaping.explain(SITES[0] ?? GOOGLE, LANE), [])
})

t.test('what a filter names is resumed, and the rest stays', async (t) => {
  const cases: [PathFilter, string[]][] = [
    [{}, []],
    [{ ip: IP }, []],
    [{ ip: '192.0.2.2' }, ['google', 'yahoo']],
    [{ route: 'google' }, ['yahoo']],
    [{ provider: 'yahoo' }, ['google']],
    [{ ip: IP, route: 'outlook' }, ['google', 'yahoo']],
  ]
  for (const [filter, left] of cases) {
    const world = await shapingWorld()
    await suspend(world, 'google')
    await suspend(world, 'yahoo')
    t.equal(await world.shaping.resume(filter), 2 - left.length, JSON.stringify(filter))
    t.same(
      listed(world),
      left.map((route) => ({ ip: IP, route })),
    )
  }
})

t.test('it is stored before it is told, and a restart forgets nothing of it', async (t) => {
  const world = await shapingWorld()
  await suspend(world, 'google')
  t.equal(world.rows.size, 1)
  const again = await world.restart()
  t.same(again.shaping.views(), world.shaping.views())
  t.equal(closedFor(again, GOOGLE, LANE), Infinity)
  await again.shaping.resume({ ip: IP })
  t.equal(again.rows.size, 0, 'also that somebody resumed it')
  t.same((await again.restart()).shaping.views(), [])
})

t.test('what the store refused is stored before all smaller changes, and not told before', async (t) => {
  const world = await shapingWorld()
  // More than one tick looks at.
  for (let route = 0; route < 2_100; route++) {
    world.shaping.noteConnections(pathTo(null, { route: `site-${route}` }), [{ kind: 'ended-well', delivered: 3 }])
  }
  world.refuses = 1
  await suspend(world, 'google')
  t.equal(closedFor(await world.restart(), GOOGLE, LANE), Infinity)
})

t.test(
  'a resume that the store refused is in force, is not told, and is stored when it is asked for again',
  async (t) => {
    const world = await shapingWorld()
    await suspend(world, 'google')
    world.refuses = 2
    await t.rejects(world.shaping.resume({ ip: IP, provider: 'google' }))
    t.equal(closedFor(world, GOOGLE, LANE), 0, 'in force')
    t.equal(world.rows.size, 1)
    t.equal(await world.shaping.resume({ ip: IP, provider: 'google' }), 0)
    t.equal(world.rows.size, 0)
  },
)

t.test('a resume is not told while another save has its record in hand, which may fail', async (t) => {
  const world = await shapingWorld()
  await suspend(world, 'google')
  const resume = (): Promise<number> => world.shaping.resume({ ip: IP, provider: 'google' })
  world.refuses = 2
  await t.rejects(resume())
  world.refuses = 2
  const ended = await Promise.allSettled([world.shaping.tick(), resume()])
  t.same(
    ended.map(({ status }) => status),
    ['rejected', 'rejected'],
  )
  t.equal(world.rows.size, 1)
  await resume()
  t.equal(world.rows.size, 0)
})
