import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND, systemClock } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createClaimHistory } from '../../src/delivery/settle/claim-history.ts'
import { createDeliveryThreads } from '../../src/delivery/delivery-threads.ts'
import { startWorker } from '../../src/delivery/thread-settings.ts'
import { createOutcomeRecorder } from '../../src/delivery/settle/outcome-recorder.ts'
import type { ClaimedMessage, OutcomeRecord, UnclaimRequest } from '../../src/store/records/claim-records.ts'
import { locationIn } from '../store/sqlite-support.ts'
import { manualClock } from '../support/manual-clock.ts'
import { scriptedMx, type ScriptedMxOptions } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import { startEngine } from './start-engine.ts'

const ANNA = 'anna@dest.test'

/** An engine whose clock jumps an hour ahead, so that the upkeep job finds the lease of what is under way lapsed. */
async function jumpingEngine(t: Test, script: NonNullable<ScriptedMxOptions['script']>) {
  const server = await scriptedMx({ address: '127.0.0.2', script })
  t.teardown(() => server.close())
  let jump = 0
  const clock = { ...systemClock, now: () => Date.now() + jump }
  const engine = await startEngine(t, { port: server.port, clock })
  return {
    server,
    engine,
    async lapse(uncertainAfter: number, renew = async (): Promise<void> => {}): Promise<number> {
      jump = HOUR
      await renew()
      const now = clock.now()
      const recovered = await engine.store.recoverLapsedLeases(now, now, now + uncertainAfter)
      engine.dispatcher.wake()
      return recovered
    },
  }
}

t.test('what is held keeps its lease when it is renewed behind the jump', async (t) => {
  const { server, engine, lapse } = await jumpingEngine(t, { dot: { afterMilliseconds: 500, reply: '250 ok' } })
  const [id] = await engine.accept(ANNA)
  await until('it is past its dot', () => server.messages.length === 1)
  t.equal(await lapse(0, engine.dispatcher.renewLeases), 0)
  t.match(await engine.untilState(id, 'delivered'), { attempts: { length: 1 }, isPossibleDuplicate: false })
  t.equal(server.messages.length, 1)
})

t.test('what is heard of a dot whose lease lapsed ends the row before it is sent again', async (t) => {
  const { server, engine, lapse } = await jumpingEngine(t, { dot: { afterMilliseconds: 500, reply: '250 ok' } })
  const [id] = await engine.accept(ANNA)
  await until('it is past its dot', () => server.messages.length === 1)
  t.equal(await lapse(5 * MINUTE), 1)
  t.match(await engine.untilState(id, 'delivered'), { attempts: { length: 1 }, isPossibleDuplicate: true })
  const [next] = await engine.accept(ANNA)
  await engine.untilState(next, 'delivered')
  t.equal(server.messages.length, 2)
})

t.test(
  'a row whose lease lapsed behind its dot is sent again as a possible duplicate, if it is due soon',
  async (t) => {
    const { server, engine, lapse } = await jumpingEngine(t, { dot: { afterMilliseconds: 500, reply: '250 ok' } })
    const [id] = await engine.accept(ANNA)
    await until('it is past its dot', () => server.messages.length === 1)
    t.equal(await lapse(0), 1)
    t.match(await engine.untilState(id, 'delivered'), { attempts: { length: 2 }, isPossibleDuplicate: true })
    t.equal(server.messages.length, 2)
  },
)

t.test('of two claims of a row that are in hand, the older one sends no dot', async (t) => {
  const { server, engine, lapse } = await jumpingEngine(t, { rcpt: { afterMilliseconds: 500, reply: '250 ok' } })
  const [id] = await engine.accept(ANNA)
  await until('its envelope is out', () => (server.connections[0]?.commands.length ?? 0) >= 3)
  t.equal(await lapse(0), 1)
  await until('it is under way twice', () => (server.connections[1]?.commands.length ?? 0) >= 3)
  t.match(await engine.untilState(id, 'delivered'), { attempts: { length: 1 }, isPossibleDuplicate: false })
  await engine.dispatcher.ticks()
  t.equal(server.messages.length, 1)
})

t.test('a second answer to the dot that the stop did not wait for ends no message', async (t) => {
  const server = await scriptedMx({ address: '127.0.0.2', script: { dot: ['close', 'silence'] } })
  t.teardown(() => server.close())
  const clock = manualClock()
  const engine = await startEngine(t, { port: server.port, clock, timeouts: { final_dot: '10m' } })
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'deferred'), { attempts: [{ result: 'ambiguous' }] })
  await clock.advance(5 * MINUTE)
  await engine.until('the dot was sent again', () => server.messages.length === 2)
  await engine.dispatcher.stop(100, 200)
  t.match(await engine.message(id), { state: 'deferred', isPossibleDuplicate: true, bounce: null })
})

