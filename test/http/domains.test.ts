/**
 * The routes of sending domains: what they take, what they hand on, what they answer, and for whom.
 */
import t, { type Test } from 'tap'
import type { HttpFeatures } from '../../src/http/exchange/features.ts'
import type { DomainView } from '../../src/senders/domain-view.ts'
import { ask, get, post, shareStore, startApi, type ApiServer, type Got, type KeyName } from './api-server.ts'
import { fakeDomain, fakeDomains } from './fake-domains.ts'

shareStore(t)

/** Domains that nobody has, or that are no domains. */
const UNKNOWN = ['unknown.com', 'not%20a%20domain', '%FF', '..', 'com']

/** `changes`: what the routes handed on. */
async function startDomains(t: Test): Promise<ApiServer & { changes: unknown[] }> {
  const changes: unknown[] = []
  return { ...(await startApi(t, { features: { domains: fakeDomains(changes) } })), changes }
}

function patch(port: number, path: string, body: unknown, key: KeyName = 'domains'): Promise<Got> {
  return ask(port, { method: 'PATCH', path, key, body: JSON.stringify(body) })
}

t.test('reports are asked for by days; a key for some domains is told nothing of the whole server', async (t) => {
  const { port, changes } = await startDomains(t)
  const path = '/v1/domains/acme.com/authentication'
  t.match((await get(port, path)).json, { data: { domain: 'acme.com' } })
  const [{ from, to }] = changes as [{ from: string; to: string }]
  t.equal(Date.parse(to) - Date.parse(from), 29 * 86_400_000, 'the last 30 days')
  await get(port, `${path}?from=1795132800&to=1795132801`)
  await get(port, `${path}?from=1795132800&to=1795132801`, 'limited')
  t.same(changes.slice(1), [
    { from: '2026-11-20', to: '2026-11-20', isWhole: true },
    { from: '2026-11-20', to: '2026-11-20', isWhole: false },
  ])
  await get(port, `${path}?days=1`)
  t.match(changes[3], { from: to, to })
  for (const query of [
    'days=0',
    'days=401',
    'days=999',
    'days=5&from=1795132800',
    'from=2&to=1',
    'from=1&to=1795132800',
    'to=999999999999',
    'from=x',
    'to=-1',
  ]) {
    t.equal((await get(port, `${path}?${query}`)).status, 422, query)
  }
  t.equal((await get(port, '/v1/domains/unknown.com/authentication')).status, 404)
  t.equal((await get(port, '/v1/domains/other.com/authentication', 'limited')).status, 403)
  t.equal((await get(port, path, 'test')).status, 404)
  t.equal((await get(port, path, 'read')).status, 403)
})

t.test('a domain is 201 when it is new and 200 when it is there', async (t) => {
  const { port, changes, log } = await startDomains(t)
  t.equal((await post(port, '/v1/domains', { domain: 'acme.com' })).status, 201)
  t.match(
    log.find(({ msg }) => msg === 'domain added'),
    { domain: 'acme.com', api_key: 'admin …9f3a' },
  )
  t.equal((await post(port, '/v1/domains', { domain: 'known.com' })).status, 200)
  t.notOk(log.some(({ msg, domain }) => msg === 'domain added' && domain === 'known.com'))
  const all = {
    name: 'acme.com',
    return_path: 'b',
    tracking_domain: 'x',
    tracking: { opens: false, clicks: null },
    dkim_selector: 's',
    dkim_private_key: 'PEM',
    allow_subdomains: true,
    ip_pool: 'default',
  }
  t.equal((await post(port, '/v1/domains', all)).status, 201)
  t.same(changes[2], {
    name: 'acme.com',
    returnPath: 'b',
    trackingDomain: 'x',
    tracking: { opens: false, clicks: undefined },
    selector: 's',
    privateKeyPem: 'PEM',
    allowSubdomains: true,
    ipPool: 'default',
  })
  for (const body of [{}, { domain: null }]) {
    const { status, json } = await post(port, '/v1/domains', body)
    t.equal(status, 422)
    t.equal(json.error?.details, 'domain: is missing')
  }
  const wrong = { domain: 5, allow_subdomains: 'yes', tracking: { opens: 1 }, dkim_private_key: {} }
  t.same((await post(port, '/v1/domains', wrong)).json.error?.details.split('; '), [
    'domain: expected a string, got a number',
    'tracking.opens: expected true or false, got a number',
    'dkim_private_key: expected a string, got an object',
    'allow_subdomains: expected true or false, got a string',
  ])
})

