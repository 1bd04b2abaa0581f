/**
 * What happens to a sending domain after it was added: keys that take turns, other settings, subdomains, its end, and
 * the checks that come by themselves.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import t, { type Test } from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { dkimSealContext } from '../../src/senders/records/dkim-keys.ts'
import type { DomainView, RecordView } from '../../src/senders/domain-view.ts'
import type { DomainRecord } from '../../src/store/records/sender-records.ts'
import type { Store } from '../../src/store/store.ts'
import { until } from '../support/until.ts'
import { HOSTNAME, publish, senderParts, TARGETS, testStore, type SenderParts } from './sender-parts.ts'

const dkimRecords = ({ records }: DomainView): RecordView[] => records.filter(({ purpose }) => purpose === 'dkim')
const rolesOf = (view: DomainView): string[] =>
  dkimRecords(view).map(({ role = 'active', required }) => `${role} ${required}`)

/** Added, published and verified. */
async function verified(parts: SenderParts, name = 'acme.com', fields: object = {}): Promise<DomainView> {
  await parts.domains.add({ name, ...fields })
  await until('the first check', async () => (await parts.domains.find(name))?.last_checked_at)
  await publish(parts, name)
  return verify(parts, name)
}

async function verify({ domains, clock }: SenderParts, name = 'acme.com'): Promise<DomainView> {
  await clock.advance(10 * SECOND)
  return (await domains.verify(name)).record
}

t.test('a rotation: the next key is published, seen twice, takes over, and the old one goes', async (t) => {
  const parts = await senderParts(t)
  const { domains, clock, zone, store } = parts
  const [before] = dkimRecords(await verified(parts))
  const started = await domains.rotateDkim('ACME.com')
  t.same(rolesOf(started), ['active true', 'next false'])
  const [active, next] = dkimRecords(started)
  t.equal(active?.name, before?.name)
  t.not(next?.value, before?.value)
  t.notOk(JSON.stringify(started).includes('PRIVATE'))
  await t.rejects(domains.rotateDkim('acme.com'), { code: 'conflict' }, 'one at a time')
  await verified(parts, 'twice.com')
  const together = await Promise.allSettled([domains.rotateDkim('twice.com'), domains.rotateDkim('twice.com')])
  t.same(
    together.map(({ status }) => status),
    ['fulfilled', 'rejected'],
    'also when they come together',
  )
  await t.rejects(domains.rotateDkim('nope.com'), { code: 'not_found' })

  const unpublished = await verify(parts)
  t.equal(unpublished.status, 'verified', 'nobody has to hurry')
  t.match(dkimRecords(unpublished), [{ status: 'verified' }, { status: 'pending' }])
  t.equal((unpublished.next_check_at ?? 0) - (unpublished.last_checked_at ?? 0), 300, 'it is looked for')

  await publish(parts, 'acme.com')
  t.same(rolesOf(await verify(parts)), ['active true', 'next false'], 'seen once')
  await clock.advance(9 * MINUTE)
  t.same(rolesOf(await verify(parts)), ['active true', 'next false'], 'too soon')
  await clock.advance(MINUTE)
  const switched = await verify(parts)
  t.same(rolesOf(switched), ['active true', 'retiring false'])
  const retireAt = (switched.last_checked_at ?? 0) + 604_800
  t.match(dkimRecords(switched), [{ name: next?.name }, { name: active?.name, retire_at: retireAt }])
  t.match(parts.log.join(''), /"role":"active".*DKIM key changed its role/)
  t.equal(switched.status, 'verified')

  zone.set(active?.name ?? '', undefined)
  await clock.advance(7 * DAY)
  t.same(rolesOf(await verify(parts)), ['active true'], 'the old one is gone')
  t.same(
    (await store.findDomain('acme.com'))?.keys.map(({ selector }) => selector),
    [next?.name.split('.')[0]],
  )
})

