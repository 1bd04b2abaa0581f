/**
 * The routes of administrators: who may use them, and what they do to the real store, shaping, files and DNS. Every
 * answer is held against its schema by the client.
 */
import { createHash, X509Certificate } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import { ConfigurationError } from '../../src/base/errors.ts'
import type { Configuration } from '../../src/config/load-configuration.ts'
import type { TryNote } from '../../src/egress/shaping/shaping.ts'
import { LANE, pathTo, refused } from '../egress/shaping-world.ts'
import { ipSettings, poolOf, warmed, withPools } from '../egress/egress-parts.ts'
import { acceptOne } from '../store/store-samples.ts'
import { describedRoutes } from '../support/response-check.ts'
import { createTestAuthority } from '../support/test-authority.ts'
import { ask, get, post, shareStore, startApi, type ApiServer, type Got } from './api-server.ts'

const COLD = '127.0.0.14'
const WARMED = '127.0.0.11'
const BLOCK: TryNote = refused('550 5.7.1 blocked', 'ip_block')
const SECOND = 1_000

shareStore(t)

const listed = ({ text }: Got): Record<string, unknown>[] => JSON.parse(text).data

t.test('only the administrator and keys for the whole server may use them', async (t) => {
  const { port } = await startApi(t)
  const routes = describedRoutes().filter(({ isInternal }) => isInternal === true)
  t.ok(routes.length > 10)
  for (const { method, path, scope } of routes) {
    t.match([path, scope], [/^\/admin\//, 'admin'])
    const asked = path.replace(':ip', COLD).replace(':domain', 'example.com')
    for (const key of ['send', 'ips', 'stats', 'limited', 'test'] as const) {
      const body = method === 'POST' || method === 'PATCH' ? '{}' : ''
      const { status, json } = await ask(port, { method, path: `/v1${asked}`, key, body })
      t.match([status, json.error?.code], [403, 'forbidden'], `${method} ${path} ${key}`)
    }
  }
  t.notMatch((await get(port, '/v1/openapi.json', null)).text, '/admin/')
})

t.test('where a backup goes is said by the admin socket alone, and only below what the files name', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'sternpost-'))
  t.teardown(() => rmSync(root, { recursive: true }))
  for (const folder of ['backups', 'run']) mkdirSync(join(root, folder))
  symlinkSync(join(root, 'backups'), join(root, 'out'))
  symlinkSync('/etc', join(root, 'backups', 'etc'))
  const adminSocket = join(root, 'run', 'admin.sock')
  const { port } = await startApi(t, { adminSocket, backupFolders: [join(root, 'backups')] })
  const begin = (to: string | null, socketPath?: string): Promise<Got> =>
    ask(port, {
      path: '/v1/admin/backups',
      body: JSON.stringify({ to }),
      ...(socketPath === undefined ? {} : { socketPath }),
    })
  t.match(await begin(join(root, 'backups')), { status: 403, json: { error: { code: 'forbidden' } } }, 'a key')
  t.equal((await begin(null)).status, 202, 'a key, where it always goes')
  const refusals = ['/etc/evil', `${root}/backups/../run`, `${root}/backups-2`, `${root}/backups/etc`, '/', root]
  for (const to of refusals) {
    const { status, json } = await begin(to, adminSocket)
    t.match([status, json.error?.details], [422, /backup\.folders/], to)
  }
  t.equal((await begin('backups', adminSocket)).status, 422, 'a relative path')
  for (const to of [`${root}/backups`, `${root}/backups/inner/new`, `${root}/out/inner`]) {
    t.equal((await begin(to, adminSocket)).status, 202, to)
  }
})

/** Two messages to big.example, which google runs, one to small.example, one to a domain nobody looked up. */
async function withQueue(t: Test): Promise<ApiServer & { ids: string[] }> {
  const api = await startApi(t, { ownStore: true })
  const { store, clock } = api
  const now = clock.now()
  const ids: string[] = []
  for (const recipientDomain of ['big.example', 'big.example', 'small.example', 'new.example']) {
    const to = { name: null, address: `ada@${recipientDomain}` }
    ids.push(await acceptOne(store, { now: now - HOUR }, { to, recipientDomain, expiresAt: now + HOUR }))
  }
  await store.assignRoutes([
    { domain: 'big.example', route: 'google', isp: 'gmail' },
    { domain: 'small.example', route: 'site-1', isp: 'small.example' },
  ])
  return { ...api, ids }
}

