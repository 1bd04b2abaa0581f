/**
 * Mail that came as it is: our fields on top, its own bytes below, and tracking inside of its html.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { trackedHtmlOf } from '../../src/content/prepare-content.ts'
import { renderMessage } from '../../src/content/render-message.ts'
import { findSubmittedHtml, readSubmittedMail } from '../../src/content/mime/submitted-mail.ts'
import type { StoredContent } from '../../src/mail/message.ts'
import { brokenLimits, dkimVerdict, input, parse, type Change } from './render-input.ts'

const MIME_CORPUS = new URL('../../../shared/corpora/mime/', import.meta.url)
const CRLF = '\r\n'
const TARGET = 'https://acme.com/x'
const LINK = `<html><body><a href="${TARGET}">Gr\u00fc\u00dfe</a></body></html>`
const TRACKED = /<a href="https:\/\/t\.acme\.com\/c\/[a-z2-7]{56}">Gr\S+e<\/a><img src="https:\/\/t\.acme\.com\/o\//

const HEADER = [
  'From: Acme <orders@acme.com>',
  'To: ada@example.net',
  'Subject: Order',
  'Date: Sat, 21 Nov 2026 09:00:00 +0100',
  'Message-ID: <own@acme.com>',
  'MIME-Version: 1.0',
]

function mailOf(header: readonly string[], body: string | Buffer): Buffer {
  return Buffer.concat([Buffer.from([...header, '', ''].join(CRLF)), Buffer.from(body)])
}

const multipart = (type: string, boundary: string, parts: readonly string[]): string =>
  [
    `Content-Type: multipart/${type}; boundary="${boundary}"`,
    '',
    'preamble',
    ...parts.flatMap((part) => [`--${boundary}`, part]),
    `--${boundary}--`,
    'epilogue',
    '',
  ].join(CRLF)

function submit(raw: Uint8Array, change: Partial<StoredContent> = {}, rest: Omit<Change, 'content'> = {}) {
  return renderMessage(
    input({ ...rest, content: { raw, html: null, text: null, subject: 'Order', hasVariables: false, ...change } }),
  )
}

/** What stands below the signature and our fields. */
const belowOurs = (bytes: Buffer): string => bytes.toString('latin1').slice(bytes.indexOf('\r\nFrom:') + 2)

t.test('a submitted mail is sent as it came, below our fields, and signed', async (t) => {
  const bodies: [string, string | Buffer][] = [
    ['text', 'Hello\r\n.\r\n..\r\n'],
    ['8-bit text', 'Gr\u00fc\u00dfe\r\n'],
    ['nothing', ''],
    ['no line end', 'x'],
    ['other bytes', Buffer.from([0xff, 0xfe, 0x41, 13, 10])],
  ]
  for (const [name, body] of bodies) {
    const raw = mailOf([...HEADER, 'X-Own: \tfolded', '  here'], body)
    const bytes = await submit(raw)
    t.ok(bytes.subarray(-raw.length).equals(raw), `${name}: every byte`)
    t.equal((await dkimVerdict(bytes)).result, 'pass', name)
    const { keys } = await parse(bytes)
    t.strictSame(keys.slice(0, 3), ['dkim-signature', 'x-sternpost-ref', 'feedback-id'], name)
    t.equal(keys.filter((key) => key === 'message-id').length, 1)
  }
})

t.test('a line above 998 octets is signed as it is sent, and html with it is tracked', async (t) => {
  const long = `<i>${'long '.repeat(300)}</i>`
  const text = `Content-Type: text/plain\r\n\r\n${long}\r\n`
  const html = `Content-Type: text/html\r\n\r\n${LINK.replace('\u00fc\u00df', 'ue')}${long}\r\n`
  const raw = mailOf(HEADER.slice(0, -1), '').subarray(0, -CRLF.length)
  const mime = [text, html, multipart('alternative', 'b', [text, html])]
  for (const tracking of [
    { opens: false, clicks: false },
    { opens: true, clicks: true },
  ]) {
    for (const part of mime) {
      const whole = Buffer.concat([raw, Buffer.from(part)])
      const bytes = await submit(whole, { tracking })
      t.strictSame(brokenLimits(bytes), [])
      t.equal((await dkimVerdict(bytes)).result, 'pass')
      const { mail, keys } = await parse(bytes)
      t.match(mail.text ?? mail.html, long)
      t.equal(keys.filter((key) => key === 'mime-version').length, 1)
      t.equal(TRACKED.test(mail.html ?? ''), tracking.opens && part !== text)
      t.ok(bytes.equals(await submit(whole, { tracking })), 'the same bytes again')
    }
  }
})

