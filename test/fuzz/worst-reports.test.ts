/**
 * The worst mails that we know at the door for reports, which anybody may use, to each kind of its addresses: all are
 * taken, and none keeps the main thread busy for long, in time of the processor.
 */
import t from 'tap'
import { smtpClient } from '../inbound/smtp-client.ts'
import { until } from '../support/until.ts'
import { startFuzzedServer } from './fuzzed-server.ts'

/** Of a mail a MiB is kept. */
const BYTES = 1_000_000
/** Milliseconds of the processor; the law is 50. Some machines take ten times as long, and what blows up takes seconds. */
const LONGEST_TURN = process.env['TEST_SCALE'] === 'full' ? 100 : 1_000

const filled = (piece: string): string => piece.repeat(BYTES / piece.length)
const report = (type: string, rest: string): string =>
  `Content-Type: multipart/report; report-type=${type}; boundary=b\r\n\r\n--b\r\n${rest}`
const numbered = (count: number, piece: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => piece(index)).join('')

/** Behind From, To and MIME-Version. */
const KINDS: Record<string, string> = {
  'many parts': report('delivery-status', filled('\r\n--b\r\n')),
  'nested parts': numbered(20_000, (n) => `Content-Type: multipart/mixed; boundary=b${n}\r\n\r\n--b${n}\r\n`),
  'nested mails': report('delivery-status', filled('Content-Type: message/rfc822\r\n\r\n')),
  'boundaries nearly': `Content-Type: multipart/report; boundary=${'-'.repeat(60)}\r\n\r\n${filled(`${'-'.repeat(61)}\r\n`)}`,
  'many fields': `${filled('X: y\r\n')}\r\nx`,
  'a folded field': `Content-Type: multipart/report;\r\n${filled(' a=b;\r\n')}\r\nx`,
  'pieces of a parameter': `Content-Type: multipart/report; ${numbered(30_000, (n) => `boundary*${n}="x"; `)}\r\n\r\nx`,
  'nested comments': `Content-Type: ${filled('(')}\r\n\r\nx`,
  'encoded words': `Subject: ${filled('=?utf-8?q?a?= ')}\r\n\r\nx`,
  'many recipients': report(
    'delivery-status',
    `Content-Type: message/delivery-status\r\n\r\n${filled('Final-Recipient: rfc822; a@b.test\r\nAction: failed\r\n\r\n')}`,
  ),
  'many names': report(
    'delivery-status',
    `\r\n${numbered(1_000, (n) => `a${n}@b.test\r\n`)}${'\r\n'.repeat(55_000)}` +
      `\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\n` +
      numbered(1_000, (n) => `Final-Recipient: rfc822; a${n}@b.test\r\nAction: failed\r\n\r\n`),
  ),
  'empty lines': `\r\n550 5.1.1 <a@b.test>: user unknown\r\n${filled('\r\n')}`,
  'a complaint often': report(
    'feedback-report',
    `Content-Type: message/feedback-report\r\n\r\n${filled('Feedback-Type: abuse\r\n')}`,
  ),
  'base64 of single characters': `Content-Transfer-Encoding: base64\r\n\r\n${filled('QQ==\r\n')}`,
  'quoted characters': `Content-Transfer-Encoding: quoted-printable\r\n\r\n${filled('=41')}`,
  'bounces in words': `\r\n${filled('550 5.1.1 <a@b.test>: user unknown\r\n')}`,
  'open brackets': `\r\n${filled('<')}`,
  'comments of html': `Content-Type: text/html\r\n\r\n${filled('<!--')}`,
}

t.setTimeout(300_000)

t.test('no report keeps the server busy', async (t) => {
  const { server, api, ports, returnPaths, busiest } = await startFuzzedServer(t)
  await api.send({ from: 'orders@acme.test', to: 'ada@good0.test', subject: 'x', text: 'x' })
  await until('its return path is known', () => returnPaths.length > 0)
  const client = await smtpClient({ port: ports.reports })
  await client.greet()
  for (const to of [returnPaths[0] ?? '', 'postmaster@mail.sternpost.test', 'dmarc@mail.sternpost.test']) {
    for (const [kind, text] of Object.entries(KINDS)) {
      const reply = await client.mail([to], `From: <a@b.test>\r\nTo: <${to}>\r\nMIME-Version: 1.0\r\n${text}`, '')
      t.match(reply, /^250 /, `${kind} to ${to.slice(0, 10)}`)
    }
  }
  client.destroy()
  t.comment(`longest turns (goal 50 ms): ${busiest().join(', ')}`)
  const longest = Number(/^main (\d+)$/m.exec(busiest().join('\n'))?.[1])
  t.ok(longest < LONGEST_TURN, `the longest turn of the main thread took ${longest} ms of the processor`)
  t.equal(server.exitCode(), null)
})
