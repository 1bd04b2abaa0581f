import { dkimVerify } from 'mailauth'
import t from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import type { DkimKeyRecord } from '../../src/store/records/sender-records.ts'
import type { Store } from '../../src/store/store.ts'
import { manualClock } from '../support/manual-clock.ts'
import { selfSigned, type ScriptedMx } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import { mx } from './session-kit.ts'
import { DKIM_RECORDS, plainContent, startEngine, verifiedDomain } from './start-engine.ts'

const ANNA = 'Anna@dest.test'
const START = Date.UTC(2026, 10, 21, 12)
const tls = selfSigned()
const WITH_TLS = { skip: tls === undefined && 'openssl is not installed' }

t.test('connections are used again, as many and as often as the provider allows', async (t) => {
  const server = await mx(t, { script: { dot: { afterMilliseconds: 5, reply: '250 ok' } } })
  const limits = { connections: 3, messages_per_connection: 10 }
  const engine = await startEngine(t, {
    port: server.port,
    providers: { providers: { big: { mx_suffixes: ['dest.test'], ...limits } } },
  })
  const ids = await engine.accept(ANNA, { count: 60 })
  await until('all arrived', () => server.messages.length === 60)
  for (const id of ids) await engine.untilState(id, 'delivered')
  const perConnection = server.connections.map(
    (connection) => server.messages.filter((message) => message.connection === connection).length,
  )
  t.ok(Math.max(...perConnection) <= 10, `at most 10 each: ${perConnection.join()}`)
  t.ok(server.connections.length >= 6 && server.connections.length <= 9, `${server.connections.length} connections`)
  t.equal(new Set(server.messages.map(({ from }) => from)).size, 60, 'each once')
})

const openOf = ({ connections }: ScriptedMx): number => connections.filter(({ isClosed }) => !isClosed).length

t.test('a host that takes only two connections gets all mail over two, and no message waits for it', async (t) => {
  const server = await mx(t, {
    script: {
      banner: () => (openOf(server) > 2 ? '421 4.7.0 too many' : '220 mx.test'),
      dot: { afterMilliseconds: 5, reply: '250 ok' },
    },
  })
  const engine = await startEngine(t, { port: server.port })
  const ids = await engine.accept(ANNA, { count: 50 })
  for (const id of ids) t.match(await engine.untilState(id, 'delivered'), { attempts: { length: 1 } })
  t.ok(server.connections.length < 20, `${server.connections.length} connections`)
})

t.test('mail whose further connection was refused goes over the idle one at once', async (t) => {
  const server = await mx(t, {
    script: { banner: ['220 mx.test', { afterMilliseconds: 200, reply: '421 4.7.0 too many' }] },
  })
  const engine = await startEngine(t, { port: server.port, providers: { default: { idle: '5m' } } })
  const ids = await engine.accept(ANNA, { count: 2 })
  for (const id of ids) await engine.untilState(id, 'delivered')
  t.equal(server.connections.length, 2)
})

