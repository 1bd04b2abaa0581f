/**
 * Which TLS policy holds towards the hosts of a domain: the table of DANE over zones that Knot signed and unbound
 * validates, MTA-STS, and the order of both (delivery/README.md "TLS" to 13.3).
 */
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import { loadConfiguration, type Configuration } from '../../src/config/load-configuration.ts'
import { createFindRoute, type RecipientRoute } from '../../src/delivery/route/route-message.ts'
import { judgeDns } from '../../src/delivery/settle/judge-dns.ts'
import { familiesToAsk, hostsFor } from '../../src/delivery/place/choose-path.ts'
import { createTlsPolicies } from '../../src/delivery/route/tls/tls-policy.ts'
import type { TlsProblem } from '../../src/delivery/route/tls/tls-results.ts'
import type { MailHost } from '../../src/delivery/protocol/try-result.ts'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import { createMailHosts } from '../../src/network/mail-hosts.ts'
import type { StsPolicy } from '../../src/network/mta-sts.ts'
import type { Resolver, ValidatingResolver } from '../../src/network/resolver.ts'
import { createValidatingResolver } from '../../src/network/validating-resolver.ts'
import { manualClock } from '../support/manual-clock.ts'
import { missingForSigning, startValidatingUnbound } from '../support/signed-zones.ts'
import { startZone } from '../support/zone.ts'

const WITH_SIGNER = { skip: missingForSigning() }
const SHIPPED = fileURLToPath(new URL('../../config', import.meta.url))
const HASH = '00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'
const hashOf = (index: number): string => String(index).padStart(HASH.length, '0')
const shipped = loadConfiguration({
  folder: SHIPPED,
  shippedFolder: SHIPPED,
  offline: true,
  neededSecrets: 'none',
  overrides: { 'delivery.allow_private_addresses': true, 'listen.http': [], 'listen.submission': [] },
})

interface Tools {
  resolver: Resolver
  validating?: ValidatingResolver
  sts?: StsPolicy[]
  delivery?: Partial<Configuration['server']['delivery']>
}

function finderOf({ resolver, validating, sts = [], delivery = {} }: Tools): {
  find: (domain: string) => Promise<RecipientRoute>
  problems: TlsProblem[]
} {
  const settings = (): Configuration => ({
    ...shipped,
    server: { ...shipped.server, delivery: { ...shipped.server.delivery, ...delivery } },
  })
  const mailHosts = createMailHosts({
    resolver,
    allowPrivateAddresses: true,
    ownAddresses: () => [],
    mostAddresses: 20,
    random: () => 0,
  })
  const tlsPolicies = createTlsPolicies({
    validating: validating ?? null,
    settings,
    sts: { policyFor: async (domain) => sts.find((policy) => policy.domain === domain) ?? null },
  })
  const problems: TlsProblem[] = []
  const find = createFindRoute({
    mailHosts,
    tlsPolicies,
    settings,
    clock: manualClock(),
    onTlsProblem: (problem) => void problems.push(problem),
  })
  return { find, problems }
}

const stsOf = (domain: string, mx: string[], mode: StsPolicy['mode'] = 'enforce'): StsPolicy => ({
  domain,
  id: 'one',
  mode,
  mx,
  fetchedAt: 0,
  expiresAt: 86_400_000,
})
const kinds = (route: RecipientRoute): string[] =>
  route.kind === 'hosts' ? route.hosts.map(({ name, tls }) => `${name.split('.')[0]} ${tls.kind}`) : [route.kind]

