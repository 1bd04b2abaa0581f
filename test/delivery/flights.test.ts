/**
 * Messages in flights: CHUNKING with PIPELINING, as delivery/README.md "Flights" has it, over real connections.
 */
import t, { type Test } from 'tap'
import type { SmtpEnvelope } from '../../src/delivery/session/smtp-extensions.ts'
import { createTranscript } from '../../src/delivery/session/transcript.ts'
import type { SessionJob } from '../../src/delivery/session/transaction-end.ts'
import type { ScriptedMx, ScriptedMxOptions } from '../support/scripted-mx.ts'
import { selfSigned } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import {
  BYTES,
  ENVELOPE,
  job,
  mx,
  REQUIRED,
  session,
  type Target,
  type TestJob,
  type TestSession,
} from './session-kit.ts'

const EXTENSIONS = ['PIPELINING', 'CHUNKING', '8BITMIME', 'SIZE 10485760']

const to = (name: string): SmtpEnvelope => ({ ...ENVELOPE, to: `${name}@example.test` })

interface HeldJob extends TestJob {
  isAsked(): boolean
  mark(isOurs: boolean): void
}

/** Whose mark is given when the test says so. */
function heldJob(name: string, change: Partial<SessionJob> = {}): HeldJob {
  let answer: ((isOurs: boolean) => void) | undefined
  return {
    ...job({ envelope: to(name), ...change, askMark: (given) => void (answer = given) }),
    isAsked: () => answer !== undefined,
    mark: (isOurs) => answer?.(isOurs),
  }
}

async function flying(
  t: Test,
  options: ScriptedMxOptions = {},
  target: Target = {},
): Promise<{ server: ScriptedMx; opened: TestSession }> {
  const server = await mx(t, { extensions: EXTENSIONS, ...options })
  const opened = await session(t, server, target)
  // The careful dialogue, then a flight of one.
  for (const name of ['first', 'second']) t.match(await opened.deliver(to(name), BYTES), { kind: 'accepted' })
  return { server, opened }
}

const commandsOf = ({ connections }: ScriptedMx): string[] => connections[0]?.commands ?? []
const verbs = (server: ScriptedMx): string =>
  commandsOf(server)
    .map((line) => line.slice(0, 4))
    .join(' ')

t.test('after a careful message and a flight of one, four go at once, byte for byte the same', async (t) => {
  const { server, opened } = await flying(t)
  t.equal(verbs(server), 'EHLO MAIL RCPT DATA MAIL RCPT BDAT')
  t.equal(opened.mostTaken(), 5)
  const jobs = ['a', 'b', 'c', 'd', 'e'].map((name) => heldJob(name))
  for (const each of jobs) opened.send(each)
  t.same(
    jobs.map((each) => each.isAsked()),
    [true, true, true, true, false],
    'the fifth waits for a place',
  )
  t.equal(commandsOf(server).length, 7, 'nothing of a message leaves before its mark')
  for (const each of jobs) each.mark(true)
  t.match(await jobs[0]?.end, { kind: 'accepted' })
  await until('the fifth has a place', () => jobs[4]?.isAsked())
  jobs[4]?.mark(true)
  for (const each of jobs) t.match(await each.end, { kind: 'accepted', reply: { code: 250 } })
  t.same(
    server.messages.slice(2).map((message) => message.to[0]),
    ['a', 'b', 'c', 'd', 'e'],
  )
  for (const { bytes } of server.messages) t.ok(bytes.equals(BYTES))
  t.match(verbs(server), /MAIL RCPT BDAT RSET MAIL RCPT BDAT RSET MAIL RCPT BDAT RSET MAIL RCPT BDAT/)
  await opened.quit()
  t.match(await opened.ended, { kind: 'ended-well', delivered: 7 })
  t.equal(opened.flightProblem(), null)
})

t.test('a mark that comes late is asked for again, and nothing leaves by it', async (t) => {
  const { server, opened } = await flying(t)
  const before = commandsOf(server).length
  const answers: ((isOurs: boolean) => void)[] = []
  const late = job({ envelope: to('late'), askMark: (answer) => void answers.push(answer) })
  opened.send(late)
  const now = performance.now.bind(performance)
  t.intercept(performance, 'now', { value: () => now() + 11_000 })
  answers[0]?.(true)
  t.equal(answers.length, 2)
  await new Promise(setImmediate)
  t.equal(commandsOf(server).length, before)
  answers[1]?.(true)
  t.match(await late.end, { kind: 'unsent', reason: /nothing was heard/ })
})

