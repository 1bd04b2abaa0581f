import t, { type Test } from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import type { PathFacts } from '../../src/delivery/place/path-facts.ts'
import { createPaths, type Paths } from '../../src/delivery/place/paths.ts'
import type { PathRow } from '../../src/delivery/place/take-rows.ts'
import type { Gate, OpenGate, Tokens } from '../../src/egress/shaping/shaping.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'

const OPEN: OpenGate = {
  kind: 'open',
  connections: 10,
  messagesPerConnection: 100,
  carefulHosts: [],
  mostUnderWay: Infinity,
  mostOfLane: Infinity,
}

const factsOf = (key: string): PathFacts => ({
  key,
  route: key,
  isp: key,
  shaped: null,
  plan: {
    key,
    port: 25,
    source: '127.0.0.1',
    hostname: 'mail.test',
    connections: 10,
    messagesPerConnection: 100,
    inFlight: 1,
    carefulHosts: [],
    idleMilliseconds: 1,
    connectionRate: null,
  },
})

interface World {
  clock: ManualClock
  paths: Paths<PathRow>
  /** Changed by the test. */
  gate: { now: Gate }
  take: { now: (count: number) => Tokens }
  add(count: number, change?: Partial<PathRow>, path?: string): PathRow[]
  keysOf(rows: readonly PathRow[] | undefined): number[]
}

function world(threads = 1): World {
  const clock = manualClock()
  const gate: World['gate'] = { now: OPEN }
  const take: World['take'] = { now: (count) => ({ granted: count, nextAt: null }) }
  const paths = createPaths<PathRow>({
    clock,
    threads,
    gateOf: () => gate.now,
    takeTokens: (_facts, count) => take.now(count),
  })
  let next = 1
  return {
    clock,
    paths,
    gate,
    take,
    add(count, change = {}, path = 'a') {
      const rows = Array.from({ length: count }, (): PathRow => ({
        claim: next++,
        facts: factsOf(path),
        isUrgent: false,
        expiresAt: Infinity,
        isProbe: false,
        ...change,
      }))
      for (const row of rows) paths.add(row)
      return rows
    },
    keysOf: (rows = []) => rows.map(({ claim }) => claim),
  }
}

/** All that goes to threads now, path by path. */
function ready(paths: Paths<PathRow>): PathRow[] {
  return paths.take().ready.flatMap(({ rows }) => rows)
}

t.test('a path gets three rows for each connection, and another one for each that comes back', async (t) => {
  const { paths, add } = world()
  add(60)
  const [first, ...others] = ready(paths)
  t.equal(others.length, 29)
  t.strictSame(paths.take(), { ready: [], expired: [], returned: [], limits: [] })
  if (first !== undefined) paths.settle(first)
  t.equal(ready(paths).length, 1)
  t.equal(paths.takeWaiting().length, 29)
})

t.test('a path to one site gets the rows of one connection until a host of it answers', async (t) => {
  const { paths, add } = world()
  const shaped = { provider: 'acme' } as NonNullable<PathFacts['shaped']>
  const whole = { ...factsOf('acme'), shaped }
  t.equal(paths.roomOf(whole, OPEN, true), 40, 'one to a whole provider has many sites')
  const facts: PathFacts = { ...factsOf('a'), shaped }
  t.equal(paths.roomOf(facts, OPEN, false), 3)
  add(60, { facts })
  t.equal(ready(paths).length, 3)
  t.equal(paths.noteOpened(facts, 1), true)
  t.equal(paths.noteOpened(facts, 1), false, 'as the others')
  paths.touch(facts)
  t.equal(ready(paths).length, 27)
})

t.test('a path whose hosts know flights gets the rows of a flight, and two more, for each connection', async (t) => {
  const { paths, add } = world()
  add(100)
  const [first] = ready(paths)
  paths.noteOpened(factsOf('a'), 4)
  if (first !== undefined) paths.settle(first)
  t.equal(ready(paths).length, 31, 'sixty for ten connections')
  paths.noteOpened(factsOf('unknown'), 4)
  t.equal(paths.factsOf('unknown'), undefined)
})

t.test('a path with rows is remembered, however many others come meanwhile', async (t) => {
  const { paths, add } = world(2)
  const [row] = add(1)
  const thread = paths.take().ready[0]?.thread
  for (let index = 0; index < 20_000; index += 1) paths.roomOf(factsOf(`other ${index}`), OPEN, false)
  if (row !== undefined) paths.settle(row)
  add(1)
  t.equal(paths.take().ready[0]?.thread, thread)
})

t.test('a path that had rows is remembered, however many others are only asked about', async (t) => {
  const { paths, add } = world(2)
  const [row] = add(1)
  const thread = paths.take().ready[0]?.thread
  if (row !== undefined) paths.settle(row)
  for (let index = 0; index < 20_000; index += 1) paths.roomOf(factsOf(`other ${index}`), OPEN, false)
  t.match(paths.factsOf('a'), { key: 'a' }, 'its connections still tell of it')
  t.equal(paths.factsOf('other 1'), undefined)
  add(1)
  t.equal(paths.take().ready[0]?.thread, thread, 'its connections are there')
})

