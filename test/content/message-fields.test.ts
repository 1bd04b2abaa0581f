/**
 * The header: addressees, customers' fields, what is ours; judged by a parser and a verifier that are not ours.
 */
import fc from 'fast-check'
import PostalMime, { decodeWords } from 'postal-mime'
import t from 'tap'
import { customField, mailboxesField } from '../../src/content/mime/encode-header.ts'
import { senderIdOf } from '../../src/content/message-fields.ts'
import { renderMessage } from '../../src/content/render-message.ts'
import { readUnsubscribeToken } from '../../src/mail/message-token.ts'
import { readComplaintToken } from '../../src/mail/message-token.ts'
import { BASE_URL, brokenLimits, dkimVerdict, input, KEYS, MESSAGE_ID, parse, type Change } from './render-input.ts'

const FULL_SCALE = process.env['TEST_SCALE'] === 'full'

async function render(change: Change = {}) {
  const bytes = await renderMessage(input(change))
  const { mail, keys } = await parse(bytes)
  const valueOf = (name: string): string | undefined => mail.headers.find(({ key }) => key === name)?.value
  return { bytes, mail, keys, valueOf }
}

t.test('To and Cc are the same in every message of a request, and nobody sees a Bcc', async (t) => {
  const addressees = {
    to: { name: 'Ada', address: 'ada@example.net' },
    cc: [
      { name: 'Größe, "Q"', address: 'cc1@example.net' },
      { name: null, address: 'cc2@example.org' },
      ...Array.from({ length: 40 }, (_, index) => ({ name: `Number ${index}`, address: `n${index}@example.org` })),
    ],
  }
  const messages = ['ada@example.net', 'cc1@example.net', 'hidden@example.org'].map((address) =>
    render({ content: { addressees }, facts: { to: { name: null, address } } }),
  )
  for (const { bytes, mail, keys } of await Promise.all(messages)) {
    t.strictSame(mail.to, [addressees.to])
    t.strictSame(
      mail.cc,
      addressees.cc.map(({ name, address }) => ({ name: name ?? '', address })),
    )
    t.notOk(keys.includes('bcc'))
    t.notMatch(bytes.toString(), 'hidden@')
    t.strictSame(brokenLimits(bytes), [])
    const { result, fields } = await dkimVerdict(bytes)
    t.equal(result, 'pass')
    t.ok(fields.includes('cc'), 'Cc is signed')
  }
  const alone = await render({ content: { addressees: { ...addressees, cc: [] } } })
  t.notOk(alone.keys.includes('cc'), 'bcc alone makes no Cc')
})

t.test('the Date is the time it was scheduled for, the signature that of acceptance', async (t) => {
  const { bytes, valueOf } = await render({ facts: { sendAt: 1_795_348_800_000 } })
  t.equal(valueOf('date'), 'Sun, 22 Nov 2026 12:00:00 +0000')
  t.match(bytes.toString(), /\st=1795262400;/)
})

t.test('Feedback-ID names the campaign, and nothing in a tag can change its parts', async (t) => {
  const cases: [Record<string, string>, string][] = [
    [{}, '0'],
    [{ campaign: '' }, '0'],
    [{ campaign: 'spring-2026' }, 'spring-2026'],
    [{ other: 'x' }, '0'],
    [{ campaign: 'a:b c:d' }, 'a-b-c-d'],
    [{ campaign: 'x'.repeat(256) }, 'x'.repeat(64)],
  ]
  for (const [tags, campaign] of cases) {
    const { valueOf } = await render({ content: { tags } })
    t.equal(valueOf('feedback-id'), `${campaign}:acme.com:transactional:sternpost1`)
  }
  t.match(senderIdOf('mail.sternpost.test'), /^[0-9a-f]{12}$/)
})

