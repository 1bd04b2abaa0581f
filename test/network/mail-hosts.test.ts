/**
 * Which hosts take a domain's mail, asked of a real DNS server on loopback (network/README.md "Mail hosts").
 */
import t, { type Test } from 'tap'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import {
  createMailHosts,
  type HostFilter,
  type FoundHost,
  type MailHosts,
  type MailHostsOptions,
} from '../../src/network/mail-hosts.ts'
import { startZone, type Zone, type ZoneServer } from '../support/zone.ts'

/** Addresses of the public internet that nothing here connects to. */
const PUBLIC = ['8.8.8.1', '8.8.8.2', '8.8.8.3', '8.8.8.4']
const PUBLIC_IPV6 = '2606:4700::1'

/** Where somebody never answers. */
const SHORT_TIMEOUT = 1_000

interface Finder {
  zone: ZoneServer
  find(domain: string, changes?: Partial<MailHostsOptions>, filter?: HostFilter): Promise<MailHosts>
}

async function finderFor(t: Test, literal: Zone, timeoutMilliseconds = 10_000): Promise<Finder> {
  const zone = await startZone(literal)
  t.teardown(() => zone.close())
  const resolver = createDnsResolver({ servers: [zone.server], timeoutMilliseconds, tries: 1 })
  const usual = { resolver, allowPrivateAddresses: false, ownAddresses: () => [], mostAddresses: 20, random: () => 0 }
  return {
    zone,
    find: (domain, changes = {}, filter) => createMailHosts({ ...usual, ...changes }).find(domain, filter),
  }
}

const namesOf = (found: MailHosts): string[] => (found.kind === 'hosts' ? found.hosts.map(({ name }) => name) : [])
const addressesOf = (found: MailHosts): string[] =>
  found.kind === 'hosts' ? found.hosts.flatMap(({ addresses }) => addresses) : []

/** As a host is found without DNSSEC. */
const plainHost = (name: string, ...addresses: string[]): FoundHost => ({
  name,
  addresses,
  canonicalName: name,
  isSecure: false,
  failure: null,
})

t.test('hosts come by preference, with both families in turns', async (t) => {
  const { find } = await finderFor(t, {
    'example.com': { MX: ['20 mx2.example.com', '10 mx1.example.com'] },
    'mx1.example.com': { A: PUBLIC.slice(0, 2), AAAA: [PUBLIC_IPV6] },
    'mx2.example.com': { AAAA: ['2606:4700::2'] },
  })
  t.same(await find('example.com'), {
    kind: 'hosts',
    hosts: [
      plainHost('mx1.example.com', '8.8.8.1', PUBLIC_IPV6, '8.8.8.2'),
      plainHost('mx2.example.com', '2606:4700::2'),
    ],
    mxNames: ['mx1.example.com', 'mx2.example.com'],
    isSecure: false,
  })
})

t.test('each way to have no host is a result of its own', async (t) => {
  const { find } = await finderFor(
    t,
    {
      'null.example': { MX: ['0 .'] },
      'empty.example': { TXT: ['nothing for mail'] },
      'homeless.example': { MX: ['10 gone.example', '20 bad host!.example'] },
      'private.example': { MX: ['10 inside.example'] },
      'inside.example': { A: ['10.0.0.1', '127.0.0.1'], AAAA: ['fd00::1'] },
      'broken.example': 'SERVFAIL',
      'silent.example': 'TIMEOUT',
      'unknown-hosts.example': { MX: ['10 broken.example', '20 gone.example', '30 inside.example'] },
      'half.example': { A: [], AAAA: 'SERVFAIL' },
    },
    SHORT_TIMEOUT,
  )
  const cases: [string, MailHosts][] = [
    ['null.example', { kind: 'null-mx' }],
    ['nowhere.example', { kind: 'no-name' }],
    ['not a name', { kind: 'no-name' }],
    ['empty.example', { kind: 'no-address' }],
    ['homeless.example', { kind: 'no-address' }],
    ['private.example', { kind: 'refused-addresses' }],
    ['broken.example', { kind: 'no-answer', reason: 'MX broken.example: SERVFAIL' }],
    ['silent.example', { kind: 'no-answer', reason: 'MX silent.example: no server answered in time' }],
    ['unknown-hosts.example', { kind: 'no-answer', reason: 'A broken.example: SERVFAIL' }],
    ['half.example', { kind: 'no-answer', reason: 'AAAA half.example: SERVFAIL' }],
  ]
  for (const [domain, expected] of cases) t.same(await find(domain), expected, domain)
})