t.test('the table of DANE', WITH_SIGNER, async (t) => {
  const host = (name: string, address = '127.0.0.2'): string => `${name} 300 IN A ${address}`
  const secure = [
    '@ 300 IN MX 10 good',
    host('good'),
    `_25._tcp.good 300 IN TLSA 3 1 1 ${HASH}`,
    `_25._tcp.good 300 IN TLSA 2 0 1 ${HASH}`,
    `_25._tcp.good 300 IN TLSA 0 0 1 ${HASH}`,
    'many 300 IN MX 10 wide',
    host('wide'),
    ...Array.from({ length: 20 }, (_, index) => `_25._tcp.wide 300 IN TLSA 2 1 1 ${hashOf(index)}`),
    ...Array.from({ length: 15 }, (_, index) => `_25._tcp.wide 300 IN TLSA 3 1 1 ${hashOf(index)}`),
    'useless 300 IN MX 10 unusable',
    host('unusable'),
    `_25._tcp.unusable 300 IN TLSA 1 1 1 ${HASH}`,
    '_25._tcp.unusable 300 IN TLSA 3 1 1 0011',
    '_25._tcp.unusable 300 IN TLSA 3 1 7 0011',
    'none 300 IN MX 10 plain',
    host('plain'),
    'away 300 IN MX 10 mx.open.test.',
    'bad 300 IN MX 10 forged',
    host('forged'),
    `_25._tcp.forged 300 IN TLSA 3 1 1 ${HASH}`,
    'badaddress 300 IN MX 10 moved',
    host('moved', '127.0.0.66'),
    'mixed 300 IN MX 10 forged',
    'mixed 300 IN MX 20 good',
    'mixed 300 IN MX 30 plain',
    'alias 300 IN MX 10 other',
    'other 300 IN CNAME good',
    'direct 300 IN A 127.0.0.2',
    `_25._tcp.direct 300 IN TLSA 3 1 1 ${HASH}`,
    'badset 300 IN MX 10 touched',
    host('touched'),
  ]
  const unbound = await startValidatingUnbound([
    {
      name: 'secure.test',
      records: secure,
      state: 'signed',
      spoil: (text) =>
        text
          .replace(/(_25\._tcp\.forged\.\S+\s+300\s+TLSA\s+3 1 1 )00/, '$1ff')
          .replace('127.0.0.66', '127.0.0.67')
          .replace('10 touched', '11 touched'),
    },
    {
      name: 'open.test',
      state: 'unsigned',
      records: [
        '@ 300 IN MX 10 mx',
        host('mx'),
        `_25._tcp.mx 300 IN TLSA 3 1 1 ${HASH}`,
        'strict 300 IN MX 10 good.secure.test.',
      ],
    },
  ])
  t.teardown(() => unbound.stop())
  const validating = createValidatingResolver({ server: unbound.server, timeoutMilliseconds: 5_000, tries: 2 })
  const { find, problems } = finderOf({ resolver: validating, validating })

  const good = await find('secure.test')
  t.match(good, {
    kind: 'hosts',
    hosts: [{ tls: { kind: 'dane', names: ['good.secure.test', 'secure.test'], policy: { type: 'dane' } } }],
  })
  const [first] = good.kind === 'hosts' ? good.hosts : []
  t.equal(first?.tls.kind === 'dane' && first.tls.records.length, 2, 'usage 0 is none of the usable ones')
  const many = await find('many.secure.test')
  const [wide] = many.kind === 'hosts' ? many.hosts : []
  t.same(
    wide?.tls.kind === 'dane' && wide.tls.records.map(({ usage, data }) => `${usage} ${data}`),
    [
      ...Array.from({ length: 15 }, (_, index) => `3 ${hashOf(index)}`),
      ...Array.from({ length: 5 }, (_, index) => `2 ${hashOf(index)}`),
    ],
    'of many records 20 are used, and always the same',
  )
  const cases: [string, string[]][] = [
    ['useless.secure.test', ['unusable required']],
    ['none.secure.test', ['plain opportunistic']],
    ['away.secure.test', ['mx opportunistic']],
    ['open.test', ['mx opportunistic']],
    ['strict.open.test', ['good opportunistic']],
    ['bad.secure.test', ['no-usable-host']],
    ['badaddress.secure.test', ['no-answer']],
    ['badset.secure.test', ['no-answer']],
    ['mixed.secure.test', ['forged skip', 'good dane', 'plain opportunistic']],
    ['alias.secure.test', ['other dane']],
    ['direct.secure.test', ['direct dane']],
  ]
  for (const [domain, expected] of cases) t.same(kinds(await find(domain)), expected, domain)
  t.match(problems, [
    { domain: 'bad.secure.test', host: 'forged.secure.test', result: 'dnssec-invalid', policy: { type: 'dane' } },
    { domain: 'mixed.secure.test', host: 'forged.secure.test', result: 'dnssec-invalid' },
  ])
  const message = {
    id: 'msg_1',
    recipientDomain: 'x',
    attempts: 0,
    pathFailures: 0,
    acceptedAt: 0,
    expiresAt: 72 * HOUR,
    ambiguousCount: 0,
    isPossibleDuplicate: false,
  }
  for (const domain of ['bad.secure.test', 'badaddress.secure.test', 'badset.secure.test']) {
    const route = await find(domain)
    if (route.kind === 'hosts') return t.fail(domain)
    t.match(judgeDns(route, message, 0, 0), { outcome: { kind: 'path-failed' }, code: '4.7.5' }, domain)
  }
  t.match(await find('bad.secure.test'), { code: '4.7.5', reason: /DNSSEC validation failed/ })

  t.test('DANE comes before MTA-STS, which does not weaken it and may not use its hosts', async (t) => {
    const sts = [
      stsOf('mixed.secure.test', ['plain.secure.test']),
      stsOf('useless.secure.test', ['unusable.secure.test']),
      stsOf('none.secure.test', ['elsewhere.test']),
      stsOf('bad.secure.test', ['forged.secure.test']),
    ]
    const { find: findBoth } = finderOf({ resolver: validating, validating, sts })
    t.same(kinds(await findBoth('mixed.secure.test')), ['forged skip', 'good dane', 'plain verified'])
    t.same(kinds(await findBoth('useless.secure.test')), ['unusable verified'], 'what can be checked is checked')
    t.same(kinds(await findBoth('none.secure.test')), ['no-usable-host'])
    t.same(kinds(await findBoth('bad.secure.test')), ['no-usable-host'])
  })
  t.test('off is off', async (t) => {
    const { find: findOff } = finderOf({ resolver: validating, validating, delivery: { dane: 'off' } })
    t.same(kinds(await findOff('secure.test')), ['good opportunistic'])
    t.same(kinds(await findOff('bad.secure.test')), ['forged opportunistic'])
  })
  t.test('two domains share connections by what their hosts prove, but not where their names count', async (t) => {
    const keyOf = async (domain: string): Promise<string> => {
      const route = await find(domain)
      return route.kind === 'hosts' ? route.siteKey : ''
    }
    t.not(await keyOf('secure.test'), await keyOf('strict.open.test'))
    t.not(await keyOf('none.secure.test'), await keyOf('secure.test'))
  })
})

