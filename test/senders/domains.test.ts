/**
 * Sending domains: what may be added, which records they need, and what the DNS has to say before they send.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import t from 'tap'
import { SECOND, toUnixSeconds } from '../../src/base/clock.ts'
import { readDomainName } from '../../src/senders/domain-name.ts'
import { dkimSealContext, newSelector } from '../../src/senders/records/dkim-keys.ts'
import type { DomainView, RecordView } from '../../src/senders/domain-view.ts'
import { recordsOfTargets, requiredRecords } from '../../src/senders/records/required-records.ts'
import type { Store } from '../../src/store/store.ts'
import { until } from '../support/until.ts'
import { DMARC_REPORTS, HOSTNAME, publish, senderParts, TARGETS, testStore, type SenderParts } from './sender-parts.ts'

const record = (view: DomainView, purpose: string): RecordView => {
  const found = view.records.find((each) => each.purpose === purpose)
  if (found === undefined) throw new Error(`no record ${purpose}`)
  return found
}

/** Adds a domain and waits for its first check. */
async function added(parts: SenderParts, name = 'acme.com'): Promise<DomainView> {
  const { record: view } = await parts.domains.add({ name })
  await parts.domains.stop()
  return view
}

/** Past the time in which a verify call is only repeated. */
async function verifyAnew({ domains, clock }: SenderParts, name = 'acme.com'): Promise<DomainView> {
  await clock.advance(10 * SECOND)
  const { record: view, isRepeated } = await domains.verify(name)
  if (isRepeated) throw new Error('nothing was looked up')
  return view
}

/** Of the pool `default` and the one it spills to. */
const POOL_IPS = ['127.0.0.11', '127.0.0.12', '127.0.0.13']

const statuses = (view: DomainView): Record<string, string> =>
  Object.fromEntries(view.records.map(({ purpose, status }) => [purpose, status]))

t.test('names of domains', async (t) => {
  const good: [string, string][] = [
    ['acme.com', 'acme.com'],
    ['ACME.com.', 'acme.com'],
    [' mail.acme.co.uk ', 'mail.acme.co.uk'],
    ['bücher.example', 'xn--bcher-kva.example'],
    ['XN--BCHER-KVA.example', 'xn--bcher-kva.example'],
    ['sandbox.test', 'sandbox.test'],
    ['a.github.io', 'a.github.io'],
  ]
  for (const [text, name] of good) t.same(readDomainName(text), { ok: true, name })
  const bad: [string, RegExp][] = [
    ['', /empty/],
    ['.', /empty/],
    ['com', /two labels/],
    ['co.uk', /public suffix/],
    ['github.io', /public suffix/],
    ['*.acme.com', /wildcard/],
    ['acme.com\r\n', /not a valid/],
    ['127.0.0.1', /IP address/],
    ['[127.0.0.1]', /IP address/],
    ['2001:db8::1', /IP address/],
    ['acme..com', /valid/],
    ['acme.com..', /valid/],
    ['-acme.com', /valid/],
    ['ac me.com', /valid/],
    ['acme_.com', /valid/],
    [`${'a'.repeat(64)}.com`, /valid/],
    [`${'a.'.repeat(127)}com`, /valid/],
    ['acme.com\r\nx', /valid/],
    ['a\0.com', /valid/],
    ['ac\u00adme.com', /valid/],
    ['__proto__', /valid/],
    ['https://acme.com', /valid/],
    ['x@acme.com', /valid/],
    ['acme.com:25', /valid/],
    ['acme.com/x', /valid/],
    [`${'a'.repeat(60)}.`.repeat(5) + 'com', /valid/],
    ['localhost', /two labels/],
    ['xn--a.com', /valid/],
  ]
  for (const [text, problem] of bad) t.match(readDomainName(text), { ok: false, problem }, JSON.stringify(text))
})

