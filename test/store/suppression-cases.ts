/**
 * The suppression list: what every store engine must do with addresses nothing is sent to.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { EventKind } from '../../src/mail/event.ts'
import type { Store } from '../../src/store/store.ts'
import type { SuppressionRecord } from '../../src/store/records/suppression-records.ts'
import { webhookClaim, type Cases } from './conformance-case.ts'
import {
  acceptOne,
  acceptRequest,
  bounced,
  claim,
  claimedMessage,
  deferredUntil,
  LIFETIME,
  LIVE_SUPPRESSIONS,
  lookUp,
  newMessage,
  NOW,
  outcomeRecord,
  sampleContent,
  webhookEndpoint,
  suppressionRecord,
} from './store-samples.ts'

const newsletter = { ...sampleContent, unsubscribe: { list: 'news', url: null } }

async function kindsOf(store: Store, id: string): Promise<EventKind[] | undefined> {
  return (await store.messageEvents(id))?.map(({ kind }) => kind)
}

/** Who of these would be sent to: one request, its suppressed messages by address. */
async function suppressedAmong(store: Store, addresses: string[], changes = {}): Promise<string[]> {
  const messages = addresses.map((address) => newMessage({ to: { name: null, address } }))
  const result = await store.acceptMessages(acceptRequest({ messages, ...changes }))
  if (result.kind !== 'accepted') throw new Error(result.kind)
  return result.suppressed.map(({ index, reason }) => `${addresses[index]} ${reason}`)
}