t.test('the queue in groups, with filters', async (t) => {
  const { port, clock } = await withQueue(t)
  const hourAgo = (clock.now() - HOUR) / SECOND
  const byProvider = listed(await get(port, '/v1/admin/queue'))
  t.same(byProvider[0], { name: 'gmail', waiting: 2, due: 2, held: 0, oldest_accepted_at: hourAgo })
  t.same(byProvider.map(({ name }) => name).toSorted(), ['gmail', 'small.example', null].toSorted())
  const domains = listed(await get(port, '/v1/admin/queue?by=recipient_domain'))
  t.same(domains.map(({ name, waiting }) => [name, waiting])[0], ['big.example', 2])
  t.match(listed(await get(port, '/v1/admin/queue?by=recipient_domain&recipient_domain=big.example')), [{ waiting: 2 }])
  t.match(listed(await get(port, '/v1/admin/queue?by=domain')), [{ name: 'acme.com', waiting: 4 }])
  t.match(listed(await get(port, '/v1/admin/queue?by=pool&provider=gmail')), [{ name: 'default', waiting: 2 }])
  t.match(listed(await get(port, '/v1/admin/queue?by=ip')), [{ name: null, waiting: 4 }])
  t.same(listed(await get(port, '/v1/admin/queue?pool=spare')), [])
  for (const [query, details] of [
    ['pool=nowhere', 'pool: no pool "nowhere"; there are default, spare'],
    ['domain=acne.com', 'domain: no sending domain "acne.com", and no mail of it waits'],
  ]) {
    const { status, json } = await get(port, `/v1/admin/queue?${query}`)
    t.match([status, json.error?.details], [422, details])
  }
  t.same(listed(await get(port, '/v1/admin/queue?held=true')), [])
  for (const query of ['by=colour', 'held=maybe']) t.equal((await get(port, `/v1/admin/queue?${query}`)).status, 422)
})

t.test('whoever asks what waits shares one walk, and its answer until somebody acts', async (t) => {
  const { port, store } = await withQueue(t)
  const walk = store.queueGroups
  let [walks, open, most] = [0, 0, 0]
  store.queueGroups = async (...question) => {
    walks += 1
    open += 1
    most = Math.max(most, open)
    // Its answer is kept for ten times as long.
    await sleep(500)
    open -= 1
    return walk(...question)
  }
  const questions = ['', '', '?by=provider', '?by=pool', '?by=pool']
  const answers = await Promise.all(questions.map((question) => get(port, `/v1/admin/queue${question}`)))
  t.same([walks, most], [2, 1])
  t.same(listed(answers[1]!), listed(answers[0]!))
  t.match(listed(answers[4]!), [{ name: 'default', waiting: 4 }])
  await get(port, '/v1/admin/queue')
  t.equal(walks, 2, 'asked again')
  await post(port, '/v1/admin/queue/actions', { action: 'hold', dry_run: true })
  await get(port, '/v1/admin/queue')
  t.equal(walks, 2, 'a dry run changes nothing')
  await post(port, '/v1/admin/queue/actions', { action: 'hold' })
  t.match(listed(await get(port, '/v1/admin/queue?by=pool')), [{ name: 'default', waiting: 4, held: 4 }])
  t.equal(walks, 3)
})

