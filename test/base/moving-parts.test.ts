/** The clock, the poll loop and the channel between threads. */
import { MessageChannel } from 'node:worker_threads'
import t from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import { createPollLoop } from '../../src/base/poll-loop.ts'
import {
  answerThreadChannel,
  createThreadChannel,
  type IncomingCall,
  type ThreadChannel,
} from '../../src/base/threads/thread-channel.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

t.test('the system clock calls back and can be cancelled', async (t) => {
  let fired = ''
  const cancel = systemClock.after(1, () => {
    fired += 'cancelled'
  })
  cancel()
  await new Promise<void>((resolve) => systemClock.after(5, resolve))
  t.equal(fired, '')
  t.ok(Math.abs(systemClock.now() - Date.now()) < 1_000)
})

t.test('the manual clock fires timers in order, also those set by timers', async (t) => {
  const clock = manualClock(0)
  const fired: [string, number][] = []
  clock.after(20, () => fired.push(['second', clock.now()]))
  clock.after(10, () => {
    fired.push(['first', clock.now()])
    clock.after(5, () => fired.push(['nested', clock.now()]))
  })
  await clock.advance(15)
  t.same(fired, [
    ['first', 10],
    ['nested', 15],
  ])
  await clock.advance(100)
  t.same(fired.at(-1), ['second', 20])
})

t.test('a poll loop runs when due, when woken, and again after an error', async (t) => {
  const clock = manualClock(0)
  const rounds: number[] = []
  const errors: unknown[] = []
  let isIdle = false
  const loop = createPollLoop({
    clock,
    round: async () => {
      rounds.push(clock.now())
      if (rounds.length === 3) throw new Error('planted')
      return isIdle ? null : clock.now() + 50
    },
    onError: (thrown) => errors.push(thrown),
  })
  loop.start()
  await clock.advance(10)
  t.same(rounds, [0], 'at once')
  await clock.advance(40)
  t.same(rounds, [0, 50], 'at the time it named')
  isIdle = true
  loop.wake()
  await clock.advance(1)
  t.equal(errors.length, 1, 'the third round failed and was reported')
  await clock.advance(1_000)
  t.equal(rounds.length, 4, 'and was tried again')
  await clock.advance(100_000)
  t.equal(rounds.length, 4, 'null means: only a wake-up')
  loop.wake()
  await clock.advance(1)
  t.equal(rounds.length, 5)
  await loop.stop()
  loop.wake()
  await clock.advance(1)
  t.equal(rounds.length, 5, 'nothing after the stop')
})

t.test('a wake-up during a round makes another one, and stop waits for the running round', async (t) => {
  const clock = manualClock(0)
  let release = (): void => {}
  let rounds = 0
  const loop = createPollLoop({
    clock,
    round: () => {
      rounds += 1
      return new Promise((resolve) => {
        release = () => resolve(null)
      })
    },
    onError: (thrown) => t.fail(String(thrown)),
  })
  loop.start()
  loop.wake()
  loop.wake()
  release()
  await until('the second round', () => rounds === 2)
  let hasStopped = false
  const stopped = loop.stop().then(() => {
    hasStopped = true
  })
  await clock.advance(1)
  t.notOk(hasStopped)
  release()
  await stopped
  t.equal(rounds, 2)
})

t.test('calls of one turn travel together, and each gets its own answer', async (t) => {
  const { channel, batches, close } = pair()
  const first = channel.call('double', 1)
  await Promise.resolve()
  const answers = Promise.all([first, channel.call('double', 2), channel.call('double', 3)])
  t.same(await answers, [2, 4, 6])
  t.same(batches, [3])
  close()
})

t.test('an error keeps its kind on the way back', async (t) => {
  const { channel, close } = pair()
  await t.rejects(channel.call('refuse', null), new ServiceError('conflict', 'because'))
  await t.rejects(channel.call('break', null), { message: 'broken', code: 'SQLITE_FULL' })
  close()
})

