/**
 * Domains: what every store engine must do for their keys, checks and removal.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import { eventBody, type ServiceEvent } from '../../src/mail/event.ts'
import type { DomainRecord, DomainState, RecordCheck } from '../../src/store/records/sender-records.ts'
import type { Store } from '../../src/store/store.ts'
import { webhookClaim, type Cases } from './conformance-case.ts'
import {
  acceptOne,
  acceptRequest,
  claim,
  deferredUntil,
  delivered,
  dkimKey,
  domainCheck,
  domainRecord,
  LEASE,
  lookUp,
  newMessage,
  NOW,
  outcomeRecord,
  webhookEndpoint,
} from './store-samples.ts'

const verifiedEvent = (): ServiceEvent => ({
  id: newIdentifier('evt', NOW),
  kind: 'domain.verified',
  at: NOW,
  data: { domain: 'acme.com', status: 'verified' },
})
const selectors = (domain: DomainRecord | null | undefined): string[] | undefined =>
  domain?.keys.map(({ selector, role }) => `${selector} ${role}`)

export const domains: Cases = {
  'a domain is added once and read back whole': async (t, { store }) => {
    const domain = domainRecord({
      keys: [dkimKey(), dkimKey({ selector: 'ed1', algorithm: 'ed25519-sha256', seenAt: NOW, retireAt: NOW + 1 })],
      tracking: { opens: false, clicks: true },
      allowSubdomains: true,
      ipPool: 'bulk',
      state: 'degraded',
      verifiedAt: 1,
      lastCheckedAt: 2,
      nextCheckAt: 3,
      failingSince: 4,
      failedChecks: 5,
      degradedAt: 6,
    })
    const added = await store.addDomain(domain, null)
    t.equal(added.isNew, true)
    t.strictSame(plain(added.domain), plain(domain))
    t.strictSame(plain(await store.findDomain('acme.com')), plain(domain))
    const again = await store.addDomain(domainRecord({ keys: [dkimKey({ selector: 'other' })] }), 1)
    t.equal(again.isNew, false, 'also at the limit')
    t.strictSame(plain(again.domain), plain(domain))
    t.equal(await store.findDomain('other.com'), null)
  },
  'no more domains than allowed, and removed ones do not count': async (t, { store }) => {
    await store.addDomain(domainRecord({ name: 'a.com' }), 2)
    await store.addDomain(domainRecord({ name: 'b.com' }), 2)
    await t.rejects(store.addDomain(domainRecord({ name: 'c.com' }), 2), { name: 'ServiceError', code: 'conflict' })
    t.equal(await store.findDomain('c.com'), null)
    await store.removeDomain({ name: 'a.com', now: NOW, purge: false })
    t.match(await store.addDomain(domainRecord({ name: 'c.com' }), 2), { isNew: true })
  },
  'a list is newest first in pages that additions and removals do not move': async (t, { store }) => {
    for (const name of ['a', 'b', 'c', 'd', 'e']) await store.addDomain(domainRecord({ name: `${name}.com` }), null)
    const first = await store.listDomains({ states: null, limit: 2, after: null })
    t.same(
      first.domains.map(({ name }) => name),
      ['e.com', 'd.com'],
    )
    t.same(selectors(first.domains[0]), ['ps1 active'], 'whole records')
    await store.addDomain(domainRecord({ name: 'f.com' }), null)
    await store.removeDomain({ name: 'd.com', now: NOW, purge: false })
    await store.removeDomain({ name: 'b.com', now: NOW, purge: false })
    const second = await store.listDomains({ states: null, limit: 2, after: first.next })
    t.same(
      second.domains.map(({ name }) => name),
      ['c.com', 'a.com'],
    )
    t.equal(second.next, null, 'nothing follows a full last page')
    t.same(await store.listDomains({ states: null, limit: 2, after: '1' }), { domains: [], next: null })
    for (const after of ['', 'x', '-1', '1e3', '9'.repeat(40), "1' or 1"]) {
      const list = store.listDomains({ states: null, limit: 2, after })
      await t.rejects(list, { name: 'ServiceError', code: 'invalid_request' }, JSON.stringify(after))
    }
  },
  'a list can be of some states': async (t, { store }) => {
    const states: DomainState[] = ['pending', 'verified', 'degraded', 'failed', 'suspended']
    for (const state of states) await store.addDomain(domainRecord({ name: `${state}.com`, state }), null)
    const list = async (wanted: DomainState[] | null): Promise<string[]> =>
      (await store.listDomains({ states: wanted, limit: 9, after: null })).domains.map(({ state }) => state)
    t.same(await list(['verified', 'degraded']), ['degraded', 'verified'])
    t.same(await list(['failed']), ['failed'])
    t.same(await list([]), [])
    t.equal((await list(null)).length, 5)
  },
  'a change leaves what it does not name': async (t, { store }) => {
    await store.addDomain(domainRecord(), null)
    const tracking = { opens: false, clicks: true }
    t.match(await store.updateDomain('acme.com', { tracking }), { tracking, ipPool: null, allowSubdomains: false })
    t.match(await store.updateDomain('acme.com', { ipPool: 'bulk', allowSubdomains: true }), { tracking })
    t.match(await store.updateDomain('acme.com', { ipPool: null }), { tracking, ipPool: null, allowSubdomains: true })
    t.strictSame(await store.updateDomain('acme.com', {}), await store.findDomain('acme.com'))
    t.equal(await store.updateDomain('other.com', { tracking }), null)
  },
  'keys are added beside those that are there, each with a selector of its own': async (t, { store }) => {
    await store.addDomain(domainRecord(), null)
    const next = dkimKey({ selector: 'ps2', role: 'next', createdAt: NOW + 1 })
    t.same(selectors(await store.addDkimKeys('acme.com', [next])), ['ps1 active', 'ps2 next'])
    const taken = store.addDkimKeys('acme.com', [dkimKey({ selector: 'ps3' }), dkimKey({ selector: 'ps1' })])
    await t.rejects(taken, { name: 'ServiceError', code: 'conflict' })
    t.same(selectors(await store.findDomain('acme.com')), ['ps1 active', 'ps2 next'], 'none of a refused list')
    const second = store.addDkimKeys('acme.com', [dkimKey({ selector: 'ps5', role: 'next' })])
    await t.rejects(
      second,
      { code: 'conflict', details: /next DKIM key is there already/ },
      'another node rotates, too',
    )
    const instead = dkimKey({ selector: 'ps4', role: 'next', createdAt: NOW + 2 })
    const replaced = await store.addDkimKeys('acme.com', [instead], ['ps1', 'ps2'])
    t.same(selectors(replaced), ['ps1 active', 'ps4 next'], 'in the place of a next key, of no other')
    t.equal(await store.addDkimKeys('other.com', [next]), null)
  },
  "the active keys sign, RSA first, those of the living domain before a removed one's": async (t, tested) => {
    const { store } = tested
    const reader = await tested.contentReader()
    const keysOf = async (domain: string): Promise<string[]> =>
      (await reader.signingKeys(domain)).map((key) => `${key.domain} ${key.selector} ${key.algorithm}`)
    t.same(await keysOf('acme.com'), [])
    await store.addDomain(
      domainRecord({
        keys: [
          dkimKey({ selector: 'ed1', algorithm: 'ed25519-sha256' }),
          dkimKey(),
          dkimKey({ selector: 'soon', role: 'next' }),
          dkimKey({ selector: 'old', role: 'retiring' }),
        ],
      }),
      null,
    )
    const signing = ['acme.com ps1 rsa-sha256', 'acme.com ed1 ed25519-sha256']
    t.same(await keysOf('acme.com'), signing)
    t.same([...((await reader.signingKeys('acme.com'))[0]?.sealedPrivateKey ?? [])], [9, 8, 7])
    await store.removeDomain({ name: 'acme.com', now: NOW, purge: false })
    t.same(await keysOf('acme.com'), signing, 'what waits still leaves')
    await store.addDomain(domainRecord({ verifiedAt: NOW, keys: [dkimKey({ selector: 'new' })] }), null)
    t.same(await keysOf('acme.com'), ['acme.com new rsa-sha256'])
    await store.removeDomain({ name: 'acme.com', now: NOW, purge: false })
    t.same(await keysOf('acme.com'), ['acme.com new rsa-sha256'], 'of the one removed last')
    await store.addDomain(domainRecord({ keys: [dkimKey({ selector: 'unpublished' })] }), null)
    t.same(await keysOf('acme.com'), ['acme.com new rsa-sha256'], 'until the one added anew is verified')
    t.same(await keysOf('other.com'), [])
  },
  "an active key of a domain signs others' mail while it is here and may send": async (t, tested) => {
    const { store } = tested
    const reader = await tested.contentReader()
    const keys = [
      dkimKey({ selector: 'ed1', algorithm: 'ed25519-sha256' }),
      dkimKey(),
      dkimKey({ selector: 'soon', role: 'next' }),
    ]
    const signs = { verified: true, degraded: true, pending: false, failed: false, suspended: false }
    for (const [state, may] of Object.entries(signs)) {
      await store.addDomain(domainRecord({ state: state as DomainState, verifiedAt: NOW, keys }), null)
      const expected = may ? { selector: 'ps1', algorithm: 'rsa-sha256' } : undefined
      t.match(await reader.platformKey('acme.com'), expected, state)
      await store.removeDomain({ name: 'acme.com', now: NOW, purge: false })
      t.equal(await reader.platformKey('acme.com'), undefined, 'removed')
    }
  },
}

export const domainChecks: Cases = {
  'a check brings state, times, findings and keys together': async (t, { store }) => {
    await store.addDomain(domainRecord({ keys: [dkimKey(), dkimKey({ selector: 'ps2', role: 'next' })] }), null)
    const check: RecordCheck = {
      purpose: 'spf',
      status: 'verified',
      found: ['v=spf1 -all'],
      error: null,
      hint: null,
      checkedAt: NOW + 5,
      evaluated: [{ ip: '127.0.0.11', result: 'pass' }],
    }
    const dkim: RecordCheck = { ...check, purpose: 'dkim', selector: 'ps2', evaluated: [] }
    const keys = [
      dkimKey({ role: 'retiring', retireAt: NOW + 99 }),
      dkimKey({ selector: 'ps2', role: 'active', seenAt: NOW + 1 }),
    ]
    const result = domainCheck({
      state: 'degraded',
      failingSince: NOW + 2,
      failedChecks: 3,
      degradedAt: NOW + 4,
      checks: [check, dkim],
      keys,
    })
    const { events: _events, now: _now, ...stored } = result
    t.match(await store.recordDomainCheck(result), { ...stored, lastCheckedAt: NOW + 5 })
    const found = await store.findDomain('acme.com')
    t.strictSame(plain(found), plain({ ...domainRecord(), ...stored, lastCheckedAt: NOW + 5 }))
    const only = dkimKey({ selector: 'ps2', seenAt: NOW + 1 })
    t.same(selectors(await store.recordDomainCheck({ ...result, now: NOW + 6, keys: [only] })), ['ps2 active'])
    t.equal(await store.recordDomainCheck({ ...result, name: 'other.com' }), null)
  },
  'its events reach the subscribed endpoints with the new state, and belong to no message': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addWebhookEndpoint(webhookEndpoint({ events: ['domain.verified'] }))
    await store.addWebhookEndpoint(webhookEndpoint())
    await store.addDomain(domainRecord(), null)
    const event = verifiedEvent()
    await store.recordDomainCheck(domainCheck({ name: 'other.com', events: [verifiedEvent()] }))
    await store.recordDomainCheck(domainCheck({ events: [event] }))
    t.equal(await store.earliestWebhookDueAt(), NOW + 5)
    const claimed = await store.claimWebhooks(webhookClaim(epoch, NOW + 5))
    t.same(
      claimed.map(({ eventId, body }) => [eventId, body]),
      [[event.id, eventBody(event)]],
    )
  },
  'a key that came while a check ran stays, one that went does not come back': async (t, { store }) => {
    await store.addDomain(domainRecord({ keys: [dkimKey(), dkimKey({ selector: 'gone' })] }), null)
    await store.recordDomainCheck(domainCheck({ now: NOW + 1, keys: [dkimKey()] }))
    await store.addDkimKeys('acme.com', [dkimKey({ selector: 'late', role: 'next', createdAt: NOW + 5 })])
    const result = domainCheck({ now: NOW + 5, keys: [dkimKey(), dkimKey({ selector: 'gone' })] })
    t.same(selectors(await store.recordDomainCheck(result)), ['ps1 active', 'late next'])
    t.same(selectors(await store.recordDomainCheck({ ...result, now: NOW + 6 })), ['ps1 active'], 'a later check')
  },
  'a check of a domain that was removed, or added anew, changes nothing': async (t, { store }) => {
    await store.addDomain(domainRecord(), null)
    await store.removeDomain({ name: 'acme.com', now: NOW, purge: false })
    const result = domainCheck({ events: [verifiedEvent()] })
    t.equal(await store.recordDomainCheck(result), null)
    const anew = domainRecord({ keys: [dkimKey({ selector: 'new' })] })
    await store.addDomain(anew, null)
    t.strictSame(plain(await store.recordDomainCheck(result)), plain(anew))
    t.strictSame(plain(await store.findDomain('acme.com')), plain(anew))
  },
  'domains are due for a check by their time, the longest due first': async (t, { store }) => {
    const times: [string, number | null][] = [
      ['later.com', NOW + 1],
      ['now.com', NOW],
      ['long.com', NOW - 9],
      ['never.com', null],
      ['removed.com', NOW - 5],
    ]
    for (const [name, nextCheckAt] of times) await store.addDomain(domainRecord({ name, nextCheckAt }), null)
    await store.removeDomain({ name: 'removed.com', now: NOW, purge: false })
    t.same(await store.domainsDueForCheck(NOW, 9), ['long.com', 'now.com'])
    t.same(await store.domainsDueForCheck(NOW, 1), ['long.com'])
    await store.recordDomainCheck(domainCheck({ name: 'long.com', nextCheckAt: NOW + 2 }))
    t.same(await store.domainsDueForCheck(NOW + 1, 9), ['now.com', 'later.com'])
  },
}

export const removal: Cases = {
  'a removed domain is gone, but what waits keeps its return path': async (t, { store }) => {
    await store.addDomain(domainRecord(), null)
    const ids = [await acceptOne(store), await acceptOne(store, { stream: 'bulk' })]
    await acceptOne(store, { domain: 'other.com' })
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await claim(store, epoch, NOW, 1)
    t.equal(await store.queuedMessages('acme.com'), 2)
    t.equal(await store.queuedMessages('nope.com'), 0)
    const request = { name: 'acme.com', now: NOW + 1, purge: false }
    t.same(await store.removeDomain(request), { queuedMessages: 2 }, 'waiting and under way')
    t.equal(await store.removeDomain(request), null, 'the second time')
    t.equal(await store.removeDomain({ ...request, name: 'nope.com' }), null)
    t.equal(await store.findDomain('acme.com'), null)
    t.same(await store.listDomains({ states: null, limit: 9, after: null }), { domains: [], next: null })
    t.equal(await store.updateDomain('acme.com', {}), null)
    t.equal(await store.addDkimKeys('acme.com', [dkimKey({ selector: 'ps9' })]), null)
    t.equal(await store.findReturnPath('acme.com'), 'bounces.acme.com')
    t.equal(await store.cancelPurged(NOW + 1, 9), 0)
    for (const id of ids) t.not((await lookUp(store, id))?.state, 'canceled')
    await store.addDomain(domainRecord({ returnPath: 'rp.acme.com', verifiedAt: NOW }), null)
    t.equal(await store.findReturnPath('acme.com'), 'rp.acme.com', 'of the living one')
    t.equal(await store.findReturnPath('nope.com'), null)
  },
  "the public keys of removed domains of a name are known, the newest domain's first": async (t, { store }) => {
    t.same(await store.earlierDkimKeys('acme.com'), [])
    for (const publicKey of ['MIIA', 'MIIB', 'MIIC']) {
      await store.addDomain(domainRecord({ keys: [dkimKey({ publicKey })] }), null)
      if (publicKey !== 'MIIC') await store.removeDomain({ name: 'acme.com', now: NOW, purge: false })
    }
    const earlier = ['MIIB', 'MIIA'].map((publicKey) => ({ algorithm: 'rsa-sha256', publicKey }))
    t.strictSame(await store.earlierDkimKeys('acme.com'), earlier, 'without private keys, and not those of the living')
  },
  'a purge cancels all that waits, each message with its event, and nothing else': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addWebhookEndpoint(webhookEndpoint({ events: ['email.canceled'] }))
    await store.addDomain(domainRecord(), null)
    const other = await acceptOne(store, { domain: 'other.com' })
    const bulk = Array.from({ length: 1_200 }, () => newMessage())
    await store.acceptMessages(acceptRequest({ messages: bulk, stream: 'bulk' }))
    const single = await acceptOne(store)
    t.same(await store.removeDomain({ name: 'acme.com', now: NOW + 1, purge: true }), { queuedMessages: 1_201 })
    t.match(await store.queueSummary(NOW + 1), { waiting: 1, sending: 0 })
    t.match(await lookUp(store, other), { state: 'queued' })
    const ids = [single, ...bulk.map(({ id }) => id)]
    for (const id of [single, ids.at(1) ?? '', ids.at(-1) ?? '']) {
      t.match(await lookUp(store, id), { state: 'canceled', nextAttemptAt: null, bounce: null })
      const events = await store.messageEvents(id)
      t.same(
        events?.map(({ kind }) => kind),
        ['email.accepted', 'email.canceled'],
      )
      t.strictSame(events?.at(-1)?.data, { message_id: id, recipient: 'ada@example.com' })
    }
    const posts = await store.claimWebhooks({ ...webhookClaim(epoch, NOW + 1), limit: 5_000, perEndpoint: 5_000 })
    t.equal(new Set(posts.map(({ body }) => body)).size, 1_201)
    t.ok(posts.every(({ kind }) => kind === 'email.canceled'))
    t.equal((await claim(store, epoch, NOW + 1, 5_000)).length, 1)
  },
  'a message under way at a purge may be delivered, and is canceled when it comes back': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addDomain(domainRecord(), null)
    for (let count = 0; count < 3; count++) await acceptOne(store)
    const [first, second, third] = await claim(store, epoch)
    if (first === undefined || second === undefined || third === undefined) throw new Error('too few were claimed')
    await acceptOne(store, { messages: [newMessage({ recipientDomain: 'new.org' })] })
    const terms = { epoch, now: NOW, leaseUntil: NOW + LEASE, domain: 'new.org', limit: 9 }
    const [fourth] = (await store.claimUnrouted(terms)).messages
    if (fourth === undefined) throw new Error('too few were claimed')
    t.same(await store.removeDomain({ name: 'acme.com', now: NOW + 1, purge: true }), { queuedMessages: 4 })
    t.same(await statesOf(store, [first.id, second.id, third.id]), ['sending', 'sending', 'sending'])
    // A domain of the same name: its mail is not meant.
    await store.addDomain(domainRecord(), null)
    const later = await acceptOne(store)
    const outcomes = [outcomeRecord(first, delivered), outcomeRecord(second, deferredUntil(NOW + 9))]
    await store.recordOutcomes({ epoch, now: NOW + 2, outcomes })
    await store.unclaim({ epoch, rows: [third, fourth].map(({ key, claim }) => ({ key, claim, nextAt: NOW })) })
    const claimed = await claim(store, epoch, NOW + 9)
    t.same([claimed.map(({ id }) => id), (await store.claimUnrouted(terms)).messages], [[later], []], 'not once more')
    t.equal(await store.cancelPurged(NOW + 10, 1), 1)
    t.equal(await store.cancelPurged(NOW + 10, 9), 2)
    t.equal(await store.cancelPurged(NOW + 10, 9), 0)
    const ids = [first.id, second.id, third.id, fourth.id, later]
    t.same(await statesOf(store, ids), ['delivered', 'canceled', 'canceled', 'canceled', 'sending'])
  },
}

async function statesOf(store: Store, ids: string[]): Promise<(string | undefined)[]> {
  return Promise.all(ids.map(async (id) => (await lookUp(store, id))?.state))
}

/** With the sealed keys as lists of bytes: a Buffer comes back as a Uint8Array. */
function plain(domain: DomainRecord | null): unknown {
  if (domain === null) return null
  return { ...domain, keys: domain.keys.map((key) => ({ ...key, sealedPrivateKey: [...key.sealedPrivateKey] })) }
}
