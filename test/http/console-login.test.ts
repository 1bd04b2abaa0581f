/**
 * Who gets into the console: links, keys, cookies, roles, other origins; and thirty ways in which somebody tries who
 * may not, each refused, and in the log.
 */
import { cpSync, renameSync } from 'node:fs'
import { request } from 'node:http'
import { request as requestOverTls } from 'node:https'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { consoleAddress } from '../../src/http/console/console-address.ts'
import { createConsoleAssets } from '../../src/http/console/console-assets.ts'
import type { Role } from '../../src/http/exchange/logins.ts'
import { createLogins } from '../../src/operations/logins.ts'
import { ask, keyNamed, startApi, type ApiServer, type Got } from './api-server.ts'
import { MAIL_CERTIFICATE, MAIL_KEY } from './certificates.ts'

const CONSOLE = { listener: { serve: ['api', 'console'] } }
const DAY = 86_400_000
const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' }
const OWN_PAGE = { 'X-Sternpost-Console': '1', 'Sec-Fetch-Site': 'same-origin' }

async function linkOf({ features }: ApiServer, name = 'ada', role: Role = 'owner'): Promise<string> {
  return (await features.logins.makeLink({ name, role })).secret
}

const postLink = ({ port }: ApiServer, secret: string, headers = {}): Promise<Got> =>
  ask(port, { path: `/console/login/${secret}`, key: null, headers })

const postKey = ({ port }: ApiServer, key: string, headers = {}): Promise<Got> =>
  ask(port, { path: '/console/login', key: null, headers: { ...FORM, ...headers }, body: `key=${key}` })

function cookieIn({ headers }: Got): string {
  return headers['set-cookie']?.[0]?.split(';')[0] ?? ''
}

async function logIn(server: ApiServer, name = 'ada', role: Role = 'owner'): Promise<string> {
  return cookieIn(await postLink(server, await linkOf(server, name, role)))
}

interface Visit {
  method?: string
  headers?: Record<string, string>
  body?: object
}