t.test('a list has both unsubscribe fields, signed, and a token that names message and list', async (t) => {
  const { bytes, valueOf } = await render({ content: { unsubscribe: { list: 'news', url: null } } })
  const found = /^<(https:\/\/t\.acme\.com\/u\/([a-z2-7]{56}))>, <mailto:u-([a-z2-7]{56})@bounces\.acme\.com>$/.exec(
    valueOf('list-unsubscribe') ?? '',
  )
  t.ok(found, valueOf('list-unsubscribe') ?? 'no field')
  t.equal(found?.[2], found?.[3])
  t.strictSame(readUnsubscribeToken(found?.[2] ?? '', KEYS.unsubscribe), { messageId: MESSAGE_ID, listNumber: 0 })
  t.equal(valueOf('list-unsubscribe-post'), 'List-Unsubscribe=One-Click')
  const { result, fields } = await dkimVerdict(bytes)
  t.equal(result, 'pass')
  for (const name of ['list-unsubscribe', 'list-unsubscribe-post', 'feedback-id']) t.ok(fields.includes(name), name)

  const url = 'https://acme.com/leave?a=1&b=ü>,\r\nX-Evil: 1'
  const own = await render({ content: { unsubscribe: { list: 'news', url } } })
  t.match(
    own.valueOf('list-unsubscribe'),
    /^<https:\/\/acme\.com\/leave\?a=1&b=%C3%BC%3E,%0D%0AX-Evil:%201>, <mailto:u-[a-z2-7]{56}@bounces\.acme\.com>$/,
  )
  t.notOk(own.keys.includes('x-evil'))
  const none = await render()
  t.notOk(none.keys.some((key) => key.startsWith('list-')))
})

t.test('the complaint fields are there when they are wanted, and signed', async (t) => {
  const { bytes, valueOf } = await render({ settings: { cfbl: true } })
  const token = valueOf('cfbl-feedback-id') ?? ''
  t.equal(readComplaintToken(token, KEYS.complaint), MESSAGE_ID)
  t.equal(valueOf('cfbl-address'), `f-${token}@bounces.acme.com; report=arf`)
  const { result, fields } = await dkimVerdict(bytes)
  t.equal(result, 'pass')
  t.ok(fields.includes('cfbl-address') && fields.includes('cfbl-feedback-id'))
})

t.test('{{unsubscribe_url}} stands for the address of the header, unless the recipient has a value', async (t) => {
  const content = {
    text: 'Leave: {{unsubscribe_url}}',
    html: '<a href="{{unsubscribe_url}}">leave</a>',
    subject: 'x',
    unsubscribe: { list: 'news', url: null },
  }
  for (const tracking of [
    { opens: false, clicks: false },
    { opens: true, clicks: true },
  ]) {
    const { mail, valueOf } = await render({ content: { ...content, tracking } })
    const url = /^<([^>]+)>/.exec(valueOf('list-unsubscribe') ?? '')?.[1] ?? ''
    t.match(url, `${BASE_URL}/u/`)
    t.equal(mail.text?.trim(), `Leave: ${url}`)
    t.match(mail.html, `<a href="${url}">leave</a>`, 'never a tracked link')
    const variables = { unsubscribe_url: 'https://x.y/' }
    const own = await render({ content: { ...content, tracking }, facts: { variables } })
    t.equal(own.mail.text?.trim(), 'Leave: https://x.y/')
  }
  const unsubscribe = { list: 'news', url: 'https://acme.com/l?a=1&b=2' }
  const ofCustomer = await render({ content: { ...content, unsubscribe } })
  t.equal(ofCustomer.mail.text?.trim(), 'Leave: https://acme.com/l?a=1&b=2')
  t.match(ofCustomer.mail.html, 'href="https://acme.com/l?a=1&amp;b=2"')
})

t.test('tracked html has links and a pixel of the tracking host, the text part has neither', async (t) => {
  const content = {
    html: '<body><p>Hi {{name}}</p><a href="https://acme.com/o/{{no}}">order</a></body>',
    text: null,
    subject: 'x',
    tracking: { opens: true, clicks: true },
  }
  const { bytes, mail } = await render({ content })
  const tracked = /<a href="https:\/\/t\.acme\.com\/c\/[a-z2-7]{56}">order<\/a><img src="https:\/\/t\.acme\.com\/o\//
  t.match(mail.html, tracked)
  t.equal(mail.text?.trim(), 'Hi Ada\n\norder [https://acme.com/o/1042]')
  t.ok(bytes.equals(await renderMessage(input({ content }))), 'the same bytes on every attempt')
  const opens = await render({ content: { ...content, tracking: { opens: true, clicks: false } } })
  t.match(opens.mail.html, /<a href="https:\/\/acme\.com\/o\/1042">order<\/a><img /)
  const clicks = await render({ content: { ...content, tracking: { opens: false, clicks: true } } })
  t.notMatch(clicks.mail.html, '<img')
})