t.test('a new domain has a key of its own and the records to publish', async (t) => {
  const parts = await senderParts(t)
  const { record: view, isNew } = await parts.domains.add({ name: 'ACME.com.' })
  t.ok(isNew)
  t.match(view, {
    domain: 'acme.com',
    status: 'pending',
    verified: false,
    can_send: false,
    verified_at: null,
    last_checked_at: null,
    created_at: toUnixSeconds(parts.clock.now()),
    return_path: 'bounces.acme.com',
    ip_pool: 'default',
    next_check_at: toUnixSeconds(parts.clock.now()) + 300,
    allow_subdomains: false,
    tracking: { opens: true, clicks: false, domain: 't.acme.com', tls: 'pending' },
  })
  const stored = await parts.store.findDomain('acme.com')
  const key = stored?.keys[0]
  if (stored === null || key === undefined) throw new Error('not stored')
  t.match(key.selector, /^ps[0-9a-z]{4}$/)
  const shown = ({ purpose, required, via, type, name, host, value }: RecordView) => [
    purpose,
    required,
    via,
    type,
    name,
    host,
    value,
  ]
  t.same(view.records.map(shown), [
    [
      'dkim',
      true,
      undefined,
      'TXT',
      `${key.selector}._domainkey.acme.com`,
      `${key.selector}._domainkey`,
      `v=DKIM1; k=rsa; p=${key.publicKey}`,
    ],
    ['return_path', true, undefined, 'CNAME', 'bounces.acme.com', 'bounces', TARGETS.return_path],
    ['spf', true, 'return_path', 'TXT', 'bounces.acme.com', 'bounces', `v=spf1 include:${TARGETS.spf} -all`],
    ['dmarc', false, undefined, 'TXT', '_dmarc.acme.com', '_dmarc', `v=DMARC1; p=none; rua=mailto:${DMARC_REPORTS}`],
    [
      'dmarc_reports',
      false,
      undefined,
      'TXT',
      'acme.com._report._dmarc.mail.example.net',
      'acme.com._report._dmarc.mail',
      'v=DMARC1',
    ],
    ['tracking', false, undefined, 'CNAME', 't.acme.com', 't', TARGETS.tracking],
  ])
  for (const each of view.records) t.match(each, { status: 'pending', found: [], error: null, hint: null, ttl: 3600 })
  const { value, value_chunks: chunks = [] } = record(view, 'dkim')
  t.equal(chunks.join(''), value)
  t.same(
    chunks.map((chunk) => chunk.length),
    [255, value.length - 255],
  )
  t.same(
    record(view, 'spf').evaluated,
    POOL_IPS.map((ip) => ({ ip, result: 'none' })),
  )

  const pem = parts.keyRing.open(key.sealedPrivateKey, dkimSealContext('acme.com', key.selector))
  const ours = createPublicKey({ key: Buffer.from(key.publicKey, 'base64'), format: 'der', type: 'spki' })
  t.ok(createPublicKey(createPrivateKey(pem)).equals(ours), 'the sealed private key belongs to the published one')
  t.equal(ours.asymmetricKeyDetails?.modulusLength, 2048)
  t.throws(() => parts.keyRing.open(key.sealedPrivateKey, dkimSealContext('evil.com', key.selector)))
  t.notOk(JSON.stringify(view).includes('PRIVATE'), 'the private key is not shown')

  const again = await parts.domains.add({ name: 'acme.com', selector: 'other', returnPath: 'other' })
  t.notOk(again.isNew)
  t.equal(record(again.record, 'dkim').name, `${key.selector}._domainkey.acme.com`, 'unchanged')
  await parts.domains.stop()
})