t.test('an action counts first, changes what fits, and tells the dispatcher', async (t) => {
  const { port, queued, wakes, store, clock, ids, log } = await withQueue(t)
  const act = (action: string, fields: object = {}): Promise<Got> =>
    post(port, '/v1/admin/queue/actions', { action, ...fields })
  const filter = { provider: 'gmail' }
  const dry = await act('hold', { filter, dry_run: true })
  t.same(dry.json.data, { action: 'hold', messages: 2, dry_run: true })
  t.same([queued.length, listed(await get(port, '/v1/admin/queue?held=true'))], [0, []], 'nothing changed')
  t.same((await act('hold', { filter })).json.data, { action: 'hold', messages: 2, dry_run: false })
  t.match(listed(await get(port, '/v1/admin/queue?held=true')), [{ name: 'gmail', waiting: 2, held: 2, due: 0 }])
  t.match((await act('hold', { filter })).json.data, { messages: 0 }, 'a second time there is nothing to do')
  t.match((await act('release', { filter: { held: true } })).json.data, { messages: 2 })
  t.match(queued.at(-1)?.keys, [{ route: 'google', waiting: 2 }])
  const moved = await act('move', { filter: { recipient_domain: 'BIG.example' }, to_pool: 'spare' })
  t.match(moved.json.data, { messages: 2 })
  t.match(queued.at(-1)?.keys, [{ pool: 'spare', route: 'google' }])
  t.same(
    listed(await get(port, '/v1/admin/queue?by=pool'))
      .map(({ name }) => name)
      .toSorted(),
    ['default', 'spare'],
  )
  const wakesBefore = wakes.count
  t.match((await act('drop', { filter: { route: 'site-1' } })).json.data, { messages: 1 })
  t.equal(wakes.count, wakesBefore + 1, 'there are events')
  t.match(await store.lookupMessage(ids[2] ?? '', clock.now()), { state: 'canceled' })
  t.match((await act('retry', { filter: { domain: 'acme.com' } })).json.data, { messages: 0 }, 'all of it is due')
  t.match(
    log.findLast(({ msg }) => msg === 'queue changed'),
    { api_key: 'admin …9f3a', action: { kind: 'retry' } },
  )
  const wrong = [
    {},
    { action: 'burn' },
    { action: 'move' },
    { action: 'move', to_pool: 'nowhere' },
    { action: 'hold', filter: { pool: 'nowhere' } },
    { action: 'hold', filter: { domain: 'acne.com' } },
    { action: 'hold', filter: { ip: '9.9.9.9' } },
    { action: 'hold', to_pool: 'spare' },
    { action: 'hold', filter: { held: 'yes' } },
    // Left out in silence, these would mean all mail.
    { action: 'drop', filter: { recipientDomain: 'example.com' } },
    { action: 'drop', filters: { recipient_domain: 'example.com' } },
  ]
  for (const fields of wrong) {
    t.equal((await post(port, '/v1/admin/queue/actions', fields)).status, 422, JSON.stringify(fields))
  }
  const nowhere = await act('move', { to_pool: 'nowhere' })
  t.match(nowhere.json.error?.details, /no pool "nowhere"; there are default, spare/)
  const block = await act('hold', { filter: { provider: 'google' } })
  t.equal(block.status, 422, 'no mail waits under the id of a block: "0 messages" would be taken for a success')
  t.match(block.json.error?.details, /mail of the block "google" waits as "gmail": write that/)
  t.equal((await get(port, '/v1/admin/queue?provider=office365')).status, 422)
  t.equal((await get(port, '/v1/admin/queue?provider=outlook')).status, 200)
})

t.test('paths that are held back, and how they are resumed', async (t) => {
  const { port, shaping } = await startApi(t)
  const [first, second] = [pathTo('google', { ip: WARMED }), pathTo('yahoo', { ip: '127.0.0.12' })]
  for (const path of [first, second]) {
    for (let count = 0; count < 5; count++) shaping.noteTry(path, LANE, BLOCK)
  }
  const paths = listed(await get(port, '/v1/admin/paths'))
  t.match(
    paths.find(({ ip }) => ip === WARMED),
    {
      route: 'google',
      isp: 'gmail',
      domain: null,
      status: 'suspended',
      holds: [{ kind: 'suspension', cause: /blocked/ }],
    },
  )
  t.equal(paths.length, 2)
  t.match(listed(await get(port, `/v1/admin/paths?ip=${WARMED}&route=google`)), [{ ip: WARMED }])
  t.same(listed(await get(port, `/v1/admin/paths?ip=${WARMED}&route=yahoo`)), [])
  const resume = (fields: object): Promise<Got> => post(port, '/v1/admin/paths/resume', fields)
  t.same((await resume({ dry_run: true })).json.data, { paths: 2, dry_run: true, node: null })
  t.equal(listed(await get(port, '/v1/admin/paths')).length, 2)
  t.match((await resume({ ip: `::ffff:${WARMED}`, dry_run: true })).json.data, { paths: 1, dry_run: true })
  t.same((await resume({ ip: WARMED })).json.data, { paths: 1, dry_run: false, node: null })
  for (const { status, json } of [await resume({ ip: '9.9.9.9' }), await get(port, '/v1/admin/paths?ip=9.9.9.9')]) {
    t.match([status, json.error?.details], [422, /^ip: no IP 9\.9\.9\.9 in pools\.yaml; /])
  }
  t.match(listed(await get(port, '/v1/admin/paths')), [{ route: 'yahoo' }])
  t.match((await resume({ route: 'yahoo' })).json.data, { paths: 1 })
  t.same((await resume({})).json.data, { paths: 0, dry_run: false, node: null })
})

