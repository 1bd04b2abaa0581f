/**
 * Who goes first, and who waits for nobody, through the whole engine.
 */
import t from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { manualClock } from '../support/manual-clock.ts'
import { startOrderingSink } from '../support/ordering-sink.ts'
import { until } from '../support/until.ts'
import { mx } from './session-kit.ts'
import { startEngine, type AcceptOptions, type Engine } from './start-engine.ts'

const START = Date.UTC(2026, 10, 21, 12)
const FULL = process.env['TEST_SCALE'] === 'full'
const MANY = FULL ? 20_000 : 2_000
/** More than enough for what these tests send within a second. */
const FAST = { rate: '100000/second', connection_rate: '100000/second' }

const OTHER = { 'other.test': { MX: ['10 mx.other.test'] }, 'mx.other.test': { A: ['127.0.0.3'] } }

const isMissed = ({ msg }: Record<string, unknown>): boolean => msg === 'scheduler.missed_wake'

async function acceptMany(engine: Engine, recipient: string, options: AcceptOptions): Promise<string[]> {
  const ids: string[] = []
  for (let accepted = 0; accepted < MANY; accepted += 1_000) {
    ids.push(...(await engine.accept(recipient, { ...options, count: 1_000 })))
  }
  return ids
}

t.test('a host that refuses everything holds up nobody else, and keeps nothing in the window', async (t) => {
  const blocked = await mx(t, { script: { banner: '554 no' } })
  const open = await mx(t, { address: '127.0.0.3', port: blocked.port })
  const engine = await startEngine(t, { port: blocked.port, zone: OTHER, providers: { default: FAST } })
  const stuck = await acceptMany(engine, 'anna@dest.test', { stream: 'bulk' })
  await engine.until(
    'the path is left alone',
    async () => engine.dispatcher.whyWaiting(await engine.message(stuck.at(-1)))?.waitingFor === 'suspension',
  )
  const start = performance.now()
  const ids = await engine.accept('anna@other.test', { count: 100, domain: 'acme.test' })
  for (const id of ids) await engine.untilState(id, 'delivered')
  t.equal(open.messages.length, 100)
  t.ok(performance.now() - start < 30 * SECOND)
  t.ok(blocked.connections.length < 10, `${blocked.connections.length} connections`)
  const { sending } = await engine.store.queueSummary(Date.now())
  t.equal(sending, 0)
  t.notOk(engine.log.some(isMissed))
})

t.test('transactional mail passes thousands of bulk messages to the same host', async (t) => {
  const server = await mx(t, { script: { dot: { afterMilliseconds: 10, reply: '250 ok' } } })
  const engine = await startEngine(t, { port: server.port, providers: { default: FAST } })
  await acceptMany(engine, 'bulk@dest.test', { stream: 'bulk' })
  await until('bulk mail is under way', () => server.messages.length > 20)
  const before = server.messages.length
  const ids = await engine.accept('urgent@dest.test', { count: 10 })
  for (const id of ids) await engine.untilState(id, 'delivered')
  const passed = server.messages.slice(before).filter(({ to }) => to === 'bulk@dest.test').length
  t.ok(server.messages.length < MANY, `${server.messages.length} of ${MANY} were out by then`)
  t.comment(`${passed} bulk messages went out meanwhile`)
})

t.test('retries that are due leave room for new mail', async (t) => {
  const slowly = (reply: string): { afterMilliseconds: number; reply: string } => ({ afterMilliseconds: 5, reply })
  const server = await mx(t, {
    script: { rcpt: (line) => slowly(line.includes('new@') ? '250 ok' : '451 4.3.0 later') },
  })
  const engine = await startEngine(t, {
    port: server.port,
    providers: { default: { connections: 2, messages_per_connection: 1_000, ...FAST } },
    overrides: { 'delivery.retry': ['5s', '1h'] },
  })
  const tries = (): number =>
    server.connections
      .flatMap(({ commands }) => commands)
      .filter((line) => line.startsWith('RCPT') && line.includes('old@')).length
  await engine.accept('old@dest.test', { count: 500 })
  await until('the retries have begun', () => tries() > 500)
  const fresh = await engine.accept('new@dest.test', { count: 50 })
  const before = tries()
  await until('the new mail is out', () => server.messages.length === 50)
  t.ok(tries() - before < 300, `${tries() - before} retries while 50 new messages went out`)
  for (const id of fresh) await engine.untilState(id, 'delivered')
})

