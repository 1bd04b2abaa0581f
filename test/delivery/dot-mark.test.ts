import { createServer, type AddressInfo, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import type { SessionJob } from '../../src/delivery/session/transaction-end.ts'
import type { ScriptedMx } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import { BYTES, ENVELOPE, job, mx, session, type TestJob } from './session-kit.ts'

/** Whose mark is given when the test says so. */
function held(change: Partial<SessionJob> = {}): TestJob & { isAsked(): boolean; mark(isOurs: boolean): void } {
  let answer: ((isOurs: boolean) => void) | undefined
  return {
    ...job({ ...change, askMark: (given) => void (answer = given) }),
    isAsked: () => answer !== undefined,
    mark: (isOurs) => answer?.(isOurs),
  }
}

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

const to = (name: string): { envelope: typeof ENVELOPE } => ({ envelope: { ...ENVELOPE, to: `${name}@example.test` } })
const commandsOf = (server: ScriptedMx): string[] => server.connections[0]?.commands ?? []

for (const extensions of [['PIPELINING'], []]) {
  const way = extensions.length > 0 ? 'pipelined' : 'one by one'

  t.test(`${way}: the dot waits for the mark, and goes out with it`, async (t) => {
    const server = await mx(t, { extensions })
    const opened = await session(t, server)
    const sent = held()
    opened.send(sent)
    await until('the mark is asked for', sent.isAsked)
    // A second connection does a whole message meanwhile.
    t.match(await (await session(t, server)).deliver(ENVELOPE, BYTES), { kind: 'accepted' })
    t.equal(server.messages.length, 1, 'the dot is not on the wire')
    t.equal(opened.isPastDot(), false)
    sent.mark(true)
    t.match(await sent.end, { kind: 'accepted' })
    t.equal(server.messages.length, 2)
    t.ok(server.messages[1]?.bytes.equals(BYTES))
  })

  t.test(`${way}: a message that is not ours any more never gets its dot`, async (t) => {
    const server = await mx(t, { extensions })
    const opened = await session(t, server)
    const sent = held()
    opened.send(sent)
    await until('the mark is asked for', sent.isAsked)
    sent.mark(false)
    t.match(await sent.end, { kind: 'returned', why: 'stale' })
    t.equal(sent.wasRcptSent(), true)
    t.match(await opened.ended, { kind: 'ended-well', delivered: 0 })
    await until('it is closed', () => server.connections[0]?.isClosed)
    t.equal(server.messages.length, 0)
  })

  t.test(`${way}: a store that does not answer never lets the dot out`, async (t) => {
    const server = await mx(t, { extensions })
    const opened = await session(t, server, { timeouts: { mark: 100 } })
    const sent = held()
    opened.send(sent)
    t.match(await sent.end, { kind: 'returned', why: 'unmarked' })
    sent.mark(true)
    await until('it is closed', () => server.connections[0]?.isClosed)
    t.equal(server.messages.length, 0)
    t.match(await opened.ended, { kind: 'ended-well' })
  })

  t.test(`${way}: a host that leaves while the dot is held has lost the message`, async (t) => {
    const server = await mx(t, { extensions })
    const opened = await session(t, server)
    const sent = held()
    opened.send(sent)
    await until('the mark is asked for', sent.isAsked)
    await server.close()
    t.match(await sent.end, { kind: 'lost', stage: 'data' })
    sent.mark(true)
    t.match(await opened.ended, { kind: 'dropped' })
    t.equal(server.messages.length, 0)
  })

  t.test(`${way}: a stop while the dot is held returns the message`, async (t) => {
    const server = await mx(t, { extensions })
    const opened = await session(t, server)
    const sent = held()
    opened.send(sent)
    await until('the mark is asked for', sent.isAsked)
    opened.stop('the end')
    t.match(await sent.end, { kind: 'returned', why: 'stopping' })
    sent.mark(true)
    await until('it is closed', () => server.connections[0]?.isClosed)
    t.equal(server.messages.length, 0)
  })
}

t.test('the mark of a large message is asked for when it is nearly out', async (t) => {
  let connection: Socket | undefined
  const server = createServer((socket) => {
    connection = socket
    socket.on('error', () => {}).write('220 mx.test\r\n')
    const answers = ['250 mx.test', '250 ok', '250 ok', '354 go on']
    socket.on('data', () => {
      const answer = answers.shift()
      if (answer === undefined) return
      socket.write(`${answer}\r\n`)
      if (answers.length === 0) socket.pause()
    })
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.2', resolve))
  t.teardown(() => {
    connection?.destroy()
    server.close()
  })
  const opened = await session(t, { address: '127.0.0.2', port: (server.address() as AddressInfo).port })
  // More than the kernel takes for a peer that does not read.
  const sent = held({ bytes: Buffer.alloc(40_000_000, 'a line\r\n') })
  opened.send(sent)
  await until('the host reads no more', () => connection?.isPaused())
  await sleep(100)
  t.equal(sent.isAsked(), false)
  connection?.resume()
  await until('it is asked for', sent.isAsked)
  sent.mark(false)
  t.match(await sent.end, { kind: 'returned', why: 'stale' })
})

t.test('a message that has ended is not kept by those that follow it on a busy connection', async (t) => {
  const server = await mx(t, { extensions: ['PIPELINING'] })
  const opened = await session(t, server)
  const count = 12
  const refs: WeakRef<Buffer>[] = []
  const last = held()
  const sendNext = (): void => {
    if (refs.length === count) return
    const bytes = Buffer.from(`Subject: ${refs.length}\r\n\r\n`)
    refs.push(new WeakRef(bytes))
    opened.send(job({ bytes, onEnd: sendNext }))
    if (refs.length === count) opened.send(last)
  }
  sendNext()
  sendNext()
  await until('only the last one is there', last.isAsked)
  t.equal(server.messages.length, count)
  await until('the others are gone', () => {
    collectGarbage()
    // The one that the last one was behind may still be there.
    return refs.filter((ref) => ref.deref() !== undefined).length <= 2
  })
  last.mark(true)
  t.match(await last.end, { kind: 'accepted' })
})

t.test('the next envelope goes out behind the dot: a round trip for each message', async (t) => {
  const server = await mx(t, { script: { dot: { afterMilliseconds: 150, reply: '250 2.0.0 queued' } } })
  const opened = await session(t, server)
  const [first, second] = [held(to('first')), held(to('second'))]
  opened.send(first)
  opened.send(second)
  await until('the first mark is asked for', first.isAsked)
  t.equal(commandsOf(server).length, 4, 'nothing goes before the dot')
  first.mark(true)
  await first.end
  await until('the second mark is asked for', second.isAsked)
  second.mark(true)
  t.match(await second.end, { kind: 'accepted' })
  t.strictSame(
    server.messages.map((message) => message.to),
    ['first@example.test', 'second@example.test'],
  )
})

for (const [name, dot, end] of [
  ['refused for good', '554 5.7.1 spam', { kind: 'refused', stage: 'dot', reply: { code: 554 } }],
  ['refused for now', '451 4.3.0 later', { kind: 'refused', stage: 'dot', reply: { code: 451 } }],
  ['accepted', '250 ok', { kind: 'accepted' }],
] as const) {
  t.test(`a message behind a dot that is ${name} is told with its own replies`, async (t) => {
    const rcpt = ['250 ok', '250 ok', '550 5.1.1 no']
    const server = await mx(t, { script: { dot: [dot, '250 2.0.0 second'], rcpt } })
    const opened = await session(t, server)
    const [first, second, third] = [job(to('first')), job(to('second')), job(to('third'))]
    for (const one of [first, second, third]) opened.send(one)
    t.match(await first.end, end)
    t.match(await second.end, { kind: 'accepted', reply: { text: '250 2.0.0 second' } })
    t.match(await third.end, { kind: 'refused', stage: 'rcpt', reply: { enhancedCode: '5.1.1' } })
    t.equal(server.connections.length, 1)
    t.equal(opened.isUsable(), true)
  })
}

t.test('what a host says to the next message counts for nothing when it ends at the dot', async (t) => {
  for (const [dot, end] of [
    ['close', { kind: 'unanswered' }],
    ['421 4.3.2 bye', { kind: 'refused', stage: 'dot', reply: { code: 421 } }],
    ['354 what', { kind: 'unanswered' }],
    ['999 what', { kind: 'unanswered' }],
  ] as const) {
    const server = await mx(t, { script: { dot } })
    const opened = await session(t, server)
    const [first, second, third] = [job(to('first')), job(to('second')), job(to('third'))]
    for (const one of [first, second, third]) opened.send(one)
    t.match(await first.end, end, dot)
    t.match(await second.end, { kind: 'unsent' }, 'it was behind the dot')
    t.match(await third.end, { kind: 'unsent' }, 'it was not begun')
    t.equal(third.wasRcptSent(), false)
    t.equal(server.messages.length, 1)
  }
})

t.test('a host that answers a refused dot twice does not have it told about the next message', async (t) => {
  const server = await mx(t, { script: { dot: '554 5.7.1 spam\r\n554 5.7.1 spam' } })
  const opened = await session(t, server)
  const [first, second] = [job(to('first')), job(to('second'))]
  opened.send(first)
  opened.send(second)
  t.match(await first.end, { kind: 'refused', stage: 'dot' })
  t.match(await second.end, { kind: 'unsent' })
  t.equal(server.messages.length, 1)
  t.equal(opened.isUsable(), false)
})

t.test('a host that answers an accepted dot twice gets no body in place of commands', async (t) => {
  const server = await mx(t, { script: { dot: '250 2.0.0 ok\r\n250 2.0.0 ok' } })
  const opened = await session(t, server)
  const [first, second] = [job(to('first')), job(to('second'))]
  opened.send(first)
  opened.send(second)
  t.match(await first.end, { kind: 'accepted' })
  t.match(await second.end, { kind: 'unsent', reason: /no 354|reply before its command/ })
  await until('it is closed', () => server.connections[0]?.isClosed)
  t.equal(server.messages.length, 1)
})

t.test('a host that leaves a kept connection before it says anything leaves the next message unsent', async (t) => {
  for (const mail of ['close', '421 4.4.2 idle too long'] as const) {
    const server = await mx(t, { script: { mail: ['250 ok', mail] } })
    const opened = await session(t, server)
    t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
    t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'unsent' })
    t.equal(opened.isUsable(), false)
  }
  const server = await mx(t, { script: { rset: '500 what', rcpt: '550 5.1.1 no' } })
  const opened = await session(t, server)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'refused' })
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'unsent', reason: /unexpected answer to RSET/ })
})

t.test('a message that is not to go any more is told without a command', async (t) => {
  const server = await mx(t)
  const opened = await session(t, server)
  const late = job({ begin: () => ({ kind: 'returned', why: 'too-late', reason: 'over' }) })
  opened.send(late)
  t.match(await late.end, { kind: 'returned', why: 'too-late' })
  t.equal(late.wasRcptSent(), false)
  t.equal(commandsOf(server).length, 1)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
})
