/**
 * The queue by its keys: what every store engine must do for the scheduler and the operator.
 */
import { CAPTURE_POOL } from '../../src/mail/simulator.ts'
import type { QueueAction, QueueFilter, QueueGrouping } from '../../src/mail/waiting-mail.ts'
import type { QueueKey, QueueKeyState } from '../../src/store/records/queue-records.ts'
import type { ClaimRequest } from '../../src/store/records/claim-records.ts'
import type { Store } from '../../src/store/store.ts'
import { webhookClaim, type Cases } from './conformance-case.ts'
import {
  acceptOne,
  acceptRequest,
  claim,
  deferredUntil,
  LEASE,
  LIFETIME,
  lookUp,
  newMessage,
  NOW,
  outcomeRecord,
  POOL,
  webhookEndpoint,
} from './store-samples.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'

const KEY: QueueKey = { pool: POOL, route: '', domain: 'acme.com', stream: 'transactional', isRetry: false }
const GOOGLE = { ...KEY, route: 'google' }
const TO_GOOGLE = { domain: 'example.com', route: 'google', isp: 'gmail' }

const to = (domain: string) => ({ to: { name: null, address: `ada@${domain}` }, recipientDomain: domain })

const claimOf = (epoch: number, asks: ClaimRequest['asks'], now = NOW): ClaimRequest => ({
  now,
  epoch,
  leaseUntil: now + LEASE,
  asks,
})

/** Every key, by pages of so many rows. */
async function allKeys(store: Store, mostRows = 100): Promise<QueueKeyState[]> {
  const keys: QueueKeyState[] = []
  let after: QueueKey | null = null
  do {
    const page: Awaited<ReturnType<Store['queueKeys']>> = await store.queueKeys(after, mostRows)
    keys.push(...page.keys)
    after = page.next
  } while (after !== null)
  return keys
}

