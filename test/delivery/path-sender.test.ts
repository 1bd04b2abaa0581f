import { createServer, type AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import type { HostTls } from '../../src/delivery/protocol/host-tls.ts'
import { NO_CONNECTION } from '../../src/delivery/protocol/try-result.ts'
import { createHostMemory } from '../../src/delivery/session/open-connection.ts'
import type { Opened } from '../../src/delivery/session/smtp-session.ts'
import { scriptedMx, selfSigned, type ScriptedMx } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import { hostOf, keysUpTo, pathTo, recipients } from './path-kit.ts'
import { BYTES, ENVELOPE, mx, OPPORTUNISTIC, REQUIRED } from './session-kit.ts'

t.test('every row is reported once, over no more connections than the path may have', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  path.add(keysUpTo(100), { plan: { connections: 4 } })
  const results = await path.untilDone(100)
  t.strictSame(
    results.map(({ claim }) => claim),
    keysUpTo(100),
  )
  t.ok(results.every(({ end, wasRcptSent }) => end.kind === 'accepted' && wasRcptSent))
  t.ok(server.connections.length <= 4)
  await until('it is idle', path.isIdle)
  t.equal(path.results.length, 100)
  const opened = path.notes.filter(({ note }) => note.kind === 'opened').length
  const ended = path.notes.filter(({ note }) => note.kind === 'ended-well')
  t.equal(opened, server.connections.length)
  t.equal(ended.length, opened)
  t.equal(
    ended.reduce((sum, { note }) => sum + (note.kind === 'ended-well' ? note.delivered : 0), 0),
    100,
  )
})

t.test('a connection carries as many messages as it may', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  path.add(keysUpTo(10), { plan: { connections: 1, messagesPerConnection: 3 } })
  await path.untilDone(10)
  t.equal(server.connections.length, 4)
  for (const { commands } of server.connections.slice(0, 3)) {
    t.equal(commands.filter((line) => line.startsWith('MAIL')).length, 3)
  }
})

t.test('a host for which a flight goes wrong is told of, and its rows go one after the other', async (t) => {
  // Of the first connection: the careful one, the one that flies alone, and then it does not know the dialogue.
  const bdat = ['250 ok', '503 5.5.1 nested BDAT']
  const server = await mx(t, { extensions: ['PIPELINING', 'CHUNKING'], script: { bdat } })
  const path = pathTo(t, server)
  path.add(keysUpTo(3), { plan: { connections: 1 } })
  const results = await path.untilDone(2)
  t.match(results, [{ end: { kind: 'accepted' } }, { end: { kind: 'accepted' } }])
  await until('it is told', () => path.notes.some(({ note }) => note.kind === 'careful'))
  t.match(path.notes.find(({ note }) => note.kind === 'opened')?.note, { inFlight: 4 })
  const reason = /^it does not understand flights: 503/
  t.match(path.notes.find(({ note }) => note.kind === 'careful')?.note, { host: 'mx.test', reason })
  path.sender.limit({ connections: 1, messagesPerConnection: 100, carefulHosts: ['mx.test'] })
  path.add([4, 5, 6], { plan: { connections: 1, carefulHosts: ['mx.test'] } })
  t.ok((await path.untilDone(6)).every(({ end }) => end.kind === 'accepted'))
  const [, ...later] = server.connections
  t.ok(later.length > 0)
  t.notMatch(later.flatMap(({ commands }) => commands).join(), /BDAT/)
  // What it refused it had read.
  t.same([...new Set(recipients(server))].toSorted(), ['1', '2', '3', '4', '5', '6'])
})

