/**
 * Each simulated recipient over real SMTP: what it answers, and the report or the visit that follows, at a real SMTP
 * server and a real HTTP server.
 */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { readReport } from '../../src/mail/report/read-report.ts'
import { createSimulation } from '../../src/capture/simulation.ts'
import { createVisit } from '../../src/capture/visit.ts'
import { startKeepingSink } from '../support/keeping-sink.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { freePort } from '../support/serve-process.ts'
import { until } from '../support/until.ts'
import { withCapture } from './capture-world.ts'
import { sendMail, smtpDialogue } from './smtp-dialogue.ts'

const SIMULATOR = 'simulator.sternpost.test'
const TOKEN = 'a2'.repeat(24)
const MESSAGE = [
  'From: Acme <orders@acme.com>',
  'To: ada@example.com',
  'Subject: Hello',
  `Message-ID: <${TOKEN}@acme.com>`,
  `X-Sternpost-Ref: ${TOKEN}`,
  '',
  'Hi',
].join('\r\n')

const rcpt = async (port: number, to: string, from = 'b-1@bounces.acme.com'): Promise<string> =>
  (await smtpDialogue({ port }, ['EHLO me', `MAIL FROM:<${from}>`, `RCPT TO:<${to}>`])).at(-1) ?? ''

t.test('refusals have their codes, for as often as the table says', async (t) => {
  await withCapture({ clock: manualClock() }, async ({ port }) => {
    t.match(await rcpt(port, `hard+a@${SIMULATOR}`), /^550 5\.1\.1 /)
    t.match(await rcpt(port, `soft@${SIMULATOR}`), /^452 4\.2\.2 .*over quota/)
    t.match(await rcpt(port, `block@${SIMULATOR}`), /^554 5\.7\.1 .*blocked using blocklist/)
    const answers = async (to: string, from: string): Promise<string[]> => {
      const replies: string[] = []
      for (let time = 0; time < 4; time += 1) replies.push((await rcpt(port, `${to}@${SIMULATOR}`, from)).slice(0, 9))
      return replies
    }
    const deferred = ['451 4.3.0', '451 4.3.0', '250 Accep', '451 4.3.0']
    const greylisted = ['451 4.7.1', '250 Accep', '451 4.7.1', '250 Accep']
    t.same(
      await Promise.all([
        answers('deferred+a', 'b-1@bounces.acme.com'),
        answers('deferred+a', 'b-2@bounces.acme.com'),
        answers('greylisted', 'b-1@bounces.acme.com'),
      ]),
      [deferred, deferred, greylisted],
      'twice or once, and then it counts from the start; each message for itself',
    )
    const taken = ['suppressed', 'delivered', 'whoever', 'late', 'complained', 'opened', 'clicked']
    const replies = await Promise.all(taken.map((name) => rcpt(port, `${name}@${SIMULATOR}`)))
    for (const [index, reply] of replies.entries()) t.match(reply, /^250 /, `${taken[index]}`)
  })
})

t.test('what is remembered is bounded: the oldest refusal is forgotten, a sequel too many left out', async (t) => {
  const log: string[] = []
  const simulation = createSimulation({
    hostName: 'mx.test',
    clock: manualClock(),
    inboundAddress: () => null,
    complaintAddress: null,
    visit: async () => {},
    logger: createLogger({ level: 'warn', write: (line) => void log.push(line) }),
  })
  t.teardown(() => simulation.stop())
  const isRefused = (label: number): boolean =>
    simulation.answer('b-1@acme.com', `deferred+${label}@${SIMULATOR}`).refusal !== null
  for (let label = 0; label < 10_001; label += 1) isRefused(label)
  t.same([isRefused(1), isRefused(1)], [true, false], 'the third time it passes')
  t.same([isRefused(0), isRefused(0), isRefused(0)], [true, true, false], 'the first one began anew')
  const bytes = Buffer.from(MESSAGE)
  const late = { from: 'b-1@acme.com', to: `late@${SIMULATOR}`, remoteAddress: '127.0.0.1', bytes }
  for (let count = 0; count < 1_000; count += 1) await simulation.delivered(late)
  t.equal(log.length, 0)
  await simulation.delivered(late)
  t.match(log, [/too many simulated recipients/])
})

t.test('slow@ takes its time at RCPT, others pass, and the end does not wait for it', async (t) => {
  let slow: Promise<string> = Promise.resolve('')
  await withCapture({ clock: manualClock() }, async ({ port }) => {
    let isAnswered = false
    slow = rcpt(port, `slow@${SIMULATOR}`).finally(() => (isAnswered = true))
    for (let turn = 0; turn < 3; turn += 1) t.match(await rcpt(port, `delivered@${SIMULATOR}`), /^250/)
    t.equal(isAnswered, false)
  })
  t.match(await slow, /^250|^421/)
})