export const keys: Cases = {
  'acceptance says what came under which keys, and the directory says the same': async (t, { store }) => {
    await store.assignRoutes([TO_GOOGLE])
    const request = acceptRequest({
      sendAt: NOW + 9,
      messages: [newMessage(), newMessage(), newMessage(to('new.org')), newMessage(to('new.org'))],
    })
    const result = await store.acceptMessages(request)
    const expected = [
      { ...GOOGLE, earliestAt: NOW + 9, waiting: 2 },
      { ...KEY, earliestAt: NOW + 9, waiting: 2 },
    ]
    t.same(result, { kind: 'accepted', suppressed: [], queued: { keys: expected, unroutedDomains: ['new.org'] } })
    t.same((await allKeys(store)).toReversed(), expected)
  },
  'captured mail has its own route, and no domain of it is looked up': async (t, { store }) => {
    const result = await store.acceptMessages(acceptRequest({ messages: [newMessage({ isCaptured: true })] }))
    const key = { ...KEY, pool: CAPTURE_POOL, route: 'capture', earliestAt: NOW, waiting: 1 }
    t.match(result, { queued: { keys: [key], unroutedDomains: [] } })
  },
  'a claim takes due and unexpired rows of its keys alone, the oldest first, and says when each is due next': async (
    t,
    { store },
  ) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.assignRoutes([TO_GOOGLE])
    const third = await acceptOne(store, { now: NOW - 1_000 })
    const first = await acceptOne(store, { now: NOW - 3_000 })
    const second = await acceptOne(store, { now: NOW - 2_000 })
    await acceptOne(store, { now: NOW + 7 })
    await acceptOne(store, { now: NOW - 4_000 }, { expiresAt: NOW })
    await acceptOne(store, { now: NOW - 4_000 }, to('new.org'))
    const other = await acceptOne(store, { now: NOW - 9, pool: 'other' })
    const gone = { ...GOOGLE, pool: 'unheard-of' }
    const asks = [
      { key: GOOGLE, limit: 2 },
      { key: gone, limit: 9 },
      { key: { ...GOOGLE, pool: 'other' }, limit: 1 },
    ]
    const claimed = await store.claimDue(claimOf(epoch, asks))
    t.same(
      claimed.messages.map(({ id }) => id),
      [first, second, other],
    )
    t.same(claimed.earliestAt, [NOW - 1_000, null, null])
    t.match(claimed.messages[0], { route: 'google', pool: POOL, stream: 'transactional', domain: 'acme.com' })
    const rest = await store.claimDue(claimOf(epoch, [{ key: GOOGLE, limit: 9 }]))
    t.same(
      rest.messages.map(({ id }) => id),
      [third],
    )
    t.same(rest.earliestAt, [NOW + 7])
    t.match(await store.claimDue(claimOf(epoch, [{ key: GOOGLE, limit: 9 }])), { messages: [], earliestAt: [NOW + 7] })
    t.equal((await lookUp(store, first))?.state, 'sending')
  },
  'a claim begins where it is told to: nothing before is looked at': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const [early, late] = [await acceptOne(store), await acceptOne(store, { now: NOW + 5 })]
    const ask = async (from?: number): Promise<string[]> => {
      const asks = [{ key: KEY, limit: 5, ...(from === undefined ? {} : { from }) }]
      return (await store.claimDue(claimOf(epoch, asks, NOW + 9))).messages.map(({ id }) => id)
    }
    t.same(await ask(NOW + 5), [late])
    t.same(await ask(), [early])
  },
  'a key of expired rows is asked for again until they have ended, however many they are': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const few = Array.from({ length: 30 }, () => newMessage({ expiresAt: NOW + 1 }))
    await store.acceptMessages(acceptRequest({ messages: few }))
    const ask = (now: number) => store.claimDue(claimOf(epoch, [{ key: KEY, limit: 5 }], now))
    const endedWithin = 30_000
    t.same(await ask(NOW + 1), { messages: [], suppressed: 0, earliestAt: [NOW + 1 + endedWithin], firstAt: [NOW] })
    const late = await acceptOne(store, { now: NOW + 60 })
    t.same(await ask(NOW + 1), { messages: [], suppressed: 0, earliestAt: [NOW + 60], firstAt: [NOW] })
    const many = Array.from({ length: 2_000 }, () => newMessage({ expiresAt: NOW + 1 }))
    await store.acceptMessages(acceptRequest({ messages: many }))
    const { earliestAt } = await ask(NOW + 1)
    t.ok((earliestAt[0] ?? 0) > NOW + 1, 'no time that has come: nobody spins')
    while ((await store.expireDue(NOW + 1, 500)).length > 0);
    t.match(await ask(NOW + 60), { messages: [{ id: late }], earliestAt: [null] })
  },
  'retries stand apart from first attempts; a failed path is none': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.acceptMessages(acceptRequest({ messages: [newMessage(), newMessage()] }))
    const [deferred, failed] = await claim(store, epoch)
    if (deferred === undefined || failed === undefined) throw new Error('nothing was claimed')
    const outcomes = [
      outcomeRecord(deferred, deferredUntil(NOW + 5)),
      outcomeRecord(failed, { kind: 'path-failed', retryAt: NOW + 6 }),
    ]
    await store.recordOutcomes({ epoch, now: NOW, outcomes })
    t.same(await allKeys(store), [
      { ...KEY, earliestAt: NOW + 6, waiting: 1 },
      { ...KEY, isRetry: true, earliestAt: NOW + 5, waiting: 1 },
    ])
    const retries = await store.claimDue(claimOf(epoch, [{ key: { ...KEY, isRetry: true }, limit: 9 }], NOW + 9))
    t.match(retries.messages, [{ key: deferred.key, attempts: 1 }])
  },
  'the directory is read in pages, each of which counts a bounded number of rows': async (t, { store }) => {
    const domains = Array.from({ length: IS_FULL ? 700 : 40 }, (_, index) => `d${index}.org`)
    await store.assignRoutes(domains.map((domain) => ({ domain, route: `site-${domain}`, isp: domain })))
    const messages = domains.flatMap((domain) => [newMessage(to(domain)), newMessage(to(domain))])
    await store.acceptMessages(acceptRequest({ messages }))
    await store.acceptMessages(acceptRequest({ pool: 'other', messages: messages.slice(0, 2).map(() => newMessage()) }))
    for (const mostRows of [1, 7, 10_000]) {
      const found = await allKeys(store, mostRows)
      t.equal(found.length, domains.length + 1)
      t.equal(new Set(found.map((key) => JSON.stringify(key))).size, found.length, 'each once')
      t.ok(found.every(({ waiting }) => waiting === Math.min(mostRows, 2)))
    }
    t.ok((await store.queueKeys(null, 7)).keys.length <= 4)
    t.same(await store.queueKeys({ ...KEY, pool: 'unheard-of' }, 9), { keys: [], next: null })
  },
  'two claims at one time and one row that is suppressed': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.acceptMessages(acceptRequest({ messages: Array.from({ length: 20 }, () => newMessage()) }))
    const asks = [{ key: KEY, limit: 8 }]
    const claims = await Promise.all([1, 2, 3].map(() => store.claimDue(claimOf(epoch, asks))))
    const rows = claims.flatMap(({ messages }) => messages.map(({ key }) => key))
    t.equal(new Set(rows).size, 20)
    t.same(
      claims.map(({ messages, earliestAt }) => [messages.length, earliestAt[0]]),
      [
        [8, NOW],
        [8, NOW],
        [4, null],
      ],
    )
  },
}

