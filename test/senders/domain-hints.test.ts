/**
 * What people get wrong in their DNS, and what hostile zones answer: each slip has its hint, nothing holds a check up.
 */
import t, { type Test } from 'tap'
import { SECOND } from '../../src/base/clock.ts'
import { shownRecords } from '../../src/senders/verification/finding.ts'
import type { LinkCertificates } from '../../src/senders/verification/check-aliases.ts'
import type { DomainView, RecordView } from '../../src/senders/domain-view.ts'
import { until } from '../support/until.ts'
import type { ZoneFailure, ZoneRecords } from '../support/zone.ts'
import { HOSTNAME, publish, senderParts, TARGETS, type SenderParts, type SenderPartsOptions } from './sender-parts.ts'

type Zone = Record<string, ZoneRecords | ZoneFailure | undefined>

/** All is published; `key` is the DKIM record. */
async function publishedDomain(
  t: Test,
  name = 'acme.com',
  options: SenderPartsOptions = {},
): Promise<{ parts: SenderParts; key: RecordView }> {
  const parts = await senderParts(t, options)
  await parts.domains.add({ name })
  await parts.domains.stop()
  await publish(parts, name)
  const key = (await parts.domains.find(name))?.records[0]
  if (key === undefined) throw new Error('no key')
  return { parts, key }
}

async function checkWith({ domains, clock, zone }: SenderParts, changes: Zone, name = 'acme.com'): Promise<DomainView> {
  for (const [each, records] of Object.entries(changes)) zone.set(each, records)
  await clock.advance(10 * SECOND)
  const { record } = await domains.verify(name)
  return record
}

const recordOf = ({ records }: DomainView, purpose: string): RecordView | undefined =>
  records.find((each) => each.purpose === purpose)

t.test('a wrong DKIM record says what is wrong with it', async (t) => {
  const { parts, key } = await publishedDomain(t)
  const { name, value } = key
  const quoted = value.replaceAll(';', '\\;')
  const cases: [string, Zone, object][] = [
    ['quotes', { [name]: { TXT: [`"${value}"`] } }, { status: 'failed', hint: /entered with quotation marks/ }],
    ['curly quotes', { [name]: { TXT: [`“${value}”`] } }, { status: 'failed', hint: /quotation marks/ }],
    ['quotes in it', { [name]: { TXT: [`${value.slice(0, 255)}" "${value.slice(255)}`] } }, { hint: /quotation/ }],
    ['backslashes', { [name]: { TXT: [quoted] } }, { hint: /quotation/ }],
    ['cut', { [name]: { TXT: [value.slice(0, 255)] } }, { status: 'failed', hint: /cut after 255 characters/ }],
    ['two records', { [name]: { TXT: [value.slice(0, 255), value.slice(255)] } }, { hint: /split over two records/ }],
    ['two keys', { [name]: { TXT: [value, 'v=DKIM1; p='] } }, { error: /2 TXT records/, hint: /keep only/ }],
    ['revoked', { [name]: { TXT: ['v=DKIM1; p='] } }, { status: 'failed', hint: /replace it/ }],
    ['for another hash', { [name]: { TXT: [`${value}; h=sha1`] } }, { status: 'failed', error: /sha256/ }],
    ['for no mail', { [name]: { TXT: [`${value}; s=tlsrpt`] } }, { status: 'failed', error: /email/ }],
    [
      'alias',
      { [name]: { CNAME: 'nothing.example' } },
      { hint: `${name} is an alias of nothing.example, which has no TXT record` },
    ],
    [
      'doubled',
      { [name]: undefined, [`${name}.acme.com`]: { TXT: [value] } },
      {
        error: `no TXT record at ${name}`,
        hint:
          `found at ${name}.acme.com: the DNS provider adds the domain itself; ` +
          `enter the name as ${name.split('.acme')[0]}`,
      },
    ],
    ['something else at the doubled name', { [`${name}.acme.com`]: { TXT: ['hello'] } }, { hint: null }],
  ]
  for (const [title, zone, expected] of cases) {
    t.match(recordOf(await checkWith(parts, zone), 'dkim'), expected, title)
  }
})