t.test('labels and pool can be chosen; every mistake is listed', async (t) => {
  const parts = await senderParts(t)
  const { record: view } = await parts.domains.add({
    name: 'news.acme.co.uk',
    returnPath: 'RP',
    selector: 's-1',
    ipPool: 'cold',
  })
  t.match(view, { return_path: 'rp.news.acme.co.uk', ip_pool: 'cold' })
  t.match(record(view, 'dkim'), { name: 's-1._domainkey.news.acme.co.uk', host: 's-1._domainkey.news' })
  const wrong = { name: 'com', returnPath: 'a.b', selector: '-x', ipPool: 'constructor' }
  await t.rejects(parts.domains.add(wrong), {
    code: 'invalid_request',
    details:
      'domain: needs at least two labels; return_path: is not one label of letters, digits and hyphens; ' +
      'dkim_selector: is not one label of letters, digits and hyphens; ' +
      'ip_pool: there is no such pool; known are default, spare, cold, off',
  })
  for (const [chosen, field] of [
    [{ returnPath: 'Mail' }, 'return_path'],
    [{ trackingDomain: 'mail' }, 'tracking_domain'],
  ] as const) {
    const details = `${field}: mail.example.net is the host name of this server, which cannot be an alias`
    await t.rejects(parts.domains.add({ name: 'example.net', ...chosen }), { code: 'invalid_request', details })
  }
  for (const selector of ['', 'a_b', 'a b', 'x'.repeat(64), 'a\r\n']) {
    const adding = parts.domains.add({ name: 'acme.com', selector })
    await t.rejects(adding, { code: 'invalid_request' }, JSON.stringify(selector))
  }
  t.equal(await parts.store.findDomain('acme.com'), null)
  t.equal(new Set(Array.from({ length: 50 }, () => newSelector())).size, 50, 'selectors differ')
  await parts.domains.stop()
})

t.test('a domain verifies when all is published, and says what the DNS held', async (t) => {
  const parts = await senderParts(t)
  t.equal((await added(parts)).status, 'pending')
  const before = await verifyAnew(parts)
  const checkedAt = toUnixSeconds(parts.clock.now())
  t.match(before, { verified: false, can_send: false, status: 'pending', last_checked_at: checkedAt })
  t.same(statuses(before), {
    dkim: 'pending',
    return_path: 'pending',
    spf: 'pending',
    dmarc: 'pending',
    dmarc_reports: 'pending',
    tracking: 'pending',
  })
  t.match(record(before, 'dkim').error, /^no TXT record at ps\w{4}\._domainkey\.acme\.com$/)

  await publish(parts, 'acme.com')
  const after = await verifyAnew(parts)
  t.match(after, { verified: true, can_send: true, status: 'verified', verified_at: checkedAt + 10 })
  t.same(statuses(after), {
    dkim: 'verified',
    return_path: 'verified',
    spf: 'verified',
    dmarc: 'verified',
    dmarc_reports: 'verified',
    tracking: 'verified',
  })
  t.same(
    record(after, 'spf').evaluated,
    POOL_IPS.map((ip) => ({ ip, result: 'pass' })),
  )
  t.same(record(after, 'return_path').found.at(0), TARGETS.return_path)
  t.same(record(after, 'dkim').found, [record(after, 'dkim').value])
  t.same(await parts.domains.find('ACME.COM'), after, 'what was found is stored')
})

t.test('the first check runs by itself', async (t) => {
  const parts = await senderParts(t)
  await parts.domains.add({ name: 'acme.com' })
  await until('the domain was checked', async () => (await parts.domains.find('acme.com'))?.last_checked_at)
  t.ok(parts.zone.queries.some((query) => query.startsWith('TXT ps')))
  await parts.domains.stop()
})

t.test('a first check that fails is logged and harms nothing', async (t) => {
  const real = await testStore(t)
  const store: Store = { ...real, recordDomainCheck: () => Promise.reject(new Error('disk full')) }
  const parts = await senderParts(t, { store })
  await added(parts)
  t.match(parts.log.join(''), /"error":"disk full".*domain check failed/)
  await t.rejects(parts.domains.verify('acme.com'), /disk full/)
  await t.rejects(parts.domains.verify('acme.com'), /disk full/, 'a failure is not kept as a result')
})

