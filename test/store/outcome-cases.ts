/**
 * Outcomes and expiry: what every store engine must do with what tries led to.
 */
import { DAY } from '../../src/base/clock.ts'
import { eventBody } from '../../src/mail/event.ts'
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
  rowClaim,
  sampleBounce,
  webhookEndpoint,
} from './store-samples.ts'

export const outcomes: Cases = {
  'a report is too old by the time since its message was sent, not since it was accepted': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const sendAt = NOW + 30 * DAY
    const messageId = await acceptOne(store, { sendAt }, { expiresAt: sendAt + LIFETIME })
    const report = (now: number) => {
      const fact = { kind: 'bounce' as const, bounce: sampleBounce, suppress: 'never' as const }
      return store.recordReport({ messageId, now, sentSince: now - 35 * DAY, fact })
    }
    t.match(await report(sendAt + 20 * DAY), { kind: 'noted' }, 'one that waits, of its time')
    const [message] = await claim(store, epoch, sendAt)
    if (message === undefined) throw new Error('nothing was claimed')
    const deliveredAt = sendAt + DAY
    await store.recordOutcomes({ epoch, now: deliveredAt, outcomes: [outcomeRecord(message, delivered)] })
    t.match(await report(deliveredAt + 35 * DAY + 1), { kind: 'too-old' })
    t.match(await report(deliveredAt + 35 * DAY), { kind: 'recorded' })
  },
  'delivered ends the message with its attempt and one event': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const record = outcomeRecord(message, delivered)
    await store.recordOutcomes({ epoch, now: NOW + 900, outcomes: [record] })
    t.match(await lookUp(store, message.id), {
      state: 'delivered',
      deliveredAt: NOW + 900,
      bouncedAt: null,
      bounce: null,
      isp: 'gmail',
      ip: '127.0.0.11',
      nextAttemptAt: null,
      attempts: [record.attempt],
    })
    const events = (await store.messageEvents(message.id)) ?? []
    t.same(
      events.map(({ kind }) => kind),
      ['email.accepted', 'email.attempted', 'email.delivered'],
    )
    t.match(events[1], { at: NOW, data: { result: 'delivered', stage: 'dot', ip: '127.0.0.11', mx: 'mx.example.com' } })
    t.same(events[2], { id: record.events[0]?.id, kind: 'email.delivered', at: NOW, data: record.events[0]?.data })
    t.same(await store.queueSummary(NOW), { waiting: 0, sending: 0, oldestDueAt: null })
  },
  'a deferral counts an attempt, keeps its IP and waits for its time': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, deferredUntil(NOW + 60_000))] })
    t.match(await lookUp(store, message.id), { state: 'deferred', nextAttemptAt: NOW + 60_000, ip: '127.0.0.11' })
    const [again] = await claim(store, epoch, NOW + 60_000)
    t.match(again, { attempts: 1, lastIp: '127.0.0.11', pathFailures: 0, ambiguousCount: 0 })
    const later = outcomeRecord({ ...message, ...rowClaim(again) }, deferredUntil(NOW + 120_000), {
      at: NOW + 60_000,
      ip: '127.0.0.12',
    })
    await store.recordOutcomes({ epoch, now: NOW + 60_000, outcomes: [later] })
    t.match(await claim(store, epoch, NOW + 120_000), [{ attempts: 2, lastIp: '127.0.0.12' }])
    t.equal((await lookUp(store, message.id))?.ip, '127.0.0.12')
  },
  'a path failure counts no attempt, and a deferral ends its row': async (t, { store }) => {
    const { epoch, message: first } = await claimedMessage(store)
    let message = first
    for (const [index, at] of [NOW, NOW + 1_000].entries()) {
      const failure = outcomeRecord(message, { kind: 'path-failed', retryAt: at + 1_000 }, { at, ip: null, host: null })
      await store.recordOutcomes({ epoch, now: at, outcomes: [failure] })
      const [again] = await claim(store, epoch, at + 1_000)
      t.match(again, { attempts: 0, pathFailures: index + 1, lastIp: null })
      message = { ...message, ...rowClaim(again) }
    }
    const deferral = outcomeRecord(message, deferredUntil(NOW + 9_000), { at: NOW + 2_000 })
    await store.recordOutcomes({ epoch, now: NOW + 2_000, outcomes: [deferral] })
    t.match(await claim(store, epoch, NOW + 9_000), [{ attempts: 1, pathFailures: 0 }])
    t.equal((await lookUp(store, message.id))?.attempts.length, 3)
  },
  'a waiting message whose last try was a path failure is deferred': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const failure = outcomeRecord(message, { kind: 'path-failed', retryAt: NOW + 1_000 })
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [failure] })
    t.equal((await lookUp(store, message.id))?.state, 'deferred')
  },
  'a lost answer to the final dot is counted and marked': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const doubt = outcomeRecord(message, { kind: 'ambiguous', retryAt: NOW + 300_000 })
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [doubt] })
    t.equal((await lookUp(store, message.id))?.isPossibleDuplicate, true)
    t.match(await claim(store, epoch, NOW + 300_000), [
      { attempts: 1, ambiguousCount: 1, isPossibleDuplicate: true, lastIp: '127.0.0.11' },
    ])
  },
  'bounced and expired end the message with their bounce': async (t, { store }) => {
    const expiry = { ...sampleBounce, type: 'soft' as const, category: 'expired', code: '4.4.7' }
    for (const [outcome, state, category] of [
      [bounced, 'bounced', 'invalid_recipient'],
      [{ kind: 'expired' as const, bounce: expiry }, 'expired', 'expired'],
    ] as const) {
      const { epoch, message } = await claimedMessage(store)
      await store.recordOutcomes({ epoch, now: NOW + 5, outcomes: [outcomeRecord(message, outcome)] })
      t.match(await lookUp(store, message.id), {
        state,
        bouncedAt: NOW + 5,
        deliveredAt: null,
        bounce: { category, at: NOW + 5 },
      })
      const events = (await store.messageEvents(message.id)) ?? []
      t.same(
        events.map(({ kind }) => kind),
        ['email.accepted', 'email.attempted', 'email.bounced'],
      )
    }
  },
  'a batch that comes twice changes nothing the second time': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addWebhookEndpoint(webhookEndpoint())
    await store.acceptMessages(acceptRequest({ messages: Array.from({ length: 4 }, () => newMessage()) }))
    const messages = await claim(store, epoch)
    const kinds = [delivered, bounced, deferredUntil(NOW + 1_000), { kind: 'ambiguous' as const, retryAt: NOW + 1_000 }]
    const batch = messages.map((message, index) => outcomeRecord(message, kinds[index] ?? delivered))
    const look = async () => [
      await Promise.all(messages.map(({ id }) => lookUp(store, id))),
      await Promise.all(messages.map(({ id }) => store.messageEvents(id))),
    ]
    await store.recordOutcomes({ epoch, now: NOW, outcomes: batch })
    const once = await look()
    await store.recordOutcomes({ epoch, now: NOW + 5, outcomes: batch })
    t.same(await look(), once)
    t.equal((await store.claimWebhooks(webhookClaim(epoch))).length, 2)
    // Claimed again in between: the fence alone would let the repeated batch through.
    t.equal((await claim(store, epoch, NOW + 1_000)).length, 2)
    await store.recordOutcomes({ epoch, now: NOW + 1_000, outcomes: batch })
    t.equal((await store.queueSummary(NOW)).sending, 2)
  },
  'an outcome of a dead epoch is recorded and changes no state': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const next = await store.beginEpoch(NOW, NOW)
    const late = [
      outcomeRecord(message, deferredUntil(NOW + 60_000)),
      outcomeRecord(message, bounced, { at: NOW + 1 }),
      outcomeRecord(message, { kind: 'path-failed', retryAt: NOW + 60_000 }, { at: NOW + 2 }),
    ]
    await store.recordOutcomes({ epoch, now: NOW, outcomes: late })
    const view = await lookUp(store, message.id)
    t.match(view, { state: 'queued', nextAttemptAt: NOW, bounce: null })
    t.equal(view?.attempts.length, 3)
    const events = (await store.messageEvents(message.id)) ?? []
    t.notOk(events.some(({ kind }) => kind === 'email.bounced'))
    t.match(await claim(store, next.epoch), [{ id: message.id, attempts: 0 }])
  },
  'an outcome of an older claim is recorded, and changes nothing for who holds the row now': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    await store.unclaim({ epoch, rows: [{ ...rowClaim(message), nextAt: NOW }] })
    const [again] = await claim(store, epoch)
    const late = [
      outcomeRecord(message, deferredUntil(NOW + 60_000)),
      { ...outcomeRecord(message, bounced, { at: NOW + 1 }), suppresses: true },
      outcomeRecord(message, { kind: 'path-failed', retryAt: NOW + 60_000 }, { at: NOW + 2 }),
    ]
    await store.recordOutcomes({ epoch, now: NOW, outcomes: late })
    const view = await lookUp(store, message.id)
    t.match(view, { state: 'sending', bounce: null, isPossibleDuplicate: false })
    t.equal(view?.attempts.length, 3)
    t.equal(await store.removeSuppressions({ email: 'ada@example.com', scope: null, isTest: false, domains: [] }), 0)
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, delivered, { at: NOW + 3 })] })
    t.match(await lookUp(store, message.id), { state: 'sending', isPossibleDuplicate: true }, 'but that it was sent')
    const held = { ...message, ...rowClaim(again) }
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(held, delivered, { at: NOW + 4 })] })
    t.match(await lookUp(store, message.id), { state: 'delivered' })
  },
  'delivered by an older claim ends a row that waits': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    await store.unclaim({ epoch, rows: [{ ...rowClaim(message), nextAt: NOW }] })
    const [again] = await claim(store, epoch)
    await store.unclaim({ epoch, rows: [{ ...rowClaim(again), nextAt: NOW }] })
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, delivered)] })
    t.equal((await lookUp(store, message.id))?.state, 'delivered')
    t.same(await claim(store, epoch), [])
  },
  'delivered by a dead epoch ends a row that waits': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const next = await store.beginEpoch(NOW, NOW)
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, delivered)] })
    t.equal((await lookUp(store, message.id))?.state, 'delivered')
    t.same(await claim(store, next.epoch), [])
    const events = (await store.messageEvents(message.id)) ?? []
    t.equal(events.filter(({ kind }) => kind === 'email.delivered').length, 1)
  },
  'delivered by a dead epoch leaves a row that another one holds, and one event in the end': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const next = await store.beginEpoch(NOW, NOW)
    const [again] = await claim(store, next.epoch)
    const held = { ...message, ...rowClaim(again) }
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, delivered)] })
    t.match(await lookUp(store, message.id), { state: 'sending', isPossibleDuplicate: true })
    const second = outcomeRecord(held, delivered, { at: NOW + 7 })
    await store.recordOutcomes({ epoch: next.epoch, now: NOW, outcomes: [second] })
    const third = outcomeRecord(held, bounced, { at: NOW + 8 })
    await store.recordOutcomes({ epoch: next.epoch, now: NOW, outcomes: [third] })
    t.match(await lookUp(store, message.id), { state: 'delivered', bounce: null })
    const events = (await store.messageEvents(message.id)) ?? []
    t.same(events.map(({ kind }) => kind).sort(), [
      'email.accepted',
      'email.attempted',
      'email.attempted',
      'email.attempted',
      'email.delivered',
    ])
  },
}

