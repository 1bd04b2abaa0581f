/**
 * A day passes in a few seconds: the five retries of a webhook come at their times, none early, and the clock is where
 * it was after a new start.
 */
import t from 'tap'
import { RETRY_DELAYS } from '../../src/webhooks/retry-schedule.ts'
import { startSandbox } from '../support/sandbox-process.ts'
import { until } from '../support/until.ts'

/** 26 h 36 min, the sum of the delays, in about 3 s. */
const SPEED = '36000'
const RETRY_DEADLINE = 240_000

interface HookEntry {
  attempt: number
  signature: string
  answer: number
  headers: Record<string, string>
  body: string
}

interface ClockView {
  time: number
  speed: number
}

t.setTimeout(600_000)

t.test('the five retries of a failing webhook are seen within seconds', async (t) => {
  const sandbox = await startSandbox(t, { flags: ['--speed', SPEED] })
  await sandbox.ask('PUT', '/dev/hooks/inspector', { answer: 500 })
  await sandbox.send({ to: 'delivered@simulator.sternpost.test', from: 'you@sandbox.test' })
  const entries = await until(
    'the last retry',
    async () => {
      const received = await sandbox.list<HookEntry>('/dev/hooks/inspector?event=email.delivered&wait=10s')
      return received.some(({ attempt }) => attempt === RETRY_DELAYS.length + 1) && received.toReversed()
    },
    RETRY_DEADLINE,
  )

  t.same(
    entries.map(({ attempt }) => attempt),
    [1, 2, 3, 4, 5, 6],
  )
  t.ok(entries.every(({ signature, answer }) => signature === 'valid' && answer === 500))
  t.equal(new Set(entries.map(({ body }) => body)).size, 1, 'the same bytes each time')
  const times = entries.map(({ headers }) => Number(headers['x-service-timestamp']))
  const delays = times.slice(1).map((time, index) => time - (times[index] ?? 0))
  t.comment(`delays in seconds of application time: ${delays.join(', ')}`)
  for (const [index, delay] of delays.entries()) {
    const wanted = (RETRY_DELAYS[index] ?? Infinity) / 1_000
    // Whole seconds on both sides.
    t.ok(delay >= wanted - 1, `retry ${index + 1} after ${delay} s, not before ${wanted} s`)
  }
  const before = (await sandbox.ask('GET', '/dev/clock'))['data'] as ClockView
  t.equal(before.speed, Number(SPEED))
  await sandbox.stop()

  const again = await startSandbox(t, { folder: sandbox.folder })
  const after = (await again.ask('GET', '/dev/clock'))['data'] as ClockView
  t.equal(after.speed, 1)
  t.ok(after.time >= before.time, 'time did not go backwards')
})

t.test('a jump by hand brings the next retry at once', async (t) => {
  const sandbox = await startSandbox(t)
  await sandbox.ask('PUT', '/dev/hooks/inspector', { answer: 'close', times: 1 })
  await sandbox.send({ to: 'delivered@simulator.sternpost.test', from: 'you@sandbox.test' })
  await until('the first attempt', async () => (await sandbox.list('/dev/hooks/inspector?wait=10s')).length === 1)
  // The first jump may come before the failure is recorded, from which the minute counts.
  const second = await until('the second', async () => {
    await sandbox.ask('POST', '/dev/clock', { advance: '62s' })
    return (await sandbox.list<HookEntry>('/dev/hooks/inspector')).find(({ attempt }) => attempt === 2)
  })
  t.match(second, { answer: 200, signature: 'valid' })
})