t.test('a row that a host does not understand in a flight goes again alone, one command at a time', async (t) => {
  let asked = 0
  const rcpt = (line: string): string =>
    line.includes('<4@') && ++asked === 1 ? '501 5.5.4 odd address' : '250 2.1.5 ok'
  const server = await mx(t, { extensions: ['PIPELINING', 'CHUNKING'], script: { rcpt } })
  const path = pathTo(t, server)
  path.add(keysUpTo(6), { plan: { connections: 1 } })
  t.ok((await path.untilDone(6)).every(({ end }) => end.kind === 'accepted'))
  t.same(recipients(server).toSorted(), ['1', '2', '3', '4', '5', '6'])
  t.notOk(path.notes.some(({ note }) => note.kind === 'careful'))
  t.equal(server.connections.length, 2)
  t.match(server.connections[1]?.commands.join(), /MAIL.*<4@.*DATA/)
})

t.test('a row whose mark came late goes by the careful dialogue over the same connection', async (t) => {
  const server = await mx(t, { extensions: ['PIPELINING', 'CHUNKING'] })
  const late = new Set([3, 4])
  const path = pathTo(t, server, {
    askMark: (claim, answer) => void (late.delete(claim) ? setTimeout(answer, 1_100, true) : answer(true)),
  })
  path.add(keysUpTo(4), { plan: { connections: 1, idleMilliseconds: 5_000 } })
  t.ok((await path.untilDone(4)).every(({ end }) => end.kind === 'accepted'))
  t.same(recipients(server).toSorted(), ['1', '2', '3', '4'])
  t.equal(server.connections.length, 1)
  t.match(server.connections[0]?.commands.join(), /BDAT.*MAIL.*DATA.*MAIL.*DATA$/)
})

t.test('what is known of the flights of a host is noted by connections that carried one alone', async (t) => {
  const server = await mx(t, { extensions: ['PIPELINING', 'CHUNKING'] })
  const noted: boolean[] = []
  const hosts = { ...createHostMemory(), knowsFlights: () => true }
  hosts.noteFlights = (_source, _address, takesThem) => void noted.push(takesThem)
  const path = pathTo(t, server, { hosts })
  path.add([1], { row: { wasInDoubt: true } })
  await path.untilDone(1)
  await until('the connection has ended', path.isIdle)
  t.same(noted, [])
  path.add([2])
  await path.untilDone(2)
  await until('the connection has ended', path.isIdle)
  t.same(noted, [true])
})

t.test('a row that was in doubt does not fly', async (t) => {
  const server = await mx(t, { extensions: ['PIPELINING', 'CHUNKING'] })
  const path = pathTo(t, server)
  path.add(keysUpTo(5), { plan: { connections: 1 }, row: { wasInDoubt: true } })
  await path.untilDone(5)
  t.notMatch(server.connections.flatMap(({ commands }) => commands).join(), /BDAT/)
  const flying = pathTo(t, server)
  flying.add(keysUpTo(20), { plan: { connections: 1 } })
  await flying.untilDone(20)
  t.match(server.connections.at(-1)?.commands.join(), /BDAT/)
})

t.test('urgent rows go first', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  const plan = { connections: 1 }
  path.add(keysUpTo(5), { plan })
  path.add([11, 12], { plan, row: { isUrgent: true } })
  await path.untilDone(7)
  // The first had been taken by then.
  t.strictSame(recipients(server), ['1', '11', '12', '2', '3', '4', '5'])
})

t.test('a row whose time is over does not begin, and its transcript is of its own try', async (t) => {
  const server = await mx(t)
  let now = 0
  const path = pathTo(t, server, {
    now: () => now,
    askMark: (_key, answer) => {
      now = HOUR
      answer(true)
    },
  })
  path.add([1, 2], { plan: { connections: 1 }, row: { expiresAt: MINUTE } })
  const [first, second] = await path.untilDone(2)
  t.match(first, { end: { kind: 'accepted' }, startedAt: 0, transcript: /> MAIL FROM/ })
  t.match(second, { end: { kind: 'returned', why: 'too-late' }, facts: NO_CONNECTION, wasRcptSent: false })
  t.strictSame(recipients(server), ['1'])
})