t.test('one host that answers is enough', async (t) => {
  const { find } = await finderFor(
    t,
    {
      'example.com': { MX: ['10 broken.example', '20 gone.example', '30 inside.example', '40 good.example'] },
      'broken.example': 'SERVFAIL',
      'inside.example': { A: ['192.168.1.1'] },
      'good.example': { A: ['10.1.1.1', '8.8.8.1'], AAAA: 'TIMEOUT' },
    },
    SHORT_TIMEOUT,
  )
  t.same(await find('example.com'), {
    kind: 'hosts',
    hosts: [{ ...plainHost('good.example', '8.8.8.1'), failure: 'AAAA good.example: no server answered in time' }],
    mxNames: ['broken.example', 'gone.example', 'inside.example', 'good.example'],
    isSecure: false,
  })
})

t.test('without an MX record the domain is its own host, also behind an alias', async (t) => {
  const { find } = await finderFor(t, { 'example.com': { A: ['8.8.8.1'] }, 'alias.example': { CNAME: 'example.com' } })
  for (const domain of ['example.com', 'alias.example']) {
    t.same(await find(domain), {
      kind: 'hosts',
      hosts: [plainHost(domain, '8.8.8.1')],
      mxNames: [domain],
      isSecure: false,
    })
  }
})

t.test('an address or an alias as MX target is taken, but none that leads inwards', async (t) => {
  const { find } = await finderFor(t, {
    'literal.example': { MX: ['10 8.8.8.1', '20 127.0.0.1', '30 1.2.3', '40 0x7f000001'] },
    'alias.example': { MX: ['10 www.example'] },
    'www.example': { CNAME: 'host.example' },
    'host.example': { A: ['8.8.8.2'] },
  })
  t.same(addressesOf(await find('literal.example')), ['8.8.8.1'])
  t.same(addressesOf(await find('alias.example')), ['8.8.8.2'])
})

t.test('a null MX beside others is void, and a name counts once at its better preference', async (t) => {
  const { find } = await finderFor(t, {
    'example.com': { MX: ['0 .', '30 b.example', '20 a.example', '10 b.example'] },
    'a.example': { A: ['8.8.8.1'] },
    'b.example': { A: ['8.8.8.2'] },
  })
  const found = await find('example.com')
  t.same(namesOf(found), ['b.example', 'a.example'])
})

t.test('every special address is left out, and our own', async (t) => {
  const special = [
    '0.0.0.0',
    '10.0.0.1',
    '100.64.0.1',
    '127.0.0.1',
    '169.254.169.254',
    '172.16.0.1',
    '192.0.0.1',
    '192.0.2.1',
    '192.88.99.1',
    '192.168.0.1',
    '198.18.0.1',
    '198.51.100.1',
    '203.0.113.1',
    '224.0.0.1',
    '240.0.0.1',
    '255.255.255.255',
  ]
  const specialIpv6 = [
    '::',
    '::1',
    '::ffff:7f00:1',
    '::7f00:1',
    '64:ff9b::7f00:1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2002:7f00:1::',
    'fc00::1',
    'fe80::1',
    'ff02::1',
  ]
  const { find } = await finderFor(t, {
    'special.example': { A: special, AAAA: specialIpv6 },
    'mixed.example': { A: [...special, '8.8.8.1'], AAAA: [...specialIpv6, PUBLIC_IPV6] },
    'own.example': { A: ['8.8.8.1', '8.8.8.2'], AAAA: [PUBLIC_IPV6] },
  })
  t.same(await find('special.example'), { kind: 'refused-addresses' })
  t.same(addressesOf(await find('mixed.example')).toSorted(), [PUBLIC_IPV6, '8.8.8.1'])
  const ownAddresses = (): string[] => ['8.8.8.1', '2606:4700:0::1']
  t.same(addressesOf(await find('own.example', { ownAddresses })), ['8.8.8.2'])
  const lifted = await find('special.example', { allowPrivateAddresses: true, mostAddresses: 100 })
  t.equal(addressesOf(lifted).length, special.length + specialIpv6.length)
  const ownLifted = await find('own.example', { ownAddresses, allowPrivateAddresses: true })
  t.equal(addressesOf(ownLifted).length, 3)
})

