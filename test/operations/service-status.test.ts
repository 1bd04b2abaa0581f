/** What `GET /health` says: of a queue that is walked once for all who ask, and of a server that takes no mail. */
import t from 'tap'
import type { MailRefused } from '../../src/messages/accept/mail-refusal.ts'
import { createServiceStatus } from '../../src/operations/service-status.ts'
import { manualClock } from '../support/manual-clock.ts'
import { testStore } from '../senders/sender-parts.ts'

t.test('a node that takes no mail is degraded; one that drains, or has no store, turns clients away', async (t) => {
  const store = await testStore(t)
  let refusal: MailRefused | null = null
  const clock = manualClock()
  let walks = 0
  let isDraining = false
  let reason: string | null = null
  let problem: string | null = null
  const { describe, report } = createServiceStatus({
    store: { queueSummary: (now) => (walks++, store.queueSummary(now)), refusal: () => reason },
    egress: { sendingPools: () => ['default'] },
    disk: { deliverProblem: () => problem },
    health: { isPort25Blocked: () => false },
    clock,
    realClock: clock,
    mailRefusal: async () => refusal,
    isDraining: () => isDraining,
  })
  const all = await Promise.all(Array.from({ length: 100 }, report))
  t.same(all[99], { status: 'ok', queue_depth: 0, oldest_due_seconds: 0, db: 'ok', mail_in: 'ok', smtp_out: 'ok' })
  t.equal(walks, 1, 'one walk for a hundred')
  reason = 'could not extend file "base/5/1259": No space left on device'
  t.match(await report(), { status: 'degraded', mail_in: 'the database refuses what is written', db: 'ok' })
  t.match(await describe(), /; the database refuses what is written$/)
  reason = null
  refusal = { reason: 'the queue is full', retryAfterSeconds: 30 }
  t.match(await report(), { status: 'degraded', mail_in: 'the queue is full' })
  problem = 'the disk is full'
  t.match(await report(), { status: 'degraded', smtp_out: 'the disk is full' })
  t.match(await describe(), /^0 waiting, 0 being sent; the disk is full$/)
  problem = null
  isDraining = true
  t.match(await report(), { status: 'unavailable' })
  isDraining = false
  refusal = { reason: 'the store does not answer', retryAfterSeconds: 2, isStore: true }
  t.match(await report(), { status: 'unavailable', db: 'no answer' })
})

t.test('a store that stands still is told after a while, and nobody waits for it for ever', async (t) => {
  const clock = manualClock()
  const never = (): Promise<never> => new Promise(() => {})
  const { describe, report } = createServiceStatus({
    store: { queueSummary: never, refusal: () => null },
    egress: { sendingPools: () => ['default'] },
    disk: { deliverProblem: () => null },
    health: { isPort25Blocked: () => false },
    clock,
    realClock: clock,
    mailRefusal: never,
    isDraining: () => false,
  })
  const told = Promise.all([report(), describe()])
  await clock.advance(10_000)
  t.match(await told, [{ status: 'unavailable', db: 'no answer' }, 'the database does not answer'])
})
