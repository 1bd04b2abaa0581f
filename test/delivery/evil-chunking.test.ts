/**
 * Hosts that offer CHUNKING and answer flights badly: each message has one end, the right one, and the host is
 * remembered where flights are not for it. delivery/README.md "Flights".
 */
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import type { SendEnd } from '../../src/delivery/session/transaction-end.ts'
import { startEvilHost, type EvilHost, type EvilScript } from '../support/evil-chunking.ts'
import { until } from '../support/until.ts'
import { BYTES, ENVELOPE, job, session, type TestSession } from './session-kit.ts'

const LETTERS = ['A', 'B', 'C', 'D', 'E'] as const
const IN_FLIGHT = 4
const SHORT = { mail: 400, rcpt: 400, final_dot: 400, rset: 400, closing: 400, quit: 300 }

const close = (socket: Socket): void => void socket.destroy()
const halfClose = (socket: Socket): void => void socket.end()
const reset = (socket: Socket): void => void socket.resetAndDestroy()
const silence = (): void => {}
const say =
  (text: string, then: (socket: Socket) => void = close) =>
  (socket: Socket): void =>
    void socket.write(text, () => then(socket))
const sayAndEnd =
  (text: string) =>
  (socket: Socket): void =>
    void socket.end(text)
const drip = (socket: Socket): void => {
  const timer = setInterval(() => (socket.destroyed ? clearInterval(timer) : socket.write('250-drip\r\n')), 20)
  socket.on('close', () => clearInterval(timer))
}

const NO_RCPT = '503 5.5.1 no valid recipients'
const ALL = ['accepted', 'accepted', 'accepted', 'accepted', 'accepted']
const NONE = ['unanswered', 'unanswered', 'unanswered', 'unanswered', 'unsent']
/** A was taken, and then nothing more was heard. */
const CUT = ['accepted', 'unanswered', 'unanswered', 'unanswered', 'unsent']
const endsWith = (second: string, behind = 'unsent'): string[] => ['accepted', second, behind, behind, 'unsent']