t.test('an older key of ours is known again', async (t) => {
  const { parts, key } = await publishedDomain(t)
  const { domains } = parts
  await domains.rotateDkim('acme.com')
  const next = (await domains.find('acme.com'))?.records.find(({ role }) => role === 'next')
  const view = await checkWith(parts, { [next?.name ?? '']: { TXT: [key.value] } })
  const selector = key.name.split('.')[0]
  const hint = view.records.find(({ role }) => role === 'next')?.hint
  t.match(hint, new RegExp(`older key.* of the selector ${selector}`))

  await domains.remove('acme.com', { purge: false })
  await domains.add({ name: 'acme.com', selector })
  await domains.stop()
  const anew = recordOf(await checkWith(parts, {}), 'dkim')
  t.match(anew, { name: key.name, status: 'failed', hint: /older key, from before the domain was removed/ })
})

t.test('a wildcard that answers is told from a record', async (t) => {
  const { parts, key } = await publishedDomain(t)
  const probe = 'sternpost-wildcard-probe'
  const other = 'v=spf1 ip4:192.0.2.1 -all'
  const view = await checkWith(parts, {
    [key.name]: { TXT: [other] },
    [`${probe}._domainkey.acme.com`]: { TXT: [other] },
    'bounces.acme.com': { CNAME: 'www.acme.com' },
    't.acme.com': { CNAME: 'www.acme.com' },
    [`${probe}.acme.com`]: { CNAME: 'www.acme.com' },
    'www.acme.com': { A: ['192.0.2.1'], TXT: [other] },
    '_dmarc.acme.com': { TXT: [other] },
  })
  t.match(recordOf(view, 'dkim')?.hint, /wildcard answers for every name under _domainkey\.acme\.com/)
  t.match(recordOf(view, 'return_path')?.hint, /wildcard answers for every name under acme\.com/)
  t.match(recordOf(view, 'tracking')?.hint, /wildcard/)
  const addresses = await checkWith(parts, {
    'bounces.acme.com': { A: ['192.0.2.1'] },
    [`${probe}.acme.com`]: { A: ['192.0.2.1'] },
  })
  t.match(recordOf(addresses, 'return_path')?.hint, /wildcard/, 'with addresses')
})

t.test('a return path that leads elsewhere says where to', async (t) => {
  const { parts } = await publishedDomain(t)
  const name = 'bounces.acme.com'
  const target = TARGETS.return_path
  const cases: [string, Zone, object][] = [
    ['two steps', { [name]: { CNAME: 'step.acme.com' }, 'step.acme.com': { CNAME: target } }, { status: 'verified' }],
    ['proxied', { [name]: { A: ['192.0.2.1'] } }, { hint: /has an address \(192\.0\.2\.1\).*proxy off/ }],
    [
      'to another host',
      { [name]: { CNAME: 'edge.cdn.example' } },
      { status: 'failed', found: ['edge.cdn.example'], hint: `it must be a CNAME for ${target}` },
    ],
    ['doubled target', { [name]: { CNAME: `${target}.acme.com` } }, { hint: /added the domain to the target/ }],
    [
      'loop',
      { [name]: { CNAME: 'a.acme.com' }, 'a.acme.com': { CNAME: name } },
      { status: 'failed', hint: /back to itself/ },
    ],
    [
      'other MX',
      { [name]: { MX: ['10 mx.other.example'], TXT: ['v=spf1 -all'] } },
      {
        status: 'failed',
        hint: new RegExp(`CNAME for ${target}, or an MX for ${HOSTNAME} with the TXT record v=spf1 include:`),
      },
    ],
    ['doubled', { [name]: undefined, [`${name}.acme.com`]: { CNAME: target } }, { hint: /enter the name as bounces$/ }],
    ['nothing', { [`${name}.acme.com`]: undefined }, { error: `no CNAME record at ${name}`, hint: null }],
    ['no answer', { [name]: 'SERVFAIL' }, { status: 'temporary_failure', error: /SERVFAIL/ }],
  ]
  for (const [title, zone, expected] of cases) {
    t.match(recordOf(await checkWith(parts, zone), 'return_path'), expected, title)
  }
})