t.test('transactional rows go before those that came earlier', async (t) => {
  const { paths, gate, add, keysOf } = world()
  gate.now = { ...OPEN, connections: 1 }
  add(4)
  add(1, { isUrgent: true })
  t.same(keysOf(ready(paths)), [5, 1, 2, 3], 'they have a room of their own in the thread')
})

t.test('bulk mail goes on beside a flood of transactional rows, at one in five', async (t) => {
  const { paths, take, add } = world()
  take.now = (count) => ({ granted: Math.min(count, 10), nextAt: null })
  add(40)
  add(40, { isUrgent: true })
  t.equal(ready(paths).filter(({ isUrgent }) => isUrgent).length, 8)
  t.equal(paths.roomOf(factsOf('a'), OPEN, false), 0)
})

t.test('a path stays with its thread, new ones take turns', async (t) => {
  const { paths, add } = world(2)
  const threads = (): number[] => paths.take().ready.map(({ thread }) => thread)
  const rows = ['a', 'b', 'c'].flatMap((path) => add(1, {}, path))
  t.same(threads(), [0, 1, 0])
  for (const row of rows) paths.settle(row)
  for (const path of ['c', 'b', 'a']) add(1, {}, path)
  t.same(threads(), [0, 1, 0])
})

t.test('a path says how many more rows it takes, and keeps a quarter for transactional ones', async (t) => {
  const { paths, add } = world()
  const facts = factsOf('a')
  const room = (gate: OpenGate = OPEN): number[] => [true, false].map((isUrgent) => paths.roomOf(facts, gate, isUrgent))
  t.same(room(), [40, 30])
  add(30)
  t.same(room(), [10, 0])
  t.same(room({ ...OPEN, connections: 100 }), [170, 120], 'never more than 200')
  t.same(room({ ...OPEN, mostUnderWay: 1 }), [0, 0])
  t.ok(paths.hasRoom(facts, OPEN), 'what was claimed in vain is taken all the same')
  t.notOk(paths.hasRoom(facts, { ...OPEN, mostUnderWay: 1 }))
  t.equal(paths.freeSlots(facts, OPEN), 10)
  paths.take()
  t.equal(paths.freeSlots(facts, OPEN), 0)
})

t.test('a path whose connections are all busy asks for more when an eighth is free', async (t) => {
  const { paths, add } = world()
  const facts = factsOf('a')
  const room = (): number[] => [true, false].map((isUrgent) => paths.roomOf(facts, OPEN, isUrgent))
  const rows = add(36, { isUrgent: true })
  t.same(room(), [4, 4], 'nothing is under way')
  t.equal(ready(paths).length, 30)
  t.same(room(), [0, 0])
  const [first, ...others] = rows
  if (first !== undefined) paths.settle(first)
  t.same(room(), [5, 5])
  add(1)
  paths.take()
  t.same(room(), [0, 0])
  for (const row of others.slice(0, 29)) paths.settle(row)
  t.same(room(), [33, 29])
})

t.test('a path full of bulk mail that takes fewer than it did takes transactional rows all the same', async (t) => {
  const { paths, gate, add, keysOf } = world()
  const facts = factsOf('a')
  gate.now = { ...OPEN, connections: 50 }
  const bulk = add(150)
  t.equal(ready(paths).length, 150)
  gate.now = OPEN
  const room = (now: OpenGate = OPEN): number[] => [true, false].map((isUrgent) => paths.roomOf(facts, now, isUrgent))
  t.same(room(), [10, 0], 'a quarter of the forty')
  const urgent = add(11, { isUrgent: true })
  t.same(room(), [0, 0], 'but no more than these')
  t.same(keysOf(ready(paths)), keysOf(urgent.slice(0, 10)), 'they go to the thread as well')
  t.same(room({ ...OPEN, connections: 1, messagesPerConnection: 1 }), [0, 0])
  for (const row of bulk) paths.settle(row)
  t.same(room(), [29, 29], 'as before, once the others are gone')
  const slow = { ...OPEN, connections: 1, messagesPerConnection: 1 }
  for (const row of [...ready(paths), ...urgent.slice(0, 10)]) paths.settle(row)
  gate.now = slow
  add(2)
  t.equal(ready(paths).length, 2)
  t.same(room(slow), [1, 0], 'at least one')
  t.same(room({ ...slow, mostUnderWay: 1 }), [0, 0], 'none beside a probe')
})

t.test('a path under trial sends one row, which is marked as the probe', async (t) => {
  const { paths, gate, add } = world()
  gate.now = { ...OPEN, mostUnderWay: 1 }
  add(3)
  const rows = ready(paths)
  t.match(rows, [{ isProbe: true }])
  t.equal(rows.length, 1)
  t.same(ready(paths), [])
})