/** Name, script of four messages in one flight, the ends of these and of the one that waits, what is remembered. */
const FLIGHTS: [string, EvilScript, string[], RegExp | null][] = [
  ['takes all', {}, ALL, null],
  [
    'refuses a recipient with a body behind it',
    { 'B RCPT': '550 5.1.1 no', 'B BDAT': NO_RCPT },
    ['accepted', 'refused rcpt 550', 'accepted', 'accepted', 'accepted'],
    null,
  ],
  [
    'refuses MAIL, and what follows from it',
    { 'B MAIL': '451 4.7.1 later', 'B RCPT': '503 5.5.1 MAIL first', 'B BDAT': NO_RCPT },
    ['accepted', 'refused mail 451', 'accepted', 'accepted', 'accepted'],
    null,
  ],
  [
    'refuses a chunk',
    { 'B BDAT': '554 5.7.1 spam' },
    ['accepted', 'refused dot 554', 'accepted', 'accepted', 'accepted'],
    null,
  ],
  [
    'has no room for a chunk',
    { 'D BDAT': '452 4.3.1 full' },
    ['accepted', 'accepted', 'accepted', 'refused dot 452', 'accepted'],
    null,
  ],
  [
    'refuses every recipient',
    Object.fromEntries(
      LETTERS.flatMap((name) => [
        [`${name} RCPT`, '550 5.1.1 no'],
        [`${name} BDAT`, NO_RCPT],
      ]),
    ),
    [...Array.from({ length: 4 }, () => 'refused rcpt 550'), 'accepted'],
    null,
  ],
  [
    'refuses in latin-1',
    { 'B RCPT': '550 5.7.1 gesch\u00fctzt', 'B BDAT': NO_RCPT },
    ['accepted', 'refused rcpt 550', 'accepted', 'accepted', 'accepted'],
    null,
  ],
  ['says 421 to MAIL', { 'B MAIL': sayAndEnd('421 4.3.2 closing\r\n') }, endsWith('unsent'), null],
  ['says 421 to RCPT', { 'B RCPT': sayAndEnd('421 4.7.0 slow\r\n') }, endsWith('refused rcpt 421'), null],
  ['says 421 to BDAT', { 'B BDAT': sayAndEnd('421 4.3.2 closing\r\n') }, endsWith('refused dot 421'), null],
  [
    'refuses a recipient and says 421 to its body',
    { 'B RCPT': '550 5.1.1 no', 'B BDAT': sayAndEnd('421 4.7.0 too many errors\r\n') },
    endsWith('refused rcpt 550'),
    null,
  ],
  ['says 421 to RSET', { 'B RSET': sayAndEnd('421 4.3.2 closing\r\n') }, endsWith('unsent'), null],
  [
    'says 421 to RCPT, refuses the body of that one, and closes',
    { 'B RCPT': '421 4.7.0 slow', 'B BDAT': NO_RCPT, 'C RSET': halfClose },
    endsWith('refused rcpt 421'),
    null,
  ],
  [
    'says 421 to BDAT, refuses the RSET behind it otherwise, and closes',
    { 'B BDAT': '421 4.3.2 closing', 'C RSET': '503 5.5.1 bye', 'C MAIL': halfClose },
    endsWith('refused dot 421'),
    null,
  ],
  [
    'says 421 to all, and closes',
    {
      ...Object.fromEntries(['RSET', 'MAIL', 'RCPT', 'BDAT'].map((verb) => [`C ${verb}`, '421 4.3.2 closing'])),
      'B BDAT': '421 4.3.2 closing',
      'D RSET': halfClose,
    },
    endsWith('refused dot 421'),
    null,
  ],
  ['says 421 to RSET and goes on', { 'B RSET': '421 4.3.2 closing' }, NONE, /out of step: .* behind its 421: 250/],
  [
    'says 421 to MAIL and goes on',
    { 'B MAIL': '421 4.3.2 closing', 'B RCPT': '503 5.5.1 MAIL first', 'B BDAT': NO_RCPT },
    NONE,
    /out of step: .* behind its 421: 250/,
  ],
  [
    'says 421 to RCPT and goes on',
    { 'B RCPT': '421 4.7.0 slow', 'B BDAT': NO_RCPT },
    NONE,
    /out of step: .* behind its 421: 250/,
  ],
  ['says 421 to BDAT and goes on', { 'B BDAT': '421 4.7.0 slow' }, NONE, /out of step: .* behind its 421: 250/],
  [
    'says 421 and half a reply more',
    { 'B BDAT': sayAndEnd('421 4.3.2 closing\r\n250 2.0') },
    endsWith('refused dot 421', 'unanswered'),
    /out of step: the host closes/,
  ],
  [
    'says 421 to RCPT and does not close',
    { 'B RCPT': say('421 4.7.0 slow\r\n', silence) },
    endsWith('refused rcpt 421', 'unanswered'),
    /the close behind its 421: nothing within 400 ms, with 2 in flight/,
  ],
  [
    'says 421 to the last recipient and does not close',
    { 'D RCPT': say('421 4.7.0 slow\r\n', silence) },
    ['accepted', 'accepted', 'accepted', 'refused rcpt 421', 'unsent'],
    null,
  ],
  ['closes between two messages', { 'B RSET': close }, CUT, /closed.*, with 3 in flight/],
  ['closes after the bodies', { 'A RSET': close, 'A MAIL': close }, NONE, /, with 4 in flight/],
  ['resets in the middle', { 'B RCPT': reset }, CUT, /, with 3 in flight/],
  ['half-closes in the middle', { 'B MAIL': halfClose }, CUT, /closed.*, with 3 in flight/],
  ['closes in half a reply', { 'B BDAT': sayAndEnd('250 2.0.0 que') }, CUT, /, with 3 in flight/],
  [
    'refuses a recipient and closes in front of the answer to its body',
    { 'B RCPT': '550 5.1.1 no', 'B BDAT': halfClose },
    endsWith('refused rcpt 550', 'unanswered'),
    /, with 3 in flight/,
  ],
  ['falls silent at RCPT', { 'B RCPT': silence }, CUT, /nothing within 400 ms, with 3 in flight/],
  ['falls silent at BDAT', { 'B BDAT': silence }, CUT, /reply to BDAT: nothing within 400 ms, with 3/],
  ['drips', { 'B MAIL': drip }, CUT, /nothing within/],
  ['answers once too often at the end', { 'D BDAT': '250 2.0.0 queued\r\n250 2.0.0 queued' }, NONE, /out of step/],
  [
    'answers MAIL twice',
    { 'A MAIL': '250 2.1.0 ok\r\n250 2.1.0 ok' },
    NONE,
    /out of step: unexpected answer to BDAT: 250 2.1.5/,
  ],
  ['answers BDAT as if it were RCPT', { 'B BDAT': '250 2.1.5 ok' }, NONE, /out of step/],
  ['says 354 to BDAT', { 'B BDAT': '354 go on' }, NONE, /out of step: unexpected answer to BDAT: 354/],
  ['says 354 to RCPT', { 'B RCPT': '354 go on' }, NONE, /out of step: unexpected answer to RCPT: 354/],
  ['takes the body of a refused recipient', { 'B RCPT': '550 5.1.1 no' }, NONE, /out of step/],
  ['refuses RSET', { 'B RSET': '502 5.5.1 what' }, NONE, /out of step: unexpected answer to RSET/],
  ['knows no second MAIL', { 'C MAIL': '503 5.5.1 nested MAIL' }, NONE, /out of step: unexpected answer to BDAT: 250/],
  [
    'does not understand one recipient',
    { 'B RCPT': '501 5.5.4 odd address', 'B BDAT': NO_RCPT },
    ['accepted', 'refused rcpt 501', 'accepted', 'accepted', 'accepted'],
    null,
  ],
  [
    'does not understand one MAIL',
    { 'B MAIL': '501 5.5.4 odd address', 'B RCPT': '503 5.5.1 MAIL first', 'B BDAT': NO_RCPT },
    ['accepted', 'refused mail 501', 'accepted', 'accepted', 'accepted'],
    null,
  ],
  [
    'does not understand one recipient, and then no RSET',
    { 'B RCPT': '501 5.5.4 odd address', 'B BDAT': NO_RCPT, 'C RSET': '500 5.5.2 what' },
    NONE,
    /out of step: unexpected answer to RSET/,
  ],
  ['does not understand a chunk', { 'B BDAT': '501 5.5.4 odd chunk' }, NONE, /does not understand flights: 501/],
  ['says 999', { 'B BDAT': '999 ok' }, NONE, /out of step: malformed/],
  ['answers with two codes', { 'B BDAT': '250-ok\r\n451 no' }, NONE, /out of step: several codes/],
  ['answers with NUL', { 'B RCPT': '\u0000' }, NONE, /out of step: malformed/],
  ['answers with endless lines', { 'B RCPT': '250-more\r\n'.repeat(101) }, NONE, /out of step: a reply of more than/],
]