export const expiry: Cases = {
  'a waiting message past its lifetime ends as expired with its event': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addWebhookEndpoint(webhookEndpoint())
    const id = await acceptOne(store)
    t.equal((await store.expireDue(NOW + LIFETIME - 1, 100)).length, 0)
    t.equal((await store.expireDue(NOW + LIFETIME, 100)).length, 1)
    const description = 'not delivered within 72 h'
    t.match(await lookUp(store, id), {
      state: 'expired',
      bouncedAt: NOW + LIFETIME,
      bounce: { type: 'soft', category: 'expired', code: '4.4.7', description, at: NOW + LIFETIME },
    })
    const data = {
      message_id: id,
      recipient: 'ada@example.com',
      bounce_type: 'soft',
      bounce_code: '4.4.7',
      bounce_description: description,
    }
    t.match((await store.messageEvents(id))?.[1], { kind: 'email.bounced', at: NOW + LIFETIME, data })
    const [webhook] = await store.claimWebhooks(webhookClaim(epoch, NOW + LIFETIME))
    t.equal(webhook?.body, eventBody({ id: '', kind: 'email.bounced', at: NOW + LIFETIME, data }))
    t.equal((await store.expireDue(NOW + LIFETIME, 100)).length, 0)
  },
  'the last answer is named': async (t, { store }) => {
    const { epoch, message: first } = await claimedMessage(store)
    let message = first
    for (const [at, reply] of [
      [NOW, '450 first'],
      [NOW + 5, '451 4.3.0 try later'],
    ] as const) {
      const record = outcomeRecord(message, deferredUntil(NOW + 5), { at, reply })
      await store.recordOutcomes({ epoch, now: at, outcomes: [record] })
      const [again] = await claim(store, epoch, NOW + 5)
      message = { ...message, ...rowClaim(again) }
    }
    await store.unclaim({ epoch, rows: [{ ...rowClaim(message), nextAt: NOW }] })
    await store.expireDue(NOW + LIFETIME, 100)
    t.equal(
      (await lookUp(store, message.id))?.bounce?.description,
      'not delivered within 72 h; last answer: 451 4.3.0 try later',
    )
  },
  'no more than the limit ends at once, and what is being sent is left alone': async (t, { store }) => {
    const { message } = await claimedMessage(store)
    await store.acceptMessages(acceptRequest({ messages: Array.from({ length: 5 }, () => newMessage()) }))
    const ended = [await store.expireDue(NOW + LIFETIME, 3), await store.expireDue(NOW + LIFETIME, 3)]
    t.same(
      ended.map(({ length }) => length),
      [3, 2],
    )
    t.match(ended[0]?.[0], { id: /^msg_/, pool: String, domain: String })
    t.equal((await lookUp(store, message.id))?.state, 'sending')
  },
  'a shorter lifetime is named as it was': async (t, { store }) => {
    for (const [lifetime, text] of [
      [90_000, '2 min'],
      [30_000, '30 s'],
      [24 * 3_600_000, '24 h'],
    ] as const) {
      const id = await acceptOne(store, {}, { expiresAt: NOW + lifetime })
      await store.expireDue(NOW + lifetime, 1)
      t.equal((await lookUp(store, id))?.bounce?.description, `not delivered within ${text}`)
    }
  },
}
