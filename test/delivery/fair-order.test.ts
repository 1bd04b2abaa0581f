/** Whose turn it is: shares between groups, streams, lanes and retries, with loads made by hand and by chance. */
import fc from 'fast-check'
import t from 'tap'
import {
  createFairOrder,
  type Capacity,
  type FairOrder,
  type RoundRequest,
} from '../../src/delivery/claim/fair-order.ts'
import { createTurnRing, takeTurns, type Taken } from '../../src/delivery/claim/turn-ring.ts'
import type { Stream } from '../../src/mail/message.ts'
import type { QueueKey } from '../../src/store/records/queue-records.ts'

const ENDLESS = 1_000_000

const key = (changes: Partial<QueueKey> = {}): QueueKey => ({
  pool: 'default',
  route: 'google',
  domain: 'acme.test',
  stream: 'bulk',
  isRetry: false,
  ...changes,
})

const roundOf = (changes: Partial<RoundRequest> = {}): RoundRequest => ({
  room: 500,
  mostPerLane: 1_000,
  mostAlone: Infinity,
  heldOf: () => 0,
  capacityOf: () => ({ slots: 10, room: 200 }),
  roomOf: () => Infinity,
  ...changes,
})

const nameOf = ({ pool, route, domain, stream, isRetry }: QueueKey): string =>
  `${pool} ${route} ${domain} ${stream}${isRetry ? ' retry' : ''}`

/** What each key got in so many rounds; those with endless rows stay due. */
function sums(
  order: FairOrder,
  rounds: number,
  request: RoundRequest,
  endless: readonly QueueKey[] = [],
): Record<string, number> {
  const given: Record<string, number> = {}
  for (let count = 0; count < rounds; count++) {
    for (const due of endless) order.set(due, ENDLESS)
    for (const { key: asked, limit } of order.round(request)) given[nameOf(asked)] = (given[nameOf(asked)] ?? 0) + limit
  }
  return given
}

const orderOf = (keys: readonly QueueKey[], due = ENDLESS): FairOrder => {
  const order = createFairOrder()
  for (const each of keys) order.set(each, due)
  return order
}

t.test('a ring gives turns in order, whoever comes and goes', async (t) => {
  const ring = createTurnRing<string>()
  t.equal(ring.next(), undefined)
  for (const name of ['a', 'b', 'c', 'b']) ring.add(name)
  t.strictSame([ring.next(), ring.next(), ring.next(), ring.next()], ['a', 'b', 'c', 'a'])
  ring.add('d')
  t.strictSame([ring.next(), ring.next(), ring.next(), ring.next(), ring.next()], ['b', 'c', 'a', 'd', 'b'])
  ring.remove('c')
  ring.remove('nobody')
  t.equal(ring.next(), 'a')
  ring.startAt('b')
  ring.startAt('nobody')
  t.strictSame([ring.next(), ring.size()], ['b', 3])
  for (const name of ['a', 'b', 'd']) ring.remove(name)
  t.strictSame([ring.next(), ring.size()], [undefined, 0])
  ring.add('e')
  t.strictSame([ring.next(), ring.next()], ['e', 'e'])
})

t.test('turns hand out everything that somebody takes, and go on where they ended', async (t) => {
  const ring = createTurnRing<{ left: number; got: number }>()
  const members = [1, 50, 3, 50].map((left) => ({ left, got: 0 }))
  for (const member of members) ring.add(member)
  const hand = (amount: number): number =>
    takeTurns(ring, amount, (member, part) => {
      const count = Math.min(part, member.left)
      member.left -= count
      member.got += count
      return { count, wantsMore: member.left > 0 }
    })
  t.equal(hand(20), 0)
  t.strictSame(
    members.map(({ got }) => got),
    [1, 8, 3, 8],
  )
  t.equal(hand(1), 0)
  t.equal(hand(1), 0)
  t.strictSame(
    members.map(({ got }) => got),
    [1, 9, 3, 9],
  )
  t.equal(hand(200), 200 - 82)
  const counts = new Map([
    ['a', 0],
    ['b', 0],
    ['c', 0],
  ])
  const three = createTurnRing<string>()
  for (const name of counts.keys()) three.add(name)
  const give = (name: string, part: number): Taken => {
    counts.set(name, (counts.get(name) ?? 0) + part)
    return { count: part, wantsMore: true }
  }
  for (let time = 0; time < 3; time++) takeTurns(three, 4, give)
  t.strictSame([...counts.values()], [4, 4, 4], 'a turn too many goes to another one each time')
})

