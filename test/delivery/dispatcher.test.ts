import t from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { manualClock } from '../support/manual-clock.ts'
import { mx } from './session-kit.ts'
import { startEngine } from './start-engine.ts'

const ANNA = 'Anna@dest.test'
const START = Date.UTC(2026, 10, 21, 12)

t.test('a message leaves signed from the pool IP with its EHLO name, and its delivery is told', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port })
  const [id] = await engine.accept(ANNA)
  const view = await engine.untilState(id, 'delivered')
  t.match(server.connections, [{ remoteAddress: '127.0.0.11', ehloName: 'mta1.sternpost.test' }])
  t.match(server.messages, [{ to: ANNA, from: /^b-[a-z2-7]{48}@bounces\.acme\.test$/ }])
  t.match(server.messages[0]?.bytes.toString(), /^DKIM-Signature: [^]*\r\nSubject: Hello\r\n/)
  t.match(view, {
    isp: 'dest.test',
    ip: '127.0.0.11',
    attempts: [
      {
        result: 'delivered',
        ip: '127.0.0.11',
        localAddress: '127.0.0.11',
        remoteAddress: '127.0.0.2',
        host: 'mx.dest.test',
        stage: 'dot',
        reply: '250 2.0.0 queued',
        tls: null,
      },
    ],
  })
  t.strictSame(await engine.events(id), [
    { kind: 'email.delivered', data: { message_id: id, recipient: ANNA, isp: 'dest.test' } },
  ])
  t.ok(engine.eventCalls() > 0)
  const lines = engine.log.filter((line) => line['message_id'] === id)
  t.match(lines, [
    {
      msg: 'message delivered',
      recipient: ANNA,
      ip: '127.0.0.11',
      local_address: '127.0.0.11',
      mx: 'mx.dest.test',
      attempt: 1,
      remote_address: '127.0.0.2',
      stage: 'dot',
      code: '2.0.0',
      outcome: 'delivered',
      ms: Number,
      provider: null,
      tls: null,
    },
  ])
  t.match(
    await engine.metrics.registry.metrics(),
    /sternpost_deliveries_total\{result="delivered",pool="default",ip="127.0.0.11",provider="other"\} 1/,
  )
})

t.test('a 450 defers by the schedule and the retry is byte-identical', async (t) => {
  const server = await mx(t, { script: { dot: ['450 4.2.0 busy', '450 4.2.0 busy', '250 ok'] } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const [id] = await engine.accept(ANNA)
  for (const wait of [MINUTE, 5 * MINUTE]) {
    const view = await engine.until('deferred', async () => {
      const found = await engine.message(id)
      return found.state === 'deferred' && found.attempts.length === server.messages.length && found
    })
    t.equal(view.nextAttemptAt, clock.now() + wait)
    await clock.advance(wait - 1)
    const before = server.messages.length
    await clock.advance(1)
    await engine.until('the next attempt', () => server.messages.length > before)
  }
  t.match(await engine.untilState(id, 'delivered'), { attempts: { length: 3 } })
  const [first] = server.messages
  t.ok(
    server.messages.every(({ bytes }) => first?.bytes.equals(bytes)),
    'the same bytes',
  )
  t.ok(
    server.messages.every(({ from }) => from === first?.from),
    'the same return path',
  )
  t.equal(server.connections.length > 0, true)
})

t.test('a host that refuses plain text is asked for TLS again, though that failed before', async (t) => {
  const refused = '530 5.7.0 Must issue a STARTTLS command first'
  const script = { starttls: '454 4.7.0 TLS not available', mail: [refused, '250 ok'] }
  const server = await mx(t, { script, extensions: ['STARTTLS'] })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock, providers: { default: { idle: '5m' } } })
  const asked = (): number => server.connections.filter(({ commands }) => commands.includes('STARTTLS')).length
  const [id] = await engine.accept(ANNA)
  await engine.until('deferred', async () => (await engine.message(id)).state === 'deferred')
  t.equal(asked(), 1)
  await engine.until('closed', () => server.connections.every(({ isClosed }) => isClosed))
  await clock.advance(MINUTE)
  await engine.untilState(id, 'delivered')
  t.equal(asked(), 2)
})

t.test('550 5.1.1 bounces hard at once, with the code and the reply', async (t) => {
  const server = await mx(t, { script: { rcpt: '550 5.1.1 no such user' } })
  const engine = await startEngine(t, { port: server.port })
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'bounced'), {
    bounce: { type: 'hard', category: 'invalid_recipient' },
    attempts: { length: 1 },
  })
  t.strictSame(await engine.events(id), [
    {
      kind: 'email.bounced',
      data: {
        message_id: id,
        recipient: ANNA,
        bounce_type: 'hard',
        bounce_code: '5.1.1',
        bounce_description: '550 5.1.1 no such user',
      },
    },
  ])
})

t.test('a refused recipient does not stop the next message on the same connection', async (t) => {
  const server = await mx(t, { script: { rcpt: (line) => (line.includes('bad@') ? '550 5.1.1 no' : '250 ok') } })
  const engine = await startEngine(t, { port: server.port, providers: { default: { connections: 1 } } })
  const [first] = await engine.accept('bad@dest.test')
  const [second] = await engine.accept('good@dest.test')
  await engine.untilState(first, 'bounced')
  await engine.untilState(second, 'delivered')
  t.equal(server.connections.length, 1)
})

