/** Certificates of one name, and of names of links, ordered at Pebble by a clock of the test. */
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { Test } from 'tap'
import { createKeyRing, MASTER_KEY_BYTES, type KeyRing } from '../../src/base/key-ring.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createCertificates, type Certificates } from '../../src/certificates/certificates.ts'
import type { CertificateRecord } from '../../src/store/records/certificate-records.ts'
import type { Store } from '../../src/store/store.ts'
import { testStore } from '../senders/sender-parts.ts'
import { startAuthorityDoor, type DoorRule } from '../support/authority-door.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { startPebble, type Pebble } from '../support/pebble.ts'
import { freePort } from '../support/serve-process.ts'
import { startZone } from '../support/zone.ts'

export const HOST = 'mail.sternpost.test'

export interface Scene {
  pebble: Pebble
  store: Store
  clock: ManualClock
  directory: string
  caFile: string
  keyRing: KeyRing
  certificates: Certificates
  /** As after a start with another `tls.acme.directory`: these are for what our door answers from now on. */
  startWith(directory: string): Promise<Certificates>
  issued: string[]
  record(name?: string): Promise<CertificateRecord | undefined>
  serial(name?: string): Promise<string>
}

interface SceneOptions {
  /** Mails of each name of links that is used. */
  links?: Map<string, number>
  ordersPerHour?: number
  keepsKey?: boolean
  /** Of a door before the authority; left out: there is none. */
  rule?: (pebble: Pebble) => DoorRule
  fallback?: string[]
}

export async function startScene(t: Test, options: SceneOptions = {}): Promise<Scene> {
  const { links = new Map<string, number>(), ordersPerHour = 100_000, keepsKey = false } = options
  const httpPort = await freePort()
  const here = { A: ['127.0.0.1'] }
  const zone = await startZone(Object.fromEntries([HOST, ...links.keys()].map((name) => [name, here])))
  t.teardown(() => zone.close())
  const pebble = await startPebble(t, { httpPort, dnsServer: zone.server })
  const { directory, caFile } =
    options.rule === undefined ? pebble : await startAuthorityDoor(t, pebble, options.rule(pebble))
  const store = await testStore(t)
  const clock = manualClock(Date.now())
  const keyRing = createKeyRing(Buffer.alloc(MASTER_KEY_BYTES, 7))
  const issued: string[] = []
  let current: Certificates
  const startWith = async (authority: string): Promise<Certificates> => {
    const made = createCertificates({
      store,
      keyRing,
      clock,
      logger: createLogger({ level: 'silent' }),
      settings: {
        directory: authority,
        fallback: options.fallback ?? [],
        email: null,
        ca_file: caFile,
        orders_per_hour: ordersPerHour,
        keep_key: keepsKey,
      },
      proofs: ['http-01'],
      own: [[HOST]],
      shownByAllAfter: 0,
      links: { isUsed: async (name) => links.has(name), mails: async () => links },
      onIssued: async (name) => void issued.push(name),
    })
    t.teardown(() => made.stop())
    await made.read()
    return (current = made)
  }
  const certificates = await startWith(directory)
  const door = createServer((request, response) => {
    response.end(current.challenges.tokens.get(request.url?.split('/').at(-1) ?? ''))
  }).listen(httpPort, '127.0.0.1')
  t.teardown(() => door.close())
  await once(door, 'listening')
  const record = async (name = HOST): Promise<CertificateRecord | undefined> =>
    (await store.certificates()).find((each) => each.name === name)
  const serial = async (name?: string): Promise<string> =>
    new X509Certificate((await record(name))?.issued?.chain ?? '').serialNumber
  return { pebble, store, clock, directory, caFile, keyRing, certificates, startWith, issued, record, serial }
}
