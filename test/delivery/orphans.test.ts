import t, { type Test } from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { createClaimHistory } from '../../src/delivery/settle/claim-history.ts'
import { createOrphans, type Orphans } from '../../src/delivery/orphans.ts'
import type { PlacedRow } from '../../src/delivery/place/place-messages.ts'
import { createReadyWindow, type ReadyWindow } from '../../src/delivery/place/ready-window.ts'
import type { ClaimedMessage, LeasedRow, UnclaimRequest } from '../../src/store/records/claim-records.ts'
import type { Store } from '../../src/store/store.ts'
import { claimedRow } from '../store/store-samples.ts'
import { manualClock } from '../support/manual-clock.ts'
import { scriptedMx } from '../support/scripted-mx.ts'
import { startEngine } from './start-engine.ts'

const ANNA = 'anna@dest.test'

const message = (claim: number): ClaimedMessage => claimedRow(claim, { key: 10 * claim, recipient: ANNA })
const leased = (claim: number, change: Partial<LeasedRow> = {}): LeasedRow => ({
  key: 10 * claim,
  claim,
  id: `msg_${claim}`,
  since: 7,
  isMarked: false,
  ...change,
})

interface World {
  orphans: Orphans
  window: ReadyWindow
  /** What the store has leased, and what is held: changed by the test. */
  rows: LeasedRow[]
  held: Set<number>
  inThread: Set<number>
  /** What the thread says it has; null: it dies. */
  thread: { claims: Set<number> | null; isSilent: boolean }
  unclaimed: UnclaimRequest['rows']
  lost: number[]
  log: Record<string, unknown>[]
  freed: () => number
  counted: () => Promise<string>
  /** Lets one look end. */
  look(between?: () => void): Promise<void>
}

function world(store: Partial<Store> = {}): World {
  const clock = manualClock()
  const metrics = createMetrics()
  const window = createReadyWindow(() => 100)
  const [rows, unclaimed, lost, log]: [LeasedRow[], UnclaimRequest['rows'], number[], Record<string, unknown>[]] = [
    [],
    [],
    [],
    [],
  ]
  const [held, inThread] = [new Set<number>(), new Set<number>()]
  const thread: World['thread'] = { claims: new Set(), isSilent: false }
  const history = createClaimHistory(clock)
  history.note('claimed', message(1))
  history.note('given back', message(1), 'rate')
  let freed = 0
  const orphans = createOrphans({
    clock,
    realClock: clock,
    window,
    metrics,
    history,
    epoch: 1,
    threadCount: 1,
    logger: createLogger({ level: 'debug', write: (line) => void log.push(JSON.parse(line)) }),
    store: {
      leasedRows: async (_epoch, after, limit) => {
        const first = after === null ? 0 : after.key
        const page = rows.slice(first, first + limit)
        return { rows: page, next: page.length < limit ? null : { leaseUntil: 0, key: first + limit } }
      },
      unclaim: async (request) => void unclaimed.push(...request.rows),
      ...store,
    },
    holders: () =>
      new Map([...held, ...inThread].map((claim) => [claim, { message: message(claim), by: 'placer' as const }])),
    tries: {
      *held() {
        for (const claim of inThread) yield { row: { claim, message: message(claim) } as PlacedRow, thread: 0 }
      },
      giveBackLost(claims) {
        lost.push(...claims)
        for (const claim of claims) inThread.delete(claim)
      },
    },
    threads: { claimsOf: () => (thread.isSilent ? new Promise(() => {}) : Promise.resolve(thread.claims)) },
    uncertainRetry: () => 5 * MINUTE,
    onFreed: () => void freed++,
  })
  return {
    orphans,
    window,
    rows,
    held,
    inThread,
    thread,
    unclaimed,
    lost,
    log,
    freed: () => freed,
    counted: () => metrics.registry.metrics(),
    async look(between = () => {}) {
      const looking = orphans.look()
      for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate)
      between()
      await clock.advance(SECOND)
      for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate)
      await looking
    },
  }
}

t.test("a row that two looks find leased and in nobody's hand is given back, told and counted", async (t) => {
  const { look, rows, held, window, unclaimed, log, freed, counted } = world()
  t.match(await counted(), /sternpost_orphans_total\{kind="message"\} 0\nsternpost_orphans_total\{kind="webhook"\} 0/)
  window.hold([message(1), message(2)])
  held.add(2)
  rows.push(leased(1), leased(2), leased(3, { isMarked: true }))
  const before = manualClock().now()
  await look()
  t.strictSame(unclaimed, [
    { key: 10, claim: 1, nextAt: before + SECOND },
    { key: 30, claim: 3, nextAt: before + SECOND + 5 * MINUTE, isPossibleDuplicate: true },
  ])
  t.same(
    [...window.held()].map(({ claim }) => claim),
    [2],
  )
  t.equal(freed(), 1)
  t.match(log, [
    {
      level: 'warn',
      msg: "message in nobody's hand",
      message_id: 'msg_1',
      claim: 1,
      since: 7,
      may_be_sent: false,
      history: [
        { step: 'claimed', claim: 1 },
        { step: 'given back', detail: 'rate' },
      ],
    },
    { message_id: 'msg_3', may_be_sent: true, history: [] },
  ])
  t.equal(log.length, 2)
  t.match(await counted(), /sternpost_orphans_total\{kind="message"\} 2/)
})

