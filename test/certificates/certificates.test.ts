/**
 * Which certificates are ordered and when, by a clock of the test, against Pebble: an authority that is down for days, a
 * renewal at its time and when the authority suggests one, hundreds of names of tracked links.
 */
import { execFileSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createKeyRing, MASTER_KEY_BYTES } from '../../src/base/key-ring.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createCertificates, type Certificates } from '../../src/certificates/certificates.ts'
import { certificateIdOf } from '../../src/certificates/renewal-time.ts'
import type { CertificateRecord } from '../../src/store/records/certificate-records.ts'
import type { Store } from '../../src/store/store.ts'
import { testStore } from '../senders/sender-parts.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { skipWithoutPebble, startPebble, type Pebble } from '../support/pebble.ts'
import { freePort } from '../support/serve-process.ts'
import { createTestAuthority } from '../support/test-authority.ts'
import { startZone } from '../support/zone.ts'

const isFull = process.env['TEST_SCALE'] === 'full'
const HOST = 'mail.sternpost.test'
const LINK_NAMES = isFull ? 300 : 12

t.setTimeout(600_000)

interface Scene {
  pebble: Pebble
  store: Store
  clock: ManualClock
  certificates: Certificates
  issued: string[]
  record(name?: string): Promise<CertificateRecord | undefined>
  serial(name?: string): Promise<string>
}

interface SceneOptions {
  /** Mails of each name of links that is used. */
  links?: Map<string, number>
  ordersPerHour?: number
  /** Stands before the authority. */
  directoryOf?: (t: Test, pebble: Pebble) => Promise<{ directory: string; caFile: string }>
}

async function startScene(t: Test, options: SceneOptions = {}): Promise<Scene> {
  const { links = new Map<string, number>(), ordersPerHour = 100_000 } = options
  const httpPort = await freePort()
  const here = { A: ['127.0.0.1'] }
  const zone = await startZone(Object.fromEntries([HOST, ...links.keys()].map((name) => [name, here])))
  t.teardown(() => zone.close())
  const pebble = await startPebble(t, { httpPort, dnsServer: zone.server })
  const { directory, caFile } = (await options.directoryOf?.(t, pebble)) ?? pebble
  const store = await testStore(t)
  const clock = manualClock(Date.now())
  const issued: string[] = []
  const certificates = createCertificates({
    store,
    keyRing: createKeyRing(Buffer.alloc(MASTER_KEY_BYTES, 7)),
    clock,
    logger: createLogger({ level: 'silent' }),
    settings: { directory, fallback: [], email: null, ca_file: caFile, orders_per_hour: ordersPerHour },
    proofs: ['http-01'],
    own: [[HOST]],
    links: { isUsed: async (name) => links.has(name), mails: async () => links },
    onIssued: async (name) => void issued.push(name),
  })
  t.teardown(() => certificates.stop())
  const door = createServer((request, response) => {
    response.end(certificates.challenges.tokens.get(request.url?.split('/').at(-1) ?? ''))
  }).listen(httpPort, '127.0.0.1')
  t.teardown(() => door.close())
  await once(door, 'listening')
  const record = async (name = HOST): Promise<CertificateRecord | undefined> =>
    (await store.certificates()).find((each) => each.name === name)
  const serial = async (name?: string): Promise<string> =>
    new X509Certificate((await record(name))?.issued?.chain ?? '').serialNumber
  return { pebble, store, clock, certificates, issued, record, serial }
}

t.test(
  'an authority that is down for days is asked less and less, then gives one',
  { skip: skipWithoutPebble },
  async (t) => {
    const { pebble, clock, certificates, record } = await startScene(t)
    await pebble.stop()
    const waits: number[] = []
    const from = clock.now()
    while (clock.now() - from < 3 * DAY) {
      await certificates.run()
      const { nextTryAt = 0, problem = '' } = (await record()) ?? {}
      t.match(problem, /^the authority did not answer: /)
      waits.push(nextTryAt - clock.now())
      await certificates.run()
      t.equal((await record())?.nextTryAt, nextTryAt, 'it is not asked before')
      await clock.advance(nextTryAt - clock.now())
    }
    t.same(waits.slice(0, 7), [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, DAY, DAY])
    await pebble.start()
    await certificates.run()
    t.match(await record(), { problem: null, failures: 0, order: null })
  },
)

t.test('it is renewed behind two thirds of its life', { skip: skipWithoutPebble }, async (t) => {
  const { clock, certificates, record, serial } = await startScene(t)
  await certificates.run()
  const first = await serial()
  const { validFromDate, validToDate } = new X509Certificate((await record())?.issued?.chain ?? '')
  const life = validToDate.getTime() - validFromDate.getTime()
  const twoThirds = Math.floor(validFromDate.getTime() + (life * 2) / 3)
  clock.set(twoThirds - SECOND)
  await certificates.run()
  t.equal(await serial(), first, 'not before')
  clock.set(twoThirds + HOUR)
  await certificates.run()
  t.not(await serial(), first)
})

