/**
 * Dedicated IPs: what every store engine must keep of their state, days, audit, health and paths. Allowance and
 * statistics have files of their own.
 */
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import type { ServiceEvent } from '../../src/mail/event.ts'
import type { Store } from '../../src/store/store.ts'
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
  newMessage,
  NOW,
  outcomeRecord,
  rowClaim,
  webhookEndpoint,
} from './store-samples.ts'
import { ask, auditRecord, IP, ipChange, ipRecord, MIDNIGHT, warmingRecord } from './warmup-samples.ts'

const TODAY = new Date(NOW).toISOString().slice(0, 10)

/** The only grant of an ask for this many, and whether it was all. */
async function take(store: Store, at: number, count: number, rule: Parameters<typeof ask>[2] = {}): Promise<number> {
  const [reservation] = await store.reserveAllowance(ask(at, count, rule))
  return reservation?.granted ?? 0
}

function advancedEvent(): ServiceEvent {
  const data = { ip: IP, stage: '2' }
  return { id: newIdentifier('evt', NOW), kind: 'ip.warmup.advanced', at: NOW, data }
}

export const ips: Cases = {
  'records are added once and come back whole': async (t, { store }) => {
    const full = warmingRecord({
      ip: '127.0.0.12',
      formerState: 'warming',
      until: NOW + HOUR,
      reason: 'blocked',
      holdReason: 'few',
      daysHeld: 3,
      daysAtTarget: 2,
      pausedAt: [NOW - DAY, NOW],
      closedDay: TODAY,
      lastSentAt: NOW,
      version: 4,
    })
    await store.addIpRecords([ipRecord(), full])
    await store.addIpRecords([warmingRecord()])
    t.same(await store.ipRecords(), [ipRecord(), full])
  },
  'a change brings its audit and its events, and is refused when another came first': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await store.addWebhookEndpoint(webhookEndpoint({ events: ['ip.warmup.advanced'] }))
    await store.addIpRecords([ipRecord()])
    t.equal(await store.changeIp(ipChange(warmingRecord())), true)
    const change = ipChange(warmingRecord({ stage: 2, version: 1 }), {
      events: [advancedEvent()],
      audit: [auditRecord({ action: 'advance', day: TODAY, figures: { cap: 50, rate: 0.98, reason: null } })],
    })
    t.same(await Promise.all([store.changeIp(change), store.changeIp(change)]), [true, false])
    t.equal(await store.changeIp(ipChange(warmingRecord({ ip: '127.0.0.99' }))), false, 'no such IP')
    t.same(await store.ipRecords(), [warmingRecord({ stage: 2, version: 2 })])
    t.same(await store.warmupAudit(IP, 9), [...change.audit, auditRecord()], 'newest first, the refused left none')
    t.same(await store.warmupAudit(IP, 1), change.audit)
    const told = await store.claimWebhooks(webhookClaim(epoch))
    t.same(
      told.map(({ body }) => JSON.parse(Buffer.from(body).toString())),
      [{ event: 'ip.warmup.advanced', timestamp: NOW / 1_000, data: { ip: IP, stage: '2' } }],
    )
  },
  'of all who close a day at once, one does': async (t, { store }) => {
    await store.addIpRecords([warmingRecord()])
    const closers = Array.from({ length: 8 }, () =>
      store.changeIp(
        ipChange(warmingRecord({ stage: 2, closedDay: TODAY }), {
          audit: [auditRecord({ action: 'advance', day: TODAY })],
        }),
      ),
    )
    t.equal((await Promise.all(closers)).filter(Boolean).length, 1)
    t.equal((await store.warmupAudit(IP, 99)).length, 1)
  },
  'a change of stage changes the caps of the day, never below what is granted': async (t, { store }) => {
    await store.addIpRecords([warmingRecord()])
    await take(store, MIDNIGHT, 5, { cap: 500, isp: 'gmail' })
    await take(store, MIDNIGHT, 3, { cap: 500, isp: 'yahoo' })
    const caps = { day: TODAY, cap: 6, providerCaps: { gmail: 3 }, defaultProviderCap: 4 }
    t.equal(await store.changeIp(ipChange(warmingRecord(), { caps })), true)
    t.same(
      (await store.warmupDays(IP, TODAY)).map(({ isp, cap, granted }) => [isp, cap, granted]),
      [
        ['*', 8, 8],
        ['gmail', 5, 5],
        ['yahoo', 4, 3],
      ],
    )
    t.equal(await take(store, NOW, 1, { cap: 500, isp: 'yahoo' }), 0, 'the day is used up now')
    const more = { day: TODAY, cap: 100, providerCaps: { gmail: 50 }, defaultProviderCap: 30 }
    t.equal(await store.changeIp(ipChange(warmingRecord({ version: 1 }), { caps: more })), true)
    t.equal(await take(store, NOW, 1, { cap: 500, isp: 'yahoo' }), 1)
  },
  'mail that left meanwhile stays known': async (t, { store }) => {
    await store.addIpRecords([warmingRecord()])
    await take(store, NOW, 1)
    t.equal((await store.ipRecords())[0]?.lastSentAt, NOW)
    await store.changeIp(ipChange(warmingRecord({ lastSentAt: NOW - DAY })))
    t.equal((await store.ipRecords())[0]?.lastSentAt, NOW)
    const { epoch, message } = await claimedMessage(store)
    const record = outcomeRecord(message, delivered, { at: NOW + HOUR, ip: IP })
    await store.recordOutcomes({ epoch, now: NOW + HOUR, outcomes: [record] })
    t.equal((await store.ipRecords())[0]?.lastSentAt, NOW + HOUR)
  },
  'days are given from one on': async (t, { store }) => {
    for (const at of [MIDNIGHT - DAY, MIDNIGHT, MIDNIGHT + DAY]) await take(store, at, 1)
    const days = await store.warmupDays(IP, TODAY)
    t.same(
      days.map(({ day, isp }) => `${day} ${isp}`),
      [`${TODAY} *`, `${TODAY} gmail`, '2026-11-22 *', '2026-11-22 gmail'],
    )
    t.match(days[0], { cap: 50, granted: 1, refunded: 0, firstAttempts: 0, delivered: 0, complained: 0 })
    t.same(await store.warmupDays('127.0.0.99', TODAY), [])
  },
  'an outcome gives its grant back with it, and a message that goes back too': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    const other = await acceptOne(store)
    const [second] = await claim(store, epoch)
    await take(store, NOW, 2)
    const grant = { ip: IP, isp: 'gmail', day: TODAY, at: NOW }
    const failure = outcomeRecord(message, { kind: 'path-failed', retryAt: NOW }, { ip: IP, stage: 'connect' })
    const request = { epoch, now: NOW, outcomes: [{ ...failure, refund: grant }] }
    await store.recordOutcomes(request)
    await store.recordOutcomes(request)
    t.match(
      await store.warmupDays(IP, TODAY),
      [
        { granted: 1, refunded: 1 },
        { granted: 1, refunded: 1 },
      ],
      'once',
    )
    t.equal(second?.id, other)
    await store.unclaim({ epoch, rows: [{ ...rowClaim(second), nextAt: NOW, refund: grant }] })
    t.match(await store.warmupDays(IP, TODAY), [
      { granted: 0, refunded: 2 },
      { granted: 0, refunded: 2 },
    ])
  },
  'health is of the last minutes, of messages first tried in them': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    // Each to an address of its own: a complaint suppresses one.
    const addresses = ['a', 'b', 'c', 'd', 'e'].map((name) => ({ name: null, address: `${name}@example.com` }))
    await store.acceptMessages(acceptRequest({ messages: addresses.map((to) => newMessage({ to })) }))
    const messages = await claim(store, epoch)
    const what = [delivered, bounced, deferredUntil(NOW + 90 * MINUTE), deferredUntil(NOW + 90 * MINUTE), delivered]
    const outcomes = messages.map((message, index) => ({
      ...outcomeRecord(message, what[index] ?? delivered, { ip: IP, at: NOW }),
      category: index === 2 ? ('ip_block' as const) : null,
    }))
    await store.recordOutcomes({ epoch, now: NOW, outcomes })
    const complaint = { kind: 'complaint', feedbackType: 'abuse' } as const
    const messageId = messages[0]?.id ?? ''
    await store.recordReport({ messageId, now: NOW + 20 * MINUTE, sentSince: 0, fact: complaint })
    t.same(await store.ipHealth(IP, NOW - HOUR), { firstAttempts: 5, hard: 1, complained: 1, delivered: 2, blocks: 1 })
    t.same(await store.ipHealth(IP, NOW + 10 * MINUTE), {
      firstAttempts: 0,
      hard: 0,
      complained: 1,
      delivered: 0,
      blocks: 0,
    })
    const [later] = await claim(store, epoch, NOW + 90 * MINUTE)
    if (later === undefined) throw new Error('nothing was claimed')
    const retry = outcomeRecord(later, bounced, { ip: IP, at: NOW + 90 * MINUTE })
    await store.recordOutcomes({ epoch, now: NOW + 90 * MINUTE, outcomes: [retry] })
    t.match(await store.ipHealth(IP, NOW + 60 * MINUTE), { firstAttempts: 0, hard: 0 }, 'it was tried long ago')
  },
  'a message that expires counts for the IP it was tried from, if any': async (t, { store }) => {
    const { epoch, message } = await claimedMessage(store)
    await acceptOne(store)
    const record = outcomeRecord(message, deferredUntil(NOW + HOUR), { ip: IP })
    await store.recordOutcomes({ epoch, now: NOW, outcomes: [record] })
    t.equal((await store.expireDue(NOW + LIFETIME, 9)).length, 2)
    const { hours } = await store.ipStatistics(IP, NOW, NOW + LIFETIME + HOUR)
    t.equal(hours.length, 2)
    t.match(hours, [
      { attempts: 1, deferred: 1, bouncedSoft: 0 },
      { attempts: 0, bouncedSoft: 1 },
    ])
  },
  'captured and suppressed mail counts for nothing': async (t, { store }) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    await acceptOne(store, {}, { isCaptured: true })
    const { keys } = await store.queueKeys(null, 9)
    const asks = keys.map((key) => ({ key, limit: 9 }))
    const { messages } = await store.claimDue({ now: NOW, epoch, leaseUntil: NOW + HOUR, asks })
    t.equal(messages.length, 1)
    const outcomes = messages.map((message) => outcomeRecord(message, delivered, { ip: IP }))
    await store.recordOutcomes({ epoch, now: NOW, outcomes })
    const id = messages[0]?.id ?? ''
    const hit = { messageId: id, at: NOW + MINUTE, isMachine: false, client: null, link: null }
    await store.recordEngagement({ now: NOW + MINUTE, hits: [hit], machineAfterDelivery: 0 })
    t.same(await store.ipStatistics(IP, NOW - DAY, NOW + DAY), { hours: [], isps: [], p95: {} })
    t.same(await store.ipDays(IP, 9), [])
    t.same(await store.ispMix([IP], 0), {})
  },
  'history is forgotten in parts, hours by provider first': async (t, { store }) => {
    await store.addIpRecords([warmingRecord()])
    const { epoch } = await store.beginEpoch(NOW, NOW)
    for (const at of [MIDNIGHT - 40 * DAY, MIDNIGHT - DAY, MIDNIGHT]) {
      await take(store, at, 1)
      await acceptOne(store, { now: at })
      const [message] = await claim(store, epoch, at)
      if (message === undefined) throw new Error('nothing was claimed')
      await store.recordOutcomes({ epoch, now: at, outcomes: [outcomeRecord(message, delivered, { at, ip: IP })] })
      await store.changeIp(ipChange(warmingRecord(), { audit: [auditRecord({ at })] }))
    }
    const look = async () => {
      const { hours, isps } = await store.ipStatistics(IP, MIDNIGHT - 50 * DAY, MIDNIGHT + DAY)
      const days = await store.ipDays(IP, 9)
      return [hours.length, isps[0]?.delivered, days.length, (await store.warmupDays(IP, '')).length]
    }
    t.same(await look(), [3, 3, 3, 6])
    const request = { hoursBefore: MIDNIGHT, statisticsBefore: MIDNIGHT - 50 * DAY, auditBefore: 0, limit: 100 }
    t.equal(await store.forgetIpHistory(request), 2)
    t.same(await look(), [3, 3, 3, 6], 'the days have the sums')
    const older = { ...request, statisticsBefore: MIDNIGHT - 30 * DAY, auditBefore: NOW }
    t.equal(await store.forgetIpHistory({ ...older, limit: 1 }), 4)
    t.equal(await store.forgetIpHistory({ ...older, limit: 1 }), 2)
    t.equal(await store.forgetIpHistory(older), 0)
    t.same(await look(), [2, 2, 2, 4])
  },
  'states of paths are kept until they are forgotten': async (t, { store }) => {
    const one = { ip: IP, route: 'google', state: '{"step":2}', savedAt: NOW }
    const two = { ip: IP, route: 'yahoo', state: '{"step":1}', savedAt: NOW }
    await store.savePathStates([one, two])
    t.same(await store.loadPathStates(), [one, two])
    await store.savePathStates([
      { ...one, state: '{"step":3}', savedAt: NOW + 1 },
      { ...two, state: '' },
    ])
    t.same(await store.loadPathStates(), [{ ...one, state: '{"step":3}', savedAt: NOW + 1 }])
  },
}

