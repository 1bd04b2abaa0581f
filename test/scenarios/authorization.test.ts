/**
 * The authorization matrix: every route × every kind of key × things of one's own domain, of another domain, of the
 * test side, on a whole server that is no sandbox. What is expected stands in test/http/authorization-table.ts.
 */
import t, { type Test } from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import type { HttpFeatures } from '../../src/http/exchange/features.ts'
import { apiRoutes } from '../../src/http/routes/routes.ts'
import { SCOPES } from '../../src/senders/api-key.ts'
import { sealSecret } from '../../src/webhooks/endpoint-secret.ts'
import {
  isOfNobody,
  RELATIONS,
  TABLE,
  verdictOn,
  type Asker,
  type Relation,
  type Row,
} from '../http/authorization-table.ts'
import { acceptOne, acceptRequest, newMessage, sampleContent } from '../store/store-samples.ts'
import { startRunningAppliance, type RunningAppliance } from '../support/running-appliance.ts'
import { MASTER_KEY } from '../support/serve-process.ts'
import { startApplianceZone, TWO_IPS } from '../support/two-ips.ts'

const DOMAINS: Record<Relation, string> = { own: 'acme.com', other: 'other.com', test: 'acme.com' }
const HOUR = 3_600_000
const keyRing = createKeyRing(Buffer.from(MASTER_KEY, 'base64'))

t.setTimeout(600_000)

t.test('every route, every kind of key, every kind of thing', async (t) => {
  const server = await startServer(t)
  const askers = await makeAskers(server)
  const routes = apiRoutes({
    features: {} as HttpFeatures,
    logger: createLogger({ level: 'error', write: () => {} }),
    mostMailBytes: 1,
    mostRecipients: 1,
  }).map(({ method, path }) => `${method} ${path}`)
  t.same(
    routes.filter((route) => TABLE[route] === undefined),
    [],
    'each route has a row',
  )
  t.same(
    Object.keys(TABLE).filter((route) => !routes.includes(route)),
    [],
    'each row has a route',
  )

  const wrong: string[] = []
  let asked = 0
  for (const [route, row] of Object.entries(TABLE)) {
    for (const relation of isOfNobody(row) ? (['own'] as const) : RELATIONS) {
      let thing = await makeThing(server, relation)
      const tryAs = async ([asker, headers]: (typeof askers)[number]): Promise<string> => {
        const expected = verdictOn(route, row, asker, relation)
        const seen = await ask(server, { route, row, thing, headers })
        asked += 1
        if (!isAsExpected(expected, seen)) wrong.push(`${route}, ${asker.name}, ${relation}: ${seen}, not ${expected}`)
        return seen
      }
      if (row.isEnd !== true) await Promise.all(askers.map(tryAs))
      else
        for (const asker of askers) {
          if ((await tryAs(asker)) === 'ok') thing = await makeThing(server, relation)
        }
    }
  }
  t.same(wrong, [])
  t.comment(`${Object.keys(TABLE).length} routes, ${askers.length} kinds of keys, ${asked} requests`)
})

/** `rate_limited`: too many wrong keys from one address. */
function isAsExpected(expected: string, seen: string): boolean {
  if (expected === 'unauthorized') return seen === expected || seen === 'rate_limited'
  if (expected === 'ok') return !['unauthorized', 'forbidden', 'not_found', 'internal_error'].includes(seen)
  return seen === expected
}

const REACHED: [mode: 'live' | 'test', domains: string[], relations: Relation[]][] = [
  ['live', [], ['own', 'other']],
  ['live', ['acme.com'], ['own']],
  ['test', [], ['test']],
]

t.test('lists and the stream hold what is within reach, and nothing else', async (t) => {
  for (const [mode, domains, relations] of REACHED) {
    const server = await startServer(t)
    const headers = { Authorization: `Bearer ${await keyOf(server, { mode, domains })}` }
    const things = await makeThings(server)
    const reached = relations.map((relation) => things[relation])
    const valuesOf = async (path: string, field: string): Promise<string[]> => {
      const { data } = (await (await fetch(`${server.baseUrl}/v1${path}`, { headers })).json()) as {
        data: Record<string, string>[]
      }
      return data.map((entry) => String(entry[field])).toSorted()
    }
    const name = `${mode} ${domains.join()}`
    t.same(await valuesOf('/email', 'message_id'), reached.flatMap(({ messages }) => messages).toSorted(), name)
    t.same(await valuesOf('/webhooks', 'id'), reached.map(({ endpoint }) => endpoint).toSorted(), name)
    t.same(await valuesOf('/suppressions', 'email'), reached.map(({ email }) => email).toSorted(), name)
    const accepted = (await valuesOf('/stats', 'accepted')).reduce((sum, count) => sum + Number(count), 0)
    t.equal(accepted, reached.flatMap(({ messages }) => messages).length, `${name}: statistics`)
    const reachedDomains = [...new Set(relations.map((relation) => DOMAINS[relation]))]
    t.same(await valuesOf('/stats?group_by=domain', 'key'), reachedDomains.toSorted(), `${name}: statistics by domain`)

    const ended = new AbortController()
    const stream = await fetch(`${server.baseUrl}/v1/webhooks/stream?events=*`, { headers, signal: ended.signal })
    const later = await makeThings(server)
    // Events come in their order: after the last one nothing earlier is to come.
    const last = await makeThing(server, relations[0] ?? 'own')
    let text = ''
    for await (const piece of stream.body ?? []) {
      text += Buffer.from(piece).toString()
      if (text.includes(last.messages[1])) break
    }
    const wanted = [...relations.map((relation) => later[relation]), last].map(({ messages }) => messages[1])
    ended.abort()
    t.same(text.match(/msg_\w+/g)?.toSorted() ?? [], wanted.toSorted(), `${name}: the stream`)
  }
})