t.test('a private key comes back in no answer and in no line of the log', async (t) => {
  const { port, log } = await startDomains(t)
  const key = '-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----'
  const bodies = [
    { domain: 'acme.com', dkim_private_key: key },
    { domain: 7, dkim_private_key: key, more: 1 },
  ]
  for (const body of bodies) {
    const { text, headers } = await post(port, '/v1/domains', body)
    t.notMatch(`${text}${JSON.stringify(headers)}`, 'CANARY')
  }
  t.notMatch(JSON.stringify(log), 'CANARY')
})

t.test('the domain in a path is percent-decoded, lower-cased and converted to A-labels', async (t) => {
  const { port } = await startDomains(t)
  const names = { 'ACME.com': 'acme.com', 'b%C3%BCcher.de': 'xn--bcher-kva.de', 'acme%2Ecom.': 'acme.com' }
  for (const [given, name] of Object.entries(names)) {
    const { status, json } = await get(port, `/v1/domains/${given}`, 'domains')
    t.equal(status, 200, given)
    t.equal(json.data?.['domain'], name)
    t.equal((await ask(port, { method: 'DELETE', path: `/v1/domains/${given}` })).json.data?.['domain'], name)
  }
})

t.test('every route of a domain is 404 for one that is not there', async (t) => {
  const { port } = await startDomains(t)
  for (const given of UNKNOWN) {
    for (const [method, path] of [
      ['GET', ''],
      ['PATCH', ''],
      ['DELETE', ''],
      ['DELETE', '?dry_run=true'],
      ['POST', '/verify'],
      ['GET', '/zonefile'],
      ['POST', '/dkim/rotate'],
    ] as const) {
      const { status, json } = await ask(port, { method, path: `/v1/domains/${given}${path}`, key: 'domains' })
      t.equal(status, 404, `${method} ${given}${path}`)
      t.equal(json.error?.code, 'not_found')
      t.equal(json.success, false)
    }
  }
})

t.test('verify takes an empty body, {} and no type, and is 200 whatever the outcome', async (t) => {
  const { port } = await startDomains(t)
  const path = '/v1/domains/acme.com/verify'
  for (const body of [undefined, '', '{}']) {
    const { status, json } = await ask(port, { path, ...(body === undefined ? {} : { body }) })
    t.equal(status, 200)
    t.equal(json.data?.['verified'], false)
  }
  t.match((await ask(port, { path: '/v1/domains/again.com/verify' })).headers['x-service-warnings'], /verify/)
  t.equal((await ask(port, { path, body: 'null' })).status, 422)
})

t.test('a list is the verified domains, 50 at a time, unless the query says otherwise', async (t) => {
  const { port, changes } = await startDomains(t)
  const queries: [string, object][] = [
    ['', { status: 'verified', limit: 50, after: null }],
    ['?', { status: 'verified', limit: 50, after: null }],
    ['?status=all&limit=1&after=a%2Fb', { status: 'all', limit: 1, after: 'a/b' }],
    ['?limit=100&status=degraded', { status: 'degraded', limit: 100, after: null }],
    ['?status=pending&status=failed', { status: 'failed', limit: 50, after: null }],
    ['?after=x?y', { status: 'verified', limit: 50, after: 'x?y' }],
  ]
  for (const [index, [query, asked]] of queries.entries()) {
    t.equal((await get(port, `/v1/domains${query}`, 'domains')).status, 200, query)
    t.same(changes[index], asked, query)
  }
  const first = await get(port, '/api/v1/domains', 'domains')
  t.same(first.json, { success: true, data: [fakeDomain('acme.com')], has_more: true, next_cursor: 'cursor' })
  const last = await get(port, '/v1/domains?after=cursor', 'domains')
  t.match(last.json, { has_more: false, next_cursor: null })
})

t.test('a wrong query parameter is 422 with its name, an unknown one is named in a warning', async (t) => {
  const { port, changes } = await startDomains(t)
  const limit = 'limit: expected a whole number from 1 to 100'
  const cases: [string, string][] = [
    ...['0', '101', '-1', '1.5', '1e2', '', '%205', '+5', '%00'].map((text): [string, string] => [
      `?limit=${text}`,
      limit,
    ]),
    ['?status=verifed', 'status: expected one of all, pending, verified, degraded, failed, suspended'],
    ['?status=', 'status: expected one of all'],
    ['?after=%00', 'after: holds U+0000'],
    ['?limit=x&status=y', `status: expected one of all, pending, verified, degraded, failed, suspended; ${limit}`],
  ]
  for (const [query, details] of cases) {
    const { status, json } = await get(port, `/v1/domains${query}`, 'domains')
    t.equal(status, 422, query)
    t.equal(json.error?.code, 'invalid_request')
    t.match(json.error?.details, details)
  }
  t.equal(changes.length, 0)
  const unknown = await get(port, '/v1/domains?page=2&__proto__=x&constructor=y', 'domains')
  t.equal(unknown.status, 200)
  t.equal(unknown.headers['x-service-warnings'], 'page,__proto__,constructor')
})