t.test('groups get turns by their free slots, those without room none', async (t) => {
  const [big, small] = [key({ route: 'a' }), key({ route: 'b', domain: 'b.test' })]
  const full = key({ route: 'c', domain: 'c.test' })
  const order = orderOf([big, small, full])
  const none: Capacity = { slots: 0, room: 0 }
  const capacities: Record<string, Capacity> = {
    a: { slots: 30, room: 200 },
    b: { slots: 10, room: 200 },
    c: { slots: 10, room: 0 },
  }
  const capacityOf = ({ route }: { route: string }): Capacity => capacities[route] ?? none
  const request = roundOf({ room: 25, mostPerLane: Infinity, capacityOf })
  const given = sums(order, 160, request, [big, small, full])
  t.equal(given[nameOf(big)], 3_000)
  t.equal(given[nameOf(small)], 1_000)
  t.equal(given[nameOf(full)], undefined)
  const [first] = orderOf([big]).round(request)
  t.equal(first?.limit, 25, 'alone it gets everything')
})

t.test('pools that share no IP do not slow each other down', async (t) => {
  const keys = ['one', 'two'].map((pool) => key({ pool, domain: `${pool}.test` }))
  const given = sums(orderOf(keys), 1, roundOf({ room: 500 }))
  t.strictSame(Object.values(given), [200, 200])
})

t.test('transactional mail has four turns of five, and bulk is never without', async (t) => {
  const keys = [key({ stream: 'transactional' }), key({ domain: 'other.test' })]
  for (const room of [1, 3, 10, 500]) {
    const given = sums(orderOf(keys), 300, roundOf({ room, mostPerLane: Infinity }), keys)
    const total = Object.values(given).reduce((sum, count) => sum + count, 0)
    t.equal(total, 300 * Math.min(room, 200))
    t.ok(Math.abs((given[nameOf(key({ domain: 'other.test' }))] ?? 0) - total / 5) <= 1, `${room}`)
  }
  const alone = sums(orderOf([key()]), 1, roundOf({ room: 100 }))
  t.equal(alone[nameOf(key())], 100, 'what one stream does not use, the other gets')
})

t.test('first attempts get at least half of a lane, retries the rest', async (t) => {
  const [first, retry] = [key(), key({ isRetry: true })]
  for (const room of [1, 7, 100]) {
    const given = sums(orderOf([first, retry]), 100, roundOf({ room }), [first, retry])
    const [firsts = 0, retries = 0] = [given[nameOf(first)], given[nameOf(retry)]]
    t.ok(firsts >= retries && firsts - retries <= 1, `${firsts} and ${retries}`)
  }
  const few = createFairOrder()
  few.set(first, 3)
  few.set(retry, 500)
  t.strictSame(sums(few, 1, roundOf({ room: 100 })), { [nameOf(first)]: 3, [nameOf(retry)]: 97 })
})

t.test('no lane has more than half of the window while others wait, wherever it goes', async (t) => {
  const million = ['a', 'b', 'c', 'd'].map((route) => key({ route, domain: 'million.test' }))
  const small = key({ route: 'z', domain: 'small.test' })
  const request = roundOf({ room: 2_000, mostPerLane: 1_000, capacityOf: () => ({ slots: 100, room: 2_000 }) })
  const given = sums(orderOf([...million, small]), 1, request)
  t.equal(
    million.reduce((sum, each) => sum + (given[nameOf(each)] ?? 0), 0),
    1_000,
  )
  t.equal(given[nameOf(small)], 1_000)
  const held = roundOf({ ...request, heldOf: (domain) => (domain === 'million.test' ? 995 : 0) })
  t.equal(sums(orderOf([...million, small]), 1, held)[nameOf(million[0] ?? small)], 5)
  t.equal(orderOf([small]).round(request)[0]?.limit, 2_000, 'alone it may have all of it')
  const alone = roundOf({ ...request, mostAlone: 3_500, heldOf: () => 3_400 })
  t.equal(orderOf([small]).round(alone)[0]?.limit, 100, 'but for what is left to those that come later')
})

