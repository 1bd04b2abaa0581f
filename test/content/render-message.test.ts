/**
 * The bytes of a message: header fields, MIME tree, limits of lines, determinism, and that nothing can be injected.
 */
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import fc from 'fast-check'
import PostalMime from 'postal-mime'
import t from 'tap'
import { mailboxField, textField } from '../../src/content/mime/encode-header.ts'
import { prepareContent } from '../../src/content/prepare-content.ts'
import { renderMessage } from '../../src/content/render-message.ts'
import type { StoredContent } from '../../src/mail/message.ts'
import { readComplaintToken } from '../../src/mail/message-token.ts'
import { attachment, brokenLimits, input, KEYS, MESSAGE_ID, parse, storedContent } from './render-input.ts'

const STRINGS = new URL('../../../shared/corpora/strings/blns.json', import.meta.url)
const HEADERS_ALWAYS = [
  'dkim-signature',
  'from',
  'to',
  'subject',
  'date',
  'message-id',
  'x-sternpost-ref',
  'feedback-id',
  'mime-version',
  'content-type',
]

t.test('a message has exactly the header fields of the design, each once', async (t) => {
  const bytes = await renderMessage(input({ content: { replyTo: [{ name: null, address: 'help@acme.com' }] } }))
  const { mail, keys } = await parse(bytes)
  t.strictSame(keys.toSorted(), [...HEADERS_ALWAYS, 'content-transfer-encoding', 'reply-to'].toSorted())
  t.equal(keys[0], 'dkim-signature', 'the signature stands first')
  const text = bytes.toString()
  t.match(text, '\r\nFrom: Acme <orders@acme.com>\r\nTo: ada@example.net\r\nReply-To: help@acme.com\r\n')
  t.match(text, '\r\nSubject: Order 1042\r\n')
  t.match(text, '\r\nDate: Sat, 21 Nov 2026 12:00:00 +0000\r\n')
  t.match(text, '\r\nFeedback-ID: 0:acme.com:transactional:sternpost1\r\n')
  const token = /\r\nMessage-ID: <([a-z2-7]{48})@acme\.com>\r\n/.exec(text)?.[1] ?? ''
  t.equal(readComplaintToken(token, KEYS.complaint), MESSAGE_ID, 'Message-ID names the message')
  t.match(text, `\r\nX-Sternpost-Ref: ${token}\r\n`)
  t.equal(mail.text?.trim(), 'Hi Ada')
  const bare = await parse(await renderMessage(input({ settings: { referenceHeader: null } })))
  t.notOk(bare.keys.includes('x-sternpost-ref'), 'the reference can be turned off')
})

t.test('the same message has the same bytes on every attempt, and other bytes than its neighbour', async (t) => {
  const full = { html: '<p>{{name}}</p>', text: null, attachments: [attachment({})] }
  const first = await renderMessage(input({ content: full }))
  t.ok(first.equals(await renderMessage(input({ content: structuredClone(full) }))))
  const other = await renderMessage(input({ content: full, facts: { messageId: 'msg_01kapg6t3vq8x2m5r7w9y4c6dn' } }))
  const boundary = /boundary="(=_[^"]+)"/
  t.not(boundary.exec(first.toString())?.[1], boundary.exec(other.toString())?.[1])
  t.match(boundary.exec(first.toString())?.[1], /^=_-[0-9a-f]{24}-Part_\d$/)
})