t.test('rows that the end of a connection left unsent go over another one', async (t) => {
  const server = await mx(t, { script: { dot: ['250 ok', '421 4.3.2 enough', '250 ok'] } })
  const path = pathTo(t, server)
  path.add(keysUpTo(5), { plan: { connections: 1 } })
  const results = await path.untilDone(5)
  t.strictSame(
    results.map(({ end }) => end.kind),
    ['accepted', 'refused', 'accepted', 'accepted', 'accepted'],
  )
  t.equal(server.connections.length, 2)
})

t.test('a host that ends each connection at MAIL does not keep a row for ever', async (t) => {
  const server = await mx(t, { script: { mail: 'close' } })
  const path = pathTo(t, server)
  path.add(keysUpTo(3), { plan: { connections: 1 } })
  const results = await path.untilDone(3)
  t.ok(results.every(({ end }) => end.kind === 'lost' && end.stage === 'mail'))
})

t.test('a host confused by several commands at once gets one at a time', async (t) => {
  for (const reply of ['503 5.5.1 bad sequence', '500 what', '502 5.5.1 no']) {
    const server = await mx(t, { script: { rcpt: [reply, '250 ok'] } })
    const path = pathTo(t, server)
    path.add([1])
    t.match(await path.untilDone(1), [{ end: { kind: 'accepted' } }])
    t.equal(server.connections.length, 2)
    const always = await mx(t, { script: { rcpt: reply } })
    const failing = pathTo(t, always)
    failing.add([1])
    t.match(await failing.untilDone(1), [{ end: { kind: 'refused', stage: 'rcpt' } }])
    t.equal(always.connections.length, 2)
  }
  const address = await mx(t, { script: { rcpt: '501 5.1.3 bad address' } })
  const path = pathTo(t, address)
  path.add([1])
  t.match(await path.untilDone(1), [{ end: { kind: 'refused', stage: 'rcpt' } }])
  t.equal(address.connections.length, 1, 'that is about the address')
})