t.test('late@ is delivered, then a report of non-delivery comes to the return path', async (t) => {
  const clock = manualClock()
  const inbound = await startKeepingSink()
  t.teardown(() => inbound.close())
  const inboundAddress = () => ({ address: '127.0.0.1', port: inbound.port })
  await withCapture({ clock, inboundAddress }, async ({ port, mails }) => {
    const from = `b-${TOKEN}@bounces.acme.com`
    t.match(await sendMail({ port, from, to: `late+x@${SIMULATOR}`, message: MESSAGE }), /^250/)
    t.equal(mails.length, 1, 'and it is captured')
    const report = await untilMail(clock, inbound)
    t.same([report.from, report.to], ['', from])
    const reading = readReport(report.bytes)
    t.match(reading, {
      kind: 'bounce',
      recipients: [
        {
          address: `late+x@${SIMULATOR}`,
          action: 'failed',
          status: '5.1.1',
          replyCode: 550,
          diagnostic: /does not exist/,
        },
      ],
    })
    t.equal(reading.references.returned.get('message-id'), `<${TOKEN}@acme.com>`)
    t.equal(reading.references.returned.get('x-sternpost-ref'), TOKEN)
    t.match(await sendMail({ port, from: '', to: `late@${SIMULATOR}`, message: MESSAGE }), /^250/)
    t.match(await sendMail({ port, from, to: `late+ü@${SIMULATOR}`, message: MESSAGE }), /^250/)
    await until('the third one', async () => inbound.mails.length === 2 || (await clock.advance(2_000)))
    const second = inbound.mails[1]?.bytes.toString()
    t.match(second, 'Final-Recipient: utf-8; late+\\x{FC}@', 'and none about the null sender')
  })
})

t.test('complained@ is delivered, then a report of abuse comes to the complaint address', async (t) => {
  const clock = manualClock()
  const inbound = await startKeepingSink()
  t.teardown(() => inbound.close())
  const inboundAddress = () => ({ address: '127.0.0.1', port: inbound.port })
  const complaintAddress = 'fbl@sternpost.test'
  await withCapture({ clock, inboundAddress, complaintAddress }, async ({ port, log }) => {
    const reportFor = async (message: string): Promise<{ to: string; from: string; bytes: Buffer }> => {
      const before = inbound.mails.length
      await sendMail({ port, from: `b-${TOKEN}@bounces.acme.com`, to: `complained@${SIMULATOR}`, message })
      return untilMail(clock, inbound, before)
    }
    const report = await reportFor(MESSAGE)
    t.same([report.from, report.to], ['', `f-${TOKEN}@bounces.acme.com`])
    t.match(readReport(report.bytes), { kind: 'complaint', feedbackType: 'abuse' })
    t.match(report.bytes.toString(), `Original-Rcpt-To: <complained@${SIMULATOR}>`)
    t.match(report.bytes.toString(), /^Reported-Domain: acme\.com\r$/m)
    t.match(report.bytes.toString(), /^Source-IP: 127\.0\.0\.1\r$/m)

    const onlyId = MESSAGE.replace(/^X-Sternpost-Ref: .*\r\n/m, '')
    t.equal((await reportFor(onlyId)).to, `f-${TOKEN}@bounces.acme.com`, 'by its Message-ID')
    const named = `CFBL-Address: f-other@bounces.acme.com;\r\n report=arf\r\n${MESSAGE}`
    t.equal((await reportFor(named)).to, 'f-other@bounces.acme.com', 'as RFC 9477 says')
    t.equal((await reportFor('Subject: Hello\r\n\r\nHi')).to, complaintAddress, 'else the configured one')
    const hostile = `X-Sternpost-Ref: ${'!'.repeat(70_000)}\r\n\r\nHi`
    t.equal((await reportFor(hostile)).to, complaintAddress, 'a header of no use')
    t.notMatch(log.join(''), '"level":"error"')
  })
})

t.test('a report that is not taken is sent again, and then given up', async (t) => {
  const clock = manualClock()
  const port = await freePort()
  await withCapture({ clock, inboundAddress: () => ({ address: '127.0.0.1', port }) }, async (world) => {
    await sendMail({ port: world.port, to: `late@${SIMULATOR}`, message: MESSAGE })
    await clock.advance(2_000)
    const isGivenUp = (): boolean => world.log.some((line) => line.includes('a simulated recipient failed'))
    t.ok(await until('it is given up', isGivenUp))
  })
  await withCapture({ clock }, async (world) => {
    await sendMail({ port: world.port, to: `late@${SIMULATOR}`, message: MESSAGE })
    await clock.advance(2_000)
    const hasNone = (): boolean => world.log.some((line) => line.includes('there is no inbound server'))
    t.ok(await until('there is no server', hasNone))
  })
})

