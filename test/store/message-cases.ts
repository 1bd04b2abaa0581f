/**
 * Messages and batches as the customer looks at them and acts on them: what every store engine must do.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { Store } from '../../src/store/store.ts'
import { claimMessages } from '../support/claim-messages.ts'
import { webhookClaim, type Cases } from './conformance-case.ts'
import {
  acceptOne,
  acceptRequest,
  bounced,
  claim,
  claimedMessage,
  deferredUntil,
  delivered,
  LIFETIME,
  lookUp,
  newMessage,
  NOW,
  outcomeRecord,
  POOL,
  sampleContent,
  webhookEndpoint,
  suppressionRecord,
} from './store-samples.ts'

/** `full`: the sizes of the issue; else those of every run. */
const IS_FULL = process.env['TEST_SCALE'] === 'full'

const NO_MESSAGES = [newIdentifier('msg', NOW), newIdentifier('bat', NOW), 'msg_', '', '%', 'msg_\0']

/** Claims a message and defers it for a minute. */
async function deferOne(store: Store, epoch: number): Promise<string> {
  const id = await acceptOne(store)
  const messages = await claim(store, epoch)
  const outcomes = messages.map((message) => outcomeRecord(message, deferredUntil(NOW + 60_000)))
  await store.recordOutcomes({ epoch, now: NOW, outcomes })
  return id
}

export const acting: Cases = {
  'what waits is canceled with its event, once; what ended or is under way is not': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addWebhookEndpoint(webhookEndpoint({ events: ['email.canceled'] }))
    const deferred = await deferOne(store, epoch)
    const sending = await acceptOne(store)
    await claim(store, epoch)
    const queued = await acceptOne(store)
    const scheduled = await acceptOne(store, { sendAt: NOW + 5 })
    for (const id of [deferred, queued, scheduled]) {
      t.same(await store.cancelMessage(id, NOW + 1), { kind: 'canceled' })
      t.same(await store.cancelMessage(id, NOW + 2), { kind: 'canceled' }, 'again')
      t.match(await lookUp(store, id), { state: 'canceled', nextAttemptAt: null })
      t.match((await store.messageEvents(id))?.at(-1), {
        kind: 'email.canceled',
        at: NOW + 1,
        data: { message_id: id, recipient: 'ada@example.com' },
      })
    }
    t.same(await store.cancelMessage(sending, NOW), { kind: 'refused', state: 'sending' })
    t.equal((await store.claimWebhooks(webhookClaim(epoch, NOW + 9))).length, 3)
    t.same(await claim(store, epoch, NOW + LIFETIME - 1), [])
    await store.addSuppression(suppressionRecord())
    t.same(await store.cancelMessage(await acceptOne(store), NOW), { kind: 'refused', state: 'suppressed' })
    for (const id of NO_MESSAGES) t.equal(await store.cancelMessage(id, NOW), null)
  },
  'of what may have arrived a customer never hears that it was canceled': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const { key, claim: held, id } = message
    await store.unclaim({ epoch, rows: [{ key, claim: held, nextAt: NOW, isPossibleDuplicate: true }] })
    t.same(await store.cancelMessage(id, NOW), { kind: 'uncertain' })
    const drop = { filter: {}, action: { kind: 'drop' }, now: NOW, limit: 9, isDryRun: false } as const
    t.equal((await store.actOnQueue(drop)).messages, 1)
    t.same(await store.cancelMessage(id, NOW), { kind: 'uncertain' }, 'nor when an operator has dropped it')
  },
  'a deferred message can be made due now, no other one': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const deferred = await deferOne(store, epoch)
    const scheduled = await acceptOne(store, { sendAt: NOW + 60_000 })
    const key = { pool: POOL, route: '', domain: 'acme.com', stream: 'transactional', isRetry: true }
    t.same(await store.retryNow(deferred, NOW + 1), {
      keys: [{ ...key, earliestAt: NOW + 1, waiting: 1 }],
      unroutedDomains: ['example.com'],
    })
    t.match(await lookUp(store, deferred), { state: 'deferred', nextAttemptAt: NOW + 1 })
    t.match(await store.retryNow(deferred, NOW + 9), { keys: [{ earliestAt: NOW + 1 }] })
    t.match(await lookUp(store, deferred), { nextAttemptAt: NOW + 1 }, 'never later than it was')
    t.equal(await store.retryNow(scheduled, NOW), null)
    t.match(await claim(store, epoch, NOW + 1), [{ id: deferred, attempts: 1 }])
    for (const id of [deferred, ...NO_MESSAGES]) t.equal(await store.retryNow(id, NOW), null)
  },
  'the dialogue of each attempt is kept, within bounds': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const dialogues = ['< 220 mx\n> EHLO mta\n', null, `< 250 ${'é€😀'.repeat(9_000)}`]
    for (const [index, transcript] of dialogues.entries()) {
      const outcome = index === 2 ? delivered : deferredUntil(NOW + index)
      const record = { ...outcomeRecord(message, outcome, { at: NOW + index }), transcript }
      await store.recordOutcomes({ epoch, now: NOW, outcomes: [record] })
      await store.recordOutcomes({ epoch, now: NOW, outcomes: [record] })
      await claim(store, epoch, NOW + index)
    }
    const kept = (await store.transcripts(message.id)) ?? []
    t.match(kept, [
      { at: NOW, ip: '127.0.0.11', host: 'mx.example.com', dialogue: dialogues[0] },
      { at: NOW + 1, dialogue: null },
      { at: NOW + 2 },
    ])
    const cut = kept[2]?.dialogue ?? ''
    t.ok(dialogues[2]?.startsWith(cut), 'no character is cut in two')
    t.ok(Buffer.byteLength(cut) <= 16_384 && Buffer.byteLength(cut) > 16_000, String(Buffer.byteLength(cut)))
    t.same(await store.transcripts(await acceptOne(store)), [])
    for (const id of NO_MESSAGES) t.equal(await store.transcripts(id), null)
  },
  'a road is summed up from its attempts since a time': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.acceptMessages(acceptRequest({ messages: Array.from({ length: 6 }, () => newMessage()) }))
    const messages = await claim(store, epoch)
    const facts = [
      { outcome: deferredUntil(NOW), at: NOW - 10 },
      { outcome: deferredUntil(NOW), at: NOW },
      { outcome: delivered, at: NOW + 1, ip: '127.0.0.12' },
      { outcome: bounced, at: NOW + 1 },
      { outcome: { kind: 'path-failed' as const, retryAt: NOW + 1 }, at: NOW + 1 },
      { outcome: deferredUntil(NOW), at: NOW + 1, isp: 'outlook' },
    ]
    const outcomes = facts.map(({ outcome, isp, ...changes }, index) => {
      const record = outcomeRecord(messages[index] ?? (messages[0] as never), outcome, changes)
      return { ...record, isp: isp ?? record.isp }
    })
    await store.recordOutcomes({ epoch, now: NOW, outcomes })
    t.same(await store.roadSummary('gmail', null, NOW), { attempts: 3, deferred: 1 })
    t.same(await store.roadSummary('gmail', null, NOW - 10), { attempts: 4, deferred: 2 })
    t.same(await store.roadSummary('gmail', '127.0.0.12', NOW), { attempts: 1, deferred: 0 })
    t.same(await store.roadSummary('outlook', null, NOW), { attempts: 1, deferred: 1 })
    t.same(await store.roadSummary('%', null, 0), { attempts: 0, deferred: 0 })
  },
}

