/**
 * Whether mail is taken: how often the queue is counted for it, and what holds while it is.
 */
import t from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import { createMailRefusal, type MailRefusal } from '../../src/messages/accept/mail-refusal.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'

const MOST_QUEUED = 5_000_000

interface Counted {
  mailRefusal: MailRefusal
  clock: ManualClock
  counts: () => number
  setQueued(queued: number | Error): void
}

function counted(): Counted {
  const clock = manualClock(Date.UTC(2026, 10, 22))
  let queued: number | Error = 0
  let counts = 0
  const store = {
    problem: () => null,
    async countQueued() {
      counts += 1
      if (queued instanceof Error) throw queued
      return queued
    },
  }
  return {
    mailRefusal: createMailRefusal({ store, clock, diskProblem: () => null, mostQueued: MOST_QUEUED }),
    clock,
    counts: () => counts,
    setQueued(value) {
      queued = value
    },
  }
}

t.test('a queue is not counted again before it can be full', async (t) => {
  const { mailRefusal, clock, counts, setQueued } = counted()
  setQueued(1_000_000)
  t.equal(await mailRefusal(), null)
  for (let second = 0; second < 60; second += 1) {
    await clock.advance(SECOND)
    t.equal(await mailRefusal(), null)
  }
  t.equal(counts(), 1, 'four millions of room last for more than a minute')
  setQueued(4_990_000)
  await clock.advance(MINUTE)
  await mailRefusal()
  t.equal(counts(), 2)
  setQueued(MOST_QUEUED)
  await clock.advance(SECOND)
  t.match(await mailRefusal(), { reason: 'the queue is full', retryAfterSeconds: 30 }, 'near its mark: each second')
  setQueued(0)
  await clock.advance(SECOND)
  t.equal(await mailRefusal(), null, 'full no longer')
})

t.test('a store that does not answer is asked again after a second', async (t) => {
  const { mailRefusal, clock, setQueued } = counted()
  setQueued(new Error('closed'))
  t.match(await mailRefusal(), { reason: 'the store does not answer' })
  setQueued(0)
  t.match(await mailRefusal(), { reason: 'the store does not answer' })
  await clock.advance(SECOND)
  t.equal(await mailRefusal(), null)
})

t.test('a clock that was set back counts as time that has passed', async (t) => {
  const { mailRefusal, clock, counts } = counted()
  await mailRefusal()
  await clock.advance(-MINUTE)
  await mailRefusal()
  t.equal(counts(), 2)
})