t.test('a domain whose DNS is slow holds up no other', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port, zone: { 'slow.test': 'TIMEOUT' } })
  await engine.accept('x@slow.test', { count: 5 })
  const [id] = await engine.accept('anna@dest.test')
  await engine.untilState(id, 'delivered')
  t.equal(server.messages.length, 1)
})

t.test('domains whose DNS falls silent hold up no other, however many they are', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  const names = Array.from({ length: 8 }, (_, index) => `s${index}.test`)
  const zone = Object.fromEntries(
    names.flatMap((name) => [
      [name, { MX: [`10 mx.${name}`] }],
      [`mx.${name}`, { A: ['127.0.0.4'] }],
    ]),
  )
  const overrides = { 'delivery.ready_window': 20 }
  const engine = await startEngine(t, { port: server.port, clock, zone, overrides })
  for (const name of names) {
    for (const stream of ['transactional', 'bulk'] as const) {
      await engine.accept(`x@${name}`, { count: 20, stream, sendAt: START + 2 * HOUR })
    }
  }
  await engine.until('their routes are known', async () => {
    const { keys } = await engine.store.queueKeys(null, 1_000)
    return keys.length === 2 * names.length && keys.every(({ route }) => route !== '')
  })
  await clock.advance(90 * MINUTE)
  const [first] = await engine.accept('anna@dest.test')
  await engine.untilState(first, 'delivered')
  for (const name of names) engine.zone.set(name, 'TIMEOUT')
  await clock.advance(30 * MINUTE)
  const sending = async (): Promise<number> => (await engine.store.queueSummary(clock.now())).sending
  await engine.until('they are claimed', async () => (await sending()) >= 5)
  const [second] = await engine.accept('anna@dest.test')
  await engine.untilState(second, 'delivered')
  t.equal(await sending(), 5, 'a quarter of the window')
  t.notOk(
    engine.log.some(({ outcome }) => outcome === 'path-failed'),
    'they wait for the DNS still',
  )
})

t.test('hosts that say nothing hold up no other, however many they are', async (t) => {
  const server = await mx(t)
  await mx(t, { address: '127.0.0.4', port: server.port, script: { banner: 'silence' } })
  const names = Array.from({ length: 6 }, (_, index) => `s${index}.test`)
  const zone = Object.fromEntries(
    names.flatMap((name) => [
      [name, { MX: [`10 mx.${name}`] }],
      [`mx.${name}`, { A: ['127.0.0.4'] }],
    ]),
  )
  const overrides = { 'delivery.ready_window': 20 }
  const engine = await startEngine(t, {
    port: server.port,
    zone,
    overrides,
    domains: ['other.example', 'third.example'],
  })
  for (const name of names) {
    for (const domain of ['acme.test', 'other.example']) {
      for (const stream of ['transactional', 'bulk'] as const) {
        await engine.accept(`x@${name}`, { count: 10, stream, domain })
      }
    }
  }
  const sending = async (): Promise<number> => (await engine.store.queueSummary(Date.now())).sending
  await engine.until('they are under way', async () => (await sending()) >= 4 * names.length)
  const [id] = await engine.accept('anna@dest.test', { domain: 'third.example' })
  await engine.untilState(id, 'delivered')
  t.notOk(
    engine.log.some(({ outcome }) => outcome === 'path-failed'),
    'they wait for their hosts still',
  )
})

