/**
 * DMARC and TLS reports at the door: they are counted for the domains that they are about, once, and whatever else
 * comes to that address changes nothing.
 */
import t from 'tap'
import { DAY } from '../../src/base/clock.ts'
import { utcDay } from '../../src/base/utc-day.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createAuthenticationThread } from '../../src/inbound/reports/authentication-thread.ts'
import {
  bareMail,
  BOMBS,
  google,
  gzipFile,
  mailWith,
  microsoft,
  rfc7489,
  rfc8460,
  rfc9990,
  tlsFile,
  yahoo,
  zipFile,
  type SampleFacts,
} from '../mail/authentication-samples.ts'
import { HOSTNAME } from '../senders/sender-parts.ts'
import { domainRecord } from '../store/store-samples.ts'
import { inboundParts, type InboundParts } from './inbound-parts.ts'
import { feedbackReport } from './report-samples.ts'
import { smtpClient } from './smtp-client.ts'

const parts: InboundParts = await inboundParts(t)
const { port } = await parts.reports()
const DMARC = `dmarc@${HOSTNAME}`
const taken = /^250 2\.0\.0 taken$/

async function bring(message: string, recipients: string[] = [DMARC], at = port): Promise<string> {
  const client = await smtpClient({ port: at })
  await client.greet()
  const reply = await client.mail(recipients, message, 'noreply-dmarc-support@google.com')
  client.destroy()
  return reply
}

/** The log line of the last mail: its kind and its result. */
function last(): { kind: string; result: string; reason?: string } {
  const lines = parts.log.map((line) => JSON.parse(line) as { msg: string; kind: string; result: string })
  return lines.findLast(({ msg }) => msg === 'inbound mail') ?? { kind: '', result: '' }
}

const yesterday = (): number => Math.floor(parts.clock.now() / DAY) * (DAY / 1_000) - DAY / 1_000
const dayOf = (begin: number): string => utcDay(begin * 1_000)
const facts = (changes: SampleFacts = {}): SampleFacts => ({ domain: 'acme.com', begin: yesterday(), ...changes })
const found = (domain = 'acme.com') => parts.store.dmarcFindings(domain, '2000-01-01', '2100-01-01')

t.test('reports of several receivers are counted by day and source, each once', async (t) => {
  const day = dayOf(yesterday())
  t.match(await bring(bareMail(zipFile(google(facts())))), taken)
  t.match(last(), { kind: 'dmarc-report', result: 'recorded' })
  t.match(await bring(mailWith(gzipFile(microsoft(facts())))), taken)
  t.match(await bring(mailWith(gzipFile(yahoo(facts())))), taken)
  t.match(await bring(mailWith(gzipFile(rfc9990(facts()))), [DMARC, DMARC.toUpperCase()]), taken)
  const sums = await found()
  t.match(sums, {
    reports: 4,
    days: [{ day, messages: 1_180 + 4 + 5 + 7 + 123, passed: 1_180 + 5 + 7 + 123 }],
    sources: [
      { ip: '127.0.0.11', messages: 1_187, passed: 1_187, firstDay: day, lastDay: day },
      { ip: '192.0.2.123', messages: 123 },
      { ip: '127.0.0.12', messages: 5 },
      { ip: '203.0.113.9', messages: 4, passed: 0 },
    ],
  })
  t.same(sums.reporters.toSorted(), ['Enterprise Outlook', 'Sample Reporter', 'Yahoo', 'google.com'])
  t.match(await bring(bareMail(gzipFile(google(facts())))), taken)
  t.match(last(), { kind: 'dmarc-report', result: 'repeated' }, 'packed otherwise, it is the same report')
  t.same(await found(), sums)
  await bring(bareMail(zipFile(google(facts({ reportId: 'the next' })))))
  t.match(await found(), { reports: 5, sources: [{ ip: '127.0.0.11', messages: 1_187 + 1_180 }] })
})

t.test('a report counts for the sending domain that From names, or the one above it', async (t) => {
  await parts.store.addDomain(domainRecord({ name: 'mail.other.com' }), null)
  const report = rfc7489(facts({ domain: 'other.com' }))
  t.match(await bring(mailWith(gzipFile(report))), taken)
  t.equal(last().result, 'unknown-domain')
  const below = report.replaceAll('news.other.com', 'news.mail.other.com')
  t.match(await bring(mailWith(gzipFile(below))), taken)
  t.equal(last().result, 'recorded')
  t.match(await found('mail.other.com'), { reports: 1, sources: [{ ip: '203.0.113.10', messages: 20 }] })
  t.match(await found('other.com'), { reports: 0, sources: [] }, 'it is none of ours')
  const forged = google(facts({ domain: 'evil.example' })).replaceAll(
    '<header_from>evil.example',
    '<header_from>acme.com',
  )
  const before = await found()
  t.match(await bring(mailWith(gzipFile(forged))), taken)
  t.match(last(), { kind: 'authentication-report', result: 'refused', reason: /no record .* about evil\.example/ })
  t.same(await found(), before)
})

