/**
 * What reports say of a domain, as it is shown: whose the sources are, when the policy may become stricter; the record
 * that lets reports come here; and what the store keeps of it, and for how long.
 */
import t from 'tap'
import { DAY } from '../../src/base/clock.ts'
import { dayAfter, utcDay } from '../../src/base/utc-day.ts'
import type { DmarcSource } from '../../src/mail/authentication/authentication-report.ts'
import type { Store } from '../../src/store/store.ts'
import { domainRecord } from '../store/store-samples.ts'
import { DMARC_REPORTS, HOSTNAME, publish, senderParts, testStore } from './sender-parts.ts'

const source = (changes: Partial<DmarcSource> = {}): DmarcSource => {
  const { messages = 10 } = changes
  const passed = changes.passed ?? messages
  const all = { headerFrom: 'acme.com', ip: '127.0.0.11', messages, passed, dkimPassed: passed, spfPassed: passed }
  return { ...all, quarantined: 0, rejected: 0, ...changes }
}

let reports = 0
const count = (store: Store, day: string, sources: DmarcSource[], reporter = 'google.com') =>
  store.recordDmarcReport({ reporter, reportId: `r${++reports}`, day, now: 0, sources })

const WHOLE = { from: '2000-01-01', to: '2100-01-01', isWhole: false }

t.test('addresses of the pools and of this machine are known, others are not', async (t) => {
  const { domains, store, clock } = await senderParts(t)
  await domains.add({ name: 'acme.com' })
  const today = utcDay(clock.now())
  const ips = ['127.0.0.11', '127.0.0.1', '203.0.113.9', '2001:db8::1', '']
  await count(
    store,
    today,
    ips.map((ip, index) => source({ ip, messages: 50 - index, passed: ip === '' ? 1 : 50 - index })),
  )
  const { dmarc, policy, hint, tls } = await domains.authentication('ACME.com', WHOLE)
  t.same(
    dmarc.sources.map(({ ip, known, messages, failed }) => [ip, known, messages, failed]),
    [
      ['127.0.0.11', true, 50, 0],
      ['127.0.0.1', true, 49, 0],
      ['203.0.113.9', false, 48, 0],
      ['2001:db8::1', false, 47, 0],
      [null, false, 46, 45],
    ],
  )
  t.match(dmarc, { reports: 1, reporters: ['google.com'], messages: 240, passed: 195, failed: 45 })
  t.same({ policy, hint, tls }, { policy: null, hint: null, tls: [] })
  const tls1 = { reporter: 'x', reportId: '1', day: today, now: 0, ownNames: [HOSTNAME] }
  const result = (policyDomain: string) => ({ policyDomain, result: 'success', sessions: 3 })
  await store.recordTlsReport({ ...tls1, results: [result('bounces.acme.com'), result(HOSTNAME)] })
  t.match((await domains.authentication('acme.com', WHOLE)).tls, { length: 1 })
  const [own, host] = (await domains.authentication('acme.com', { ...WHOLE, isWhole: true })).tls
  t.match(
    [own, host],
    [
      { domain: 'acme.com', successful: 3, failed: 0 },
      { domain: HOSTNAME, successful: 3 },
    ],
  )
  await t.rejects(domains.authentication('other.com', WHOLE), { code: 'not_found' })
  await domains.stop()
})

t.test('after 30 clean days the policy may become stricter', async (t) => {
  const parts = await senderParts(t)
  const { domains, store, clock, zone } = parts
  await domains.add({ name: 'acme.com' })
  await domains.stop()
  await publish(parts, 'acme.com')
  await domains.verify('acme.com')
  const today = utcDay(clock.now())
  const hint = async () => (await domains.authentication('acme.com', WHOLE)).hint
  for (let days = 1; days < 20; days++) await count(store, dayAfter(today, -days), [source()])
  t.equal(await hint(), null, 'too few days were reported')
  await count(store, dayAfter(today, -25), [source()])
  t.equal(await hint(), '30 days are clean: publish p=quarantine in place of p=none at _dmarc.acme.com')
  zone.set('_dmarc.acme.com', { TXT: [`v=DMARC1; p=quarantine; sp=none; rua=mailto:${DMARC_REPORTS}`] })
  await clock.advance(DAY / 24)
  await domains.verify('acme.com')
  t.match(await hint(), /publish p=reject in place of p=quarantine/)
  await count(store, dayAfter(today, -40), [source({ passed: 9 })])
  t.match(await hint(), /p=reject/, 'what failed before does not count')
  await count(store, dayAfter(today, -25), [source({ passed: 9 })])
  t.equal(await hint(), null, 'one message failed')
  await domains.stop()
})

