/**
 * The dot mark between thread and store, and what is known of messages whose thread died.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { MINUTE } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createDotMarks } from '../../src/delivery/settle/dot-marks.ts'
import type { RowClaim } from '../../src/store/records/claim-records.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { mx } from './session-kit.ts'
import { startEngine } from './start-engine.ts'

const ANNA = 'anna@dest.test'
const START = Date.UTC(2026, 10, 21, 12)

t.test('no dot goes out before its mark is committed, and marks that come together share a commit', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port })
  const { store } = engine
  const commit = store.markDotSent.bind(store)
  const asked: RowClaim[][] = []
  let release = (): void => {}
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  store.markDotSent = async (epoch, rows) => {
    asked.push(rows)
    await held
    return commit(epoch, rows)
  }
  const ids = await engine.accept(ANNA, { count: 2 })
  await until('a mark is asked for', () => asked.length > 0)
  t.equal(server.messages.length, 0)
  release()
  for (const id of ids) await engine.untilState(id, 'delivered')
  t.equal(server.messages.length, 2)
})

t.test('a row that was given back while its mark was committed sends no dot', async (t) => {
  const inThread = new Set([1, 2])
  const answers: number[][] = []
  let commit = (): void => {}
  const marks = createDotMarks({
    store: {
      markDotSent: () =>
        new Promise((resolve) => {
          commit = () => resolve({ stale: [] })
        }),
    },
    clock: manualClock(START),
    logger: createLogger({ level: 'silent' }),
    epoch: 1,
    behindOutcomes: (ask) => ask(Promise.resolve()),
    keyInThread: (claim) => (inThread.has(claim) ? 10 * claim : undefined),
    answer: (_thread, _id, stale) => void answers.push(stale),
    onUnblocked: () => {},
  })
  marks.ask(0, 1, [1, 2])
  await new Promise(setImmediate)
  inThread.delete(1)
  commit()
  await until('it is answered', () => answers.length === 1)
  t.same(answers, [[1]])
  t.notOk(marks.isMarked(1))
  t.ok(marks.isMarked(2))
})

t.test('a question whose rows came back before it was committed is answered, so that nobody keeps it', async (t) => {
  const clock = manualClock(START)
  const answers: number[][] = []
  let asked = 0
  let unblocked = 0
  let isInThread = true
  const marks = createDotMarks({
    store: {
      markDotSent() {
        asked++
        isInThread = false
        return Promise.reject(new Error('SQLITE_FULL'))
      },
    },
    clock,
    logger: createLogger({ level: 'silent' }),
    epoch: 1,
    behindOutcomes: (ask) => ask(Promise.resolve()),
    keyInThread: (claim) => (isInThread ? 10 * claim : undefined),
    answer: (_thread, _id, stale) => void answers.push(stale),
    onUnblocked: () => void unblocked++,
  })
  marks.ask(0, 1, [1, 2])
  await until('it was refused', marks.isBlocked)
  t.same(answers, [])
  await clock.advance(1_000)
  t.same(answers, [[1, 2]], 'no dot of them goes out')
  t.same([asked, unblocked, marks.isBlocked(), marks.isMarked(1)], [1, 1, false, false])
})

t.test('who is woken when marks are committed again finds them so', async (t) => {
  const clock = manualClock(START)
  const found: boolean[] = []
  let failures = 0
  const marks = createDotMarks({
    store: { markDotSent: async () => (failures++ === 0 ? Promise.reject(new Error('SQLITE_FULL')) : { stale: [] }) },
    clock,
    logger: createLogger({ level: 'silent' }),
    epoch: 1,
    behindOutcomes: (ask) => ask(Promise.resolve()),
    keyInThread: (claim) => claim,
    answer: () => {},
    onUnblocked: () => void found.push(marks.isBlocked()),
  })
  marks.ask(0, 1, [1])
  await until('it was refused', marks.isBlocked)
  await clock.advance(1_000)
  await until('somebody is woken', () => found.length > 0)
  t.same(found, [false])
})

t.test('a mark that cannot be committed is asked for again; nothing is sent or claimed meanwhile', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const { store } = engine
  const commit = store.markDotSent.bind(store)
  let failures = 0
  store.markDotSent = (epoch, rows) => (failures++ < 2 ? Promise.reject(new Error('SQLITE_FULL')) : commit(epoch, rows))
  const [first] = await engine.accept(ANNA)
  await until('the commit failed', () => failures === 1)
  const [second] = await engine.accept(ANNA)
  await clock.advance(1_000)
  await until('it failed again', () => failures === 2)
  t.equal(server.messages.length, 0)
  t.match(await engine.message(second), { state: 'queued' })
  await clock.advance(1_000)
  await engine.untilState(first, 'delivered')
  await engine.untilState(second, 'delivered')
  t.equal(server.messages.length, 2)
  t.equal(engine.log.filter(({ msg }) => msg === 'dot marks could not be stored').length, 1)
})

t.test('no dot goes out before the outcome of the message before is stored, though its mark is', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock, providers: { default: { connections: 1 } } })
  const { store } = engine
  const record = store.recordOutcomes.bind(store)
  const mark = store.markDotSent.bind(store)
  let failures = 0
  let marked = 0
  store.recordOutcomes = (request) => (failures++ < 2 ? Promise.reject(new Error('SQLITE_FULL')) : record(request))
  store.markDotSent = async (epoch, rows) => {
    const answer = await mark(epoch, rows)
    marked += rows.length
    return answer
  }
  const ids = await engine.accept(ANNA, { count: 2 })
  await until('the first outcome was refused', () => failures === 1)
  await until('the body of the second is out', () => (server.connections[0]?.commands.length ?? 0) >= 7)
  await clock.advance(1_000)
  await until('it was refused again, and the second is marked', () => failures === 2 && marked === 2)
  await engine.dispatcher.ticks()
  await sleep(200)
  t.equal(server.messages.length, 1)
  await clock.advance(1_000)
  for (const id of ids) await engine.untilState(id, 'delivered')
  t.equal(server.messages.length, 2)
})

t.test('a message that is not ours any more gets no dot, and comes back', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port })
  const { store } = engine
  const commit = store.markDotSent.bind(store)
  let isStale = true
  store.markDotSent = async (epoch, rows) => {
    if (!isStale) return commit(epoch, rows)
    isStale = false
    return { stale: rows.map(({ claim }) => claim) }
  }
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'delivered'), { attempts: { length: 1 } })
  t.equal(server.messages.length, 1)
  t.equal(server.connections.length, 2, 'the first one was closed without the dot')
})

t.test('what the store answers to a dead thread lets no dot of the next one out', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port })
  const { store } = engine
  const commit = store.markDotSent.bind(store)
  const held: (() => Promise<unknown>)[] = []
  store.markDotSent = (epoch, rows) =>
    new Promise((resolve, reject) => {
      held.push(() => commit(epoch, rows).then(resolve, reject))
    })
  const [first] = await engine.accept(ANNA)
  await until('the thread asks for a mark', () => held.length === 1)
  const before = engine.live.current()
  // A port that no check would let pass makes the thread throw.
  const delivery = { ...before.server.delivery, port: 70_000 }
  await engine.live.replace({ ...before, server: { ...before.server, delivery } })
  const [second] = await engine.accept('other@dest.test')
  await until('the thread is dead', () => engine.log.some(({ msg }) => msg === 'delivery thread died'))
  await engine.live.replace(before)
  await until('the next one asks, too', () => held.length > 1)
  const answered = held.splice(0, 1)
  for (const answer of answered) await answer()
  await engine.dispatcher.ticks()
  await sleep(200)
  t.equal(server.messages.length, 0)
  await until('all is delivered', async () => {
    for (const answer of held.splice(0)) await answer()
    return server.messages.length === 2
  })
  for (const id of [first, second]) await engine.untilState(id, 'delivered')
  t.equal(server.messages.length, 2)
})

t.test('what a dead thread had is due at once, or later as a possible duplicate if its dot may be out', async (t) => {
  const server = await mx(t, { script: { dot: ['silence', '250 ok'] } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const [past] = await engine.accept(ANNA)
  await until('the dot of the first is out', () => server.messages.length === 1)
  // A port that no check would let pass makes the thread throw.
  const before = engine.live.current()
  const delivery = { ...before.server.delivery, port: 70_000 }
  await engine.live.replace({ ...before, server: { ...before.server, delivery } })
  const [other] = await engine.accept('other@dest.test')
  await until('the thread is dead', () => engine.log.some(({ msg }) => msg === 'delivery thread died'))
  await engine.live.replace(before)
  await engine.untilState(other, 'delivered')
  t.match(await engine.message(other), { isPossibleDuplicate: false })
  t.match(await engine.message(past), {
    state: 'queued',
    isPossibleDuplicate: true,
    nextAttemptAt: START + 5 * MINUTE,
    attempts: { length: 0 },
  })
  await clock.advance(5 * MINUTE)
  t.match(await engine.untilState(past, 'delivered'), { isPossibleDuplicate: true })
  const [first, ...others] = server.messages.filter(({ to }) => to === ANNA)
  t.equal(others.length, 1)
  t.ok(first?.bytes.equals(others[0]?.bytes ?? Buffer.alloc(0)), 'the same bytes')
})
