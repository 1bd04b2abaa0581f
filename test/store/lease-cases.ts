/**
 * Rows under lease: what every store engine must do with marks, deaths and stale fences.
 */
import type { Store } from '../../src/store/store.ts'
import type { Cases } from './conformance-case.ts'
import {
  acceptOne,
  acceptRequest,
  claim,
  claimedMessage,
  deferredUntil,
  delivered,
  LEASE,
  LIFETIME,
  lookUp,
  newMessage,
  NOW,
  outcomeRecord,
  rowClaim,
} from './store-samples.ts'

const UNCERTAIN = 300_000

/** Two messages under lease, the second with the dot mark. */
async function markedSecond(store: Store) {
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await store.acceptMessages(acceptRequest({ messages: [newMessage(), newMessage()] }))
  const [plain, marked] = await claim(store, epoch)
  if (plain === undefined || marked === undefined) throw new Error('nothing was claimed')
  return { epoch, plain, marked, answer: await store.markDotSent(epoch, [marked]) }
}

export const leases: Cases = {
  'after a kill, what was not marked is due at once without a doubt, what was marked waits with one': async (
    t,
    { store },
  ) => {
    const { epoch, plain, marked, answer } = await markedSecond(store)
    t.same(answer, { stale: [] })
    const untouched = await acceptOne(store)
    const now = NOW + 5_000
    const next = await store.beginEpoch(now, now + UNCERTAIN)
    t.ok(next.epoch > epoch)
    t.same(next, { epoch: next.epoch, recovered: 1, uncertain: 1, newestAt: NOW })
    t.match(await lookUp(store, plain.id), { state: 'queued', nextAttemptAt: now, isPossibleDuplicate: false })
    t.match(await lookUp(store, marked.id), {
      state: 'queued',
      nextAttemptAt: now + UNCERTAIN,
      isPossibleDuplicate: true,
      waitingFor: null,
    })
    t.equal((await lookUp(store, untouched))?.isPossibleDuplicate, false)
    await store.unclaim({ epoch, rows: [{ key: plain.key, claim: plain.claim, nextAt: NOW + LIFETIME }] })
    t.match(await claim(store, next.epoch, now), [
      { id: untouched, attempts: 0 },
      { id: plain.id, attempts: 0 },
    ])
    const [again] = await claim(store, next.epoch, now + UNCERTAIN)
    t.match(again, { id: marked.id, attempts: 0, ambiguousCount: 0, isPossibleDuplicate: true })
    t.match(await store.beginEpoch(now, now), { recovered: 3, uncertain: 0 }, 'the mark went with its try')
  },
  'what was marked and expires before its second try may have arrived, and is told so': async (t, { store }) => {
    const { plain, marked } = await markedSecond(store)
    await store.beginEpoch(NOW, NOW + LIFETIME + UNCERTAIN)
    t.equal((await store.expireDue(NOW + LIFETIME, 9)).length, 2)
    t.match(await lookUp(store, plain.id), { state: 'expired', bounce: { type: 'soft', code: '4.4.7' } })
    t.match(await lookUp(store, marked.id), {
      state: 'bounced',
      bounce: {
        type: 'undetermined',
        category: 'ambiguous',
        code: '4.4.2',
        description: /^it may have been delivered: .*; not delivered within/,
      },
    })
  },
  'only who holds a row may mark it': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const waiting = await acceptOne(store)
    const next = await store.beginEpoch(NOW, NOW)
    t.same(await store.markDotSent(epoch, [message]), { stale: [message.claim] }, 'it waits')
    const claimed = await claim(store, next.epoch)
    const stale = claimed.map((each) => each.claim)
    t.same(claimed.map(({ id }) => id).toSorted(), [message.id, waiting].toSorted())
    t.same(await store.markDotSent(epoch, claimed), { stale }, 'another epoch holds it')
    t.same(await store.markDotSent(next.epoch, [...claimed, { key: 4_711, claim: 9 }]), { stale: [9] })
    const outcomes = claimed.map((each) => outcomeRecord(each, delivered))
    await store.recordOutcomes({ epoch: next.epoch, now: NOW, outcomes })
    t.same(await store.markDotSent(next.epoch, claimed), { stale }, 'it has ended')
  },
  'an outcome and a return take the mark away': async (t, { store }) => {
    const { epoch, plain, marked } = await markedSecond(store)
    await store.markDotSent(epoch, [plain])
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(plain, deferredUntil(NOW))] })
    await store.unclaim({ epoch, rows: [{ key: marked.key, claim: marked.claim, nextAt: NOW }] })
    t.equal((await claim(store, epoch)).length, 2)
    t.match(await store.beginEpoch(NOW, NOW + UNCERTAIN), { recovered: 2, uncertain: 0 })
    t.equal((await lookUp(store, marked.id))?.isPossibleDuplicate, false)
  },
  'a lapsed lease returns to the queue, a renewed one does not': async (t, { store }) => {
    const { epoch, plain, marked } = await markedSecond(store)
    const recover = (leasesBefore: number) => store.recoverLapsedLeases(leasesBefore, NOW + 7, NOW + UNCERTAIN)
    t.equal(await recover(NOW + LEASE - 1), 0)
    const other = { key: plain.key, claim: marked.claim }
    await store.renewLeases(epoch - 1, [plain, marked], NOW + 3 * LEASE)
    await store.renewLeases(epoch, [other], NOW + 3 * LEASE)
    await store.renewLeases(epoch, [rowClaim(marked)], NOW + 2 * LEASE)
    t.equal(await recover(NOW + LEASE), 1, 'what is not named lapses')
    t.equal((await lookUp(store, marked.id))?.state, 'sending')
    t.equal(await recover(NOW + 2 * LEASE), 1)
    t.match(await lookUp(store, plain.id), { nextAttemptAt: NOW + 7, isPossibleDuplicate: false })
    t.match(await lookUp(store, marked.id), { nextAttemptAt: NOW + UNCERTAIN, isPossibleDuplicate: true })
  },
  'an older claim of the same epoch gives nothing back and gets no mark': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    await store.unclaim({ epoch, rows: [{ ...rowClaim(message), nextAt: NOW }] })
    const [again] = await claim(store, epoch)
    t.match(again, { id: message.id, key: message.key })
    t.ok(message.claim > 0 && (again?.claim ?? 0) > message.claim, 'each claim has a number of its own')
    await store.unclaim({ epoch, rows: [{ ...rowClaim(message), nextAt: NOW + 5, isPossibleDuplicate: true }] })
    t.match(await lookUp(store, message.id), { state: 'sending', isPossibleDuplicate: false })
    t.same(await store.markDotSent(epoch, [message]), { stale: [message.claim] })
    t.same(await store.markDotSent(epoch, [{ key: message.key + 1, claim: message.claim }]), { stale: [message.claim] })
    t.match(await store.beginEpoch(NOW, NOW), { recovered: 1, uncertain: 0 }, 'it was not marked')
  },
  'what was marked for an older claim whose lease lapsed stays in doubt for the newer one': async (t, { store }) => {
    const { epoch, marked } = await markedSecond(store)
    t.equal(await store.recoverLapsedLeases(NOW + LEASE, NOW, NOW), 2)
    const again = (await claim(store, epoch)).find(({ id }) => id === marked.id)
    t.ok((again?.claim ?? 0) > marked.claim)
    t.match(await lookUp(store, marked.id), { state: 'sending', isPossibleDuplicate: true })
    t.same(await store.markDotSent(epoch, [marked]), { stale: [marked.claim] })
    t.same(await store.markDotSent(epoch, [rowClaim(again)]), { stale: [] })
  },
  'claims with and without a route are counted together': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    await acceptOne(store, {}, { recipientDomain: 'new.org' })
    const terms = { now: NOW, epoch, leaseUntil: NOW + LEASE, limit: 9 }
    const [unrouted] = (await store.claimUnrouted({ ...terms, domain: 'new.org' })).messages
    t.equal(unrouted?.claim, message.claim + 1)
  },
  'the rows under lease of an epoch are read in pages': async (t, { store }) => {
    const { epoch, plain, marked } = await markedSecond(store)
    await acceptOne(store)
    const [later] = await claim(store, epoch, NOW + 5)
    const first = await store.leasedRows(epoch, null, 2)
    t.strictSame(first.rows, [
      { ...rowClaim(plain), id: plain.id, since: NOW, isMarked: false },
      { ...rowClaim(marked), id: marked.id, since: NOW, isMarked: true },
    ])
    const second = await store.leasedRows(epoch, first.next, 2)
    t.strictSame(second, { rows: [{ ...rowClaim(later), id: later?.id, since: NOW + 5, isMarked: false }], next: null })
    t.same((await store.leasedRows(epoch - 1, null, 9)).rows, [])
    await store.unclaim({ epoch, rows: [{ ...rowClaim(plain), nextAt: NOW + 9 }] })
    t.same(
      (await store.leasedRows(epoch, null, 9)).rows.map(({ id }) => id),
      [marked.id, later?.id],
    )
  },
  'a row given back says why it waits, and may change its route': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const nextAt = NOW + 60_000
    const rows = [{ ...rowClaim(message), nextAt, waitingFor: 'warmup_hour' as const, route: 'google' }]
    await store.unclaim({ epoch: epoch - 1, rows })
    t.equal((await lookUp(store, message.id))?.state, 'sending', 'a stale fence changes nothing')
    await store.unclaim({ epoch, rows })
    t.match(await lookUp(store, message.id), { state: 'queued', nextAttemptAt: nextAt, waitingFor: 'warmup_hour' })
    t.equal((await lookUp(store, message.id, nextAt))?.waitingFor, null, 'its time has come')
    t.match(await store.queueKeys(null, 9), { keys: [{ route: 'google', earliestAt: nextAt }] })
    const [again] = await claim(store, epoch, nextAt)
    t.match(again, { route: 'google' })
    await store.unclaim({ epoch, rows: [{ ...rowClaim(again), nextAt, isPossibleDuplicate: true }] })
    t.match(await lookUp(store, message.id), { isPossibleDuplicate: true, waitingFor: null }, 'its holder died')
  },
  'what is decided for the next try is kept with the row': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const record = {
      ...outcomeRecord(message, deferredUntil(NOW + 1)),
      keepIpUntil: NOW + 5,
      avoidIps: ['127.0.0.12', '127.0.0.13'],
    }
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [record] })
    t.match(await lookUp(store, message.id), { waitingFor: 'retry_delay', lastIp: '127.0.0.11' })
    const [again] = await claim(store, epoch, NOW + 1)
    t.match(again, { keepIpUntil: NOW + 5, avoidIps: record.avoidIps, lastIp: '127.0.0.11' })
    const other = outcomeRecord(
      { ...message, ...rowClaim(again) },
      { kind: 'path-failed', retryAt: NOW + 2 },
      { at: NOW + 1, ip: '127.0.0.14' },
    )
    await store.recordOutcomes({ epoch, now: NOW + 1, outcomes: [other] })
    const [third] = await claim(store, epoch, NOW + 2)
    t.match(third, { keepIpUntil: null, lastIp: '127.0.0.11' }, 'the IP that was paid for')
    t.same(third?.avoidIps, [])
  },
  'before any attempt the IP of a failed path is remembered': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const failure = outcomeRecord(message, { kind: 'path-failed', retryAt: NOW + 1 })
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [{ ...failure, keepIpUntil: 0 }] })
    t.match(await claim(store, epoch, NOW + 1), [{ attempts: 0, lastIp: '127.0.0.11', keepIpUntil: 0 }])
  },
  'a lease without an end and a row beyond its lifetime are seen': async (t, { store }) => {
    const { message } = await claimedMessage(store)
    await acceptOne(store, {}, { expiresAt: NOW + 1 })
    t.same(await store.watchQueue(NOW, NOW - 1), { overdue: 0, stuck: 0 })
    t.same(await store.watchQueue(NOW + 1, NOW), { overdue: 1, stuck: 1 })
    t.equal((await lookUp(store, message.id))?.nextAttemptAt, null)
  },
}