t.test("a customer's own field keeps its structure in ASCII, and its text in any language", async (t) => {
  const cases: [string, string, RegExp][] = [
    ['X-Campaign', 'spring', /^X-Campaign: spring\r\n$/],
    ['References', `<${'a'.repeat(70)}@x.y> <${'b'.repeat(70)}@x.y>`, /^References: <a+@x\.y>\r\n <b+@x\.y>\r\n$/],
    ['In-Reply-To', ' <a@x.y>\t ', /^In-Reply-To: <a@x\.y>\r\n$/],
    ['Auto-Submitted', 'auto-generated ', /^Auto-Submitted: auto-generated\r\n$/],
    ['X-Spaces', ' \t ', /^X-Spaces:\r\n$/],
    ['Comments', `${'a'.repeat(70)}  b \tc`, /^Comments: a+\r\n {2}b \tc\r\n$/],
    ['X-Json', '{"a":  "b"}', /^X-Json: \{"a": {2}"b"\}\r\n$/],
    ['X-Tab', 'a\tb', /^X-Tab: a\tb\r\n$/],
    ['X-Empty', '', /^X-Empty:\r\n$/],
    ['X-Words', '=?UTF-8?Q?evil?=', /^X-Words: =\?UTF-8\?/],
    ['X-Long', 'x'.repeat(998), /^X-Long: =\?UTF-8\?/],
    ['X-Almost', 'x'.repeat(990), /^X-Almost: =\?UTF-8\?|^X-Almost: x{990}\r\n$/],
    ['X-Language', 'Größe 名前', /^X-Language: =\?UTF-8\?/],
    ['List-Id', 'Größe für Acme <news.acme.com>', /^List-Id: =\?UTF-8\?[BQ]\?[^ ]+\?= Acme <news\.acme\.com>\r\n$/],
  ]
  for (const [name, value, expected] of cases) {
    const field = customField(name, value)
    t.match(field, expected)
    t.ok(field.split('\r\n').every((line) => line.length <= 998))
  }
  const headers = cases.map(([name, value]): [string, string] => [name, value])
  const { bytes, keys, valueOf } = await render({ content: { headers } })
  t.strictSame(
    keys.filter((key) => /^x-(?!sternpost)|^(?:references|in-reply|auto|comments|list-id)/.test(key)).length,
    cases.length,
  )
  t.equal(decodeWords(valueOf('list-id') ?? ''), 'Größe für Acme <news.acme.com>')
  t.equal((await dkimVerdict(bytes)).result, 'pass')
})

t.test('no value of a field, name or address list injects anything', async (t) => {
  const hostile = fc.constantFrom(
    '\r\n',
    '\n',
    '\r',
    '\0',
    '\u0085',
    '\u2028',
    ': ',
    '=?',
    '?=',
    '"',
    '\\',
    ',',
    ';',
    '<',
    '>',
    '(',
    ' ',
    '\t',
    'Bcc: evil@evil.test',
    '.\r\n',
    '😀',
    'ü',
  )
  const text = fc
    .array(fc.oneof(fc.string(), fc.string({ unit: 'grapheme' }), hostile), { maxLength: 12 })
    .map((parts) => parts.join('').toWellFormed())
  const property = fc.asyncProperty(text, text, async (value, name) => {
    const mailboxes = [
      { name, address: 'a@b.com' },
      { name: null, address: 'c@d.org' },
    ]
    const fields = customField('X-Own', value) + mailboxesField('Cc', mailboxes)
    const { mail, keys } = await parse(Buffer.from(`${fields}\r\nbody\r\n`))
    const isBounded = fields.split('\r\n').every((line) => line.length <= 998)
    const isWhole = !/[^\r]\n|\r[^\n]|\0/.test(fields) && isBounded
    return (
      isWhole &&
      keys.toSorted().join() === 'cc,x-own' &&
      mail.cc?.map(({ address }) => address).join() === 'a@b.com,c@d.org'
    )
  })
  await fc.assert(property, { numRuns: FULL_SCALE ? 20_000 : 1_000 })
  t.pass('1,000 values')
})

t.test('whatever a field holds, the whole message stays one with one signature', async (t) => {
  const value = fc.string({ unit: 'grapheme', maxLength: 200 }).map((text) => text.toWellFormed())
  const property = fc.asyncProperty(value, value, fc.dictionary(fc.string(), value), async (own, name, tags) => {
    const bytes = await renderMessage(
      input({
        content: {
          headers: [['X-Own', own]],
          tags,
          from: { name, address: 'orders@acme.com' },
          addressees: { to: { name, address: 'a@b.com' }, cc: [{ name: own, address: 'c@d.org' }] },
        },
      }),
    )
    const mail = await PostalMime.parse(bytes)
    const isIntact = brokenLimits(bytes).length === 0 && mail.headers.length === 13 && mail.cc?.length === 1
    return isIntact && (await dkimVerdict(bytes)).result === 'pass'
  })
  await fc.assert(property, { numRuns: FULL_SCALE ? 2_000 : 100 })
  t.pass('100 messages')
})