t.test('a connection to a host that took flights lately begins with one', async (t) => {
  const server = await mx(t, { extensions: EXTENSIONS })
  const opened = await session(t, server, { knowsFlights: true })
  t.equal(opened.mostTaken(), 5)
  const jobs = ['a', 'b', 'c', 'd'].map((name) => heldJob(name))
  for (const each of jobs) opened.send(each)
  t.equal(verbs(server), 'EHLO', 'nothing of a message leaves before its mark')
  for (const each of jobs) each.mark(true)
  for (const each of jobs) t.match(await each.end, { kind: 'accepted' })
  t.equal(verbs(server), `EHLO MAIL RCPT BDAT${' RSET MAIL RCPT BDAT'.repeat(3)}`)
  t.equal(opened.takesFlights(), true)
  const other = await session(t, server)
  t.equal(other.takesFlights(), null)
  for (const name of ['a', 'b']) t.match(await other.deliver(to(name), BYTES), { kind: 'accepted' })
  t.equal(other.takesFlights(), true)
})

t.test('replies that a host holds back until the end of a write are waited for', async (t) => {
  const rset = { afterMilliseconds: 300, reply: '250 2.0.0 reset' }
  const timeouts = { rset: 100, mail: 100, rcpt: 100, data: 400, final_dot: 400 }
  const { opened } = await flying(t, { script: { rset } }, { timeouts })
  const jobs = ['a', 'b'].map((name) => job({ envelope: to(name) }))
  for (const each of jobs) opened.send(each)
  for (const each of jobs) t.match(await each.end, { kind: 'accepted' })
})

t.test('the transcript shows the flight of each message, and never its bytes', async (t) => {
  const { opened } = await flying(t)
  const transcript = createTranscript()
  await opened.deliver(to('a'), BYTES, transcript)
  t.match(
    transcript.text(),
    new RegExp(`> BDAT ${BYTES.length} LAST\n\\* the message, ${BYTES.length} bytes.*\n< 250 2.1.0`),
  )
  t.notMatch(transcript.text(), /a dot, and/)
})

t.test('what a host reads of a chunk is what it reads behind DATA', async (t) => {
  const { server, opened } = await flying(t)
  const bodies = [
    'Subject: x\r\n\r\n.dot\r\nopen end',
    'Subject: x\n\nbare\n',
    '\r\n\r\nlone\rcr\r\n',
    'Subject: ü\r\n\r\nß\r\n',
  ]
  for (const body of bodies) t.match(await opened.deliver(to('a'), Buffer.from(body)), { kind: 'accepted' })
  const careful = await session(t, server, { inFlight: 1 })
  for (const body of bodies) await careful.deliver(to('a'), Buffer.from(body))
  const [byChunk, byData] = [server.messages.slice(2, 6), server.messages.slice(6)]
  // The final dot begins a line: the end of the line before it belongs to the message.
  for (const [index, { bytes }] of byChunk.entries()) t.equal(String(bytes), String(byData[index]?.bytes))
  t.equal(String(byChunk[0]?.bytes), 'Subject: x\r\n\r\n.dot\r\nopen end\r\n')
})

t.test('an 8-bit body stays as it is, and BODY=8BITMIME is said', async (t) => {
  const { server, opened } = await flying(t)
  const bytes = Buffer.from('Subject: x\r\n\r\nGr\u00fc\u00dfe\r\n')
  t.match(await opened.deliver({ ...to('a'), is8Bit: true }, bytes), { kind: 'accepted' })
  t.ok(server.messages.at(-1)?.bytes.equals(bytes))
  t.match(commandsOf(server).at(-3), /BODY=8BITMIME/)
  t.notMatch(commandsOf(server).join(), /BINARYMIME/)
})

for (const [name, options, target] of [
  ['in_flight is 1', {}, { inFlight: 1 }],
  ['the host does not offer CHUNKING', { extensions: ['PIPELINING'] }, {}],
  ['the host does not offer PIPELINING', { extensions: ['CHUNKING'] }, {}],
  ['one command at a time was asked for', {}, { mayPipeline: false }],
] as [string, ScriptedMxOptions, Target][]) {
  t.test(`no flight when ${name}`, async (t) => {
    const server = await mx(t, { extensions: EXTENSIONS, ...options })
    const opened = await session(t, server, target)
    for (const each of ['a', 'b', 'c', 'd']) t.match(await opened.deliver(to(each), BYTES), { kind: 'accepted' })
    t.notMatch(verbs(server), /BDAT/)
    t.equal(opened.mostTaken(), 2)
  })
}

