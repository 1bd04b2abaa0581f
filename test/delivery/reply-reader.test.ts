import t from 'tap'
import { createMessageBody } from '../../src/delivery/session/message-body.ts'
import { createReplyReader, type RawReply } from '../../src/delivery/session/reply-reader.ts'
import {
  helloName,
  mailCommand,
  NO_EXTENSIONS,
  readExtensions,
  recipientCommand,
} from '../../src/delivery/session/smtp-extensions.ts'

const MiB = 2 ** 20

function read(pieces: (string | Buffer)[]): { replies: RawReply[]; problems: string[]; hasRest: boolean } {
  const replies: RawReply[] = []
  const problems: string[] = []
  const reader = createReplyReader({
    onReply: (reply) => void replies.push(reply),
    onMalformed: (reason) => void problems.push(reason),
  })
  for (const piece of pieces) reader.push(Buffer.from(piece))
  return { replies, problems, hasRest: reader.hasRest() }
}

t.test('replies are the same however the bytes come', async (t) => {
  const text = '220 hello\r\n250-one\r\n250-two\r\n250\r\n550 caf\u00e9 \u20ac\n354 go\r\n'
  const whole = read([text])
  t.strictSame(whole, {
    replies: [
      { code: 220, text: '220 hello' },
      { code: 250, text: '250-one\n250-two\n250' },
      { code: 550, text: '550 caf\u00e9 \u20ac' },
      { code: 354, text: '354 go' },
    ],
    problems: [],
    hasRest: false,
  })
  const bytes = Buffer.from(text)
  for (const size of [1, 2, 3, 7, 64]) {
    const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_none, index) =>
      bytes.subarray(index * size, (index + 1) * size),
    )
    t.strictSame(read(pieces), whole, `in pieces of ${size}`)
  }
})

t.test('what is no reply is told once, and nothing after it is read', async (t) => {
  for (const bad of [
    'hello',
    '',
    '22 x',
    '999 x',
    '199 x',
    '600 x',
    '2500 x',
    '250x',
    '\u0000250 x',
    ' 250 x',
    '250-a\r\n550 b',
    '250-a\r\nb',
    `${'250-x\r\n'.repeat(100)}250 x`,
    `250 ${'x'.repeat(65_536)}`,
    `250-${'x'.repeat(40_000)}\r\n250 ${'x'.repeat(40_000)}`,
  ]) {
    const { replies, problems } = read([`${bad}\r\n`, '250 ok\r\n', '250 ok\r\n'])
    t.strictSame(replies, [], bad.slice(0, 20))
    t.equal(problems.length, 1)
  }
  const { replies, problems } = read(['250 ok\r\n999 no\r\n250 late\r\n'])
  t.strictSame(replies, [{ code: 250, text: '250 ok' }])
  t.equal(problems.length, 1)
})

t.test('the largest reply is still one', async (t) => {
  t.equal(read([`${'250-x\r\n'.repeat(99)}250 x\r\n`]).replies.length, 1)
  t.equal(read([`250 ${'x'.repeat(65_000)}\r\n`]).replies.length, 1)
})

t.test('an unfinished line is bounded, byte by byte, too', async (t) => {
  const byte = Buffer.from('2')
  const problems: string[] = []
  const reader = createReplyReader({ onReply: () => {}, onMalformed: (reason) => void problems.push(reason) })
  const before = process.memoryUsage()
  for (let count = 0; count < 200_000; count++) reader.push(byte)
  const after = process.memoryUsage()
  t.equal(problems.length, 1)
  t.equal(reader.hasRest(), true)
  t.ok(after.arrayBuffers - before.arrayBuffers < 5 * MiB)
})