t.test('the published key is compared as a key, not as text', async (t) => {
  const parts = await senderParts(t)
  const view = await added(parts)
  await publish(parts, 'acme.com')
  const { name, value } = record(view, 'dkim')
  const key = value.slice(value.indexOf('p=') + 2)
  const good = [
    `p=${key}`,
    `k=rsa; p=${key}; v=DKIM1`,
    `v=DKIM1;k=rsa;p=${key.match(/.{1,60}/g)?.join(' ')};`,
    `v=DKIM1; p=${key}; n=x`,
  ]
  for (const text of good) {
    parts.zone.set(name, { TXT: [text] })
    t.match(record(await verifyAnew(parts), 'dkim'), { status: 'verified', error: null }, text.slice(0, 40))
  }
  const other = generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey.export({ type: 'spki', format: 'der' })
  const bad: [string[], RegExp][] = [
    [[`v=DKIM1; k=rsa; p=${other.toString('base64')}`], /another key/],
    [[`v=DKIM1; k=rsa; p=${key.slice(0, 200)}`], /no DKIM key/],
    [['v=DKIM1; k=rsa; p='], /no DKIM key/],
    [['hello'], /no DKIM key/],
    [[value, 'other'], /2 TXT records/],
  ]
  for (const [texts, error] of bad) {
    parts.zone.set(name, { TXT: texts })
    t.match(record(await verifyAnew(parts), 'dkim'), { status: 'failed', error }, String(error))
  }
})

t.test('spf must pass for every IP that the domain may leave from', async (t) => {
  const parts = await senderParts(t)
  await added(parts)
  await publish(parts, 'acme.com')
  const set = (text: string): void => parts.zone.set(TARGETS.spf, { TXT: [text] })
  set('v=spf1 ip4:127.0.0.11 ip4:127.0.0.12 -all')
  const view = await verifyAnew(parts)
  t.equal(view.verified, false)
  t.match(record(view, 'spf'), { status: 'failed', error: 'SPF of bounces.acme.com: fail for 127.0.0.13' })
  t.same(
    record(view, 'spf').evaluated?.map(({ result }) => result),
    ['pass', 'pass', 'fail'],
  )
  t.equal(record(view, 'return_path').status, 'verified', 'the CNAME is right')

  const endless = `v=spf1 ${'ip4:10.0.0.1 '.repeat(700)}ip4:127.0.0.0/28 -all`
  for (const wrong of ['v=spf1 +all typo', 'v=spf2 -all', 'v=spf1 ?all', endless]) {
    set(wrong)
    t.equal(record(await verifyAnew(parts), 'spf').status, 'failed', wrong.slice(0, 40))
  }
  parts.zone.set(TARGETS.spf, 'SERVFAIL')
  t.equal(record(await verifyAnew(parts), 'spf').status, 'temporary_failure')
  set('v=spf1 ip4:127.0.0.0/28 -all')
  t.ok((await verifyAnew(parts)).verified)
})

t.test('the return path may have records of its own', async (t) => {
  const parts = await senderParts(t)
  await added(parts)
  await publish(parts, 'acme.com')
  const spf = 'v=spf1 ip4:127.0.0.0/28 -all'
  const spfRecord = `v=spf1 include:${TARGETS.spf} -all`
  const set = (records: Parameters<typeof parts.zone.set>[1]): void => parts.zone.set('bounces.acme.com', records)
  set({ MX: [`10 ${HOSTNAME}`], TXT: [spf] })
  t.match(statuses(await verifyAnew(parts)), { return_path: 'verified', spf: 'verified' }, 'its MX is this server')
  set({ MX: ['10 elsewhere.example'], TXT: [spf] })
  t.match(statuses(await verifyAnew(parts)), { return_path: 'verified', spf: 'verified' }, 'its SPF names our IPs')
  parts.zone.set(TARGETS.spf, 'SERVFAIL')
  for (const records of [{ TXT: [spfRecord] }, { MX: ['10 elsewhere.example'], TXT: [spfRecord] }]) {
    set(records)
    const unanswered = { return_path: 'temporary_failure', spf: 'temporary_failure' }
    t.match(statuses(await verifyAnew(parts)), unanswered, 'without an answer for its SPF it is not wrong')
  }
  await publish(parts, 'acme.com')
  set({ CNAME: 'elsewhere.example' })
  const view = await verifyAnew(parts)
  t.match(record(view, 'return_path'), {
    status: 'failed',
    found: ['elsewhere.example'],
    hint: `it must be a CNAME for ${TARGETS.return_path}`,
  })
})