t.test('a stop does not wait for ever for a store that takes nothing', async (t) => {
  const server = await scriptedMx({ address: '127.0.0.2' })
  t.teardown(() => server.close())
  const clock = manualClock()
  const engine = await startEngine(t, { port: server.port, clock })
  engine.store.recordOutcomes = () => Promise.reject(new Error('SQLITE_FULL'))
  await engine.accept(ANNA)
  const isRefusal = (line: Record<string, unknown>): boolean => line['msg'] === 'outcomes could not be stored'
  await engine.until('an outcome was refused', () => engine.log.some(isRefusal))
  let isStopped = false
  const stopping = engine.dispatcher.stop(SECOND).then(() => {
    isStopped = true
  })
  await until('it has stopped', async () => {
    await clock.advance(SECOND)
    return isStopped
  })
  await stopping
})

t.test('a stop does not wait for ever for a store that does not answer', async (t) => {
  const server = await scriptedMx({ address: '127.0.0.2' })
  t.teardown(() => server.close())
  const clock = manualClock()
  const engine = await startEngine(t, { port: server.port, clock })
  engine.store.recordOutcomes = () => new Promise(() => {})
  const [id] = await engine.accept(ANNA)
  await engine.until('it has arrived', () => server.messages.length === 1)
  const start = clock.now()
  let isStopped = false
  const stopping = engine.dispatcher.stop(SECOND).then(() => (isStopped = true))
  await until('it has stopped', async () => {
    await clock.advance(SECOND)
    return isStopped
  })
  await stopping
  t.ok(clock.now() >= start + 30 * SECOND)
  t.match(await engine.message(id), { state: 'sending' }, 'it is left to its lease')
})

t.test('a stop drains while a claim has no answer', async (t) => {
  const server = await scriptedMx({ address: '127.0.0.2', script: { rcpt: 'silence' } })
  t.teardown(() => server.close())
  const clock = manualClock()
  const engine = await startEngine(t, { port: server.port, clock, timeouts: { rcpt: '10m' } })
  await engine.accept(ANNA)
  await engine.until('RCPT was sent', () => server.connections[0]?.commands.length === 3)
  let asked = 0
  engine.store.claimDue = () => new Promise(() => void asked++)
  await engine.accept(ANNA)
  await engine.until('a claim has no answer', () => asked === 1)
  const stopping = engine.dispatcher.stop(0)
  await until('the session has ended', () => server.connections.every(({ isClosed }) => isClosed), 10 * SECOND)
  await clock.advance(10 * SECOND)
  await stopping
})

const message: ClaimedMessage = {
  key: 1,
  claim: 1,
  id: 'msg_1',
  contentId: 1,
  pool: 'default',
  stream: 'bulk',
  domain: 'acme.test',
  recipient: ANNA,
  recipientDomain: 'dest.test',
  attempts: 0,
  acceptedAt: 0,
  expiresAt: HOUR,
  pathFailures: 0,
  ambiguousCount: 0,
  isPossibleDuplicate: false,
  route: 'mx.dest.test',
  lastIp: null,
  keepIpUntil: null,
  avoidIps: [],
  isCaptured: false,
}

t.test('an outcome that the store can never take holds up no other, and its mail is not sent again', async (t) => {
  const clock = manualClock()
  const stored: number[] = []
  const returned: UnclaimRequest['rows'] = []
  const lines: string[] = []
  const recorder = createOutcomeRecorder({
    store: {
      async recordOutcomes({ outcomes }) {
        if (outcomes.some(({ claim }) => claim === 2)) throw new TypeError('no such category')
        stored.push(...outcomes.map(({ claim }) => claim))
      },
      unclaim: async ({ rows }) => void returned.push(...rows),
    },
    clock,
    realClock: clock,
    logger: createLogger({ level: 'error', write: (line) => void lines.push(line) }),
    history: createClaimHistory(clock),
    onStored: () => {},
  })
  for (const claim of [1, 2, 3]) {
    const outcome = { claim, outcome: { kind: 'delivered' }, events: [] } as unknown as OutcomeRecord
    recorder.record({ ...message, claim, id: `msg_${claim}` }, outcome)
  }
  let isStored = false
  void recorder.stored().then(() => (isStored = true))
  await until('all are', async () => {
    await clock.advance(SECOND)
    return isStored
  })
  t.same(stored, [1, 3])
  t.same(returned, [{ key: 1, claim: 2, nextAt: HOUR, isPossibleDuplicate: true }])
  t.match(lines.join('\n'), /"message_id":"msg_2","outcome":"delivered"/)
  t.notOk(recorder.isBlocked())
})

t.test('after a return that the store can never take, mail is claimed again', async (t) => {
  const clock = manualClock()
  let wakes = 0
  const recorder = createOutcomeRecorder({
    store: { recordOutcomes: async () => {}, unclaim: () => Promise.reject(new TypeError('no such row')) },
    clock,
    realClock: clock,
    logger: createLogger({ level: 'silent' }),
    history: createClaimHistory(clock),
    onStored: () => void wakes++,
  })
  recorder.giveBack(message, { nextAt: 0 })
  await until('it is given up', async () => {
    await clock.advance(SECOND)
    return [...recorder.held()].length === 0
  })
  t.notOk(recorder.isBlocked())
  t.equal(wakes, 1)
})

