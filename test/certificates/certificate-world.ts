/** A whole server that gets its certificates from Pebble, with names of a zone of the test. */
import { once } from 'node:events'
import { join } from 'node:path'
import { connect, type TLSSocket } from 'node:tls'
import Sqlite from 'better-sqlite3'
import type { Test } from 'tap'
import { errorText } from '../../src/base/errors.ts'
import { startAuthorityDoor, type DoorRule } from '../support/authority-door.ts'
import { startPebble, type Pebble } from '../support/pebble.ts'
import { freePort, startServe, type ServeProcess } from '../support/serve-process.ts'
import { TWO_IPS } from '../support/two-ips.ts'
import { startZone, type ZoneServer } from '../support/zone.ts'

export const HOST = 'mail.sternpost.test'
export const LINKS = 'track.mail.sternpost.test'

interface WorldOptions {
  isResolving?: boolean
  /** Port 80 is not ours: names are proved at the door with TLS. */
  isTlsAlone?: boolean
  /** Of a door before the authority; left out: there is none. */
  rule?: DoorRule
}

export interface World {
  pebble: Pebble
  zone: ZoneServer
  httpPort: number
  tlsPort: number
  start(): Promise<ServeProcess>
}

export async function startWorld(
  t: Test,
  { isResolving = true, isTlsAlone = false, rule }: WorldOptions = {},
): Promise<World> {
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
  const { directory, caFile } = rule === undefined ? pebble : await startAuthorityDoor(t, pebble, rule)
  const acme = { directory, email: 'ops@sternpost.test', ca_file: caFile, orders_per_hour: 1_000 }
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
        // An address needs no certificate.
        files: isTlsAlone ? { 'sternpost.d/50-url.yaml': { public_url: `https://127.0.0.1:${tlsPort}` } } : {},
      })
      t.teardown(() => server.remove())
      return server
    },
  }
}

/** Resolves with an open connection whose certificate is good for the name; null: it is not, for a reason in `refusals`. */
export async function openTo(
  port: number,
  servername: string,
  ca: string,
  refusals: string[] = [],
): Promise<TLSSocket | null> {
  const socket = connect({ host: '127.0.0.1', port, servername, ca })
  try {
    await once(socket, 'secureConnect')
    return socket
  } catch (thrown) {
    refusals.push(errorText(thrown))
    socket.destroy()
    return null
  }
}

export async function isGood({ tlsPort, pebble }: World, name: string, refusals?: string[]): Promise<string | null> {
  const socket = await openTo(tlsPort, name, await pebble.issuer(), refusals)
  const serial = socket?.getPeerCertificate().serialNumber ?? null
  socket?.destroy()
  return serial
}

export function rows(server: ServeProcess, sql: string): Record<string, unknown>[] {
  const database = new Sqlite(join(server.databaseFolder, 'sternpost.db'), { readonly: true })
  try {
    return database.prepare(sql).all() as Record<string, unknown>[]
  } finally {
    database.close()
  }
}