t.test('an Ed25519 key stands beside the RSA one, signs once it is published, and rotates with it', async (t) => {
  const parts = await senderParts(t, { ed25519: true })
  const { record: view } = await parts.domains.add({ name: 'acme.com' })
  await parts.domains.stop()
  t.same(rolesOf(view), ['active true', 'next false'])
  const [rsa, second] = dkimRecords(view)
  t.match(second?.value, /^v=DKIM1; k=ed25519; p=[A-Za-z0-9+/]{43}=$/)
  await publish(parts, 'acme.com')
  parts.zone.set(second?.name ?? '', undefined)
  t.match(await verify(parts), { status: 'verified' }, 'nobody has to publish it')
  const started = await parts.domains.rotateDkim('acme.com')
  t.same(rolesOf(started), ['active true', 'next false', 'next false'], 'the one that waits goes on waiting')

  const other = await senderParts(t, { ed25519: true })
  t.same(rolesOf(await verified(other)), ['active true', 'active false'], 'both at once')
  t.same(rolesOf(await other.domains.rotateDkim('acme.com')), [
    'active true',
    'active false',
    'next false',
    'next false',
  ])
  const secondNow = async (): Promise<RecordView | undefined> =>
    dkimRecords(await verify(parts)).find(({ name }) => name === second?.name)
  const noAlgorithm = second?.value.replace(' k=ed25519;', '') ?? ''
  parts.zone.set(second?.name ?? '', { TXT: [noAlgorithm] })
  t.match(await secondNow(), { status: 'failed', error: /k=ed25519 is missing/ }, 'receivers want it')
  parts.zone.set(second?.name ?? '', { TXT: [rsa?.value ?? ''] })
  t.match(await secondNow(), { status: 'failed', hint: /key of the domain, of the selector/ })
})

t.test('next keys that this master key does not open make room for others', async (t) => {
  const before = await senderParts(t)
  await verified(before)
  await before.domains.rotateDkim('acme.com')
  await before.domains.stop()

  const parts = await senderParts(t, { store: before.store, masterKey: Buffer.alloc(32, 8) })
  const { domains, keyRing, store } = parts
  await publish(parts, 'acme.com')
  const doesNotOpen = { status: 'failed', error: /does not open/, hint: /dkim rotate acme\.com/ }
  t.match(dkimRecords((await domains.find('acme.com')) ?? (await verify(parts))), [doesNotOpen, doesNotOpen], 'at once')
  await verify(parts)
  await parts.clock.advance(10 * MINUTE)
  t.same(rolesOf(await verify(parts)), ['active true', 'next false'], 'what cannot sign does not take over')
  const checks = (await store.findDomain('acme.com'))?.checks.filter(({ purpose }) => purpose === 'dkim')
  const nothing = { status: 'temporary_failure' }
  t.match(checks, [nothing, nothing], 'another node may open them: nothing counts against the domain')
  t.same(rolesOf(await domains.rotateDkim('acme.com')), ['active true', 'next false'])
  const { keys = [] } = (await store.findDomain('acme.com')) ?? {}
  const next = keys.find(({ role }) => role === 'next')
  t.match(keyRing.open(next?.sealedPrivateKey ?? Buffer.of(), dkimSealContext('acme.com', next?.selector ?? '')), 'KEY')
  await t.rejects(domains.rotateDkim('acme.com'), { code: 'conflict' }, 'it waits to be seen')
  await publish(parts, 'acme.com')
  await verify(parts)
  await parts.clock.advance(10 * MINUTE)
  const switched = await verify(parts)
  t.same(rolesOf(switched), ['active true', 'retiring false'])
  t.match(switched, { status: 'verified', records: [{ status: 'verified' }] })
})

