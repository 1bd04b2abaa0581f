/**
 * Searching messages: what every store engine must find, and in which order.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { MessagePage, SearchMessagesRequest } from '../../src/store/records/lookup-records.ts'
import type { Store } from '../../src/store/store.ts'
import type { Cases } from './conformance-case.ts'
import {
  acceptOne,
  acceptRequest,
  anything,
  bounced,
  claim,
  deferredUntil,
  delivered,
  newMessage,
  NOW,
  outcomeRecord,
  rowClaim,
  sampleContent,
} from './store-samples.ts'

const search = (store: Store, changes: Partial<SearchMessagesRequest>): Promise<MessagePage> =>
  store.searchMessages({ ...anything, ...changes })

/** Numbers at the front of the local parts that were found, in their order. */
async function found(store: Store, changes: Partial<SearchMessagesRequest>): Promise<string> {
  const { messages } = await search(store, changes)
  return messages.map(({ recipient }) => recipient[0]).join('')
}

/** One request for each digit, to `<digit>@example.com`, an hour apart. */
async function acceptDigits(store: Store, changesOf: (digit: number) => object, count = 6): Promise<void> {
  for (let digit = 0; digit < count; digit++) {
    const to = { name: null, address: `${digit}@example.com` }
    const now = NOW + digit * 3_600_000
    await acceptOne(store, { now, ...changesOf(digit) }, { to, expiresAt: now + 72 * 3_600_000 })
  }
}

