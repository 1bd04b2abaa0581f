/**
 * What is kept of a try and what follows from it: events, suppression, dialogue, and why a message waits.
 */
import PostalMime from 'postal-mime'
import t from 'tap'
import { dkimVerify } from 'mailauth'
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import type { RecordCheck } from '../../src/store/records/sender-records.ts'
import { manualClock } from '../support/manual-clock.ts'
import type { MxConnection, MxMessage, Script } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import { mx } from './session-kit.ts'
import { DKIM_RECORDS, startEngine, type Engine } from './start-engine.ts'
import { LIVE_SUPPRESSIONS } from '../store/store-samples.ts'

const ANNA = 'Anna@dest.test'
const START = Date.UTC(2026, 10, 21, 12)

async function suppressed({ store }: Engine): Promise<string[]> {
  const { suppressions } = await store.listSuppressions(LIVE_SUPPRESSIONS)
  return suppressions.map(({ email, reason, scope }) => `${email} ${reason} ${scope}`)
}

t.test('the log has no recipient where `log.recipients` is not full, nor has a reply that repeats one', async (t) => {
  const server = await mx(t, { script: { rcpt: '550 5.1.1 <anna@dest.test>: gone, write to ANNA@other.test.' } })
  const engine = await startEngine(t, { port: server.port, overrides: { 'log.recipients': 'domain' } })
  const [id] = await engine.accept(ANNA)
  await engine.untilState(id, 'bounced')
  const lines = engine.log.filter((line) => line['message_id'] === id)
  t.match(lines, [{ recipient: 'dest.test', reply: '550 5.1.1 <dest.test>: gone, write to other.test.' }])
  t.notMatch(JSON.stringify(engine.log), /anna@/i)
})

t.test('a reply that repeats the return path is kept without its token, by which reports are believed', async (t) => {
  const repeated = (code: string, { commands }: MxConnection): string =>
    `${code} ${/<[^>]*>/.exec(commands.findLast((line) => line.startsWith('MAIL')) ?? '')?.[0]}: sender address rejected`
  const script: Script = {
    rcpt: (line, connection) => repeated(line.includes('later') ? '450 4.1.8' : '550 5.1.8', connection),
  }
  const engine = await startEngine(t, { port: (await mx(t, { script })).port })
  const [[later], [never]] = [await engine.accept('later@dest.test'), await engine.accept('never@dest.test')]
  await engine.untilState(later, 'deferred')
  await engine.untilState(never, 'bounced')
  for (const [id, code] of [[later, '450 4.1.8'] as const, [never, '550 5.1.8'] as const]) {
    const description = `${code} <b-…@bounces.acme.test>: sender address rejected`
    t.match((await engine.store.lookupMessage(id ?? '', START))?.attempts, [{ reply: description }])
    const [event] = await engine.events(id)
    t.ok(Object.values(event?.data ?? {}).includes(description), code)
  }
})