t.test('a dead host is tried once for all messages that wait for it', async (t) => {
  const server = await mx(t, { script: { banner: '554 no' } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const ids = await engine.accept(ANNA, { count: 100 })
  await engine.until('all wait for the path', async () => {
    const reasons = await Promise.all(ids.map(async (id) => engine.dispatcher.whyWaiting(await engine.message(id))))
    return reasons.every((reason) => reason?.waitingFor === 'suspension')
  })
  const views = await Promise.all(ids.map((id) => engine.message(id)))
  t.ok(
    views.some(({ state }) => state === 'deferred'),
    'some were tried',
  )
  t.ok(views.every(({ attempts }) => attempts.every(({ result }) => result === 'path-failed')))
  // One for each batch that went to the thread before the first failure was heard of: few, but more on a slow machine.
  t.ok(server.connections.length <= 10, `${server.connections.length} connections`)
})

t.test('a lease is renewed as long as its transaction lasts', async (t) => {
  const server = await mx(t, { script: { rcpt: 'silence' } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock, timeouts: { rcpt: '1m' } })
  await engine.accept(ANNA)
  await engine.until('RCPT was sent', () => server.connections[0]?.commands.length === 3)
  await clock.advance(HOUR)
  t.equal(await engine.store.recoverLapsedLeases(clock.now(), clock.now(), clock.now()), 0)
  const later = clock.now() + 16 * MINUTE
  t.equal(await engine.store.recoverLapsedLeases(later, later, later), 1, 'and only so long')
})

t.test('the lease of a row that memory does not hold is not renewed', async (t) => {
  const server = await mx(t, { script: { rcpt: 'silence' } })
  const clock = manualClock(START)
  // Claimed by the store, and never told to the engine.
  let isLost = true
  const watchStore = (store: Store): Store => ({
    ...store,
    async claimDue(request) {
      const claimed = await store.claimDue(request)
      if (!isLost || claimed.messages.length === 0) return claimed
      isLost = false
      return { ...claimed, messages: [] }
    },
  })
  const renewals: number[] = []
  const counted = (store: Store): Store => ({
    ...watchStore(store),
    renewLeases(epoch, rows, leaseUntil) {
      renewals.push(rows.length)
      return store.renewLeases(epoch, rows, leaseUntil)
    },
  })
  const engine = await startEngine(t, { port: server.port, clock, timeouts: { rcpt: '1m' }, watchStore: counted })
  await engine.accept(ANNA)
  await engine.until('it is lost', () => !isLost)
  await engine.accept(ANNA)
  await engine.until('RCPT was sent', () => server.connections[0]?.commands.length === 3)
  await clock.advance(MINUTE)
  t.same(renewals, [1], 'of what is in its thread')
})

t.test('two IPs share the mail, each with its own EHLO name', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, {
    port: server.port,
    overrides: { 'delivery.threads': 2 },
    ips: [
      { address: '127.0.0.11', hostname: 'mta1.sternpost.test', warmed: true },
      { address: '127.0.0.12', hostname: 'mta2.sternpost.test', warmed: true },
    ],
  })
  await engine.accept(ANNA, { count: 40 })
  await until('all arrived', () => server.messages.length === 40)
  const seen = new Set(server.connections.map(({ remoteAddress, ehloName }) => `${remoteAddress} ${ehloName}`))
  t.strictSame(seen, new Set(['127.0.0.11 mta1.sternpost.test', '127.0.0.12 mta2.sternpost.test']))
})

t.test('an IP that vanishes is disabled, and the mail leaves from another one', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, {
    port: server.port,
    ips: [{ address: '127.0.0.11', source: '198.51.100.7', hostname: 'mta1.sternpost.test', warmed: true }],
  })
  t.match(engine.egress.ips(), [{ state: 'disabled' }])
  const [id] = await engine.accept(ANNA)
  t.match(await engine.message(id), { state: 'queued' })
  t.equal(server.connections.length, 0)
})

t.test('STARTTLS is used with any certificate', WITH_TLS, async (t) => {
  const server = await mx(t, tls === undefined ? {} : { tls })
  const engine = await startEngine(t, { port: server.port })
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'delivered'), { attempts: [{ tls: { protocol: 'TLSv1.3' } }] })
  t.equal(server.messages[0]?.connection.isTls, true)
})

t.test('a broken handshake falls back to plain text once, unless TLS is required', async (t) => {
  const server = await mx(t, { tls: 'broken' })
  const engine = await startEngine(t, { port: server.port })
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'delivered'), { attempts: [{ tls: null }] })
  t.equal(server.connections.length, 2)

  const strict = await mx(t, { tls: 'broken' })
  const strictEngine = await startEngine(t, { port: strict.port, overrides: { 'delivery.tls': 'required' } })
  const [held] = await strictEngine.accept(ANNA)
  t.match(await strictEngine.untilState(held, 'deferred'), { attempts: [{ result: 'path-failed', stage: 'starttls' }] })
  t.equal(strict.messages.length, 0)
  t.match(
    strictEngine.log.find((line) => line['message_id'] === held),
    { code: '4.7.4', outcome: 'path-failed' },
  )
})