/** Behind two messages; and as the first of a connection, to a host that took flights lately. */
const FOURS = FLIGHTS.flatMap(([name, ...flight]) => [
  { name: `a host that ${name}, four in flight`, isFirst: false, flight },
  { name: `a host that ${name}, four in the first flight`, isFirst: true, flight },
])

for (const { name, isFirst, flight } of FOURS) {
  t.test(name, async (t) => {
    const [script, expected, problem] = flight
    const { host, opened } = isFirst ? await evilHost(t, true) : await provenHost(t)
    const alone = { ...ENVELOPE, to: 'alone@example.test' }
    if (!isFirst) t.match(await opened.deliver(alone, BYTES), { kind: 'accepted' })
    host.begin(script, IN_FLIGHT)
    const sent = LETTERS.map(send(opened))
    await until('the flight is over', () => sent.slice(0, IN_FLIGHT).every(({ counted }) => counted.value > 0))
    host.begin({}, 0)
    sent[IN_FLIGHT]?.mark()
    const ends = await Promise.all(sent.map(({ end }) => end))
    t.same(ends.map(endText), expected)
    t.ok(
      sent.every(({ counted }) => counted.value === 1),
      'each has one end',
    )
    for (const [index, end] of ends.entries()) {
      const letter = LETTERS[index] ?? ''
      if (end.kind === 'accepted' && index < IN_FLIGHT) t.ok(host.taken.includes(letter), `it took ${letter}`)
      if (end.kind === 'unsent') t.notOk(host.taken.includes(letter), `it did not take ${letter}`)
    }
    if (problem === null) t.equal(opened.flightProblem(), null)
    else t.match(opened.flightProblem(), problem)
    if (!expected.includes('accepted') || problem !== null) t.equal(opened.isUsable(), false)
    const tookNone = isFirst && ends.slice(0, IN_FLIGHT).every(({ kind }) => kind !== 'accepted')
    if (tookNone || problem !== null) t.equal(opened.takesFlights(), false, 'the next connection begins carefully')
  })
}

t.test('a host that says 421 to the first MAIL of a first flight is asked carefully next time', async (t) => {
  const { host, opened } = await evilHost(t, true)
  host.begin({ 'A MAIL': sayAndEnd('421 4.7.0 not you\r\n') }, IN_FLIGHT)
  const sent = LETTERS.map(send(opened))
  const ends = await Promise.all(sent.map(({ end }) => end))
  t.same(ends.map(endText), ['refused mail 421', 'unsent', 'unsent', 'unsent', 'unsent'])
  t.equal(opened.flightProblem(), null)
  t.equal(opened.takesFlights(), false)
})