t.test('dmarc is recommended only', async (t) => {
  const parts = await senderParts(t)
  await added(parts)
  await publish(parts, 'acme.com')
  const cases: [string[], string][] = [
    [[], 'pending'],
    [['v=DMARC1; p=wrong'], 'failed'],
    [['v=DMARC1; p=none', 'v=DMARC1; p=reject'], 'failed'],
    [['hello', 'v=DMARC1; p=reject; adkim=s'], 'verified'],
  ]
  for (const [texts, status] of cases) {
    parts.zone.set('_dmarc.acme.com', { TXT: texts })
    const view = await verifyAnew(parts)
    t.equal(record(view, 'dmarc').status, status, texts.join(' '))
    t.ok(view.verified)
  }
  parts.zone.set('_dmarc.acme.com', 'SERVFAIL')
  t.equal(record(await verifyAnew(parts), 'dmarc').status, 'temporary_failure')
})

t.test('a name that the DNS console doubled is pointed out', async (t) => {
  const parts = await senderParts(t)
  const view = await added(parts)
  await publish(parts, 'acme.com')
  const { name, value } = record(view, 'dkim')
  parts.zone.set(name, undefined)
  parts.zone.set(`${name}.acme.com`, { TXT: [value] })
  parts.zone.set('bounces.acme.com', undefined)
  parts.zone.set('bounces.acme.com.acme.com', { CNAME: TARGETS.return_path })
  const after = await verifyAnew(parts)
  const hint = (doubled: string): string =>
    `found at ${doubled}: the DNS provider adds the domain itself; ` +
    `enter the name as ${doubled.replace(/\.acme\.com.*/, '')}`
  t.equal(record(after, 'dkim').hint, hint(`${name}.acme.com`))
  t.equal(record(after, 'return_path').hint, hint('bounces.acme.com.acme.com'))
})

t.test('neither trouble nor one wrong answer takes "verified" away; the records show both', async (t) => {
  const parts = await senderParts(t)
  const { name } = record(await added(parts), 'dkim')
  await publish(parts, 'acme.com')
  const verifiedAt = (await verifyAnew(parts)).verified_at
  parts.zone.set(name, 'SERVFAIL')
  let view = await verifyAnew(parts)
  t.match(view, { status: 'verified', can_send: true, verified_at: verifiedAt })
  t.equal(record(view, 'dkim').status, 'temporary_failure')
  parts.zone.set(name, undefined)
  view = await verifyAnew(parts)
  t.match(view, { status: 'verified', can_send: true, verified_at: verifiedAt })
  t.equal(record(view, 'dkim').status, 'failed', 'it was seen before')
  t.equal((await parts.domains.requireVerified('acme.com')).name, 'acme.com')
})

t.test('verify asks anew, but within 10 s of a call only once', async (t) => {
  const parts = await senderParts(t)
  await added(parts)
  const first = await parts.domains.verify('acme.com')
  t.notOk(first.isRepeated, 'the check in the background does not count')
  await publish(parts, 'acme.com')
  const asked = parts.zone.queries.length
  await parts.clock.advance(10 * SECOND - 1)
  const repeated = await parts.domains.verify('Acme.com')
  t.same(repeated, { record: first.record, isRepeated: true })
  t.equal(parts.zone.queries.length, asked, 'nothing was looked up')
  await parts.clock.advance(1)
  const together = await Promise.all([parts.domains.verify('acme.com'), parts.domains.verify('acme.com')])
  t.same(
    together.map(({ isRepeated }) => isRepeated),
    [false, true],
  )
  t.ok(together.every(({ record: view }) => view.verified))
  await t.rejects(parts.domains.verify('nope.com'), { code: 'not_found', details: 'domain nope.com' })
  await t.rejects(parts.domains.verify('..'), { code: 'not_found' })
  t.equal(await parts.domains.find('nope.com'), null)
})