t.test('a message that is large, or was in doubt, goes by the careful dialogue between flights', async (t) => {
  const { server, opened } = await flying(t)
  const large = Buffer.from(`Subject: x\r\n\r\n${'a line\r\n'.repeat(40_000)}`)
  const jobs = [
    job({ envelope: to('a') }),
    job({ envelope: to('large'), bytes: large }),
    job({ envelope: to('doubt'), mayFly: false }),
    job({ envelope: to('b') }),
  ]
  for (const each of jobs) opened.send(each)
  for (const each of jobs) t.match(await each.end, { kind: 'accepted' })
  t.equal(
    verbs(server).slice('EHLO MAIL RCPT DATA MAIL RCPT BDAT '.length),
    ['MAIL RCPT BDAT MAIL RCPT DATA MAIL RCPT DATA MAIL RCPT BDAT'].join(' '),
  )
  t.ok(server.messages.find((message) => message.to.startsWith('large'))?.bytes.equals(large))
})

t.test('while one goes carefully that is not for flights, no more are taken than without them', async (t) => {
  const { opened } = await flying(t)
  const large = heldJob('large', { bytes: Buffer.from(`Subject: x\r\n\r\n${'a line\r\n'.repeat(40_000)}`) })
  const doubt = job({ envelope: to('doubt'), mayFly: false })
  opened.send(large)
  t.equal(opened.mostTaken(), 2)
  await until('it waits for its mark', large.isAsked)
  opened.send(doubt)
  large.mark(true)
  t.match(await large.end, { kind: 'accepted' })
  t.equal(opened.mostTaken(), 2)
  t.match(await doubt.end, { kind: 'accepted' })
  t.equal(opened.mostTaken(), 5)
})

t.test('of several that are large for a flight together, some wait', async (t) => {
  const { opened } = await flying(t)
  const bytes = Buffer.from(`Subject: x\r\n\r\n${'a line\r\n'.repeat(12_000)}`)
  const jobs = ['a', 'b', 'c'].map((name) => heldJob(name, { bytes }))
  for (const each of jobs) opened.send(each)
  t.same(
    jobs.map((each) => each.isAsked()),
    [true, true, false],
  )
  jobs[0]?.mark(true)
  t.match(await jobs[0]?.end, { kind: 'accepted' })
  await until('the third has room', () => jobs[2]?.isAsked())
})

t.test('a refused recipient is refused alone, and the next messages go carefully until one was taken', async (t) => {
  const rcpt = (line: string): string => (/<no/.test(line) ? '550 5.1.1 no such user' : '250 2.1.5 ok')
  const { server, opened } = await flying(t, { script: { rcpt } })
  const jobs = ['a', 'no', 'b'].map((name) => job({ envelope: to(name) }))
  for (const each of jobs) opened.send(each)
  t.match(await jobs[0]?.end, { kind: 'accepted' })
  t.match(await jobs[1]?.end, { kind: 'refused', stage: 'rcpt', reply: { code: 550, enhancedCode: '5.1.1' } })
  t.match(await jobs[2]?.end, { kind: 'accepted' })
  t.equal(opened.mostTaken(), 2)
  t.match(await opened.deliver(to('c'), BYTES), { kind: 'accepted' })
  t.match(verbs(server), / RSET MAIL RCPT BDAT MAIL RCPT DATA$/, 'the one behind it had cleared the way')
  for (const name of ['d', 'e']) t.match(await opened.deliver(to(name), BYTES), { kind: 'accepted' })
  t.match(verbs(server), / DATA MAIL RCPT BDAT MAIL RCPT BDAT$/)
  t.equal(opened.mostTaken(), 5)
  t.match(await opened.deliver(to('no'), BYTES), { kind: 'refused', stage: 'rcpt' })
  t.match(await opened.deliver(to('f'), BYTES), { kind: 'accepted' })
  t.match(verbs(server), / BDAT RSET MAIL RCPT DATA$/, 'behind the last one RSET is needed')
  t.same(server.messages.map((message) => message.to[0]).join(''), 'fsabcdef')
})

t.test('a host that was silent for a second is asked by MAIL first', async (t) => {
  const { server, opened } = await flying(t)
  const heardAt = performance.now()
  await until('a second is over', () => performance.now() - heardAt > 1_000)
  for (const name of ['a', 'b']) t.match(await opened.deliver(to(name), BYTES), { kind: 'accepted' })
  t.match(verbs(server), /BDAT MAIL RCPT DATA MAIL RCPT BDAT$/)
})