async function makeThings(server: RunningAppliance): Promise<Record<Relation, Thing>> {
  const [own, other, test] = await Promise.all(RELATIONS.map((relation) => makeThing(server, relation)))
  return { own, other, test } as Record<Relation, Thing>
}

interface Asked {
  route: string
  row: Row
  thing: Thing
  /** With which somebody is known. */
  headers: Record<string, string>
}

/** The code of the error; `ok` for a success. */
async function ask({ baseUrl }: RunningAppliance, { route, row, thing, headers }: Asked): Promise<string> {
  const [method = '', path = ''] = route.split(' ')
  const values: Record<string, string> = {
    message_id: thing.messages[0],
    batch_id: thing.batch,
    id: row.about === 'key' ? thing.key : thing.endpoint,
    whd: thing.delivery,
    email: thing.email,
    address: 'nobody@example.com',
    name: 'mail.example.com',
    domain: thing.domain,
    ip: '127.0.0.11',
    node_id: 'node-1',
    person_id: thing.person,
    session_id: thing.session,
  }
  const target = path.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(values[name] ?? ''))
  const body = bodyOf(row, thing)
  const ended = new AbortController()
  const answer = await fetch(`${baseUrl}/v1${target}`, {
    method,
    headers: { ...headers, 'Content-Type': typeof body === 'string' ? 'text/csv' : 'application/json' },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    signal: ended.signal,
  })
  if (answer.ok) {
    ended.abort()
    return 'ok'
  }
  return ((await answer.json()) as { error: { code: string } }).error.code
}

function bodyOf({ about, body }: Row, { relation, domain, email }: Thing): unknown {
  const mode = relation === 'test' ? 'test' : 'live'
  const fields = body as object
  switch (about) {
    case 'new message':
      return { ...fields, from: `orders@${domain}` }
    case 'new endpoint':
      return { ...fields, mode, domains: [domain] }
    case 'new suppression':
      return { ...fields, email, domain }
    case 'new key':
      return { ...fields, mode, domains: [domain] }
    case 'new domain':
      return { domain }
    default:
      return body
  }
}

async function startServer(t: Test): Promise<RunningAppliance> {
  const zone = await startApplianceZone('127.0.0.1')
  t.teardown(() => zone.close())
  const server = await startRunningAppliance({
    dnsServer: zone.server,
    deliveryPort: 9,
    pools: TWO_IPS,
    settings: {
      api: { requests: 0, recipients: 0, counts_max: { domains: 1_000, webhooks: 100_000, keys: 100_000 } },
      webhooks: { allow_http: true, allow_private_addresses: true },
    },
  })
  t.teardown(() => server.stop())
  for (const domain of ['acme.com', 'other.com']) await server.parts.domains.add({ name: domain })
  return server
}

type KeyFields = { mode: 'live' | 'test'; domains: string[] }

async function keyOf({ parts }: RunningAppliance, fields: KeyFields & { scopes?: string[]; allowedIps?: string[] }) {
  const made = { name: 'x', scopes: ['admin'], allowedIps: [], expiresAt: null, ...fields }
  return (await parts.apiKeys.create(made)).key
}

