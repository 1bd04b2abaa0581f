/**
 * Looking up and searching messages and batches: the fields of the API, from what the store holds, and only for whom
 * may see them.
 */
import { createSecretKey } from 'node:crypto'
import t from 'tap'
import { EVERYTHING } from '../../src/mail/reach.ts'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import { complaintToken, returnPathAddress } from '../../src/mail/message-token.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createMessageLookup, type MessageLookup } from '../../src/messages/lookup/lookup-message.ts'
import type { MessageQuery } from '../../src/api/message.ts'
import type { RowClaim } from '../../src/store/records/claim-records.ts'
import type { Store } from '../../src/store/store.ts'
import { testStore } from '../senders/sender-parts.ts'
import {
  acceptOne,
  acceptRequest,
  bounced,
  claim,
  deferredUntil,
  delivered,
  LIFETIME,
  newMessage,
  NOW,
  outcomeRecord,
  sampleContent,
  anything,
} from '../store/store-samples.ts'

const NOW_SECONDS = NOW / SECOND
const ALL = EVERYTHING

function lookupIn(store: Store): MessageLookup {
  return createMessageLookup({
    store,
    clock: { now: () => NOW, after: () => () => undefined },
    domains: { find: async () => null },
    classify: () => ({ category: 'unknown', rule: null, suppress: 'never', inReports: null }),
    whyWaiting: () => undefined,
    whereIs: async () => undefined,
    longestStageMilliseconds: 10 * MINUTE,
  })
}

t.test('a waiting message has every field of the contract', async (t) => {
  const store = await testStore(t)
  const lookup = lookupIn(store)
  const message = newMessage({ to: { name: 'Ada', address: 'ada@example.com' }, variables: { number: 1042 } })
  await store.acceptMessages(acceptRequest({ messages: [message] }))
  const events = await lookup.events(message.id, ALL)
  t.same(await lookup.message(message.id, ALL), {
    message_id: message.id,
    batch_id: null,
    state: 'queued',
    recipient: 'ada@example.com',
    from: 'orders@acme.com',
    subject: 'Order 1042',
    stream: 'transactional',
    tags: {},
    metadata: {},
    isp: null,
    ip: null,
    ip_pool: 'default',
    created_at: NOW_SECONDS,
    send_at: null,
    expires_at: NOW_SECONDS + LIFETIME / SECOND,
    next_attempt_at: NOW_SECONDS,
    delivered_at: null,
    bounced_at: null,
    complained_at: null,
    bounce: null,
    opens: 0,
    clicks: 0,
    machine_opens: 0,
    machine_clicks: 0,
    uncertain: false,
    retry_of: null,
    attempts: [],
  })
  t.match(events, [{ id: /^evt_/, event: 'email.accepted', timestamp: NOW_SECONDS, data: {} }])
})

t.test('without variables the subject is shown as it was given', async (t) => {
  const store = await testStore(t)
  const id = await acceptOne(store, { content: { ...sampleContent, hasVariables: false } })
  t.equal((await lookupIn(store).message(id, ALL)).subject, 'Order {{number}}')
})

t.test('attempts are counted, and the end of a message is told', async (t) => {
  const store = await testStore(t)
  const lookup = lookupIn(store)
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const content = { ...sampleContent, hasVariables: false }
  const [good, bad] = [await acceptOne(store, { content }), await acceptOne(store, { content })]
  let held: RowClaim[] = []
  const record = async (id: string, at: number, outcome: Parameters<typeof outcomeRecord>[1], reply: string) => {
    const claimed = await claim(store, epoch, at)
    held = [...held, ...claimed]
    const message = claimed.find((each) => each.id === id)
    if (message === undefined) throw new Error(`${id} was not claimed`)
    await store.recordOutcomes({ epoch, now: at, outcomes: [outcomeRecord(message, outcome, { at, reply })] })
  }
  await record(good, NOW, deferredUntil(NOW + MINUTE), '450 4.2.1 later')
  t.match(await lookup.message(good, ALL), {
    state: 'deferred',
    next_attempt_at: NOW_SECONDS + 60,
    ip: '127.0.0.11',
    isp: 'gmail',
    attempts: [{ n: 1, at: NOW_SECONDS, result: 'deferred', reply: '450 4.2.1 later', duration_ms: 840 }],
  })
  await record(good, NOW + MINUTE, delivered, '250 2.0.0 OK')
  const done = await lookup.message(good, ALL)
  t.match(done, { state: 'delivered', next_attempt_at: null, delivered_at: NOW_SECONDS + 60, bounce: null })
  t.same(done.attempts[1], {
    n: 2,
    at: NOW_SECONDS + 60,
    ip: '127.0.0.11',
    mx: 'mx.example.com',
    tls: 'TLSv1.3',
    result: 'delivered',
    reply: '250 2.0.0 OK',
    duration_ms: 840,
  })
  t.same(
    (await lookup.events(good, ALL)).filter(({ event }) => event === 'email.delivered').map(({ data }) => data),
    [{ message_id: good, recipient: 'ada@example.com', isp: 'gmail' }],
  )

  const later = NOW + LIFETIME - MINUTE
  await store.markDotSent(epoch, held)
  await store.recoverLapsedLeases(later, later, later)
  await record(bad, NOW + LIFETIME - MINUTE, bounced, '550 5.1.1 no such user')
  t.match(await lookup.message(bad, ALL), {
    state: 'bounced',
    bounced_at: NOW_SECONDS + (LIFETIME - MINUTE) / SECOND,
    uncertain: true,
    bounce: {
      type: 'hard',
      code: '5.1.1',
      category: 'invalid_recipient',
      description: '550 5.1.1 no such user',
      late: false,
    },
  })
})