t.test('a message without an answer in time expires, told as a soft bounce', async (t) => {
  const server = await mx(t, { script: { dot: '451 4.3.0 later' } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const [id] = await engine.accept(ANNA, { lifetime: 5 * MINUTE })
  await engine.untilState(id, 'deferred')
  await clock.advance(MINUTE)
  t.match(await engine.untilState(id, 'expired'), {
    attempts: { length: 2 },
    bounce: { type: 'soft', code: '4.4.7', description: 'not delivered within 5 min; last answer: 451 4.3.0 later' },
  })
  t.match(await engine.events(id), [
    { kind: 'email.deferred' },
    { kind: 'email.bounced', data: { bounce_type: 'soft', bounce_code: '4.4.7' } },
  ])
})

t.test('what the DNS says decides without a connection', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  const engine = await startEngine(t, {
    port: server.port,
    clock,
    zone: { 'null.test': { MX: ['0 .'] }, 'broken.test': 'SERVFAIL', 'empty.test': { MX: ['10 gone.empty.test'] } },
  })
  const [nullMx] = await engine.accept('x@null.test')
  t.match(await engine.untilState(nullMx, 'bounced'), {
    bounce: { type: 'hard', code: '5.1.10' },
    attempts: [{ ip: null }],
  })
  const [broken] = await engine.accept('x@broken.test')
  t.match(await engine.untilState(broken, 'deferred'), {
    nextAttemptAt: START + MINUTE,
    attempts: [{ result: 'path-failed' }],
  })
  const [empty] = await engine.accept('x@empty.test')
  t.match(await engine.untilState(empty, 'deferred'), { nextAttemptAt: START + HOUR })

  const [unknown] = await engine.accept('x@unknown.test')
  t.match(await engine.untilState(unknown, 'deferred'), { nextAttemptAt: START + 10 * MINUTE, bounce: null })
  engine.zone.set('broken.test', { MX: ['10 mx.dest.test'] })
  await clock.advance(10 * MINUTE)
  t.match(await engine.untilState(unknown, 'bounced'), { bounce: { type: 'hard', code: '5.1.2' } })
  await engine.untilState(broken, 'delivered')
  t.equal(server.messages.length, 1)
})

t.test('a failure of another kind is no first answer that a name does not exist', async (t) => {
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: 25, clock, zone: { 'broken.test': 'SERVFAIL' } })
  const [id] = await engine.accept('x@broken.test')
  await engine.untilState(id, 'deferred')
  engine.zone.set('broken.test', undefined)
  await clock.advance(MINUTE)
  const second = await engine.until('it was looked up again', async () => {
    const view = await engine.message(id)
    return view.attempts.length === 2 && view
  })
  t.match(second, { state: 'deferred', nextAttemptAt: START + 11 * MINUTE })
  await clock.advance(10 * MINUTE)
  t.match(await engine.untilState(id, 'bounced'), { bounce: { type: 'hard', code: '5.1.2' } })
})

t.test('a message that cannot be signed is not sent', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const now = clock.now()
  const id = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'
  const broken: DkimKeyRecord = {
    selector: 's1',
    algorithm: 'rsa-sha256',
    role: 'active',
    publicKey: '',
    sealedPrivateKey: Buffer.alloc(64),
    createdAt: 0,
    seenAt: 0,
    retireAt: null,
  }
  await engine.store.addDomain(verifiedDomain('keyless.test', [broken]), null)
  await engine.store.acceptMessages({
    now,
    apiKeyId: null,
    isTest: false,
    domain: 'keyless.test',
    pool: 'default',
    stream: 'transactional',
    sendAt: null,
    content: plainContent({ from: { name: null, address: 'a@keyless.test' } }),
    batch: null,
    retryOf: null,
    idempotency: null,
    messages: [
      {
        id,
        to: { name: null, address: ANNA },
        recipientDomain: 'dest.test',
        variables: {},
        expiresAt: now + HOUR,
        isCaptured: false,
      },
    ],
  })
  engine.dispatcher.wake()
  await until('it is reported', () => engine.log.some((line) => line['level'] === 'error' && line['message_id'] === id))
  t.match(
    await engine.until('it waits', async () => {
      const view = await engine.message(id)
      return view.state === 'queued' && view
    }),
    { nextAttemptAt: START + 5 * MINUTE, attempts: { length: 0 } },
  )
  t.equal(server.messages.length, 0)
})

t.test('mail of a removed domain leaves with its return path and a signature of each of its keys', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock, zone: { 'dest.test': 'SERVFAIL' } })
  const [id] = await engine.accept(ANNA)
  await engine.untilState(id, 'deferred')
  t.same(await engine.store.removeDomain({ name: 'acme.test', now: clock.now(), purge: false }), { queuedMessages: 1 })
  engine.zone.set('dest.test', { MX: ['10 mx.dest.test'] })
  await clock.advance(MINUTE)
  await engine.untilState(id, 'delivered')
  const [message] = server.messages
  t.match(message?.from, /@bounces\.acme\.test$/)
  const resolver = async (name: string): Promise<string[][]> => [[DKIM_RECORDS[name] ?? '']]
  const { results } = await dkimVerify(message?.bytes ?? Buffer.alloc(0), { resolver })
  t.match(
    results.map(({ algo, status, signingDomain }) => [algo, status.result, signingDomain]),
    [
      ['rsa-sha256', 'pass', 'acme.test'],
      ['ed25519-sha256', 'pass', 'acme.test'],
    ],
  )
})