export const searching: Cases = {
  'what is asked for is found, newest first; several conditions must all hold': async (t, { store }) => {
    await acceptDigits(store, (digit) => ({
      domain: digit < 3 ? 'acme.com' : 'zeta.org',
      content: {
        ...sampleContent,
        subject: `${digit === 0 ? 'ÉTÉ! Über-raschung 特別' : 'Your order'} no.${digit}${digit} {{name}}`,
        from: { name: null, address: digit % 2 === 0 ? 'even@acme.com' : 'Odd@acme.com' },
        tags: digit < 4 ? { kind: 'bill', n: String(digit) } : {},
      },
    }))
    t.equal(await store.indexSubjects(4), true)
    t.equal(await found(store, { subject: 'order' }), '321', 'those that are in the index')
    t.equal(await store.indexSubjects(4), false)
    t.equal(await store.indexSubjects(4), false)
    for (const [changes, expected] of [
      [{}, '543210'],
      [{ subject: 'order' }, '54321'],
      [{ subject: 'ORDER' }, '54321'],
      [{ subject: '33 order YOUR' }, '3', 'in any order'],
      [{ subject: 'ord' }, '', 'whole words'],
      [{ subject: 'ete' }, '0', 'without accents'],
      [{ subject: 'ÉTÉ'.normalize('NFD') }, '0', 'however they are written'],
      [{ subject: '特別' }, '0'],
      [{ subject: '"order" OR * NEAR(x) ) -- {subject} : ^' }, ''],
      [{ subject: '"' }, ''],
      [{ subject: '***' }, ''],
      [{ subject: 'order\0 your' }, '54321'],
      [{ subject: 'your order', from: 'even@acme.com' }, '42'],
      [{ subject: 'your order', tag: { key: 'kind', value: 'bill' } }, '321'],
      [{ subject: 'order', recipient: '3@example.com' }, '3'],
      [{ subject: 'order', recipient: '0@example.com' }, ''],
      [{ subject: 'order', since: NOW + 7_200_000 }, '5432'],
      [{ subject: 'order', reach: { isTest: null, domains: ['zeta.org'] } }, '543'],
      [{ recipient: '2@EXAMPLE.com' }, '2'],
      [{ recipient: '%@example.com' }, ''],
      [{ recipient: '_@example.com' }, ''],
      [{ recipient: '2@example.com\0' }, ''],
      [{ from: 'even@ACME.com' }, '420'],
      [{ from: 'Odd@acme.com' }, '531'],
      [{ from: 'odd@acme.com' }, '', 'the local part is compared as it is'],
      [{ tag: { key: 'kind', value: 'bill' } }, '3210'],
      [{ tag: { key: 'kind', value: 'BILL' } }, ''],
      [{ tag: { key: 'ki%', value: '%' } }, ''],
      [{ tag: { key: 'n', value: '2' } }, '2'],
      [{ reach: { isTest: null, domains: ['zeta.org', 'none.org'] } }, '543'],
      [{ reach: { isTest: null, domains: ['acme.com'] } }, '543210', 'also by the domain of the sender'],
      [{ reach: { isTest: null, domains: ['me.com', 'even@acme.com', 'com'] } }, ''],
      [{ since: NOW + 7_200_000 }, '5432'],
      [{ until: NOW + 7_200_000 }, '210'],
      [{ since: NOW + 3_600_001, until: NOW + 3 * 3_600_000 }, '32'],
      [{ since: NOW + 9 * 3_600_000 }, ''],
      [{ until: NOW - 1 }, ''],
      [{ from: 'even@acme.com', tag: { key: 'kind', value: 'bill' }, since: NOW + 1 }, '2'],
      [{ recipient: '1@example.com', from: 'even@acme.com' }, ''],
      [
        { recipient: '1@example.com', tag: { key: 'n', value: '1' }, reach: { isTest: null, domains: ['acme.com'] } },
        '1',
      ],
      [{ tag: { key: 'n', value: '2' }, reach: { isTest: null, domains: ['zeta.org'] } }, ''],
      [{ isp: 'gmail' }, ''],
      [{ ip: '127.0.0.11' }, ''],
      [{ batchId: newIdentifier('bat', NOW) }, ''],
      [{ batchId: '%' }, ''],
    ] as [Partial<SearchMessagesRequest>, string, string?][]) {
      t.equal(await found(store, changes), expected, JSON.stringify(changes))
    }
    const [view] = (await search(store, { recipient: '3@example.com' })).messages
    t.same(view, { ...(await store.lookupMessage(view?.id ?? '', NOW)), attempts: [] })
  },
  'an address is found in capitals and small letters, page by page in one order': async (t, { store }) => {
    const spellings = ['bob@example.com', 'BOB@example.com', 'bOb@example.com', 'Bob@example.com', 'bob@example.com']
    const others = ['BOBBY', 'Bo', 'B', 'bo', 'boB2', 'BO_B', 'bobby', 'c', 'Öl']
    const addresses = [
      ...spellings,
      ...others.map((name) => `${name}@example.com`),
      'bob@example.org',
      'ÖL@example.com',
    ]
    await store.acceptMessages(
      acceptRequest({ messages: addresses.map((address) => newMessage({ to: { name: null, address } })) }),
    )
    for (const recipient of spellings) {
      const first = await search(store, { recipient, limit: 2 })
      const second = await search(store, { recipient, limit: 2, after: first.next })
      const third = await search(store, { recipient, limit: 2, after: second.next })
      const pages = [first, second, third].map(({ messages }) => messages.map((message) => message.recipient))
      t.same(pages.flat(), spellings.toReversed(), recipient)
      t.equal(third.next, null)
    }
    t.equal(await found(store, { recipient: 'öl@example.com' }), 'ÖÖ')
    t.equal(await found(store, { recipient: 'bob@example.net' }), '')
    t.same((await store.spellingsOf('BoB@Example.com')).toSorted(), [
      'BOB@example.com',
      'BoB@example.com',
      'Bob@example.com',
      'bOb@example.com',
      'bob@example.com',
    ])
  },
  'states are those that lookup shows; provider and IP those of the last attempt': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const names = ['delivered', 'bounced', 'deferred', 'path', 'queued', 'sending', 'scheduled', 'expired', 'canceled']
    const messages = names.map((name) => newMessage({ to: { name: null, address: `${name}@example.com` } }))
    messages[7] = newMessage({ to: { name: null, address: 'expired@example.com' }, expiresAt: NOW })
    for (const [index, message] of messages.entries()) {
      const sendAt = names[index] === 'scheduled' ? NOW + 60_000 : null
      await store.acceptMessages(acceptRequest({ messages: [message], sendAt }))
    }
    await store.expireDue(NOW, 9)
    await store.cancelMessage(messages[8]?.id ?? '', NOW)
    const claimed = await claim(store, epoch)
    const of = (name: string) => claimed.find(({ recipient }) => recipient.startsWith(name)) as never
    await store.recordOutcomes({
      epoch,
      now: NOW,
      outcomes: [
        outcomeRecord(of('delivered'), deferredUntil(NOW)),
        outcomeRecord(of('bounced'), bounced),
        outcomeRecord(of('deferred'), deferredUntil(NOW + 9), { ip: '127.0.0.12' }),
        outcomeRecord(of('path'), { kind: 'path-failed', retryAt: NOW + 9 }, { ip: null }),
      ],
    })
    const again = await claim(store, epoch)
    const last = outcomeRecord(again.find(({ recipient }) => recipient.startsWith('delivered')) as never, delivered, {
      at: NOW + 1,
      ip: '127.0.0.12',
    })
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [{ ...last, isp: 'outlook' }] })
    await store.unclaim({ epoch, rows: [{ ...rowClaim(of('queued')), nextAt: NOW }] })
    const all = (await search(store, {})).messages
    for (const { state } of all) {
      const expected = all.filter((message) => message.state === state).map(({ id }) => id)
      t.same(
        (await search(store, { state })).messages.map(({ id }) => id),
        expected,
        state,
      )
    }
    t.equal(new Set(all.map(({ state }) => state)).size, 8)
    t.equal(await found(store, { state: 'suppressed' }), '')
    t.equal(await found(store, { state: 'queued', now: NOW + 60_000 }), 'sq', 'its time has come')
    const names12 = async (changes: object) => (await search(store, changes)).messages.map(({ recipient }) => recipient)
    t.same(await names12({ ip: '127.0.0.12' }), ['deferred@example.com', 'delivered@example.com'])
    t.same(await names12({ ip: '127.0.0.11' }), ['bounced@example.com'])
    t.same(await names12({ isp: 'outlook' }), ['delivered@example.com'])
  },
  'a subject without a break is found, and stops no other': async (t, { store }) => {
    // More bytes than an entry of an index holds, which nothing makes shorter.
    const long = Array.from({ length: 998 }, (_, place) =>
      String.fromCodePoint(0x4e00 + ((place * 7_919) % 20_000)),
    ).join('')
    for (const [digit, subject] of [`${long} order`, 'order'].entries()) {
      const to = { name: null, address: `${digit}@example.com` }
      await acceptOne(store, { content: { ...sampleContent, subject } }, { to })
    }
    t.equal(await store.indexSubjects(100), false)
    t.equal(await found(store, { subject: 'order' }), '10')
    t.equal(await found(store, { subject: long }), '0')
    t.equal(await found(store, { subject: `${long.slice(0, -1)}x` }), '')
  },
  'pages follow each other while messages are added, whatever leads': async (t, { store }) => {
    const content = { ...sampleContent, tags: { kind: 'bill' } }
    const batch = { id: newIdentifier('bat', NOW), rejected: 0 }
    const addressed = (address: string) => Array.from({ length: 5 }, () => newMessage({ to: { name: null, address } }))
    await store.acceptMessages(acceptRequest({ content, messages: addressed('a@x.org').slice(0, 2) }))
    await store.acceptMessages(acceptRequest({ content, batch, messages: addressed('a@x.org') }))
    await store.acceptMessages(acceptRequest({ messages: addressed('b@x.org') }))
    await store.acceptMessages(acceptRequest({ content, messages: addressed('a@x.org').slice(0, 2) }))
    for (const [changes, total] of [
      [{ recipient: 'a@x.org' }, 9],
      [{ batchId: batch.id }, 5],
      [{ tag: { key: 'kind', value: 'bill' } }, 9],
      [{ from: 'orders@acme.com' }, 14],
      [{}, 14],
    ] as const) {
      const whole = (await search(store, changes)).messages.map(({ id }) => id).slice(-total)
      t.equal(whole.length, total)
      const walked: string[] = []
      let after: string | null = null
      do {
        const page: MessagePage = await search(store, { ...changes, limit: 2, after })
        walked.push(...page.messages.map(({ id }) => id))
        if (after === null) await acceptOne(store, { content }, { to: { name: null, address: 'a@x.org' } })
        after = page.next
      } while (after !== null)
      t.same(walked.slice(-total), whole, JSON.stringify(changes))
    }
    for (const after of ['x', '-1', '1e3', '', '9'.repeat(40)]) {
      await t.rejects(search(store, { after }), { message: /invalid_request/ })
    }
  },
}