t.test('a private key may be brought along, and is never told', async (t) => {
  const parts = await senderParts(t)
  const pair = generateKeyPairSync('rsa', { modulusLength: 3072 })
  const pkcs1 = pair.privateKey.export({ type: 'pkcs1', format: 'pem' }).toString()
  const { record: view } = await parts.domains.add({ name: 'acme.com', selector: 'mine', privateKeyPem: pkcs1 })
  const spki = pair.publicKey.export({ type: 'spki', format: 'der' }).toString('base64')
  t.equal(dkimRecords(view)[0]?.value, `v=DKIM1; k=rsa; p=${spki}`)
  const key = (await parts.store.findDomain('acme.com'))?.keys[0]
  if (key === undefined) throw new Error('no key')
  const opened = parts.keyRing.open(key.sealedPrivateKey, dkimSealContext('acme.com', 'mine'))
  t.ok(createPublicKey(createPrivateKey(opened)).equals(pair.publicKey))

  const rsa = (modulusLength: number) => generateKeyPairSync('rsa', { modulusLength }).privateKey
  const pem = (each: typeof pair.privateKey, options: object = {}): string =>
    each.export({ type: 'pkcs8', format: 'pem', ...options }).toString()
  const bad: [string, RegExp][] = [
    [pem(rsa(1024)), /has 1024 bits/],
    [pem(rsa(4104)), /has 4104 bits/],
    [pem(generateKeyPairSync('ed25519').privateKey), /no RSA key/],
    [pem(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey), /no RSA key/],
    [pem(pair.privateKey, { cipher: 'aes-256-cbc', passphrase: 'x' }), /without a passphrase/],
    [pair.publicKey.export({ type: 'spki', format: 'pem' }).toString(), /no private key/],
    [pkcs1.slice(0, 400), /no private key/],
    ['', /no private key/],
    ['SECRET', /no private key/],
    [`${pkcs1}${'x'.repeat(20_000)}`, /no private key/],
  ]
  for (const [text, problem] of bad) {
    const adding = parts.domains.add({ name: 'b.com', privateKeyPem: text })
    const thrown: unknown = await adding.catch((error: unknown) => error)
    t.match(thrown, { code: 'invalid_request', details: problem }, String(problem))
    const part = text.slice(40, 80) || text
    t.notOk(part !== '' && JSON.stringify([thrown, String(thrown)]).includes(part), 'not repeated')
  }
  t.equal(await parts.domains.find('b.com'), null)
  await parts.domains.stop()
})

t.test('names that would be too long, taken twice, or one too many are refused', async (t) => {
  const parts = await senderParts(t, { mostDomains: 2 })
  const long = `${'a'.repeat(60)}.${'b'.repeat(60)}.${'c'.repeat(60)}.${'d'.repeat(52)}.com`
  await t.rejects(parts.domains.add({ name: long }), { code: 'invalid_request', details: /names of its records/ })
  await t.rejects(parts.domains.add({ name: 'a.com', returnPath: 'x', trackingDomain: 'X' }), {
    code: 'invalid_request',
    details: /tracking_domain/,
  })
  const first = await parts.domains.add({ name: 'a.com', tracking: { clicks: true }, trackingDomain: 'Click' })
  t.same(first.record.tracking, { opens: true, clicks: true, domain: 'click.a.com', tls: 'pending' })
  await parts.domains.add({ name: 'b.com' })
  await t.rejects(parts.domains.add({ name: 'c.com' }), { code: 'conflict' })
  t.notOk((await parts.domains.add({ name: 'a.com' })).isNew, 'one that is there is no more')
  await parts.domains.remove('a.com', { purge: false })
  t.ok((await parts.domains.add({ name: 'c.com' })).isNew)
  await parts.domains.stop()
})

t.test('settings change alone or together, and another pool is checked at once', async (t) => {
  const parts = await senderParts(t)
  await verified(parts)
  const update = (change: Parameters<typeof parts.domains.update>[1]) => parts.domains.update('Acme.com', change)
  t.match(await update({ tracking: { opens: false } }), {
    tracking: { opens: false, clicks: false },
    ip_pool: 'default',
  })
  t.match(await update({ tracking: { clicks: true } }), { tracking: { opens: false, clicks: true } })
  t.match(await update({ allowSubdomains: true }), { allow_subdomains: true, tracking: { clicks: true } })
  t.match(await update({}), { allow_subdomains: true, status: 'verified' })
  parts.zone.set(TARGETS.spf, { TXT: ['v=spf1 ip4:127.0.0.11 ip4:127.0.0.12 ip4:127.0.0.13 -all'] })
  t.match(await update({ ipPool: 'cold' }), { ip_pool: 'cold' })
  t.equal((await parts.domains.requireVerified('acme.com')).ipPool, 'cold', 'known at once')
  await parts.domains.stop()
  const spf = (await parts.domains.find('acme.com'))?.records.find(({ purpose }) => purpose === 'spf')
  t.match(spf, { status: 'failed', evaluated: [{ ip: '127.0.0.14', result: 'fail' }] })
  t.match(await update({ ipPool: null }), { ip_pool: 'default' })
  await t.rejects(update({ ipPool: 'constructor' }), { code: 'invalid_request', details: /no such pool/ })
  await t.rejects(parts.domains.update('nope.com', { allowSubdomains: true }), { code: 'not_found' })
  await t.rejects(parts.domains.update('..', {}), { code: 'not_found' })
  await parts.domains.stop()
})