t.test('a transactional message beside a lane of a million goes in the next round', async (t) => {
  const million = key({ domain: 'million.test' })
  const order = orderOf([million])
  sums(order, 20, roundOf({ room: 8 }), [million])
  const urgent = key({ domain: 'small.test', stream: 'transactional' })
  order.set(urgent, 1)
  t.ok(order.round(roundOf({ room: 2 })).some(({ key: asked }) => asked.domain === 'small.test'))
  t.equal(order.size(), 1)
})

t.test('fifty tenants on one path get the same, however much each has', async (t) => {
  const tenants = Array.from({ length: 50 }, (_, index) => key({ domain: `tenant-${index}.test` }))
  const order = createFairOrder()
  tenants.forEach((tenant, index) => order.set(tenant, index === 0 ? ENDLESS : 400))
  for (const room of [1, 13, 200, 500]) {
    const given = Object.values(sums(order, 20, roundOf({ room })))
    const [least, most] = [Math.min(...given), Math.max(...given)]
    t.ok(most - least <= Math.ceil(200 / 50), `${room}: ${least} to ${most}`)
  }
})

t.test('what the caller allows is never passed, and nothing is left lying', async () => {
  const keys = fc.uniqueArray(
    fc.record({
      pool: fc.constantFrom('p', 'q'),
      route: fc.constantFrom('a', 'b', 'c', 'd'),
      domain: fc.constantFrom('u', 'v', 'w', 'x', 'y'),
      isRetry: fc.boolean(),
      stream: fc.constantFrom<Stream>('transactional', 'bulk'),
    }),
    { selector: nameOf, minLength: 1, maxLength: 40 },
  )
  const numbers = fc.array(fc.integer({ min: 0, max: 30 }), { minLength: 8, maxLength: 8 })
  fc.assert(
    fc.property(keys, numbers, fc.integer({ min: 1, max: 120 }), (due, seeds, room) => {
      const sumOf = (text: string): number => [...text].reduce((sum, letter) => sum + letter.charCodeAt(0), 0)
      const number = (text: string): number => seeds[sumOf(text) % 8] ?? 0
      const order = createFairOrder()
      for (const each of due) order.set(each, 1 + number(nameOf(each)))
      const before = new Map(due.map((each) => [nameOf(each), 1 + number(nameOf(each))]))
      const request = roundOf({
        room,
        mostPerLane: 40,
        heldOf: (domain) => number(domain),
        capacityOf: ({ pool, route }) => ({ slots: number(route), room: number(pool + route) }),
        roomOf: (each) => number(`${nameOf(each)}.`),
      })
      const asks = order.round(request)
      const total = asks.reduce((sum, { limit }) => sum + limit, 0)
      const byGroup = new Map<string, number>()
      const byLane = new Map<string, number>()
      for (const { key: asked, limit } of asks) {
        if (limit < 1 || limit > Math.min(before.get(nameOf(asked)) ?? 0, request.roomOf(asked))) return false
        const [group, lane] = [`${asked.pool} ${asked.route}`, `${asked.domain} ${asked.stream}`]
        byGroup.set(group, (byGroup.get(group) ?? 0) + limit)
        byLane.set(lane, (byLane.get(lane) ?? 0) + limit)
        if ((byGroup.get(group) ?? 0) > number(asked.pool + asked.route)) return false
      }
      const isOneLane = new Set(due.map(({ domain, stream }) => `${domain} ${stream}`)).size === 1
      if (!isOneLane && [...byLane].some(([lane, count]) => count > 40 - number(lane.split(' ')[0] ?? ''))) return false
      if (new Set(asks.map(({ key: asked }) => nameOf(asked))).size < asks.length || total > room) return false
      // Room that is left is room that nobody due could use.
      return (
        total === room ||
        due.every((each) => {
          const given = asks.find(({ key: asked }) => nameOf(asked) === nameOf(each))?.limit ?? 0
          const lane = byLane.get(`${each.domain} ${each.stream}`) ?? 0
          return (
            given === before.get(nameOf(each)) ||
            given === request.roomOf(each) ||
            (byGroup.get(`${each.pool} ${each.route}`) ?? 0) === number(each.pool + each.route) ||
            lane >= 40 - number(each.domain)
          )
        })
      )
    }),
    { numRuns: 500 },
  )
})