t.test('at most so many addresses in all, and 20 lookups where they are enough', async (t) => {
  const hosts = Array.from({ length: 500 }, (_, index) => `mx${index}.example`)
  const { find, zone } = await finderFor(t, {
    'example.com': { MX: hosts.map((host, index) => `${index} ${host}`) },
    ...Object.fromEntries(hosts.map((host) => [host, { A: PUBLIC }])),
    'wide.example': { A: Array.from({ length: 60 }, (_, index) => `8.8.4.${index}`) },
  })
  const found = await find('example.com')
  t.same(addressesOf(found).length, 20)
  t.same(namesOf(found), hosts.slice(0, 5))
  t.equal(found.kind === 'hosts' && found.mxNames.length, 100)
  t.equal(zone.queries.filter((question) => question.startsWith('A ')).length, 20)
  t.equal(addressesOf(await find('wide.example')).length, 20)
  t.equal(addressesOf(await find('wide.example', { mostAddresses: 3 })).length, 3)
})

t.test('where the best hosts have no address the others are looked up', async (t) => {
  const { find, zone } = await finderFor(t, {
    'many.example': { MX: Array.from({ length: 21 }, (_, index) => `${index} mx${index}.example`) },
    'mx20.example': { A: ['8.8.8.1'] },
    'two.example': { MX: ['10 gone.example', '20 mx20.example'] },
    'endless.example': { MX: Array.from({ length: 150 }, (_, index) => `${index} none${index}.example`) },
  })
  t.same(namesOf(await find('many.example')), ['mx20.example'])
  t.same(namesOf(await find('two.example', { mostAddresses: 1 })), ['mx20.example'])
  zone.queries.length = 0
  const reason = 'MX endless.example: no address of the best 100'
  t.same(await find('endless.example'), { kind: 'no-answer', reason }, 'not all were looked up')
  t.equal(zone.queries.filter((question) => question.startsWith('A ')).length, 100)
})

t.test('equal preferences are shuffled by the random source, others never', async (t) => {
  const { find } = await finderFor(t, {
    'example.com': { MX: ['10 a.example', '10 b.example', '10 c.example', '5 first.example', '50 last.example'] },
    ...Object.fromEntries(
      ['a', 'b', 'c', 'first', 'last'].map((name, index) => [`${name}.example`, { A: [`8.8.8.${index}`] }]),
    ),
  })
  const drawn =
    (...draws: number[]): (() => number) =>
    () =>
      draws.shift() ?? 0
  // The draws go to the names in their sorted order: first, a, b, c, last.
  const found = await find('example.com', { random: drawn(0.9, 0.5, 0.7, 0.1, 0) })
  t.same(namesOf(found), ['first.example', 'c.example', 'a.example', 'b.example', 'last.example'])
  t.same(
    found.kind === 'hosts' && found.mxNames,
    ['first.example', 'a.example', 'b.example', 'c.example', 'last.example'],
    'the set reads the same each time',
  )
  const seen = new Set<string>()
  for (let round = 0; round < 60; round++) {
    seen.add(namesOf(await find('example.com', { random: Math.random }))[1] ?? '')
  }
  t.same([...seen].toSorted(), ['a.example', 'b.example', 'c.example'])
})

t.test('hosts that are not accepted are not even looked up', async (t) => {
  const { find, zone } = await finderFor(t, {
    'example.com': { MX: ['10 mx.example.com', '20 mx.other.example'] },
    'mx.example.com': { A: ['8.8.8.1'] },
    'mx.other.example': { A: ['8.8.8.2'] },
  })
  const found = await find('example.com', {}, (name) => name === 'mx.other.example')
  t.match(found, { kind: 'hosts', hosts: [{ name: 'mx.other.example' }], mxNames: ['mx.other.example'] })
  t.notOk(zone.queries.includes('A mx.example.com'))
  t.same(await find('example.com', {}, () => false), {
    kind: 'none-accepted',
    mxNames: ['mx.example.com', 'mx.other.example'],
  })
})