t.test('changes that come thick and fast are checked one after the other, the last one for sure', async (t) => {
  const parts = await senderParts(t)
  await verified(parts)
  const asked = (): number => parts.zone.queries.filter((query) => query === 'TXT _dmarc.acme.com').length
  const before = asked()
  const pools = Array.from({ length: 20 }, (_, index) => (index === 19 ? 'cold' : 'default'))
  for (const ipPool of pools) await parts.domains.update('acme.com', { ipPool })
  const spf = async () => (await parts.domains.find('acme.com'))?.records.find(({ purpose }) => purpose === 'spf')
  await until('the last one', async () => (await spf())?.evaluated?.[0]?.ip === '127.0.0.14')
  t.ok(asked() - before < pools.length, `${asked() - before} checks`)
  await parts.domains.stop()
})

t.test('names below a domain send when it says so', async (t) => {
  const parts = await senderParts(t)
  const { domains } = parts
  await verified(parts, 'acme.co.uk')
  const refused = (name: string, details: RegExp) =>
    t.rejects(domains.requireVerified(name), { code: 'domain_not_verified', details }, name)
  await refused('a.b.acme.co.uk', /allow_subdomains of acme\.co\.uk/)
  await domains.update('acme.co.uk', { allowSubdomains: true })
  for (const name of ['acme.co.uk', 'a.acme.co.uk', 'a.b.acme.co.uk']) {
    t.equal((await domains.requireVerified(name)).name, 'acme.co.uk', name)
  }
  await refused('xacme.co.uk', /not a domain of this server/)
  await refused('other.co.uk', /not a domain of this server/)
  await refused('co.uk', /not a domain of this server/)
  await domains.add({ name: 'a.acme.co.uk' })
  t.equal((await domains.requireVerified('a.acme.co.uk')).name, 'acme.co.uk', 'a domain of its own, not verified yet')
  await domains.stop()
  await publish(parts, 'a.acme.co.uk')
  await verify(parts, 'a.acme.co.uk')
  t.equal((await domains.requireVerified('a.acme.co.uk')).name, 'a.acme.co.uk')
  await refused('x.a.acme.co.uk', /allow_subdomains of a\.acme\.co\.uk/)
  await domains.update('acme.co.uk', { allowSubdomains: false })
  await refused('b.acme.co.uk', /allow_subdomains/)
})

t.test('a removed domain refuses at once and can be added anew with other keys', async (t) => {
  const parts = await senderParts(t)
  const { domains } = parts
  const [before] = dkimRecords(await verified(parts))
  t.equal((await domains.requireVerified('acme.com')).name, 'acme.com')
  t.equal(await domains.queuedMessages('acme.com'), 0)
  t.same(await domains.remove('ACME.COM.', { purge: false }), { domain: 'acme.com', deleted: true, queued_messages: 0 })
  await t.rejects(domains.requireVerified('acme.com'), { code: 'domain_not_verified' })
  t.equal(await domains.find('acme.com'), null)
  const attempts: (() => Promise<unknown>)[] = [
    () => domains.remove('acme.com', { purge: false }),
    () => domains.remove('..', { purge: true }),
    () => domains.verify('acme.com'),
    () => domains.rotateDkim('acme.com'),
    () => domains.zoneFile('acme.com'),
    () => domains.queuedMessages('acme.com'),
  ]
  for (const attempt of attempts) {
    await t.rejects(async () => void (await attempt()), { code: 'not_found' }, String(attempt))
  }
  const { record: anew, isNew } = await domains.add({ name: 'acme.com' })
  t.ok(isNew)
  t.equal(anew.status, 'pending')
  t.not(dkimRecords(anew)[0]?.value, before?.value)
  await domains.stop()
})

/** A record of acme.com with a key of its own. */
async function otherDomain(t: Test): Promise<DomainRecord> {
  const parts = await senderParts(t)
  await parts.domains.add({ name: 'acme.com' })
  await parts.domains.stop()
  const record = await parts.store.findDomain('acme.com')
  if (record === null) throw new Error('not stored')
  return { ...record, lastCheckedAt: null }
}