const policy = {
  domain: 'example.com',
  id: '20261121',
  mode: 'enforce',
  mx: ['mx.example.com', '*.example.net'],
  fetchedAt: NOW,
  expiresAt: NOW + DAY,
} as const
const tlsResult = {
  day: TODAY,
  domain: 'example.com',
  policyType: 'sts',
  policy: ['version: STSv1', 'mode: enforce'],
  host: 'mx.example.com',
  ip: IP,
  result: 'success',
  count: 2,
} as const

export const outboundTls: Cases = {
  'a policy is kept, replaced, and still found when it is over': async (t, { store }) => {
    t.equal(await store.findStsPolicy('example.com'), null)
    await store.keepStsPolicy({ ...policy, mx: [...policy.mx] })
    t.same(await store.findStsPolicy('example.com'), policy)
    const next = { ...policy, id: '2', mode: 'none' as const, mx: [], fetchedAt: NOW + 1 }
    await store.keepStsPolicy(next)
    t.same(await store.findStsPolicy('example.com'), next)
    await store.keepStsPolicy({ ...next, domain: 'late.test', fetchedAt: NOW + 2 * DAY, expiresAt: NOW + 9 * DAY })
    t.equal(await store.findStsPolicy('example.com'), null, 'room was made for a later one')
  },
  'policies that were fetched long ago are named, the oldest first': async (t, { store }) => {
    for (const [index, domain] of ['c.test', 'a.test', 'b.test'].entries()) {
      await store.keepStsPolicy({ ...policy, mx: [], domain, fetchedAt: NOW + index })
    }
    const named = await store.stsPoliciesFetchedBefore(NOW + 2, 9)
    t.same(
      named.map(({ domain }) => domain),
      ['c.test', 'a.test'],
    )
    t.equal((await store.stsPoliciesFetchedBefore(NOW + 9, 1)).length, 1)
  },
  'a host that failed is remembered until its time, or until it is forgotten': async (t, { store }) => {
    const memory = { ip: IP, host: 'mx.example.com', until: NOW + 3 * DAY, reason: 'handshake failed' }
    const other = { ...memory, host: 'mx2.example.com', until: NOW + DAY }
    await store.keepPlainMemories([{ ...memory, until: NOW + 1 }, memory, other])
    t.same(await store.plainMemories(NOW), [other, memory], 'the first to end first')
    t.same(await store.plainMemories(NOW + DAY), [memory])
    await store.forgetPlainMemory(IP, 'mx2.example.com')
    await store.forgetPlainMemory(IP, memory.host)
    t.same(await store.plainMemories(NOW), [])
  },
  'results add up, each kind for itself': async (t, { store }) => {
    const result = { ...tlsResult, policy: [...tlsResult.policy] }
    const failed = { ...result, domain: 'a.test', result: 'certificate-expired', count: 1 }
    await store.addTlsResults([result, failed])
    await store.addTlsResults([
      { ...result, count: 5 },
      { ...result, day: '2026-11-22' },
    ])
    t.same(await store.tlsResults(TODAY), [failed, { ...result, count: 7 }])
  },
  'a domain is reported once for each day': async (t, { store }) => {
    const result = { ...tlsResult, policy: [] }
    await store.addTlsResults(
      ['b.test', 'a.test', 'b.test'].map((domain, index) => ({ ...result, domain, host: `mx${index}.test` })),
    )
    t.same(await store.tlsReportsDue(TODAY), ['a.test', 'b.test'])
    await store.noteTlsReport(TODAY, 'b.test')
    await store.noteTlsReport(TODAY, 'b.test')
    t.same(await store.tlsReportsDue(TODAY), ['a.test'])
    t.same(await store.tlsReportsDue('2026-11-20'), [])
    await store.addTlsResults([{ ...result, day: '2026-12-30' }])
    t.same(await store.tlsResults(TODAY), [], 'after two weeks it is gone')
  },
}