t.test('what comes after the store was given up is given up as well', async (t) => {
  const clock = manualClock()
  let refused = 0
  const refuse = (): Promise<never> => {
    refused++
    return Promise.reject(new Error('SQLITE_FULL'))
  }
  const recorder = createOutcomeRecorder({
    store: { recordOutcomes: refuse, unclaim: refuse },
    clock,
    realClock: clock,
    logger: createLogger({ level: 'silent' }),
    history: createClaimHistory(clock),
    onStored: () => {},
  })
  recorder.giveBack(message, { nextAt: 0 })
  await until('it was refused', () => refused === 1)
  const finished = recorder.finish()
  for (let second = 1; second <= 10; second++) {
    await clock.advance(SECOND)
    await until('it was refused again', () => refused > second)
  }
  await finished
  recorder.giveBack(message, { nextAt: 0 })
  await recorder.stored()
  t.equal(refused, 11, 'nothing more is tried')
})

t.test('a stop waits for the store in real time, whatever the speed of the clock', async (t) => {
  const clock = {
    now: () => Date.now() * 3_600,
    after: (ms: number, ring: () => void) => systemClock.after(ms / 3_600, ring),
  }
  const realClock = manualClock()
  const answer = Promise.withResolvers<void>()
  let answers: PromiseLike<void> = answer.promise
  const recorder = createOutcomeRecorder({
    store: { recordOutcomes: () => Promise.resolve(answers), unclaim: () => Promise.resolve(answers) },
    clock,
    realClock,
    logger: createLogger({ level: 'silent' }),
    history: createClaimHistory(clock),
    onStored: () => {},
  })
  recorder.giveBack(message, { nextAt: 0 })
  let finished = 0
  const finishing = recorder.finish().then(() => finished++)
  await sleep(30)
  t.equal(finished, 0)
  answer.resolve()
  await finishing
  answers = new Promise(() => {})
  recorder.giveBack(message, { nextAt: 0 })
  const late = recorder.finish(5 * SECOND).then(() => finished++)
  await realClock.advance(5 * SECOND - 1)
  t.equal(finished, 1)
  await realClock.advance(1)
  await late
})

t.test('threads that die at once hold up neither the start nor the stop', async (t) => {
  const fatal: Error[] = []
  const deaths: number[] = []
  const threads = createDeliveryThreads({
    count: 1,
    startWorker,
    clock: systemClock,
    logger: createLogger({ level: 'silent' }),
    // There is no such database.
    settings: {
      storeLocation: locationIn(t.testdir({})),
      masterKey: new Uint8Array(32),
      minTlsVersion: 'TLSv1.2',
      caFile: null,
      connectionsMax: 1,
      largeBytes: 0,
      keepsTranscripts: false,
      render: {
        referenceHeader: null,
        senderId: 'sternpost',
        cfbl: false,
        trackingUrl: null,
        trackingHost: 't.test',
        platformDomain: null,
      },
      timeouts: {
        connect: SECOND,
        banner: SECOND,
        ehlo: SECOND,
        starttls: SECOND,
        mail: SECOND,
        rcpt: SECOND,
        data: SECOND,
        final_dot: SECOND,
        quit: SECOND,
        handshake: SECOND,
        body: SECOND,
        mark: SECOND,
        rset: SECOND,
        closing: SECOND,
      },
    },
    onResults: () => {},
    onMark: () => {},
    onConnections: () => {},
    onDeath: (thread) => deaths.push(thread),
    onStart() {},
    onFatal: (reason) => fatal.push(reason),
  })
  threads.start()
  await threads.tick()
  await until('the third death', () => fatal.length === 1)
  t.same(deaths, [0, 0, 0])
  await threads.drain(MINUTE)
  await threads.end()
})

t.test('a host that never greets does not hold up the stop beyond its drain', async (t) => {
  const server = await scriptedMx({ address: '127.0.0.2', script: { banner: 'silence' } })
  t.teardown(() => server.close())
  const engine = await startEngine(t, { port: server.port, timeouts: { banner: '1m' } })
  const [id] = await engine.accept(ANNA)
  await until('it is connected', () => server.connections.length === 1)
  const start = performance.now()
  await engine.dispatcher.stop(3 * SECOND)
  // The time after the drain is for those who wait for the answer to their dot.
  t.ok(performance.now() - start < 6 * SECOND)
  t.match(await engine.message(id), { state: 'queued', attempts: { length: 0 } })
})

t.test('a stop leaves rows whose lookups have no end to the next start', async (t) => {
  const server = await scriptedMx({ address: '127.0.0.2' })
  t.teardown(() => server.close())
  let asked = 0
  const engine = await startEngine(t, {
    port: server.port,
    watchStore: (store) => ({
      ...store,
      findReturnPath() {
        asked += 1
        return new Promise(() => {})
      },
    }),
  })
  const [id] = await engine.accept(ANNA)
  await until('the row is being placed', () => asked === 1)
  await engine.dispatcher.stop(50, 100)
  t.match(await engine.message(id), { state: 'sending', attempts: [] })
})