/** No key, wrong keys, and each scope alone: of live and test keys, for all domains and for one. */
async function makeAskers(server: RunningAppliance): Promise<[Asker, Record<string, string>][]> {
  const { apiKeys, store } = server.parts
  const all = { name: 'x', mode: 'live', scopes: ['admin'], domains: [], allowedIps: [], expiresAt: null } as const
  const create = () => apiKeys.create({ ...all, scopes: ['admin'], domains: [], allowedIps: [] })
  const [expired, revoked] = [await create(), await create()]
  await store.updateApiKey(expired.record.id, { expiresAt: Date.now() - HOUR })
  await apiKeys.revoke(revoked.record.id, { keepsAdmin: false })
  const wrong: [string, string | null][] = [
    ['no key', null],
    ['unknown key', `sk_live_${'a'.repeat(40)}`],
    ['no such form', 'x'],
    ['expired', expired.key],
    ['revoked', revoked.key],
    ['other address', await keyOf(server, { mode: 'live', domains: [], allowedIps: ['203.0.113.0/24'] })],
  ]
  const headersOf = (key: string | null): Record<string, string> =>
    key === null ? {} : { Authorization: `Bearer ${key}` }
  const askers = wrong.map(([name, key]): [Asker, Record<string, string>] => [
    { name, scope: null, isTest: false, isLimited: false },
    headersOf(key),
  ])
  for (const scope of SCOPES) {
    for (const mode of ['live', 'test'] as const) {
      for (const domains of [[], ['acme.com']]) {
        const key = await keyOf(server, { mode, domains, scopes: [scope] })
        const name = [mode, scope, ...domains].join(' ')
        askers.push([{ name, scope, isTest: mode === 'test', isLimited: domains.length > 0 }, headersOf(key)])
      }
    }
  }
  for (const role of ['owner', 'operator', 'reader'] as const) {
    const asker = { name: role, scope: 'admin', isTest: false, isLimited: false, role }
    askers.push([asker, await sessionOf(server, role)])
  }
  return askers
}

/** What a browser sends along once a person of this role has logged in. */
async function sessionOf({ parts, baseUrl }: RunningAppliance, role: 'owner' | 'operator' | 'reader') {
  const { secret } = await parts.logins.makeLink({ name: `an ${role}`, role })
  const answer = await fetch(`${baseUrl}/console/login/${secret}`, { method: 'POST', redirect: 'manual' })
  const [cookie = ''] = answer.headers.get('set-cookie')?.split(';') ?? []
  return { Cookie: cookie, 'X-Sternpost-Console': '1' }
}

interface Thing {
  relation: Relation
  domain: string
  /** One that waits, and one that was canceled. */
  messages: [string, string]
  batch: string
  endpoint: string
  delivery: string
  email: string
  key: string
  person: string
  session: string
}

let made = 0

/** A message of a batch that waits, a canceled one, an endpoint with its event, a suppression, a key, a domain. */
async function makeThing({ parts }: RunningAppliance, relation: Relation): Promise<Thing> {
  const { store, apiKeys, logins } = parts
  const now = Date.now()
  const isTest = relation === 'test'
  const domain = DOMAINS[relation]
  made += 1
  const email = `ada${made}@example.com`
  const endpoint = newIdentifier('wh', now)
  await store.addWebhookEndpoint({
    id: endpoint,
    url: 'http://127.0.0.1:9/',
    events: ['email.canceled'],
    include: [],
    description: null,
    isTest,
    domains: [domain],
    status: 'disabled',
    sealedSecret: sealSecret(keyRing, endpoint, 'secret'),
    createdAt: now,
  })
  const message = newMessage({ expiresAt: now + 2 * HOUR })
  const batch = newIdentifier('bat', now)
  const content = { ...sampleContent, hasVariables: false, from: { name: null, address: `orders@${domain}` } }
  const common = { now, isTest, domain, content, sendAt: now + HOUR }
  await store.acceptMessages(acceptRequest({ ...common, messages: [message], batch: { id: batch, rejected: 0 } }))
  const canceled = await acceptOne(store, common)
  await store.cancelMessage(canceled, now)
  const deliveries = await store.listWebhookDeliveries({
    endpointId: endpoint,
    state: null,
    kind: null,
    messageId: null,
    limit: 1,
    after: null,
  })
  await store.addSuppression({
    id: newIdentifier('sup', now),
    email,
    reason: 'manual',
    scope: 'all',
    domain: null,
    owners: [domain],
    isTest,
    messageId: null,
    createdAt: now,
  })
  const limited = { name: 'x', scopes: ['send'], domains: [domain], allowedIps: [], expiresAt: null }
  const { record } = await apiKeys.create({ ...limited, mode: isTest ? 'test' : 'live' })
  await parts.domains.add({ name: domain })
  const delivery = deliveries?.deliveries[0]?.id ?? ''
  const { secret, person } = await logins.makeLink({ name: `person ${made}`, role: 'reader' })
  const opened = await logins.openWithLink(secret, { address: '127.0.0.1', userAgent: '' })
  const { id: session } = await logins.session(opened.secret, '127.0.0.1')
  const messages: [string, string] = [message.id, canceled]
  return { relation, domain, messages, batch, endpoint, delivery, email, key: record.id, person: person.id, session }
}