t.test('PATCH hands on what is given; null is the same as absent', async (t) => {
  const { port, changes, log } = await startDomains(t)
  const path = '/v1/domains/acme.com'
  const none = { tracking: undefined, ipPool: undefined, allowSubdomains: undefined }
  const cases: [object, object][] = [
    [{}, none],
    [{ tracking: null, ip_pool: null, allow_subdomains: null }, none],
    [{ tracking: { clicks: false } }, { ...none, tracking: { opens: undefined, clicks: false } }],
    [
      { ip_pool: 'bulk', allow_subdomains: false },
      { ...none, ipPool: 'bulk', allowSubdomains: false },
    ],
  ]
  for (const [index, [body, change]] of cases.entries()) {
    const { status, json } = await patch(port, path, body)
    t.equal(status, 200)
    t.equal(json.data?.['domain'], 'acme.com')
    t.same(changes[index], change)
  }
  t.match(
    log.find(({ msg }) => msg === 'domain changed'),
    { domain: 'acme.com', request_id: /^req_/ },
  )
  const wrong = await patch(port, path, { tracking: 'off', ip_pool: 1, allow_subdomains: 'no' })
  t.same(wrong.json.error?.details.split('; '), [
    'tracking: expected an object, got a string',
    'ip_pool: expected a string, got a number',
    'allow_subdomains: expected true or false, got a string',
  ])
  const unknown = await patch(port, path, { return_path: 'b', tracking: { pixel: true } })
  t.equal(unknown.headers['x-service-warnings'], 'return_path,tracking.pixel', 'what it does not take is named')
})

t.test('DELETE drains, purges when asked to, and with dry_run only counts', async (t) => {
  const { port, changes, log } = await startDomains(t)
  const remove = (query: string): Promise<Got> => ask(port, { method: 'DELETE', path: `/v1/domains/acme.com${query}` })
  const counted = await remove('?dry_run=true&purge=true')
  t.same(counted.json, { success: true, data: { domain: 'acme.com', deleted: false, queued_messages: 12 } })
  t.equal(changes.length, 0, 'nothing was removed')
  for (const query of ['', '?purge=false', '?purge=true', '?dry_run=false']) {
    const { status, json } = await remove(query)
    t.equal(status, 200, query)
    t.same(json, { success: true, data: { domain: 'acme.com', deleted: true, queued_messages: 12 } })
  }
  t.same(changes, [{ purge: false }, { purge: false }, { purge: true }, { purge: false }])
  t.same(
    log.filter(({ msg }) => msg === 'domain removed').map(({ purge }) => purge),
    [false, false, true, false],
  )
  for (const query of ['?purge', '?purge=yes', '?purge=1', '?dry_run=']) {
    const { status, json } = await remove(query)
    t.equal(status, 422, query)
    t.match(json.error?.details, 'expected one of true, false')
  }
  t.equal(changes.length, 4, 'a wrong parameter removes nothing')
})

t.test('the zone file is text, its errors are the envelope', async (t) => {
  const { port } = await startDomains(t)
  const { status, text, headers } = await get(port, '/v1/domains/ACME.com/zonefile', 'domains')
  t.equal(status, 200)
  t.equal(text, '; acme.com\n')
  t.equal(headers['content-type'], 'text/plain; charset=utf-8')
  t.equal(headers['cache-control'], 'no-store')
  const head = await ask(port, { method: 'HEAD', path: '/v1/domains/acme.com/zonefile' })
  t.equal(head.headers['content-length'], String(text.length))
  t.equal(head.text, '')
  const unknown = await get(port, '/v1/domains/unknown.com/zonefile', 'domains')
  t.equal(unknown.headers['content-type'], 'application/json; charset=utf-8')
})

t.test('a rotation is 200 with the record, and 409 while one is under way', async (t) => {
  const { port } = await startDomains(t)
  t.equal((await ask(port, { path: '/v1/domains/acme.com/dkim/rotate' })).json.data?.['domain'], 'acme.com')
  const again = await ask(port, { path: '/v1/domains/turning.com/dkim/rotate', body: '{}' })
  t.equal(again.status, 409)
  t.same(again.json.error?.code, 'conflict')
})