t.test('the MIME tree follows what was given', async (t) => {
  const html = '<p>Hi &amp; bye <img src="cid:logo"></p>'
  const logo = attachment({ name: 'logo.png', contentType: 'image/png', contentId: 'logo', bytes: Buffer.alloc(99, 1) })
  const invitation = attachment({ name: 'invite.ics', contentType: 'text/calendar; charset=utf-8; method=REQUEST' })
  interface Expected {
    text: string | undefined
    html: string | undefined
    files: string[]
  }
  const cases: [string, Partial<StoredContent>, string, Expected][] = [
    ['text alone', { text: 'T' }, 'text/plain', { text: 'T', html: undefined, files: [] }],
    ['html alone with text turned off', { text: '', html }, 'text/html', { text: undefined, html, files: [] }],
    ['html with generated text', { text: null, html }, 'multipart/alternative', { text: 'Hi & bye', html, files: [] }],
    ['html with given text', { text: 'T', html }, 'multipart/alternative', { text: 'T', html, files: [] }],
    [
      'text with a file',
      { text: 'T', attachments: [attachment({})] },
      'multipart/mixed',
      { text: 'T', html: undefined, files: ['attachment file.txt'] },
    ],
    [
      'a file alone',
      { text: '', attachments: [attachment({ contentType: 'application/pdf' })] },
      'application/pdf',
      { text: undefined, html: undefined, files: ['attachment file.txt'] },
    ],
    [
      'all',
      { text: 'T', html, attachments: [logo, attachment({})] },
      'multipart/mixed',
      { text: 'T', html, files: ['inline logo.png', 'attachment file.txt'] },
    ],
    [
      'an inline picture',
      { text: null, html, attachments: [logo] },
      'multipart/alternative',
      { text: 'Hi & bye', html, files: ['inline logo.png'] },
    ],
    [
      'an invitation',
      { text: null, html, attachments: [logo, invitation] },
      'multipart/alternative',
      { text: 'Hi & bye', html, files: ['inline logo.png', 'null invite.ics'] },
    ],
    [
      'several invitations',
      { text: 'T', attachments: [invitation, { ...invitation, name: 'other.ics' }] },
      'multipart/mixed',
      { text: 'T', html: undefined, files: ['attachment invite.ics', 'attachment other.ics'] },
    ],
    ['nothing at all', { text: '', html: '' }, 'text/plain', { text: undefined, html: undefined, files: [] }],
  ]
  for (const [name, content, type, expected] of cases) {
    const bytes = await renderMessage(input({ content }))
    const { mail, keys } = await parse(bytes)
    t.match(mail.headers.find((header) => header.key === 'content-type')?.value, type, name)
    t.equal(mail.text?.trim() === '' ? undefined : mail.text?.trim(), expected.text, `${name}: text`)
    t.equal(mail.html?.trim(), expected.html, `${name}: html`)
    const files = mail.attachments.map((file) => `${file.disposition} ${file.filename}`)
    t.strictSame(files, expected.files, `${name}: files`)
    t.ok(keys.includes('mime-version'), `${name}: version`)
    t.strictSame(brokenLimits(bytes), [], `${name}: limits`)
    t.strictSame(
      keys.filter((key, index) => keys.indexOf(key) !== index),
      [],
      `${name}: no field twice`,
    )
  }
})

t.test('large attachments are the same bytes, whether several messages have them or one', async (t) => {
  const inline = { contentId: 'logo', contentType: 'image/png' }
  const sizes = [0, 1, 56, 57, 58, 262_144, 262_145, 57 * 1_024 * 5, 57 * 1_024 * 5 + 1, 1_000_003]
  const attachments = sizes.map((size, index) =>
    attachment({ ...(index === 7 ? inline : {}), name: `${index}.bin`, bytes: randomBytes(size) }),
  )
  const content = { html: '<img src="cid:logo">', attachments }
  const alone = input({ content })
  const shared = { ...alone, content: prepareContent(storedContent(content), true) }
  const bytes = await renderMessage(alone)
  t.ok(bytes.equals(await renderMessage(shared)))
  t.same(brokenLimits(bytes), [])
  const { attachments: found } = (await parse(bytes)).mail
  t.equal(found.length, attachments.length)
  for (const { name, bytes: given } of attachments) {
    const file = found.find(({ filename }) => filename === name)
    t.ok(Buffer.from(file?.content as ArrayBuffer).equals(given), name)
  }
})