t.test('a body has CRLF alone and no line that begins with a single dot', async (t) => {
  for (const [given, wire] of [
    ['', '.\r\n'],
    ['a\r\n', 'a\r\n.\r\n'],
    ['a', 'a\r\n.\r\n'],
    ['.\r\n', '..\r\n.\r\n'],
    ['.', '..\r\n.\r\n'],
    ['a\r\n.b\r\n', 'a\r\n..b\r\n.\r\n'],
    ['a\n.\nb', 'a\r\n..\r\nb\r\n.\r\n'],
    ['a\r.\rb', 'a\r\n..\r\nb\r\n.\r\n'],
    ['a\r\n.\r\nb\r\n', 'a\r\n..\r\nb\r\n.\r\n'],
    ['a\r', 'a\r\n.\r\n'],
    ['a\n\r.\r\n', 'a\r\n\r\n..\r\n.\r\n'],
    ['a\r\r\n.', 'a\r\n\r\n..\r\n.\r\n'],
    ['\n', '\r\n.\r\n'],
    ['a..b.\r\n', 'a..b.\r\n.\r\n'],
  ] as const) {
    t.equal(wireOf(Buffer.from(given)), wire, JSON.stringify(given))
    // The same across the border of two pieces.
    for (let offset = 0; offset <= given.length; offset++) {
      const filler = 'x'.repeat(64 * 1024 - offset - 2)
      const name = `${JSON.stringify(given)} at ${offset}`
      t.equal(wireOf(Buffer.from(`${filler}\r\n${given}`)), `${filler}\r\n${wire}`, name)
    }
  }
})

t.test('what is proven to be fit for the wire is not looked at, what is in front of it is', async (t) => {
  const proven = `${'x'.repeat(70_000)}\r\n`
  for (const [given, wire] of [
    ['a\r\n', 'a\r\n'],
    ['.a\nb\r\n', '..a\r\nb\r\n'],
    ['', ''],
  ] as const) {
    t.equal(wireOf(Buffer.from(`${given}${proven}`), given.length), `${wire}${proven}.\r\n`, JSON.stringify(given))
  }
  t.equal(wireOf(Buffer.from('a\r\n\r\n.b'), 3), 'a\r\n\r\n.b\r\n.\r\n', 'taken at its word')
})

function wireOf(bytes: Buffer, provenFrom?: number): string {
  const body = createMessageBody(bytes, provenFrom)
  let text = ''
  for (;;) {
    const { piece, isLast } = body.next()
    text += String(piece)
    if (isLast) return text + body.end()
  }
}

t.test('only what is announced is asked for', async (t) => {
  const envelope = { from: 'a@b.test', to: 'j\u00f6rg@c.test', envelopeId: 'a', needsUtf8: true, is8Bit: true }
  t.equal(mailCommand(envelope, 10, NO_EXTENSIONS), 'MAIL FROM:<a@b.test>')
  t.equal(recipientCommand(envelope, NO_EXTENSIONS), 'RCPT TO:<j\u00f6rg@c.test>')
  const all = readExtensions('250-mx.test PIPELINING\n250-SIZE 1000\n250-8bitmime\n250-smtputf8\n250-DSN\n250 STARTTLS')
  t.equal(mailCommand(envelope, 10, all), 'MAIL FROM:<a@b.test> SMTPUTF8 SIZE=10 BODY=8BITMIME RET=HDRS ENVID=a')
  t.equal(recipientCommand(envelope, all), 'RCPT TO:<j\u00f6rg@c.test> NOTIFY=FAILURE,DELAY')
  t.match(all, { isPipelining: false, hasStartTls: true, mostBytes: 1_000 }, 'its name is no extension')
  t.match(readExtensions('250-mx\n250-SIZE\n250 PIPELINING'), { hasSize: true, mostBytes: null, isPipelining: true })
  t.equal(readExtensions('250-mx\n250 SIZE 0').mostBytes, null, 'a limit that is not told')
})

t.test('an address literal stands in brackets', async (t) => {
  t.strictSame(['mx.test', '192.0.2.1', '2001:db8::1'].map(helloName), ['mx.test', '[192.0.2.1]', '[IPv6:2001:db8::1]'])
})