t.test('a key for some domains is refused every other domain, known or not', async (t) => {
  const { port, changes } = await startDomains(t)
  for (const [method, path, body] of [
    ['GET', '/v1/domains/other.com'],
    ['GET', '/v1/domains/unknown.com'],
    ['GET', '/v1/domains/other.com/zonefile'],
    ['PATCH', '/v1/domains/other.com', '{}'],
    ['DELETE', '/v1/domains/other.com'],
    ['DELETE', '/v1/domains/other.com?dry_run=true'],
    ['DELETE', '/v1/domains/unknown.com'],
    ['POST', '/v1/domains/other.com/verify', '{}'],
    ['POST', '/v1/domains/other.com/dkim/rotate'],
    ['POST', '/v1/domains', '{"domain":"OTHER.com"}'],
    ['GET', '/v1/domains/sub.acme.com'],
  ] as const) {
    const { status, json } = await ask(port, { method, path, key: 'limited', ...(body === undefined ? {} : { body }) })
    t.equal(status, 403, `${method} ${path}`)
    t.match(json.error?.details, 'the key is not for the domain')
  }
  t.equal(changes.length, 0)
  t.equal((await get(port, '/v1/domains/acme.com', 'limited')).status, 200)
})

t.test('a key for some domains lists those alone, page by page', async (t) => {
  const names = ['c.com', 'gone.com', 'a.com', 'b.com', 'pending.com', 'a.com']
  const views: Record<string, DomainView> = {
    'a.com': viewOf('a.com', 7),
    'b.com': viewOf('b.com', 7),
    'c.com': { ...viewOf('c.com', 9), status: 'degraded' },
    'pending.com': fakeDomain('pending.com'),
  }
  const { port } = await startApi(t, { features: ownDomains(names, views) })
  const list = async (query: string) => {
    const { status, text } = await get(port, `/v1/domains${query}`, 'domains')
    t.equal(status, 200, query)
    const page: { data: DomainView[]; next_cursor: string | null; has_more: boolean } = JSON.parse(text)
    t.equal(page.has_more, page.next_cursor !== null)
    return { names: page.data.map(({ domain }) => domain), next: page.next_cursor }
  }
  t.same(await list(''), { names: ['c.com', 'a.com', 'b.com'], next: null }, 'newest first')
  t.same((await list('?status=all')).names, ['c.com', 'a.com', 'b.com', 'pending.com'])
  t.same((await list('?status=degraded')).names, ['c.com'])
  t.same((await list('?status=pending')).names, ['pending.com'])
  const walked: string[] = []
  let query = '?status=all&limit=1'
  for (;;) {
    const page = await list(query)
    walked.push(...page.names)
    if (page.next === null) break
    query = `?status=all&limit=1&after=${encodeURIComponent(page.next)}`
    if (walked.at(-1) === 'a.com') delete views['a.com']
  }
  t.same(walked, ['c.com', 'a.com', 'b.com', 'pending.com'], 'a removed domain moves no other one out of the walk')
  for (const cursor of ['x', '7', '7.', '.a.com', '-1.a.com']) {
    const { status, json } = await get(port, `/v1/domains?after=${cursor}`, 'domains')
    t.equal(status, 422, cursor)
    t.match(json.error?.details, /^after: /)
  }
})

function viewOf(name: string, createdAt: number): DomainView {
  return { ...fakeDomain(name), status: 'verified', verified: true, can_send: true, created_at: createdAt }
}

/** A key for these domains; listing all of them would fail. */
function ownDomains(names: string[], views: Record<string, DomainView>): Partial<HttpFeatures> {
  const refuse = async (): Promise<never> => {
    throw new Error('not to be called')
  }
  return {
    apiKeys: {
      create: refuse,
      list: refuse,
      find: refuse,
      isValid: refuse,
      isRevoked: refuse,
      usable: refuse,
      change: refuse,
      revoke: refuse,
      authenticate: async () => ({
        id: 'key_1',
        name: 'own',
        mode: 'live',
        scopes: ['domains'],
        domains: names,
        allowedIps: [],
        prefix: 'sk_live_',
        last4: '9f3a',
        createdAt: 0,
        expiresAt: null,
        lastUsedAt: null,
        revokedAt: null,
      }),
    },
    domains: {
      add: refuse,
      verify: refuse,
      list: refuse,
      update: refuse,
      queuedMessages: refuse,
      remove: refuse,
      rotateDkim: refuse,
      zoneFile: refuse,
      link: refuse,
      linked: refuse,
      authentication: refuse,
      find: async (name) => views[name] ?? null,
    },
  }
}