t.test('attachments arrive byte for byte under their names, and cannot be more than a file', async (t) => {
  const every = Uint8Array.from({ length: 70_000 }, (_, index) => (index * 7) % 256)
  const attachments = [
    attachment({ name: 'Größe 名前 "q" \\ .pdf', contentType: 'application/pdf', bytes: every }),
    attachment({ name: `${'x'.repeat(250)}.bin`, bytes: every.subarray(1, 5) }),
    attachment({ name: 'empty', bytes: new Uint8Array(0) }),
    attachment({ name: 'mail.eml', contentType: 'message/rfc822', bytes: Buffer.from('From: a\n.\n\0\r') }),
    attachment({ name: 'm', contentType: 'multipart/mixed; boundary=x', bytes: Buffer.from('--x--') }),
    attachment({ name: 't', contentType: 'text/plain\r\nX-Evil: 1', bytes: Buffer.from('x') }),
    attachment({ name: '日'.repeat(200), contentType: 'nonsense', bytes: Buffer.from('x') }),
    attachment({ name: 'ﷺ'.repeat(255), bytes: Buffer.from('x') }),
    attachment({ name: 'a\r\nX-Evil: 1', contentType: 'image/png', contentId: 'id\r\nX-Evil: 1' }),
  ]
  const bytes = await renderMessage(input({ content: { attachments } }))
  t.strictSame(brokenLimits(bytes), [])
  const { mail, keys } = await parse(bytes)
  t.equal(mail.attachments.length, attachments.length)
  for (const [index, given] of attachments.entries()) {
    const found = mail.attachments[index]
    const content = found?.content instanceof ArrayBuffer ? Buffer.from(found.content) : Buffer.from('')
    t.ok(content.equals(given.bytes), `${index}: the bytes`)
  }
  const [names, types] = [mail.attachments.map((file) => file.filename), mail.attachments.map((file) => file.mimeType)]
  t.strictSame(
    names.slice(0, 3),
    attachments.slice(0, 3).map((file) => file.name),
  )
  t.strictSame([...new Set(types.slice(3, 7))], ['application/octet-stream'])
  t.notOk(keys.includes('x-evil'))
  t.notMatch(bytes.toString(), /^X-Evil/im, 'no field anywhere')
})

t.test('header text of any language arrives as it was written', async (t) => {
  const texts = [
    '',
    'plain',
    'two  spaces',
    ' at the ends ',
    'a'.repeat(998),
    'word '.repeat(199).trim(),
    'Größe',
    '名前'.repeat(200),
    '😀'.repeat(300),
    '=?UTF-8?Q?looks_encoded?=',
    'a =?x?= b',
    'tab\there',
    'quotes " and \\ and <>',
    'comma, (comment)',
    'mixed ascii then ünïcode',
    'Re: [list] x',
    `${'x'.repeat(100)} ü`,
    'a\u2028line\u2029separators',
  ]
  for (const subject of texts) {
    const facts = { to: { name: subject, address: 'a@b.com' } }
    const bytes = await renderMessage(input({ content: { subject, hasVariables: false }, facts }))
    const { mail } = await parse(bytes)
    t.strictSame(brokenLimits(bytes), [])
    t.equal(mail.subject ?? '', subject, `subject ${JSON.stringify(subject.slice(0, 30)).replace(/[^ -~]/gu, '?')}`)
    // The parser used here trims names; parseAddress has done so before.
    t.strictSame(mail.to?.[0], { name: subject.trim(), address: 'a@b.com' }, 'display name')
    const longest = Math.max(
      ...bytes
        .toString('latin1')
        .split('\r\n')
        .map((line) => line.length),
    )
    t.ok(longest < 100, `lines are folded (${longest})`)
  }
})