t.test('a check ends within 10 s; what was not answered is a temporary failure', async (t) => {
  const parts = await senderParts(t)
  const { name } = record(await added(parts), 'dkim')
  await publish(parts, 'acme.com')
  parts.zone.set(name, 'TIMEOUT')
  await parts.clock.advance(10 * SECOND)
  const asked = parts.zone.queries.length
  const verifying = parts.domains.verify('acme.com')
  await until('the question is out', () => parts.zone.queries.slice(asked).some((query) => query === `TXT ${name}`))
  await parts.clock.advance(9 * SECOND)
  const { record: view } = await verifying
  t.match(record(view, 'dkim'), { status: 'temporary_failure', error: 'no answer within 9 s' })
  t.equal(view.status, 'pending')
})

t.test('only a verified domain may send, and the refusal says what is missing', async (t) => {
  const parts = await senderParts(t)
  await t.rejects(parts.domains.requireVerified('acme.com'), {
    code: 'domain_not_verified',
    details: 'acme.com: not a domain of this server; POST /domains adds it',
  })
  const { name } = record(await added(parts), 'dkim')
  await t.rejects(parts.domains.requireVerified('acme.com'), {
    code: 'domain_not_verified',
    details: `acme.com: dkim record missing at ${name}; POST /domains/acme.com/verify checks again`,
  })
  await publish(parts, 'acme.com')
  await verifyAnew(parts)
  t.equal((await parts.domains.requireVerified('acme.com')).name, 'acme.com')
  await t.rejects(parts.domains.requireVerified('mail.acme.com'), { code: 'domain_not_verified' }, 'no subdomains')
  await t.rejects(parts.domains.requireVerified('__proto__'), { code: 'domain_not_verified' })
  const again = await senderParts(t, { store: parts.store })
  t.equal((await again.domains.requireVerified('acme.com')).state, 'verified', 'also after a restart')
})

t.test('what our DNS instructions ask for, as a DNS would answer it', async (t) => {
  const parts = await senderParts(t)
  const view = await added(parts, 'mail.acme.com')
  const { name, value } = record(view, 'dkim')
  const answers = (asked: string) => parts.domains.publishedRecords(asked)
  t.same(await answers(name.toUpperCase()), [{ type: 'TXT', name, value }])
  t.same(
    await answers('bounces.mail.acme.com'),
    [{ type: 'CNAME', name: 'bounces.mail.acme.com', value: TARGETS.return_path }],
    'a CNAME has nothing beside it',
  )
  t.match(await answers('_dmarc.mail.acme.com'), [{ type: 'TXT', value: /^v=DMARC1/ }])
  t.same(await answers(TARGETS.return_path), [
    { type: 'MX', name: TARGETS.return_path, value: `10 ${HOSTNAME}` },
    { type: 'TXT', name: TARGETS.return_path, value: `v=spf1 include:${TARGETS.spf} -all` },
  ])
  t.match(await answers(TARGETS.spf), [{ type: 'TXT', value: /^v=spf1 ip4:127\.0\.0\.11 .* ip4:127\.0\.0\.15 -all$/ }])
  const others = ['acme.com', 'mail.acme.com', 'x._domainkey.mail.acme.com', 'com', '', '*.', 'bounces.acme.com']
  for (const other of others) {
    t.same(await answers(other), [], other)
  }
})

t.test('records are pure facts about a domain and this server', async (t) => {
  const parts = await senderParts(t)
  await added(parts)
  const domain = await parts.store.findDomain('acme.com')
  if (domain === null) throw new Error('not stored')
  const facts = { hostname: HOSTNAME, targets: TARGETS, dmarcReportAddress: DMARC_REPORTS }
  t.same(requiredRecords(domain, facts), requiredRecords(domain, facts))
  const [spf] = recordsOfTargets(facts, ['203.0.113.10', '2001:db8::1', '203.0.113.10'], TARGETS.spf)
  t.equal(spf?.value, 'v=spf1 ip4:203.0.113.10 ip6:2001:db8::1 -all')
})
