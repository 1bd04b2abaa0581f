/** Jumps of the wall clock against a clock that no one can set. */
import t from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createClockWatch } from '../../src/base/clock-watch.ts'
import { createLogger } from '../../src/base/logger.ts'

/** A wall clock and a monotonic one, which run together until the first is set. */
function twoClocks(newestAt: number | null = null) {
  const time = { wall: 1_795_219_200_000, monotonic: 0 }
  let due: (() => void) | undefined
  const clock = {
    now: () => time.wall,
    after(_delay: number, callback: () => void) {
      due = callback
      return () => (due = undefined)
    },
  }
  const log: Record<string, unknown>[] = []
  const logger = createLogger({ level: 'info', write: (line) => void log.push(JSON.parse(line)) })
  const setBack: string[] = []
  const onSetBack = ({ message }: Error): void => void setBack.push(message)
  const watch = createClockWatch({ clock, monotonic: () => time.monotonic, logger, onSetBack })
  watch.start(newestAt)
  return {
    watch,
    log,
    setBack,
    pass(milliseconds: number) {
      time.wall += milliseconds
      time.monotonic += milliseconds
      due?.()
    },
    set(by: number) {
      time.wall += by
    },
    isWatching: () => due !== undefined,
  }
}

t.test('a clock that runs is steady, however long a look takes', async (t) => {
  const { watch, pass, log } = twoClocks()
  for (const passed of [5 * SECOND, HOUR, 5 * SECOND]) pass(passed)
  t.ok(watch.isSteady())
  t.same(log, [])
})

for (const jump of [HOUR, -HOUR, 6 * MINUTE]) {
  t.test(`after a jump of ${jump / MINUTE} minutes it is unsteady for ten`, async (t) => {
    const { watch, pass, set, log, setBack } = twoClocks()
    set(jump)
    pass(5 * SECOND)
    t.notOk(watch.isSteady())
    t.equal(log[0]?.['jump_ms'], jump)
    pass(9 * MINUTE)
    t.notOk(watch.isSteady())
    pass(MINUTE)
    t.ok(watch.isSteady())
    t.equal(log.length, 1, 'it is told once')
    t.equal(setBack.length, jump < 0 ? 1 : 0, 'only behind a clock that was set back the server has to start again')
  })
}

t.test('a jump counts at once, before the next look', async (t) => {
  const { watch, set } = twoClocks()
  set(HOUR)
  t.notOk(watch.isSteady())
})

t.test('a small jump is told, and changes nothing', async (t) => {
  const { watch, pass, set, log } = twoClocks()
  set(30 * SECOND)
  pass(5 * SECOND)
  t.ok(watch.isSteady())
  t.equal(log.length, 1)
  set(4 * SECOND)
  pass(5 * SECOND)
  t.equal(log.length, 1, 'what a time service does is not told')
})

t.test('it stops', async (t) => {
  const { watch, isWatching } = twoClocks()
  watch.stop()
  t.notOk(isWatching())
})

for (const days of [400, -400]) {
  t.test(`a start ${days} days from the newest mail is not believed for an hour`, async (t) => {
    const { watch, pass, log } = twoClocks(1_795_219_200_000 - days * DAY)
    t.notOk(watch.isSteady())
    t.match(log, [{ days }])
    pass(59 * MINUTE)
    t.notOk(watch.isSteady())
    pass(MINUTE)
    t.ok(watch.isSteady())
  })
}

t.test('what cannot be undone waits longer after a jump', async (t) => {
  const { watch, pass, set } = twoClocks(1_795_219_200_000 - 20 * DAY)
  t.ok(watch.isSteady(DAY), 'a server that was idle for weeks')
  set(HOUR)
  pass(5 * SECOND)
  pass(23 * HOUR)
  t.ok(watch.isSteady())
  t.notOk(watch.isSteady(DAY))
  pass(HOUR)
  t.ok(watch.isSteady(DAY))
})