t.test('a host that leaves before the message is ready does not keep a row for ever', async (t) => {
  let connections = 0
  const server = createServer((socket) => {
    connections++
    socket
      .on('error', () => {})
      .on('data', () => socket.end('250 mx.test\r\n'))
      .write('220 mx.test\r\n')
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.2', resolve))
  t.teardown(() => server.close())
  const port = (server.address() as AddressInfo).port
  const path = pathTo(
    t,
    { address: '127.0.0.2', port },
    {
      async render() {
        await sleep(200)
        return { envelope: ENVELOPE, bytes: BYTES }
      },
    },
  )
  path.add([1])
  t.match(await path.untilDone(1), [{ end: { kind: 'lost', stage: 'mail' }, wasRcptSent: false }])
  t.equal(connections, 4)
})

t.test('the next host is asked when one fails, and the one that failed is asked last for a while', async (t) => {
  const bad = await mx(t, { script: { banner: '421 4.3.2 too busy' } })
  const good = await scriptedMx({ address: '127.0.0.3', port: bad.port })
  t.teardown(() => good.close())
  const path = pathTo(t, bad)
  const site = { hosts: [hostOf(bad), hostOf(good, { name: 'mx2.test' })] }
  for (const keys of [[1], [2]]) {
    path.add(keys, { site })
    await path.untilDone(keys[0] ?? 0)
    await until('it is idle', path.isIdle)
  }
  t.equal(bad.connections.length, 1)
  t.strictSame(recipients(good), ['1', '2'])
  t.match(path.results, [{ facts: { host: 'mx2.test' } }, { facts: { host: 'mx2.test' } }])
  const note = { kind: 'failed', stage: 'banner', reply: { code: 421 } }
  t.match(path.notes[0], { note, host: 'mx.test', address: bad.address })
})

t.test('a host that limits the rate speaks for all hosts of the domain', async (t) => {
  const bad = await mx(t, { script: { banner: '450 4.7.1 rate limited' } })
  const other = await scriptedMx({ address: '127.0.0.3', port: bad.port })
  t.teardown(() => other.close())
  const path = pathTo(t, bad)
  path.add([1, 2], { site: { hosts: [hostOf(bad), hostOf(other)] } })
  const results = await path.untilDone(2)
  t.match(results, [{ end: { kind: 'path-failed', stage: 'banner', host: 'mx.test', reply: { code: 450 } } }, {}])
  t.same([bad.connections.length, other.connections.length], [1, 0], 'one try for both messages')
})

t.test('a skipped host is not connected to', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  const tls: HostTls = { kind: 'skip', code: '4.7.5', reason: 'its DNSSEC is bogus', policy: { type: 'dane', id: '' } }
  path.add([1], { site: { hosts: [hostOf(server, { tls })] } })
  t.match(await path.untilDone(1), [{ end: { kind: 'path-failed', code: '4.7.5' }, wasRcptSent: false }])
  t.equal(server.connections.length, 0)
})

t.test('a host that refuses further connections keeps the ones it has', async (t) => {
  let open = 0
  const server = await mx(t, {
    script: {
      banner: () => (++open > 2 ? '421 4.7.0 too many connections' : '220 mx'),
      dot: { afterMilliseconds: 5, reply: '250 ok' },
    },
  })
  const path = pathTo(t, server)
  path.add(keysUpTo(30))
  const results = await path.untilDone(30)
  t.ok(results.every(({ end }) => end.kind === 'accepted'))
})

t.test('opportunistic TLS that fails goes on in plain text once, and says so; required TLS does not', async (t) => {
  for (const [tls, kind] of [
    [OPPORTUNISTIC, 'accepted'],
    [REQUIRED, 'path-failed'],
  ] as const) {
    const server = await mx(t, { tls: 'broken' })
    const path = pathTo(t, server)
    path.add([1], { site: { hosts: [hostOf(server, { tls })] } })
    t.match(await path.untilDone(1), [{ end: { kind } }])
    const [note] = path.notes
    t.match(note?.tls, { result: 'validation-failure', isPlainFallback: kind === 'accepted', policy: tls.policy })
    t.match(
      note?.note,
      kind === 'accepted' ? { kind: 'opened', inFlight: 1 } : { kind: 'failed', wasRequiredTls: true },
    )
    t.equal(path.notes.filter(({ tls: said }) => said !== null).length, 1)
  }
})

t.test('every connection says once what it found of TLS', { skip: selfSigned() === undefined }, async (t) => {
  const tls = selfSigned()
  const withTls = tls === undefined ? {} : { tls }
  for (const [options, result] of [
    [withTls, 'success'],
    [{}, 'starttls-not-supported'],
  ] as const) {
    const server = await mx(t, options)
    const path = pathTo(t, server)
    path.add([1, 2], { site: { hosts: [hostOf(server, { tls: OPPORTUNISTIC })] }, plan: { connections: 1 } })
    await path.untilDone(2)
    const said = path.notes.flatMap((note) => (note.tls === null ? [] : [note]))
    t.match(said, [{ tls: { result, isPlainFallback: false }, host: 'mx.test', domain: 'example.test' }])
    t.equal(said.length, 1)
  }
})

t.test('it says which rows it has, on connections and waiting for one', async (t) => {
  const server = await mx(t)
  const marks: (() => void)[] = []
  const path = pathTo(t, server, { askMark: (_claim, answer) => void marks.push(() => answer(true)) })
  path.add(keysUpTo(5), { plan: { connections: 1 } })
  t.same(path.sender.claims().toSorted(), keysUpTo(5), 'a connection is made')
  await until('a mark is asked for', () => marks.length === 1)
  t.same(path.sender.claims().toSorted(), keysUpTo(5))
  while (path.results.length < 5) {
    for (const answer of marks.splice(0)) answer()
    const known = [...path.sender.claims(), ...path.results.map(({ claim }) => claim)]
    t.same(known.toSorted(), keysUpTo(5), 'each is here or was reported')
    await new Promise(setImmediate)
  }
  t.same(path.sender.claims(), [])
})

t.test('new connections keep to the rate of the path', async (t) => {
  const server = await mx(t, { script: { dot: { afterMilliseconds: 20, reply: '250 ok' } } })
  const path = pathTo(t, server)
  path.add(keysUpTo(20), { plan: { connectionRate: { count: 1, per_milliseconds: HOUR } } })
  await path.untilDone(20)
  t.equal(server.connections.length, 3)
})

t.test('a limit holds between two messages; without connections what has not begun comes back', async (t) => {
  const server = await mx(t)
  const marks: (() => void)[] = []
  const path = pathTo(t, server, { askMark: (_key, answer) => void marks.push(() => answer(true)) })
  path.add(keysUpTo(4), { plan: { connections: 1 } })
  await until('the first waits for its mark', () => marks.length === 1)
  path.sender.limit({ connections: 0, messagesPerConnection: 100, carefulHosts: [] })
  t.equal(path.results.length, 2, 'but for the one under way, and the one behind it')
  marks.shift()?.()
  const results = await path.untilDone(4)
  t.strictSame(
    results.map(({ end }) => end.kind),
    ['accepted', 'returned', 'returned', 'returned'],
  )
  t.ok(results.slice(1).every(({ wasRcptSent }) => !wasRcptSent))
  await until('it is idle', path.isIdle)
  path.add([5], { plan: { connections: 1 } })
  await until('it works again', () => marks.length === 1)
  marks.shift()?.()
  t.match((await path.untilDone(5)).at(-1), { claim: 5, end: { kind: 'accepted' } })
})

t.test('what had not begun when its path was halted comes back, whatever the path may send since', async (t) => {
  const server = await mx(t)
  let markFirst: (() => void) | undefined
  const askMark = (claim: number, answer: (isOurs: boolean) => void): void => {
    if (claim === 1) markFirst = () => answer(true)
    else answer(true)
  }
  const path = pathTo(t, server, { askMark })
  const limits = { connections: 1, messagesPerConnection: 100, carefulHosts: [] }
  path.add([1, 2], { plan: { connections: 1 } })
  await until('the first waits for its mark', () => markFirst !== undefined)
  path.sender.limit({ ...limits, connections: 0 })
  path.sender.limit(limits)
  path.add([3], { plan: { connections: 1, source: '127.0.0.12' } })
  markFirst?.()
  const results = await path.untilDone(3)
  t.match(results, [{ end: { kind: 'accepted' } }, { end: { kind: 'returned' } }, { end: { kind: 'accepted' } }])
  const sources = server.messages.map(({ connection: { remoteAddress } }) => remoteAddress)
  t.same(sources, ['127.0.0.11', '127.0.0.12'])
})

t.test('what is under way when its path is halted goes over no other connection', async (t) => {
  const limits = { connections: 1, messagesPerConnection: 100, carefulHosts: [] }
  const mail = (): string => {
    path.sender.limit({ ...limits, connections: 0 })
    path.sender.limit(limits)
    return '503 5.5.1 one command at a time'
  }
  const server = await mx(t, { script: { mail } })
  const path = pathTo(t, server)
  path.add([1], { plan: { connections: 1 } })
  t.match(await path.untilDone(1), [{ end: { kind: 'returned' } }])
  t.equal(server.connections.length, 1)
})

t.test('a connection with the former source or EHLO name of its path carries no further message', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  const plan = { connections: 1, idleMilliseconds: HOUR }
  path.add([1], { plan })
  await path.untilDone(1)
  path.add([2, 3], { plan: { ...plan, source: '127.0.0.12' } })
  await path.untilDone(3)
  path.add([4], { plan: { ...plan, source: '127.0.0.12', hostname: 'other.acme.test' } })
  await path.untilDone(4)
  const sources = server.messages.map(({ connection: { remoteAddress } }) => remoteAddress)
  t.same(sources, ['127.0.0.11', '127.0.0.12', '127.0.0.12', '127.0.0.12'])
  t.same(
    server.connections.map(({ ehloName }) => ehloName),
    ['mail.acme.test', 'mail.acme.test', 'other.acme.test'],
  )
})

