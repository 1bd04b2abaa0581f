/**
 * Reading DMARC and TLS reports: published samples and the forms of large providers are read right, and nothing that
 * others make of them does harm. 500 changed reports; `TEST_SCALE=full`: 10,000.
 */
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { createAuthenticationThread } from '../../src/inbound/reports/authentication-thread.ts'
import type { AuthenticationReading, DmarcSource } from '../../src/mail/authentication/authentication-report.ts'
import { readAuthenticationReport } from '../../src/mail/authentication/read-authentication-report.ts'
import { readDmarcReport } from '../../src/mail/authentication/read-dmarc-report.ts'
import { readTlsReport } from '../../src/mail/authentication/read-tls-report.ts'
import { randomSource } from '../support/random-source.ts'
import {
  bareMail,
  BOMBS,
  DMARC_SAMPLES,
  google,
  gzipFile,
  mailWith,
  rfc7489,
  rfc8460,
  tlsFile,
  zipFile,
  zipOf,
} from './authentication-samples.ts'

const CHANGED = process.env['TEST_SCALE'] === 'full' ? 10_000 : 500
const MEBIBYTE = 1_024 * 1_024

const read = (mail: string): AuthenticationReading => readAuthenticationReport(Buffer.from(mail))
const readXml = (xml: string): AuthenticationReading => readDmarcReport(Buffer.from(xml))

/** Name in From, address, messages, passed by DKIM, by SPF, by either, quarantined, rejected. */
const figures = (source: DmarcSource) => Object.values(source).join(' ')

const SEEN: Record<string, { reporter: string; sources: string[] }> = {
  rfc7489: {
    reporter: 'Receiver Example',
    sources: ['news.acme.com 203.0.113.10 20 20 0 20 0 0', 'acme.com 2001:db8::9 3 0 0 0 3 0'],
  },
  rfc9990: { reporter: 'Sample Reporter', sources: ['acme.com 192.0.2.123 123 123 0 123 0 0'] },
  google: {
    reporter: 'google.com',
    sources: ['acme.com 127.0.0.11 1180 1180 1180 1180 0 0', 'acme.com 203.0.113.9 4 0 0 0 0 0'],
  },
  microsoft: { reporter: 'Enterprise Outlook', sources: ['acme.com 127.0.0.12 5 5 5 5 0 0'] },
  yahoo: { reporter: 'Yahoo', sources: ['acme.com 127.0.0.11 7 7 7 7 0 0'] },
}

t.test('the forms of the standards and of large providers are read right, however they are packed', async (t) => {
  for (const [name, sample] of Object.entries(DMARC_SAMPLES)) {
    const content = sample({ reportId: 'id 1' })
    const plain = { type: 'text/xml', name: 'report.xml', bytes: Buffer.from(content) }
    const stored = { ...zipFile(content), bytes: zipOf(content, { stored: true }) }
    for (const file of [gzipFile(content), zipFile(content), stored, plain]) {
      for (const mail of [bareMail(file), mailWith(file)]) {
        const reading = read(mail)
        if (reading.kind !== 'dmarc') return t.fail(`${name} as ${file.type}: ${JSON.stringify(reading)}`)
        t.match(reading, { reporter: SEEN[name]?.reporter, reportId: 'id 1', day: '2026-11-20' })
        t.same(reading.sources.map(figures), SEEN[name]?.sources, `${name} as ${file.type}`)
      }
    }
  }
})

