/**
 * A clock that ran a year ahead and was set back: what every store engine must make of the times that it wrote.
 */
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import type { ForgetStep } from '../../src/store/records/retention-records.ts'
import { webhookClaim, type Cases } from './conformance-case.ts'
import {
  acceptOne,
  claim,
  deferredUntil,
  delivered,
  domainRecord,
  LIFETIME,
  lookUp,
  NOW,
  outcomeRecord,
  webhookEndpoint,
} from './store-samples.ts'
import { ask, IP, ipRecord, MIDNIGHT, warmingRecord } from './warmup-samples.ts'

const AHEAD = NOW + 365 * DAY

export const clock: Cases = {
  'what waits for next year is due, and nothing else': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const defer = async (id: string, retryAt: number): Promise<string> => {
      const claimed = (await claim(store, epoch, AHEAD)).find((message) => message.id === id)
      if (claimed === undefined) throw new Error('nothing was claimed')
      const record = { ...outcomeRecord(claimed, deferredUntil(retryAt)), keepIpUntil: retryAt }
      await store.recordOutcomes({ epoch, now: NOW, outcomes: [record] })
      return id
    }
    const lifetime = { expiresAt: AHEAD + LIFETIME }
    const held = await acceptOne(store, {}, lifetime)
    await store.actOnQueue({ filter: {}, action: { kind: 'hold' }, now: NOW, limit: 9, isDryRun: false })
    const before = await defer(await acceptOne(store, {}, lifetime), AHEAD + MINUTE)
    const sendAt = NOW + 20 * DAY
    const tried = await defer(await acceptOne(store, { sendAt }, lifetime), AHEAD + MINUTE)
    const soon = await defer(await acceptOne(store, {}, lifetime), NOW + DAY)
    const meanwhile = await acceptOne(store, { now: AHEAD }, lifetime)
    const scheduled = await acceptOne(store, { sendAt }, { expiresAt: sendAt + LIFETIME })
    t.equal(await store.endWaitsAhead(NOW, 1), 2, 'so many at once, and what was accepted ahead')
    t.equal(await store.endWaitsAhead(NOW, 9), 1)
    t.match(await lookUp(store, held), { waitingFor: 'held', expiresAt: AHEAD + LIFETIME })
    t.match(await lookUp(store, before), { nextAttemptAt: NOW, expiresAt: AHEAD + LIFETIME })
    t.match(await lookUp(store, soon), { nextAttemptAt: NOW + DAY })
    t.match(await lookUp(store, meanwhile), { nextAttemptAt: NOW, expiresAt: AHEAD + LIFETIME })
    t.match(await lookUp(store, scheduled), { nextAttemptAt: sendAt, expiresAt: sendAt + LIFETIME })
    t.match(await lookUp(store, tried), { nextAttemptAt: sendAt }, 'not before its time')
    t.equal(await store.endWaitsAhead(NOW, 9), 0, 'once')
    const due = await claim(store, epoch, NOW)
    t.same(
      due.map(({ id, keepIpUntil }) => ({ id, keepIpUntil })).toSorted((one, other) => one.id.localeCompare(other.id)),
      [before, meanwhile].toSorted().map((id) => ({ id, keepIpUntil: null })),
      'from any IP',
    )
  },
  'what was accepted or tried by a clock some hours ahead is due, and what was deferred before goes on waiting': async (
    t,
    { store },
  ) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const [ahead, retryAt] = [NOW + 6 * HOUR, NOW + 6 * HOUR + MINUTE]
    const defer = async (id: string, now: number, until = retryAt): Promise<void> => {
      const claimed = (await claim(store, epoch, now)).find((message) => message.id === id)
      if (claimed === undefined) throw new Error('nothing was claimed')
      const outcomes = [outcomeRecord(claimed, deferredUntil(until), { at: now })]
      await store.recordOutcomes({ epoch, now, outcomes })
    }
    const before = await acceptOne(store)
    await defer(before, NOW)
    const tried = await acceptOne(store)
    await defer(tried, ahead)
    const deferred = await acceptOne(store, { now: ahead })
    await defer(deferred, ahead)
    const meanwhile = await acceptOne(store, { now: ahead })
    const sendAt = ahead + HOUR
    const scheduled = await acceptOne(store, { now: ahead, sendAt })
    t.equal(await store.endWaitsAhead(NOW, 9), 3)
    t.match(await lookUp(store, before), { nextAttemptAt: retryAt })
    for (const id of [tried, deferred, meanwhile]) t.match(await lookUp(store, id), { nextAttemptAt: NOW })
    t.match(await lookUp(store, scheduled), { nextAttemptAt: sendAt })
    t.equal(await store.endWaitsAhead(NOW, 9), 0, 'once')
    await defer(tried, NOW, NOW + HOUR)
    t.equal(await store.endWaitsAhead(NOW, 9), 0, 'a wait that began since goes on')
  },
  'webhooks that were posted, or had to be, by a clock some hours ahead are due': async (t, { store }) => {
    await store.addWebhookEndpoint(webhookEndpoint())
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const ahead = NOW + 6 * HOUR
    const deliver = async (at: number) => {
      await acceptOne(store)
      const [message] = await claim(store, epoch)
      if (message === undefined) throw new Error('nothing was claimed')
      const record = outcomeRecord(message, delivered)
      const events = record.events.map((event) => ({ ...event, at }))
      await store.recordOutcomes({ epoch, now: at, outcomes: [{ ...record, events }] })
    }
    const fail = async (at: number, retryAt: number) => {
      const claimed = await store.claimWebhooks(webhookClaim(epoch, at))
      const results = claimed.map(({ key, id }) => ({
        key,
        id,
        at,
        endedAt: at,
        durationMilliseconds: 1,
        status: 500,
        error: null,
        answer: '',
        next: { kind: 'retry' as const, at: retryAt },
      }))
      await store.recordWebhookResults({ epoch, results, disableAfter: null })
      return results.length
    }
    await deliver(NOW)
    t.equal(await fail(NOW, ahead + HOUR), 1)
    await deliver(NOW)
    t.equal(await fail(ahead, ahead + HOUR), 1)
    await deliver(ahead)
    await store.endWaitsAhead(NOW, 9)
    t.equal(await fail(NOW, NOW + HOUR), 2, 'what was posted at the right time goes on waiting')
    await store.endWaitsAhead(NOW, 9)
    t.equal(await fail(NOW, NOW + HOUR), 0, 'a wait that began since goes on')
  },
  'a clock that is behind ends no lifetime': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const id = await acceptOne(store)
    const [claimed] = await claim(store, epoch)
    if (claimed === undefined) throw new Error('nothing was claimed')
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(claimed, deferredUntil(NOW + HOUR))] })
    t.equal(await store.endWaitsAhead(NOW - 30 * DAY, 9), 1)
    t.match(await lookUp(store, id), { nextAttemptAt: NOW - 30 * DAY, expiresAt: NOW + LIFETIME })
  },
  'what an IP sent next year is not of its last hour': async (t, { store }) => {
    await store.addIpRecords([warmingRecord()])
    const rule = { windowFrom: MIDNIGHT, windowTo: AHEAD + DAY, minBurst: 50 }
    const reserve = async (at: number, count: number) => {
      const [{ granted, reason } = { granted: 0, reason: null }] = await store.reserveAllowance(ask(at, count, rule))
      return { granted, reason }
    }
    t.match(await reserve(AHEAD, 7), { granted: 7 })
    t.same(await reserve(NOW, 7), { granted: 0, reason: 'warmup_hour' })
    await store.endWaitsAhead(NOW, 9)
    t.match(await reserve(NOW, 5), { granted: 5 })
    await store.endWaitsAhead(NOW, 9)
    t.same(await reserve(NOW + MINUTE, 5), { granted: 2, reason: 'warmup_hour' }, 'what was sent in it counts')
  },
  'answers of next year keep no older one': async (t, { store }) => {
    const keep = (key: string, at: number) =>
      store.keepAnswer({ apiKeyId: null, key, fingerprint: Buffer.alloc(32, 1) }, { status: 200, body: '' }, at)
    for (const key of ['a', 'b', 'c']) await keep(key, AHEAD)
    for (const key of ['d', 'e', 'f', 'g']) await keep(key, NOW)
    await keep('h', NOW + DAY)
    let removed = 0
    for (let after: number | null = 0; after !== null;) {
      const step: ForgetStep = await store.forgetAnswers({ before: NOW + HOUR, now: NOW + 2 * DAY, after, limit: 2 })
      removed += step.removed
      after = step.next
    }
    t.equal(removed, 4)
  },
  'webhooks, checks of domains and pauses of IPs end too': async (t, { store }) => {
    await store.addWebhookEndpoint(webhookEndpoint())
    await store.addDomain(domainRecord({ name: 'acme.com', nextCheckAt: AHEAD }), null)
    const pause = { state: 'paused', formerState: 'warmed' } as const
    await store.addIpRecords([
      ipRecord({ ...pause, since: AHEAD, until: AHEAD + HOUR }),
      ipRecord({ ...pause, ip: '127.0.0.12', since: NOW, until: NOW + 90 * DAY }),
    ])
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await acceptOne(store)
    const [message] = await claim(store, epoch)
    if (message === undefined) throw new Error('nothing was claimed')
    await store.recordOutcomes({ epoch, now: AHEAD, outcomes: [outcomeRecord(message, delivered)] })
    t.equal(await store.endWaitsAhead(NOW, 9), 0)
    t.equal((await store.claimWebhooks(webhookClaim(epoch))).length, 1)
    t.same(await store.domainsDueForCheck(NOW, 9), ['acme.com'])
    const until = Object.fromEntries((await store.ipRecords()).map(({ ip, until }) => [ip, until]))
    t.same(until, { [IP]: NOW + HOUR, '127.0.0.12': NOW + 90 * DAY }, 'one that somebody asked for stays')
  },
}