export const routing: Cases = {
  'domains without a route are listed the longest due first, claimed, and given a route': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await acceptOne(store, { now: NOW - 1 }, to('second.org'))
    await acceptOne(store, { now: NOW - 9 }, to('first.org'))
    const late = Array.from({ length: 3 }, () => newMessage(to('first.org')))
    await store.acceptMessages(acceptRequest({ messages: late }))
    await acceptOne(store, { now: NOW + 5 }, to('third.org'))
    const first = { domain: 'first.org', earliestAt: NOW - 9 }
    const second = { domain: 'second.org', earliestAt: NOW - 1 }
    t.same(await store.unroutedDomains(9), [first, second, { domain: 'third.org', earliestAt: NOW + 5 }])
    t.same(await store.unroutedDomains(2), [first, second])
    const terms = { now: NOW, epoch, leaseUntil: NOW + LEASE }
    const { messages: claimed } = await store.claimUnrouted({ ...terms, domain: 'first.org', limit: 3 })
    t.match(claimed, [{ route: '', pool: POOL, domain: 'acme.com', recipientDomain: 'first.org' }, {}, {}])
    t.match(await store.claimUnrouted({ ...terms, domain: 'third.org', limit: 3 }), { messages: [] }, 'it is not due')
    t.same(
      await store.assignRoutes([
        { domain: 'first.org', route: 'site', isp: 'other' },
        { domain: 'third.org', route: 'site', isp: 'other' },
      ]),
      [{ ...KEY, route: 'site', earliestAt: NOW, waiting: 2 }],
      'the row that waits of each',
    )
    t.same(await store.unroutedDomains(9), [second])
    const [held] = claimed
    if (held === undefined) throw new Error('nothing was claimed')
    await store.unclaim({ epoch, rows: [{ key: held.key, claim: held.claim, nextAt: NOW + 1 }] })
    t.same((await store.unroutedDomains(9)).at(-1), { domain: 'first.org', earliestAt: NOW + 1 })
    const again = await store.acceptMessages(acceptRequest({ messages: [newMessage(to('first.org'))] }))
    t.match(again, { queued: { keys: [{ route: 'site' }], unroutedDomains: [] } }, 'later mail is queued under it')
  },
  'a domain that moves has its later mail under the new route': async (t, { store }) => {
    await store.assignRoutes([TO_GOOGLE])
    await acceptOne(store)
    t.same(await store.assignRoutes([{ ...TO_GOOGLE, route: 'outlook', isp: 'outlook' }]), [])
    await acceptOne(store)
    t.same(
      (await allKeys(store)).map(({ route, waiting }) => [route, waiting]),
      [
        ['google', 1],
        ['outlook', 1],
      ],
    )
  },
  'thousands of rows of one domain move with it': async (t, { store }) => {
    const count = IS_FULL ? 20_000 : 1_200
    const messages = Array.from({ length: count }, () => newMessage())
    await store.acceptMessages(acceptRequest({ messages }))
    await acceptOne(store, {}, to('new.org'))
    const states = await store.assignRoutes([TO_GOOGLE, { domain: 'new.org', route: 'site', isp: 'other' }])
    t.same(
      states.map(({ route, waiting }) => [route, waiting]),
      [
        ['google', count],
        ['site', 1],
      ],
    )
    t.same(await store.unroutedDomains(9), [])
  },
}

