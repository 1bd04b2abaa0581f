/**
 * Accepting and claiming: what every store engine must do between a request and the delivery threads.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import { CAPTURE_POOL } from '../../src/mail/simulator.ts'
import type { StoredContent } from '../../src/mail/message.ts'
import { CAPTURE_ROUTE } from '../../src/store/records/queue-records.ts'
import { claimMessages } from '../support/claim-messages.ts'
import type { Cases } from './conformance-case.ts'
import {
  acceptOne,
  acceptRequest,
  claim,
  claimedMessage,
  LEASE,
  LIFETIME,
  lookUp,
  newMessage,
  NOW,
  POOL,
  rowClaim,
  sampleContent,
} from './store-samples.ts'

export const accepting: Cases = {
  'an accepted message is queued and can be looked up': async (t, { store }) => {
    const id = await acceptOne(store)
    t.match(await lookUp(store, id), {
      id,
      batchId: null,
      state: 'queued',
      recipient: 'ada@example.com',
      from: 'orders@acme.com',
      subject: 'Order {{number}}',
      hasVariables: true,
      variables: {},
      stream: 'transactional',
      domain: 'acme.com',
      pool: POOL,
      isp: null,
      ip: null,
      createdAt: NOW,
      expiresAt: NOW + LIFETIME,
      nextAttemptAt: NOW,
      deliveredAt: null,
      bouncedAt: null,
      bounce: null,
      isPossibleDuplicate: false,
      attempts: [],
      sendAt: null,
      recipientDomain: 'example.com',
      tags: {},
      metadata: {},
      isTest: false,
      complainedAt: null,
      opens: 0,
      clicks: 0,
      machineOpens: 0,
      machineClicks: 0,
      retryOf: null,
    })
    t.match(await store.messageEvents(id), [{ kind: 'email.accepted', at: NOW, data: {} }])
    t.same(await store.queueSummary(NOW), { waiting: 1, sending: 0, oldestDueAt: NOW })
  },
  'what does not exist is null': async (t, { store }) => {
    for (const id of [newIdentifier('msg', NOW), 'msg_none', '']) {
      t.equal(await lookUp(store, id), null)
      t.equal(await store.messageEvents(id), null)
    }
  },
  'a request is stored whole or not at all': async (t, { store }) => {
    const known = newMessage()
    await store.acceptMessages(acceptRequest({ messages: [known] }))
    const fresh = newMessage()
    await t.rejects(store.acceptMessages(acceptRequest({ pool: 'new', messages: [fresh, known] })))
    t.equal(await lookUp(store, fresh.id), null)
    t.equal((await store.queueSummary(NOW)).waiting, 1)
    t.same(await store.moveOrphans([POOL], POOL), [], 'not even the new pool is left')
    t.same(
      (await store.queueKeys(null, 9)).keys.map(({ pool, waiting }) => [pool, waiting]),
      [[POOL, 1]],
    )
  },
  'a verb that fails does not disturb its neighbours': async (t, { store }) => {
    const known = newMessage()
    await store.acceptMessages(acceptRequest({ messages: [known] }))
    const neighbours = Array.from({ length: 20 }, () => newMessage())
    const calls = neighbours.map((message, index) =>
      store.acceptMessages(acceptRequest({ messages: [index % 2 === 0 ? message : known] })),
    )
    const results = await Promise.allSettled(calls)
    const expected = neighbours.map((_, index) => (index % 2 === 0 ? 'fulfilled' : 'rejected'))
    t.same(
      results.map((result) => result.status),
      expected,
    )
    for (const [index, { id }] of neighbours.entries()) {
      t.equal((await lookUp(store, id)) !== null, index % 2 === 0)
    }
  },
  'content comes back as it was given': async (t, { store, contentReader }) => {
    const big = new Uint8Array(2_500_000).map((_, index) => index % 251)
    const contents: StoredContent[] = [
      sampleContent,
      { ...sampleContent, replyTo: [], html: null, text: '' },
      { ...sampleContent, from: { name: null, address: 'a@acme.com' }, text: 'plain ✓', hasVariables: false },
      {
        ...sampleContent,
        attachments: [
          { name: 'bill.pdf', contentType: 'application/pdf', contentId: null, bytes: big },
          { name: '', contentType: 'image/png', contentId: 'logo', bytes: Uint8Array.of() },
          { name: 'ü.txt', contentType: 'text/plain', contentId: null, bytes: Uint8Array.of(0, 13, 10, 255) },
        ],
      },
      {
        ...sampleContent,
        html: null,
        text: 'x',
        tracking: { opens: true, clicks: false },
        addressees: { to: { name: 'Ada', address: 'ada@example.com' }, cc: [{ name: null, address: 'b@example.org' }] },
        headers: [
          ['X-Trace', 'ünï'],
          ['X-Trace', '2'],
        ],
        tags: { ['__proto__']: 'x', ['%_\'"']: 'two words' },
        metadata: { nested: { list: [1, null, '\0'] }, text: '✓' },
        unsubscribe: { list: 'news', url: 'https://acme.com/leave' },
      },
      {
        ...sampleContent,
        html: null,
        text: null,
        raw: big.subarray(0, 1_300_000),
        unsubscribe: { list: 'bulk', url: null },
      },
      { ...sampleContent, html: null, text: null, raw: Uint8Array.of() },
      // What is in both bodies may be read in another way where it is short.
      { ...sampleContent, html: 'ü'.repeat(8_000), text: '\\x41\t\u{1F600}\uFFFF'.padEnd(16_756) },
      { ...sampleContent, html: 'ü'.repeat(8_000), text: '✓'.repeat(6_000) },
      { ...sampleContent, html: 'ü'.repeat(16_384), text: null },
      { ...sampleContent, html: 'ü'.repeat(16_384), text: 'x' },
    ]
    // Their memory is given away.
    for (const content of contents) await acceptOne(store, { content: structuredClone(content) })
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const reader = await contentReader()
    const messages = await claim(store, epoch)
    t.equal(messages.length, contents.length)
    for (const [index, message] of messages.entries()) {
      const read = await reader.content(message.contentId)
      t.same(read && plainContent(read), plainContent(contents[index] ?? sampleContent))
    }
    const ids = messages.map(({ contentId }) => contentId)
    const ahead = await reader.readAhead([], ids, Infinity)
    const readTogether = ids.flatMap((id) => ahead.contents.get(id) ?? [])
    t.same(readTogether.map(plainContent), contents.map(plainContent))
    t.equal(await reader.content(4_711), undefined)
  },
  "a batch shares one content and keeps what is each recipient's own": async (t, { store, contentReader }) => {
    const messages = [
      newMessage({ to: { name: 'Ada L.', address: 'ada@example.com' }, variables: { n: 1, ok: true, name: 'Ada' } }),
      newMessage({ to: { name: null, address: 'bob@example.org' }, recipientDomain: 'example.org' }),
    ]
    await store.acceptMessages(acceptRequest({ stream: 'bulk', messages }))
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const claimed = await claim(store, epoch)
    const reader = await contentReader()
    t.equal(new Set(claimed.map((message) => message.contentId)).size, 1)
    t.same(
      claimed.map((message) => message.recipientDomain),
      ['example.com', 'example.org'],
    )
    for (const [index, message] of claimed.entries()) {
      const { id: messageId, to, variables } = messages[index] ?? newMessage()
      const facts = { messageId, domain: 'acme.com', to, variables, acceptedAt: NOW, sendAt: null, stream: 'bulk' }
      t.same(await reader.renderFacts(message.key), facts)
    }
    t.equal(await reader.renderFacts(4_711), undefined)
    const contentId = claimed[0]?.contentId ?? 0
    const keys = claimed.map(({ key }) => key)
    const ahead = await reader.readAhead([...keys, 4_711], [contentId, 4_711], 1_000_000)
    t.same([...ahead.facts], await Promise.all(keys.map(async (key) => [key, await reader.renderFacts(key)])))
    t.same([...ahead.contents], [[contentId, await reader.content(contentId)]])
  },
}

/** With all bytes of one type, so that they can be compared. */
const plainContent = (content: StoredContent) => ({
  ...content,
  raw: content.raw && Buffer.from(content.raw),
  attachments: content.attachments.map((part) => ({ ...part, bytes: Buffer.from(part.bytes) })),
})

