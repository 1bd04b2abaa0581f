/**
 * Between the claim and the thread: what the store refuses half way, and a ready window that gets room.
 */
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import { createLogger } from '../../src/base/logger.ts'
import type { EgressIp } from '../../src/egress/ips/egress-ip.ts'
import type { OpenGate } from '../../src/egress/shaping/shaping.ts'
import type { ChosenPath } from '../../src/delivery/place/choose-path.ts'
import type { PathFacts } from '../../src/delivery/place/path-facts.ts'
import { createPathPump } from '../../src/delivery/sending.ts'
import type { TakenRows } from '../../src/delivery/place/take-rows.ts'
import {
  createMessagePlacer,
  type MessagePlacer,
  type MessagePlacerOptions,
  type PlacedRow,
} from '../../src/delivery/place/place-messages.ts'
import { createReadyWindow } from '../../src/delivery/place/ready-window.ts'
import type { HostsRoute } from '../../src/delivery/route/route-message.ts'
import { claimedRow } from '../store/store-samples.ts'
import { manualClock } from '../support/manual-clock.ts'

const ROUTE = { kind: 'hosts', provider: { route: 'dest.test', isp: 'dest.test' }, hosts: [], siteKey: 'dest' }
const route = ROUTE as unknown as HostsRoute
const facts = { key: '127.0.0.11 dest.test', route: 'dest.test', isp: 'dest.test', plan: {} } as PathFacts

interface World {
  placer: MessagePlacer
  placed: number[]
  returned: number[]
}

function world(change: Partial<MessagePlacerOptions>): World {
  const placed: number[] = []
  const returned: number[] = []
  const placer = createMessagePlacer({
    store: { findReturnPath: async () => 'bounces.acme.test' },
    clock: manualClock(),
    logger: createLogger({ level: 'silent' }),
    egress: { reserve: async () => [], noteRefund: () => {}, ips: () => [] },
    pathFacts: { generation: () => 0 },
    configuration: () => {
      throw new Error('nobody asks')
    },
    routes: { fresh: () => route, find: async () => route },
    capture: { facts, routeOf: () => route },
    choosePath: () => ({ kind: 'path', facts, ip: null, needsGrant: false, isProbe: false }),
    tlsMemory: { apply: (_ip, hosts) => hosts },
    recorder: { giveBack: ({ key }) => void returned.push(key) },
    onPlaced: (rows) => void placed.push(...rows.map(({ claim }) => claim)),
    onDone: () => {},
    onDnsAnswer: () => {},
    onRouteChanged: () => {},
    ...change,
  })
  return { placer, placed, returned }
}

t.test('what got its allowance before the store failed is sent, the rest goes back, each once', async (t) => {
  const ip = { address: '127.0.0.11', source: '127.0.0.11' }
  const warming = { kind: 'path', facts, ip, needsGrant: true, isProbe: false } as unknown as ChosenPath
  let reservations = 0
  const { placer, placed, returned } = world({
    egress: {
      noteRefund: () => {},
      ips: () => [],
      async reserve([ask]) {
        if (++reservations > 1 || ask === undefined) throw new Error('SQLITE_FULL')
        return [
          { ip: ask.ip, isp: ask.isp, day: '2026-11-21', at: 1, granted: 1, nextAt: null, interval: 1, reason: null },
        ]
      },
    },
    choosePath: () => warming,
  })
  placer.place([claimedRow(1), claimedRow(2), claimedRow(3)])
  await placer.settled()
  t.same(placed, [1])
  t.same(returned, [2, 3])
})

t.test('what no IP takes now is looked at again in 15 minutes, for want of allowance in one', async (t) => {
  const clock = manualClock()
  const waits: number[] = []
  for (const waitingFor of ['suspension', 'warmup_day', 'warmup_hour', 'provider_share'] as const) {
    const { placer } = world({
      clock,
      choosePath: () => ({ kind: 'wait', until: clock.now() + HOUR, waitingFor, text: 'a test' }),
      recorder: { giveBack: (_message, { nextAt }) => void waits.push(nextAt - clock.now()) },
    })
    placer.place([claimedRow(1)])
    await placer.settled()
  }
  t.same(waits, [15 * MINUTE, MINUTE, MINUTE, MINUTE])
})

t.test('what was given an IP before IPs changed is placed anew, and its allowance goes back', async (t) => {
  for (const change of [{ sends: 'nothing' }, { pool: 'other' }, { source: '10.0.0.5' }, { hostname: 'mta2.test' }]) {
    await placeWhileIpsChange(t, change)
  }
})

