/**
 * Which certificates are ordered and when, by a clock of the test, against Pebble: an authority that is down for days, a
 * renewal at its time and when the authority suggests one, hundreds of names of tracked links.
 */
import { execFileSync } from 'node:child_process'
import { createHash, X509Certificate } from 'node:crypto'
import t from 'tap'
import { createKeyRing, MASTER_KEY_BYTES } from '../../src/base/key-ring.ts'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { loadAcme, type AcmeClient } from '../../src/certificates/acme-client.ts'
import { certificateIdOf, plannedRenewal } from '../../src/certificates/renewal-time.ts'
import type { AcmeProof } from '../../src/store/records/certificate-records.ts'
import type { DoorRule } from '../support/authority-door.ts'
import { skipWithoutPebble } from '../support/pebble.ts'
import { HOST, startScene, type Scene } from './certificate-scene.ts'

const skipping = { skip: skipWithoutPebble }
const isFull = process.env['TEST_SCALE'] === 'full'
const LINK_NAMES = isFull ? 300 : 12

t.setTimeout(600_000)

t.test('an authority that is down for days is asked less and less, then gives one', { ...skipping }, async (t) => {
  const { pebble, clock, certificates, record, serial } = await startScene(t)
  await certificates.run()
  const first = await serial()
  clock.set((await record())?.issued?.renewAt ?? 0)
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
    t.equal(await serial(), first)
    t.equal((await certificates.pairs()).length, 1, 'the one before is served all the time')
    await clock.advance(nextTryAt - clock.now())
  }
  t.same(waits.slice(0, 7), [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, DAY, DAY])
  await pebble.start()
  // A Pebble that was started anew has forgotten the account.
  await certificates.run()
  t.match(await record(), { problem: /account/i })
  await clock.advance(DAY)
  await certificates.run()
  t.match(await record(), { problem: null, failures: 0, order: null })
  t.not(await serial(), first)
})

t.test('with a clock that is behind the same order gives one, once it is right', { ...skipping }, async (t) => {
  const { pebble, clock, certificates, record } = await startScene(t)
  const now = clock.now()
  clock.set(now - 3 * HOUR)
  for (const wait of [MINUTE, 5 * MINUTE]) {
    await certificates.run()
    t.match(await record(), {
      issued: null,
      problem: /^the certificate begins on .*\. Fix: set the clock of this machine/,
    })
    await clock.advance(wait)
  }
  clock.set(now)
  await certificates.run()
  t.match(await record(), { problem: null, order: null })
  t.equal(pebble.orders(), 1)
})