t.test('whoever resumes the mail of one domain lifts nothing else on its way', async (t) => {
  const { port, shaping } = await startApi(t, { ownStore: true })
  await post(port, `/v1/admin/ips/${WARMED}/suspend`, { provider: 'google' })
  const unauthenticated = refused('550-5.7.26 unauthenticated', 'auth_failed')
  const path = pathTo('google', { ip: '127.0.0.12' })
  for (const domain of [LANE.domain, 'other.test']) {
    for (let count = 0; count < 5; count++) shaping.noteTry(path, { ...LANE, domain }, unauthenticated)
  }
  const paths = async (): Promise<unknown[]> =>
    listed(await get(port, '/v1/admin/paths')).map(({ ip, pool, domain }) => [ip, pool, domain])
  const others = [
    [WARMED, null, null],
    [null, 'default', 'other.test'],
  ]
  t.same((await paths()).length, 3)
  const body = { pool: 'default', route: 'google', domain: LANE.domain }
  const resumed = async (fields: object): Promise<unknown> =>
    (await post(port, '/v1/admin/paths/resume', { ...body, ...fields })).json.data
  t.match(await resumed({ dry_run: true }), { paths: 1 })
  t.match(await resumed({}), { paths: 1 })
  t.same(await paths(), others)
  t.equal((await post(port, '/v1/admin/paths/resume', { sending_domain: LANE.domain })).status, 422)
})

t.test('an IP is suspended and resumed, and its paths with it; the audit says who did it', async (t) => {
  const { port, shaping, clock } = await startApi(t, { ownStore: true })
  const of = (what: string): string => `/v1/admin/ips/${WARMED}/${what}`
  t.match((await post(port, of('suspend'), { reason: 'listed' })).json.data, { status: 'suspended', reason: 'listed' })
  for (let count = 0; count < 5; count++) shaping.noteTry(pathTo('google', { ip: WARMED }), LANE, BLOCK)
  t.match((await post(port, of('resume'), {})).json.data, { status: 'warmed', reason: null })
  t.same(shaping.views(), [])
  t.match((await post(port, of('resume'), {})).json.data, { status: 'warmed' }, 'a second time changes nothing')
  const audit = listed(await get(port, of('audit')))
  t.match(audit, [
    { action: 'unsuspend', actor: /^key_/, from_state: 'suspended', to_state: 'warmed' },
    { action: 'suspend', reason: 'listed', at: clock.now() / SECOND },
  ])
  t.equal(listed(await get(port, `${of('audit')}?limit=1`)).length, 1)
  for (const action of ['suspend', 'resume']) {
    t.equal((await post(port, `/v1/admin/ips/192.0.2.77/${action}`, {})).status, 404)
    t.equal((await post(port, `/v1/admin/ips/mta1/${action}`, {})).status, 422)
  }
  t.equal((await get(port, '/v1/admin/ips/192.0.2.77/audit')).status, 404)
})

