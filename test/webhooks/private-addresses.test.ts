/**
 * Endpoints that lead inwards, through the whole engine and a real DNS server: nothing connects, and the delivery log
 * of each says why (test/README.md "Attacks", network/README.md "Addresses never connected to"). Two canaries, on IPv4
 * and on IPv6, must see nobody.
 */
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import { createGuardedLookup } from '../../src/network/guarded-lookup.ts'
import { INWARD_LITERALS, INWARD_TEXTS, PUBLIC } from '../network/inward-urls.ts'
import { startZone, type Zone, type ZoneServer } from '../support/zone.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'
import { SECRET, startEngine, type EngineHarness } from './engine-harness.ts'

const REFUSED = 'the address is private, local or reserved'
const ALL = { state: null, kind: null, messageId: null, limit: 10, after: null }

/** Listens on both loopback addresses, on one port. */
async function startCanaries(t: Test): Promise<{ port: number; seen: string[] }> {
  const seen: string[] = []
  const listen = async (host: string, port: number): Promise<number> => {
    const server = createServer((socket) => {
      seen.push(host)
      socket.destroy()
    })
    server.listen(port, host)
    await once(server, 'listening')
    t.teardown(() => server.close())
    return (server.address() as AddressInfo).port
  }
  const port = await listen('127.0.0.1', 0)
  return { port: await listen('::1', port), seen }
}

const ZONE: Zone = {
  'private.test': { A: ['10.0.0.1'] },
  'loopback.test': { A: ['127.0.0.1'] },
  'loopback6.test': { AAAA: ['::1'] },
  'mixed.test': { A: [PUBLIC, '127.0.0.1'] },
  'mixed6.test': { A: [PUBLIC], AAAA: ['::1'] },
  'mapped.test': { AAAA: ['::ffff:7f00:1'] },
  'translated.test': { AAAA: ['64:ff9b::7f00:1'] },
  'tunnelled.test': { AAAA: ['2002:7f00:1::'] },
  'metadata.google.internal': { A: ['169.254.169.254'] },
  'chain.test': { CNAME: 'chain2.test' },
  'chain2.test': { CNAME: 'chain3.test', isAliasAlone: true },
  'chain3.test': { CNAME: 'loopback.test' },
  'alias.test': { CNAME: 'localhost' },
  'rebinding.test': { A: [PUBLIC] },
  'xn--bcher-kva.test': { A: ['127.0.0.1'] },
}

const NAMES = [
  ...Object.keys(ZONE).filter((name) => !['alias.test', 'rebinding.test'].includes(name)),
  'localhost',
  'localhost.',
  'LOCALHOST',
  'x.localhost',
  'loopback.test.',
  'LOOPBACK.test',
  'bücher.test',
  'loopback。test',
]

async function startGuarded(t: Test): Promise<{ harness: EngineHarness; zone: ZoneServer }> {
  const zone = await startZone(ZONE)
  t.teardown(() => zone.close())
  const resolver = createDnsResolver({ servers: [zone.server], timeoutMilliseconds: 2_000, tries: 1 })
  const harness = await startEngine(t, {
    guard: { allowPrivateAddresses: false, lookup: createGuardedLookup(resolver) },
  })
  return { harness, zone }
}

/** The attempt of this number; it is in the log a moment before it is in the store. */
async function attemptOf(harness: EngineHarness, endpointId: string, number = 1): Promise<{ error: string | null }> {
  return until(`attempt ${number} is recorded`, async () => {
    await harness.clock.advance(0)
    const {
      deliveries: [delivery],
    } = await harness.deliveries.list({ ...ALL, endpointId })
    return (await harness.deliveries.find(endpointId, delivery?.id ?? '')).attempts[number - 1]
  })
}