t.test('a TLS report is read right', async (t) => {
  const expected = {
    kind: 'tls',
    reporter: 'Company-X',
    reportId: '5065427c-23d3-47ca',
    day: '2026-11-20',
    results: [
      { policyDomain: 'acme.com', result: 'success', sessions: 5326 },
      { policyDomain: 'acme.com', result: 'certificate-expired', sessions: 100 },
      { policyDomain: 'acme.com', result: 'starttls-not-supported', sessions: 200 },
      { policyDomain: 'acme.com', result: 'validation-failure', sessions: 3 },
    ],
  }
  const plain = { type: 'application/tlsrpt+json', name: 'report.json', bytes: Buffer.from(rfc8460()) }
  for (const file of [tlsFile(rfc8460()), plain]) t.same(read(mailWith(file)), expected)
  const asTexts = rfc8460().replace(/":(\d+)/g, '":"$1"')
  t.same(readTlsReport(Buffer.from(asTexts)), expected, 'counts as texts')
  const unknown = rfc8460().replace('certificate-expired', '\\u001b[31m made up').replace(':303', ':310')
  t.match(readTlsReport(Buffer.from(unknown)), { results: { 1: { result: 'other', sessions: 107 } } })
})

t.test('what a report cannot know is left out', async (t) => {
  const record = (ip: string, count: string, from: string): string =>
    `<record><row><source_ip>${ip}</source_ip><count>${count}</count></row>
    <identifiers><header_from>${from}</header_from></identifiers></record>`
  const odd = [
    record('999.1.1.1', '5', 'acme.com'),
    record('0x7f.1', '5', 'acme.com'),
    record('203.0.113.1', '-5', 'acme.com'),
    record('203.0.113.1', '1e9', 'acme.com'),
    record('203.0.113.1', '0', 'acme.com'),
    record('203.0.113.1', '5', 'evil.example'),
    record('203.0.113.1', '5', 'notacme.com'),
    record('203.0.113.1', '5', 'a b.acme.com'),
    record('203.0.113.2', '999999999999999', 'ACME.com.'),
    record('203.0.113.3', '1', ''),
  ]
  const reading = readXml(google().replace(/<record>[\s\S]*<\/record>/, odd.join('')))
  if (reading.kind !== 'dmarc') return t.fail(JSON.stringify(reading))
  t.same(reading.sources.map(figures), [
    'acme.com 203.0.113.2 1000000000 0 0 0 0 0',
    'acme.com 203.0.113.3 1 0 0 0 0 0',
  ])
  const many = Array.from({ length: 9_000 }, (_, index) => record(`10.1.${index >> 8}.${index & 255}`, '1', 'acme.com'))
  const large = readXml(google().replace(/<record>[\s\S]*<\/record>/, many.join('')))
  if (large.kind !== 'dmarc') return t.fail(JSON.stringify(large))
  t.equal(large.sources.length, 1_001)
  t.match(large.sources[0], { ip: '', messages: 8_000 }, 'the rest is added up')
})

t.test('a report without what it needs is refused in a sentence', async (t) => {
  const wrong: [RegExp, RegExp][] = [
    [/<org_name>.*?<\/org_name>/, /does not name its reporter/],
    [/<report_id>.*?<\/report_id>/, /has no number/],
    [/<begin>.*?<\/begin>/, /of which day/],
    [/<domain>.*?<\/domain>/, /names no domain/],
    [/<record>[\s\S]*<\/record>/, /no record of the report is about acme\.com/],
    [/<\/feedback>\s*/, /cut/],
    [/feedback/g, /cut, or is no DMARC report/],
  ]
  for (const [what, reason] of wrong) {
    t.match(readXml(google().replace(what, '')), { kind: 'refused', reason })
  }
  t.match(readXml(google() + google()), { kind: 'refused', reason: /goes on behind its end/ })
  t.match(readTlsReport(Buffer.from('{}')), { kind: 'refused' })
  t.match(readTlsReport(Buffer.from('{"policies":[null,{"policy":7},{"__proto__":{"policy":1}}]}')), {
    kind: 'refused',
  })
})

t.test('a mail without a report is none, and of several files the first that can be read counts', async (t) => {
  const text = { type: 'text/plain', name: 'note', bytes: Buffer.from(google()) }
  const picture = { type: 'image/png', name: 'x.zip', bytes: Buffer.from('\u0089PNG') }
  t.same(read(mailWith(text, picture)), { kind: 'none' })
  t.same(read('Subject: hello\r\n\r\n<feedback>'), { kind: 'none' })
  t.same(read(''), { kind: 'none' })
  const damaged = { ...gzipFile(''), bytes: gzipSync('x').subarray(0, 12) }
  t.match(read(mailWith(picture, damaged, zipFile(google()))), { kind: 'dmarc' })
  t.match(read(mailWith(damaged, damaged, damaged, zipFile(google()))), { kind: 'refused' }, 'three files at most')
})

t.test('bombs are refused, in little time and memory', async (t) => {
  for (const [name, file] of Object.entries(BOMBS)) {
    const before = process.memoryUsage()
    const startedAt = performance.now()
    const reading = read(mailWith(file))
    const took = performance.now() - startedAt
    const { heapUsed, external } = process.memoryUsage()
    const grown = heapUsed + external - before.heapUsed - before.external
    t.match(reading, { kind: 'refused', reason: /^the / }, `${name}: ${JSON.stringify(reading)}`)
    t.ok(took < 3_000, `${name} took ${Math.round(took)} ms`)
    t.ok(grown < 64 * MEBIBYTE, `${name} took ${Math.round(grown / MEBIBYTE)} MiB`)
  }
})

// Letters, digits and signs that are not seen, or that move a terminal.
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}]/u

