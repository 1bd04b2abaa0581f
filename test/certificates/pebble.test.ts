/**
 * Certificates by themselves, against Pebble: issued and served without a restart, renewed while connections are open,
 * found again after kills, told when they fail.
 */
import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'
import { setTimeout as sleep } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { apiClient } from '../support/api-client.ts'
import { skipWithoutPebble, startPebble, type Pebble } from '../support/pebble.ts'
import { freePort, startServe, type ServeProcess } from '../support/serve-process.ts'
import { TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'
import { startZone, type ZoneServer } from '../support/zone.ts'

const isFull = process.env['TEST_SCALE'] === 'full'
const HOST = 'mail.sternpost.test'
const LINKS = 'track.mail.sternpost.test'
const KILLS = isFull ? 50 : 4
const OPEN_CONNECTIONS = 200

t.setTimeout(600_000)

interface WorldOptions {
  isResolving?: boolean
  /** Port 80 is not ours: names are proved at the door with TLS. */
  isTlsAlone?: boolean
}

interface World {
  pebble: Pebble
  zone: ZoneServer
  httpPort: number
  tlsPort: number
  start(): Promise<ServeProcess>
}

async function startWorld(t: Test, { isResolving = true, isTlsAlone = false }: WorldOptions = {}): Promise<World> {
  const [httpPort, tlsPort] = [await freePort(), await freePort()]
  const here = { A: ['127.0.0.1'] }
  const zone = await startZone(isResolving ? { [HOST]: here, [LINKS]: here } : {})
  t.teardown(() => zone.close())
  const pebble = await startPebble(t, { httpPort, tlsPort, dnsServer: zone.server })
  const listen = {
    http: [
      { address: '127.0.0.1', port: httpPort, tls: false, serve: isTlsAlone ? ['api'] : ['api', 'acme'] },
      { address: '127.0.0.1', port: tlsPort, tls: true, serve: ['api', 'tracking'] },
    ],
    submission: [],
  }
  const acme = { directory: pebble.directory, email: 'ops@sternpost.test', ca_file: pebble.caFile }
  return {
    pebble,
    zone,
    httpPort,
    tlsPort,
    async start() {
      const server = await startServe({
        dnsServer: zone.server,
        deliveryPort: 2_525,
        pools: TWO_IPS,
        httpPort,
        settings: { listen, tls: { acme } },
      })
      t.teardown(() => server.remove())
      return server
    },
  }
}

/** Resolves with an open connection whose certificate is good for the name; null: it is not. */
async function openTo(port: number, servername: string, ca: string): Promise<TLSSocket | null> {
  const socket = connect({ host: '127.0.0.1', port, servername, ca })
  try {
    await once(socket, 'secureConnect')
    return socket
  } catch {
    socket.destroy()
    return null
  }
}

async function isGood({ tlsPort, pebble }: World, name: string): Promise<string | null> {
  const socket = await openTo(tlsPort, name, await pebble.issuer())
  const serial = socket?.getPeerCertificate().serialNumber ?? null
  socket?.destroy()
  return serial
}

function rows(server: ServeProcess, sql: string): Record<string, unknown>[] {
  const database = new Sqlite(join(server.databaseFolder, 'sternpost.db'), { readonly: true })
  try {
    return database.prepare(sql).all() as Record<string, unknown>[]
  } finally {
    database.close()
  }
}

/** Its time has come. */
function renewNow(server: ServeProcess, name: string): void {
  const database = new Sqlite(join(server.databaseFolder, 'sternpost.db'))
  database.prepare('update certificates set renew_at = 1 where name = ?').run(name)
  database.close()
}

t.test('names get certificates, and clients see them without a restart', { skip: skipWithoutPebble }, async (t) => {
  const world = await startWorld(t)
  const server = await world.start()
  for (const name of [HOST, LINKS]) {
    t.ok(await until(`a certificate for ${name}`, () => isGood(world, name)), name)
  }
  const text = JSON.stringify(server.log())
  t.match(text, /certificate issued/)
  t.notMatch(text, /PRIVATE KEY/, 'no key in the log')
  const sealed = rows(server, 'select sealed_key from certificates union all select sealed_key from acme_accounts')
  t.equal(sealed.length, 3)
  t.notOk(
    sealed.some(({ sealed_key: key }) => String(key).includes('PRIVATE KEY')),
    'nor plain in the database',
  )

  await t.test('a renewal drops no connection', async (t) => {
    const issuer = await world.pebble.issuer()
    const serial = await isGood(world, HOST)
    const opening = Array.from({ length: OPEN_CONNECTIONS }, () => openTo(world.tlsPort, HOST, issuer))
    const open = (await Promise.all(opening)).filter((socket) => socket !== null)
    t.equal(open.length, OPEN_CONNECTIONS)
    let dropped = 0
    for (const socket of open) socket.on('close', () => (dropped += 1))
    renewNow(server, HOST)
    await until('another certificate', async () => {
      const now = await isGood(world, HOST)
      return now !== null && now !== serial
    })
    t.equal(dropped, 0)
    for (const socket of open) socket.destroy()
  })

  await t.test('it is kept over a restart, without asking the authority', async (t) => {
    const serial = await isGood(world, HOST)
    await server.stop()
    await world.pebble.stop()
    const issuerBefore = serial
    await server.start()
    const socket = connect({ host: '127.0.0.1', port: world.tlsPort, servername: HOST, rejectUnauthorized: false })
    await once(socket, 'secureConnect')
    t.equal(socket.getPeerCertificate().serialNumber, issuerBefore)
    socket.destroy()
  })
})

t.test('kill -9 at any moment: the order is gone on with', { skip: skipWithoutPebble }, async (t) => {
  const world = await startWorld(t)
  const server = await world.start()
  for (let kill = 0; kill < KILLS; kill += 1) {
    await sleep((kill * 137) % 900)
    await server.kill()
    await server.start()
  }
  for (const name of [HOST, LINKS]) t.ok(await until(`a certificate for ${name}`, () => isGood(world, name)), name)
  t.same(rows(server, 'select name from certificates where order_url is not null'), [], 'no order is left open')
  t.equal(rows(server, 'select directory from acme_accounts').length, 1, 'one account')
})

t.test('a proof in a handshake, while others come and go', { skip: skipWithoutPebble }, async (t) => {
  const world = await startWorld(t, { isTlsAlone: true })
  const server = await world.start()
  t.ok(await until('a certificate', () => isGood(world, HOST)))
  t.ok(await until('a certificate', () => isGood(world, LINKS)))
  const serial = await isGood(world, HOST)
  renewNow(server, HOST)
  let [good, bad] = [0, 0]
  await until('another certificate', async () => {
    const now = await isGood(world, HOST)
    if (now === null) bad += 1
    else good += 1
    return now !== null && now !== serial
  })
  t.equal(bad, 0, `nobody but the authority sees a proof: ${good} handshakes`)
  const silent = connect({ host: '127.0.0.1', port: world.tlsPort, servername: HOST, ALPNProtocols: ['acme-tls/1'] })
  const [error] = (await once(silent, 'error')) as [Error]
  t.ok(error, 'and nothing, once it is over')
})

t.test('names of tracked links', { skip: skipWithoutPebble }, async (t) => {
  const world = await startWorld(t)
  const server = await world.start()
  const api = apiClient(server.baseUrl, await server.createKey('admin'))
  const names = ['one.test', 'two.test']
  for (const domain of names) {
    t.equal((await api.post('/domains', { domain })).status, 201)
    world.zone.set(`t.${domain}`, { CNAME: LINKS })
  }
  await api.post('/domains', { domain: 'elsewhere.test' })
  const trackingOf = async (domain: string): Promise<{ record: unknown; tls: unknown }> => {
    const { tracking, records } = (await api.get(`/domains/${domain}`)).body['data'] as ShownDomain
    return { record: records.find(({ purpose }) => purpose === 'tracking'), tls: tracking.tls }
  }
  await api.post('/domains/one.test/verify', {})
  const waiting = await trackingOf('one.test')
  t.match(waiting, {
    record: {
      status: 'pending',
      error: 'the certificate for t.one.test is not there yet',
      hint: `until then tracked links lead to ${LINKS}`,
    },
    tls: 'pending',
  })
  await api.post('/domains/two.test/verify', {})
  for (const domain of names) {
    await until(`links of ${domain}`, async () => (await trackingOf(domain)).tls === 'active', 60_000)
    t.match((await trackingOf(domain)).record, { status: 'verified', error: null, hint: null })
    t.ok(await isGood(world, `t.${domain}`))
  }
  t.equal((await trackingOf('elsewhere.test')).tls, 'pending')
  t.equal(await isGood(world, 't.elsewhere.test'), null)
})

interface ShownDomain {
  tracking: { tls: string }
  records: { purpose: string }[]
}

t.test('what goes wrong is said, and tried again', { skip: skipWithoutPebble }, async (t) => {
  const world = await startWorld(t, { isResolving: false })
  const server = await world.start()
  const refusals = () =>
    server.log().filter(({ msg, names }) => msg === 'no certificate' && JSON.stringify(names) === `["${HOST}"]`)
  const tryAtOnce = async (): Promise<void> => {
    await server.stop()
    const database = new Sqlite(join(server.databaseFolder, 'sternpost.db'))
    database.prepare('update certificates set next_try_at = 0').run()
    database.close()
    await server.start()
  }
  const first = await until('the refusal', () => refusals()[0])
  t.equal(first['next_try_in_seconds'], 60)
  t.match(
    String(first['problem']),
    /could not resolve .* Fix: mail\.sternpost\.test must lead to this server, and its port 80/,
  )
  t.equal((await fetch(`http://127.0.0.1:${world.httpPort}/health`)).status, 200, 'the server is up all the same')

  await world.pebble.stop()
  world.zone.set(HOST, { A: ['127.0.0.1'] })
  world.zone.set(LINKS, { A: ['127.0.0.1'] })
  await tryAtOnce()
  const second = await until('an authority that is down', () => refusals()[1])
  t.match(String(second['problem']), /^the authority did not answer: /)
  t.equal(second['next_try_in_seconds'], 300)
  await world.pebble.start()
  await tryAtOnce()
  // A Pebble that was started anew has forgotten the account.
  t.ok(await until('an account that is not known', () => refusals()[2]))
  await tryAtOnce()
  t.ok(await until('a certificate', () => isGood(world, HOST)))
})