export const suppressing: Cases = {
  'a listed address ends at acceptance, with its bounce and its events': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addWebhookEndpoint(webhookEndpoint({ events: ['email.suppressed'] }))
    await store.addWebhookEndpoint(webhookEndpoint())
    await store.addSuppression(suppressionRecord({ reason: 'hard_bounce' }))
    const messages = [newMessage({ to: { name: null, address: 'bob@example.com' } }), newMessage()]
    const result = await store.acceptMessages(acceptRequest({ messages }))
    t.match(result, {
      kind: 'accepted',
      suppressed: [{ index: 1, reason: 'hard_bounce' }],
      queued: { keys: [{ waiting: 1 }] },
    })
    const id = messages[1]?.id ?? ''
    const description =
      'not sent: the address is on the suppression list (hard_bounce), earlier mail to it bounced for good'
    t.match(await lookUp(store, id), {
      state: 'suppressed',
      nextAttemptAt: null,
      deliveredAt: null,
      bouncedAt: null,
      bounce: { type: 'suppressed', category: 'suppressed', code: '5.7.1', description, at: NOW, isLate: false },
    })
    t.same(await kindsOf(store, id), ['email.accepted', 'email.bounced', 'email.suppressed'])
    t.match((await store.messageEvents(id))?.[1]?.data, {
      message_id: id,
      recipient: 'ada@example.com',
      bounce_type: 'suppressed',
      bounce_code: '5.7.1',
      bounce_description: description,
    })
    const webhooks = await store.claimWebhooks(webhookClaim(epoch))
    t.same(webhooks.map(({ kind }) => kind).sort(), ['email.bounced', 'email.suppressed'])
    t.match(await claim(store, epoch), [{ recipient: 'bob@example.com' }], 'the other one is sent')
    t.same(await store.expireDue(NOW + LIFETIME, 9), [])
  },
  'scope, mode and the address in any capitals decide': async (t, { store }) => {
    await store.addSuppressions([
      suppressionRecord({ email: 'all@Example.COM' }),
      suppressionRecord({ email: 'news@example.com', scope: 'news', reason: 'unsubscribe' }),
      suppressionRecord({ email: 'both@example.com', scope: 'news', reason: 'unsubscribe' }),
      suppressionRecord({ email: 'both@example.com', reason: 'complaint' }),
      suppressionRecord({ email: 'test@example.com', isTest: true }),
      suppressionRecord({ email: '%@example.com' }),
      suppressionRecord({ email: 'CAPITALS@example.com' }),
    ])
    const addresses = [
      'all@example.com',
      'aLL@example.com',
      'all+x@example.com',
      'news@example.com',
      'both@example.com',
      'test@example.com',
      'any@example.com',
      'Capitals@example.com',
    ]
    const all = ['all@example.com manual', 'aLL@example.com manual']
    const rest = ['both@example.com complaint', 'Capitals@example.com manual']
    t.same(await suppressedAmong(store, addresses), [...all, ...rest])
    const listed = await suppressedAmong(store, addresses, { content: newsletter })
    t.same(listed, [...all, 'news@example.com unsubscribe', ...rest])
    const other = { ...sampleContent, unsubscribe: { list: 'offers', url: null } }
    t.same(await suppressedAmong(store, addresses, { content: other }), [...all, ...rest])
    t.same(await suppressedAmong(store, addresses, { isTest: true }), ['test@example.com manual'])
  },
  'an entry of a domain keeps away the mail of that domain, and is seen and removed by it alone': async (
    t,
    { store },
  ) => {
    await store.beginEpoch(NOW, NOW)
    await store.addSuppression(suppressionRecord({ domain: 'acme.com', owners: ['acme.com'] }))
    const stateOf = async (domain: string): Promise<string | undefined> => {
      const content = { ...sampleContent, from: { name: null, address: `orders@${domain}` } }
      return (await lookUp(store, await acceptOne(store, { domain, content })))?.state
    }
    t.equal(await stateOf('acme.com'), 'suppressed')
    t.equal(await stateOf('other.com'), 'queued')
    const countFor = async (domains: string[]): Promise<number> => {
      const whole = (await store.listSuppressions({ ...LIVE_SUPPRESSIONS, domains })).suppressions.length
      const ofAddress = { ...LIVE_SUPPRESSIONS, domains, email: 'ada@example.com' }
      t.equal((await store.listSuppressions(ofAddress)).suppressions.length, whole)
      return whole
    }
    t.same([await countFor([]), await countFor(['acme.com']), await countFor(['other.com'])], [1, 1, 0])
    const asked = { email: 'ada@example.com', scope: null, isTest: false }
    t.equal(await store.removeSuppressions({ ...asked, domains: ['other.com'] }), 0)
    t.equal(await store.removeSuppressions({ ...asked, domains: ['acme.com', 'x.org'] }), 1)
  },
  'an entry that several found is removed by each for itself, and keeps the address away until the last': async (
    t,
    { store },
  ) => {
    await store.beginEpoch(NOW, NOW)
    const found = (...owners: string[]) => suppressionRecord({ reason: 'unsubscribe', owners })
    t.equal((await store.addSuppression(found('acme.com', 'mail.acme.com'))).isNew, true)
    t.equal((await store.addSuppression(found('other.com'))).isNew, false)
    t.equal(await store.addSuppressions([found('other.com'), found('acme.com', 'mail.acme.com'), found()]), 0)
    const remove = (...domains: string[]): Promise<number> =>
      store.removeSuppressions({ email: 'ada@example.com', scope: null, isTest: false, domains })
    const listed = async (...domains: string[]): Promise<number> =>
      (await store.listSuppressions({ ...LIVE_SUPPRESSIONS, domains })).suppressions.length
    t.same([await listed('acme.com'), await listed('mail.acme.com'), await listed('other.com')], [1, 1, 1])
    t.equal(await remove('acme.com'), 1, 'the domains of one mail leave together')
    t.same([await listed('mail.acme.com'), await listed('other.com'), await remove('mail.acme.com')], [0, 1, 0])
    t.same(await suppressedAmong(store, ['ada@example.com']), ['ada@example.com unsubscribe'])
    t.same([await remove('other.com'), await remove('other.com'), await listed()], [1, 0, 1], "the server's is left")
    t.same([await remove(), await listed()], [1, 0])
  },
  'a complaint or an unsubscribe takes the place of a bounce, and no bounce theirs': async (t, { store }) => {
    const add = async (reason: SuppressionRecord['reason'], createdAt: number, ...owners: string[]) => {
      const messageId = newIdentifier('msg', createdAt)
      const { suppression: stored } = await store.addSuppression(
        suppressionRecord({ reason, messageId, createdAt, owners }),
      )
      return { stored, messageId }
    }
    await add('hard_bounce', NOW, 'acme.com')
    const { stored, messageId } = await add('complaint', NOW + 1, 'acme.com')
    t.match(stored, { reason: 'complaint', messageId, createdAt: NOW + 1, owners: ['acme.com'] })
    for (const reason of ['hard_bounce', 'manual', 'unsubscribe'] as const) {
      t.match((await add(reason, NOW + 2, 'other.com')).stored, { reason: 'complaint', messageId, createdAt: NOW + 1 })
    }
  },

  'a simulated recipient does what it stands for, whatever the list says': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const simulated = (name: string, simulatedSuppression?: 'manual' | null) =>
      newMessage({
        to: { name: null, address: `${name}@simulator.sternpost.test` },
        recipientDomain: 'simulator.sternpost.test',
        ...(simulatedSuppression === undefined ? {} : { simulatedSuppression }),
      })
    await store.addSuppression(suppressionRecord({ email: 'hard@simulator.sternpost.test' }))
    const messages = [simulated('hard', null), simulated('suppressed', 'manual'), simulated('hard')]
    const result = await store.acceptMessages(acceptRequest({ messages }))
    t.match(result, {
      suppressed: [
        { index: 1, reason: 'manual' },
        { index: 2, reason: 'manual' },
      ],
    })
    t.match(await claim(store, epoch), [{ id: messages[0]?.id }], 'nor is the list asked later')
  },
  'an address listed after acceptance ends when it would be claimed': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addWebhookEndpoint(webhookEndpoint())
    const messages = ['Ada', 'ADA', 'ada'].map((name) =>
      newMessage({ to: { name: null, address: `${name}@example.com` } }),
    )
    await store.acceptMessages(acceptRequest({ messages: messages.slice(0, 1) }))
    await store.acceptMessages(acceptRequest({ messages: messages.slice(1, 2), content: newsletter }))
    await store.acceptMessages(acceptRequest({ messages: messages.slice(2, 3), isTest: true }))
    await store.addSuppression(suppressionRecord({ scope: 'news', reason: 'unsubscribe' }))
    t.match(await claim(store, epoch, NOW, 2), [{ id: messages[0]?.id }])
    t.match(await claim(store, epoch, NOW, 2), [{ id: messages[2]?.id }])
    const id = messages[1]?.id ?? ''
    t.match(await lookUp(store, id), { state: 'suppressed', bounce: { type: 'suppressed', at: NOW } })
    t.same(await kindsOf(store, id), ['email.accepted', 'email.bounced', 'email.suppressed'])
    t.match(await store.claimWebhooks(webhookClaim(epoch)), [{ kind: 'email.bounced' }])
    t.match(await store.queueSummary(NOW), { waiting: 0, sending: 2 })
  },
  'of one that may have arrived nobody says that it was not sent': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const outcomes = [outcomeRecord(message, { kind: 'ambiguous', retryAt: NOW })]
    await store.recordOutcomes({ epoch, now: NOW, outcomes })
    await store.addSuppression(suppressionRecord({ reason: 'complaint' }))
    t.same(await claim(store, epoch), [])
    t.match(await lookUp(store, message.id), {
      state: 'bounced',
      bounce: { type: 'undetermined', code: '4.4.2', description: /may have been delivered.*suppression list/ },
    })
    t.same(await kindsOf(store, message.id), ['email.accepted', 'email.attempted', 'email.bounced'])
  },
  'an outcome that suppresses does so once, on the list of its mode': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const record = { ...outcomeRecord(message, bounced), suppresses: true }
    await store.recordOutcomes({ epoch, now: NOW + 5, outcomes: [record] })
    await store.recordOutcomes({ epoch, now: NOW + 6, outcomes: [record] })
    const { suppressions } = await store.listSuppressions(LIVE_SUPPRESSIONS)
    t.match(suppressions, [
      {
        email: 'ada@example.com',
        reason: 'hard_bounce',
        scope: 'all',
        isTest: false,
        messageId: message.id,
        createdAt: NOW + 5,
      },
    ])
    t.equal(suppressions.length, 1)
    await acceptOne(store, { isTest: true })
    const [tested] = await claim(store, epoch)
    if (tested === undefined) throw new Error('not claimed')
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [{ ...outcomeRecord(tested, bounced), suppresses: true }] })
    t.match((await store.listSuppressions({ ...LIVE_SUPPRESSIONS, isTest: true })).suppressions, [
      { messageId: tested.id, domain: null, owners: ['acme.com'] },
    ])
    t.equal((await store.listSuppressions(LIVE_SUPPRESSIONS)).suppressions.length, 1)
  },
  'a late outcome of a dead epoch suppresses nothing': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    await store.beginEpoch(NOW, NOW)
    const late = [outcomeRecord(message, bounced), outcomeRecord(message, deferredUntil(NOW + 9), { at: NOW + 1 })]
    await store.recordOutcomes({ epoch, now: NOW, outcomes: late.map((record) => ({ ...record, suppresses: true })) })
    t.same((await store.listSuppressions(LIVE_SUPPRESSIONS)).suppressions, [])
  },
}