const visit = ({ port }: ApiServer, path: string, cookie: string, { method = 'GET', headers, body }: Visit = {}) =>
  ask(port, {
    method,
    path,
    key: null,
    headers: { Cookie: cookie, 'Content-Type': 'application/json', ...OWN_PAGE, ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })

t.test('a link shows a page with one button, sets no cookie, and logs in once by a POST', async (t) => {
  const server = await startApi(t, CONSOLE)
  const secret = await linkOf(server)
  for (let look = 1; look <= 3; look++) {
    const shown = await ask(server.port, { method: 'GET', path: `/console/login/${secret}`, key: null })
    t.equal(shown.status, 200)
    t.match(shown.text, /<form method="post"><button/)
    t.equal(shown.headers['set-cookie'], undefined, 'whoever only looks does not use it up')
  }
  const opened = await postLink(server, secret)
  t.match(opened, { status: 303, headers: { location: '/console/' } })
  const [cookie = ''] = opened.headers['set-cookie'] ?? []
  t.match(cookie, /^sternpost-\d+=[\w-]{43}; Path=\/; Max-Age=2592000; HttpOnly; SameSite=Strict$/)
  t.match((await visit(server, '/console/session', cookieIn(opened))).json.data, { name: 'ada', role: 'owner' })
  t.equal((await postLink(server, secret)).status, 401, 'once')
  t.match(server.log.at(-1), { level: 'warn', reason: 'login link: used', remote_address: '127.0.0.1' })
})

t.test('over TLS the cookie is of this host alone, and secure', async (t) => {
  const folder = t.testdir({ certificate: MAIL_CERTIFICATE, key: MAIL_KEY })
  const certificates = [{ cert_file: join(folder, 'certificate'), key_file: join(folder, 'key') }]
  const server = await startApi(t, {
    listener: { serve: ['api', 'console'], tls: true },
    tls: { certificates, acme: null, min_version: 'TLSv1.2', ca_file: null },
  })
  const path = `/console/login/${await linkOf(server)}`
  const cookie = await new Promise<string>((resolve, reject) => {
    const options = { host: '127.0.0.1', port: server.port, path, method: 'POST', rejectUnauthorized: false }
    const outgoing = requestOverTls(options, (answer) => {
      answer.resume()
      resolve(answer.headers['set-cookie']?.[0] ?? '')
    })
    outgoing.on('error', reject)
    outgoing.end()
  })
  t.match(cookie, /^__Host-sternpost=[\w-]{43}; Path=\/; Max-Age=2592000; HttpOnly; SameSite=Strict; Secure$/)
})

t.test('an API key logs in to what it may see, as long as it is in force', async (t) => {
  const server = await startApi(t, { ...CONSOLE, ownStore: true })
  const made = await server.features.apiKeys.create({
    name: 'shop',
    mode: 'live',
    scopes: ['messages:read'],
    domains: ['acme.com'],
    allowedIps: [],
    expiresAt: null,
  })
  const cookie = cookieIn(await postKey(server, made.key))
  const session = await visit(server, '/console/session', cookie)
  t.match(session.json.data, { role: null, scopes: ['messages:read'], domains: ['acme.com'] })
  t.equal((await visit(server, '/v1/email', cookie)).status, 200)
  t.equal((await visit(server, '/v1/domains', cookie)).status, 403, 'a scope that it lacks')
  t.equal((await visit(server, '/v1/admin/queue', cookie)).status, 403)
  await server.features.apiKeys.revoke(made.record.id, { keepsAdmin: false })
  t.equal((await visit(server, '/v1/email', cookie)).status, 401)
})

t.test('readers change nothing; people and keys are for owners', async (t) => {
  const server = await startApi(t, CONSOLE)
  const [owner, operator, reader] = await Promise.all(
    (['owner', 'operator', 'reader'] as const).map((role) => logIn(server, role, role)),
  )
  const hold = { method: 'POST', body: { action: 'hold', dry_run: true } }
  const backup = await visit(server, '/v1/admin/backups', owner ?? '', { method: 'POST', body: { to: '/etc/evil' } })
  t.match(backup, { status: 403, text: /only the admin socket/ }, 'nor does anybody in the console name a folder')
  for (const [cookie = '', statuses] of [
    [owner, [200, 200, 200, 200]],
    [operator, [200, 200, 403, 403]],
    [reader, [200, 403, 403, 403]],
  ] as const) {
    const seen = [
      await visit(server, '/v1/admin/queue', cookie),
      await visit(server, '/v1/admin/queue/actions', cookie, hold),
      await visit(server, '/v1/keys', cookie),
      await visit(server, '/v1/admin/audit', cookie),
    ]
    t.same(
      seen.map(({ status }) => status),
      statuses,
    )
  }
})

t.test('a session ends by hand, with its person, by time', async (t) => {
  const server = await startApi(t, { ...CONSOLE, ownStore: true })
  const { logins } = server.features
  const cookie = await logIn(server)
  const out = await ask(server.port, { path: '/console/logout', key: null, headers: { Cookie: cookie } })
  t.match(out, { status: 303, headers: { location: '/console/login' } })
  t.match(out.headers['set-cookie']?.[0], /=; Path=\/; Max-Age=0;/)
  t.equal((await visit(server, '/v1/email', cookie)).status, 401, 'a cookie that somebody kept')
  const ended = await logIn(server)
  const [session] = await logins.sessions()
  const own = await logIn(server)
  t.equal((await visit(server, `/v1/admin/sessions/${session?.id}/end`, own, { method: 'POST', body: {} })).status, 200)
  t.equal((await visit(server, '/v1/email', ended)).status, 401)
  const bob = await logIn(server, 'bob', 'reader')
  const person = (await logins.people()).find(({ name }) => name === 'bob')
  await logins.removePerson(person?.id ?? '')
  t.equal((await visit(server, '/v1/email', bob)).status, 401, 'the person is gone')
  server.clock.advance(DAY / 2)
  t.equal((await visit(server, '/v1/email', own)).status, 401, 'nobody used it for twelve hours')
  t.same(await logins.sessions(), [])
})

t.test('a session that is used does not end, however short a time without use ends it', async (t) => {
  const { store, clock, features } = await startApi(t, { ...CONSOLE, ownStore: true })
  const given = { store, apiKeys: features.apiKeys, realClock: clock, logger: createLogger({ level: 'silent' }) }
  const logins = createLogins({ ...given, idle: 60_000 })
  const visitor = { address: '127.0.0.1', userAgent: '' }
  const { secret } = await logins.openWithKey(keyNamed('read'), visitor)
  for (let looks = 0; looks < 6; looks++) {
    clock.advance(40_000)
    t.ok(await logins.session(secret, visitor.address))
    // What is written later is there later.
    await store.forgetAudit(0, 1)
  }
  clock.advance(60_000)
  await t.rejects(logins.session(secret, visitor.address), /the session is over/)
})

t.test('logging out ends the session, also where its key may not be used', async (t) => {
  const server = await startApi(t, { ...CONSOLE, ownStore: true, http: { trusted_proxies: ['127.0.0.1'] } })
  const cookie = cookieIn(await postKey(server, keyNamed('limited')))
  const elsewhere = { 'X-Forwarded-For': '198.51.100.7' }
  t.equal((await visit(server, '/v1/email', cookie)).status, 200)
  t.equal((await visit(server, '/v1/email', cookie, { headers: elsewhere })).status, 401)
  const headers = { Cookie: cookie, ...elsewhere }
  t.equal((await ask(server.port, { path: '/console/logout', key: null, headers })).status, 303)
  t.equal((await visit(server, '/v1/email', cookie)).status, 401, 'a cookie that somebody kept')
  t.same(await server.features.logins.sessions(), [])
})

t.test('behind a proxy with a password of its own, and one that names its port', async (t) => {
  const server = await startApi(t, CONSOLE)
  const cookie = await logIn(server)
  const reading = async (headers: Record<string, string>): Promise<number> =>
    (await visit(server, '/v1/email', cookie, { headers })).status
  t.equal(await reading({ Authorization: 'Basic YWRhOnNlY3JldA==' }), 200)
  t.equal(await reading({ Authorization: 'Bearer sk_live_wrong' }), 401, 'a key stands before the cookie')
  const Origin = 'https://mail.acme.com'
  for (const Host of ['mail.acme.com', 'mail.acme.com:443']) t.equal(await reading({ Host, Origin }), 200, Host)
  for (const Host of ['mail.acme.com:8443', 'acme.com', 'x@', '']) t.equal(await reading({ Host, Origin }), 403, Host)
})

t.test('thirty who may not come in', async (t) => {
  const server = await startApi(t, { ...CONSOLE, ownStore: true })
  const cookie = await logIn(server)
  const used = await linkOf(server)
  await postLink(server, used)
  const expired = await linkOf(server, 'bob')
  server.clock.advance(15 * 60_000)
  const fresh = await linkOf(server, 'eve')
  const foreign = { 'Sec-Fetch-Site': 'cross-site', Origin: 'https://evil.example' }
  const sameSite = { 'Sec-Fetch-Site': 'same-site', Origin: 'http://other.127.0.0.1' }
  const wrongOrigin = { Origin: 'http://evil.example' }
  const value = cookie.split('=')[1] ?? ''
  const act: Visit = { method: 'POST', body: { action: 'hold', dry_run: true } }
  const acting = (headers: Record<string, string>): Promise<Got> =>
    visit(server, '/v1/admin/queue/actions', cookie, { ...act, headers })
  const reading = (given: string): Promise<Got> => visit(server, '/v1/email', given)
  const attacks: Record<string, () => Promise<Got>> = {
    'a link that was used': () => postLink(server, used),
    'a link whose time is over': () => postLink(server, expired),
    'a link that nobody made': () => postLink(server, 'a'.repeat(43)),
    'a link with another last character': () =>
      postLink(server, fresh.slice(0, -1) + (fresh.endsWith('A') ? 'B' : 'A')),
    'a link that is cut short': () => postLink(server, fresh.slice(0, 20)),
    'a link with more behind it': () => postLink(server, `${fresh}x`),
    'a link with a slash': () => postLink(server, `${fresh.slice(0, 10)}/${fresh.slice(10)}`),
    'a link with a null byte': () => postLink(server, `${fresh.slice(0, -3)}%00`),
    'a link as SQL': () => postLink(server, "'%20or%201=1--"),
    'a link from a page elsewhere': () => postLink(server, fresh, foreign),
    'a link from a neighbour of the host': () => postLink(server, fresh, sameSite),
    'a link from another origin': () => postLink(server, fresh, wrongOrigin),
    'a link from a page without origin': () => postLink(server, fresh, { Origin: 'null' }),
    'no key': () => postKey(server, ''),
    'a key that nobody has': () => postKey(server, `sk_live_${'a'.repeat(40)}`),
    'a key with another end': () => postKey(server, keyNamed('read').replace('9f3a', '0000')),
    'a key from a page elsewhere': () => postKey(server, keyNamed('admin'), foreign),
    'no cookie': () => reading(''),
    'a cookie that was made up': () => reading(cookie.replace(value, 'b'.repeat(43))),
    'a cookie that is empty': () => reading(cookie.replace(value, '')),
    'a cookie that is long': () => reading(cookie.replace(value, 'b'.repeat(4_000))),
    'a cookie of another port': () => reading(cookie.replace(/\d+=/, '1=')),
    'a cookie with the name of TLS': () => reading(`__Host-sternpost=${value}`),
    'the secret of a link as a cookie': () => reading(cookie.replace(value, fresh)),
    'the id of a session as a cookie': async () =>
      reading(cookie.replace(value, (await server.features.logins.sessions())[0]?.id ?? '')),
    'an act from a page elsewhere': () => acting(foreign),
    'an act from a neighbour of the host': () => acting(sameSite),
    'an act of a form, without the header': () =>
      ask(server.port, {
        path: '/v1/admin/queue/actions',
        key: null,
        headers: { Cookie: cookie, 'Content-Type': 'application/json' },
        body: JSON.stringify(act.body),
      }),
    'an act from a typed address': () => acting({ 'Sec-Fetch-Site': 'none' }),
    'reading from a page elsewhere': () => visit(server, '/v1/email', cookie, { headers: foreign }),
    'logging out from a page elsewhere': () =>
      ask(server.port, { path: '/console/logout', key: null, headers: { Cookie: cookie, ...foreign } }),
    'an invitation of a reader': async () =>
      visit(server, '/v1/admin/people', await logIn(server, 'reader', 'reader'), {
        method: 'POST',
        body: { name: 'mallory', role: 'owner' },
      }),
  }
  t.equal(Object.keys(attacks).length >= 30, true)
  for (const [name, attack] of Object.entries(attacks)) {
    const before = server.log.length
    const { status, headers } = await attack()
    // From one address there may be twenty wrong ones in a minute.
    t.match(String(status), /^(401|403|404|429)$/, name)
    t.equal(headers['set-cookie'], undefined, `${name}: no cookie`)
    t.ok(server.log.length > before, `${name}: in the log`)
    server.clock.advance(61_000)
  }
  t.equal((await reading(cookie)).status, 200, 'and the one who may still can')
  t.same(
    (await server.features.logins.people()).map(({ name }) => name),
    ['ada', 'bob', 'eve', 'reader'],
    'nobody was let in beside',
  )
})

t.test('who tries too often is not even in the log', async (t) => {
  const server = await startApi(t, CONSOLE)
  const statuses = []
  for (let tries = 0; tries < 25; tries++) statuses.push((await postLink(server, 'a'.repeat(43))).status)
  t.same(statuses, [...Array(20).fill(401), ...Array(5).fill(429)])
  t.equal(server.log.filter(({ msg }) => msg === 'login to the console refused').length, 20)
})

t.test('an owner revokes no last admin key, and is no last owner who goes', async (t) => {
  const server = await startApi(t, { ...CONSOLE, ownStore: true })
  const cookie = await logIn(server)
  const { text } = await visit(server, '/v1/keys?limit=100', cookie)
  const admins = JSON.parse(text).data.filter(({ mode, scopes }: { mode: string; scopes: string[] }) => {
    return mode === 'live' && scopes.includes('admin')
  })
  const revoked = []
  for (const { id } of admins) {
    revoked.push((await visit(server, `/v1/keys/${id}`, cookie, { method: 'DELETE' })).status)
  }
  t.same(revoked, [...Array(admins.length - 1).fill(200), 409])
  const [ada] = await server.features.logins.people()
  const path = `/v1/admin/people/${ada?.id}`
  t.equal((await visit(server, path, cookie, { method: 'DELETE' })).status, 409)
  t.equal((await visit(server, path, cookie, { method: 'PATCH', body: { role: 'reader' } })).status, 409)
})

t.test('an invitation changes no role, and does not pass over another one', async (t) => {
  const server = await startApi(t, { ...CONSOLE, ownStore: true })
  const cookie = await logIn(server)
  const invite = (name: string, role?: Role): Promise<Got> =>
    visit(server, '/v1/admin/people', cookie, { method: 'POST', body: { name, role } })
  t.match((await invite('bob', 'reader')).json.data, { person: { name: 'bob', role: 'reader' } })
  t.match((await invite('bob')).json.data, { person: { name: 'bob', role: 'reader' } })
  t.match(await invite('bob', 'operator'), { status: 409, text: /bob is reader already: change the role first/ })
  t.match((await invite('eve')).json.data, { person: { name: 'eve', role: 'owner' } })
})

t.test('owners see and remove the passkeys of everybody, and it is in the audit', async (t) => {
  const server = await startApi(t, { ...CONSOLE, ownStore: true })
  const [ada, bob] = [await logIn(server), await logIn(server, 'bob', 'operator')]
  const person = (await server.features.logins.people()).find(({ name }) => name === 'bob')
  for (const id of ['one', 'two', 'three']) {
    const made = { personId: person?.id ?? '', publicKey: Buffer.from('key'), counter: 0, createdAt: 5_000 }
    await server.store.addPasskey({ ...made, id, site: 'mail.example.net', label: 'Browser' })
  }
  const own = { method: 'POST', body: { id: 'one' } }
  t.equal((await visit(server, '/console/passkeys/remove', bob, own)).status, 200)
  const path = `/v1/admin/people/${person?.id}/passkeys`
  const listed = { site: 'mail.example.net', label: 'Browser', created_at: 5, used_at: null }
  t.match((await visit(server, path, ada)).json.data, [
    { id: 'three', ...listed },
    { id: 'two', ...listed },
  ])
  t.equal((await visit(server, path, bob)).status, 403)
  t.equal((await visit(server, path, bob, { method: 'DELETE' })).status, 403)
  const gone = await visit(server, path, ada, { method: 'DELETE' })
  t.match(gone.json.data, { person: { name: 'bob' }, removed: 2 })
  t.same((await visit(server, path, ada)).json.data, [])
  for (const method of ['GET', 'DELETE']) {
    t.equal((await visit(server, '/v1/admin/people/x/passkeys', ada, { method })).status, 404)
  }
  const { text } = await visit(server, '/v1/admin/audit?q=passkey', ada)
  t.match(JSON.parse(text).data, [
    { actor: 'ada', act: 'passkeys removed', facts: { person: 'bob', removed: 2 } },
    { actor: 'bob', act: 'passkey removed', facts: { passkey: 'one' } },
  ])
})

t.test('a wrong door has no console', async (t) => {
  for (const listener of [{ serve: ['api'] }, { serve: ['api', 'console'], address: '*' }]) {
    const { port } = await startApi(t, { listener })
    t.equal((await ask(port, { method: 'GET', path: '/console/', key: null })).status, 404, JSON.stringify(listener))
  }
})

t.test('links to the console lead to where people reach it', async (t) => {
  const plain = { address: '127.0.0.1', port: 8080, tls: false, serve: ['api', 'console'] as const }
  const at = (door: Partial<typeof plain>, ...trusted: string[]): string | null =>
    consoleAddress([{ ...plain, ...door, serve: [...plain.serve] }], {
      console: { enabled: true, session: 1 },
      http: { trusted_proxies: trusted },
      public_url: 'https://mail.acme.com',
    })
  t.equal(at({}), 'http://127.0.0.1:8080/console/')
  t.equal(at({}, '10.0.0.0/8'), 'http://127.0.0.1:8080/console/', 'that proxy does not reach this door')
  t.equal(at({}, '127.0.0.0/8'), 'https://mail.acme.com/console/', 'a proxy of this machine ends TLS')
  t.equal(at({ address: '10.0.0.1' }, '10.0.0.0/8'), null)
})

t.test('files are served by their hash, compressed, for ever', async (t) => {
  const server = await startApi(t, CONSOLE)
  const shell = await ask(server.port, { method: 'GET', path: '/console/messages?q=x', key: null })
  t.match(shell.headers['content-security-policy'], /^default-src 'none'; script-src 'self';/)
  const paths = [...shell.text.matchAll(/\/console\/assets\/[\w.-]+/g)].map(([path]) => path)
  t.ok(paths.length > 5)
  for (const path of paths) {
    for (const encoding of ['br', 'gzip', 'identity']) {
      const { status, headers } = await head(server.port, path, encoding)
      t.match(headers, { 'cache-control': 'public, max-age=31536000, immutable', 'x-content-type-options': 'nosniff' })
      t.equal(status, 200)
      t.equal(headers['content-encoding'] ?? 'identity', encoding)
    }
  }
  for (const path of ['/console/assets/main.js', '/console/assets/', '/console/assets/..%2f..%2fmain.ts']) {
    t.equal((await ask(server.port, { method: 'GET', path, key: null })).status, 404, path)
  }
})

t.test('files that could not be read once are read again', async (t) => {
  const folder = t.testdir({})
  cpSync(new URL('../../src/console/', import.meta.url), folder, { recursive: true })
  renameSync(join(folder, 'login.ts'), join(folder, 'away.ts'))
  const assets = createConsoleAssets(pathToFileURL(`${folder}/`))
  await t.rejects(assets(), { code: 'ENOENT' })
  renameSync(join(folder, 'away.ts'), join(folder, 'login.ts'))
  t.match((await assets()).login, /^login-/)
  t.equal(await assets(), await assets(), 'and then kept')
})

function head(port: number, path: string, encoding: string): Promise<Pick<Got, 'status' | 'headers'>> {
  return new Promise((resolve, reject) => {
    const headers = { 'Accept-Encoding': encoding }
    const outgoing = request({ host: '127.0.0.1', port, path, method: 'HEAD', headers }, (answer) => {
      answer.resume()
      resolve({ status: answer.statusCode ?? 0, headers: answer.headers })
    })
    outgoing.on('error', reject)
    outgoing.end()
  })
}