t.test('it is renewed behind two thirds of its life', { ...skipping }, async (t) => {
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

t.test('one whose life began long before it was issued is renewed six hours later', async (t) => {
  const now = Date.UTC(2026, 10, 21)
  const planned = (before: number, left: number): number =>
    plannedRenewal({ validFromDate: new Date(now - before), validToDate: new Date(now + left) }, now) - now
  t.equal(planned(30 * DAY, 10 * DAY), 6 * HOUR)
  t.equal(planned(30 * DAY, 15 * DAY), 6 * HOUR)
  t.equal(planned(30 * DAY, 6 * HOUR), 4 * HOUR, 'and before its end')
  const usual = planned(HOUR, 90 * DAY - HOUR)
  t.ok(usual >= 60 * DAY - HOUR && usual < 60 * DAY, 'two thirds of a new one')
  const short = planned(0, 3 * HOUR)
  t.ok(short >= 2 * HOUR && short <= 2.25 * HOUR, 'also of a short one')
})

t.test('one of an authority that is not asked any more is ordered anew', { ...skipping }, async (t) => {
  const scene = await startScene(t, { rule: () => (_asked, pass) => pass() })
  const { clock, certificates, record, serial, pebble } = scene
  await certificates.run()
  const first = await serial()
  await pebble.stop()
  const others = await scene.startWith(pebble.directory)
  await others.run()
  t.match(await record(), { problem: /^the authority did not answer/ })
  t.equal(await serial(), first, 'the one before is served meanwhile')
  await pebble.start()
  for (let tries = 0; tries < 3 && (await serial()) === first; tries += 1) {
    await clock.advance(HOUR)
    await others.run()
  }
  const second = await serial()
  t.not(second, first)
  await (await scene.startWith(pebble.directory)).run()
  t.equal(await serial(), second, 'once')
})

t.test('it is renewed when the authority says so (RFC 9773)', { ...skipping }, async (t) => {
  const asked: string[] = []
  let revoked: string | null = null
  const { clock, certificates, record, serial, ...scene } = await startScene(t, {
    rule: (pebble) =>
      renewalInformation(asked, async (identifier) => identifier === revoked && pebble.isRevoked(first)),
  })
  await certificates.run()
  const first = await serial()
  const { chain = '' } = (await record())?.issued ?? {}
  const identifier = certificateIdOf(chain)
  await clock.advance(HOUR)
  await certificates.run()
  t.same(asked, [identifier], 'asked about')
  t.equal(await serial(), first, 'its planned time is in its window')

  await revoke(scene, chain)
  t.ok(await scene.pebble.isRevoked(first))
  revoked = identifier
  await clock.advance(HOUR)
  await certificates.run()
  t.equal(asked.length, 1, 'Retry-After is kept')
  await clock.advance(5 * HOUR)
  await certificates.run()
  t.not(await serial(), first, 'one that is revoked is renewed')
  const second = await serial()
  await clock.advance(6 * HOUR)
  await certificates.run()
  t.equal(new Set(asked).size, 2, 'the next one is another certificate')
  t.equal(await serial(), second)
})

t.test('one that does not answer is not asked about each certificate', { ...skipping }, async (t) => {
  const links = new Map([
    ['t.one.test', 1],
    ['t.two.test', 2],
  ])
  let asked: number | null = null
  const { clock, certificates, issued } = await startScene(t, {
    links,
    rule: () => (_asked, pass) => {
      if (asked === null) return pass()
      asked += 1
      return Promise.resolve(null)
    },
  })
  for (const name of links.keys()) await certificates.want(name)
  for (let tries = 0; tries < 3 && issued.length < 3; tries += 1) {
    await certificates.run()
    await clock.advance(HOUR)
  }
  t.equal(issued.length, 3)
  await clock.advance(DAY)
  asked = 0
  await certificates.run()
  t.equal(asked, 1)
  await clock.advance(HOUR)
  await certificates.run()
  t.equal(asked, 2, 'an hour later about the next')
})

t.test('an authority that always says "now" is asked no more than every 6 h', { ...skipping }, async (t) => {
  const rule = () => renewalInformation([], async () => true, '60')
  const { clock, certificates, issued } = await startScene(t, { rule })
  const from = clock.now()
  while (clock.now() - from < DAY) {
    await certificates.run()
    await clock.advance(HOUR / 2)
  }
  // The first one, and one for every six hours.
  t.ok(issued.length >= 3 && issued.length <= 5, `${issued.length} in a day`)
})

/** Pebble has no renewal information: a door adds some, which says "now" of what is revoked. */
function renewalInformation(
  asked: string[],
  isDue: (identifier: string) => Promise<boolean>,
  retryAfter = '21600',
): DoorRule {
  return async ({ path }, pass) => {
    if (path === '/dir') {
      const answer = await pass()
      const directory = JSON.parse(answer.body) as { newOrder: string }
      const renewalInfo = new URL('/renewal', directory.newOrder).href
      return { ...answer, body: JSON.stringify({ ...directory, renewalInfo }) }
    }
    const identifier = /^\/renewal\/(.+)$/.exec(path)?.[1]
    if (identifier === undefined) return pass()
    asked.push(identifier)
    const [start, end] = (await isDue(identifier)) ? [-2 * DAY, -DAY] : [0, 3_650 * DAY]
    const day = (offset: number): string => new Date(Date.now() + offset).toISOString()
    const body = JSON.stringify({ suggestedWindow: { start: day(start), end: day(end) } })
    return { status: 200, headers: { 'Retry-After': retryAfter }, body }
  }
}

async function revoke(scene: AccountScene, chain: string): Promise<void> {
  await (await ownAccount(scene)).revokeCertificate(chain)
}

type AccountScene = Pick<Scene, 'directory' | 'caFile' | 'store' | 'keyRing'>

async function ownAccount({ directory, caFile, store, keyRing }: AccountScene): Promise<AcmeClient> {
  const { library } = await loadAcme([directory], caFile)
  const { sealedKey } = (await store.acmeAccount(directory)) ?? { sealedKey: Buffer.of() }
  const accountKey = keyRing.open(sealedKey, `acme-account:${directory}`)
  const client = new library.Client({ directoryUrl: directory, accountKey })
  await client.createAccount({ onlyReturnExisting: true })
  return client
}

t.test('another account takes the place of one that the authority has closed', { ...skipping }, async (t) => {
  const scene = await startScene(t)
  const { clock, certificates, record, serial } = scene
  await certificates.run()
  const first = await serial()
  await (await ownAccount(scene)).updateAccount({ status: 'deactivated' } as object)
  await certificates.renew(HOST, false)
  await certificates.run()
  t.match(await record(), { problem: 'Account has been deactivated: another account takes its place', failures: 1 })
  for (let tries = 0; tries < 2 && (await serial()) === first; tries += 1) {
    await clock.advance(HOUR)
    await certificates.run()
  }
  t.match(await record(), { problem: null, failures: 0 })
  t.not(await serial(), first)
})

t.test('a renewal by hand comes at once, with a new key or the one before', { ...skipping }, async (t) => {
  const { certificates, record, serial } = await startScene(t, { keepsKey: true })
  const keyOf = async (): Promise<string> => {
    const parsed = new X509Certificate((await record())?.issued?.chain ?? '')
    return parsed.publicKey.export({ type: 'spki', format: 'der' }).toString('hex')
  }
  await certificates.run()
  const [first, key] = [await serial(), await keyOf()]
  t.equal(await certificates.renew('t.nobody.test', false), false)
  t.equal(await certificates.renew(HOST, false), true)
  await certificates.run()
  const second = await serial()
  t.not(second, first)
  t.equal(await keyOf(), key, 'kept')
  t.equal(await certificates.renew(HOST, true), true)
  await certificates.run()
  t.not(await serial(), second)
  t.not(await keyOf(), key)
})

t.test('a renewal that is asked for while others are ordered is not forgotten', { ...skipping }, async (t) => {
  const link = 't.acme.test'
  let rule: DoorRule = (_asked, pass) => pass()
  const links = new Map([[link, 1]])
  const scene = await startScene(t, { keepsKey: true, links, rule: () => (asked, pass) => rule(asked, pass) })
  const { certificates, record } = scene
  const keyOf = async (): Promise<unknown> =>
    new X509Certificate((await record(link))?.issued?.chain ?? '').publicKey.export({ type: 'spki', format: 'pem' })
  await certificates.want(link)
  await certificates.run()
  const before = await keyOf()
  for (const name of [HOST, link]) await certificates.renew(name, false)
  rule = async ({ path }, pass) => {
    if (path === '/order-plz' && (await record(link))?.order === null) await certificates.renew(link, true)
    return pass()
  }
  await certificates.run()
  t.match(await record(link), { problem: null, order: null })
  t.not(await keyOf(), before, 'it has the new key')
})

t.test('what was restored without its master key is ordered anew', { ...skipping }, async (t) => {
  const { certificates, store, directory, record, serial } = await startScene(t, { keepsKey: true })
  await certificates.run()
  const [first, before] = [await serial(), await record()]
  if (!before?.issued) return t.fail('it has none')
  const sealedKey = createKeyRing(Buffer.alloc(MASTER_KEY_BYTES, 8)).seal('a key', 'of another server')
  await store.saveAcmeAccount({ directory, sealedKey, url: 'https://localhost/account' })
  const issued = { ...before.issued, sealedKey, renewAt: 0 }
  await store.saveCertificate({ ...before, issued, order: { directory, url: null, sealedKey, proof: null } })
  await certificates.run()
  t.match(await record(), { problem: null, failures: 0, order: null })
  t.not(await serial(), first)
})

t.test('the proof of an order is shown by whoever reads it, as long as it is open', { ...skipping }, async (t) => {
  const { certificates, store, directory, record } = await startScene(t)
  await certificates.run()
  const known = await record()
  if (!known?.issued) return t.fail('it has none')
  const { sealedKey } = known.issued
  const { tokens, handshakes } = certificates.challenges
  const show = async (type: AcmeProof['type'] | null): Promise<void> => {
    const proof = type === null ? null : { type, name: HOST, token: 'token', authorization: 'token.print' }
    await store.saveCertificate({ ...known, order: { directory, url: 'https://ca.test/1', sealedKey, proof } })
    await certificates.read()
  }
  await show('tls-alpn-01')
  const { raw } = new X509Certificate(handshakes.get(HOST)?.cert ?? '')
  t.ok(raw.includes(createHash('sha256').update('token.print').digest()), 'RFC 8737 §3')
  t.equal(tokens.size, 0)
  await show('http-01')
  t.strictSame([[...tokens], handshakes.size], [[['token', 'token.print']], 0])
  await show(null)
  t.strictSame([tokens.size, handshakes.size], [0, 0])
})

t.test('what a certificate is called is what openssl reads in it', { ...skipping }, async (t) => {
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

t.test('names of links: the most wanted first, at a pace, all in the end', { ...skipping }, async (t) => {
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