t.test('the mail of an IP to one provider is suspended and resumed', async (t) => {
  const { port, shaping, log } = await startApi(t, { ownStore: true })
  const of = (what: string): string => `/v1/admin/ips/${WARMED}/${what}`
  const suspended = await post(port, of('suspend'), { provider: 'google', reason: 'listed' })
  t.match(suspended.json.data, { ip: WARMED, status: 'warmed' }, 'the IP itself is as it was')
  t.match(shaping.gate(pathTo('google', { ip: WARMED }), LANE), { kind: 'closed', until: null })
  t.match(listed(await get(port, '/v1/admin/paths')), [
    {
      ip: WARMED,
      route: 'google',
      status: 'suspended',
      holds: [{ scope: 'provider', cause: /^by key_.*: listed$/, until: null }],
    },
  ])
  t.match(
    log.findLast(({ msg }) => msg === 'IP suspended'),
    { ip: WARMED, provider: 'google' },
  )
  t.match((await post(port, of('resume'), { provider: 'google' })).json.data, { ip: WARMED })
  t.same(shaping.views(), [])
  const states = { from_state: 'warmed', to_state: 'warmed' }
  t.match(listed(await get(port, of('audit'))), [
    { action: 'resume_provider', actor: /^key_/, ...states, figures: { provider: 'google' }, reason: 'mail to google' },
    { action: 'suspend_provider', ...states, figures: { provider: 'google' }, reason: 'mail to google: listed' },
  ])
  for (const [provider, meant] of [
    ['gmail', 'google'],
    ['gogle', 'google'],
    ['outlok', 'outlook'],
  ] as const) {
    for (const action of ['suspend', 'resume']) {
      const refused = await post(port, of(action), { provider })
      t.equal(refused.status, 422)
      const details = `provider: no block "${provider}" in providers.yaml; did you mean "${meant}"?`
      t.match(refused.json.error?.details, details)
    }
  }
  t.equal((await post(port, '/v1/admin/ips/192.0.2.77/suspend', { provider: 'google' })).status, 404)
})

t.test('each suspension by hand that is lifted is in the audit of its IP, whichever way it was lifted', async (t) => {
  const { port } = await startApi(t, { ownStore: true })
  const of = (what: string): string => `/v1/admin/ips/${WARMED}/${what}`
  const lifted = async (): Promise<unknown[]> => {
    const audit = listed(await get(port, of('audit')))
    return audit.filter(({ action }) => action === 'resume_provider').map(({ reason }) => reason)
  }
  for (const provider of ['google', 'yahoo', 'outlook']) await post(port, of('suspend'), { provider })
  await post(port, of('resume'), { provider: 'comcast' })
  await post(port, '/v1/admin/paths/resume', { dry_run: true })
  t.same(await lifted(), [])
  await post(port, '/v1/admin/paths/resume', { route: 'google' })
  t.same(await lifted(), ['mail to google'])
  await post(port, of('resume'), {})
  t.same((await lifted()).toSorted(), ['mail to google', 'mail to outlook', 'mail to yahoo'])
})

t.test('a disk that takes no audit row does not keep a suspension from being lifted', async (t) => {
  const { port, shaping, store } = await startApi(t, { ownStore: true })
  const of = (what: string): string => `/v1/admin/ips/${WARMED}/${what}`
  await post(port, of('suspend'), { provider: 'google' })
  const { changeIp } = store
  let refused = 0
  store.changeIp = async () => {
    refused += 1
    throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' })
  }
  t.equal((await post(port, of('resume'), { provider: 'google' })).status, 200)
  t.equal(refused, 1)
  t.equal(shaping.gate(pathTo('google', { ip: WARMED }), LANE).kind, 'open')
  store.changeIp = changeIp
  t.equal((await post(port, of('resume'), { provider: 'google' })).status, 200)
  t.match(listed(await get(port, of('audit'))), [{ action: 'suspend_provider' }], 'nothing was left to lift')
})

t.test('the days of an IP: what its warmup allowed and will allow, and what it sent', async (t) => {
  const { port, store, clock } = await startApi(t, { ownStore: true })
  const days = (ip: string, query = ''): Promise<Got> => get(port, `/v1/admin/ips/${ip}/days${query}`)
  const idle = listed(await days(COLD))
  t.equal(idle.length, 14 + 7)
  t.same(
    [idle[13], idle[14]],
    [
      { date: '2026-11-21', planned: null, sent: 0 },
      { date: '2026-11-22', planned: null, sent: null },
    ],
  )
  await post(port, `/v1/ips/${COLD}/warmup`, { stage: 3 })
  await store.reserveAllowance({
    now: clock.now(),
    asks: [
      {
        ip: COLD,
        isp: 'gmail',
        count: 5,
        rule: {
          day: '2026-11-21',
          cap: 200,
          providerCaps: {},
          defaultProviderCap: 70,
          windowFrom: clock.now() - 12 * HOUR,
          windowTo: clock.now() + 12 * HOUR,
          burstFraction: 1,
          minBurst: 5,
          maxBurst: 500,
          hourlyFraction: 1,
        },
      },
    ],
  })
  t.same(listed(await days(COLD, '?past=1&ahead=2')), [
    { date: '2026-11-21', planned: 200, sent: 0 },
    { date: '2026-11-22', planned: 350, sent: null },
    { date: '2026-11-23', planned: 500, sent: null },
  ])
  await post(port, `/v1/ips/${COLD}/warmup`, { restart: true, stage: 3, target_daily_volume: 350 })
  t.same(
    listed(await days(COLD, '?past=1&ahead=3')).map(({ planned }) => planned),
    [200, 350, 350, 350],
  )
  for (const query of ['?past=0', '?past=91', '?ahead=x', '?ahead=-1']) t.equal((await days(COLD, query)).status, 422)
  t.equal((await days('192.0.2.77')).status, 404)
})