t.test('a connection of another site that waits with the former source ends', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  const plan = { connections: 2, idleMilliseconds: HOUR }
  path.add([1], { plan, site: { key: 'other' } })
  await path.untilDone(1)
  path.add([2], { plan: { ...plan, source: '127.0.0.12' } })
  await path.untilDone(2)
  await until('it has left', () => server.connections[0]?.isClosed === true)
  t.match(server.connections, [{ isClosed: true }, { isClosed: false, remoteAddress: '127.0.0.12' }])
})

t.test('drain lets the message under way finish, abort the one past its dot', async (t) => {
  const server = await mx(t, { script: { dot: { afterMilliseconds: 100, reply: '250 ok' } } })
  const path = pathTo(t, server)
  path.add(keysUpTo(6), { plan: { connections: 1 } })
  await until('the first dot', () => server.messages.length === 1)
  path.sender.drain()
  path.sender.abort()
  const results = await path.untilDone(6)
  t.match(results[0], { end: { kind: 'accepted' } })
  t.ok(results.slice(1).every(({ end }) => end.kind === 'returned' && end.why === 'stopping'))
  await until('it is idle', path.isIdle)
  t.equal(path.results.length, 6)
  t.equal(server.messages.length, 1)
})

/** A path to a host that falls silent, with rows enough; `passes`: milliseconds from one look at the clock to the next. */
function silentPath(t: Test, server: ScriptedMx, size: number, passes: number) {
  const rendered: number[] = []
  let now = 0
  const path = pathTo(t, server, {
    async render({ key }) {
      rendered.push(key)
      return { envelope: { ...ENVELOPE, to: `${key}@example.test` }, bytes: Buffer.alloc(size, 'x') }
    },
    now: () => (now += passes),
  })
  path.add(keysUpTo(40), { plan: { connections: 1, inFlight: 8 } })
  return { rendered, sender: path.sender }
}