t.test('opened@ and clicked@ fetch the pixel and the first link as a person does, 4 s after delivery', async (t) => {
  const visits: { path: string; headers: IncomingHttpHeaders }[] = []
  const server = createServer(({ url: path = '', headers }, response) => {
    visits.push({ path, headers })
    response.writeHead(302, { Location: 'https://example.com/' }).end()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => void server.close())
  const { port: httpPort } = server.address() as AddressInfo
  const token = (letter: string): string => letter.repeat(56)
  const htmlMail = (host: string): string =>
    [
      'From: orders@acme.com',
      'MIME-Version: 1.0',
      'Content-Type: text/html',
      'Content-Transfer-Encoding: quoted-printable',
      '',
      `<p><a href=3D"https://example.org/never/c/short">a</a><a href=3D"${host}/c/${token('b')}">b</a>=`,
      `<a href=3D"${host}/c/${token('c')}">c</a><img src=3D"${host}/o/${token('a')}" width=3D"1"></p>`,
    ].join('\r\n')
  const paths = (): string[] => visits.splice(0).map(({ path }) => path)
  const clock = manualClock()
  const visit = createVisit(() => ({ address: '127.0.0.1', port: httpPort, isTls: false }))
  await withCapture({ clock, visit }, async ({ port, log }) => {
    const deliver = (to: string, host: string): Promise<string> =>
      sendMail({ port, to: `${to}@${SIMULATOR}`, message: htmlMail(host) })
    await deliver('opened+x', 'http://127.0.0.1:1') // nobody listens there: the mail does not choose the server
    await clock.advance(3_999)
    t.equal(visits.length, 0)
    await clock.advance(1)
    await until('the pixel is fetched', () => visits.length === 1)
    t.match(visits[0]?.headers['user-agent'], /^Mozilla\/5\.0 \(.*Firefox/)
    t.same(paths(), [`/o/${token('a')}`])
    await deliver('clicked', 'https://track.acme.com')
    await clock.advance(4_000)
    await until('both are fetched', () => visits.length === 2)
    t.equal(visits[0]?.headers.host, 'track.acme.com', 'from our own server, whatever the name')
    t.same(paths(), [`/o/${token('a')}`, `/c/${token('b')}`], 'the first link, and the redirect is not followed')
    await sendMail({ port, to: `clicked@${SIMULATOR}`, message: MESSAGE })
    await clock.advance(4_000)
    t.notMatch(log.join(''), /"level":"(warn|error)"/, 'nothing is tracked, nothing is fetched')
  })
  await withCapture({ clock }, async ({ port, log }) => {
    await sendMail({ port, to: `opened@${SIMULATOR}`, message: htmlMail('https://track.acme.com') })
    await clock.advance(4_000)
    await until('it is refused', () => log.some((line) => line.includes('track.acme.com is not fetched')))
    t.same(paths(), [])
  })
})

t.test('without an inbox everything is taken and dropped, and what follows still follows', async (t) => {
  const clock = manualClock()
  const inbound = await startKeepingSink()
  t.teardown(() => inbound.close())
  const inboundAddress = () => ({ address: '127.0.0.1', port: inbound.port })
  await withCapture({ clock, inboundAddress, isDropping: true }, async ({ port, mails }) => {
    t.match(await sendMail({ port, to: 'ada@example.com', message: MESSAGE }), /^250 2\.0\.0 /)
    t.match(await rcpt(port, `hard@${SIMULATOR}`), /^550/)
    await sendMail({ port, from: `b-${TOKEN}@bounces.acme.com`, to: `late@${SIMULATOR}`, message: MESSAGE })
    t.equal((await untilMail(clock, inbound)).to, `b-${TOKEN}@bounces.acme.com`)
    t.same(mails, [])
  })
})

/** The next mail; application time goes on until it is there. */
async function untilMail(
  clock: ManualClock,
  inbound: { mails: readonly { from: string; to: string; bytes: Buffer }[] },
  before = 0,
): Promise<{ from: string; to: string; bytes: Buffer }> {
  await clock.advance(2_000)
  return until('the report arrives', () => inbound.mails[before])
}

t.test('of a message that nobody keeps only the beginning is held', async (t) => {
  const clock = manualClock()
  const visits: string[] = []
  const visit = async (url: string): Promise<void> => void visits.push(url)
  const large = 'x'.repeat(998).concat('\r\n').repeat(3_000)
  const pixel = (letter: string): string => `<img src="https://track.acme.com/o/${letter.repeat(56)}">\r\n`
  await withCapture({ clock, visit, isDropping: true }, async ({ port }) => {
    for (const body of [`${large}${pixel('b')}`, `${pixel('a')}${large}`]) {
      const message = `Content-Type: text/html\r\n\r\n${body}`
      t.match(await sendMail({ port, to: `opened@${SIMULATOR}`, message }), /^250 /)
    }
    await clock.advance(4_000)
    await until('the pixel at the beginning is fetched', () => visits.length > 0)
    t.same(visits, [`https://track.acme.com/o/${'a'.repeat(56)}`])
  })
})