t.test('MTA-STS filters the MX set before anybody asks who runs it', async (t) => {
  const zone = await startZone({
    'dest.test': { MX: ['10 evil.other.test', '20 a.google.com', '30 b.google.com'] },
    'same.test': { MX: ['20 a.google.com', '30 b.google.com'] },
    'other.test': { MX: ['10 mx.other.test'] },
    'mx.other.test': { A: ['127.0.0.5'] },
    'evil.other.test': { A: ['127.0.0.2'] },
    'a.google.com': { A: ['127.0.0.3'] },
    'b.google.com': { A: ['127.0.0.4'] },
  })
  t.teardown(() => zone.close())
  const resolver = createDnsResolver({ servers: [zone.server], timeoutMilliseconds: 2_000, tries: 1 })
  const enforce = finderOf({ resolver, sts: [stsOf('dest.test', ['*.google.com'])] })
  const route = await enforce.find('dest.test')
  t.same(kinds(route), ['a verified', 'b verified'])
  t.match(route, { provider: { provider: 'google' } }, 'the stranger does not count')
  t.notOk(zone.queries.includes('A evil.other.test'))
  t.match(await finderOf({ resolver }).find('dest.test'), { provider: { provider: null } }, 'without a policy it does')

  const same = await enforce.find('same.test')
  t.same(kinds(same), ['a required', 'b required'], "another domain's policy is nothing to it, the provider's block is")
  t.match(same, { hosts: [{ tls: { by: 'provider google', policy: { type: 'required', id: 'provider google' } } }] })
  t.ok(route.kind === 'hosts' && same.kind === 'hosts' && route.siteKey !== same.siteKey)

  const testing = finderOf({ resolver, sts: [stsOf('dest.test', ['*.google.com'], 'testing')] })
  const tested = await testing.find('dest.test')
  t.same(kinds(tested), ['evil opportunistic', 'a opportunistic', 'b opportunistic'])
  t.match(tested, { hosts: [{ tls: { policy: { type: 'sts', id: 'one' } } }] })

  const nowhere = await finderOf({ resolver, sts: [stsOf('dest.test', ['mx.dest.test'])] }).find('dest.test')
  t.match(nowhere, { kind: 'no-usable-host', code: '4.7.5' })
  const off = finderOf({ resolver, sts: [stsOf('dest.test', ['mx.dest.test'])], delivery: { mta_sts: false } })
  t.same(kinds(await off.find('dest.test')), ['evil opportunistic', 'a opportunistic', 'b opportunistic'])

  const required = finderOf({ resolver, sts: [stsOf('dest.test', ['*.google.com'])], delivery: { tls: 'required' } })
  t.same(kinds(await required.find('other.test')), ['mx required'])
  t.same(kinds(await required.find('dest.test')), ['a verified', 'b verified'], 'the stronger one holds')
})

