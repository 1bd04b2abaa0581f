/**
 * A clock that ran a year ahead and was set back: what every store engine must make of the times that it wrote.
 */
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
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
import { IP, ipRecord } from './warmup-samples.ts'

const AHEAD = NOW + 365 * DAY

export const clock: Cases = {
  'what waits for next year is due at the next start, and nothing else': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const defer = async (id: string, retryAt: number): Promise<string> => {
      const claimed = (await claim(store, epoch, AHEAD)).find((message) => message.id === id)
      if (claimed === undefined) throw new Error('nothing was claimed')
      await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(claimed, deferredUntil(retryAt))] })
      return id
    }
    const lifetime = { expiresAt: AHEAD + LIFETIME }
    const held = await acceptOne(store, {}, lifetime)
    await store.actOnQueue({ filter: {}, action: { kind: 'hold' }, now: NOW, limit: 9, isDryRun: false })
    const before = await defer(await acceptOne(store, {}, lifetime), AHEAD + MINUTE)
    const soon = await defer(await acceptOne(store, {}, lifetime), NOW + DAY)
    const meanwhile = await acceptOne(store, { now: AHEAD }, lifetime)
    const sendAt = NOW + 20 * DAY
    const scheduled = await acceptOne(store, { sendAt }, { expiresAt: sendAt + LIFETIME })
    t.match(await store.beginEpoch(NOW, NOW), { broughtBack: 2 })
    t.match(await lookUp(store, held), { waitingFor: 'held', expiresAt: AHEAD + LIFETIME })
    t.match(await lookUp(store, before), { nextAttemptAt: NOW, expiresAt: AHEAD + LIFETIME })
    t.match(await lookUp(store, soon), { nextAttemptAt: NOW + DAY })
    t.match(await lookUp(store, meanwhile), { nextAttemptAt: NOW, expiresAt: NOW + LIFETIME })
    t.match(await lookUp(store, scheduled), { nextAttemptAt: sendAt, expiresAt: sendAt + LIFETIME })
    t.match(await store.beginEpoch(NOW, NOW), { broughtBack: 0 }, 'once')
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
    const { epoch: next } = await store.beginEpoch(NOW, NOW)
    t.equal((await store.claimWebhooks(webhookClaim(next))).length, 1)
    t.same(await store.domainsDueForCheck(NOW, 9), ['acme.com'])
    const until = Object.fromEntries((await store.ipRecords()).map(({ ip, until }) => [ip, until]))
    t.same(until, { [IP]: NOW + HOUR, '127.0.0.12': NOW + 90 * DAY }, 'one that somebody asked for stays')
  },
}
