/**
 * Webhooks, API keys and closing: what every store engine must do around the queue.
 */
import { eventBody } from '../../src/mail/event.ts'
import type { Store } from '../../src/store/store.ts'
import type { ReplayPart, WebhookResult } from '../../src/store/records/webhook-records.ts'
import { webhookClaim, type Cases } from './conformance-case.ts'
import {
  acceptOne,
  acceptRequest,
  bounced,
  claim,
  claimedMessage,
  delivered,
  LEASE,
  newMessage,
  NOW,
  outcomeRecord,
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
    t.same(
      claimed.map(({ endpointId }) => endpointId),
      [every.id, named.id],
    )
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
    const results = claimed.map(({ key, id }, index): WebhookResult => ({
      key,
      id,
      at: NOW,
      endedAt: NOW + 13,
      durationMilliseconds: 12.5,
      status: index === 0 ? 200 : null,
      error: index === 0 ? null : 'connection refused',
      answer: '',
      next:
        index === 0
          ? { kind: 'succeeded' }
          : index === 1
            ? { kind: 'retry', at: NOW + 60_000 }
            : { kind: 'dead-letter' },
    }))
    await store.recordWebhookResults({ epoch: epoch - 1, results, disableAfter: null })
    t.equal(await store.earliestWebhookDueAt(), NOW + LEASE, 'a stale fence changes nothing')
    await store.recordWebhookResults({ epoch, results, disableAfter: null })
    await store.recordWebhookResults({ epoch, results, disableAfter: null })
    t.equal(await store.earliestWebhookDueAt(), NOW + 60_000)
    const again = await store.claimWebhooks(webhookClaim(epoch, NOW + 60_000))
    t.match(again, [{ key: claimed[1]?.key, id: claimed[1]?.id, body: claimed[1]?.body, attempts: 1 }])
    // Repeated after it was claimed again: the post is known already.
    await store.recordWebhookResults({ epoch, results, disableAfter: null })
    t.equal(await store.earliestWebhookDueAt(), NOW + 60_000 + LEASE)
  },
  'an endpoint counts its failures from the success before them, also among the results of one verb': async (
    t,
    { store },
  ) => {
    const endpoint = webhookEndpoint()
    await store.addWebhookEndpoint(endpoint)
    const { epoch } = await deliverSome(store, 6, 0)
    const claimed = await store.claimWebhooks(webhookClaim(epoch))
    const record = (from: number, hasSucceeded: boolean[]): Promise<unknown> => {
      const results = hasSucceeded.map((isGood, index): WebhookResult => ({
        key: claimed[from + index]?.key ?? 0,
        id: claimed[from + index]?.id ?? '',
        at: NOW,
        endedAt: NOW + from + index,
        durationMilliseconds: 1,
        status: isGood ? 200 : 500,
        error: null,
        answer: '',
        next: isGood ? { kind: 'succeeded' } : { kind: 'retry', at: NOW + 60_000 },
      }))
      return store.recordWebhookResults({ epoch, results, disableAfter: null })
    }
    await record(0, [false, true, true, false])
    const afterFailure = { lastSuccessAt: NOW + 2, lastFailureAt: NOW + 3, consecutiveFailures: 1 }
    t.match(await store.findWebhookEndpoint(endpoint.id), afterFailure)
    await record(4, [false, true])
    const afterSuccess = { lastSuccessAt: NOW + 5, lastFailureAt: NOW + 4, consecutiveFailures: 0 }
    t.match(await store.findWebhookEndpoint(endpoint.id), afterSuccess)
  },
  'what a machine did is told to endpoints that include it alone': async (t, { store }) => {
    const machine = webhookEndpoint({ events: ['*'], include: ['machine'] })
    const plain = webhookEndpoint({ events: ['*'] })
    for (const endpoint of [machine, plain]) await store.addWebhookEndpoint(endpoint)
    const { epoch, message } = await claimedMessage(store)
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, delivered)] })
    const hit = { messageId: message.id, link: null, at: NOW + 60_000, client: null }
    const hits = [
      { ...hit, isMachine: true },
      { ...hit, isMachine: false },
    ]
    await store.recordEngagement({ now: NOW + 60_000, hits, machineAfterDelivery: 0 })
    const claimed = await store.claimWebhooks(webhookClaim(epoch, NOW + 60_000))
    const opensOf = (id: string): string[] =>
      claimed.filter((each) => each.endpointId === id && each.kind === 'email.opened').map(({ body }) => body)
    t.match(opensOf(machine.id), [/"machine":"true"\}\}$/, /"recipient":"[^"]+"\}\}$/])
    t.match(opensOf(plain.id), [/"recipient":"[^"]+"\}\}$/])
    t.equal(opensOf(plain.id).length, 1)
  },
  'further fields are those of the event: what was answered, and why it bounced': async (t, { store }) => {
    const endpoint = webhookEndpoint({ include: ['tags', 'metadata', 'ip', 'smtp_response', 'category'] })
    await store.addWebhookEndpoint(endpoint)
    const { epoch, message } = await claimedMessage(store)
    const record = outcomeRecord(message, bounced, { reply: '550 5.1.1 no such user', ip: null })
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [record] })
    const [claimed] = await store.claimWebhooks(webhookClaim(epoch))
    const { data } = JSON.parse(claimed?.body ?? '') as { data: object }
    t.same(data, {
      ...record.events[0]?.data,
      tags: {},
      metadata: {},
      smtp_response: '550 5.1.1 no such user',
      category: 'invalid_recipient',
    })
    const events = await store.messageEvents(message.id)
    t.notMatch(JSON.stringify(events), /tags/, 'the event itself has the standard bytes')
  },
  'slots are dealt in turns, and a replay waits for what is due': async (t, { store }) => {
    const first = webhookEndpoint()
    const second = webhookEndpoint()
    for (const endpoint of [first, second]) await store.addWebhookEndpoint(endpoint)
    const { epoch } = await deliverSome(store, 4, 0)
    const owners = async (limit: number): Promise<string[]> =>
      (await store.claimWebhooks({ ...webhookClaim(epoch), limit })).map(({ endpointId }) => endpointId)
    t.same((await owners(4)).toSorted(), [first.id, first.id, second.id, second.id].toSorted())
    const held = await store.claimWebhooks(webhookClaim(epoch))
    t.equal(held.length, 4)
    await store.recordWebhookResults({ epoch, results: held.map(succeeded), disableAfter: null })
    const range = { endpointId: first.id, since: 0, until: NOW + 10, state: 'all', kinds: null, most: 10 } as const
    // One at a time: each part says where the next one goes on.
    const parts = []
    let after: string | null = null
    do {
      const part: ReplayPart | null = await store.replayWebhooks({ ...range, most: 1, now: NOW + 10, after })
      parts.push(...(part?.replayed ?? []))
      after = part?.after ?? null
    } while (after !== null)
    t.equal(parts.length, held.filter(({ endpointId }) => endpointId === first.id).length)
    t.same((await store.replayWebhooks({ ...range, now: NOW + 11, after: null }))?.replayed, [], 'once')
    t.equal(await store.replayWebhooks({ ...range, endpointId: 'wh_x', now: NOW, after: null }), null)
    const at = NOW + 20
    await acceptOne(store, { now: at })
    const messages = await claim(store, epoch, at)
    const outcomes = messages.map((message) => outcomeRecord(message, delivered))
    await store.recordOutcomes({ epoch, now: at, outcomes })
    const [next] = await store.claimWebhooks({ ...webhookClaim(epoch, at), perEndpoint: 1, busy: { [second.id]: 1 } })
    t.match(next?.body, messages[0]?.id, 'the live one, though the others are due longer')
  },
  'a dead letter goes with the success in its place, so that no repeated replay sends it again': async (
    t,
    { store },
  ) => {
    const { id: endpointId } = webhookEndpoint()
    await store.addWebhookEndpoint(webhookEndpoint({ id: endpointId }))
    const { epoch } = await deliverSome(store, 2, 0)
    const post = async (now: number, next: WebhookResult['next']): Promise<WebhookResult[]> => {
      const claimed = await store.claimWebhooks(webhookClaim(epoch, now))
      const results = claimed.map((each) => ({ ...succeeded(each), at: now, endedAt: now, next }))
      await store.recordWebhookResults({ epoch, results, disableAfter: null })
      return results
    }
    const [dead] = await post(NOW, { kind: 'dead-letter' })
    await store.replayWebhook(endpointId, dead?.id ?? '', NOW + 1)
    const waitsSince = (await store.figures()).webhooks.oldestMadeAt ?? 0
    t.ok(waitsSince > NOW, 'what is replayed waits since then, however old its event is')
    await post(NOW + 1, { kind: 'succeeded' })
    const now = NOW + 10
    t.equal(await store.pruneWebhooks({ now, succeededBefore: now, failedBefore: 0, limit: 10 }), 2)
    const range = { since: 0, until: now, state: 'failed', kinds: null, most: 10, after: null } as const
    const part = await store.replayWebhooks({ endpointId, now, ...range })
    t.equal(part?.replayed.length, 1, 'the other one alone')
  },
  'of a removed endpoint all is forgotten but what is being posted, and that after its lease': async (t, { store }) => {
    const removed = webhookEndpoint()
    await store.addWebhookEndpoint(removed)
    const { epoch } = await deliverSome(store, 3, 0)
    t.equal((await store.claimWebhooks({ ...webhookClaim(epoch), limit: 1 })).length, 1)
    await store.removeWebhookEndpoint(removed.id, NOW)
    const prune = (now: number): Promise<number> =>
      store.pruneWebhooks({ now, succeededBefore: 0, failedBefore: 0, limit: 10 })
    t.equal(await prune(NOW), 2)
    t.equal(await prune(NOW), 0)
    t.equal(await prune(NOW + LEASE), 1)
  },
  'a result is of the delivery that was posted, also when another one has its number': async (t, { store }) => {
    const removed = webhookEndpoint()
    await store.addWebhookEndpoint(removed)
    const { epoch } = await deliverSome(store, 1, 0)
    const posted = await store.claimWebhooks(webhookClaim(epoch))
    await store.removeWebhookEndpoint(removed.id, NOW)
    // The clock leaps beyond the lease while the post is under way.
    await store.pruneWebhooks({ now: NOW + LEASE, succeededBefore: 0, failedBefore: 0, limit: 10 })
    await store.addWebhookEndpoint(webhookEndpoint())
    const next = await deliverSome(store, 1, 0)
    const claimed = await store.claimWebhooks(webhookClaim(next.epoch))
    // Only SQLite gives a number again.
    await store.recordWebhookResults({ epoch: next.epoch, results: posted.map(succeeded), disableAfter: null })
    t.equal(await store.earliestWebhookDueAt(), NOW + LEASE, 'the other one still waits')
    await store.recordWebhookResults({ epoch: next.epoch, results: claimed.map(succeeded), disableAfter: null })
    t.equal(await store.earliestWebhookDueAt(), null)
  },
  'what waits for a disabled endpoint is forgotten like a dead letter': async (t, { store }) => {
    const endpoint = webhookEndpoint()
    await store.addWebhookEndpoint(endpoint)
    const { epoch } = await deliverSome(store, 3, 0)
    const prune = (failedBefore: number): Promise<number> =>
      store.pruneWebhooks({ now: NOW + 1, succeededBefore: 0, failedBefore, limit: 2 })
    t.equal(await prune(NOW + 1), 0, 'an enabled one still gets it')
    await store.updateWebhookEndpoint(endpoint.id, { status: 'disabled' }, NOW)
    t.equal(await prune(NOW), 0, 'it may be enabled again')
    t.same([await prune(NOW + 1), await prune(NOW + 1), await prune(NOW + 1)], [2, 1, 0])
    await store.updateWebhookEndpoint(endpoint.id, { status: 'enabled' }, NOW)
    t.same(await store.claimWebhooks(webhookClaim(epoch)), [])
  },
  'an endpoint is of its own side, also when it has the number of a removed one of the other': async (t, { store }) => {
    const removed = webhookEndpoint({ isTest: true })
    await store.addWebhookEndpoint(removed)
    await deliverSome(store, 1, 0)
    await store.removeWebhookEndpoint(removed.id, NOW)
    await store.pruneWebhooks({ now: NOW, succeededBefore: 0, failedBefore: 0, limit: 10 })
    // SQLite gives the number again.
    await store.addWebhookEndpoint(webhookEndpoint({ isTest: false }))
    const { epoch } = await deliverSome(store, 1, 0)
    t.equal((await store.claimWebhooks(webhookClaim(epoch))).length, 1)
  },
  'a delivery whose holder died is due again': async (t, { store }) => {
    await store.addWebhookEndpoint(webhookEndpoint())
    const { epoch } = await deliverSome(store, 1, 0)
    const [claimed] = await store.claimWebhooks(webhookClaim(epoch))
    const next = await store.beginEpoch(NOW + 1, NOW + 1)
    t.equal(next.recovered, 0, 'only messages are counted')
    t.match(await store.claimWebhooks(webhookClaim(next.epoch, NOW + 1)), [{ id: claimed?.id, attempts: 0 }])
    t.match(await store.claimWebhooks(webhookClaim(next.epoch, NOW + 1 + LEASE)), [{ id: claimed?.id }], 'lapsed')
  },
}

function succeeded({ key, id }: Pick<WebhookResult, 'key' | 'id'>): WebhookResult {
  return {
    key,
    id,
    at: NOW,
    endedAt: NOW + 1,
    durationMilliseconds: 1,
    status: 200,
    error: null,
    answer: '',
    next: { kind: 'succeeded' },
  }
}

/** Messages that are delivered and bounced, each with its event. */
async function deliverSome(store: Store, deliveredCount: number, bouncedCount: number): Promise<{ epoch: number }> {
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const messages = Array.from({ length: deliveredCount + bouncedCount }, () => newMessage())
  await store.acceptMessages(acceptRequest({ messages }))
  const claimed = await claim(store, epoch)
  const records = claimed.map((message, index) => outcomeRecord(message, index < deliveredCount ? delivered : bounced))
  await store.recordOutcomes({ epoch, now: NOW, outcomes: records })
  return { epoch }
}

export const closing: Cases = {
  'a closed store says so': async (t, { store }) => {
    const last = acceptOne(store)
    const closed = store.close()
    await t.resolves(last, 'what was called before is finished')
    await closed
    await t.rejects(store.tick(), { code: 'unavailable', details: 'the store is closed' })
  },
}