t.test('a domain refuses while its waiting mail is being canceled, and when that failed', async (t) => {
  const real = await testStore(t)
  const canceling = Promise.withResolvers<never>()
  // The row may be seen as removed before anybody waits for the canceling.
  canceling.promise.catch(() => {})
  const store: Store = { ...real, removeDomain: (request) => real.removeDomain(request).then(() => canceling.promise) }
  const parts = await senderParts(t, { store })
  const { domains } = parts
  await verified(parts)
  await domains.requireVerified('acme.com')
  const removing = domains.remove('acme.com', { purge: true })
  // Asked while the removal is written, too: what was true before it is not remembered.
  await domains.requireVerified('acme.com').catch(() => {})
  await until('it is removed', async () => (await real.findDomain('acme.com')) === null)
  await t.rejects(domains.requireVerified('acme.com'), { code: 'domain_not_verified' })
  canceling.reject(new Error('disk full'))
  await t.rejects(removing, { message: 'disk full' })
  await t.rejects(domains.requireVerified('acme.com'), { code: 'domain_not_verified' })
})

t.test('what a check finds out about a domain that was removed meanwhile is dropped', async (t) => {
  const parts = await senderParts(t, { dnsTimeout: 1_000 })
  const { domains, zone, clock, store } = parts
  await verified(parts)
  const slowCheck = async (): Promise<{ result: Promise<unknown> }> => {
    zone.set('bounces.acme.com', 'TIMEOUT')
    await clock.advance(10 * SECOND)
    const asked = zone.queries.length
    const result = domains.verify('acme.com').catch((thrown: unknown) => thrown)
    await until('it asks', () => zone.queries.slice(asked).includes('MX bounces.acme.com'))
    return { result }
  }
  const first = await slowCheck()
  await domains.remove('acme.com', { purge: false })
  await clock.advance(9 * SECOND)
  t.match(await first.result, { code: 'not_found' })

  await domains.add({ name: 'acme.com' })
  await until('the first check', async () => (await domains.find('acme.com'))?.last_checked_at)
  const anew = { ...(await otherDomain(t)), checks: [] }
  const second = await slowCheck()
  const [other] = (await store.findDomain('acme.com'))?.keys ?? []
  await domains.remove('acme.com', { purge: false })
  // As `add` does it, before the first check of the new one begins.
  await store.addDomain(anew, null)
  await clock.advance(9 * SECOND)
  t.match(await second.result, { record: { domain: 'acme.com', last_checked_at: null } })
  const stored = await store.findDomain('acme.com')
  t.same([stored?.checks, stored?.lastCheckedAt], [[], null], 'nothing of it is said of the new domain')
  t.not(stored?.keys[0]?.publicKey, other?.publicKey)
})

t.test('a list has the domains that may send, or those of a state', async (t) => {
  const parts = await senderParts(t)
  await verified(parts, 'good.com')
  await parts.domains.add({ name: 'new.com' })
  await parts.domains.stop()
  const names = async (status: Parameters<typeof parts.domains.list>[0]['status']): Promise<string[]> =>
    (await parts.domains.list({ status, limit: 10, after: null })).domains.map(({ domain }) => domain)
  t.same(await names('verified'), ['good.com'])
  t.same(await names('pending'), ['new.com'])
  t.same(await names('all'), ['new.com', 'good.com'], 'newest first')
  t.same(await names('suspended'), [])
  const first = await parts.domains.list({ status: 'all', limit: 1, after: null })
  t.match(first, { domains: [{ domain: 'new.com' }], next: String })
  t.match(await parts.domains.list({ status: 'all', limit: 1, after: first.next }), {
    domains: [{ domain: 'good.com' }],
    next: null,
  })
})

t.test('checks come by themselves: down and up again, with an event for each step', async (t) => {
  const parts = await senderParts(t)
  const { domains, clock, zone, wakes } = parts
  const { name = '' } = dkimRecords(await verified(parts))[0] ?? {}
  t.equal(wakes.count, 1, 'verified')
  const nextCheck = async (): Promise<DomainView> => {
    const { next_check_at: next = 0 } = (await domains.find('acme.com')) ?? {}
    await clock.advance(Math.max(0, (next ?? 0) * SECOND - clock.now()) + SECOND)
    await domains.checkDue()
    const found = await domains.find('acme.com')
    if (found === null) throw new Error('gone')
    return found
  }
  const asked = zone.queries.length
  await domains.checkDue()
  t.equal(zone.queries.length, asked, 'nothing is due')
  zone.set(name, undefined)
  const seen: string[] = []
  for (let round = 0; round < 200 && seen.at(-1) !== 'failed'; round++) seen.push((await nextCheck()).status)
  t.same([...new Set(seen)], ['verified', 'degraded', 'failed'])
  t.ok(seen.lastIndexOf('degraded') - seen.indexOf('degraded') >= 140, 'every 30 minutes for 72 hours')
  t.equal(wakes.count, 3)
  await t.rejects(domains.requireVerified('acme.com'), { code: 'domain_not_verified', details: /dkim record wrong/ })
  await publish(parts, 'acme.com')
  t.match(await nextCheck(), { status: 'verified' })
  t.equal(wakes.count, 4)
  t.equal((await domains.requireVerified('acme.com')).name, 'acme.com')
})