t.test('at most four batches are under way; later calls wait and then go together', async (t) => {
  const held: IncomingCall[] = []
  const { channel, batches, close } = pair((calls) => held.push(...calls))
  const answers: Promise<unknown>[] = []
  for (let index = 0; index < 8; index += 1) {
    answers.push(channel.call('hold', index))
    await nextTurn()
  }
  await until('four batches', () => batches.length === 4)
  t.same(batches, [1, 1, 1, 1])
  held.shift()?.resolve('first')
  await until('the rest', () => batches.length === 5)
  t.equal(batches[4], 4, 'what had collected travels together')
  for (const call of held) call.resolve('rest')
  t.same(await Promise.all(answers), ['first', ...Array.from({ length: 7 }, () => 'rest')])
  close()
})

t.test('memory that is moved is gone here and arrives there, also in a batch that waits', async (t) => {
  const held: IncomingCall[] = []
  const { channel, close } = pair((calls) => held.push(...calls))
  const blocks = Array.from({ length: 6 }, (_, index) => new Uint8Array([index]))
  for (const block of blocks) {
    const answer = channel.call('take', { block }, [block.buffer])
    answer.catch(() => {})
    await nextTurn()
  }
  t.strictSame(
    blocks.map(({ length }) => length),
    [0, 0, 0, 0, 1, 1],
  )
  await until('the first batches arrive', () => held.length === 4)
  for (const call of held) call.resolve(null)
  await until('the others arrive', () => held.length === 6)
  t.strictSame(
    blocks.map(({ length }) => length),
    [0, 0, 0, 0, 0, 0],
  )
  t.strictSame(
    held.map(({ argument }) => argument),
    blocks.map((_, index) => ({ block: new Uint8Array([index]) })),
  )
  close()
})

t.test('a failed channel takes the answers that lie in the port', async (t) => {
  const { port1, port2 } = new MessageChannel()
  t.teardown(() => port1.close())
  const channel = createThreadChannel(port1)
  const calls = [channel.call('first', null), channel.call('second', null)]
  await nextTurn()
  port2.postMessage([{ id: 1, value: 'done' }])
  channel.fail(new Error('the thread has ended'))
  t.equal(await calls[0], 'done')
  await t.rejects(calls[1] ?? Promise.resolve(), { message: 'the thread has ended' })
})

t.test('notes come with the answers, in order', async (t) => {
  const { port1, port2 } = new MessageChannel()
  t.teardown(() => port1.close())
  const heard: unknown[] = []
  const channel = createThreadChannel(port1, (noted) => heard.push(noted))
  const note = answerThreadChannel(port2, (calls) => {
    note({ verbs: calls.length })
    for (const call of calls) call.resolve('done')
  })
  t.same(await Promise.all([channel.call('first', null), channel.call('second', null)]), ['done', 'done'])
  t.same(heard, [{ verbs: 2 }])
  note('later')
  await until('it is heard', () => heard.length === 2)
  t.equal(heard[1], 'later')
})

t.test('a failed channel rejects what is open and what comes later', async (t) => {
  const { channel, close } = pair(() => {})
  const open = channel.call('hold', 1)
  channel.fail(new Error('the thread died'))
  await t.rejects(open, { message: 'the thread died' })
  await t.rejects(channel.call('hold', 2), { message: 'the thread died' })
  close()
})

/** What was asked for in this turn of the event loop has been posted. */
const nextTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve))

interface Pair {
  channel: ThreadChannel
  /** Sizes of the batches that arrived. */
  batches: number[]
  close: () => void
}

function pair(onCalls = answer): Pair {
  const { port1, port2 } = new MessageChannel()
  const batches: number[] = []
  answerThreadChannel(port2, (calls) => {
    batches.push(calls.length)
    onCalls(calls)
  })
  return { channel: createThreadChannel(port1), batches, close: () => port1.close() }
}

function answer(calls: IncomingCall[]): void {
  for (const call of calls) {
    if (call.verb === 'double') call.resolve(Number(call.argument) * 2)
    else if (call.verb === 'refuse') call.reject(new ServiceError('conflict', 'because'))
    else call.reject(Object.assign(new Error('broken'), { code: 'SQLITE_FULL' }))
  }
}