t.test('the record that lets reports come here: of the domain, or one for all; never required', async (t) => {
  const parts = await senderParts(t)
  const { domains, zone, clock } = parts
  await domains.add({ name: 'acme.com' })
  await domains.stop()
  await publish(parts, 'acme.com')
  const name = `acme.com._report._dmarc.${HOSTNAME}`
  const check = async () => {
    await clock.advance(DAY / 24)
    const { record } = await domains.verify('acme.com')
    const found = record.records.find(({ purpose }) => purpose === 'dmarc_reports')
    return { ...found, isVerified: record.verified }
  }
  t.match(await check(), { name, status: 'verified', required: false, zone: 'server', isVerified: true })
  zone.set(name, { TXT: ['v=spf1 -all'] })
  t.match(await check(), { status: 'failed', error: /begins with v=DMARC1/, isVerified: true })
  zone.set(name, undefined)
  const hint = `the operator of this server publishes it; a record at *._report._dmarc.${HOSTNAME} serves all domains`
  t.match(await check(), { status: 'failed', error: `no TXT record at ${name}`, hint, isVerified: true })
  zone.set(name, 'SERVFAIL')
  t.match(await check(), { status: 'temporary_failure', isVerified: true })
  t.notMatch(await domains.zoneFile('acme.com'), /_report/, 'it is not in the zone of the owner')
  t.same(await domains.publishedRecords(name), [{ type: 'TXT', name, value: 'v=DMARC1' }])
  const own = await domains.add({ name: 'news.example.net' })
  t.notOk(
    own.record.records.some(({ purpose }) => purpose === 'dmarc_reports'),
    'the server is of the same owner',
  )
  await domains.stop()
})

t.test('rows of a domain and day are bounded, whoever sends what', async (t) => {
  const store = await testStore(t)
  await store.addDomain(domainRecord({ name: 'acme.com' }), null)
  const many = (from: number) =>
    Array.from({ length: 600 }, (_, index) => source({ ip: `10.0.${(from + index) >> 8}.${(from + index) & 255}` }))
  for (const from of [0, 600, 1_200]) await count(store, '2026-11-20', many(from), `reporter ${from}`)
  const { days, sources } = await store.dmarcFindings('acme.com', '2026-11-20', '2026-11-20')
  t.same(days, [{ day: '2026-11-20', messages: 18_000, passed: 18_000 }], 'all are counted')
  t.match(sources[0], { ip: '', messages: 8_000 }, 'those beyond the bound together')
  t.equal(sources.length, 200)
  const results = new Map<string, number>()
  for (let number = 0; number < 510; number++) {
    const result = await count(store, '2026-11-21', [source()], 'flood')
    results.set(result, (results.get(result) ?? 0) + 1)
  }
  t.same(
    [...results],
    [
      ['recorded', 500],
      ['too-many', 10],
    ],
  )
  t.equal(await count(store, '2026-11-22', [source()]), 'recorded')
})

t.test('days go when their time is over, and all of them with the purge of the domain', async (t) => {
  const store = await testStore(t)
  for (const name of ['acme.com', 'other.com']) await store.addDomain(domainRecord({ name }), null)
  const both = [source(), source({ headerFrom: 'other.com' })]
  for (const day of ['2025-01-01', '2026-11-20', '2026-11-21']) {
    await count(store, day, both)
    const results = [{ policyDomain: 'acme.com', result: 'success', sessions: 1 }]
    await store.recordTlsReport({ reporter: 'x', reportId: 'x', day, now: 0, results, ownNames: [] })
  }
  t.equal(await store.forgetAuthenticationReports('2026-11-20', 100), 6)
  t.equal(await store.forgetAuthenticationReports('2026-11-20', 100), 0)
  const days = async (name: string) => (await store.dmarcFindings(name, WHOLE.from, WHOLE.to)).days.length
  t.same([await days('acme.com'), await days('other.com')], [2, 2])
  await store.removeDomain({ name: 'other.com', now: 1, purge: false })
  t.equal(await days('other.com'), 2)
  t.equal(await count(store, '2026-11-21', [source({ headerFrom: 'other.com' })]), 'unknown-domain')
  await store.removeDomain({ name: 'acme.com', now: 1, purge: true })
  t.same([await days('acme.com'), await days('other.com')], [0, 2])
  t.same(await store.tlsDays('acme.com', WHOLE.from, WHOLE.to), [])
})