t.test('the family of addresses', (t) => {
  const tls: MailHost['tls'] = { kind: 'opportunistic', policy: { type: 'none', id: '' } }
  const both: MailHost = { name: 'a', addresses: ['192.0.2.1', '2001:db8::1'], tls }
  const only6: MailHost = { name: 'b', addresses: ['2001:db8::2'], tls }
  const v4 = ['10.0.0.1']
  const v6 = ['fd00::1']
  const cases: [MailHost[], Parameters<typeof familiesToAsk>[1], string[], number[]][] = [
    [[both], 'prefer-v4', [...v4, ...v6], [4, 6]],
    [[both], 'prefer-v6', [...v4, ...v6], [6, 4]],
    [[both], 'prefer-v4', v6, [6]],
    [[both], 'prefer-v6', v4, [4]],
    [[both], 'off', v6, []],
    [[both], 'off', v4, [4]],
    [[only6], 'prefer-v4', [...v4, ...v6], [6]],
    [[only6], 'off', [...v4, ...v6], []],
    [[only6], 'prefer-v6', v4, []],
    [[both, only6], 'prefer-v4', [...v4, ...v6], [4, 6]],
  ]
  for (const [hosts, choice, sources, expected] of cases) {
    t.same(familiesToAsk(hosts, choice, sources), expected, choice)
  }
  const reached = hostsFor({ source: 'fd00::1' }, { hosts: [both, only6] })
  t.same(
    reached.map(({ addresses }) => addresses),
    [['2001:db8::1'], ['2001:db8::2']],
  )
  t.same(
    hostsFor({ source: '10.0.0.1' }, { hosts: [both, only6] }).map(({ name }) => name),
    ['a'],
  )
  t.end()
})

t.test('a long policy is told by what has room in a key of the store', async (t) => {
  const certificate = 'ab'.repeat(1_500)
  const records = ['00', '01'].map((start) => ({ usage: 3, selector: 0, matching: 0, data: `${start}${certificate}` }))
  const mx = Array.from({ length: 60 }, (_, number) => `mail-${number}.${'long-name.'.repeat(10)}dest.test`)
  const sts = stsOf('dest.test', mx)
  const isSecure = true
  const tlsa = async () => ({ kind: 'found' as const, records, facts: { isSecure, expiresAt: null } })
  const policies = createTlsPolicies({
    validating: { tlsa } as unknown as ValidatingResolver,
    sts: { policyFor: async () => sts },
    settings: () => shipped,
  })
  const [name = ''] = mx
  const facts = { domain: 'dest.test', isSecure, sts: await policies.stsFor('dest.test') }
  const host = { name, canonicalName: name, addresses: ['192.0.2.1'], isSecure, failure: null }
  const dane = await policies.tlsOf(host, facts)
  const ofDane = policies.describe('dest.test', name, dane?.policy ?? { type: 'none', id: '' }).lines
  t.same(
    ofDane,
    records.map(({ data }) => `3 0 0 ${data.slice(0, 294)}…`),
  )
  const ofSts = policies.describe('dest.test', name, { type: 'sts', id: sts.id }).lines
  t.same(ofSts, ['version: STSv1', 'mode: enforce', ...mx.slice(0, 7).map((each) => `mx: ${each}`), 'and 54 more'])
})
