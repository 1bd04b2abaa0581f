/** Jobs at the times of their time tables, whatever the clock does. */
import t from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { driveJobs, nextRun } from '../../src/operations/drive-jobs.ts'
import { createAdjustableClock } from '../../src/sandbox/adjustable-clock.ts'
import { leapingClock } from '../support/leaping-clock.ts'
import { until } from '../support/until.ts'

t.test('a time table comes round when crontab(5) says', async (t) => {
  const at = (text: string): number => Date.parse(text)
  for (const [timeTable, after, expected] of [
    ['*/5 * * * * *', '2026-11-21T12:00:00.000Z', '2026-11-21T12:00:05Z'],
    ['*/5 * * * * *', '2026-11-21T12:00:04.999Z', '2026-11-21T12:00:05Z'],
    ['20 * * * * *', '2026-11-21T12:00:20.000Z', '2026-11-21T12:01:20Z'],
    ['0 3 * * *', '2026-11-21T12:00:00Z', '2026-11-22T03:00:00Z'],
    ['0 0 0 1 * *', '2026-11-21T12:00:00Z', '2026-12-01T00:00:00Z'],
    ['30 1,13 * * *', '2026-11-21T12:00:00Z', '2026-11-21T13:30:00Z'],
    ['0 9-17/4 * * *', '2026-11-21T14:00:00Z', '2026-11-21T17:00:00Z'],
    ['0 0 * * 7', '2026-11-21T12:00:00Z', '2026-11-22T00:00:00Z'],
    ['0 0 13 * 5', '2026-11-21T12:00:00Z', '2026-11-27T00:00:00Z'],
    ['0 0 29 2 *', '2026-11-21T12:00:00Z', '2028-02-29T00:00:00Z'],
    ['59 59 23 31 12 *', '2026-11-21T12:00:00Z', '2026-12-31T23:59:59Z'],
  ] as const) {
    t.equal(new Date(nextRun(timeTable, at(after))).toISOString(), new Date(expected).toISOString(), timeTable)
  }
  for (const timeTable of ['', '* * * *', '* * * * * * *', '60 * * * * *', '*/0 * * * *', 'a * * * *']) {
    t.throws(() => nextRun(timeTable, 0), timeTable)
  }
  t.throws(() => nextRun('0 0 30 2 *', 0), /impossible day/)
})

t.test('jobs run as application time passes, once for what was passed over, and never beside themselves', async (t) => {
  const clock = createAdjustableClock({ speed: 1_440, ahead: 0 })
  const runs: number[] = []
  let under = 0
  let most = 0
  const { promise: blocked, resolve: release } = Promise.withResolvers<void>()
  let daily = 0
  const driver = driveJobs(
    [
      {
        name: 'often',
        when: '*/5 * * * * *',
        run: async () => {
          under += 1
          most = Math.max(most, under)
          runs.push(clock.now())
          if (runs.length === 2) await blocked
          under -= 1
        },
      },
      { name: 'daily', when: '0 0 * * *', run: async () => void (daily += 1) },
    ],
    clock,
  )
  await until('the second run', () => runs.length === 2)
  clock.advance(3 * DAY)
  await until('the daily one', () => daily === 1)
  t.equal(runs.length, 2, 'it still runs')
  release()
  await until('it runs again', () => runs.length === 4)
  t.equal(most, 1)
  await driver.stop()
  const [often, oncePerDay] = [runs.length, daily]
  clock.advance(DAY)
  await new Promise((resolve) => clock.after(DAY, () => resolve(undefined)) && clock.advance(DAY))
  t.same([runs.length, daily], [often, oncePerDay])
})

for (const leap of [366 * DAY, -366 * DAY]) {
  t.test(`jobs go on behind a clock that was set by ${leap / DAY} days`, async (t) => {
    let ahead = 0
    // As a machine's: its timers know nothing of it.
    const { after } = leapingClock()
    const clock = { now: () => Date.now() + ahead, after }
    const runs: number[] = []
    const driver = driveJobs(
      [{ name: 'often', when: '* * * * * *', run: async () => void runs.push(clock.now()) }],
      clock,
    )
    await until('the first run', () => runs.length === 1)
    ahead = leap
    await until('three more', () => runs.length === 4)
    await driver.stop()
    const [, second = 0, , last = 0] = runs
    t.ok(Math.abs(second - Date.now() - leap) < HOUR)
    t.ok(last - second >= SECOND, 'what passed by comes once')
  })
}

t.test('a timer that comes a moment early runs its job once', async (t) => {
  const start = Date.UTC(2026, 10, 21, 3, 16)
  let now = start
  const due: { at: number; callback: () => void }[] = []
  const clock = {
    now: () => now,
    after(delay: number, callback: () => void) {
      due.push({ at: now + delay, callback })
      return () => {}
    },
  }
  let runs = 0
  const driver = driveJobs([{ name: 'daily', when: '17 3 * * *', run: async () => void (runs += 1) }], clock)
  now = start + MINUTE - 1
  due[0]?.callback()
  now += SECOND
  await until('it waits again', () => due.length === 2)
  t.same([runs, due[1]?.at], [1, start + MINUTE + DAY])
  await driver.stop()
})
