/**
 * Webhooks, API keys and closing: what every store engine must do around the queue.
 */
import { eventBody } from '../../src/mail/event.ts'
import type { WebhookResult } from '../../src/store/records.ts'
import type { Store } from '../../src/store/store.ts'
import { webhookClaim } from './conformance-case.ts'
import type { Cases } from './conformance-case.ts'
import {
  acceptOne, acceptRequest, apiKey, bounced, claim, claimedMessage, delivered, LEASE, newMessage, NOW, outcomeRecord,
  webhookEndpoint,
} from './store-samples.ts'

export const webhooks: Cases = {
  'an event reaches each enabled endpoint that asked for its kind, as the same bytes': async (t, { store }) => {
    const every = webhookEndpoint({ events: ['*'], url: 'https://every.example.com/' })
    const named = webhookEndpoint({ events: ['email.delivered'] })
    await store.addWebhookEndpoint(every)
    await store.addWebhookEndpoint(named)
    await store.addWebhookEndpoint(webhookEndpoint({ events: ['email.bounced'] }))
    await store.addWebhookEndpoint(webhookEndpoint({ status: 'disabled', events: ['*'] }))
    const { epoch, message } = await claimedMessage(store)
    t.equal(await store.earliestWebhookDueAt(), null, 'acceptance is no webhook event')
    const record = outcomeRecord(message, delivered)
    await store.recordOutcomes({ epoch, now: NOW + 9, outcomes: [record] })
    t.equal(await store.earliestWebhookDueAt(), NOW + 9)
    const [event] = record.events
    if (event === undefined) throw new Error('no event')
    const claimed = await store.claimWebhooks(webhookClaim(epoch, NOW + 9))
    t.same(claimed.map(({ endpointId }) => endpointId), [every.id, named.id])
    t.equal(new Set(claimed.map(({ id }) => id)).size, 2)
    for (const { id, kind, eventId, body, attempts, sealedSecret } of claimed) {
      t.match(id, /^whd_/)
      t.same([kind, eventId, body, attempts], ['email.delivered', event.id, eventBody(event), 0])
      t.same([...sealedSecret], [1, 2, 3])
    }
    t.equal(claimed[0]?.url, 'https://every.example.com/')
    t.same(await store.claimWebhooks(webhookClaim(epoch, NOW + 9)), [], 'leased')
  },
  'no endpoint gets more than its share, and none keeps another waiting': async (t, { store }) => {
    const slow = webhookEndpoint()
    await store.addWebhookEndpoint(slow)
    await store.addWebhookEndpoint(webhookEndpoint({ events: ['email.bounced'] }))
    const { epoch } = await deliverSome(store, 10, 3)
    const first = await store.claimWebhooks({ ...webhookClaim(epoch), perEndpoint: 4, busy: { [slow.id]: 1 } })
    t.equal(first.filter(({ endpointId }) => endpointId === slow.id).length, 3)
    t.equal(first.length, 6)
    const none = { [slow.id]: 4 }
    t.same(await store.claimWebhooks({ ...webhookClaim(epoch), perEndpoint: 4, busy: none }), [])
    t.equal((await store.claimWebhooks({ ...webhookClaim(epoch), limit: 2 })).length, 2)
  },
  'a result is recorded once: success, retry with its time, dead letter': async (t, { store }) => {
    await store.addWebhookEndpoint(webhookEndpoint())
    const { epoch } = await deliverSome(store, 3, 0)
    const claimed = await store.claimWebhooks(webhookClaim(epoch))
    const results = claimed.map(({ key }, index): WebhookResult => ({
      key, at: NOW, durationMilliseconds: 12.5, status: index === 0 ? 200 : null,
      error: index === 0 ? null : 'connection refused', answer: '',
      next: index === 0
        ? { kind: 'succeeded' }
        : index === 1 ? { kind: 'retry', at: NOW + 60_000 } : { kind: 'dead-letter' },
    }))
    await store.recordWebhookResults(epoch - 1, results)
    t.equal(await store.earliestWebhookDueAt(), NOW + LEASE, 'a stale fence changes nothing')
    await store.recordWebhookResults(epoch, results)
    await store.recordWebhookResults(epoch, results)
    t.equal(await store.earliestWebhookDueAt(), NOW + 60_000)
    const again = await store.claimWebhooks(webhookClaim(epoch, NOW + 60_000))
    t.match(again, [{ key: claimed[1]?.key, id: claimed[1]?.id, body: claimed[1]?.body, attempts: 1 }])
    // Repeated after it was claimed again: the post is known already.
    await store.recordWebhookResults(epoch, results)
    t.equal(await store.earliestWebhookDueAt(), NOW + 60_000 + LEASE)
  },
  'a delivery whose holder died is due again': async (t, { store }) => {
    await store.addWebhookEndpoint(webhookEndpoint())
    const { epoch } = await deliverSome(store, 1, 0)
    const [claimed] = await store.claimWebhooks(webhookClaim(epoch))
    const next = await store.beginEpoch(NOW + 1)
    t.equal(next.recovered, 0, 'only messages are counted')
    t.match(await store.claimWebhooks(webhookClaim(next.epoch, NOW + 1)), [{ id: claimed?.id, attempts: 0 }])
    t.match(await store.claimWebhooks(webhookClaim(next.epoch, NOW + 1 + LEASE)), [{ id: claimed?.id }], 'lapsed')
  },
}

/** Messages that are delivered and bounced, each with its event. */
async function deliverSome(store: Store, deliveredCount: number, bouncedCount: number): Promise<{ epoch: number }> {
  const { epoch } = await store.beginEpoch(NOW)
  const messages = Array.from({ length: deliveredCount + bouncedCount }, () => newMessage())
  await store.acceptMessages(acceptRequest({ messages }))
  const claimed = await claim(store, epoch)
  const records = claimed.map((message, index) => outcomeRecord(message, index < deliveredCount ? delivered : bounced))
  await store.recordOutcomes({ epoch, now: NOW, outcomes: records })
  return { epoch }
}

export const senders: Cases = {
  'an API key is found by its hash alone': async (t, { store }) => {
    const key = apiKey()
    await store.addApiKey(key, Buffer.alloc(32, 1))
    t.same(await store.findApiKey(Buffer.alloc(32, 1)), key)
    t.equal(await store.findApiKey(Buffer.alloc(32, 2)), null)
    await t.rejects(store.addApiKey(apiKey(), Buffer.alloc(32, 1)))
  },
  'a closed store says so': async (t, { store }) => {
    const last = acceptOne(store)
    const closed = store.close()
    await t.resolves(last, 'what was called before is finished')
    await closed
    await t.rejects(store.tick(), { message: 'the store is closed' })
  },
}