t.test('a deferral is told with its reason and the next time', async (t) => {
  const server = await mx(t, { script: { rcpt: '450-4.2.0 busy\r\n450 4.2.0 come back' } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const [id] = await engine.accept(ANNA)
  await engine.untilState(id, 'deferred')
  t.strictSame(await engine.events(id), [
    {
      kind: 'email.deferred',
      data: {
        message_id: id,
        recipient: ANNA,
        isp: 'dest.test',
        description: '450-4.2.0 busy come back',
        next_attempt_at: String((START + MINUTE) / 1000),
      },
    },
  ])
  await server.close()
  const [other] = await engine.accept('x@nowhere.test')
  await engine.untilState(other, 'deferred')
  t.match(await engine.events(other), [
    { kind: 'email.deferred', data: { isp: 'nowhere.test', description: /does not exist/ } },
  ])
})

t.test('a dead address is suppressed, another refusal suppresses nobody', async (t) => {
  const replies: Record<string, string> = {
    dead: '550 5.1.1 no such user',
    full: '552 5.2.2 over quota',
    spam: '554 5.7.1 this is spam',
  }
  const server = await mx(t, { script: { rcpt: (line) => replies[/<(\w+)@/.exec(line)?.[1] ?? ''] ?? '250 ok' } })
  const engine = await startEngine(t, { port: server.port, zone: { 'null.test': { MX: ['0 .'] } } })
  for (const name of ['spam', 'dead']) await engine.untilState((await engine.accept(`${name}@dest.test`))[0], 'bounced')
  await engine.untilState((await engine.accept('x@null.test'))[0], 'bounced')
  await engine.untilState((await engine.accept('full@dest.test'))[0], 'deferred')
  t.strictSame((await suppressed(engine)).toSorted(), ['dead@dest.test hard_bounce all', 'x@null.test hard_bounce all'])
})

t.test('a rule that says less needs a second answer, a day later and within thirty', async (t) => {
  const server = await mx(t, { script: { rcpt: '550 mailbox unavailable' } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const bounce = async (count = 1): Promise<void> => {
    for (const id of await engine.accept(ANNA, { count })) {
      t.match(await engine.untilState(id, 'bounced'), { bounce: { type: 'hard' } })
    }
  }
  await bounce()
  await clock.advance(2 * HOUR)
  await bounce()
  t.strictSame(await suppressed(engine), [], 'two within a day are one')
  await clock.advance(31 * DAY)
  await bounce()
  t.strictSame(await suppressed(engine), [], 'the first ones are forgotten')
  await clock.advance(DAY / 2)
  await bounce(100)
  await clock.advance(DAY / 2)
  await bounce()
  t.strictSame(await suppressed(engine), [`${ANNA.toLowerCase()} hard_bounce all`], 'however many came in between')
})

t.test('the dialogue of each attempt is kept, without the message', async (t) => {
  const server = await mx(t, { script: { dot: ['451 4.3.0 later', '250 2.0.0 taken'] } })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: server.port, clock })
  const [id = ''] = await engine.accept(ANNA, { content: { html: '<p>secret words</p>' } })
  await engine.untilState(id, 'deferred')
  await clock.advance(MINUTE)
  await engine.untilState(id, 'delivered')
  const transcripts = (await engine.store.transcripts(id)) ?? []
  t.match(transcripts, [
    { host: 'mx.dest.test', ip: '127.0.0.11' },
    { host: 'mx.dest.test', ip: '127.0.0.11' },
  ])
  const [first = '', second = ''] = transcripts.map(({ dialogue }) => dialogue ?? '')
  t.match(first, /^\* connected to mx\.dest\.test [^]*> MAIL FROM:<b-[^]*\n\* the message, \d+ bytes/)
  t.match(first, /\n< 451 4\.3\.0 later$/m)
  t.match(second, /\n< 250 2\.0\.0 taken$/)
  t.notMatch(first + second, 'secret')
  const [next = ''] = await engine.accept(ANNA)
  await engine.untilState(next, 'delivered')
  const [reused] = (await engine.store.transcripts(next)) ?? []
  t.match(reused?.dialogue, /^\* connected to .*; this connection has carried \d before\n> MAIL FROM/)
  const [unknown = ''] = await engine.accept('x@nowhere.test')
  await engine.untilState(unknown, 'deferred')
  t.match(await engine.store.transcripts(unknown), [{ dialogue: null }])
})

t.test('no dialogue is kept when it is not to be', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port, overrides: { 'retention.transcripts': '0s' } })
  const [id = ''] = await engine.accept(ANNA)
  await engine.untilState(id, 'delivered')
  t.match(await engine.store.transcripts(id), [{ dialogue: null }])
})

t.test('why a message waits is known: the path, the pool, the connections', async (t) => {
  const server = await mx(t, { script: { rcpt: { afterMilliseconds: 400, reply: '250 ok' } } })
  const clock = manualClock(START)
  const zone = { 'dead.test': { MX: ['10 mx.dead.test'] }, 'mx.dead.test': { A: ['127.0.0.9'] } }
  const engine = await startEngine(t, {
    port: server.port,
    clock,
    zone,
    providers: { default: { connections: 1, messages_per_connection: 1 } },
  })
  const why = async (id: string | undefined) => engine.dispatcher.whyWaiting(await engine.message(id))
  const dead = await engine.accept('x@dead.test', { count: 5 })
  for (const id of dead) await engine.untilState(id, 'deferred')
  t.match(await why(dead[0]), {
    waitingFor: 'suspension',
    untilMilliseconds: START + MINUTE,
    text: /127\.0\.0\.11 .*ECONNREFUSED/,
  })
  const many = await engine.accept(ANNA, { count: 4 })
  t.match(await engine.until('the last one waits for a connection', () => why(many.at(-1))), {
    waitingFor: 'connections',
    untilMilliseconds: null,
  })
  for (const id of many) await engine.untilState(id, 'delivered')
  t.equal(await why(many[0]), undefined)
  engine.egress.disable('127.0.0.11', 'taken away')
  const [held] = await engine.accept(ANNA)
  t.match(await why(held), { waitingFor: 'ip_paused', text: /127\.0\.0\.11 is disabled/ })
  await engine.live.replace({ ...engine.live.current() })
  const text = /No IP of pool default may send: 127\.0\.0\.11 is disabled/
  t.match(await why(held), { waitingFor: 'ip_paused', text }, 'also once a reload has forgotten where it goes')
})