t.test('stop lets running transactions finish and gives the others back', async (t) => {
  const server = await mx(t, { script: { dot: { afterMilliseconds: 300, reply: '250 ok' } } })
  const engine = await startEngine(t, { port: server.port, providers: { default: { connections: 2 } } })
  const ids = await engine.accept(ANNA, { count: 20 })
  await until('two are past the dot', () => server.messages.length === 2)
  await engine.dispatcher.stop(5 * SECOND)
  const states = await Promise.all(ids.map(async (id) => (await engine.message(id)).state))
  const delivered = states.filter((state) => state === 'delivered').length
  t.ok(delivered >= 2 && delivered <= 4, 'those under way, and those whose envelope went out with their dot')
  t.equal(states.filter((state) => state === 'queued').length, 20 - delivered)
  t.ok(server.connections.every(({ commands }) => commands.at(-1) === 'QUIT'))
})

t.test('stop resets what has not sent its dot when the drain is over, and does not count it', async (t) => {
  const server = await mx(t, { script: { rcpt: 'silence' } })
  const engine = await startEngine(t, { port: server.port, timeouts: { rcpt: '1m' } })
  const [id] = await engine.accept(ANNA)
  await until('RCPT was sent', () => server.connections[0]?.commands.length === 3)
  await engine.dispatcher.stop(SECOND)
  t.match(await engine.message(id), { state: 'queued', attempts: { length: 0 } })
})

t.test('stop waits for the answer to a dot for longer than the drain, or the mail would go out twice', async (t) => {
  const server = await mx(t, { script: { dot: { afterMilliseconds: 2 * SECOND, reply: '250 ok' } } })
  const engine = await startEngine(t, { port: server.port })
  const [id] = await engine.accept(ANNA)
  await until('the dot was sent', () => server.messages.length === 1)
  await engine.dispatcher.stop(0)
  t.match(await engine.message(id), { state: 'delivered' })
})

t.test('stop gives up on a lost answer to the dot only at its end, and says that it is uncertain', async (t) => {
  const server = await mx(t, { script: { dot: 'silence' } })
  const engine = await startEngine(t, { port: server.port, timeouts: { final_dot: '10m' } })
  const [id] = await engine.accept(ANNA)
  await until('the dot was sent', () => server.messages.length === 1)
  await engine.dispatcher.stop(100, 200)
  t.match(await engine.message(id), { state: 'deferred', isPossibleDuplicate: true })
})

t.test('stop does not wait for ever for the answer to a claim', async (t) => {
  const clock = manualClock(START)
  let asked = 0
  const watchStore = (store: Store): Store => ({
    ...store,
    claimDue() {
      asked += 1
      return new Promise(() => {})
    },
  })
  const engine = await startEngine(t, { port: 25, clock, watchStore })
  const [id] = await engine.accept(ANNA)
  await engine.until('it is being claimed', () => asked === 1)
  let isStopped = false
  const stopping = engine.dispatcher.stop(0).then(() => (isStopped = true))
  await clock.advance(10 * SECOND - 1)
  t.notOk(isStopped)
  await clock.advance(1)
  await stopping
  t.match(await engine.message(id), { state: 'queued' })
})

t.test('outcomes that cannot be stored are kept and tried again, and nothing new is claimed meanwhile', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port })
  const { store } = engine
  const record = store.recordOutcomes.bind(store)
  let failures = 0
  store.recordOutcomes = (request) => (failures++ < 2 ? Promise.reject(new Error('SQLITE_FULL')) : record(request))
  const [first] = await engine.accept(ANNA)
  await until('it failed once', () => failures === 1)
  const [second] = await engine.accept(ANNA)
  await until('it failed again', () => failures === 2)
  t.equal(server.messages.length, 1)
  await engine.untilState(first, 'delivered')
  await engine.untilState(second, 'delivered')
  t.equal(server.messages.length, 2)
})

t.test('a dead thread is replaced, its rows are due again; the third death within a minute is fatal', async (t) => {
  const engine = await startEngine(t, { port: 25, impossiblePort: 70_000 })
  const [id] = await engine.accept(ANNA)
  await until('the third death', () => engine.fatal.length === 1)
  t.match(engine.fatal[0]?.message, /3 times/)
  t.equal(engine.log.filter((line) => line['msg'] === 'delivery thread died').length, 3)
  t.match(await engine.untilState(id, 'queued'), { attempts: { length: 0 }, isPossibleDuplicate: false })
  t.match(await engine.metrics.registry.metrics(), /sternpost_leases_recovered_total 3/)
})
