/**
 * The upkeep jobs beside their table: how they stop, and what they tell.
 */
import t, { type Test } from 'tap'
import { HOUR, SECOND } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { createSchedule, type ScheduleOptions } from '../../src/operations/schedule.ts'
import { testStore } from '../senders/sender-parts.ts'
import { acceptRequest, claim, LIFETIME, newMessage, NOW, POOL } from '../store/store-samples.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

const nothing = async (): Promise<void> => {}

t.test('stopping waits for the domain checks under way, not for those whose turn has not come', async (t) => {
  let endChecks = (): void => {}
  const isStopped = new Promise<void>((resolve) => {
    endChecks = resolve
  })
  const domains: ScheduleOptions['domains'] = { checkDue: () => isStopped, stop: async () => endChecks() }
  const schedule = createSchedule({ ...(await parts(t)), domains })
  schedule.start()
  const running = schedule.run('check-domains')
  await schedule.stop()
  await running
  t.pass('it has stopped')
})

t.test('a job that does not end is told of, and does not hold up the stop', async (t) => {
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({ level: 'info', write: (line) => void lines.push(JSON.parse(line)) })
  const realClock = manualClock()
  const backups = { when: () => null, write: () => new Promise<void>(() => {}) }
  const schedule = createSchedule({ ...(await parts(t)), logger, realClock, backups })
  void schedule.run('write-backup')
  let isStopped = false
  const stopping = schedule.stop().then(() => {
    isStopped = true
  })
  await until('it has stopped', async () => {
    await realClock.advance(SECOND)
    return isStopped
  })
  await stopping
  t.match(lines, [{ msg: 'jobs are not waited for any longer', jobs: ['write-backup'] }])
})

t.test('what the store has said itself is not repeated by the jobs, what it has not is an error', async (t) => {
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({ level: 'info', write: (line) => void lines.push(JSON.parse(line)) })
  const given = await parts(t)
  let problem: string | null = 'the database does not answer'
  let thrown: Error = new ServiceError('unavailable', problem)
  const fail = () => Promise.reject(thrown)
  const store = { ...given.store, problem: () => problem, cancelPurged: fail }
  const { run } = createSchedule({ ...given, store, logger })
  await run('cancel-purged')
  t.same(lines, [])
  thrown = new Error('a defect')
  await run('cancel-purged')
  problem = null
  thrown = new ServiceError('unavailable', 'the database does not answer')
  await run('cancel-purged')
  t.match(lines, [
    { level: 'error', msg: 'job failed', job: 'cancel-purged', err: { message: 'a defect' } },
    { level: 'error', msg: 'job failed', job: 'cancel-purged' },
  ])
})

t.test('of messages that expire each has its line, and is counted', async (t) => {
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({ level: 'info', write: (line) => void lines.push(JSON.parse(line)) })
  const given = await parts(t)
  const { store, metrics } = given
  const messages = [newMessage(), newMessage()]
  await store.acceptMessages(acceptRequest({ messages }))
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const [doubtful] = await claim(store, epoch, NOW, 1)
  if (doubtful === undefined) throw new Error('nothing was claimed')
  const { key, claim: held } = doubtful
  await store.unclaim({ epoch, rows: [{ key, claim: held, nextAt: NOW, isPossibleDuplicate: true }] })
  const schedule = createSchedule({ ...given, logger, clock: manualClock(NOW + LIFETIME) })
  await schedule.run('expire-messages')
  await schedule.stop()
  t.same(
    lines.map(({ msg, message_id: id }) => `${msg} ${id}`).toSorted(),
    messages.map(({ id }) => `message expired ${id}`).toSorted(),
  )
  t.match(lines[0], { pool: POOL, domain: 'acme.com', outcome: 'expired' })
  t.same(lines.map(({ category }) => category).toSorted(), ['ambiguous', 'expired'], 'one may have arrived')
  const text = await metrics.text()
  t.match(text, `sternpost_deliveries_total{result="expired",pool="${POOL}",ip="none",provider="other"} 2`)
  t.match(text, 'sternpost_bounces_total{type="soft",provider="other"} 1')
  t.match(text, 'sternpost_bounces_total{type="undetermined",provider="other"} 1')
})

t.test('what expired in a pause ends and is no error; nothing is told by a clock that jumped', async (t) => {
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({ level: 'info', write: (line) => void lines.push(JSON.parse(line)) })
  const given = { ...(await parts(t)), logger, clock: manualClock(NOW + 2 * LIFETIME) }
  await given.store.acceptMessages(acceptRequest({ messages: [newMessage()] }))
  await createSchedule({ ...given, isClockSteady: () => false }).run('watch-queue')
  t.strictSame(lines, [])
  await createSchedule(given).run('watch-queue')
  t.strictSame(
    lines.map(({ msg }) => msg),
    ['message expired'],
  )
})

t.test('behind a clock that was set ahead only the leases lapse that nobody holds', async (t) => {
  const given = await parts(t)
  const { store, metrics } = given
  await store.acceptMessages(acceptRequest({ messages: [newMessage(), newMessage()] }))
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const [held] = await claim(store, epoch, NOW, 2)
  const later = NOW + HOUR
  const clock = manualClock(later)
  const renewLeases = (): Promise<void> => store.renewLeases(epoch, held === undefined ? [] : [held], later + HOUR)
  await createSchedule({ ...given, epoch, clock, realClock: clock, renewLeases }).run('recover-leases')
  t.match(await metrics.text(), 'sternpost_leases_recovered_total 1')
  t.match(await store.queueSummary(later), { sending: 1 })
})

t.test('a time of backups that never comes leaves the former one at work', async (t) => {
  let when = '17 3 * * *'
  const ended: string[] = []
  const drive: ScheduleOptions['drive'] = (jobs) => {
    const tables = jobs.map((job) => job.when)
    if (tables.includes('0 0 30 2 *')) throw new Error('it never comes round')
    return { stop: async () => void ended.push(...tables) }
  }
  const schedule = createSchedule({ ...(await parts(t)), drive, backups: { when: () => when, write: nothing } })
  schedule.start()
  when = '0 0 30 2 *'
  t.throws(() => schedule.replan(), /never comes round/)
  t.same(ended, [])
  when = '17 4 * * *'
  schedule.replan()
  t.same(ended, ['17 3 * * *'])
  await schedule.stop()
})

async function parts(t: Test): Promise<ScheduleOptions> {
  return {
    domains: { checkDue: nothing, stop: nothing },
    store: await testStore(t),
    clock: manualClock(),
    realClock: manualClock(),
    drive: () => ({ stop: nothing }),
    metrics: createMetrics(),
    warmup: { closeDays: nothing, checkGates: nothing },
    shaping: { tick: nothing },
    statistics: { sum: async () => {} },
    messages: { indexSubjects: async () => {} },
    sts: { refresh: nothing },
    tlsReports: { sendDue: nothing },
    retention: { async run() {}, async watchBudget() {}, stop() {} },
    backups: { when: () => null, async write() {} },
    uncertainRetry: () => 1,
    epoch: 1,
    isFirst: () => true,
    certificates: { check() {}, async issue() {} },
    health: { async runDue() {} },
    isClockSteady: () => true,
    logger: createLogger({ level: 'silent' }),
    renewLeases: nothing,
    onQueued() {},
    onEvents() {},
  }
}