t.test('rows of a path that is closed for long go back, for a moment they stay', async (t) => {
  const { clock, paths, gate, add, keysOf } = world()
  const closed = (until: number | null): Gate => ({
    kind: 'closed',
    until,
    waitingFor: 'suspension',
    text: 'It is suspended.',
    takesRows: false,
    rule: null,
  })
  gate.now = closed(clock.now() + SECOND)
  add(2)
  t.strictSame(paths.take(), { ready: [], expired: [], returned: [], limits: [] })
  t.equal(paths.nextAt(), clock.now() + SECOND)
  await clock.advance(SECOND)
  gate.now = OPEN
  t.same(keysOf(ready(paths)), [1, 2], 'its time has come')
  const until = clock.now() + MINUTE
  gate.now = closed(until)
  add(2)
  const { returned, limits } = paths.take()
  t.match(returned, [
    { row: { claim: 3 }, closure: { until, waitingFor: 'suspension' } },
    { row: { claim: 4 }, closure: { until } },
  ])
  t.match(limits, [{ pathKey: 'a', connections: 0 }], 'the thread stops what it has not begun')
  t.equal(paths.nextAt(), null)
  gate.now = closed(null)
  add(1)
  t.match(paths.take().returned, [{ closure: { until: clock.now() + MINUTE } }], 'when nobody knows')
})

t.test('a rate lets through what it has, keeps what goes soon and gives back the rest', async (t) => {
  const { clock, paths, take, add } = world()
  take.now = (count) => ({ granted: Math.min(count, 5), nextAt: clock.now() + 10 })
  add(30)
  t.equal(ready(paths).length, 5)
  t.equal(paths.nextAt(), clock.now() + 10, 'a hundred in a second')
  t.equal(paths.takeWaiting().length, 25)
  const slow = clock.now() + MINUTE
  take.now = () => ({ granted: 1, nextAt: slow })
  add(30, {}, 'b')
  const { ready: sent, returned } = paths.take()
  t.equal(sent[0]?.rows.length, 1)
  t.equal(returned.length, 28, 'one may wait for the next token')
  t.match(returned[0], { closure: { until: slow, waitingFor: 'rate' } })
  const room = [true, false].map((isUrgent) => paths.roomOf(factsOf('b'), OPEN, isUrgent))
  t.same(room, [1, 0], 'no more are claimed for it, but one that goes first')
})

t.test('what expires while it waits for its path does not go out', async (t) => {
  const { clock, paths, gate, add, keysOf } = world()
  gate.now = { ...OPEN, connections: 1, messagesPerConnection: 1 }
  const [first] = add(3)
  add(1, { expiresAt: clock.now() + SECOND })
  t.same(keysOf(ready(paths)), [1, 2])
  t.equal(paths.nextAt(), clock.now() + SECOND, 'also when no connection comes free')
  await clock.advance(SECOND)
  t.same(keysOf(paths.take().expired), [4])
  if (first !== undefined) paths.settle(first)
  t.same(keysOf(ready(paths)), [3])
  t.equal(paths.nextAt(), null)
})

t.test('each row expires at its own time, also behind one that left, or that came later and ends sooner', async (t) => {
  const { clock, paths, gate, add, keysOf } = world()
  gate.now = { ...OPEN, connections: 1, messagesPerConnection: 1 }
  const start = clock.now()
  const endingAfter = (seconds: number): PathRow[] => add(1, { expiresAt: start + seconds * SECOND })
  const gone = [1, 2].flatMap(endingAfter)
  t.same(keysOf(ready(paths)), keysOf(gone), 'these go out')
  const [ninth, third, fifth] = [9, 3, 5].flatMap(endingAfter)
  const expiredAt = async (second: number): Promise<unknown[]> => {
    await clock.advance(start + second * SECOND - clock.now())
    return paths.take().expired
  }
  t.same(await expiredAt(2), [])
  t.same(await expiredAt(3), [third])
  t.equal(paths.nextAt(), start + 5 * SECOND)
  t.same(await expiredAt(4), [])
  t.same(await expiredAt(5), [fifth])
  const [sixth] = endingAfter(6)
  t.same(await expiredAt(8), [sixth])
  t.same(await expiredAt(9), [ninth])
  t.equal(paths.nextAt(), null)
})

t.test('a thread with rows of a path learns of new limits, once', async (t) => {
  const { paths, gate, add } = world()
  const facts = factsOf('a')
  add(1)
  paths.take()
  gate.now = { ...OPEN, connections: 4 }
  paths.touch(facts)
  t.match(paths.take().limits, [{ thread: 0, pathKey: 'a', connections: 4, messagesPerConnection: 100 }])
  paths.touchAll()
  t.same(paths.take().limits, [])
})

t.test('a path that completes much gets more', async (t: Test) => {
  const { paths, add } = world()
  add(200)
  let sent = 0
  const end = performance.now() + 400
  let under = ready(paths)
  // Rows come back as fast as they go out: the pace is measured in real time.
  while (sent < 200 || performance.now() < end) {
    for (const row of under) paths.settle(row)
    sent += under.length
    add(under.length)
    under = ready(paths)
    await new Promise((resolve) => void setTimeout(resolve, 5))
  }
  t.ok(paths.roomOf(factsOf('b'), OPEN, true) === 40, 'another path has a pace of its own')
  t.ok(under.length > 20, `${under.length} under way`)
})
