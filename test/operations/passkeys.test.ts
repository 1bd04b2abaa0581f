/** Passkeys over several nodes: a challenge of one is answered to another, once, in time, for what it was made for. */
import { createHash, generateKeyPairSync, sign, type KeyObject } from 'node:crypto'
import t from 'tap'
import { HOUR, MINUTE, type Clock } from '../../src/base/clock.ts'
import type { ServiceError } from '../../src/base/errors.ts'
import { createKeyRing, MASTER_KEY_BYTES } from '../../src/base/key-ring.ts'
import { createPasskeys } from '../../src/operations/passkeys.ts'
import { manualClock } from '../support/manual-clock.ts'
import { testStore } from '../senders/sender-parts.ts'

const SITE = { origin: 'https://mail.example.net', host: 'mail.example.net' }
const ADA = { id: 'per_01m89nqxx39jnxwj6c6hrh320g', name: 'ada', role: 'owner' as const, createdAt: 0 }
const ID = Buffer.from('credential').toString('base64url')

const sha256 = (bytes: string | Buffer): Buffer => createHash('sha256').update(bytes).digest()

/** As COSE has it: {1: 2, 3: -7, -1: 1, -2: x, -3: y}. */
function coseOf(key: KeyObject): Buffer {
  const { x = '', y = '' } = key.export({ format: 'jwk' })
  const [start, between] = [Buffer.from('a5010203262001215820', 'hex'), Buffer.from('225820', 'hex')]
  return Buffer.concat([start, Buffer.from(x, 'base64url'), between, Buffer.from(y, 'base64url')])
}

/** What an authenticator without a counter sends back. */
function answerTo(options: object, privateKey: KeyObject): object {
  const { challenge } = options as { challenge: string }
  const clientData = Buffer.from(JSON.stringify({ type: 'webauthn.get', challenge, origin: SITE.origin }))
  // User present and verified.
  const authenticatorData = Buffer.concat([sha256(SITE.host), Buffer.of(0b101, 0, 0, 0, 0)])
  const response = {
    clientDataJSON: clientData.toString('base64url'),
    authenticatorData: authenticatorData.toString('base64url'),
    signature: sign('sha256', Buffer.concat([authenticatorData, sha256(clientData)]), privateKey).toString('base64url'),
  }
  return { id: ID, rawId: ID, type: 'public-key', clientExtensionResults: {}, response }
}

t.test('a challenge is answered to any node, once, within five minutes, for its purpose', async (t) => {
  const [store, clock] = [await testStore(t), manualClock()]
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  await store.addLoginLink(ADA, { hash: Buffer.alloc(32), expiresAt: 1 }, 0)
  const passkey = { id: ID, personId: ADA.id, site: SITE.host, publicKey: coseOf(publicKey), counter: 0 }
  await store.addPasskey({ ...passkey, label: 'Browser', createdAt: 0 })
  const node = (masterKeyByte = 7, realClock: Clock = clock) =>
    createPasskeys({
      store,
      realClock,
      keyRing: createKeyRing(Buffer.alloc(MASTER_KEY_BYTES, masterKeyByte)),
      openFor: async () => ({ secret: '', who: 'ada', milliseconds: 0 }),
    })
  const [first, second, stranger] = [node(), node(), node(8)]
  const open = (answer: object, at = second): Promise<string> =>
    at.open(SITE, answer, { address: '', userAgent: '' }).then(
      ({ who }) => who,
      (thrown: unknown) => (thrown as ServiceError).details,
    )
  const answer = answerTo(await first.loginOptions(SITE), privateKey)
  await clock.advance(1)
  t.equal(await open(answer), 'ada', 'a challenge of another node')
  await clock.advance(1)
  t.match(await open(answer), /answered before/, 'and no second time')
  t.match(await open(answer, first), /answered before/)
  t.match(await open(answerTo(await stranger.loginOptions(SITE), privateKey)), /challenge/, 'of another server')
  t.match(await open(answerTo(await first.newOptions(ADA, SITE), privateKey)), /challenge/, 'for another purpose')
  const elsewhere = { origin: 'https://other.example.net', host: 'other.example.net' }
  t.match(await open(answerTo(await first.loginOptions(elsewhere), privateKey)), /challenge/, 'for another host')
  const late = answerTo(await first.loginOptions(SITE), privateKey)
  await clock.advance(5 * MINUTE)
  t.match(await open(late), /challenge/, 'too late')
  t.equal(await open(answerTo(await first.loginOptions(SITE), privateKey)), 'ada')
  const ahead = (milliseconds: number) => node(7, { ...clock, now: () => clock.now() + milliseconds })
  const [early, near] = [ahead(HOUR), ahead(5 * MINUTE - 1)]
  const tomorrow = answerTo(await early.loginOptions(SITE), privateKey)
  t.match(await open(tomorrow), /challenge/, 'of a clock that is far ahead')
  t.equal(await open(tomorrow, early), 'ada', 'at the node with that clock')
  t.match(await open(tomorrow, early), /answered before/)
  const soon = answerTo(await near.loginOptions(SITE), privateKey)
  t.equal(await open(soon), 'ada', 'a use that is far ahead locks nobody out')
  t.match(await open(soon), /answered before/, 'of a clock that is a little ahead')
  await clock.advance(HOUR)
  const between = answerTo(await ahead(3 * MINUTE).loginOptions(SITE), privateKey)
  t.equal(await open(between, ahead(6 * MINUTE)), 'ada')
  t.match(await open(between), /answered before/, 'at a clock that is further ahead')
})