export const repeating: Cases = {
  'what ended without delivery gives the request that sends it again': async (t, { store, contentReader }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const content = {
      ...sampleContent,
      tags: { kind: 'bill' },
      unsubscribe: { list: 'news', url: null },
      attachments: [{ name: 'a', contentType: 'text/plain', contentId: null, bytes: Buffer.of(0, 1, 2) }],
    }
    const request = acceptRequest({
      content,
      isTest: true,
      pool: 'bulk',
      stream: 'bulk',
      sendAt: NOW + 1_000,
      messages: [
        newMessage({ to: { name: 'Ada', address: 'ada@example.com' }, variables: { n: 1 }, expiresAt: NOW + 61_000 }),
        newMessage({ isCaptured: true, expiresAt: NOW + 61_000 }),
      ],
    })
    await store.acceptMessages(request)
    const ids = request.messages.map(({ id }) => id)
    t.equal(await store.requestToRepeat(ids[0] ?? '', NOW), null, 'it has not ended')
    t.equal((await store.expireDue(NOW + 61_000, 9)).length, 2)
    t.equal((await lookUp(store, ids[0] ?? ''))?.bounce?.description, 'not delivered within 1 min')
    const later = NOW + 100_000
    const [plain, captured] = await Promise.all(ids.map((id) => store.requestToRepeat(id, later)))
    const [message] = plain?.messages ?? []
    t.not(message?.id, ids[0])
    t.same(
      { ...plain, content: null, messages: null },
      {
        isTest: true,
        domain: 'acme.com',
        pool: 'bulk',
        stream: 'bulk',
        sendAt: null,
        content: null,
        messages: null,
        batch: null,
        retryOf: ids[0],
      },
    )
    t.same(message, {
      id: message?.id,
      to: { name: 'Ada', address: 'ada@example.com' },
      recipientDomain: 'example.com',
      variables: { n: 1 },
      expiresAt: later + 60_000,
      isCaptured: false,
    })
    t.match(captured, { pool: 'bulk', messages: [{ isCaptured: true }] })
    if (plain === null || plain === undefined) return
    await store.acceptMessages({ ...plain, now: later, apiKeyId: null, idempotency: null })
    t.match(await lookUp(store, message?.id ?? ''), { state: 'queued', retryOf: ids[0], tags: { kind: 'bill' } })
    const claimed = await claimMessages(store, { now: later, epoch, leaseUntil: later + 1, pools: ['bulk'], limit: 9 })
    t.same(await (await contentReader()).content(claimed[0]?.contentId ?? 0), content)
  },
  'a simulated recipient is repeated as one; what ended in another way is not': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const to = { name: null, address: 'hard@simulator.sternpost.test' }
    const id = await acceptOne(store, {}, { to, recipientDomain: 'simulator.sternpost.test' })
    const messages = await claim(store, epoch)
    await store.recordOutcomes({ epoch, now: NOW, outcomes: messages.map((each) => outcomeRecord(each, bounced)) })
    t.match(await store.requestToRepeat(id, NOW), { messages: [{ to, simulatedSuppression: null }] })
    const other = await acceptOne(store)
    await store.cancelMessage(other, NOW)
    for (const none of [other, ...NO_MESSAGES]) t.equal(await store.requestToRepeat(none, NOW), null)
  },
}