t.test('nobody starves: with any load each key that can go goes within a few rounds', async () => {
  const upTo = (max: number): fc.Arbitrary<number> => fc.integer({ min: 1, max })
  fc.assert(
    fc.property(upTo(60), upTo(9), upTo(8), (lanes, groups, room) => {
      const keys = Array.from({ length: lanes }, (_, lane) =>
        key({
          route: `r${lane % groups}`,
          domain: `d${lane}.test`,
          isRetry: lane % 2 === 0,
          stream: lane % 3 === 0 ? 'transactional' : 'bulk',
        }),
      )
      const order = orderOf(keys)
      const slots = 2
      // Everybody before it has a turn of two rows, bulk every fifth of its group's.
      const rounds = Math.ceil((keys.length * slots * 5 * 2) / room) + groups * slots * 5
      const given = sums(order, rounds, roundOf({ room, capacityOf: () => ({ slots, room: 4 }) }), keys)
      return keys.every((each) => (given[nameOf(each)] ?? 0) > 0)
    }),
    { numRuns: 60 },
  )
})

t.test('one blocked path with half a million rows takes nothing from the others', async (t) => {
  const blocked = Array.from({ length: 200 }, (_, index) => key({ route: 'blocked', domain: `d${index}.test` }))
  const free = key({ route: 'free', domain: 'small.test' })
  const order = orderOf([...blocked, free])
  const [free5, none] = [
    { slots: 5, room: 200 },
    { slots: 0, room: 0 },
  ]
  const request = roundOf({ capacityOf: ({ route }) => (route === 'free' ? free5 : none) })
  t.strictSame(sums(order, 1, request), { [nameOf(free)]: 200 })
})

t.test('a round touches the keys whose turn comes, and no others', async (t) => {
  const keys = Array.from({ length: 20_000 }, (_, index) =>
    key({ route: `r${index % 5_000}`, domain: `d${index}.test` }),
  )
  const order = orderOf(keys, 3)
  const touched = { keys: 0, groups: 0 }
  const request = roundOf({
    capacityOf: () => {
      touched.groups++
      return { slots: 5, room: 200 }
    },
    roomOf: () => {
      touched.keys++
      return 200
    },
  })
  const asks = order.round(request)
  t.equal(
    asks.reduce((sum, { limit }) => sum + limit, 0),
    500,
  )
  t.ok(touched.groups <= 500 && touched.keys <= 1_000, `${touched.groups} groups, ${touched.keys} keys`)
  t.strictSame(createFairOrder().round(request), [])
  t.strictSame(order.round(roundOf({ room: 0 })), [])
})

t.test('a group that is paused after every turn keeps its places and what each is owed', async (t) => {
  const lanes = ['a', 'b', 'c'].map((domain) => key({ domain: `${domain}.test`, isRetry: false }))
  const retry = key({ domain: 'a.test', isRetry: true })
  const urgent = key({ domain: 'a.test', stream: 'transactional' })
  const given = (keys: readonly QueueKey[], rounds: number): Record<string, number> => {
    const order = orderOf(keys)
    const counts: Record<string, number> = {}
    for (let round = 0; round < rounds; round++) {
      for (const { key: asked } of order.round(roundOf({ room: 1, capacityOf: () => ({ slots: 1, room: 1 }) }))) {
        counts[nameOf(asked)] = (counts[nameOf(asked)] ?? 0) + 1
      }
      order.pause(asked(keys))
      t.strictSame(order.round(roundOf()), [], 'nothing while it is paused')
      order.resume(asked(keys))
    }
    return counts
  }
  const asked = ([first = key()]: readonly QueueKey[]): QueueKey => first
  t.same(Object.values(given(lanes, 30)), [10, 10, 10])
  t.same(given([key({ domain: 'a.test' }), retry], 10), { [nameOf(key({ domain: 'a.test' }))]: 5, [nameOf(retry)]: 5 })
  t.equal(given([key({ domain: 'a.test' }), urgent], 50)[nameOf(urgent)], 40)
})