t.test('what only one look finds is no orphan', async (t) => {
  const { look, rows, held, window, unclaimed, log, freed } = world()
  rows.push(leased(1), leased(2), leased(3))
  window.hold([message(4), message(5)])
  await look(() => {
    // It has been heard meanwhile, has ended, and was claimed again.
    held.add(1)
    rows.splice(1, 2, leased(6, { key: 30 }))
    held.add(4)
    window.release([5])
  })
  t.same([unclaimed, log, freed(), window.size()], [[], [], 0, 1])
})

t.test('what the window counts and nobody holds is not counted any more', async (t) => {
  const { look, held, window, unclaimed, log, counted } = world()
  window.hold([message(1), message(2)])
  held.add(1)
  await look()
  t.same(
    [...window.held()].map(({ claim }) => claim),
    [1],
  )
  t.same(unclaimed, [], 'the store does not have it')
  t.match(log, [{ message_id: 'msg_2', seen_by: 'window' }])
  t.match(await counted(), /sternpost_orphans_total\{kind="message"\} 1/)
})

t.test('many rows are read and given back in parts', async (t) => {
  const parts: number[] = []
  const { look, rows, log } = world({ unclaim: async (request) => void parts.push(request.rows.length) })
  rows.push(...Array.from({ length: 1_200 }, (_none, index) => leased(index + 1)))
  await look()
  t.same(parts, [500, 500, 200])
  t.equal(log.length, 1_200)
})

t.test('rows that their thread does not have come back, unless it died or says nothing', async (t) => {
  const { look, inThread, thread, lost, log } = world()
  for (const claim of [1, 2]) inThread.add(claim)
  thread.claims = null
  await look()
  t.same(lost, [])
  thread.claims = new Set([2])
  await look()
  t.same(lost, [1])
  t.match(log, [{ message_id: 'msg_1', seen_by: 'thread 0' }])
  thread.isSilent = true
  await look()
  await look()
  t.same(lost, [1])
})

t.test('an error of the store is told, and the next look finds the row', async (t) => {
  let isRefused = true
  const given: number[] = []
  const { look, rows, log } = world({
    async unclaim(request) {
      if (isRefused) throw new Error('SQLITE_FULL')
      given.push(...request.rows.map(({ claim }) => claim))
    },
  })
  rows.push(leased(1))
  await look()
  t.match(log, [{ level: 'error', error: 'SQLITE_FULL' }])
  isRefused = false
  await look()
  t.same(given, [1])
})

t.test('nothing is given back once it has stopped', async (t) => {
  const { orphans, look, rows, unclaimed } = world()
  rows.push(leased(1))
  await look(() => orphans.stop())
  t.same(unclaimed, [])
})

async function losingEngine(t: Test) {
  const server = await scriptedMx({ address: '127.0.0.2' })
  t.teardown(() => server.close())
  const clock = manualClock()
  let isLost = false
  const engine = await startEngine(t, {
    port: server.port,
    clock,
    // The first rows are claimed, and nobody is told of them.
    watchStore: (store) => ({
      ...store,
      async claimDue(request) {
        const claimed = await store.claimDue(request)
        if (isLost || claimed.messages.length === 0) return claimed
        isLost = true
        return { ...claimed, messages: [] }
      },
    }),
  })
  return { engine, server, clock, isLost: () => isLost }
}

t.test('a message that got lost between store and dispatcher is sent within the next minutes', async (t) => {
  const { engine, server, clock, isLost } = await losingEngine(t)
  const [id] = await engine.accept(ANNA)
  await engine.until('it is lost', isLost)
  await clock.advance(MINUTE)
  await engine.until('it is sent', async () => {
    await clock.advance(SECOND)
    return server.messages.length === 1
  })
  await engine.untilState(id, 'delivered')
  t.match(
    engine.log.filter(({ msg }) => msg === "message in nobody's hand"),
    [{ message_id: id, seen_by: 'store' }],
  )
  t.match(await engine.metrics.registry.metrics(), /sternpost_orphans_total\{kind="message"\} 1/)
})

t.test('under load the net finds nothing, and each thread has what it was given', async (t) => {
  const server = await scriptedMx({
    address: '127.0.0.2',
    script: { rcpt: { afterMilliseconds: 20, reply: '250 ok' } },
  })
  t.teardown(() => server.close())
  const clock = manualClock()
  const engine = await startEngine(t, { port: server.port, clock })
  const ids = await engine.accept(ANNA, { count: 150 })
  await engine.until('all are delivered', async () => {
    await clock.advance(MINUTE)
    return (await engine.store.queueSummary(clock.now())).sending === 0 && server.messages.length === ids.length
  })
  t.equal(engine.log.filter(({ msg }) => msg === "message in nobody's hand").length, 0)
  t.equal(server.messages.length, ids.length)
})

t.test('a ring of steps keeps the last ones', (t) => {
  const history = createClaimHistory(manualClock(5), 3)
  for (const step of ['claimed', 'placed', 'given back'] as const) history.note(step, message(1), 'a')
  history.note('claimed', { key: 10, claim: 2 })
  t.strictSame(history.of(10), [
    { at: 5, claim: 1, step: 'placed', detail: 'a' },
    { at: 5, claim: 1, step: 'given back', detail: 'a' },
    { at: 5, claim: 2, step: 'claimed', detail: null },
  ])
  t.same(history.of(11), [])
  t.end()
})