export const batches: Cases = {
  'a batch says what became of its messages': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const id = newIdentifier('bat', NOW)
    const owner = newIdentifier('key', NOW)
    const messages = Array.from({ length: 7 }, () => newMessage())
    messages[6] = newMessage({ expiresAt: NOW + 500 })
    const request = acceptRequest({
      batch: { id, rejected: 2 },
      apiKeyId: owner,
      stream: 'bulk',
      sendAt: NOW + 100,
      messages,
    })
    await store.acceptMessages(request)
    await acceptOne(store, { now: NOW + 900 })
    const none = {
      scheduled: 0,
      queued: 0,
      sending: 0,
      deferred: 0,
      delivered: 0,
      bounced: 0,
      expired: 0,
      canceled: 0,
      suppressed: 0,
    }
    const view = {
      id,
      createdAt: NOW,
      from: 'orders@acme.com',
      subject: 'Order {{number}}',
      domain: 'acme.com',
      isTest: false,
      accepted: 7,
      rejected: 2,
      states: { ...none, scheduled: 7 },
      opened: 0,
      clicked: 0,
      complained: 0,
    }
    t.same(await store.lookupBatch(id, NOW), view)
    t.same(await store.lookupBatch(id, NOW + 100), { ...view, states: { ...none, queued: 7 } })
    t.equal((await lookUp(store, messages[0]?.id ?? ''))?.batchId, id)
    const now = NOW + 500
    await store.expireDue(now, 9)
    const claimed = await claim(store, epoch, now, 4)
    const kinds = [delivered, bounced, deferredUntil(NOW + 1_000)]
    const outcomes = kinds.map((kind, index) => outcomeRecord(claimed[index] as never, kind))
    await store.recordOutcomes({ epoch, now, outcomes })
    const states = { ...none, queued: 2, sending: 1, delivered: 1, bounced: 1, deferred: 1, expired: 1 }
    t.same(await store.lookupBatch(id, now), { ...view, states })
    t.same(await store.cancelBatch(id, now), { canceled: 3, notCanceled: 4 })
    t.same(await store.cancelBatch(id, now), { canceled: 3, notCanceled: 4 }, 'again')
    t.same(await store.lookupBatch(id, now), { ...view, states: { ...states, queued: 0, deferred: 0, canceled: 3 } })
    t.equal((await claim(store, epoch, NOW + 1_000)).length, 1, 'what is no part of it is sent')
    for (const other of NO_MESSAGES) {
      t.equal(await store.lookupBatch(other, NOW), null)
      t.equal(await store.cancelBatch(other, NOW), null)
    }
  },
  'thousands are canceled at once, each with its event': async (t, { store }) => {
    const id = newIdentifier('bat', NOW)
    const count = IS_FULL ? 5_000 : 1_000
    const messages = Array.from({ length: count }, () => newMessage())
    await store.acceptMessages(acceptRequest({ batch: { id, rejected: 0 }, messages }))
    t.same(await store.cancelBatch(id, NOW), { canceled: count, notCanceled: 0 })
    t.match((await store.messageEvents(messages.at(-1)?.id ?? ''))?.[1], { kind: 'email.canceled' })
    t.equal((await store.queueSummary(NOW)).waiting, 0)
  },
  'a batch that is not accepted whole leaves nothing': async (t, { store }) => {
    const known = newMessage()
    await store.acceptMessages(acceptRequest({ messages: [known] }))
    const batch = { id: newIdentifier('bat', NOW), rejected: 0 }
    const content = { ...sampleContent, tags: { campaign: 'x' } }
    const fresh = newMessage()
    await t.rejects(store.acceptMessages(acceptRequest({ batch, content, messages: [fresh, known] })))
    t.equal(await store.lookupBatch(batch.id, NOW), null)
    t.equal(await lookUp(store, fresh.id), null)
    await store.acceptMessages(acceptRequest({ batch, content, messages: [fresh] }))
    await t.rejects(store.acceptMessages(acceptRequest({ batch })), 'its identifier is there once')
  },
}