t.test('it is renewed when the authority says so (RFC 9773)', { skip: skipWithoutPebble }, async (t) => {
  const asked: string[] = []
  const directoryOf = (t: Test, pebble: Pebble) => suggestRenewal(t, pebble, asked)
  const { clock, certificates, record, serial } = await startScene(t, { directoryOf })
  await certificates.run()
  const first = await serial()
  const identifier = certificateIdOf((await record())?.issued?.chain ?? '')
  await certificates.run()
  t.same(asked, [identifier], 'asked once')
  t.not(await serial(), first, 'its window lay in the past')
  const second = await serial()
  await clock.advance(HOUR)
  await certificates.run()
  t.equal(asked.length, 1, 'Retry-After is kept')
  await clock.advance(6 * HOUR)
  await certificates.run()
  t.equal(asked.length, 2, 'the next one is another certificate')
  t.equal(await serial(), second, 'whose planned time is in its window')
})

/** Pebble has no renewal information: a door before it adds some, which says "now" of the first certificate alone. */
async function suggestRenewal(t: Test, pebble: Pebble, asked: string[]) {
  const authority = createTestAuthority('Door before Pebble')
  t.teardown(() => authority.close())
  const { chain, key } = authority.issue(['localhost'])
  const fetched = await pebble.fetch(pebble.directory)
  const door = createTlsServer({ cert: chain, key }, (request, response) => {
    const { port } = door.address() as AddressInfo
    if (request.url === '/dir') {
      response.end(JSON.stringify({ ...JSON.parse(fetched), renewalInfo: `https://localhost:${port}/renewal` }))
      return
    }
    const identifier = request.url?.split('/').at(-1) ?? ''
    if (!asked.includes(identifier)) asked.push(identifier)
    const [start, end] = asked[0] === identifier ? [-2 * DAY, -DAY] : [0, 3_650 * DAY]
    const day = (offset: number): string => new Date(Date.now() + offset).toISOString()
    response.setHeader('Retry-After', '21600')
    response.end(JSON.stringify({ suggestedWindow: { start: day(start), end: day(end) } }))
  }).listen(0, 'localhost')
  t.teardown(() => door.close())
  await once(door, 'listening')
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-door-'))
  const caFile = join(folder, 'ca.pem')
  // Both doors: the directory is here, everything else there.
  writeFileSync(caFile, `${authority.certificate}\n${pebble.authority}`)
  return { directory: `https://localhost:${(door.address() as AddressInfo).port}/dir`, caFile }
}

t.test('what a certificate is called is what openssl reads in it', { skip: skipWithoutPebble }, async (t) => {
  const { certificates, record } = await startScene(t)
  await certificates.run()
  const chain = (await record())?.issued?.chain ?? ''
  const text = execFileSync('openssl', ['x509', '-noout', '-ext', 'authorityKeyIdentifier', '-serial'], {
    input: chain,
    encoding: 'utf8',
  })
  const key = /^\s+(?:keyid:)?([0-9A-F:]+)$/m.exec(text)?.[1]?.replaceAll(':', '') ?? ''
  const serial = /serial=([0-9A-F]+)/.exec(text)?.[1] ?? ''
  const signed = Number.parseInt(serial.slice(0, 2), 16) >= 0x80 ? `00${serial}` : serial
  const wanted = [key, signed].map((hex) => Buffer.from(hex, 'hex').toString('base64url')).join('.')
  t.equal(certificateIdOf(chain), wanted)
})

t.test('names of links: the most wanted first, at a pace, all in the end', { skip: skipWithoutPebble }, async (t) => {
  const links = new Map(Array.from({ length: LINK_NAMES }, (_, index) => [`t.d${index}.test`, index]))
  const { clock, certificates, issued, store } = await startScene(t, { links, ordersPerHour: LINK_NAMES })
  for (const name of links.keys()) t.equal(await certificates.want(name), null)
  await certificates.run()
  const burst = Math.ceil(LINK_NAMES / 4)
  t.same(issued.slice(0, 3), [HOST, `t.d${LINK_NAMES - 1}.test`, `t.d${LINK_NAMES - 2}.test`])
  // A failed try counts too, and some are: Pebble refuses good nonces.
  t.ok(issued.length <= burst, `${issued.length} of ${burst} at once`)
  for (let hours = 0; issued.length < LINK_NAMES + 1 && hours < 48; hours += 1) {
    await clock.advance(HOUR / 4)
    await certificates.run()
  }
  t.same(new Set(issued).size, LINK_NAMES + 1)
  t.equal((await certificates.pairs()).length, LINK_NAMES + 1)

  links.delete('t.d0.test')
  await certificates.run()
  t.equal((await store.certificates()).length, LINK_NAMES + 1, 'one that nobody has any more is kept until its end')
  clock.set(Date.now() + 4_000 * DAY)
  await certificates.run()
  t.equal(
    (await store.certificates()).some(({ name }) => name === 't.d0.test'),
    false,
  )
})