t.test('Date and Message-ID are added only where they are missing, and our names are ours', async (t) => {
  const bare = await submit(mailOf(['From: a@acme.com', 'Subject: x'], 'x\r\n'))
  const { mail, keys } = await parse(bare)
  t.match(mail.messageId, /^<[a-z2-7]{48}@acme\.com>$/)
  t.equal(mail.date, '2026-11-21T12:00:00.000Z')
  t.equal((await dkimVerdict(bare)).result, 'pass')
  t.strictSame(
    keys.filter((key, index) => keys.indexOf(key) !== index),
    [],
  )

  const theirs = [
    'Feedback-ID: theirs',
    'x-sternpost-ref: forged',
    'CFBL-Address: x@y.z',
    'List-Unsubscribe: <mailto:x@y.z>',
  ]
  const raw = mailOf([...HEADER, ...theirs], 'x\r\n')
  const plain = await parse(await submit(raw))
  const valuesOf = (found: typeof plain, name: string) =>
    found.mail.headers.filter(({ key }) => key === name).map(({ value }) => value)
  t.strictSame(valuesOf(plain, 'feedback-id'), ['0:acme.com:transactional:sternpost1'])
  t.equal(valuesOf(plain, 'x-sternpost-ref').length, 1)
  t.not(valuesOf(plain, 'x-sternpost-ref')[0], 'forged')
  t.strictSame(valuesOf(plain, 'list-unsubscribe'), ['<mailto:x@y.z>'], 'of a mail without a list of ours')
  const unsubscribe = { list: 'news', url: null }
  const listed = await parse(await submit(raw, { unsubscribe }, { settings: { cfbl: true } }))
  t.match(valuesOf(listed, 'list-unsubscribe'), [/^<https:\/\/t\.acme\.com\/u\//])
  t.match(valuesOf(listed, 'cfbl-address'), [/^f-/])
})

t.test('a foreign signature stays, and ours stands above it', async (t) => {
  const raw = mailOf(['DKIM-Signature: v=1; d=other.test; s=x;', ' b=abc=', ...HEADER], 'x\r\n')
  const { mail } = await parse(await submit(raw))
  const signatures = mail.headers.filter(({ key }) => key === 'dkim-signature').map(({ value }) => value)
  t.match(signatures, [/d=acme\.com/, /d=other\.test/])
})

const tracking = { opens: true, clicks: true }
const qp = LINK.replaceAll('=', '=3D').replace('\u00fc\u00df', '=C3=BC=C3=\r\n=9F')
const base64 = Buffer.from(LINK).toString('base64').replace(/.{76}/g, '$&\r\n')
const encodedPart = (type: string, encoding: string, body: string): string =>
  [`Content-Type: ${type}`, `Content-Transfer-Encoding: ${encoding}`, '', body, ''].join(CRLF)
const HTML_PARTS: [string, string][] = [
  ['quoted-printable', encodedPart('text/html; charset=utf-8', 'quoted-printable', qp)],
  ['base64', encodedPart('text/html; charset="UTF-8"', 'base64', base64)],
  ['8bit', encodedPart('TEXT/HTML; charset=utf-8', '8bit', LINK)],
  ['no encoding', `Content-Type: text/html\r\n\r\n${LINK.replace('\u00fc\u00df', 'ue')}\r\n`],
]

t.test('links and pixel come into the html, wherever it stands, and no other byte changes', async (t) => {
  for (const [name, part] of HTML_PARTS) {
    const text = 'Content-Type: text/plain\r\n\r\nhttps://acme.com/x\r\n'
    const picture = 'Content-Type: image/png\r\n\r\nx\r\n'
    const attached =
      'Content-Type: text/html\r\nContent-Disposition: attachment\r\n\r\n<a href="https://a.b/">x</a>\r\n'
    const alternative = multipart('alternative', 'alt', [text, part])
    const shapes: [string, string][] = [
      ['alone', part],
      ['an alternative', alternative],
      ['nested', multipart('mixed', 'mix', [attached, multipart('related', 'rel', [alternative, picture])])],
    ]
    for (const [shape, mime] of shapes) {
      const raw = Buffer.from([...HEADER, mime].join(CRLF))
      const plain = belowOurs(await submit(raw))
      const bytes = await submit(raw, { tracking })
      const { mail } = await parse(bytes)
      const title = `${name}, ${shape}`
      t.match(mail.html, TRACKED, title)
      const withoutTracking = mail.html?.replace(/<img [^>]*>/, '').replace(/https:\/\/t\.acme\.com\/c\/\w+/, TARGET)
      t.equal(withoutTracking?.trim(), trackedHtmlOf({ raw, html: null })?.trim(), `${title}: the rest of the html`)
      t.equal((await dkimVerdict(bytes)).result, 'pass', title)
      t.strictSame(brokenLimits(bytes), [], title)
      const tracked = belowOurs(bytes)
      const start = plain.indexOf('\r\n\r\n', plain.toLowerCase().lastIndexOf('text/html; ') + 1)
      if (name !== '8bit' && name !== 'no encoding' && shape !== 'alone') {
        t.equal(tracked.slice(0, start), plain.slice(0, start), `${title}: all in front of it`)
        const tail = plain.slice(plain.lastIndexOf('\r\n--alt--'))
        t.ok(tracked.endsWith(tail), `${title}: all behind it`)
      }
      t.ok(bytes.equals(await submit(raw, { tracking })), `${title}: the same bytes again`)
    }
  }
})

t.test('what is odd about a mail leaves it as it came', async (t) => {
  const html = 'Content-Type: text/html\r\n\r\n<a href="https://a.b/">x</a>\r\n'
  const nested = (depth: number): string => (depth === 0 ? html : multipart('mixed', `b${depth}`, [nested(depth - 1)]))
  const cases: [string, string][] = [
    ['no closing delimiter', multipart('mixed', 'b', [html]).replace('--b--', '--c--')],
    ['no boundary', multipart('mixed', 'b', [html]).replace('boundary="b"', 'x=y')],
    ['a boundary in pieces', multipart('mixed', 'b', [html]).replace('boundary="b"', 'boundary*0="b"')],
    ['another character set', html.replace('text/html', 'text/html; charset=utf-16')],
    ['bytes of no character set', html.replace('>x<', '>\u00ff<').replace('text/html', 'text/html; charset=utf-8')],
    ['two types', `Content-Type: text/plain\r\n${html}`],
    ['two encodings', `Content-Transfer-Encoding: 7bit\r\nContent-Transfer-Encoding: 8bit\r\n${html}`],
    ['an unknown encoding', `Content-Transfer-Encoding: x-uuencode\r\n${html}`],
    ['no base64', `Content-Transfer-Encoding: base64\r\n${html}`],
    ['no quoted-printable', `Content-Transfer-Encoding: quoted-printable\r\n${html.replace('="', '=zz"')}`],
    ['a signature over the html', multipart('signed', 'b', [html, 'Content-Type: text/plain\r\n\r\nx\r\n'])],
    ['encrypted', multipart('encrypted', 'b', [html])],
    ['a mail within', `Content-Type: message/rfc822\r\n\r\n${html}`],
    ['an attachment', `Content-Disposition: attachment; filename=x.html\r\n${html}`],
    ['a file shown inline', `Content-Disposition: inline; filename*=utf-8''x.html\r\n${html}`],
    ['a named file', html.replace('text/html', 'text/html; name=x.html')],
    ['too deep', nested(30)],
    ['a boundary that nobody writes', multipart('mixed', 'b'.repeat(251), [html])],
    ['too many lines like delimiters', multipart('mixed', 'b', [`\r\n${'--c\r\n'.repeat(20_000)}`, html])],
    ['headers that are too long', multipart('mixed', 'b', [`X-A: ${'a'.repeat(2 ** 19)}\r\n\r\n`, html])],
    ['no html', 'Content-Type: text/plain\r\n\r\nhttps://a.b/\r\n'],
  ]
  for (const [name, mime] of cases) {
    const raw = Buffer.from([...HEADER, mime].join(CRLF), 'latin1')
    const bytes = await submit(raw, { tracking })
    t.ok(bytes.subarray(-raw.length).equals(raw), name)
    t.equal((await dkimVerdict(bytes)).result, 'pass', name)
  }
  const deep = Buffer.from([...HEADER, nested(15)].join(CRLF))
  t.match(findSubmittedHtml(deep)?.html, 'https://a.b/', 'fifteen levels are no oddity')
})

t.test('any bytes at all are taken apart and put together again', async (t) => {
  const pieces = fc.constantFrom(
    '\r\n',
    '\r\n\r\n',
    '--b',
    '--b--',
    '--b\r\n',
    ': ',
    'Content-Type: multipart/mixed; boundary=b',
    ' ',
    '\r',
    '\n',
    'Content-Type: text/html',
    'Content-Transfer-Encoding: base64',
    'Content-Transfer-Encoding: quoted-printable',
    '<a href="https://a.b/">',
    '</body>',
    '=',
    '=3D',
    'YQ==',
    '\u00ff',
  )
  const raw = fc
    .array(fc.oneof(pieces, fc.string()), { maxLength: 30 })
    .map((parts) => Buffer.from(parts.join(''), 'latin1'))
  const property = fc.property(raw, (bytes) => {
    const { fields, rest } = readSubmittedMail(bytes)
    const found = findSubmittedHtml(bytes)
    const whole = Buffer.concat([Buffer.from(fields.join(''), 'latin1'), rest])
    const isSame =
      whole.equals(bytes) ||
      whole.equals(Buffer.concat([bytes, Buffer.from('\r\n\r\n')])) ||
      whole.equals(Buffer.concat([bytes, Buffer.from('\r\n')])) ||
      !bytes.includes('\r\n\r\n')
    const again = found?.replace(found.html)
    return (
      isSame &&
      (found === undefined ||
        again === undefined ||
        findSubmittedHtml(Buffer.concat([Buffer.from(again.fields.join(''), 'latin1'), again.rest])) !== undefined)
    )
  })
  fc.assert(property, { numRuns: process.env['TEST_SCALE'] === 'full' ? 100_000 : 3_000 })
  t.pass('3,000 mails')
})

t.test('a mail made to be slow is taken apart in linear time', async (t) => {
  const parts = `--b\r\n\r\n`.repeat(200_000)
  const quotes = '\\"'.repeat(30_000)
  const slow: [string, string][] = [
    ['many parts', `Content-Type: multipart/mixed; boundary=b\r\n\r\n${parts}--b--\r\n`],
    ['many boundaries that are none', `Content-Type: multipart/mixed; boundary=b\r\n\r\n${'--bb\r\n'.repeat(300_000)}`],
    ['one long header line', `Content-Type: ${'a'.repeat(2_000_000)}\r\n\r\n`],
    [
      'spaces',
      `Content-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n${' '.repeat(2_000_000)}x`,
    ],
    [
      'a long boundary',
      `Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: multipart/mixed; ` +
        `boundary="ab${'-'.repeat(60_000)}"\r\n\r\n${'-'.repeat(500_000)}\r\n--b--\r\n`,
    ],
    ['a long parameter', `Content-Type: text/html; charset="${quotes}\r\n\r\nx`],
  ]
  for (const [name, text] of slow) {
    const before = process.cpuUsage()
    findSubmittedHtml(Buffer.from(text))
    const { user } = process.cpuUsage(before)
    t.ok(user < 2_000_000, `${name}: ${Math.round(user / 1000)} ms of CPU`)
  }
})

const skip = existsSync(MIME_CORPUS) ? false : 'the corpora are not there'
t.test('every mail of the corpus is signed, and tracked or left alone', { skip }, async (t) => {
  let tracked = 0
  let checked = 0
  for (const entry of readdirSync(MIME_CORPUS, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.eml')) continue
    const file = readFileSync(`${entry.parentPath}/${entry.name}`, 'latin1')
    // The line of a mailbox file is no part of its mail.
    const raw = file.replace(/^From .*\r?\n/, '').replace(/\r\n|\r|\n/g, CRLF)
    const bytes = await submit(Buffer.from(raw, 'latin1'), { tracking })
    if ((await dkimVerdict(bytes)).result !== 'pass') t.fail(`${entry.name}: the signature`)
    const html = findSubmittedHtml(Buffer.from(raw, 'latin1'))
    if (html !== undefined) tracked++
    if ((html === undefined) !== bytes.toString('latin1').endsWith(raw)) t.fail(`${entry.name}: changed or not`)
    checked++
  }
  t.ok(checked > 10, `${checked} mails, ${tracked} tracked`)
})