const PIECES = ['<', '>', '</record>', '<record>', '&#0;', '&#x1b;[2J', '&lol;', ']]>', '\u0000', '\u202e', '"', '{']

function changedMails(): Buffer[] {
  const random = randomSource(20_261_121)
  const bodies = [...Object.values(DMARC_SAMPLES).map((sample) => sample()), rfc8460()]
  return Array.from({ length: CHANGED }, () => {
    let body = random.oneOf(bodies)
    for (let changes = random.integer(4); changes >= 0; changes--) {
      const at = random.integer(body.length)
      const end = at + random.integer(random.integer(4) === 0 ? 200 : 3)
      body = body.slice(0, at) + random.oneOf(PIECES).repeat(random.integer(3)) + body.slice(end)
    }
    const file = random.oneOf([gzipFile, zipFile, tlsFile])(body)
    // Half of them are damaged once they are packed, too.
    if (random.integer(2) === 0) file.bytes[random.integer(file.bytes.length)] = random.integer(256)
    return Buffer.from(mailWith(file))
  })
}

t.test(`${CHANGED} changed reports: no error, little memory, nothing but text`, async (t) => {
  const mails = changedMails()
  const thread = createAuthenticationThread({ logger: createLogger({ level: 'silent' }) })
  t.teardown(() => thread.stop())
  const kinds = new Map<string, number>()
  // The thread starts with the first of them, and counts.
  const { rss } = process.memoryUsage()
  let most = 0
  for (const [number, mail] of mails.entries()) {
    const reading = await thread.read(mail)
    kinds.set(reading.kind, (kinds.get(reading.kind) ?? 0) + 1)
    const texts = JSON.stringify(reading, (_key, value: unknown) =>
      typeof value === 'string' && UNPRINTABLE.test(value) ? t.fail(`${number}: ${JSON.stringify(value)}`) : value,
    )
    if (texts.length > 20_000) t.fail(`${number}: ${texts.length} characters`)
    most = Math.max(most, process.memoryUsage().rss - rss)
  }
  t.ok((kinds.get('refused') ?? 0) > CHANGED / 10, JSON.stringify([...kinds]))
  t.ok((kinds.get('dmarc') ?? 0) > CHANGED / 20, 'some can still be read')
  t.ok(most < 64 * MEBIBYTE, `${Math.round(most / MEBIBYTE)} MiB at most`)
})

t.test('names of other elements and prototypes mean nothing', async (t) => {
  const odd = rfc7489().replaceAll('<count>', '<__proto__>x</__proto__><constructor>9</constructor><count>')
  t.match(readXml(odd), { kind: 'dmarc', sources: { length: 2 } })
})