interface Filled {
  epoch: number
  ids: Record<'google' | 'deferred' | 'bulk' | 'scheduled' | 'captured', string>
}

/** Waiting rows that differ in everything a filter asks for. */
async function fill(store: Store): Promise<Filled> {
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await store.assignRoutes([TO_GOOGLE])
  const deferred = await acceptOne(store, {}, to('new.org'))
  const claimed = await claim(store, epoch)
  const outcomes = claimed.map((each) => outcomeRecord(each, deferredUntil(NOW + 60_000)))
  await store.recordOutcomes({ epoch, now: NOW, outcomes: outcomes.map((record) => ({ ...record, isp: 'outlook' })) })
  return {
    epoch,
    ids: {
      deferred,
      google: await acceptOne(store, { now: NOW - 5 }),
      bulk: await acceptOne(store, { pool: 'bulk', domain: 'zeta.com', stream: 'bulk' }),
      scheduled: await acceptOne(store, { sendAt: NOW + 30_000 }),
      captured: await acceptOne(store, {}, { isCaptured: true }),
    },
  }
}

const act = (store: Store, action: QueueAction, filter: QueueFilter = {}, limit = 100, isDryRun = false) =>
  store.actOnQueue({ filter, action, now: NOW, limit, isDryRun })

export const operating: Cases = {
  'what waits is shown in groups': async (t, { store }) => {
    await fill(store)
    await act(store, { kind: 'hold' }, { pool: 'bulk' })
    const group = { held: 0, oldestAcceptedAt: NOW }
    t.same(await store.queueGroups('isp', {}, NOW), [
      { ...group, name: 'gmail', waiting: 3, due: 1, held: 1, oldestAcceptedAt: NOW - 5 },
      ...(await store.queueGroups('isp', { isp: 'outlook' }, NOW)),
      { ...group, name: null, waiting: 1, due: 1 },
    ])
    const names = async (by: QueueGrouping, filter: QueueFilter = {}) =>
      (await store.queueGroups(by, filter, NOW)).map(({ name, waiting }) => [name, waiting])
    t.same(await names('recipientDomain'), [
      ['example.com', 4],
      ['new.org', 1],
    ])
    for (const by of ['isp', 'recipientDomain', 'domain', 'ip', 'pool'] as const) {
      for (const [name, waiting] of await names(by)) {
        if (name !== null)
          t.same(await names(by, { [by]: name }), [[name, waiting]], `a group is what its filter means`)
      }
    }
    t.same(
      (await names('ip')).toSorted(),
      [
        ['127.0.0.11', 1],
        [null, 4],
      ].toSorted(),
    )
    t.same(await names('pool', { domain: 'acme.com' }), [
      [POOL, 3],
      [CAPTURE_POOL, 1],
    ])
    for (const [filter, count] of [
      [{ pool: 'bulk' }, 1],
      [{ isp: 'outlook' }, 1],
      [{ route: 'google' }, 3],
      [{ recipientDomain: 'new.org' }, 1],
      [{ domain: 'zeta.com' }, 1],
      [{ ip: '127.0.0.11' }, 1],
      [{ isHeld: true }, 1],
      [{ isHeld: false }, 4],
      [{ pool: 'none' }, 0],
      [{ pool: 'bulk', isp: 'outlook' }, 0],
      [{}, 5],
    ] as const) {
      t.equal((await act(store, { kind: 'drop' }, filter, 100, true)).messages, count, JSON.stringify(filter))
    }
  },
  'held mail is not sent until it is released, and no scheduled mail before its time': async (t, { store }) => {
    const { epoch, ids } = await fill(store)
    t.same(await act(store, { kind: 'hold' }), { messages: 5, queued: { keys: [], unroutedDomains: [] } })
    t.equal((await act(store, { kind: 'hold' })).messages, 0, 'again')
    for (const id of Object.values(ids)) {
      t.match(await lookUp(store, id, NOW + 90_000), { nextAttemptAt: null, waitingFor: 'held' })
    }
    t.same(await claim(store, epoch, NOW + 90_000), [])
    t.equal((await act(store, { kind: 'retry' })).messages, 0, 'to retry is not to release')
    t.same(await store.retryNow(ids.deferred, NOW), { keys: [], unroutedDomains: [] }, 'nor for its sender')
    const released = await act(store, { kind: 'release' })
    t.equal(released.messages, 5)
    t.same(released.queued.unroutedDomains, ['new.org'])
    t.same(
      released.queued.keys.find(({ route, pool }) => route === 'google' && pool === POOL),
      { ...GOOGLE, earliestAt: NOW, waiting: 2 },
    )
    const due = await claim(store, epoch)
    t.same(due.map(({ id }) => id).toSorted(), [ids.deferred, ids.google].toSorted())
    t.match(await lookUp(store, ids.scheduled), { state: 'scheduled', waitingFor: 'send_at' })
    t.match(await claim(store, epoch, NOW + 30_000), [{ id: ids.scheduled }])
  },
  'held mail ends with its lifetime, and can be canceled': async (t, { store }) => {
    const { ids } = await fill(store)
    await act(store, { kind: 'hold' })
    t.match(await store.cancelMessage(ids.google, NOW), { kind: 'canceled' })
    await store.expireDue(NOW + LIFETIME, 100)
    t.equal((await lookUp(store, ids.bulk))?.state, 'expired')
  },
  'what waits for its next try is made due': async (t, { store }) => {
    const { ids } = await fill(store)
    const retried = await act(store, { kind: 'retry' })
    const key = { ...KEY, isRetry: true, earliestAt: NOW, waiting: 1 }
    t.same(retried, { messages: 1, queued: { keys: [key], unroutedDomains: ['new.org'] } })
    t.match(await lookUp(store, ids.deferred), { nextAttemptAt: NOW, waitingFor: null })
    t.match(await lookUp(store, ids.scheduled), { nextAttemptAt: NOW + 30_000 })
  },
  'what is dropped ends as canceled with its event': async (t, { store }) => {
    const { epoch, ids } = await fill(store)
    await store.addWebhookEndpoint(webhookEndpoint({ events: ['email.canceled'] }))
    t.equal((await act(store, { kind: 'drop' }, { isp: 'gmail' }, 1)).messages, 1, 'no more than the limit')
    t.equal((await act(store, { kind: 'drop' }, { isp: 'gmail' })).messages, 2)
    t.same(
      (await store.claimWebhooks(webhookClaim(epoch))).map(({ kind }) => kind),
      Array(3).fill('email.canceled'),
    )
    t.equal((await lookUp(store, ids.google))?.state, 'canceled')
    t.equal((await lookUp(store, ids.deferred))?.state, 'deferred')
  },
  'what is moved waits in the other pool under the same time; captured mail stays': async (t, { store }) => {
    const { ids } = await fill(store)
    const moved = await act(store, { kind: 'move', pool: 'bulk' })
    t.equal(moved.messages, 3)
    t.ok(moved.queued.keys.every(({ pool }) => pool === 'bulk'))
    t.match(await lookUp(store, ids.deferred), { pool: 'bulk', nextAttemptAt: NOW + 60_000 })
    t.equal((await act(store, { kind: 'move', pool: 'bulk' })).messages, 0, 'again')
    t.match(await store.queueGroups('pool', { pool: CAPTURE_POOL }, NOW), [{ waiting: 1 }])
  },
  'thousands are acted on in parts': async (t, { store }) => {
    const count = IS_FULL ? 30_000 : 1_100
    const messages = Array.from({ length: count }, () => newMessage())
    await store.acceptMessages(acceptRequest({ messages }))
    await store.acceptMessages(acceptRequest({ domain: 'zeta.com', messages: [newMessage()] }))
    t.equal((await act(store, { kind: 'hold' }, { domain: 'acme.com' }, count)).messages, count)
    t.match(await store.queueGroups('pool', {}, NOW), [{ waiting: count + 1, held: count, due: 1 }])
    t.equal((await act(store, { kind: 'release' }, {}, 5_000, true)).messages, count)
    t.match(await store.queueSummary(NOW), { waiting: count + 1, oldestDueAt: NOW })
  },
}

