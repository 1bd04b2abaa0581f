/**
 * From the MX set of a domain to its provider, the `isp` customers see, and the route (egress/README.md "Providers").
 */
import t from 'tap'
import type { ProviderSettings } from '../../src/config/settings/provider-settings.ts'
import { identifyProvider, siteName } from '../../src/egress/shaping/mailbox-provider.ts'

type Block = ProviderSettings['providers'][string]

const DEFAULT: ProviderSettings['default'] = {
  connections: 10,
  messages_per_connection: 100,
  in_flight: 4,
  rate: { count: 100, per_milliseconds: 1_000 },
  connection_rate: { count: 100, per_milliseconds: 60_000 },
  tls: 'opportunistic',
  idle: 15_000,
  failures: 10,
  scope: 'host_set',
}
const block = (changes: Partial<Block>): Block => ({
  ...DEFAULT,
  isp: 'unset',
  mx_suffixes: [],
  domains: [],
  scope: 'provider',
  ...changes,
})

const SETTINGS: ProviderSettings = {
  version: 1,
  default: DEFAULT,
  providers: Object.assign(Object.create(null), {
    google: block({ isp: 'gmail', mx_suffixes: ['google.com', 'googlemail.com'], connections: 5, tls: 'required' }),
    office365: block({ isp: 'outlook', mx_suffixes: ['mail.protection.outlook.com'] }),
    yahoo_japan: block({ isp: 'yahoo_japan', domains: ['yahoo.co.jp'] }),
    mimecast: block({ isp: 'mimecast', mx_suffixes: ['mimecast.com', 'mimecast.co.za'], scope: 'host_set' }),
    late: block({ isp: 'late', mx_suffixes: ['com'] }),
  }),
  replies: [],
  machines: [],
}

const identify = (domain: string, ...mxNames: string[]): ReturnType<typeof identifyProvider> =>
  identifyProvider(SETTINGS, domain, mxNames)

t.test('a provider is known by its hosts or by the recipient domain', async (t) => {
  const cases: [string, string, string[], string | null, string][] = [
    ['Gmail', 'gmail.com', ['gmail-smtp-in.l.google.com', 'alt1.gmail-smtp-in.l.google.com'], 'google', 'gmail'],
    ['Workspace', 'acme.test', ['aspmx.l.google.com', 'aspmx2.googlemail.com'], 'google', 'gmail'],
    ['upper case', 'Acme.test', ['ASPMX.L.GOOGLE.COM'], 'google', 'gmail'],
    ['the suffix itself', 'acme.test', ['google.com'], 'google', 'gmail'],
    ['Office 365', 'acme.test', ['acme-test.mail.protection.outlook.com'], 'office365', 'outlook'],
    ['a domain by name', 'yahoo.co.jp', ['mx1.mail.yahoo.co.jp'], 'yahoo_japan', 'yahoo_japan'],
    ['a domain by name, without hosts', 'yahoo.co.jp', [], 'yahoo_japan', 'yahoo_japan'],
    ['no label boundary', 'acme.test', ['mx.notgoogle.com'], 'late', 'late'],
    ['another ending', 'acme.test', ['mx.google.net'], null, 'google.net'],
    ['the suffix in the middle', 'acme.test', ['google.com.evil.net'], null, 'evil.net'],
    ['the first block wins', 'acme.test', ['mx.google.com'], 'google', 'gmail'],
    ['a later block', 'acme.test', ['mx.example.com'], 'late', 'late'],
    ['a subdomain of a listed domain', 'sub.yahoo.co.jp', ['mx.sub.yahoo.co.jp'], null, 'yahoo.co.jp'],
  ]
  for (const [what, domain, hosts, provider, isp] of cases) {
    t.match(identify(domain, ...hosts), { provider, isp }, what)
  }
})

t.test("one stranger in the set means that it is nobody's", async (t) => {
  const mixed = identify('acme.test', 'backup.example.org', 'aspmx.l.google.com')
  t.match(mixed, { provider: null, isp: 'example.org', limits: DEFAULT })
  const twoProviders = identify('acme.test', 'aspmx.l.google.com', 'eu-smtp-inbound-1.mimecast.co.za')
  t.equal(twoProviders.provider, null)
})

t.test('isp is the registrable domain of the best host, else of the recipient, and never empty', async (t) => {
  const cases: [string, string[], string][] = [
    ['acme.test', ['mx1.mail.example.co.uk', 'mx.other.net'], 'example.co.uk'],
    ['mail.acme.org', ['mail.acme.org'], 'acme.org'],
    ['user.acme.org', [], 'acme.org'],
    ['user.acme.org', ['192.0.2.1'], 'acme.org'],
    ['user.acme.org', ['192.0.2.1', 'mx.host.net'], 'host.net'],
    ['localhost', ['localhost'], 'localhost'],
    ['co.uk', [], 'co.uk'],
  ]
  for (const [domain, hosts, isp] of cases) t.equal(identify(domain, ...hosts).isp, isp, `${domain} ${hosts.join()}`)
})

t.test('limits are those of the block, or the default line', async (t) => {
  const { limits } = identify('gmail.com', 'mx.google.com')
  t.match(limits, { connections: 5, tls: 'required', messages_per_connection: 100 })
  t.same(identify('acme.test', 'mx.example.net').limits, DEFAULT)
})

t.test('the route is the provider, or the site', async (t) => {
  const route = (domain: string, ...hosts: string[]): string => identify(domain, ...hosts).route
  t.equal(route('gmail.com', 'mx.google.com'), 'google')
  t.equal(route('acme.test', 'mx2.google.com', 'mx.google.com'), 'google')
  const site = route('a.test', 'mx1.example.net', 'mx2.example.net')
  t.match(site, /^site-[0-9a-f]{20}$/)
  t.equal(route('b.test', 'MX2.example.net', 'mx1.example.net'), site, 'domains with one set share one path')
  t.not(route('b.test', 'mx1.example.net'), site)
  t.not(route('b.test', 'mx1.example.net', 'mx3.example.net'), site)
  const mimecast = route('a.test', 'eu-1.mimecast.com', 'eu-2.mimecast.com')
  t.match(mimecast, /^mimecast-[0-9a-f]{20}$/, 'host_set: a path per site inside the block')
  t.not(route('a.test', 'us-1.mimecast.com', 'us-2.mimecast.com'), mimecast)
})

t.test('a site name folds digits at the same place', async (t) => {
  const cases: [string[], string][] = [
    [['mx2.example.net', 'mx1.example.net'], 'mx[12].example.net'],
    [['mx1.example.net'], 'mx1.example.net'],
    [['mx.example.net', 'mx1.example.net'], 'mx.example.net,mx1.example.net'],
    [['mx10.example.net', 'mx11.example.net', 'mx20.example.net'], 'mx[12][01].example.net'],
    [['b1.example.net', 'a1.example.net'], 'a1.example.net,b1.example.net'],
    [['mx1.example.net', 'mx1.example.net'], 'mx1.example.net'],
    [[], ''],
  ]
  for (const [hosts, expected] of cases) t.equal(siteName(hosts), expected, hosts.join())
})
