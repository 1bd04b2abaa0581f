import t from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import type { RouteGroup } from '../../src/delivery/claim/order-places.ts'
import { createQueueDirectory, type QueueDirectory } from '../../src/delivery/claim/queue-directory.ts'
import { createTimeHeap } from '../../src/base/time-heap.ts'
import type { QueueKey, QueueKeyState } from '../../src/store/records/queue-records.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'

const MOST_COUNTED = 1_000

const keyOf = (route: string, change: Partial<QueueKey> = {}): QueueKey => ({
  pool: 'default',
  route,
  domain: 'acme.test',
  stream: 'bulk',
  isRetry: false,
  ...change,
})

interface World {
  clock: ManualClock
  directory: QueueDirectory
  /** What may be claimed from, as the fair order was told. */
  ready: Map<string, number>
  state(route: string, dueIn: number, waiting?: number): QueueKeyState
}

function world(mostKeys?: number): World {
  const clock = manualClock()
  const ready = new Map<string, number>()
  const paused = new Map<string, number>()
  const order = {
    set({ route }: QueueKey, due: number) {
      if (due > 0) ready.set(route, due)
      else ready.delete(route)
    },
    pause({ route }: RouteGroup) {
      paused.set(route, ready.get(route) ?? 0)
      ready.delete(route)
    },
    resume({ route }: RouteGroup) {
      ready.set(route, paused.get(route) ?? 0)
    },
  }
  const directory = createQueueDirectory({ clock, order, ...(mostKeys === undefined ? {} : { mostKeys }) })
  const state = (route: string, dueIn: number, waiting = 1): QueueKeyState => ({
    ...keyOf(route),
    earliestAt: clock.now() + dueIn,
    waiting,
  })
  return { clock, directory, ready, state }
}

t.test('what is due is ready, the rest when its time comes', async (t) => {
  const { clock, directory, ready, state } = world()
  directory.note([state('now', 0, 3), state('soon', MINUTE), state('later', 2 * MINUTE)])
  directory.advance()
  t.same([...ready], [['now', 3]])
  t.equal(directory.nextAt(), clock.now() + MINUTE)
  await clock.advance(MINUTE)
  directory.advance()
  t.same([...ready.keys()], ['now', 'soon'])
})

t.test('thousands that are due at once, or open at once, come in pieces', async (t) => {
  const { clock, directory, ready, state } = world()
  const routes = Array.from({ length: 1_100 }, (_, index) => `route-${index}`)
  directory.note(routes.map((route) => state(route, 0)))
  for (const expected of [500, 1_000, 1_100]) {
    t.equal(directory.nextAt(), clock.now())
    directory.advance()
    t.equal(ready.size, expected)
  }
  t.equal(directory.nextAt(), null)

  const until = clock.now() + MINUTE
  for (const route of routes) directory.close(keyOf(route), { until, waitingFor: 'rate', text: '' })
  t.equal(ready.size, 0)
  await clock.advance(MINUTE)
  for (const expected of [500, 1_000, 1_100]) {
    directory.advance()
    t.equal(ready.size, expected)
  }
})

t.test('a claim is told where to begin: never behind a row that waits', async (t) => {
  const { clock, directory, state } = world()
  const key = keyOf('a')
  directory.note([state('a', 0, 9)])
  const start = clock.now()
  directory.advance()
  t.equal(directory.beginClaim(key), start)
  // Of the rows that are left, those past their lifetime are not asked for, and yet they are there.
  directory.endClaim(key, 1, start + MINUTE, start)
  await clock.advance(MINUTE)
  directory.advance()
  t.equal(directory.beginClaim(key), start)
  directory.noteRow(key, start - MINUTE, null)
  directory.endClaim(key, 8, start + 2 * MINUTE)
  t.equal(directory.beginClaim(key), start - MINUTE, 'one came back meanwhile')
  directory.beginWalk()
  directory.learn([{ ...state('a', 0), earliestAt: start - 2 * MINUTE }], 1)
  directory.endClaim(key, 1, start + 2 * MINUTE)
  t.equal(directory.beginClaim(key), start - 2 * MINUTE, 'a walk met one')
})