t.test('what is to be sent later goes at its time, to the route its domain has then', async (t) => {
  const first = await mx(t)
  const second = await mx(t, { address: '127.0.0.3', port: first.port })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: first.port, clock, zone: OTHER })
  const [id] = await engine.accept('anna@dest.test', { sendAt: START + HOUR })
  await engine.until('its route is known', async () => {
    const { keys } = await engine.store.queueKeys(null, 100)
    return keys.some(({ route }) => route !== '')
  })
  engine.zone.set('dest.test', { MX: ['10 mx.other.test'] })
  await clock.advance(HOUR - 1)
  t.equal((await engine.message(id)).state, 'scheduled')
  await clock.advance(1)
  await engine.untilState(id, 'delivered')
  t.equal(first.messages.length, 0)
  t.equal(second.messages.length, 1)
})

t.test('a message that waits for a connection beyond its lifetime expires there, once', async (t) => {
  const server = await mx(t, { script: { rcpt: { afterMilliseconds: 1_500, reply: '250 ok' } } })
  const clock = manualClock(START)
  const engine = await startEngine(t, {
    port: server.port,
    clock,
    providers: { default: { connections: 1, messages_per_connection: 3 } },
  })
  const ids = await engine.accept('anna@dest.test', { count: 5, lifetime: HOUR, stream: 'bulk' })
  await until('the first is on its way', () => (server.connections[0]?.commands.length ?? 0) >= 3)
  await clock.advance(HOUR)
  const ends = await engine.until('all have ended', async () => {
    await engine.store.expireDue(clock.now(), 100)
    const views = await Promise.all(ids.map((id) => engine.message(id)))
    return views.every(({ state }) => state === 'delivered' || state === 'expired') && views.map(({ state }) => state)
  })
  t.ok(ends.filter((state) => state === 'expired').length >= 3, ends.join())
  for (const id of ids) {
    const kinds = (await engine.events(id)).map(({ kind }) => kind)
    t.equal(kinds.filter((kind) => kind === 'email.bounced' || kind === 'email.delivered').length, 1)
  }
})

t.test('nothing starts while it may not, and goes on when it may', async (t) => {
  const server = await mx(t)
  let isAllowed = false
  const engine = await startEngine(t, { port: server.port, mayDeliver: () => isAllowed })
  const [id] = await engine.accept('anna@dest.test')
  await engine.store.tick()
  t.match(await engine.message(id), { state: 'queued' })
  isAllowed = true
  engine.dispatcher.resume()
  await engine.untilState(id, 'delivered')
})

t.test('rows that nobody named are found when somebody says that there are some', async (t) => {
  const server = await mx(t, { script: { rcpt: ['451 4.3.0 later', '250 ok'] } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const [id] = await engine.accept('anna@dest.test')
  await engine.untilState(id, 'deferred')
  t.match(
    await engine.store.actOnQueue({
      filter: { recipientDomain: 'dest.test' },
      action: { kind: 'retry' },
      now: clock.now(),
      limit: 10,
      isDryRun: false,
    }),
    { messages: 1 },
  )
  engine.dispatcher.wake()
  await engine.untilState(id, 'delivered')
  t.equal(clock.now(), START)
  t.notOk(engine.log.some(isMissed))
})

t.test('the walk finds rows that some part forgot to tell of, and says so', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  await engine.untilState((await engine.accept('anna@dest.test'))[0], 'delivered')
  const [id] = await engine.accept('anna@dest.test', { isUntold: true })
  await clock.advance(MINUTE)
  await engine.untilState(id, 'delivered')
  t.match(engine.log.filter(isMissed), [{ level: 'error', count: 1 }])
})

t.test('what another node left behind when it went is no surprise, what is forgotten afterwards is one', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  let hasOthers = true
  const engine = await startEngine(t, { port: server.port, clock, hasOthers: () => hasOthers })
  await engine.untilState((await engine.accept('anna@dest.test'))[0], 'delivered')
  const [left] = await engine.accept('anna@dest.test', { isUntold: true, sendAt: START - MINUTE })
  hasOthers = false
  await clock.advance(MINUTE)
  await engine.untilState(left, 'delivered')
  t.notOk(engine.log.some(isMissed))
  const [forgotten] = await engine.accept('anna@dest.test', { isUntold: true })
  await clock.advance(MINUTE)
  await engine.untilState(forgotten, 'delivered')
  t.match(engine.log.filter(isMissed), [{ level: 'error', count: 1 }])
})