t.test('a domain with a slow DNS holds up no other, and one that fails neither', async (t) => {
  const real = await testStore(t)
  const store: Store = {
    ...real,
    recordDomainCheck: (result) =>
      result.name === 'bad.com' ? Promise.reject(new Error('disk full')) : real.recordDomainCheck(result),
  }
  const parts = await senderParts(t, { store })
  const { domains, clock, zone, log } = parts
  const names = ['slow.com', 'bad.com', ...Array.from({ length: 12 }, (_, index) => `d${index}.com`)]
  for (const name of names) await domains.add({ name })
  await domains.stop()
  zone.set('bounces.slow.com', 'TIMEOUT')

  const again = await senderParts(t, { store })
  again.zone.set('bounces.slow.com', 'TIMEOUT')
  await again.clock.advance(HOUR)
  const running = again.domains.checkDue()
  const checked = async (name: string): Promise<boolean> =>
    ((await again.domains.find(name))?.last_checked_at ?? 0) > Math.floor(clock.now() / SECOND)
  await until('all others are checked', async () => (await Promise.all(names.slice(2).map(checked))).every(Boolean))
  t.notOk(await checked('slow.com'), 'while this one waits for its DNS')
  await again.clock.advance(9 * SECOND)
  await running
  t.ok(await checked('slow.com'))
  t.notOk(await checked('bad.com'))
  t.match([...log, ...again.log].join(''), /"domain":"bad\.com".*"error":"disk full"/)
})

t.test('a verify call answers with what it asked, also when the schedule comes along meanwhile', async (t) => {
  const parts = await senderParts(t, { dnsTimeout: 1_000 })
  const { domains, clock, zone } = parts
  await verified(parts)
  await clock.advance(7 * HOUR)
  zone.set('bounces.acme.com', 'TIMEOUT')
  const calling = domains.verify('acme.com')
  await clock.advance(SECOND)
  const checking = domains.checkDue()
  await until('the schedule has looked', async () => (await parts.store.domainsDueForCheck(clock.now(), 9)).length)
  await clock.advance(9 * SECOND)
  const { record } = await calling
  await checking
  t.match(
    record.records.find(({ purpose }) => purpose === 'return_path'),
    { status: 'temporary_failure' },
  )
  t.same(record, await domains.find('acme.com'), 'and that is what is known then')
})

t.test('the zone file has every record as BIND reads it', async (t) => {
  const parts = await senderParts(t, { ed25519: true })
  const view = await verified(parts, 'mail.acme.com')
  const text = await parts.domains.zoneFile('MAIL.acme.com')
  const [rsa, second] = dkimRecords(view)
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith(';'))
  const [start = '', rest = ''] = rsa?.value_chunks ?? []
  t.same(lines, [
    `${rsa?.name}. 3600 IN TXT ( "${start}" "${rest}" )`,
    `${second?.name}. 3600 IN TXT "${second?.value}"`,
    `bounces.mail.acme.com. 3600 IN CNAME ${TARGETS.return_path}.`,
    '_dmarc.mail.acme.com. 3600 IN TXT "v=DMARC1; p=none; rua=mailto:dmarc@mail.example.net"',
    `t.mail.acme.com. 3600 IN CNAME ${TARGETS.tracking}.`,
  ])
  t.match(text, `; bounces.mail.acme.com. 3600 IN MX 10 ${HOSTNAME}.`)
  t.ok(text.endsWith('\n') && text.split('\n').every((line) => line.length < 520))
  await parts.domains.rotateDkim('mail.acme.com')
  t.match(await parts.domains.zoneFile('mail.acme.com'), /the next key/)
  await parts.domains.stop()
})