t.test('one message is rendered ahead where the host is fast, but no large one', async (t) => {
  for (const { size, passes, ahead } of [
    { size: 1_000, passes: 0, ahead: 1 },
    { size: 1_000, passes: SECOND, ahead: 0 },
    { size: 2 ** 21, passes: 0, ahead: 0 },
  ]) {
    const server = await mx(t, { script: { dot: ['250 ok', 'silence'] } })
    const { rendered, sender } = silentPath(t, server, size, passes)
    await until('the dot of the second is out', () => server.messages.length > 1)
    await sleep(50)
    t.strictSame(rendered, keysUpTo(3 + ahead), `${size} bytes, ${passes} ms`)
    sender.abort()
  }
})

t.test('as many are rendered ahead as a flight may have, of 1 MiB together', async (t) => {
  // The careful one, the one that flies alone, eight in flight, and the one behind them.
  const taken = 11
  for (const { size, passes, ahead } of [
    { size: 1_000, passes: 0, ahead: 8 },
    { size: 1_000, passes: SECOND, ahead: 0 },
    { size: 2 ** 18, passes: 0, ahead: 4 },
  ]) {
    const bdat = ['250 ok', 'silence']
    const server = await mx(t, { extensions: ['PIPELINING', 'CHUNKING'], script: { bdat } })
    const { rendered, sender } = silentPath(t, server, size, passes)
    await until('those of the flight are rendered', () => rendered.length >= taken)
    await sleep(50)
    t.strictSame(rendered, keysUpTo(taken + ahead), `${size} bytes, ${passes} ms`)
    sender.abort()
  }
})