export const claiming: Cases = {
  'a claimed message carries what the dispatcher decides by': async (t, { store }) => {
    const { message } = await claimedMessage(store)
    t.match(message, {
      pool: POOL,
      stream: 'transactional',
      domain: 'acme.com',
      recipient: 'ada@example.com',
      recipientDomain: 'example.com',
      attempts: 0,
      acceptedAt: NOW,
      expiresAt: NOW + LIFETIME,
      pathFailures: 0,
      ambiguousCount: 0,
      isPossibleDuplicate: false,
      route: '',
      lastIp: null,
      keepIpUntil: null,
      avoidIps: [],
      isCaptured: false,
    })
  },
  'captured mail waits in a pool of its own, shows the one it was meant for, is never moved': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const captured = await acceptOne(store, { pool: 'bulk' }, { isCaptured: true })
    t.same(await claim(store, epoch), [])
    t.same(await store.moveOrphans([POOL], POOL), [])
    t.equal((await lookUp(store, captured))?.pool, 'bulk')
    t.same(await store.unroutedDomains(9), [], 'its route is known')
    const request = { now: NOW, epoch, leaseUntil: NOW + LEASE, pools: [POOL, CAPTURE_POOL], limit: 9 }
    t.match(await claimMessages(store, request), [
      { id: captured, pool: CAPTURE_POOL, route: CAPTURE_ROUTE, isCaptured: true },
    ])
  },
  'a scheduled message is due at its time, a past time means now': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const later = await acceptOne(store, { sendAt: NOW + 60_000 })
    const past = await acceptOne(store, { sendAt: NOW })
    t.match(await lookUp(store, later), { state: 'scheduled', sendAt: NOW + 60_000, nextAttemptAt: NOW + 60_000 })
    t.match(await lookUp(store, later, NOW + 60_000), { state: 'queued', sendAt: NOW + 60_000 })
    t.match(await lookUp(store, past), { state: 'queued', sendAt: null })
    t.match(await claim(store, epoch), [{ id: past }])
    t.match(await claim(store, epoch, NOW + 60_000), [{ id: later, acceptedAt: NOW }])
  },
  'claims made at the same time never share a row': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.acceptMessages(acceptRequest({ messages: Array.from({ length: 100 }, () => newMessage()) }))
    const claims = await Promise.all(Array.from({ length: 8 }, () => claim(store, epoch, NOW, 15)))
    t.equal(new Set(claims.flat().map(({ key }) => key)).size, 100)
    t.equal(claims.flat().length, 100)
  },
  'an unclaimed row is due at its time without an attempt; a stale fence changes nothing': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    await store.unclaim({ epoch: epoch - 1, rows: [{ key: message.key, claim: message.claim, nextAt: NOW }] })
    t.equal((await store.queueSummary(NOW)).sending, 1)
    await store.unclaim({ epoch, rows: [{ key: message.key, claim: message.claim, nextAt: NOW + 60_000 }] })
    t.match(await lookUp(store, message.id), {
      state: 'queued',
      nextAttemptAt: NOW + 60_000,
      isPossibleDuplicate: false,
    })
    t.match(await store.queueKeys(null, 9), { keys: [{ earliestAt: NOW + 60_000 }] })
    t.same(await claim(store, epoch), [])
    const [again] = await claim(store, epoch, NOW + 60_000)
    t.match(again, { id: message.id, attempts: 0 })
    await store.unclaim({ epoch, rows: [{ ...rowClaim(again), nextAt: NOW, isPossibleDuplicate: true }] })
    t.match(await lookUp(store, message.id), { state: 'queued', isPossibleDuplicate: true }, 'its holder died')
  },
  'messages of a pool that is gone move to the target': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const orphan = await acceptOne(store, { pool: 'gone' })
    const kept = await acceptOne(store, { pool: 'other' })
    t.same(await store.moveOrphans([POOL, 'other'], POOL), [{ pool: 'gone', messages: 1 }])
    t.equal((await lookUp(store, orphan))?.pool, POOL)
    t.equal((await lookUp(store, kept))?.pool, 'other')
    t.match(await claim(store, epoch), [{ id: orphan, pool: POOL }])
    t.same(await store.moveOrphans([POOL, 'other'], POOL), [])
  },
}