t.test('a mark that comes when the host was silent for a second puts no message in doubt', async (t) => {
  const { server, opened } = await flying(t)
  const before = commandsOf(server).length
  const jobs = ['a', 'b'].map((name) => heldJob(name))
  for (const each of jobs) opened.send(each)
  const now = performance.now.bind(performance)
  t.intercept(performance, 'now', { value: () => now() + 1_001 })
  for (const each of jobs) each.mark(true)
  for (const each of jobs) {
    t.match(await each.end, { kind: 'unsent' })
    t.equal(each.wasRcptSent(), false, 'its allowance goes back')
  }
  t.equal(commandsOf(server).length, before)
  t.match(await opened.deliver(to('c'), BYTES), { kind: 'accepted' })
  t.match(verbs(server), / MAIL RCPT DATA$/)
  t.equal(opened.flightProblem(), null)
})

t.test('a message that is not ours any more leaves the flight, and the others go on', async (t) => {
  const { server, opened } = await flying(t)
  const [gone, stays] = [heldJob('gone'), heldJob('stays')]
  opened.send(gone)
  opened.send(stays)
  gone.mark(false)
  t.match(await gone.end, { kind: 'returned', why: 'stale' })
  t.equal(gone.wasRcptSent(), false, 'its allowance goes back')
  stays.mark(true)
  t.match(await stays.end, { kind: 'accepted' })
  t.notOk(server.messages.some((message) => message.to.startsWith('gone')))
})

t.test('a store that does not answer gives the messages back, and the host is not to blame', async (t) => {
  const { server, opened } = await flying(t, {}, { timeouts: { mark: 100 } })
  const jobs = ['a', 'b'].map((name) => heldJob(name))
  for (const each of jobs) opened.send(each)
  for (const each of jobs) t.match(await each.end, { kind: 'returned', why: 'unmarked' })
  t.match(await opened.ended, { kind: 'ended-well', delivered: 2 })
  t.equal(opened.flightProblem(), null)
  for (const each of jobs) each.mark(true)
  t.equal(server.messages.length, 2)
})

t.test('a stop gives back what was not sent, and waits for the answers to what was', async (t) => {
  const { server, opened } = await flying(t, {
    script: { bdat: ['250 ok', { afterMilliseconds: 50, reply: '250 ok' }] },
  })
  const [sent, kept] = [heldJob('sent'), heldJob('kept')]
  opened.send(sent)
  opened.send(kept)
  sent.mark(true)
  t.equal(opened.isPastDot(), true)
  opened.stop('the end')
  t.match(await kept.end, { kind: 'returned', why: 'stopping' })
  t.equal(kept.wasRcptSent(), false)
  t.match(await sent.end, { kind: 'accepted' })
  t.match(await opened.ended, { kind: 'ended-well', delivered: 3 })
  kept.mark(true)
  t.equal(server.messages.length, 3)
})

t.test('flights go over TLS as well', async (t) => {
  const tls = selfSigned()
  if (tls === undefined) return
  const { server, opened } = await flying(t, { tls }, { tls: REQUIRED })
  const jobs = ['a', 'b', 'c', 'd'].map((name) => job({ envelope: to(name) }))
  for (const each of jobs) opened.send(each)
  for (const each of jobs) t.match(await each.end, { kind: 'accepted' })
  t.equal(server.messages.length, 6)
  t.ok(server.connections[0]?.isTls)
})

t.test('a host that refuses much is remembered as one that flights are not for', async (t) => {
  let count = 0
  // Every second one, but those that go carefully between the flights.
  const rcpt = (line: string): string => (/<no/.test(line) ? `550 5.1.1 no ${++count}` : '250 2.1.5 ok')
  const { server, opened } = await flying(t, { script: { rcpt } })
  for (let round = 0; round < 5; round++) {
    const jobs = ['a', 'no', 'no'].map((name) => job({ envelope: to(name) }))
    for (const each of jobs) opened.send(each)
    for (const each of jobs) await each.end
    for (const name of ['careful', 'alone']) t.match(await opened.deliver(to(name), BYTES), { kind: 'accepted' })
  }
  t.match(opened.flightProblem(), /^it refused \d+ of \d+ messages in flights$/)
  const before = commandsOf(server).length
  t.match(await opened.deliver(to('b'), BYTES), { kind: 'accepted' })
  t.match(commandsOf(server).slice(before).join(), /DATA/)
})