async function verdicts(message: MxMessage | undefined): Promise<string[]> {
  const resolver = async (name: string): Promise<string[][]> => {
    const record = DKIM_RECORDS[name]
    if (record !== undefined) return [[record]]
    throw Object.assign(new Error('no such name'), { code: 'ENOTFOUND' })
  }
  const { results } = await dkimVerify(message?.bytes ?? Buffer.alloc(0), { resolver })
  return results.map((result) => result.status.result)
}

t.test('a submitted mail arrives with every byte, announced as 8-bit, signed with both keys', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port })
  const raw = Buffer.from('From: Acme <news@acme.test>\r\nSubject: x\r\n\r\nGr\u00fc\u00dfe\r\n.\r\n..x\r\n')
  const [id] = await engine.accept(ANNA, { content: { raw, html: null } })
  await engine.untilState(id, 'delivered')
  const [message] = server.messages
  const body = raw.subarray(raw.indexOf('From:'))
  t.ok(message?.bytes.subarray(-body.length).equals(body))
  t.strictSame(await verdicts(message), ['pass', 'pass'])
  t.match(server.connections[0]?.commands[1], / BODY=8BITMIME(?: |$)/)
})

t.test('each message of a request with cc shows the same addressees and goes to one', async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port })
  const addressees = { to: { name: 'Anna', address: ANNA }, cc: [{ name: 'Ä', address: 'cc@dest.test' }] }
  const recipients = [ANNA, 'cc@dest.test', 'hidden@dest.test']
  for (const recipient of recipients) {
    await engine.untilState((await engine.accept(recipient, { content: { addressees } }))[0], 'delivered')
  }
  t.strictSame(
    server.messages.map(({ to }) => to),
    recipients,
  )
  for (const message of server.messages) {
    const mail = await PostalMime.parse(message.bytes)
    t.match(mail, { to: [{ address: ANNA }], cc: [{ name: 'Ä', address: 'cc@dest.test' }] })
    t.notMatch(message.bytes.toString(), 'hidden')
    t.strictSame(await verdicts(message), ['pass', 'pass'])
  }
})

t.test('an address beyond US-ASCII in the header goes only to hosts that take it', async (t) => {
  const plain = await mx(t)
  const modern = await mx(t, { address: '127.0.0.3', port: plain.port, extensions: ['SMTPUTF8'] })
  const zone = { 'modern.test': { MX: ['10 mx.modern.test'] }, 'mx.modern.test': { A: ['127.0.0.3'] } }
  const engine = await startEngine(t, { port: plain.port, zone })
  const content = { from: { name: null, address: 'nachrichten-für-dich@acme.test' } }
  const [refused] = await engine.accept(ANNA, { content })
  t.match(await engine.untilState(refused, 'bounced'), { bounce: { type: 'block', code: '5.6.7' } })
  const [taken] = await engine.accept('x@modern.test', { content })
  await engine.untilState(taken, 'delivered')
  t.match(modern.messages[0]?.bytes.toString(), '\r\nFrom: nachrichten-für-dich@acme.test\r\n')
  t.strictSame(await suppressed(engine), [])
})

t.test("links lead to the tracking host of the domain once its record is right, else to the server's", async (t) => {
  const server = await mx(t)
  const engine = await startEngine(t, { port: server.port })
  const html = '<a href="https://acme.test/">x</a>'
  const send = async (): Promise<string> => {
    const [id] = await engine.accept(ANNA, { content: { html, tracking: { opens: false, clicks: true } } })
    await engine.untilState(id, 'delivered')
    return (await PostalMime.parse(server.messages.at(-1)?.bytes ?? '')).html ?? ''
  }
  t.match(await send(), /^<a href="https:\/\/track\.sternpost\.test\/c\/[a-z2-7]{56}">/)
  const domain = await engine.store.findDomain('acme.test')
  if (domain === null) throw new Error('no domain')
  const check: RecordCheck = {
    purpose: 'tracking',
    status: 'verified',
    found: [],
    error: null,
    hint: null,
    checkedAt: 0,
  }
  await engine.store.recordDomainCheck({ ...domain, now: 1, checks: [check], events: [] })
  await until('the new host is used', async () => (await send()).includes('https://t.acme.test/c/'))
})