t.test('refusals before MAIL never bounce, count no attempt, and wait 1, 2, 5, 10, 15 minutes', async (t) => {
  for (const script of [{ banner: '554 5.7.1 no service' }, { ehlo: '550 no', helo: '550 no' }] as const) {
    const server = await mx(t, { script })
    const clock = manualClock(START)
    const engine = await startEngine(t, { port: server.port, clock })
    const [id] = await engine.accept(ANNA)
    let tries = 0
    for (const minutes of [1, 2, 5, 10, 15]) {
      const view = await engine.until('the path failed', async () => {
        const found = await engine.message(id)
        return found.attempts.length > tries && found.state === 'deferred' && found
      })
      t.match(view.attempts.at(-1), { result: 'path-failed', ip: '127.0.0.11' })
      t.equal(view.nextAttemptAt, clock.now() + minutes * MINUTE, `${minutes} min`)
      tries = view.attempts.length
      await clock.advance(minutes * MINUTE)
    }
    t.equal((await engine.message(id)).bounce, null)
    await engine.dispatcher.stop(1_000)
    const { keys } = await engine.store.queueKeys(null, 10)
    t.match(keys, [{ isRetry: false, waiting: 1 }])
  }
})

t.test('the next host is asked when the first does not answer, and never after an answer to RCPT', async (t) => {
  const first = await mx(t, { script: { banner: '421 4.3.2 not now' } })
  const second = await mx(t, { address: '127.0.0.3', port: first.port })
  const zone = {
    'dest.test': { MX: ['10 a.dest.test', '20 b.dest.test'] },
    'a.dest.test': { A: ['127.0.0.2'] },
    'b.dest.test': { A: ['127.0.0.3'] },
    'none.test': { MX: ['10 dead.none.test', '20 b.dest.test'] },
    'dead.none.test': { A: ['127.0.0.9'] },
    'full.test': { MX: ['10 c.full.test', '20 b.dest.test'] },
    'c.full.test': { A: ['127.0.0.4'] },
  }
  const third = await mx(t, { address: '127.0.0.4', port: first.port, script: { rcpt: '450 4.2.2 full' } })
  const engine = await startEngine(t, { port: first.port, zone })
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'delivered'), { attempts: [{ host: 'b.dest.test', remoteAddress: '127.0.0.3' }] })
  const [other] = await engine.accept('x@none.test')
  await engine.untilState(other, 'delivered')
  const [full] = await engine.accept('x@full.test')
  t.match(await engine.untilState(full, 'deferred'), { attempts: [{ host: 'c.full.test' }] })
  t.equal(second.messages.length, 2)
  t.equal(third.messages.length, 0)
})

t.test('a connection lost before the dot is sent again', async (t) => {
  const server = await mx(t, { script: { data: ['close', '354 go'] } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'deferred'), { isPossibleDuplicate: false, nextAttemptAt: START + MINUTE })
  await clock.advance(MINUTE)
  t.match(await engine.untilState(id, 'delivered'), { isPossibleDuplicate: false })
})

t.test('an answer to the dot that is lost twice ends the message, with the doubt stated', async (t) => {
  const server = await mx(t, { script: { dot: 'close' } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const [id] = await engine.accept(ANNA)
  t.match(await engine.untilState(id, 'deferred'), {
    isPossibleDuplicate: true,
    nextAttemptAt: START + 5 * MINUTE,
    attempts: [{ result: 'ambiguous', stage: 'dot' }],
  })
  await clock.advance(5 * MINUTE)
  t.match(await engine.untilState(id, 'bounced'), {
    bounce: { type: 'undetermined', category: 'ambiguous', code: '4.4.2', description: /may have been delivered/ },
  })
  t.equal(server.messages.length, 2)
  t.ok(server.messages[0]?.bytes.equals(server.messages[1]?.bytes ?? Buffer.alloc(0)))
  t.equal(server.connections.length, 2)
})

t.test('a kept connection that the host has closed costs the message nothing', async (t) => {
  const server = await mx(t, {
    script: {
      mail: (_line, { commands }) =>
        commands.filter((command) => command.startsWith('MAIL')).length > 1 ? '421 4.4.2 idle too long' : '250 ok',
    },
  })
  const engine = await startEngine(t, { port: server.port })
  await engine.untilState((await engine.accept(ANNA))[0], 'delivered')
  t.match(await engine.untilState((await engine.accept(ANNA))[0], 'delivered'), { attempts: { length: 1 } })
  t.equal(server.connections.length, 2)
})

t.test('what the list ends at delivery is told at once, with a route and without', async (t) => {
  const server = await mx(t)
  const clock = manualClock()
  const engine = await startEngine(t, { port: server.port, clock })
  await engine.untilState((await engine.accept(ANNA))[0], 'delivered')
  for (const email of ['bea@dest.test', 'cem@nowhere.test']) {
    const [id] = await engine.accept(email, { sendAt: clock.now() + HOUR })
    const facts = { reason: 'manual', scope: 'all', domain: null, owners: [], isTest: false, messageId: null } as const
    await engine.store.addSuppression({ id: newIdentifier('sup', START), email, createdAt: clock.now(), ...facts })
    const before = engine.eventCalls()
    await clock.advance(HOUR)
    // What was under way while the clock moved may have set a timer for a second later.
    await engine.until('suppressed', async () => {
      await clock.advance(SECOND)
      return (await engine.message(id)).state === 'suppressed'
    })
    await engine.until(`${email} is told`, () => engine.eventCalls() > before)
  }
  t.equal(server.messages.length, 1)
})