t.test('an own SPF record that does not pass says why', async (t) => {
  const { parts } = await publishedDomain(t)
  const name = 'bounces.acme.com'
  const own = (...texts: string[]): Zone => ({ [name]: { MX: [`10 ${HOSTNAME}`], TXT: texts } })
  const includes = Array.from({ length: 11 }, (_, index) => `i${index}.example`)
  for (const each of includes) parts.zone.set(each, { TXT: ['v=spf1 ip4:192.0.2.1 -all'] })
  const many = `v=spf1 ${includes.map((each) => `include:${each}`).join(' ')} include:${TARGETS.spf} -all`
  const cases: [string, Zone, object][] = [
    ['ours', own(`v=spf1 include:${TARGETS.spf} -all`), { status: 'verified', hint: null }],
    [
      'two',
      own(`v=spf1 include:${TARGETS.spf} -all`, 'v=spf1 -all'),
      { status: 'failed', hint: /^2 SPF records at bounces/ },
    ],
    ['many', own(many), { status: 'failed', hint: /more than 10 DNS lookups/ }],
    ['not ours', own('v=spf1 mx -all'), { status: 'failed', hint: `it must hold include:${TARGETS.spf}` }],
    ['ours too late', own(`v=spf1 -ip4:127.0.0.11 include:${TARGETS.spf} -all`), { hint: /a term before it/ }],
    ['quotes', own(`"v=spf1 include:${TARGETS.spf} -all"`), { status: 'failed', hint: /quotation marks/ }],
    [
      'doubled',
      { ...own(), [`${name}.acme.com`]: { TXT: [`v=spf1 include:${TARGETS.spf} -all`] } },
      { hint: /found at/ },
    ],
  ]
  for (const [title, zone, expected] of cases) {
    t.match(recordOf(await checkWith(parts, zone), 'spf'), expected, title)
  }
})

t.test('DMARC and tracking are explained too', async (t) => {
  const { parts } = await publishedDomain(t, 'mail.acme.com')
  const check = (zone: Zone): Promise<DomainView> => checkWith(parts, zone, 'mail.acme.com')
  const policy = 'v=DMARC1; p=reject'
  const dmarc: [Zone, object][] = [
    [{ '_dmarc.mail.acme.com': { TXT: [`"${policy}"`] } }, { status: 'failed', hint: /quotation/ }],
    [{ '_dmarc.mail.acme.com': { TXT: [policy, policy] } }, { status: 'failed', hint: /keep one/ }],
    [
      { '_dmarc.mail.acme.com': undefined, '_dmarc.mail.acme.com.acme.com': { TXT: [policy] } },
      { hint: /enter the name as _dmarc\.mail$/ },
    ],
    [{ '_dmarc.acme.com': { TXT: [policy] } }, { status: 'verified', found: [policy] }],
  ]
  for (const [zone, expected] of dmarc) t.match(recordOf(await check(zone), 'dmarc'), expected)
  const tracking: [Zone, object][] = [
    [{ 't.mail.acme.com': { A: ['192.0.2.9'] }, [TARGETS.tracking]: { A: ['192.0.2.9'] } }, { status: 'verified' }],
    [{ 't.mail.acme.com': { A: ['192.0.2.8'] } }, { status: 'failed', hint: /proxy off/ }],
    [{ 't.mail.acme.com': undefined }, { status: 'failed', hint: null }],
    [{ 't.mail.acme.com': 'REFUSED' }, { status: 'temporary_failure' }],
  ]
  for (const [zone, expected] of tracking) t.match(recordOf(await check(zone), 'tracking'), expected)
})

