/**
 * A suspended path or lane comes back by one message at a time, and a restart forgets nothing of it (egress/README.md
 * "Suspension ladder").
 */
import t, { type Test } from 'tap'
import { MINUTE } from '../../src/base/clock.ts'
import type { PathView } from '../../src/egress/shaping/shaping.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { startOrderingSink, type OrderingSink } from '../support/ordering-sink.ts'
import { startEngine, type Engine } from './start-engine.ts'

const ANNA = 'anna@dest.test'
/** What suspends it, for how many minutes at first, and from where mail goes. */
const PATH = { refusal: '554 5.7.1 blocked using a list', minutes: 15, ips: ipsOf(11) }
const LANE = { refusal: '550 5.7.26 not authenticated', minutes: 60, ips: ipsOf(11, 12) }
/** So many in an hour suspend. */
const BLOCKS = 5
const WAITING = 20

interface World {
  engine: Engine
  sink: OrderingSink
  clock: ManualClock
  receiver: { isBlocking: boolean; tries: number }
}

/** Its one path, or its one lane, has just been suspended, with mail waiting. */
async function suspended(t: Test, { refusal, minutes, ips } = PATH): Promise<World> {
  const receiver = { isBlocking: true, tries: 0 }
  const sink = await startOrderingSink({
    onCommand(verb) {
      if (verb !== 'RCPT') return undefined
      receiver.tries++
      return receiver.isBlocking ? refusal : undefined
    },
  })
  t.teardown(() => sink.close())
  const clock = manualClock()
  const engine = await startEngine(t, { port: sink.port, clock, ips })
  for (let block = 0; block < BLOCKS; block++) {
    await engine.untilState((await engine.accept(ANNA))[0], 'deferred')
  }
  await engine.accept(ANNA, { count: WAITING - BLOCKS })
  const [view] = pathsOf(engine)
  t.match(view, {
    status: 'suspended',
    step: 1,
    holds: [{ kind: 'suspension', until: clock.now() + minutes * MINUTE }],
  })
  receiver.tries = 0
  return { engine, sink, clock, receiver }
}

function ipsOf(...hosts: number[]): Record<string, unknown>[] {
  return hosts.map((host) => ({ address: `127.0.0.${host}`, hostname: `mta${host}.sternpost.test`, warmed: true }))
}

const pathsOf = ({ shaping }: Engine): PathView[] => shaping.views()

/** All that can happen at this moment of the clock has happened. */
async function settle({ engine, clock }: World): Promise<void> {
  for (let turn = 0; turn < 20; turn++) {
    await clock.advance(0)
    await engine.dispatcher.ticks()
    await engine.store.queueSummary(clock.now())
  }
}

const goesOneByOne = (cause: typeof PATH) => async (t: Test) => {
  const world = await suspended(t, cause)
  const { engine, sink, clock, receiver } = world
  receiver.isBlocking = false
  await clock.advance(cause.minutes * MINUTE - 1)
  await settle(world)
  t.equal(receiver.tries, 0, 'nothing goes before its end')
  sink.hold()
  await clock.advance(100)
  for (let probe = 1; probe <= 3; probe++) {
    await engine.until(`probe ${probe}`, () => sink.held() === 1)
    await settle(world)
    t.equal(receiver.tries, probe, 'one message')
    t.match(pathsOf(engine), [{ status: 'probing' }])
    sink.release()
    sink.hold()
    await engine.until('it was taken', () => sink.arrivals.length === probe)
  }
  await engine.until('it is open', () => pathsOf(engine).length === 0)
  sink.release()
  await engine.until('all others follow', () => sink.arrivals.length === WAITING)
  t.notOk(engine.log.some(({ msg }) => msg === 'scheduler.missed_wake'))
}

t.test('one message goes by a path, then one after each that passes; after three it is open', goesOneByOne(PATH))
t.test('one message goes of a lane, then one after each that passes; after three it is open', goesOneByOne(LANE))

t.test('a block in answer to the probe suspends for longer, and ends no message', async (t) => {
  const world = await suspended(t)
  const { engine, clock, receiver } = world
  let tries = 0
  for (const [step, minutes] of [
    [1, 15],
    [2, 30],
    [3, 60],
    [4, 120],
  ] as const) {
    t.match(pathsOf(engine), [{ status: 'suspended', step, holds: [{ until: clock.now() + minutes * MINUTE }] }])
    await clock.advance(minutes * MINUTE + 100)
    await engine.until('it was tried', () => receiver.tries > tries)
    await engine.until('it is suspended again', () => pathsOf(engine)[0]?.status === 'suspended')
    await settle(world)
    t.equal(receiver.tries, ++tries, 'by one message')
  }
  const { sending, waiting } = await engine.store.queueSummary(clock.now())
  t.equal(sending + waiting, WAITING)
})

t.test('a restart forgets neither a suspension nor its step', async (t) => {
  const world = await suspended(t)
  const { engine, sink, clock, receiver } = world
  const [before] = pathsOf(engine)
  await engine.close()
  const again = await startEngine(t, { port: sink.port, clock, folder: engine.folder })
  t.strictSame(pathsOf(again), [before])
  await settle({ ...world, engine: again })
  t.equal(receiver.tries, 0)
  receiver.isBlocking = false
  sink.hold()
  await clock.advance(15 * MINUTE + 100)
  await again.until('the probe', () => sink.held() === 1)
  await settle({ ...world, engine: again })
  t.equal(receiver.tries, 1)
  sink.release()
  await again.until('all have arrived', () => sink.arrivals.length === WAITING)
})