t.test('pools with their IPs and what waits', async (t) => {
  const { port, backlog } = await startApi(t)
  backlog['default'] = { gmail: 3, '': 2 }
  const pools = listed(await get(port, '/v1/admin/pools'))
  t.match(pools[0], {
    name: 'default',
    default: true,
    overflow: 'spill',
    overflow_pool: 'spare',
    max_defer: '1d',
    waiting: 5,
    rate: null,
    ips: [{ ip: WARMED, status: 'warmed', sends: 'all', weight: 100, until: null }, { ip: '127.0.0.12' }],
  })
  t.same(
    pools.map(({ name }) => name),
    ['default', 'spare', 'cold', 'off'],
  )
  t.match(pools[3], { default: false, waiting: 0, ips: [{ status: 'disabled', sends: 'nothing' }] })
})

t.test('where the mail of a domain goes', async (t) => {
  const { port, zone } = await startApi(t)
  zone.set('shop.example', { MX: ['10 aspmx.l.google.com', '20 alt1.aspmx.l.google.com'] })
  zone.set('aspmx.l.google.com', { A: ['192.178.0.1'] })
  zone.set('alt1.aspmx.l.google.com', { A: ['192.178.0.2'] })
  zone.set('own.example', { MX: ['10 mx.own.example'] })
  zone.set('mx.own.example', { A: ['192.178.0.3'] })
  zone.set('null.example', { MX: ['0 .'] })
  const routeOf = (domain: string): Promise<Got> => get(port, `/v1/admin/domains/${domain}/route`)
  t.match((await routeOf('Shop.Example')).json.data, {
    domain: 'shop.example',
    problem: null,
    provider: 'google',
    isp: 'gmail',
    route: 'google',
    limits: { connections: 5, messages_per_connection: 50, in_flight: 4, rate: '100/second', tls: 'required' },
    hosts: [
      { name: 'aspmx.l.google.com', addresses: ['192.178.0.1'], tls: { policy: 'required', demand: 'required' } },
      { name: 'alt1.aspmx.l.google.com' },
    ],
  })
  t.match((await routeOf('own.example')).json.data, {
    provider: null,
    isp: 'own.example',
    route: /^site-/,
    hosts: [{ tls: { policy: 'none', demand: 'opportunistic', text: 'TLS where the host announces it' } }],
  })
  t.match((await routeOf('null.example')).json.data, {
    problem: 'the domain does not accept mail (null MX)',
    provider: null,
    limits: null,
    hosts: [],
  })
  t.match((await routeOf('nowhere.example')).json.data, { problem: 'the domain does not exist' })
  for (const domain of ['no_name', 'com', '192.0.2.1']) t.equal((await routeOf(domain)).status, 422, domain)
})