export const suppressionList: Cases = {
  'an entry is added once for its address, scope and list': async (t, { store }) => {
    const first = suppressionRecord({ email: 'Ada@Example.com', messageId: newIdentifier('msg', NOW) })
    const stored = { ...first, email: 'ada@example.com' }
    t.same(await store.addSuppression(first), { suppression: stored, isNew: true })
    const again = suppressionRecord({ email: 'aDA@EXAMPLE.com', reason: 'hard_bounce', createdAt: NOW + 9 })
    t.same(await store.addSuppression(again), { suppression: stored, isNew: false })
    for (const changes of [{ scope: 'news' }, { isTest: true }, { email: 'ada+x@example.com' }]) {
      t.equal((await store.addSuppression({ ...again, ...changes, id: newIdentifier('sup', NOW) })).isNew, true)
    }
    t.equal(
      await store.addSuppressions([again, suppressionRecord({ scope: 'x' }), suppressionRecord({ scope: 'x' })]),
      1,
    )
  },
  'many are added together or not at all': async (t, { store }) => {
    await t.rejects(
      store.addSuppressions([suppressionRecord(), suppressionRecord({ email: 'b@x.org', id: 'sup_none' })]),
    )
    t.same((await store.listSuppressions(LIVE_SUPPRESSIONS)).suppressions, [])
  },
  'removing takes one scope or all, of one list': async (t, { store }) => {
    await store.addSuppressions([
      suppressionRecord(),
      suppressionRecord({ scope: 'news' }),
      suppressionRecord({ scope: 'offers' }),
      suppressionRecord({ isTest: true }),
    ])
    t.equal(await store.removeSuppressions({ email: 'ad@example.com', scope: null, isTest: false, domains: [] }), 0)
    t.equal(await store.removeSuppressions({ email: 'ADA@Example.com', scope: 'news', isTest: false, domains: [] }), 1)
    t.equal(await store.removeSuppressions({ email: 'ada@example.com', scope: 'news', isTest: false, domains: [] }), 0)
    t.equal(await store.removeSuppressions({ email: '%', scope: null, isTest: false, domains: [] }), 0)
    t.equal(await store.removeSuppressions({ email: 'ada@example.com', scope: null, isTest: false, domains: [] }), 2)
    t.equal((await store.listSuppressions({ ...LIVE_SUPPRESSIONS, isTest: true })).suppressions.length, 1)
    await acceptOne(store)
    t.equal((await store.queueSummary(NOW)).waiting, 1, 'it is mailed again')
  },
  'the list is walked in pages, newest first, stable while entries come and go': async (t, { store }) => {
    const entries = Array.from({ length: 7 }, (_, index) =>
      suppressionRecord({
        email: `r${index}@example.com`,
        reason: index % 2 === 0 ? 'manual' : 'complaint',
        createdAt: NOW + index,
        scope: index === 6 ? 'news' : 'all',
      }),
    )
    await store.addSuppressions(entries)
    const emails = async (changes: Partial<typeof LIVE_SUPPRESSIONS>) =>
      (await store.listSuppressions({ ...LIVE_SUPPRESSIONS, ...changes })).suppressions
        .map(({ email }) => email[1])
        .join('')
    t.equal(await emails({}), '6543210')
    t.equal(await emails({ reason: 'complaint' as never }), '531')
    t.equal(await emails({ scope: 'news' as never }), '6')
    t.equal(await emails({ since: (NOW + 3) as never }), '6543')
    t.equal(await emails({ email: 'r3@EXAMPLE.com' as never }), '3')
    t.equal(await emails({ email: 'r3@example.com' as never, reason: 'manual' as never }), '')
    t.equal(await emails({ email: '%' as never }), '')
    const first = await store.listSuppressions({ ...LIVE_SUPPRESSIONS, limit: 3 })
    await store.addSuppression(suppressionRecord({ email: 'r7@example.com' }))
    await store.removeSuppressions({ email: 'r4@example.com', scope: null, isTest: false, domains: [] })
    const second = await store.listSuppressions({ ...LIVE_SUPPRESSIONS, limit: 3, after: first.next })
    t.equal(second.suppressions.map(({ email }) => email[1]).join(''), '321')
    const third = await store.listSuppressions({ ...LIVE_SUPPRESSIONS, limit: 3, after: second.next })
    t.match(third, { suppressions: [{ email: 'r0@example.com' }], next: null })
    for (const after of ['x', '-1', '1.5', '', '9'.repeat(40)]) {
      await t.rejects(store.listSuppressions({ ...LIVE_SUPPRESSIONS, after }), { message: /invalid_request/ })
    }
  },
}
