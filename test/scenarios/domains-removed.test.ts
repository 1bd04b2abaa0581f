/**
 * A domain is removed: new mail is refused at once, accepted mail drains with the key it was accepted under, or is
 * canceled when asked so. And whatever happens to a domain, its private key shows up nowhere.
 */
import { createPrivateKey, generateKeyPairSync, type JsonWebKey, type KeyObject } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { dkimSealContext } from '../../src/senders/records/dkim-keys.ts'
import { recordOf, startDomainWorld, toPublish, type DomainWorld } from '../support/domain-world.ts'
import { judgeWithMailauth } from '../support/judges.ts'
import { missingPrograms } from '../support/programs.ts'
import { MASTER_KEY } from '../support/serve-process.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'

const skip = missingPrograms({ unbound: ['unbound'] })

const MINUTE = 60_000
const WAITING = 12
/** More than the time for which delivery remembers keys and return path of a domain: 1 s. */
const REMEMBERED_MILLISECONDS = 1_100

t.test('DELETE refuses new mail at once and lets accepted mail drain with its key', { skip }, async (t) => {
  const world = await startDomainWorld(t)
  const { api } = world.appliance
  const first = await world.addVerified('acme.test')
  const ids = await sendDeferred(world, 'acme.test', WAITING)
  const deferredAt = performance.now()

  const removed = await api.delete('/domains/acme.test')
  t.equal(removed.status, 200)
  t.same(removed.body, { success: true, data: { domain: 'acme.test', deleted: true, queued_messages: WAITING } })
  await refusesAll(t, world)

  await t.test('the same name added anew has keys of its own, which sign none of the old mail', async (t) => {
    const again = await world.add('acme.test', { return_path: 'back' })
    t.match(again, { status: 'pending', can_send: false })
    t.not(recordOf(again, 'dkim').name, recordOf(first, 'dkim').name, 'another selector')
    t.not(recordOf(again, 'dkim').value, recordOf(first, 'dkim').value, 'another key')
    t.match(await world.verify('acme.test'), { status: 'pending' }, 'the old record does not count')

    await until('delivery has forgotten the key', () => performance.now() - deferredAt > REMEMBERED_MILLISECONDS)
    world.sink.defer(false)
    await drained(world, ids, 'delivered')
    for (const { bytes } of world.sink.mails) {
      t.match(await judgeWithMailauth(bytes, world.unbound.port), [{ isGood: true }], 'verifies with the old record')
    }
    t.ok(
      world.sink.mails.every(({ from }) => from.endsWith('@bounces.acme.test')),
      'with the old return path',
    )
    t.equal(world.sink.mails.length, WAITING)

    world.setZone('acme.test', toPublish(again))
    await world.publish()
    t.match(await world.verify('acme.test'), { status: 'verified' })
    const selector = recordOf(again, 'dkim').name.split('.')[0]
    const late = await until('mail leaves with the new key and return path', async () => {
      const before = world.sink.mails.length
      await api.send({ to: 'late@dest.test', from: 'a@acme.test', subject: 'x', text: 'x' })
      const mail = await until('it arrives', () => world.sink.mails[before])
      const [verdict] = await judgeWithMailauth(mail.bytes, world.unbound.port)
      return mail.from.endsWith('@back.acme.test') && verdict?.selector === selector && verdict
    })
    t.ok(late.isGood)
  })
})

t.test('DELETE with purge cancels what waits', { skip }, async (t) => {
  const world = await startDomainWorld(t)
  const { api } = world.appliance
  const receiver = await webhookReceiver()
  t.teardown(() => receiver.close())
  await api.post('/webhooks', { url: receiver.url, events: ['email.canceled'] })
  await world.addVerified('acme.test')
  await world.addVerified('other.test')
  const ids = await sendDeferred(world, 'acme.test', WAITING)
  const kept = await sendDeferred(world, 'other.test', 2)
  const removed = await api.delete('/domains/acme.test?purge=true')
  t.match(removed.body, { success: true, data: { domain: 'acme.test', deleted: true, queued_messages: WAITING } })
  await drained(world, ids, 'canceled')
  await until('each is told', () => receiver.requests.length >= WAITING)
  const told = receiver.requests.map(({ body }) => JSON.parse(body.toString()) as { data: { message_id: string } })
  t.same(told.map(({ data }) => data.message_id).sort(), ids.toSorted())
  world.sink.defer(false)
  await drained(world, kept, 'delivered')
  t.same(world.sink.mails.map(({ to }) => to).sort(), ['w0@dest.test', 'w1@dest.test'], 'of the other domain alone')
})