/** Of the flight of one. */
const ALONE: [string, EvilScript, string, RegExp | null][] = [
  ['does not know BDAT', { 'A BDAT': '502 5.5.1 what' }, 'unsent', /does not understand flights: 502/],
  ['does not know BDAT, without a code', { 'A BDAT': '500 what' }, 'unsent', /does not understand/],
  ['wants DATA', { 'A BDAT': '503 5.5.1 DATA first' }, 'unsent', /does not understand/],
  ['answers BDAT twice', { 'A BDAT': '250 2.0.0 bytes\r\n250 2.0.0 queued' }, 'unanswered', /out of step/],
  ['takes the chunk and closes', { 'A BDAT': close }, 'unanswered', /, with 1 in flight/],
  [
    'does not understand the recipient, and closes',
    { 'A RCPT': '501 5.5.4 odd address', 'A BDAT': close },
    'refused rcpt 501',
    /, with 1 in flight/,
  ],
  ['refuses, and closes', { 'A RCPT': '550 5.1.1 no', 'A BDAT': close }, 'refused rcpt 550', /, with 1 in flight/],
  [
    'reads a refused body as commands',
    { 'A RCPT': '550 5.1.1 no', 'A BDAT': `${NO_RCPT}\r\n500 5.5.2 Subject what\r\n500 5.5.2 .a what` },
    'unanswered',
    /out of step: reply before its command: 500/,
  ],
  ['answers with 64 KiB', { 'A BDAT': say('x'.repeat(70_000), silence) }, 'unanswered', /out of step/],
]

for (const [name, script, expected, problem] of ALONE) {
  t.test(`a host that ${name}, one in flight`, async (t) => {
    const { host, opened } = await provenHost(t)
    host.begin(script, 1)
    const sent = send(opened)('A')
    t.equal(endText(await sent.end), expected)
    t.match(opened.flightProblem(), problem)
    t.equal(opened.isUsable(), false)
  })
}

t.test('a second answer that comes late is out of step too, and what was told stays', async (t) => {
  const { host, opened } = await provenHost(t)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
  host.say('554 5.7.1 spam after all\r\n')
  await opened.ended
  t.match(opened.flightProblem(), /out of step: reply before its command: 554/)
})

t.test('a 421 behind a flight is a goodbye', async (t) => {
  const { host, opened } = await provenHost(t)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
  host.say('421 4.4.2 good night\r\n')
  t.match(await opened.ended, { kind: 'closing', reply: { code: 421 } })
  t.equal(opened.flightProblem(), null)
})

t.test('a host that is slow to go on behind its 421 is believed no more than one that does so at once', async (t) => {
  const { host, opened } = await provenHost(t)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
  const { promise: isToldB, resolve: tellB } = Promise.withResolvers<void>()
  host.begin({ 'B BDAT': '421 4.7.0 slow', 'C RSET': { after: isToldB, reply: '250 2.0.0 reset' } }, IN_FLIGHT)
  const sent = LETTERS.map(send(opened))
  t.match(await sent[1]?.end, { kind: 'refused', stage: 'dot', reply: { code: 421 } })
  t.equal(opened.isUsable(), false, 'nothing is said any more')
  tellB()
  const expected = ['accepted', 'refused dot 421', 'unanswered', 'unanswered', 'unsent']
  t.same((await Promise.all(sent.map(({ end }) => end))).map(endText), expected)
  t.match(opened.flightProblem(), /out of step/)
})

t.test('what was told before a host went wrong stays told', async (t) => {
  const { host, opened } = await provenHost(t)
  t.match(await opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
  const { promise: isToldA, resolve: tellA } = Promise.withResolvers<void>()
  host.begin({ 'B RSET': { after: isToldA, reply: '250 2.0.0 reset' }, 'B BDAT': '354 go on' }, IN_FLIGHT)
  const sent = LETTERS.map(send(opened))
  t.match(await sent[0]?.end, { kind: 'accepted' })
  host.begin({ 'B BDAT': '354 go on' }, 0)
  tellA()
  t.same((await Promise.all(sent.map(({ end }) => end))).map(endText), CUT)
})

async function evilHost(t: Test, knowsFlights: boolean): Promise<{ host: EvilHost; opened: TestSession }> {
  const host = await startEvilHost()
  t.teardown(() => host.close())
  const opened = await session(t, host, { inFlight: IN_FLIGHT, timeouts: SHORT, knowsFlights })
  return { host, opened }
}

/** It took one message by the careful dialogue. */
async function provenHost(t: Test): ReturnType<typeof evilHost> {
  const proven = await evilHost(t, false)
  t.match(await proven.opened.deliver(ENVELOPE, BYTES), { kind: 'accepted' })
  return proven
}

const send =
  (opened: TestSession) =>
  (name: string): { end: Promise<SendEnd>; counted: { value: number }; mark: () => void } => {
    const counted = { value: 0 }
    const onEnd = (): void => void counted.value++
    const marked = Promise.withResolvers<void>()
    const askMark = (answer: (isOurs: boolean) => void): void => void marked.promise.then(() => answer(true))
    const sent = job({ envelope: { ...ENVELOPE, to: `${name}@example.test` }, onEnd, askMark })
    opened.send(sent)
    // The fifth is not to leave before the test knows what became of the others.
    if (name !== 'E') marked.resolve()
    return { end: sent.end, counted, mark: marked.resolve }
  }

function endText(end: SendEnd): string {
  return end.kind === 'refused' ? `refused ${end.stage} ${end.reply.code}` : end.kind
}