async function placeWhileIpsChange(t: Test, change: object): Promise<void> {
  let generation = 0
  const refunds: string[] = []
  const given: unknown[] = []
  const ip = { address: '127.0.0.11', source: '127.0.0.11', hostname: 'mta1.test', pool: 'default', sends: 'all' }
  const other = { ...ip, address: '127.0.0.12' }
  const { placer, placed } = world({
    pathFacts: { generation: () => generation },
    egress: {
      noteRefund: (refunded) => void refunds.push(refunded),
      ips: () => [{ ...ip, ...change }, other] as unknown as EgressIp[],
      async reserve(asks) {
        generation++
        return asks.map(({ ip: of, isp, count: granted }) => {
          return { ip: of, isp, day: '2026-11-21', at: 1, granted, nextAt: null, interval: 1, reason: null }
        })
      },
    },
    choosePath: ({ id }) =>
      ({
        kind: 'path',
        facts,
        ip: id === 'msg_3' ? other : ip,
        needsGrant: id === 'msg_2',
        isProbe: false,
      }) as unknown as ChosenPath,
    recorder: { giveBack: (_message, how) => void given.push(how.refund ?? null) },
  })
  placer.place([claimedRow(1), claimedRow(2), claimedRow(3)])
  await placer.settled()
  t.same(placed, [3], `its IP is as it was, another: ${JSON.stringify(change)}`)
  t.same(given, [null, { ip: '127.0.0.11', isp: 'dest.test', day: '2026-11-21', at: 1 }])
  t.same(refunds, ['127.0.0.11'])
}

t.test('a question that fails takes back the messages of its own domain alone, each once', async (t) => {
  const { placer, placed, returned } = world({
    store: {
      async findReturnPath(domain) {
        if (domain === 'broken.test') throw new Error('SQLITE_BUSY')
        return `bounces.${domain}`
      },
    },
  })
  placer.place([
    claimedRow(1),
    claimedRow(2, { recipientDomain: 'other.test', domain: 'broken.test' }),
    claimedRow(3, { recipientDomain: 'other.test', domain: 'broken.test', route: 'former' }),
  ])
  await placer.settled()
  t.same(placed, [1])
  t.same(returned, [2, 3])
})

t.test('a store that is away for a moment is asked again soon, what is wrong for longer later', async (t) => {
  const returnedAt = async (thrown: Error): Promise<number> => {
    let nextAt: unknown
    const clock = manualClock()
    const { placer } = world({
      clock,
      store: { findReturnPath: () => Promise.reject(thrown) },
      recorder: { giveBack: (_message, how) => void (nextAt = how.nextAt) },
    })
    placer.place([claimedRow(1)])
    await placer.settled()
    return Number(nextAt) - clock.now()
  }
  t.equal(await returnedAt(new ServiceError('unavailable')), 2_000)
  t.equal(await returnedAt(new Error('SQLITE_BUSY')), 300_000)
})

t.test('what only an IP with a used up rate may send is not claimed again and again', async (t) => {
  const clock = manualClock()
  const startedAt = clock.now()
  const [rows, interval] = [200, 6 * SECOND]
  let tokenAt = clock.now() + 10
  const due = new Map<number, number>(Array.from({ length: rows }, (_, key) => [key, clock.now()]))
  const kept = { kind: 'wait', waitingFor: 'rate', text: '', keptTo: '127.0.0.11' } as const
  const { placer, placed } = world({
    clock,
    choosePath() {
      if (tokenAt > clock.now()) return { ...kept, until: tokenAt }
      tokenAt = clock.now() + interval
      return { kind: 'path', facts, ip: null, needsGrant: false, isProbe: false }
    },
    recorder: { giveBack: ({ key }, { nextAt }) => void due.set(key, nextAt) },
  })
  let claims = 0
  const wanted = 50
  while (placed.length < wanted) {
    const next = Math.min(...due.values())
    await clock.advance(Math.max(0, next - clock.now()))
    const keys = [...due].filter(([, at]) => at <= clock.now()).map(([key]) => key)
    for (const key of keys) due.delete(key)
    claims += keys.length
    placer.place(keys.map((key) => claimedRow(key, { attempts: 1 })))
    await placer.settled()
  }
  t.ok(claims < 2 * rows + 3 * wanted, `${claims} claims`)
  t.ok(clock.now() - startedAt < (wanted + 5) * interval, 'no token is left unused')
})

t.test('when a full ready window gets room by what goes to a thread, more is claimed', async (t) => {
  const gate: OpenGate = {
    kind: 'open',
    connections: 1,
    messagesPerConnection: 1,
    carefulHosts: [],
    mostUnderWay: Infinity,
    mostOfLane: Infinity,
  }
  const window = createReadyWindow(() => 2)
  const messages = [claimedRow(1, { stream: 'transactional' }), claimedRow(2, { stream: 'transactional' })]
  window.hold(messages)
  t.equal(window.room(), 0)
  const rows = messages.map((each) => ({ key: each.key, message: each, facts, route }) as unknown as PlacedRow)
  const taken: TakenRows<PlacedRow> = { ready: [{ thread: 0, gate, rows }], expired: [], returned: [], limits: [] }
  let rooms = 0
  const pump = createPathPump({
    clock: manualClock(),
    window,
    history: { note: () => {} },
    paths: { take: () => taken, nextAt: () => null, takeWaiting: () => [] } as never,
    tries: { begin: () => {}, giveBack: () => {}, held: () => [] },
    threads: () => ({ dispatch: () => {}, limit: () => {} }),
    onRoom: () => void rooms++,
  })
  pump.schedule()
  await new Promise(setImmediate)
  t.equal(window.room(), 2)
  t.equal(rooms, 1)
  taken.ready = []
  pump.schedule()
  await new Promise(setImmediate)
  t.equal(rooms, 1, 'only then')
})
