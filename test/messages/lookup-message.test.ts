/**
 * Looking a message up: the fields of the API, from what the store holds.
 */
import t from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createMessageLookup } from '../../src/messages/lookup-message.ts'
import { testStore } from '../senders/sender-parts.ts'
import {
  acceptOne, acceptRequest, bounced, claim, deferredUntil, delivered, LIFETIME, newMessage, NOW, outcomeRecord,
  sampleContent,
} from '../store/store-samples.ts'

const NOW_SECONDS = NOW / SECOND

t.test('a waiting message has every field of the contract', async (t) => {
  const store = await testStore(t)
  const lookup = createMessageLookup({ store })
  const message = newMessage({ to: { name: 'Ada', address: 'ada@example.com' }, variables: { number: 1042 } })
  await store.acceptMessages(acceptRequest({ messages: [message] }))
  const { events, ...data } = await lookup.message(message.id)
  t.same(data, {
    message_id: message.id, batch_id: null, state: 'queued', recipient: 'ada@example.com', from: 'orders@acme.com',
    subject: 'Order 1042', stream: 'transactional', tags: {}, metadata: {}, isp: null, ip: null, ip_pool: 'default',
    created_at: NOW_SECONDS, send_at: null, expires_at: NOW_SECONDS + LIFETIME / SECOND, next_attempt_at: NOW_SECONDS,
    delivered_at: null, bounced_at: null, complained_at: null, bounce: null, opens: 0, clicks: 0, machine_opens: 0,
    machine_clicks: 0, uncertain: false, retry_of: null, attempts: [],
  })
  t.match(events, [{ id: /^evt_/, event: 'email.accepted', timestamp: NOW_SECONDS, data: {} }])
  t.same(await lookup.events(message.id), events)
})

t.test('without variables the subject is shown as it was given', async (t) => {
  const store = await testStore(t)
  const id = await acceptOne(store, { content: { ...sampleContent, hasVariables: false } })
  t.equal((await createMessageLookup({ store }).message(id)).subject, 'Order {{number}}')
})

t.test('attempts are counted, and the end of a message is told', async (t) => {
  const store = await testStore(t)
  const lookup = createMessageLookup({ store })
  const { epoch } = await store.beginEpoch(NOW)
  const content = { ...sampleContent, hasVariables: false }
  const [good, bad] = [await acceptOne(store, { content }), await acceptOne(store, { content })]
  const record = async (id: string, at: number, outcome: Parameters<typeof outcomeRecord>[1], reply: string) => {
    const message = (await claim(store, epoch, at)).find((each) => each.id === id)
    if (message === undefined) throw new Error(`${id} was not claimed`)
    await store.recordOutcomes({ epoch, now: at, outcomes: [outcomeRecord(message, outcome, { at, reply })] })
  }
  await record(good, NOW, deferredUntil(NOW + MINUTE), '450 4.2.1 later')
  t.match(await lookup.message(good), {
    state: 'deferred', next_attempt_at: NOW_SECONDS + 60, ip: '127.0.0.11', isp: 'gmail',
    attempts: [{ n: 1, at: NOW_SECONDS, result: 'deferred', reply: '450 4.2.1 later', duration_ms: 840 }],
  })
  await record(good, NOW + MINUTE, delivered, '250 2.0.0 OK')
  const done = await lookup.message(good)
  t.match(done, { state: 'delivered', next_attempt_at: null, delivered_at: NOW_SECONDS + 60, bounce: null })
  t.same(done.attempts[1], {
    n: 2, at: NOW_SECONDS + 60, ip: '127.0.0.11', mx: 'mx.example.com', tls: 'TLSv1.3', result: 'delivered',
    reply: '250 2.0.0 OK', duration_ms: 840,
  })
  t.same(done.events.filter(({ event }) => event === 'email.delivered').map(({ data }) => data), [
    { message_id: good, recipient: 'ada@example.com', isp: 'gmail' },
  ])

  await store.recoverLapsedLeases(NOW + LIFETIME - MINUTE)
  await record(bad, NOW + LIFETIME - MINUTE, bounced, '550 5.1.1 no such user')
  t.match(await lookup.message(bad), {
    state: 'bounced', bounced_at: NOW_SECONDS + (LIFETIME - MINUTE) / SECOND, uncertain: true,
    bounce: {
      type: 'hard', code: '5.1.1', category: 'invalid_recipient', description: '550 5.1.1 no such user', late: false,
    },
  })
})

t.test('results have the names of the API', async (t) => {
  const store = await testStore(t)
  const { epoch } = await store.beginEpoch(NOW)
  const id = await acceptOne(store, { content: { ...sampleContent, hasVariables: false } })
  const [message] = await claim(store, epoch)
  if (message === undefined) throw new Error('nothing was claimed')
  const outcome = { kind: 'path-failed', retryAt: NOW + MINUTE } as const
  const changes = { ip: null, host: null, localAddress: null, tls: null, reply: 'no answer from the DNS' }
  await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, outcome, changes)] })
  t.match((await createMessageLookup({ store }).message(id)).attempts, [
    { n: 1, result: 'path_failed', ip: null, mx: null, tls: null, reply: 'no answer from the DNS' },
  ])
})

t.test('what is no message is not found, whatever it looks like', async (t) => {
  const store = await testStore(t)
  const lookup = createMessageLookup({ store })
  const unknown = newIdentifier('msg', NOW)
  await t.rejects(lookup.message(unknown), { code: 'not_found', details: `message ${unknown}` })
  for (const id of ['', 'msg_', 'x', '__proto__', newIdentifier('evt', NOW), unknown.toUpperCase(), `${unknown}x`]) {
    await t.rejects(lookup.message(id), { code: 'not_found' }, id)
    await t.rejects(lookup.events(id), { code: 'not_found' }, id)
  }
})