t.test('any subject and display name survive the way through a parser', async (t) => {
  const special = fc.constantFrom(' ', '=?', '?=', '"', ',', '<', '\\')
  const words = fc.oneof(fc.string(), fc.string({ unit: 'grapheme' }), special)
  const value = fc.array(words, { maxLength: 8 }).map((parts) => parts.join('').replace(/\p{Cc}/gu, ''))
  const property = fc.asyncProperty(
    value.filter((text) => text.isWellFormed()),
    async (text) => {
      const name = text.trim() === '' ? null : text.trim()
      const fields = textField('Subject', text) + mailboxField('From', { name, address: 'a@b.com' })
      const mail = await PostalMime.parse(`${fields}\r\nbody\r\n`)
      return (
        (mail.subject ?? '') === text &&
        (mail.from?.name ?? '') === (name ?? '') &&
        mail.from?.address === 'a@b.com' &&
        mail.headers.length === 2 &&
        !/[^\r]\n|\r[^\n]/.test(fields)
      )
    },
  )
  await fc.assert(property, { numRuns: 500 })
  t.pass('500 values')
})

t.test('bodies keep their text, with every kind of line end and of dot', async (t) => {
  const ends = [
    '\n.\n',
    '\n.\r',
    '\r.\n',
    '\r.\r',
    '\n.\r\n',
    '\r.\r\n',
    '\r\n.\n',
    '\r\n.\r',
    '\r\n.\r\n',
    '\r\n.\r\r\n',
    '\r\r\n.\r\r\n',
  ]
  for (const end of ends) {
    const text = `before${end}MAIL FROM:<evil@x.com>${end}after`
    const bytes = await renderMessage(input({ content: { text, html: `<p>${text}</p>`, hasVariables: false } }))
    t.strictSame(brokenLimits(bytes), [], JSON.stringify(end))
    const { mail } = await parse(bytes)
    t.equal(mail.text?.trimEnd(), text.replace(/\r\n|\r|\n/g, '\n').trimEnd(), 'every line is there')
  }
  const long = ['x'.repeat(10_000), `${'ä'.repeat(5_000)}\n`]
  for (const text of [...long, 'a\u0000b', 'trailing  \n\t\n', '.\n..\n', 'From me\n', '']) {
    const bytes = await renderMessage(input({ content: { text, hasVariables: false } }))
    t.strictSame(brokenLimits(bytes), [])
    const { mail } = await parse(bytes)
    if (!text.includes('\0')) t.equal(mail.text?.trimEnd() ?? '', text.trimEnd(), JSON.stringify(text.slice(0, 20)))
  }
})

t.test('an address in another script stays itself in the header', async (t) => {
  const bytes = await renderMessage(input({ facts: { to: { name: 'Jõ', address: 'jõgeva@xn--jgeva-dua.ee' } } }))
  t.match(bytes.toString(), '<jõgeva@xn--jgeva-dua.ee>\r\n')
})

const skipStrings = existsSync(STRINGS) ? false : 'the corpora are not there'
t.test('naughty strings add no field and no recipient', { skip: skipStrings }, async (t) => {
  const strings: unknown = JSON.parse(readFileSync(STRINGS, 'utf8'))
  const naughty = (Array.isArray(strings) ? strings : []).filter((value): value is string => typeof value === 'string')
  t.ok(naughty.length > 400, 'the strings were read')
  let checked = 0
  // Controls are refused before; a byte order mark is dropped by the parser used here.
  for (const value of naughty.map((text) => text.toWellFormed().replace(/[\p{Cc}\ufeff]/gu, ''))) {
    const bytes = await renderMessage(
      input({
        content: {
          from: { name: value, address: 'orders@acme.com' },
          subject: '{{value}}',
          text: '{{value}}',
          html: '<p title="{{value}}">{{value}}</p>',
          attachments: [attachment({ name: value === '' ? 'x' : value })],
        },
        facts: { variables: { value } },
      }),
    )
    const { mail, keys } = await parse(bytes)
    const isIntact = (mail.subject ?? '') === value && mail.to?.length === 1 && mail.from?.address === 'orders@acme.com'
    if (!isIntact) t.fail(`not intact: ${JSON.stringify(value)}`)
    if (keys.toSorted().join() !== HEADERS_ALWAYS.toSorted().join()) t.fail(`fields: ${keys.join()}`)
    const problems = brokenLimits(bytes)
    if (problems.length > 0) t.fail(`${problems.join()} by ${JSON.stringify(value)}`)
    checked++
  }
  t.ok(checked > 400, `${checked} messages`)
})