export const upkeep: Cases = {
  'what is queued is counted, and its keys are read, through all parts': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const [few, many] = [150, 10_050]
    for (let index = 0; index < few; index += 1) {
      await store.acceptMessages(acceptRequest({ domain: `d${index}.com`, messages: [newMessage()] }))
    }
    await store.acceptMessages(acceptRequest({ messages: Array.from({ length: many }, () => newMessage()) }))
    t.equal((await allKeys(store)).length, few + 1)
    t.equal((await store.claimDue(claimOf(epoch, [{ key: KEY, limit: 20 }]))).messages.length, 20)
    t.match(await store.queueSummary(NOW), { waiting: few + many - 20, sending: 20 })
    t.equal(await store.countQueued(), few + many)
  },

  'rows of a removed pool move, also those that come back later': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await acceptOne(store, { pool: 'gone' })
    const [held] = (await store.claimDue(claimOf(epoch, [{ key: { ...KEY, pool: 'gone' }, limit: 1 }]))).messages
    if (held === undefined) throw new Error('nothing was claimed')
    const count = 700
    const messages = Array.from({ length: count }, () => newMessage())
    await store.acceptMessages(acceptRequest({ pool: 'gone', messages }))
    await acceptOne(store, { pool: 'too' })
    t.same(await store.moveOrphans([POOL], POOL), [
      { pool: 'gone', messages: count + 1 },
      { pool: 'too', messages: 1 },
    ])
    await store.unclaim({ epoch, rows: [{ key: held.key, claim: held.claim, nextAt: NOW }] })
    t.same(
      (await allKeys(store, 10_000)).map(({ pool, waiting }) => [pool, waiting]),
      [[POOL, count + 2]],
    )
  },
  'the summary counts what waits and what is under way': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    t.same(await store.queueSummary(NOW), { waiting: 0, sending: 0, oldestDueAt: null })
    await store.acceptMessages(acceptRequest({ messages: [newMessage(), newMessage(to('new.org'))] }))
    await acceptOne(store, { now: NOW - 3, domain: 'zeta.com', stream: 'bulk' })
    await acceptOne(store, { sendAt: NOW + 5 })
    await store.claimDue(claimOf(epoch, [{ key: KEY, limit: 1 }]))
    t.same(await store.queueSummary(NOW), { waiting: 3, sending: 1, oldestDueAt: NOW - 3 })
    t.match(await store.queueSummary(NOW - 4), { oldestDueAt: null })
  },
}