t.test('results have the names of the API', async (t) => {
  const store = await testStore(t)
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const id = await acceptOne(store, { content: { ...sampleContent, hasVariables: false } })
  const [message] = await claim(store, epoch)
  if (message === undefined) throw new Error('nothing was claimed')
  const outcome = { kind: 'path-failed', retryAt: NOW + MINUTE } as const
  const changes = { ip: null, host: null, localAddress: null, tls: null, reply: 'no answer from the DNS' }
  await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, outcome, changes)] })
  t.match((await lookupIn(store).message(id, ALL)).attempts, [
    { n: 1, result: 'path_failed', ip: null, mx: null, tls: null, reply: 'no answer from the DNS' },
  ])
})

t.test('what is no message is not found, whatever it looks like', async (t) => {
  const store = await testStore(t)
  const lookup = lookupIn(store)
  const unknown = newIdentifier('msg', NOW)
  await t.rejects(lookup.message(unknown, ALL), { code: 'not_found', details: `message ${unknown}` })
  for (const id of ['', 'msg_', 'x', '__proto__', newIdentifier('evt', NOW), unknown.toUpperCase(), `${unknown}x`]) {
    await t.rejects(lookup.message(id, ALL), { code: 'not_found' }, id)
    await t.rejects(lookup.events(id, ALL), { code: 'not_found' }, id)
  }
})

t.test('a subject with an address that is made later is shown all the same', async (t) => {
  const store = await testStore(t)
  const content = { ...sampleContent, subject: 'Leave at {{unsubscribe_url}}' }
  const given = await acceptOne(store, { content }, { variables: { unsubscribe_url: 'https://own/' } })
  const left = await acceptOne(store, { content })
  const lookup = lookupIn(store)
  t.equal((await lookup.message(given, ALL)).subject, 'Leave at https://own/')
  t.equal((await lookup.message(left, ALL)).subject, 'Leave at {{unsubscribe_url}}')
})

t.test('a key that is limited to some domains sees those alone', async (t) => {
  const store = await testStore(t)
  const lookup = lookupIn(store)
  const content = { ...sampleContent, from: { name: null, address: 'a@sub.acme.com' }, hasVariables: false }
  const batchId = newIdentifier('bat', NOW)
  const id = await acceptOne(store, { content, batch: { id: batchId, rejected: 1 } })
  const views: ((domains: string[]) => Promise<unknown>)[] = [
    (domains) => lookup.message(id, { isTest: null, domains }),
    (domains) => lookup.events(id, { isTest: null, domains }),
    (domains) => lookup.transcript(id, { isTest: null, domains }),
    (domains) => lookup.explain(id, { isTest: null, domains }),
    (domains) => lookup.batch(batchId, { isTest: null, domains }),
  ]
  for (const view of views) {
    for (const domains of [[], ['acme.com'], ['sub.acme.com'], ['other.com', 'acme.com']]) await view(domains)
    for (const domains of [['other.com'], ['b.acme.com'], ['com']]) {
      await t.rejects(view(domains), { code: 'not_found' })
    }
  }
  const idsFor = async (domains: string[]): Promise<string[]> =>
    (await lookup.search(query(), { isTest: null, domains })).messages.map((message) => message.message_id)
  for (const domains of [['acme.com', 'x.org'], ['sub.acme.com']]) t.same(await idsFor(domains), [id])
  t.same(await idsFor(['b.acme.com']), [])
  const header = `<${complaintToken(id, createSecretKey(Buffer.alloc(32)))}@acme.com>`
  t.match(await lookup.message(header, EVERYTHING), { message_id: id })
  t.same(await lookup.events(header, EVERYTHING), await lookup.events(id, EVERYTHING))
  await t.rejects(lookup.message(header, { isTest: null, domains: ['other.com'] }), { code: 'not_found' })
  t.same(await idsFor(['other.com']), [])
})

const { reach: _reach, now: _now, ...asked } = anything
const query = (changes: Partial<MessageQuery> = {}): MessageQuery => ({ ...asked, tag: null, limit: 50, ...changes })