t.test('a name of links without a certificate breaks no link', async (t) => {
  let lack: Awaited<ReturnType<LinkCertificates['lack']>> = { isOrdered: false, problem: null }
  const told: ((name: string) => void)[] = []
  const linkCertificates: LinkCertificates = { lack: async () => lack, onIssued: (tell) => void told.push(tell) }
  const { parts } = await publishedDomain(t, 'acme.com', { linkCertificates })
  const tracking = async () => {
    const view = await checkWith(parts, {})
    return {
      ...recordOf(view, 'tracking'),
      tls: view.tracking.tls,
      host: await parts.store.findTrackingHost('acme.com'),
    }
  }
  t.match(await tracking(), {
    status: 'failed',
    error: 'no certificate for t.acme.com',
    hint: `let tls.acme order one, or add one to tls.certificates; until then tracked links lead to ${TARGETS.tracking}`,
    tls: 'pending',
    host: null,
  })
  lack = { isOrdered: true, problem: 'the authority did not answer: refused' }
  t.match(await tracking(), {
    status: 'pending',
    error: 'the certificate for t.acme.com is not there yet: the authority did not answer: refused',
    host: null,
  })
  lack = null
  // The name of no domain, and one that a domain has: it is checked at once.
  for (const tell of told) for (const name of ['t.nobody.test', 't.acme.com']) tell(name)
  await until('links have their own host', () => parts.store.findTrackingHost('acme.com'))
  t.match(await tracking(), { status: 'verified', error: null, tls: 'active', host: 't.acme.com' })
  await parts.domains.stop()
})

t.test('hostile answers are shown in part, and cost little time', async (t) => {
  const { parts, key } = await publishedDomain(t)
  const huge = 'v=spf1 ' + 'include:a.example '.repeat(3_300)
  const answers: [string, readonly string[]][] = [
    ['one of 64 KB', [huge]],
    ['a key of 64 KB', [`v=DKIM1; k=rsa; p=${'A'.repeat(60_000)}`]],
    ['a hundred', Array.from({ length: 100 }, (_, index) => `v=spf1 record ${index}`)],
    ['binary', ['v=spf1 \0\u0001\u001b[31m\u0080\u00ff']],
    ['empty', ['']],
    ['tags', [`v=DKIM1;${'a=;'.repeat(20_000)}p=`]],
    ['quotes', ['"'.repeat(60_000)]],
    ['spaces', [`v=spf1${' '.repeat(60_000)}x`]],
    ['macros', ['v=spf1 exists:%{i}%{d99r}.x']],
  ]
  for (const [title, texts] of answers) {
    const start = performance.now()
    const view = await checkWith(parts, {
      [key.name]: { TXT: texts },
      'bounces.acme.com': { TXT: texts },
      '_dmarc.acme.com': { TXT: texts },
    })
    const spent = performance.now() - start
    t.ok(spent < 20_000, `${title}: ${Math.round(spent)} ms`)
    t.equal(view.status, 'pending', title)
    const shown = JSON.stringify(view.records.map(({ found, error, hint }) => ({ found, error, hint })))
    t.ok(shown.length < 100_000 && !/\\u00|\p{Cc}/u.test(shown), 'nothing that a terminal obeys')
  }
  const many = { MX: Array.from({ length: 100 }, (_, index) => `${index} mx${index}.example`) }
  const view = await checkWith(parts, { 'bounces.acme.com': many })
  t.match(recordOf(view, 'return_path'), { status: 'failed', found: { length: 10 } })
})

t.test('what is shown has no byte that is not text', async (t) => {
  t.same(
    shownRecords(['a\0b\u001b\u0085c\u202ed\ud800', 'x'.repeat(5_000)]).map((text) => text.slice(0, 40)),
    ['a\\000b\\027\\133c\\u202ed\\ud800', 'x'.repeat(40)],
  )
  t.equal(shownRecords(Array.from({ length: 50 }, () => 'x'.repeat(5_000))).join('').length, 20_480)
})
