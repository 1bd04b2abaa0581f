/** What the service manager is told, when, and in which order. */
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createServiceManager, type ServiceManager } from '../../src/base/service/service-manager.ts'
import { stopTogether } from '../../src/base/service/start-whole.ts'
import { createLogger } from '../../src/base/logger.ts'
import { fakeSystemdNotify } from '../support/fake-systemd-notify.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

interface Managed {
  manager: ServiceManager
  clock: ManualClock
  errors: unknown[]
  notices: () => string[]
  /** Resolves when this many calls have come. */
  told: (count: number) => Promise<string[]>
}

function managed(t: Test, options: Parameters<typeof fakeSystemdNotify>[1] & { isManaged?: boolean } = {}): Managed {
  const { environment, notices } = fakeSystemdNotify(t, options)
  const path = process.env['PATH']
  process.env['PATH'] = environment.PATH
  t.teardown(() => void (process.env['PATH'] = path))
  const clock = manualClock()
  const errors: unknown[] = []
  const manager = createServiceManager({
    environment: options.isManaged === false ? {} : { ...environment, WATCHDOG_USEC: '30000000' },
    clock,
    onError: (thrown) => errors.push(thrown),
  })
  const told = (count: number): Promise<string[]> =>
    until(`${count} notices`, () => notices().length >= count && notices())
  return { manager, clock, errors, notices, told }
}

t.test('notices arrive in their order, also when one of them takes long', async (t) => {
  const { manager, told } = managed(t, { slowWord: 'RELOADING' })
  manager.ready()
  manager.reloading()
  manager.ready()
  manager.stopping()
  t.same(await told(4), ['READY=1', 'RELOADING=1', 'READY=1', 'STOPPING=1 STATUS=stopping'])
})

t.test('a sign of life needs an answer, three times within the time of the watchdog', async (t) => {
  const { manager, clock, told, notices } = managed(t)
  let isAlive = true
  let asked = 0
  manager.startWatchdog(() => {
    asked += 1
    return isAlive ? Promise.resolve() : new Promise(() => {})
  })
  await clock.advance(20 * SECOND)
  t.same(await told(3), ['WATCHDOG=1', 'WATCHDOG=1', 'WATCHDOG=1'], 'at 0, 10 and 20 s')
  isAlive = false
  await clock.advance(MINUTE)
  t.equal(asked, 9, 'it is asked on')
  manager.ready()
  await told(4)
  t.equal(notices().filter((text) => text === 'WATCHDOG=1').length, 3, 'without an answer nothing is sent')
})

t.test('the state is told each minute, until the stop', async (t) => {
  const { manager, clock, told } = managed(t)
  let minute = 0
  manager.startStatus(async () => `minute ${minute++}`)
  await clock.advance(2 * MINUTE)
  t.same(await told(3), ['STATUS=minute 0', 'STATUS=minute 1', 'STATUS=minute 2'])
  manager.stop()
  await clock.advance(HOUR)
  manager.stopping()
  t.equal((await told(4))[3], 'STOPPING=1 STATUS=stopping')
})

t.test('a start that takes long asks for more time, for an hour at most', async (t) => {
  const { manager, clock, told } = managed(t)
  manager.starting()
  await clock.advance(MINUTE)
  manager.ready()
  await clock.advance(MINUTE)
  const extended = 'EXTEND_TIMEOUT_USEC=60000000'
  t.same(await told(5), [extended, extended, extended, extended, 'READY=1'], 'every 20 s, until it is ready')

  const hanging = managed(t)
  hanging.manager.starting()
  await hanging.clock.advance(3 * HOUR)
  hanging.manager.stop()
  hanging.manager.stopping()
  const all = await until('the last notice', () => {
    const found = hanging.notices()
    return found.at(-1)?.startsWith('STOPPING') === true && found
  })
  t.equal(all.length, 181, '180 in an hour, then none')
})

t.test('a notice that fails is reported, and the next one is sent', async (t) => {
  const { manager, errors, told } = managed(t, { fails: true })
  manager.ready()
  manager.stopping()
  t.equal((await told(2)).length, 2)
  await until('both reports', () => errors.length === 2)
})

t.test('without a service manager nothing is run', async (t) => {
  const { manager, clock, notices } = managed(t, { isManaged: false })
  let asked = 0
  manager.starting()
  manager.startWatchdog(async () => void (asked += 1))
  manager.startStatus(async () => `${asked++}`)
  manager.ready()
  await clock.advance(HOUR)
  manager.stopping()
  t.equal(asked, 0)
  t.same(notices(), [])
})

t.test('parts end side by side, and one that fails keeps none open', async (t) => {
  const ended: string[] = []
  const log: string[] = []
  let release = (): void => {}
  const slow = new Promise<void>((resolve) => (release = resolve))
  const parts = [
    async () => {
      await slow
      ended.push('slow')
    },
    () => Promise.reject(new Error('planted')),
    async () => {
      ended.push('quick')
      release()
    },
  ]
  const logger = createLogger({ level: 'info', write: (line) => void log.push(line) })
  await stopTogether(parts, logger)
  t.same(ended, ['quick', 'slow'], 'the last one does not wait for the first')
  t.match(log.join(''), 'planted')
  t.same(parts, [], 'each is stopped once')
})