t.test('messages are found by what is known of them, newest first, without attempts', async (t) => {
  const store = await testStore(t)
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const lookup = lookupIn(store)
  const batchId = newIdentifier('bat', NOW)
  const plain = { ...sampleContent, hasVariables: false }
  const tagged = { ...plain, tags: { campaign: 'a:b' }, from: { name: 'News', address: 'news@acme.com' } }
  const first = await acceptOne(store, { content: plain, now: NOW - MINUTE })
  const second = await acceptOne(
    store,
    { content: tagged, batch: { id: batchId, rejected: 0 } },
    { to: { name: 'Bob', address: 'Bob@example.org' }, recipientDomain: 'example.org' },
  )
  const [message] = await claim(store, epoch, NOW, 1)
  if (message === undefined) throw new Error('nothing was claimed')
  await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, delivered)] })
  const found = async (changes: Partial<MessageQuery>): Promise<string[]> =>
    (await lookup.search(query(changes), ALL)).messages.map((each) => each.message_id)
  t.same(await found({}), [second, first])
  t.same(await found({ recipient: 'Bob <Bob@EXAMPLE.org>' }), [second], 'an address in any form')
  t.same(await found({ recipient: 'bOB@example.org' }), [second], 'in any capitals')
  t.same(await found({ from: 'news@acme.com' }), [second])
  t.same(await found({ state: 'delivered' }), [first])
  t.same(await found({ state: 'queued' }), [second])
  t.same(await found({ batchId }), [second])
  t.same(await found({ tag: 'campaign:a:b' }), [second], 'the key ends at the first colon')
  t.same(await found({ tag: 'campaign:' }), [])
  t.same(await found({ isp: 'gmail' }), [first])
  t.same(await found({ ip: '::ffff:127.0.0.11' }), [first], 'an IP in any form')
  t.same(await found({ until: NOW_SECONDS - 60 }), [first], 'both ends are included')
  t.same(await found({ since: NOW_SECONDS }), [second])
  t.same(await found({ since: NOW_SECONDS, state: 'delivered' }), [])
  const page = await lookup.search(query({ limit: 1 }), ALL)
  t.match(page, { messages: [{ message_id: second, subject: 'Order {{number}}', tags: { campaign: 'a:b' } }] })
  t.notOk('attempts' in (page.messages[0] ?? {}))
  t.same(await found({ limit: 1, after: page.next }), [first])
})

t.test('bad parameters of a search are all named', async (t) => {
  const lookup = lookupIn(await testStore(t))
  const bad = query({
    recipient: 'x',
    from: 'y@',
    state: 'lost',
    batchId: 'bat_1',
    tag: 'campaign',
    ip: '1.2.3',
    after: null,
  })
  await t.rejects(lookup.search(bad, ALL), {
    code: 'invalid_request',
    details:
      "recipient: 'x' has no '@'; from: 'y@' has nothing after the '@'; state: 'lost' is no state; known are " +
      'scheduled, queued, sending, deferred, delivered, bounced, expired, canceled, suppressed; ' +
      'batch_id: is no batch id; tag: must be key:value; ip: is no IP address',
  })
  await t.rejects(lookup.search(query({ after: 'x' }), ALL), { code: 'invalid_request' })
})

t.test('a batch is told by the states of its messages', async (t) => {
  const store = await testStore(t)
  const lookup = lookupIn(store)
  const batchId = newIdentifier('bat', NOW)
  const messages = [newMessage(), newMessage({ simulatedSuppression: 'manual' })]
  await store.acceptMessages(acceptRequest({ messages, batch: { id: batchId, rejected: 2 } }))
  t.same(await lookup.batch(batchId, ALL), {
    batch_id: batchId,
    created_at: NOW_SECONDS,
    from: 'orders@acme.com',
    subject: 'Order {{number}}',
    total: 4,
    accepted: 2,
    rejected: 2,
    states: {
      scheduled: 0,
      queued: 1,
      sending: 0,
      deferred: 0,
      delivered: 0,
      bounced: 0,
      expired: 0,
      canceled: 0,
      suppressed: 1,
    },
    opened: 0,
    clicked: 0,
    complained: 0,
  })
  const unknown = newIdentifier('bat', NOW)
  await t.rejects(lookup.batch(unknown, ALL), { code: 'not_found', details: `batch ${unknown}` })
  await t.rejects(lookup.batch('bat_x', ALL), { code: 'not_found' })
})

t.test('a transcript has the dialogue of each attempt, without what reports are believed by', async (t) => {
  const store = await testStore(t)
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const id = await acceptOne(store)
  const [message] = await claim(store, epoch)
  if (message === undefined) throw new Error('nothing was claimed')
  const sender = returnPathAddress(id, 'bounces.acme.com', createSecretKey(Buffer.alloc(32, 7)))
  const transcript = `> MAIL FROM:<${sender}>\n< 250 <${sender.toUpperCase()}> OK`
  const outcome = { ...outcomeRecord(message, delivered), transcript }
  await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcome] })
  t.same(await lookupIn(store).transcript(id, ALL), [
    {
      n: 1,
      at: NOW_SECONDS,
      ip: '127.0.0.11',
      mx: 'mx.example.com',
      dialogue: '> MAIL FROM:<b-…@bounces.acme.com>\n< 250 <B-…@BOUNCES.ACME.COM> OK',
    },
  ])
})