t.test('a claim leaves what is due later, and takes out what is empty', async (t) => {
  const { clock, directory, ready, state } = world()
  directory.note([state('a', 0, 3), state('b', 0)])
  directory.advance()
  for (const route of ['a', 'b']) directory.beginClaim(keyOf(route))
  directory.endClaim(keyOf('a'), 2, clock.now() + MINUTE)
  directory.endClaim(keyOf('b'), 1, null)
  t.equal(ready.size, 0)
  t.equal(directory.find(keyOf('b')), undefined)
  t.match(directory.find(keyOf('a')), { waiting: 1, earliestAt: clock.now() + MINUTE })
  await clock.advance(MINUTE)
  directory.advance()
  t.same([...ready.keys()], ['a'])
})

t.test('a row that comes while its key is claimed is not lost', async (t) => {
  const { clock, directory, ready, state } = world()
  directory.note([state('a', 0)])
  directory.advance()
  directory.beginClaim(keyOf('a'))
  directory.note([state('a', 0)])
  directory.endClaim(keyOf('a'), 1, null)
  t.same([...ready.keys()], ['a'], 'an empty claim at worst')
  directory.beginClaim(keyOf('a'))
  directory.noteRow(keyOf('a'), clock.now() + MINUTE, 'retry_delay')
  directory.endClaim(keyOf('a'), 1, null)
  t.equal(ready.size, 0)
  t.equal(directory.nextAt(), clock.now() + MINUTE)
})

t.test('a claim that failed may be tried again', async (t) => {
  const { directory, ready, state } = world()
  directory.note([state('a', 0, 5)])
  directory.advance()
  directory.beginClaim(keyOf('a'))
  directory.failClaim(keyOf('a'))
  t.same([...ready], [['a', 5]])
})

t.test('a closed key opens by time, by its route, or with all', async (t) => {
  const { clock, directory, ready, state } = world()
  directory.note([state('a', 0), state('b', 0), state('c', 0)])
  directory.advance()
  const until = clock.now() + MINUTE
  directory.close(keyOf('a'), { until, waitingFor: 'suspension', text: '' })
  for (const route of ['b', 'c']) {
    directory.closeGroup(keyOf(route), { until: null, waitingFor: 'connections', text: '' })
  }
  t.equal(ready.size, 0)
  t.equal(directory.nextAt(), until)
  directory.openRoute('b')
  t.same([...ready.keys()], ['b'])
  await clock.advance(MINUTE)
  directory.advance()
  t.same([...ready.keys()], ['b', 'a'])
  directory.openAll()
  t.same([...ready.keys()].toSorted(), ['a', 'b', 'c'])
})

t.test('rows without a route are counted, and never ready', async (t) => {
  const { directory, ready, state } = world()
  directory.note([state('', 0, 3)])
  directory.advance()
  t.equal(ready.size, 0)
  t.equal(directory.nextAt(), null)
  t.match([...directory.entries()], [{ route: '', waiting: 3 }])
  directory.noteGone(keyOf(''), 3)
  t.same([...directory.entries()], [])
})

t.test('a walk finds what nobody told of, and says so when it was due for long', async (t) => {
  const { clock, directory, ready, state } = world()
  directory.note([state('known', 0, 2)])
  directory.advance()
  await clock.advance(MINUTE)
  directory.beginWalk()
  const page = [
    state('known', -MINUTE, 7),
    state('fresh', -SECOND),
    state('missed', -6 * SECOND, 4),
    state('', -MINUTE),
  ]
  t.match(directory.learn(page, MOST_COUNTED), [{ route: 'missed' }])
  directory.advance()
  t.same(Object.fromEntries(ready), { known: 7, missed: 4, fresh: 1 })
  t.same(directory.learn(page, MOST_COUNTED), [], 'known now')
})

t.test('a count that a page cut short does not lower the one that is known', async (t) => {
  const { directory, state } = world()
  directory.note([state('a', 0, 50_000)])
  directory.learn([state('a', 0, MOST_COUNTED)], MOST_COUNTED)
  t.match(directory.find(keyOf('a')), { waiting: 50_000 })
  directory.learn([state('a', 0, 900)], MOST_COUNTED)
  t.match(directory.find(keyOf('a')), { waiting: 900 })
})