t.test('what the first other node brings is found at its pace', async (t) => {
  const server = await mx(t)
  const clock = manualClock(START)
  let hasOthers = false
  const engine = await startEngine(t, { port: server.port, clock, hasOthers: () => hasOthers })
  await engine.untilState((await engine.accept('anna@dest.test'))[0], 'delivered')
  hasOthers = true
  const [brought] = await engine.accept('anna@dest.test', { isUntold: true })
  engine.dispatcher.othersWrote()
  await clock.advance(6 * SECOND)
  await engine.untilState(brought, 'delivered')
  t.notOk(engine.log.some(isMissed))
})

t.test('a reload with other limits is in force for the next message', async (t) => {
  const server = await mx(t, { script: { dot: { afterMilliseconds: 20, reply: '250 ok' } } })
  const engine = await startEngine(t, { port: server.port })
  const before = engine.live.current()
  const [first] = await engine.accept('anna@dest.test')
  await engine.untilState(first, 'delivered')
  const { providers } = before
  await engine.live.replace({
    ...before,
    providers: { ...providers, default: { ...providers.default, messages_per_connection: 1 } },
  })
  const ids = await engine.accept('anna@dest.test', { count: 5 })
  for (const id of ids) await engine.untilState(id, 'delivered')
  t.ok(server.connections.length >= 5, `${server.connections.length} connections`)
})

t.test('what expires while it waits for a connection is told with the last answer of its host', async (t) => {
  const sink = await startOrderingSink({
    onCommand: (verb, path) => (verb === 'RCPT' && path.startsWith('anna') ? '451 4.3.2 busy' : undefined),
  })
  t.teardown(() => sink.close())
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: sink.port, clock, providers: { default: { connections: 1 } } })
  const [id] = await engine.accept('anna@dest.test', { lifetime: 5 * MINUTE, stream: 'bulk' })
  await engine.untilState(id, 'deferred')
  sink.hold()
  // One whose dot is out, and one whose envelope goes out behind it.
  await engine.accept('bob@dest.test', { count: 2 })
  await until('the connection is held', () => sink.held() === 1)
  await clock.advance(MINUTE)
  await engine.untilState(id, 'sending')
  await clock.advance(4 * MINUTE)
  sink.release()
  const view = await engine.until('it has ended', async () => {
    await engine.store.expireDue(clock.now(), 100)
    const found = await engine.message(id)
    return found.state === 'expired' && found
  })
  const description = 'not delivered within 5 min; last answer: 451 4.3.2 busy'
  t.match(view, { bounce: { type: 'soft', code: '4.4.7', description }, attempts: { length: 1 } })
  t.match((await engine.events(id)).at(-1), { kind: 'email.bounced', data: { bounce_description: description } })
})

t.test('a clock that jumps ahead and is set right again ends no mail that waits for a connection', async (t) => {
  const sink = await startOrderingSink()
  t.teardown(() => sink.close())
  const right = manualClock(START)
  let ahead = 0
  const clock = { ...right, now: () => right.now() + ahead }
  const engine = await startEngine(t, { port: sink.port, clock, providers: { default: { connections: 1 } } })
  sink.hold()
  const ids = await engine.accept('bob@dest.test', { count: 12, lifetime: 72 * HOUR, stream: 'bulk' })
  await until('the connection is held', () => sink.held() === 1)
  ahead = 100 * HOUR
  await right.advance(SECOND)
  sink.release()
  const states = async (): Promise<string[]> => Promise.all(ids.map(async (id) => (await engine.message(id)).state))
  await until('nothing is under way', async () => !(await states()).includes('sending'))
  ahead = 0
  await until('all are delivered', async () => {
    await right.advance(MINUTE)
    return (await states()).every((state) => state === 'delivered')
  })
})
