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

interface World {
  pebble: Pebble
  zone: ZoneServer
  httpPort: number
  tlsPort: number
  start(): Promise<ServeProcess>
}

async function startWorld(t: Test, isResolving = true): Promise<World> {
  const [httpPort, tlsPort] = [await freePort(), await freePort()]
  const here = { A: ['127.0.0.1'] }
  const zone = await startZone(isResolving ? { [HOST]: here, [LINKS]: here } : {})
  t.teardown(() => zone.close())
  const pebble = await startPebble(t, { httpPort, dnsServer: zone.server })
  const listen = {
    http: [
      { address: '127.0.0.1', port: httpPort, tls: false, serve: ['api', 'acme'] },
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
    // Its time has come.
    const database = new Sqlite(join(server.databaseFolder, 'sternpost.db'))
    database.prepare('update certificates set renew_at = 1 where name = ?').run(HOST)
    database.close()
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

t.test('what goes wrong is said, and tried again', { skip: skipWithoutPebble }, async (t) => {
  const world = await startWorld(t, false)
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