t.test('a reload is a dry run, is applied whole, or changes nothing', async (t) => {
  const first = { default: poolOf([warmed(WARMED)], { overflow_pool: 'spare' }), spare: poolOf([warmed('127.0.0.13')]) }
  const next = { default: poolOf([warmed(WARMED, { weight: 5 }), ipSettings('127.0.0.20')]) }
  const files: { read: () => Configuration } = { read: () => withPools(first) }
  const { port, live, store, metrics, log } = await startApi(t, { ownStore: true, load: () => files.read() })
  const reload = (fields: object = {}): Promise<Got> => post(port, '/v1/admin/reload', fields)
  t.match((await reload()).json.data, { applied: true, revision: 2, mistakes: [] })
  await acceptOne(store, { pool: 'spare' })

  files.read = () => withPools(next)
  const dry = await reload({ dry_run: true })
  t.match(dry.json.data, { applied: false, revision: 2, moved: [], duration_ms: Number })
  t.same(Object.keys(live.current().pools.pools), ['default', 'spare'], 'nothing is in force')
  const applied = await reload()
  t.match(applied.json.data, { applied: true, revision: 3, moved: [{ pool: 'spare', messages: 1 }] })
  const lines = applied.json.data?.['lines'] as string[]
  t.same(lines.filter((line) => /^[+-]|weight/.test(line)).toSorted(), [
    '+ ip 127.0.0.20 in default (cold; start it with: sternpost ip warmup start 127.0.0.20)',
    '- ip 127.0.0.13 of spare',
    '- pool spare (1 queued messages moved to default)',
    `~ ip ${WARMED} weight 100 -> 5`,
  ])
  t.match(
    dry.json.data?.['lines'],
    lines.map(() => String),
  )
  t.match(
    log.findLast(({ msg }) => msg === 'configuration reloaded'),
    { revision: 3, api_key: 'admin …9f3a' },
  )

  const mistake = {
    file: '/etc/sternpost/pools.yaml',
    line: 14,
    column: 18,
    path: 'pools.default.ips[1].address',
    severity: 'error' as const,
    message: '"x" is no IP',
    suggestion: null,
  }
  files.read = () => {
    throw new ConfigurationError([mistake])
  }
  t.same((await reload()).json.data?.['mistakes'], [mistake])
  t.match((await reload()).json.data, { applied: false, revision: 3, changes: [], lines: [] })
  t.same(Object.keys(live.current().pools.pools), ['default'], 'the old one stays in force')
  t.match(await metrics.configurationReloads.get(), { values: [{ value: 0 }] })
  files.read = () => {
    throw Object.assign(new Error('disk full'), { code: 'ENOSPC' })
  }
  t.match((await reload()).json, { success: false })
  t.equal((await reload({ dry_run: 'yes' })).status, 422)
})

t.test('certificates of files are shown with what a client sees of them, and nothing of their keys', async (t) => {
  const authority = createTestAuthority('Own authority')
  t.teardown(() => authority.close())
  const { certificate, chain, key } = authority.issue(['mail.example.com', 't.example.com'])
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const [cert_file, changed_file] = [join(folder, 'chain.pem'), join(folder, 'changed.pem')]
  writeFileSync(cert_file, chain)
  writeFileSync(changed_file, authority.issue(['other.example.com']).chain)
  const gone = { cert_file: join(folder, 'gone.pem'), cert: chain }
  const changed = { cert_file: changed_file, cert: chain }
  const { port } = await startApi(t, { certificateFiles: [{ cert_file, cert: chain }, gone, changed] })
  const { text, json } = await get(port, '/v1/admin/certificates', 'admin')
  const parsed = new X509Certificate(certificate)
  const publicKey = parsed.publicKey.export({ type: 'spki', format: 'der' })
  t.match(json.data, {
    certificates: [
      {
        name: 'mail.example.com',
        names: ['mail.example.com', 't.example.com'],
        source: 'file',
        file: cert_file,
        authority: 'Own authority',
        ends_at: parsed.validToDate.getTime() / SECOND,
        renews_at: null,
        problem: null,
        tlsa: `3 1 1 ${createHash('sha256').update(publicKey).digest('hex')}`,
      },
      { name: 'mail.example.com', file: gone.cert_file, problem: /ENOENT/, fix: /sternpost reload/ },
      { name: 'mail.example.com', file: changed_file, problem: /not in use yet/, fix: 'sternpost reload' },
    ],
  })
  t.notMatch(text, 'PRIVATE KEY')
  t.notOk(text.includes(key.split('\n')[1] ?? key))
  const renewed = await ask(port, { path: '/v1/admin/certificates/mail.example.com/renew', body: '{}', key: 'admin' })
  t.match([renewed.status, renewed.json.error?.details], [409, /tls\.acme in sternpost\.yaml/])
})