t.test('the private key is in no log, answer or database file', { skip }, async (t) => {
  const world = await startDomainWorld(t, { settings: { domains: { dkim: { ed25519: true } } } })
  const { api, databaseFolder, log, parts, baseUrl, apiKey } = world.appliance
  const brought = pemOf(generateKeyPairSync('rsa', { modulusLength: 2_048 }).privateKey)
  const answers: string[] = []
  const note = async <Answer extends { body: unknown }>(asked: Promise<Answer>): Promise<Answer> => {
    const answer = await asked
    answers.push(JSON.stringify(answer.body))
    return answer
  }
  const secrets = new Map<string, string>([['brought', brought]])

  await note(api.post('/domains', { domain: 'brought.test', dkim_private_key: brought, dkim_selector: 'mine' }))
  // Every way to hand it in wrongly: the answer says what is wrong and does not repeat it.
  for (const [what, pem] of wrongKeys(brought)) {
    const answer = await note(api.post('/domains', { domain: 'wrong.test', dkim_private_key: pem }))
    t.match(answer, { status: 422, body: { error: { code: 'invalid_request', details: /dkim_private_key/ } } }, what)
  }
  await note(api.post('/domains', { domain: brought }))
  await note(api.post('/domains', { domain: 'wrong.test', dkim_selector: brought }))
  await note(api.post('/domains', { domain: 'wrong.test', dkim_private_key: [brought] }))
  await note(api.post('/domains', { domain: 'wrong.test', return_path: brought, ip_pool: brought }))
  await world.addVerified('made.test')
  await note(api.post('/domains/made.test/dkim/rotate', {}))
  const ids = await sendDeferred(world, 'made.test', 3)
  world.sink.defer(false)
  await drained(world, ids, 'delivered')
  const keyRing = createKeyRing(Buffer.from(MASTER_KEY, 'base64'))
  for (const name of ['made.test', 'brought.test']) {
    for (const key of (await parts.store.findDomain(name))?.keys ?? []) {
      const opened = keyRing.open(key.sealedPrivateKey, dkimSealContext(name, key.selector))
      secrets.set(`${name} ${key.selector} ${key.algorithm}`, opened)
    }
  }
  t.equal(secrets.size, 1 + 4 + 2, 'keys made, next keys, a key brought')
  for (const path of ['/domains?status=all', '/domains/made.test', '/domains/brought.test']) await note(api.get(path))
  await note(api.patch('/domains/brought.test', { allow_subdomains: true }))
  answers.push(
    await (
      await fetch(`${baseUrl}/v1/domains/brought.test/zonefile`, { headers: { Authorization: `Bearer ${apiKey}` } })
    ).text(),
  )
  await note(api.delete('/domains/brought.test'))
  await parts.store.tick()

  const places = new Map<string, Buffer>([
    ['the log', Buffer.from(log.join(''))],
    ['the answers', Buffer.from(answers.join('\n'))],
    ['the mail', Buffer.concat(world.sink.mails.map(({ bytes }) => bytes))],
    ...filesBelow(databaseFolder).map((file): [string, Buffer] => [file, readFileSync(file)]),
  ])
  t.ok(
    [...places.keys()].some((name) => name.endsWith('.db') || name.endsWith('.sqlite')),
    [...places.keys()].join(),
  )
  for (const [name, pem] of secrets) {
    for (const [place, bytes] of places) t.same(formsFound(pem, bytes), [], `${name} in ${place}`)
  }
  t.ok(log.length > 0 && answers.length > 10)
  await t.test('and a key that is there is found', async (t) => {
    const der = createPrivateKey(brought).export({ type: 'pkcs8', format: 'der' })
    for (const planted of [
      Buffer.from(brought),
      Buffer.from(JSON.stringify({ key: brought })),
      der,
      Buffer.from(der.toString('hex')),
      Buffer.from(createPrivateKey(brought).export({ type: 'pkcs1', format: 'pem' })),
    ]) {
      t.not(formsFound(brought, Buffer.concat([Buffer.alloc(100, 'x'), planted])).length, 0)
    }
  })
})

