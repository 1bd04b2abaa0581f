/**
 * The upkeep jobs beside their table: how they stop.
 */
import t from 'tap'
import { createLogger } from '../src/base/logger.ts'
import { createMetrics } from '../src/base/metrics.ts'
import { createSchedule } from '../src/schedule.ts'
import type { ScheduleOptions } from '../src/schedule.ts'
import { testStore } from './senders/sender-parts.ts'
import { manualClock } from './support/manual-clock.ts'

const nothing = async (): Promise<void> => {}

t.test('stopping waits for the domain checks under way, not for those whose turn has not come', async (t) => {
  let endChecks = (): void => {}
  const isStopped = new Promise<void>((resolve) => {
    endChecks = resolve
  })
  const domains: ScheduleOptions['domains'] = { checkDue: () => isStopped, stop: async () => endChecks() }
  const schedule = createSchedule({
    domains,
    store: await testStore(t), clock: manualClock(), realClock: manualClock(), drive: null, metrics: createMetrics(),
    warmup: { closeDays: nothing, checkGates: nothing },
    shaping: { tick: nothing },
    sts: { refresh: nothing },
    tlsReports: { sendDue: nothing },
    unmatchedReportsKept: 1, webhooksKept: { succeeded: 1, failed: 1 }, ipHistoryKept: { statistics: 1, audit: 1 },
    uncertainRetry: () => 1,
    isClockSteady: () => true,
    waitingByReason: () => ({}),
    logger: createLogger({ level: 'silent' }),
    onQueued() {},
    onEvents() {},
  })
  schedule.start()
  const running = schedule.run('check-domains')
  await schedule.stop()
  await running
  t.pass('it has stopped')
})