t.test('the last of too many keys are forgotten, and a walk is due when the first of them is', async (t) => {
  const { clock, directory, ready, state } = world(10)
  for (let index = 0; index < 15; index++) directory.note([state(`r${index}`, index * SECOND)])
  const known = [...directory.entries()].map(({ route }) => route)
  t.same(known.slice(0, 10), ['r0', 'r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7', 'r8', 'r9'])
  t.equal(directory.walkAt(), null, 'there is no room for them yet')
  directory.note([state('urgent', 0)])
  t.ok(directory.find(keyOf('urgent')), 'what is due before them is kept')
  directory.advance()
  for (const route of ready.keys()) {
    directory.beginClaim(keyOf(route))
    directory.endClaim(keyOf(route), 1, null)
  }
  t.ok((directory.walkAt() ?? 0) > clock.now())
  t.ok(directory.hasForgotten())
  directory.beginWalk()
  t.equal(directory.walkAt(), null)
})

t.test('a key that a whole walk did not meet has no rows any more', async (t) => {
  const { clock, directory, state } = world()
  directory.note([state('gone', 0, 100), state('claimed', 0), state('met', 0), state('came', 0)])
  directory.advance()
  directory.closeGroup(keyOf('gone'), { until: clock.now() + MINUTE, waitingFor: 'warmup_day', text: '' })
  directory.beginClaim(keyOf('claimed'))
  directory.beginWalk()
  directory.learn([state('met', 0)], MOST_COUNTED)
  directory.note([state('came', 0)])
  directory.endWalk()
  t.same(
    [...directory.entries()].map(({ route }) => route),
    ['claimed', 'met', 'came'],
  )
})

t.test('what is closed until a time that has passed is not looked at without a pause', async (t) => {
  const { clock, directory, ready, state } = world()
  directory.note([state('a', 0)])
  directory.advance()
  directory.close(keyOf('a'), { until: clock.now() - 1, waitingFor: 'ip_paused', text: '' })
  directory.advance()
  t.equal(ready.size, 0)
  t.equal(directory.nextAt(), clock.now() + SECOND)
})

t.test('a key has one place among those that wait, however often it was claimed or closed', async (t) => {
  const { clock, directory, state } = world()
  const later = clock.now() + 10 * MINUTE
  for (let claim = 0; claim < 50; claim++) {
    directory.note([state('a', 0)])
    directory.advance()
    directory.close(keyOf('a'), { until: clock.now() + MINUTE, waitingFor: 'suspension', text: '' })
    directory.openAll()
    t.equal(directory.nextAt(), null, 'it is due, and nothing else is there')
    directory.beginClaim(keyOf('a'))
    directory.endClaim(keyOf('a'), 1, later)
    t.equal(directory.nextAt(), later)
  }
})

t.test('the heap gives out what is earliest, whatever the order it came in', async (t) => {
  const heap = createTimeHeap<number>()
  const times = Array.from({ length: 500 }, (_, index) => (index * 7919) % 503)
  for (const at of times) heap.set(at, at)
  t.equal(heap.size(), 500)
  const out = Array.from({ length: 500 }, () => heap.pop()?.item)
  t.same(
    out,
    times.toSorted((left, right) => left - right),
  )
  t.equal(heap.pop(), undefined)
  t.equal(heap.peek(), undefined)
})

t.test('a thing has one place in the heap, whose time may change', async (t) => {
  const heap = createTimeHeap<string>()
  const times = new Map<string, number>()
  for (let step = 0; step < 500; step++) {
    const [item, at] = [`i${(step * 31) % 37}`, (step * 7919) % 1_009]
    if (step % 5 === 0) heap.remove(item)
    else heap.set(item, at)
    if (step % 5 === 0) times.delete(item)
    else times.set(item, at)
    t.equal(heap.timeOf(item), times.get(item))
    t.equal(heap.size(), times.size)
    t.equal(heap.peek()?.at, times.size === 0 ? undefined : Math.min(...times.values()))
  }
})