t.test('no trick reaches loopback, and each is an attempt with its reason', async (t) => {
  const { port, seen } = await startCanaries(t)
  const { harness } = await startGuarded(t)
  const texts = INWARD_TEXTS.map((text) => text.replaceAll('PORT', String(port)))
  const hosts = [...INWARD_LITERALS, ...NAMES]
  const urls = [...hosts.map((host) => `http://${host}:${port}/hook`), ...texts]
  t.ok(urls.length >= 60, `${urls.length} tricks`)
  const endpoints = await Promise.all(urls.map(async (url) => ({ url, id: await harness.addUnchecked(url) })))
  await harness.deliver()
  await harness.pump('all were tried', () => harness.attempts.length === urls.length)
  await harness.settle()
  for (const [index, { url, id }] of endpoints.entries()) {
    const attempt = await attemptOf(harness, id)
    const error = index < hosts.length ? REFUSED : /^(must|is not|the address is private)/
    t.match(attempt, { status: null, error }, url.slice(0, 60))
  }
  t.same(seen, [], 'the canaries saw nobody')
})

t.test('a name that turns inwards after it was registered gains nothing', async (t) => {
  const { port, seen } = await startCanaries(t)
  const { harness, zone } = await startGuarded(t)
  const id = await harness.addEndpoint(`http://rebinding.test:${port}/`, SECRET)
  zone.set('rebinding.test', { A: ['127.0.0.1'] })
  await harness.deliver()
  const flips = [{ AAAA: ['::1'] }, { A: [PUBLIC], AAAA: ['::1'] }, { CNAME: 'loopback.test' }, { A: ['0.0.0.0'] }]
  for (const [index, records] of [...flips, undefined].entries()) {
    await harness.pump('it was tried', () => harness.attempts.length === index + 1)
    t.match(await attemptOf(harness, id, index + 1), { error: REFUSED })
    zone.set('rebinding.test', records)
    await harness.settle()
    await harness.clock.advance((harness.attempts.at(-1)?.next_at ?? 0) - harness.clock.now())
  }
  await harness.pump('the last try', () => harness.attempts.length === flips.length + 2)
  await harness.settle()
  t.match(await attemptOf(harness, id, flips.length + 2), { error: 'the host name does not resolve' })
  t.ok(zone.queries.length >= flips.length, 'asked anew each time')
  t.same(seen, [])
})

t.test('a trial and a redirect lead nowhere either, and a DNS that fails is told apart', async (t) => {
  const { port, seen } = await startCanaries(t)
  const { harness, zone } = await startGuarded(t)
  const id = await harness.addUnchecked(`http://loopback.test:${port}/`)
  t.match(await harness.tryEndpoint(id, null), { ok: false, status: null, error: REFUSED })
  for (const answer of ['SERVFAIL', 'TIMEOUT'] as const) {
    zone.set('loopback.test', answer)
    t.match(await harness.tryEndpoint(id, null), { error: 'the host name does not resolve at the moment' }, answer)
  }
  await t.rejects(
    harness.endpoints.register({ url: `http://private.test:${port}/`, events: null, secret: null, description: null }),
    { code: 'invalid_request' },
  )
  const open = await startEngine(t)
  const redirecting = await webhookReceiver(302)
  t.teardown(() => redirecting.close())
  const other = await open.addEndpoint(redirecting.url)
  t.match(await open.tryEndpoint(other, null), { ok: false, status: 302 })
  t.same(seen, [])
})

t.test('with the allowance, names of this machine lead to it without a question to the DNS', async (t) => {
  const receiver = await webhookReceiver()
  t.teardown(() => receiver.close())
  const zone = await startZone({})
  t.teardown(() => zone.close())
  const resolver = createDnsResolver({ servers: [zone.server], timeoutMilliseconds: 300, tries: 1 })
  const harness = await startEngine(t, { guard: { lookup: createGuardedLookup(resolver) } })
  await harness.addEndpoint(receiver.url.replace('127.0.0.1', 'localhost'))
  await harness.deliver()
  await harness.pump('it arrives', () => receiver.requests.length === 1)
  t.same(zone.queries, [])
})
