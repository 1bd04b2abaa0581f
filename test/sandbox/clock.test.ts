/**
 * Application time: faster, ahead, never backwards; the jobs that follow it; and `/dev/clock` over HTTP.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createPollLoop } from '../../src/base/poll-loop.ts'
import { createAdjustableClock } from '../../src/sandbox/adjustable-clock.ts'
import { openKeptClock } from '../../src/sandbox/adjustable-clock.ts'
import { until } from '../support/until.ts'

const logger = createLogger({ level: 'silent' })

t.test('time runs as fast as it is told to, jumps, and never goes backwards', async (t) => {
  let system = 1_000_000
  const clock = createAdjustableClock({ speed: 60, ahead: HOUR, systemNow: () => system })
  t.equal(clock.now(), 1_000_000 + HOUR)
  system += 2 * SECOND
  t.equal(clock.now(), 1_000_000 + HOUR + 2 * MINUTE)
  clock.setSpeed(1_440)
  t.equal(clock.now(), 1_000_000 + HOUR + 2 * MINUTE, 'a new speed begins at the time that is')
  system += MINUTE
  t.equal(clock.now(), 1_000_000 + HOUR + 2 * MINUTE + DAY)
  clock.advance(2 * HOUR)
  const shown = clock.now()
  t.equal(shown, 1_000_000 + 3 * HOUR + 2 * MINUTE + DAY)
  t.equal(clock.ahead(), shown - system)
  system -= HOUR
  t.equal(clock.now(), shown, 'the clock of the system was set back')
  clock.setSpeed(1)
  system += SECOND
  t.equal(clock.now(), shown + SECOND, 'and from there it goes on')
  for (const speed of [0, 0.5, 100_001, Number.NaN]) {
    t.throws(() => clock.setSpeed(speed), { code: 'invalid_request', details: /^speed: / }, String(speed))
  }
  t.throws(() => clock.setSpeed(-1), { code: 'conflict' })
})

t.test('timers follow the speed and the jumps, in the order of their times', async (t) => {
  const clock = createAdjustableClock({ speed: 1, ahead: 0 })
  const called: string[] = []
  const note = (name: string) => () => void called.push(name)
  clock.after(2 * HOUR, note('two hours'))
  clock.after(HOUR, note('an hour'))
  clock.after(3 * HOUR, note('three hours'))
  const cancel = clock.after(HOUR, note('canceled'))
  cancel()
  clock.advance(2 * HOUR)
  await until('both were called', () => called.length === 2)
  t.same(called, ['an hour', 'two hours'])
  const startedAt = performance.now()
  clock.setSpeed(36_000)
  await until('the third was called', () => called.length === 3)
  t.ok(performance.now() - startedAt >= 90, 'an hour is a tenth of a second')
  cancel()
})

t.test('a poll loop wakes when time jumps', async (t) => {
  const clock = createAdjustableClock({ speed: 1, ahead: 0 })
  const rounds: number[] = []
  const loop = createPollLoop({
    clock,
    onError: () => {},
    round: async () => {
      rounds.push(clock.now())
      return clock.now() + DAY
    },
  })
  loop.start()
  await until('the first round', () => rounds.length === 1)
  clock.advance(DAY)
  await until('the second round', () => rounds.length === 2)
  t.ok((rounds[1] ?? 0) - (rounds[0] ?? 0) >= DAY)
  await loop.stop()
})

t.test('application time goes on where it was after a start', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-clock-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const first = openKeptClock({ folder, logger })
  first.keep()
  t.throws(() => readFileSync(join(folder, 'clock.json')), { code: 'ENOENT' }, 'real time needs no file')
  first.clock.advance(30 * DAY)
  first.keep()
  const fast = openKeptClock({ folder, logger })
  fast.clock.setSpeed(100_000)
  t.ok(fast.clock.now() - Date.now() >= 30 * DAY, 'as after a kill')
  await until('it is written while it runs fast', () => {
    const { ahead } = JSON.parse(readFileSync(join(folder, 'clock.json'), 'utf8')) as { ahead: number }
    return ahead > 31 * DAY
  })
  const shown = fast.clock.now()
  await fast.stop()
  await first.stop()
  writeFileSync(join(folder, 'clock.json'), JSON.stringify({ ahead: shown - Date.now() }))
  const again = openKeptClock({ folder, logger })
  t.ok(again.clock.now() >= shown)
  await again.stop()
  writeFileSync(join(folder, 'clock.json'), '{"ahead":-5}')
  t.throws(() => openKeptClock({ folder, logger }), /clock\.json is damaged; start over with --fresh/)
})