t.test('groups that may have nothing are not looked at', (t) => {
  const many = Array.from({ length: 1_000 }, (_, index) => key({ route: `site-${index}` }))
  const urgent = key({ route: 'site-7', domain: 'other.test', stream: 'transactional' })
  const order = orderOf([...many, urgent])
  let asked = 0
  const capacityOf = (): Capacity => {
    asked += 1
    return { slots: 1, room: 10 }
  }
  const names = (request: RoundRequest): string[] => order.round(request).map((ask) => nameOf(ask.key))
  t.strictSame(names(roundOf({ capacityOf, roomForBulk: 0, roomOf: () => 3 })), [nameOf(urgent)], 'no room for bulk')
  t.equal(asked, 1)
  const heldOf = (domain: string): number => (domain === 'acme.test' ? 1_000 : 0)
  const withRoom = names(roundOf({ capacityOf, heldOf, roomOf: () => 3 }))
  t.strictSame(withRoom, [nameOf(urgent)], 'its lane has all it may have')
  t.equal(asked, 2)
  order.pause({ pool: 'default', route: 'site-7' })
  t.strictSame(names(roundOf({ capacityOf, roomForBulk: 0 })), [])
  order.resume({ pool: 'default', route: 'site-7' })
  t.strictSame(names(roundOf({ capacityOf, roomForBulk: 0, roomOf: () => 3 })), [nameOf(urgent)])
  order.set(urgent, 0)
  t.strictSame(names(roundOf({ capacityOf, roomForBulk: 0 })), [])
  t.equal(names(roundOf({ capacityOf })).length > 0, true, 'with room they are')
  t.end()
})

t.test('a group that comes anew is next before thousands; one that had a turn and comes back is not', async (t) => {
  const backlog = Array.from({ length: 1_000 }, (_, index) => key({ route: `busy-${index}` }))
  const order = orderOf(backlog)
  const request = roundOf({ room: 20, capacityOf: () => ({ slots: 1, room: 200 }) })
  sums(order, 10, request, backlog)
  const fresh = key({ route: 'fresh' })
  order.set(fresh, 1)
  t.equal(nameOf(order.round(request)[0]?.key ?? key()), nameOf(fresh))
  order.set(fresh, 1)
  t.notOk(
    order.round(request).some(({ key: asked }) => asked.route === 'fresh'),
    'its next message waits its turn',
  )
  t.equal(sums(order, 60, request, backlog)[nameOf(fresh)], 1, 'which comes with those of the others')
  order.set(fresh, 0)
  sums(order, 60, request, backlog)
  order.set(fresh, 1)
  t.equal(nameOf(order.round(request)[0]?.key ?? key()), nameOf(fresh), 'after a whole turn of all it counts as new')
})

t.test('a flood of groups that nobody has seen before leaves the others their turns', async (t) => {
  const backlog = Array.from({ length: 100 }, (_, index) => key({ route: `busy-${index}` }))
  const order = orderOf(backlog)
  const request = roundOf({ room: 20, capacityOf: () => ({ slots: 1, room: 200 }) })
  let ofBacklog = 0
  for (let round = 0; round < 100; round++) {
    for (const busy of backlog) order.set(busy, ENDLESS)
    for (let count = 0; count < 50; count++) order.set(key({ route: `flood-${round}-${count}` }), 1)
    for (const { key: asked, limit } of order.round(request)) if (asked.route.startsWith('busy')) ofBacklog += limit
  }
  t.ok(ofBacklog > 100, `${ofBacklog} of 2,000 turns, beside 5,000 that came meanwhile`)
})