/** Sends to a receiver that puts all off, until each waits for its next try. */
async function sendDeferred(world: DomainWorld, domain: string, count: number): Promise<string[]> {
  world.sink.defer(true)
  const ids: string[] = []
  for (let index = 0; index < count; index += 1) {
    const message = { to: `w${index}@dest.test`, from: `a@${domain}`, subject: 'x', text: 'x' }
    ids.push(await world.appliance.api.send(message))
  }
  await drained(world, ids, 'deferred')
  return ids
}

/** Moves the clock on until all messages are in this state. */
async function drained(world: DomainWorld, ids: readonly string[], state: string): Promise<void> {
  const { api, clock } = world.appliance
  await until(
    `all are ${state}`,
    async () => {
      const answers = await Promise.all(ids.map((id) => api.get(`/email/${id}`)))
      if (answers.every(({ body }) => (body['data'] as { state: string }).state === state)) return true
      if (state !== 'deferred') clock.leap(MINUTE)
      return false
    },
    120_000,
  )
}

async function refusesAll(t: Test, { appliance: { api } }: DomainWorld): Promise<void> {
  const send = await api.post('/email/send', { to: 'b@dest.test', from: 'a@acme.test', subject: 'x', text: 'x' })
  t.match(send, { status: 403, body: { error: { code: 'domain_not_verified' } } })
  const gone = { status: 404, body: { success: false, error: { code: 'not_found', details: 'domain acme.test' } } }
  t.match(await api.delete('/domains/acme.test'), gone, 'also the second time')
  t.match(await api.get('/domains/acme.test'), gone)
  t.match(await api.post('/domains/acme.test/verify', {}), gone)
  t.match(await api.patch('/domains/acme.test', { allow_subdomains: true }), gone)
  t.match(await api.post('/domains/acme.test/dkim/rotate', {}), gone)
  t.same((await api.get('/domains?status=all')).body['data'], [])
}

function pemOf(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString()
}

function wrongKeys(pem: string): [string, string][] {
  const lines = pem.trim().split('\n')
  const key = createPrivateKey(pem)
  return [
    ['cut', lines.slice(0, -4).join('\n')],
    ['without its first line', lines.slice(1).join('\n')],
    ['on one line', lines.join(' ')],
    ['encrypted', key.export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'x' }).toString()],
    ['too short', pemOf(generateKeyPairSync('rsa', { modulusLength: 1_024 }).privateKey)],
    ['of another kind', pemOf(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey)],
    ['its public half', key.export({ format: 'jwk' }).n ?? ''],
  ]
}

/** The forms of a private key that are in some bytes: its PEM, its DER, its numbers; plain, base64 or hexadecimal. */
function formsFound(pem: string, bytes: Buffer): string[] {
  const text = bytes.toString('latin1')
  const lower = text.toLowerCase()
  const key = createPrivateKey(pem)
  const der = key.export({ type: 'pkcs8', format: 'der' })
  const { d = '', p = '', q = '', dp = '', dq = '', qi = '' }: JsonWebKey = key.export({ format: 'jwk' })
  const numbers = [d, p, q, dp, dq, qi]
    .filter((number) => number !== '')
    .map((number) => Buffer.from(number, 'base64url'))
  const found: string[] = []
  // The first line is the same for every key.
  for (const line of pem.split('\n').slice(key.asymmetricKeyType === 'ed25519' ? 1 : 2, -2)) {
    if (line !== '' && text.includes(line)) found.push('a line of the PEM')
  }
  for (const secret of [der.subarray(-48), ...numbers]) {
    const piece = secret.subarray(0, 32)
    if (bytes.includes(piece)) found.push('bytes')
    if (lower.includes(piece.toString('hex'))) found.push('hexadecimal')
    // Base64 of the inner bytes, at each of the three ways they can lie.
    for (const skipped of [0, 1, 2]) {
      const middle = piece.subarray(skipped, skipped + 27).toString('base64')
      if (text.includes(middle) || text.includes(middle.replaceAll('+', '-').replaceAll('/', '_'))) found.push('base64')
    }
  }
  return found
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
}