t.test('a message that cannot be rendered comes back, and the next ones go', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server, {
    render: async ({ key }) => {
      if (key % 2 === 1) throw new Error('no key')
      return { envelope: ENVELOPE, bytes: BYTES }
    },
  })
  path.add(keysUpTo(6), { plan: { connections: 1 } })
  const results = await path.untilDone(6)
  t.strictSame(
    results.map(({ end }) => end.kind),
    [1, 2, 3].flatMap(() => ['returned', 'accepted']),
  )
})

t.test('a body of 8 bits is rendered anew for a host without 8BITMIME', async (t) => {
  for (const [extensions, expected] of [
    [['PIPELINING', '8BITMIME'], '8bit'],
    [['PIPELINING'], '7bit'],
  ] as const) {
    const server = await mx(t, { extensions: [...extensions] })
    const path = pathTo(t, server, {
      render: async (_row, form) => ({
        envelope: { ...ENVELOPE, is8Bit: form === '8bit' },
        bytes: Buffer.from(`Subject: ${form}\r\n\r\n`),
      }),
    })
    path.add([1, 2], { plan: { connections: 1 } })
    await path.untilDone(2)
    t.strictSame(
      server.messages.map(({ bytes }) => String(bytes)),
      [1, 2].map(() => `Subject: ${expected}\r\n\r\n`),
    )
    const mail = server.connections[0]?.commands.find((line) => line.startsWith('MAIL')) ?? ''
    t.equal(mail.includes('BODY=8BITMIME'), expected === '8bit')
  }
})

t.test('two sites of a path share its connections', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  const plan = { connections: 1, idleMilliseconds: HOUR }
  path.add(keysUpTo(30), { plan })
  path.add([101], { plan, site: { key: 'other' } })
  path.add([102], { plan, site: { key: 'urgent' }, row: { isUrgent: true } })
  await path.untilDone(32)
  const order = recipients(server)
  t.ok(order.indexOf('102') <= 3, `urgent: ${order.indexOf('102')}`)
  t.ok(order.indexOf('101') <= 15, `other: ${order.indexOf('101')}`)
})

t.test('a connection that nobody has a message for is given up when others need it', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  path.add([1], { plan: { connections: 1, idleMilliseconds: 60_000 } })
  t.equal(path.sender.retireIdle(), false, 'it has a message')
  await path.untilDone(1)
  await until('it waits', () => path.sender.retireIdle())
  t.equal(path.sender.retireIdle(), false, 'it leaves already')
  await until('it has left', path.isIdle)
  t.equal(server.connections[0]?.commands.at(-1), 'QUIT')
})

t.test('an address that this machine does not have gives its rows back', async (t) => {
  const server = await mx(t)
  const path = pathTo(t, server)
  path.add([1], { plan: { source: '198.51.100.7' } })
  t.match(await path.untilDone(1), [{ end: { kind: 'returned', why: 'source-gone' }, wasRcptSent: false }])
})

t.test('without a free socket all rows of the site go back at once, and no host is blamed', async (t) => {
  const server = await mx(t)
  let asked = 0
  const open = async (): Promise<Opened> => {
    asked++
    return { kind: 'local', why: 'no-socket', reason: 'bind EMFILE' }
  }
  const path = pathTo(t, server, { open })
  path.add([1, 2, 3])
  const returned = { end: { kind: 'returned', why: 'no-socket', reason: 'bind EMFILE' } }
  t.match(await path.untilDone(3), [returned, returned, returned])
  t.same([asked, path.notes], [1, []])
})

t.test('how long a try took is real time, however far the clock jumps meanwhile', async (t) => {
  const server = await mx(t)
  const begin = Date.UTC(2026, 10, 21)
  let now = begin
  const path = pathTo(t, server, {
    now: () => now,
    askMark: (_key, answer) => {
      now += HOUR
      answer(true)
    },
  })
  path.add([1])
  const [result] = await path.untilDone(1)
  t.equal(result?.startedAt, begin)
  t.ok((result?.durationMilliseconds ?? HOUR) < HOUR)
})