t.test('only days that can be reported now count', async (t) => {
  const before = await found()
  for (const days of [-3, 31, 400]) {
    const begin = yesterday() - days * (DAY / 1_000)
    t.match(await bring(mailWith(gzipFile(google(facts({ begin, reportId: `day ${days}` }))))), taken)
    t.match(last(), { kind: 'dmarc-report', result: 'wrong-day', reason: new RegExp(dayOf(begin)) })
  }
  t.same(await found(), before)
})

t.test('sessions of TLS count for a sending domain, and for the names of this server', async (t) => {
  const tls = (domain: string) => parts.store.tlsDays(domain, '2000-01-01', '2100-01-01')
  const day = dayOf(yesterday())
  t.match(await bring(mailWith(tlsFile(rfc8460(facts())))), taken)
  t.match(last(), { kind: 'tls-report', result: 'recorded' })
  await bring(mailWith(tlsFile(rfc8460(facts()))))
  t.equal(last().result, 'repeated')
  await bring(mailWith(tlsFile(rfc8460(facts({ domain: 'bounces.acme.com', reportId: '2' })))))
  t.same(await tls('acme.com'), [
    { day, result: 'certificate-expired', sessions: 200 },
    { day, result: 'starttls-not-supported', sessions: 400 },
    { day, result: 'success', sessions: 10_652 },
    { day, result: 'validation-failure', sessions: 6 },
  ])
  await bring(mailWith(tlsFile(rfc8460(facts({ domain: HOSTNAME })))))
  t.match(await tls(HOSTNAME), { length: 4 })
  await bring(mailWith(tlsFile(rfc8460(facts({ domain: 'evil.example' })))))
  t.equal(last().result, 'unknown-domain')
  t.same(await tls('evil.example'), [])
})

t.test('bombs change nothing, and the door goes on', async (t) => {
  const before = await found()
  const kept = (await parts.store.listUnmatchedReports(100)).length
  for (const [name, file] of Object.entries(BOMBS)) {
    t.match(await bring(mailWith(file)), taken, name)
    t.match(last(), { kind: 'authentication-report', result: 'refused', reason: /^(?:the|reading) / }, name)
  }
  t.same(await found(), before)
  t.equal((await parts.store.listUnmatchedReports(100)).length, kept, 'nothing of them is kept')
  t.match(await bring(mailWith(gzipFile(google(facts({ reportId: 'behind the bombs' }))))), taken)
  t.equal(last().result, 'recorded')
})

t.test('what the reporter writes is stored as one short line of text', async (t) => {
  const name = `&#x1b;[31m<![CDATA[<b>Evil</b>]]>\u202e\r\n${'x'.repeat(500)}`
  const report = google(facts({ reportId: `a\u0007b${'9'.repeat(500)}` })).replace('google.com', name)
  t.match(await bring(mailWith(gzipFile(report))), taken)
  t.equal(last().result, 'recorded')
  const { reporters } = await found()
  const evil = reporters.find((each) => each.includes('Evil'))
  t.match(evil, /^\[31m<b>Evil<\/b> x{80,}$/)
  t.ok((evil ?? '').length <= 120)
})

t.test('any other mail to that address is read as one to the address for complaints', async (t) => {
  const { messageId, complaintToken } = await parts.deliveredMessage('grace@example.com')
  t.match(await bring(feedbackReport('abuse', [`CFBL-Feedback-ID: ${complaintToken}`])), taken)
  t.match(last(), { kind: 'complaint', result: 'recorded', message_id: messageId })
  t.match(await bring('Subject: hello\r\n\r\nHow are you?'), taken)
  t.match(last(), { result: 'unmatched' })
})

t.test('a store that does not answer is a temporary refusal', async (t) => {
  const failing = async (): Promise<never> => Promise.reject(new Error('disk'))
  const { port: other } = await parts.reports({ store: { ...parts.store, recordDmarcReport: failing } })
  t.match(await bring(mailWith(gzipFile(google(facts({ reportId: 'later' })))), [DMARC], other), /^451 4\.3\.0 /)
  t.match(await bring(mailWith(gzipFile(google(facts({ reportId: 'later' }))))), taken)
  t.equal(last().result, 'recorded', 'it comes again')
})

t.test('the thread has a limit of memory, and the next report starts another one', async (t) => {
  const thread = createAuthenticationThread({ logger: createLogger({ level: 'silent' }) })
  t.teardown(() => thread.stop())
  const mail = Buffer.from(mailWith(gzipFile(google(facts()))))
  const [first, second] = await Promise.all([thread.read(mail), thread.read(mail)])
  t.match([first, second], [{ kind: 'dmarc' }, { kind: 'dmarc' }])
  t.ok(mail.includes('Content-Type'), 'the mail itself stays')
  const reading = thread.read(mail)
  await new Promise((resolve) => setImmediate(resolve))
  await thread.stop()
  t.match(await reading, { kind: /refused|dmarc/ })
  t.match(await thread.read(mail), { kind: 'dmarc' })
})
