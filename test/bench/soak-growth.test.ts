/**
 * The rule by which the soak calls memory and database flat: noise and what each message has to take are no growth, and
 * a slow leak is.
 */
import t from 'tap'
import { judgeGrowth, type Look } from '../../scripts/soak/growth.ts'

const MINUTES = 60
const MIB = 2 ** 20

/** A look each minute of a server that takes 1,000 messages in each. */
function looks(memory: (minute: number) => number, bytesPerMessage: (minute: number) => number): Look[] {
  let database = 0
  return Array.from({ length: MINUTES }, (_, index) => {
    const minute = index + 1
    database += 1_000 * bytesPerMessage(minute)
    return { minute, database, memory: memory(minute), inUse: [], messages: minute * 1_000 }
  })
}

const noisy = (minute: number): number => 200 * MIB + (minute % 3) * 10 * MIB

t.test('noise and what messages take is flat', async (t) => {
  t.same(
    judgeGrowth(
      looks(noisy, () => 4_000),
      MINUTES,
    )?.faults,
    [],
  )
  const warming = (minute: number): number => noisy(minute) + Math.min(minute, 9) * 20 * MIB
  t.same(
    judgeGrowth(
      looks(warming, () => 4_000),
      MINUTES,
    )?.faults,
    [],
    'before the stretch it may grow',
  )
})

t.test('a leak of a MiB a minute, and messages that take ever more, are not', async (t) => {
  t.match(
    judgeGrowth(
      looks(
        (minute) => noisy(minute) + minute * MIB,
        () => 4_000,
      ),
      MINUTES,
    )?.faults,
    [/^memory rose/],
  )
  const more = (minute: number): number => 4_000 + minute * 200
  t.match(judgeGrowth(looks(noisy, more), MINUTES)?.faults, [/^a message takes/])
})

t.test('a run too short says nothing', async (t) => {
  t.equal(judgeGrowth(looks(noisy, () => 4_000).slice(0, 2), 2), null)
})
