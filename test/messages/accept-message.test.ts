/**
 * Acceptance: what a good request becomes in the store, and for every bad one the right code in the right order, with
 * nothing queued.
 */
import { existsSync, readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import type { AcceptMessage, GivenAttachment, SendRequest } from '../../src/messages/accept/send-request.ts'
import {
  accepted,
  acceptanceParts,
  callerWith,
  file,
  LIFETIME,
  sendRequest,
  verdict,
  verified,
} from './acceptance-parts.ts'

const MOST_BYTES = 10_485_760
const NAUGHTY_STRINGS = new URL('../../../shared/corpora/strings/blns.json', import.meta.url)

function outcome(accept: AcceptMessage, changes: Partial<SendRequest>, by = callerWith()): Promise<string> {
  return verdict(accept(sendRequest(changes), by, null))
}

t.test('an accepted message is in the store, whole, before the answer', async (t) => {
  const { accept, stored, store, clock, metrics, told } = await acceptanceParts(t)
  const answer = await accepted(
    accept(
      sendRequest({
        to: ' "Lovelace, Ada" <Ada@EXAMPLE.net> ',
        replyTo: 'help@acme.com',
        subject: 'Order {{no}}',
        text: 'Hi {{name}}',
        html: '<p>{{name|you}}</p>',
        variables: { no: 1042, name: 'Ada', unused: { deep: [1] } },
        attachments: [file(), file({ name: 'logo.PNG', content: 'iVBORw0K', contentId: 'logo@acme.com' })],
      }),
      callerWith({ domains: ['acme.com'] }),
      null,
    ),
  )
  const messageId = answer.recipients[0]?.messageId ?? ''
  t.same(answer.recipients, [{ messageId, to: 'Ada@example.net', status: 'queued', reason: null }])
  t.equal(answer.estimatedStartAt, null)
  t.match(messageId, /^msg_[0-9a-hjkmnp-tv-z]{26}$/)
  t.equal(answer.acceptedAt, clock.now())
  t.equal(stored.length, 1)
  const [request] = stored
  t.match(request, {
    now: clock.now(),
    apiKeyId: null,
    domain: 'acme.com',
    pool: 'default',
    stream: 'transactional',
    isTest: false,
    sendAt: null,
    batch: null,
    retryOf: null,
    idempotency: null,
    content: {
      from: { name: 'Acme', address: 'orders@acme.com' },
      replyTo: [{ name: null, address: 'help@acme.com' }],
      subject: 'Order {{no}}',
      html: '<p>{{name|you}}</p>',
      text: 'Hi {{name}}',
      hasVariables: true,
    },
    messages: [
      {
        id: messageId,
        expiresAt: clock.now() + LIFETIME,
        isCaptured: false,
        to: { name: 'Lovelace, Ada', address: 'Ada@example.net' },
        recipientDomain: 'example.net',
      },
    ],
  })
  t.same({ ...request?.messages[0]?.variables }, { no: 1042, name: 'Ada' }, 'only what is used is stored')
  const files = request?.content.attachments ?? []
  t.same(
    files.map(({ bytes, ...facts }) => ({ ...facts, text: Buffer.from(bytes).toString('latin1') })),
    [
      { name: 'receipt.txt', contentType: 'text/plain', contentId: null, text: 'Thank you.\n' },
      { name: 'logo.PNG', contentType: 'image/png', contentId: 'logo@acme.com', text: '\x89PNG\r\n' },
    ],
  )
  t.match(await store.lookupMessage(messageId, clock.now()), { state: 'queued', recipient: 'Ada@example.net' })
  t.same(told, { queued: 1, events: 0 })
  t.match(await metrics.registry.metrics(), 'sternpost_messages_accepted_total{source="api"} 1')
})

t.test('what is left out has its default', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const plain = { to: 'ada@example.net', from: 'orders@ACME.com', subject: '', text: '', html: '{{name}}' }
  await accept(sendRequest(plain), callerWith(), null)
  t.match(stored[0]?.content, {
    from: { name: null, address: 'orders@acme.com' },
    replyTo: [],
    subject: '',
    text: '',
    html: '{{name}}',
    attachments: [],
    hasVariables: false,
  })
  await accept(sendRequest({ html: undefined, text: 'Hi' }), callerWith(), null)
  t.match(stored[1]?.content, { html: null, text: 'Hi' })
  await accept(sendRequest(), callerWith(), null)
  t.match(stored[2]?.content, { html: '<p>Hi</p>', text: null })
})

t.test('each kind of bad input has its answer, and queues nothing', async (t) => {
  const { accept, stored, told } = await acceptanceParts(t)
  const cases: [string, Partial<SendRequest>, RegExp][] = [
    ['no recipient', { to: undefined }, /^invalid_recipient: to: is missing$/],
    [
      'a recipient of the wrong type',
      { to: undefined, wrongTypes: ['to: expected a string, got a number'] },
      /^invalid_recipient: to: expected a string, got a number$/,
    ],
    ['an empty recipient', { to: '' }, /^invalid_recipient: to: is empty$/],
    ['two at signs', { to: 'user@@example.com' }, /^invalid_recipient: to: 'user@@example.com' has two '@' signs$/],
    ['two addresses', { to: 'a@example.com, b@example.com' }, /^invalid_recipient: to: /],
    ['a group', { to: 'all: a@example.com;' }, /^invalid_recipient: to: /],
    ['two angle addresses', { to: 'A <a@example.com> <b@example.com>' }, /^invalid_recipient: to: /],
    [
      'line breaks in the recipient',
      { to: 'a@example.com\r\nBcc: b@example.com' },
      /^invalid_recipient: to: .*U\+000D$/,
    ],
    [
      'line breaks in its name',
      { to: 'A\r\nBcc: b@example.com <a@example.com>' },
      /^invalid_recipient: to: .*U\+000D$/,
    ],
    ['a second RCPT', { to: 'c@d.com>\r\nRCPT TO:<evil@x.com' }, /^invalid_recipient: to: /],
    ['a comment', { to: 'user@good.com(x)evil.com' }, /^invalid_recipient: to: /],
    ['a soft hyphen', { to: 'a@ex\u00adample.com' }, /^invalid_recipient: to: /],
    ['an IP address', { to: 'a@[127.0.0.1]' }, /^invalid_recipient: to: /],
    ['a reserved name', { to: 'a@example.test' }, /^invalid_recipient: to: /],
    ['a lone surrogate in the recipient', { to: 'a\ud800@example.com' }, /^invalid_recipient: to: /],
    ['no sender', { from: undefined }, /^invalid_request: from: is missing$/],
    ['a bad sender', { from: 'acme.com' }, /^invalid_request: from: 'acme.com' has no '@'/],
    [
      'line breaks in the sender',
      { from: 'Acme\nBcc: x@y.com <orders@acme.com>' },
      /^invalid_request: from: .*U\+000A$/,
    ],
    ['two senders', { from: 'a@acme.com, b@acme.com' }, /^invalid_request: from: /],
    ['a bad reply address', { replyTo: 'x@y@z.com' }, /^invalid_request: reply_to: 'x@y@z.com' has two '@' signs$/],
    ['line breaks in the reply address', { replyTo: 'a@b.com\r\nX: y' }, /^invalid_request: reply_to: .*U\+000D$/],
    [
      'one of several',
      { replyTo: ['a@b.com', 'x@y@z.com'] },
      /^invalid_request: reply_to\[1\]: 'x@y@z.com' has two '@' signs$/,
    ],
    [
      'a placeholder without quotes',
      { html: '<a href={{u}}>', variables: { u: 'x' } },
      /^invalid_request: html: has a placeholder without quotes in line 1: write href="{{u}}"$/,
    ],
    ['an empty reply address', { replyTo: '' }, /^invalid_request: reply_to: is empty$/],
    ['no subject', { subject: undefined }, /^invalid_request: subject: is missing$/],
    ['a line feed in the subject', { subject: 'Hi\nBcc: x@y.com' }, /^invalid_request: subject: has a line break/],
    ['a carriage return in the subject', { subject: 'Hi\rBcc' }, /^invalid_request: subject: has a line break/],
    ['U+0000 in the subject', { subject: 'a\0b' }, /^invalid_request: subject: /],
    ['U+0085 in the subject', { subject: 'a\u0085b' }, /^invalid_request: subject: /],
    ['a lone surrogate in the subject', { subject: 'a\udc00' }, /^invalid_request: subject: has an unpaired surrogate/],
    ['a long subject', { subject: 'x'.repeat(999) }, /^invalid_request: subject: has more than 998 characters/],
    ['no body', { html: undefined }, /^invalid_request: html: one of html and text is needed$/],
    [
      'a body of the wrong type',
      { html: undefined, wrongTypes: ['text: expected a string, got a list'] },
      /^invalid_request: text: expected a string, got a list$/,
    ],
    ['U+0000 in the html', { html: 'a\0b' }, /^invalid_request: html: has the character U\+0000$/],
    ['a lone surrogate in the text', { text: 'a\ud83d' }, /^invalid_request: text: has an unpaired surrogate$/],
    ['html over 5 MiB', { html: 'x'.repeat(5 * 2 ** 20 + 1) }, /^invalid_request: html: has 5242881 bytes/],
    ['text over 5 MiB in bytes', { text: 'ü'.repeat(2.5 * 2 ** 20 + 1) }, /^invalid_request: text: has 5242882 bytes/],
    [
      'a missing variable',
      { subject: 'Hi {{name}}', variables: {} },
      /^invalid_request: variables.name: used in subject, not given$/,
    ],
    [
      'an inherited variable',
      { html: '{{constructor}}{{__proto__}}', variables: {} },
      /^invalid_request: variables.constructor: used in html, not given; variables.__proto__: used in html, not /,
    ],
    [
      'an object as a value',
      { html: '{{a}}', variables: { a: {} } },
      /^invalid_request: variables.a: used in html, must be /,
    ],
    [
      'a line break by way of a variable',
      { subject: '{{a}}', variables: { a: 'x\r\nBcc: y@z.com' } },
      /^invalid_request: subject: has a line break/,
    ],
    [
      'U+0000 in a variable',
      { html: '{{a}}', variables: { a: 'x\0' } },
      /^invalid_request: variables.a: has the character U\+0000$/,
    ],
    [
      'a lone surrogate in the name of a variable',
      { variables: { 'a\ud800': 1 } },
      /^invalid_request: variables: has an unpaired/,
    ],
    [
      'html that grows too large',
      { html: '{{a}}'.repeat(6), variables: { a: 'x'.repeat(2 ** 20) } },
      /^invalid_request: html: has 6291456 bytes/,
    ],
  ]
  for (const [what, changes, expected] of cases) t.match(await outcome(accept, changes), expected, what)
  t.equal(stored.length, 0)
  t.equal(told.queued, 0)
})

t.test('attachments: form', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const cases: [string, Partial<GivenAttachment>, RegExp][] = [
    ['no name', { name: undefined }, /attachments\[1\]\.name: is missing$/],
    ['an empty name', { name: '' }, /attachments\[1\]\.name: must have 1 to 255 characters$/],
    ['a long name', { name: 'x'.repeat(256) }, /attachments\[1\]\.name: must have 1 to 255 characters$/],
    ['a folder in the name', { name: '../passwd' }, /attachments\[1\]\.name: has a path separator$/],
    ['a Windows folder in the name', { name: 'a\\b' }, /attachments\[1\]\.name: has a path separator$/],
    ['line breaks in the name', { name: 'a.txt\r\nBcc: x@y.com' }, /attachments\[1\]\.name: has a line break/],
    ['U+0000 in the name', { name: 'a\0.txt' }, /attachments\[1\]\.name: has a line break or another control/],
    ['U+2028 in the name', { name: 'a\u2028.txt' }, /attachments\[1\]\.name: has a line break/],
    ['a lone surrogate in the name', { name: 'a\ud800' }, /attachments\[1\]\.name: has an unpaired surrogate$/],
    ['no content', { content: undefined }, /attachments\[1\]\.content: is missing$/],
    ['no base64', { content: 'a!b=' }, /attachments\[1\]\.content: is not base64 \(RFC 4648 §4\) at character 2$/],
    ['the URL-safe alphabet', { content: 'ab-_' }, /attachments\[1\]\.content: is not base64 .* at character 3$/],
    ['a space', { content: 'ab cd' }, /attachments\[1\]\.content: is not base64 .* at character 3$/],
    ['a data URL', { content: 'data:text/plain;base64,YQ==' }, /attachments\[1\]\.content: is not base64/],
    ['U+0000', { content: 'YQ==\0' }, /attachments\[1\]\.content: is not base64/],
    [
      'one character too many',
      { content: 'YWJjZ' },
      /attachments\[1\]\.content: is not base64: a character is missing/,
    ],
    ['too little padding', { content: 'YQ=' }, /attachments\[1\]\.content: is not base64: wrong padding$/],
    ['too much padding', { content: 'YWI==' }, /attachments\[1\]\.content: is not base64: wrong padding$/],
    ['padding without need', { content: 'YWJj=' }, /attachments\[1\]\.content: is not base64: wrong padding$/],
    ['padding in the middle', { content: 'YQ==YQ==' }, /attachments\[1\]\.content: is not base64: wrong padding$/],
    ['only padding', { content: '====' }, /attachments\[1\]\.content: is not base64: wrong padding$/],
    ['a type that is none', { contentType: 'text' }, /attachments\[1\]\.content_type: is no media type/],
    [
      'line breaks in the type',
      { contentType: 'text/plain\r\nX: y' },
      /attachments\[1\]\.content_type: is no media type/,
    ],
    [
      'line breaks in a parameter',
      { contentType: 'text/plain; a=b\r\nX: y' },
      /attachments\[1\]\.content_type: is no media type/,
    ],
    ['a content id in brackets', { contentId: '<logo>' }, /attachments\[1\]\.content_id: is no content id/],
    ['line breaks in a content id', { contentId: 'a\r\nX: y' }, /attachments\[1\]\.content_id: is no content id/],
    [
      'the content id of another',
      { contentId: 'taken' },
      /attachments\[1\]\.content_id: is used by another attachment$/,
    ],
  ]
  for (const [what, changes, expected] of cases) {
    const answer = await outcome(accept, { attachments: [file({ contentId: 'taken' }), file(changes)] })
    t.match(answer, expected, what)
    t.match(answer, /^invalid_request: attachments/, what)
  }
  const many = (length: number): GivenAttachment[] =>
    Array.from({ length }, () => file({ contentType: 'text/csv; charset=utf-8' }))
  t.match(await outcome(accept, { attachments: many(21) }), /^invalid_request: attachments: 21 entries; at most 20/)
  t.equal(stored.length, 0)

  const good: [string, string][] = [
    ['', ''],
    ['YQ==', 'a'],
    ['YQ', 'a'],
    ['YWI=', 'ab'],
    ['YWI', 'ab'],
    ['YWJj', 'abc'],
    ['YW\r\nJj\n', 'abc'],
    ['Y\nQ\n=\r=', 'a'],
    ['Y\nQ\n', 'a'],
    ['YWI\n=\r\n', 'ab'],
    ['\r\n', ''],
    ['+/+/', '\xfb\xff\xbf'],
  ]
  const files = good.map(([content], index) => file({ name: `${index}.bin`, content }))
  await accept(sendRequest({ attachments: files }), callerWith(), null)
  const attachments = stored[0]?.content.attachments ?? []
  t.same(
    attachments.map(({ bytes }) => Buffer.from(bytes).toString('latin1')),
    good.map(([, text]) => text),
  )
  t.equal(attachments[0]?.contentType, 'application/octet-stream')
  t.equal(await outcome(accept, { attachments: many(20) }), 'accepted')
})

t.test('a text in UTF-8 is said to be, where its sender says nothing of it', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const text = (changes: Partial<GivenAttachment>, bytes = Buffer.from('Größe')): GivenAttachment =>
    file({ contentType: undefined, content: bytes.toString('base64'), ...changes })
  const attachments = [
    text({ name: 'a.csv' }),
    text({ name: 'a.ics', contentType: 'text/calendar; method=REQUEST' }),
    text({ name: 'a.txt', contentType: 'text/plain; Charset=utf-16' }),
    text({ name: 'a.txt' }, Buffer.from('Größe', 'latin1')),
    text({ name: 'a.json' }),
  ]
  await accept(sendRequest({ attachments }), callerWith(), null)
  t.same(
    stored[0]?.content.attachments.map(({ contentType }) => contentType),
    [
      'text/csv; charset=utf-8',
      'text/calendar; method=REQUEST; charset=utf-8',
      'text/plain; Charset=utf-16',
      'text/plain',
      'application/json',
    ],
  )
})

t.test('attachments: any bytes come back as they were', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), fc.boolean(), async (bytes, isPadded) => {
      const text = Buffer.from(bytes).toString('base64')
      // All padding at the end.
      const content = isPadded ? text : text.replace(/=+$/, '')
      await accept(sendRequest({ attachments: [file({ content })] }), callerWith(), null)
      return Buffer.from(bytes).equals(stored.at(-1)?.content.attachments[0]?.bytes ?? Buffer.alloc(1))
    }),
    { numRuns: 50 },
  )
})

t.test('attachments: sizes are counted in decoded bytes', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const sized = (bytes: number, name = 'video.mp4'): GivenAttachment =>
    file({ name, content: Buffer.alloc(bytes, 1).toString('base64') })
  t.equal(await outcome(accept, { attachments: [sized(MOST_BYTES)] }), 'accepted')
  t.equal(stored[0]?.content.attachments[0]?.bytes.length, MOST_BYTES)
  t.equal(
    await outcome(accept, { attachments: [file(), sized(MOST_BYTES + 1)] }),
    "attachment_too_large: attachments[1] 'video.mp4' is 10485761 bytes; limit 10485760",
  )
  t.equal(
    await outcome(accept, { attachments: [sized(MOST_BYTES), sized(MOST_BYTES), sized(5 * 2 ** 20 + 1)] }),
    'attachment_too_large: attachments are 26214401 bytes together; limit 26214400',
  )
  t.equal(stored.length, 1)
})

t.test('attachments: lines as short as people write them, and no shorter in a long content', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const text = Buffer.alloc(MOST_BYTES, 1).toString('base64')
  const outcomes = async (characters: number, source: string): Promise<string> =>
    outcome(accept, { attachments: [file({ content: source.replace(new RegExp(`.{${characters}}`, 'g'), '$&\r\n') })] })
  t.equal(await outcomes(64, text), 'accepted')
  t.equal(stored[0]?.content.attachments[0]?.bytes.length, MOST_BYTES)
  t.equal(await outcomes(1, text.slice(0, 800)), 'accepted')
  t.match(await outcomes(1, text), /attachments\[0\]\.content: has lines of less than 48 characters$/)
  t.match(await outcomes(64, `${text.slice(0, -9)}!${text.slice(-8)}`), /is not base64 \(RFC 4648 §4\)$/)
})

t.test('the first failing step answers, and lists all that it found', async (t) => {
  const senders = await acceptanceParts(t)
  await verified(senders, 'cold.example.org', 'cold')
  await verified(senders, 'off.example.org', 'off')
  const { accept, stored } = senders
  const tooLarge = file({ content: Buffer.alloc(MOST_BYTES + 1).toString('base64') })
  const limited = callerWith({ domains: ['other.com', 'another.com'] })
  const bad = { to: 'a@@b.com', from: 'x', subject: undefined, attachments: [tooLarge, file({ name: '' })] }
  t.match(
    await outcome(accept, bad, limited),
    /^invalid_recipient: to: .*; from: 'x' has no '@'; subject: is missing; attachments\[1\]\.name: must have/,
  )
  t.match(
    await outcome(accept, { ...bad, to: 'a@b.com' }, limited),
    /^invalid_request: from: .*; subject: .*; attachments\[1\]/,
  )
  t.match(await outcome(accept, { attachments: [tooLarge] }, limited), /^attachment_too_large: /)
  t.equal(
    await outcome(accept, { from: 'x@unknown.com' }, limited),
    'forbidden: this key may not send as unknown.com, only as other.com, another.com',
  )
  t.match(
    await outcome(accept, { from: 'x@unknown.com' }),
    /^domain_not_verified: unknown\.com: not a domain of this server/,
  )
  t.match(await outcome(accept, { from: 'x@mail.acme.com' }), /^domain_not_verified: mail\.acme\.com/)
  t.match(await outcome(accept, { from: 'x@acme.com.test' }), /^domain_not_verified: acme\.com\.test/)
  t.match(await outcome(accept, { from: 'x@cold.example.org' }), /^ip_not_warmed: .*cold/)
  t.match(await outcome(accept, { from: 'x@off.example.org' }), /^unavailable: .*off/)
  t.equal(stored.length, 0)
  const wrongTypes = [
    'html: has U+0000',
    'attachments[0].name: is missing',
    'attachments[1]: expected an object, got null',
  ]
  const attachments = [file({ name: undefined }), file({ name: undefined, content: undefined })]
  t.equal(
    await outcome(accept, { wrongTypes, html: 'a\0b', attachments }),
    `invalid_request: ${wrongTypes.join('; ')}`,
    'what the door named is not named twice',
  )
})

t.test('a domain that allows subdomains signs for them, also for a key that is limited to it', async (t) => {
  const { accept, domains, stored } = await acceptanceParts(t)
  const from = 'x@a.b.acme.com'
  t.match(await outcome(accept, { from }), /^domain_not_verified: a\.b\.acme\.com: .*allow_subdomains of acme\.com/)
  await domains.update('acme.com', { allowSubdomains: true })
  t.equal(await outcome(accept, { from }), 'accepted')
  t.equal(await outcome(accept, { from }, callerWith({ domains: ['acme.com'] })), 'accepted')
  t.equal(await outcome(accept, { from }, callerWith({ domains: ['a.b.acme.com'] })), 'accepted')
  t.match(
    await outcome(accept, { from }, callerWith({ domains: ['b.acme.com'] })),
    /^forbidden: /,
    'who signs is not listed',
  )
  t.match(await outcome(accept, { from: 'x@acme.com' }, callerWith({ domains: ['a.b.acme.com'] })), /^forbidden: /)
  t.match(await outcome(accept, { from: 'x@xacme.com' }, callerWith({ domains: ['acme.com'] })), /^forbidden: /)
  t.same(
    stored.map(({ domain, content }) => [domain, content.from.address]),
    Array(3).fill(['acme.com', from]),
  )
  await domains.remove('acme.com', { purge: false })
  t.match(await outcome(accept, { from }), /^domain_not_verified: /, 'removed: refused at once')
  t.match(await outcome(accept, {}), /^domain_not_verified: /)
})

t.test('pending domains send nothing', async (t) => {
  const { accept, domains, stored } = await acceptanceParts(t)
  await domains.add({ name: 'pending.com' })
  t.match(await outcome(accept, { from: 'x@pending.com' }), /^domain_not_verified: pending\.com: dkim record /)
  await domains.stop()
  t.equal(stored.length, 0)
})

t.test('a server for tests takes reserved names, every server the simulator', async (t) => {
  const strict = await acceptanceParts(t)
  t.equal(await outcome(strict.accept, { to: 'delivered@simulator.sternpost.test' }), 'accepted')
  t.match(await outcome(strict.accept, { replyTo: 'a@b.test' }), /^invalid_request: reply_to: /)
  const lenient = await acceptanceParts(t, { allowReservedNames: true })
  t.equal(await outcome(lenient.accept, { to: 'a@b.test', replyTo: 'a@b.invalid' }), 'accepted')
})

t.test('a store that cannot commit is 503 with a time, and nothing is announced', async (t) => {
  const cause = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' })
  const { accept, told, metrics } = await acceptanceParts(t, { storeFailure: cause })
  await t.rejects(accept(sendRequest(), callerWith(), null), {
    code: 'unavailable',
    details: 'the message could not be stored; nothing was kept',
    cause,
    headers: { 'Retry-After': '60' },
  })
  t.equal(told.queued, 0)
  t.notMatch(await metrics.registry.metrics(), 'source="api"')
})

t.test('hostile names as variables change nothing and mean nothing', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const variables: unknown = JSON.parse('{"__proto__":{"polluted":1},"constructor":"c","prototype":"p","toString":"t"}')
  const given = typeof variables === 'object' && variables !== null ? { ...variables } : {}
  const hostile: Record<string, unknown> = Object.assign(Object.create(null), given)
  await accept(sendRequest({ html: '{{constructor}} {{toString}}', variables: hostile }), callerWith(), null)
  t.same({ ...stored[0]?.messages[0]?.variables }, { constructor: 'c', toString: 't' })
  t.equal(Reflect.get({}, 'polluted'), undefined)
})

const noCorpus = existsSync(NAUGHTY_STRINGS) ? false : 'the corpora are not there'
t.test('strings that have broken other programs are kept as they are or refused', { skip: noCorpus }, async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const parsed: unknown = JSON.parse(readFileSync(NAUGHTY_STRINGS, 'utf8'))
  const strings = Array.isArray(parsed) ? parsed.map(String) : []
  t.ok(strings.length > 400)
  // A control character other than the tab, as `subject` refuses it.
  const hasControl = /[^\P{Cc}\t]/u
  for (const [index, text] of strings.entries()) {
    const inText = await outcome(accept, { subject: text, html: text, text })
    if (hasControl.test(text)) t.match(inText, /^invalid_request: subject: /, `string ${index} is refused`)
    else t.match(stored.at(-1)?.content, { subject: text, html: text, text }, `string ${index} is kept`)
    const name = await outcome(accept, { attachments: [file({ name: text })] })
    t.match(name, /^(accepted$|invalid_request: attachments\[0\]\.name: )/)
    if (name === 'accepted') t.equal(stored.at(-1)?.content.attachments[0]?.name, text, `name ${index} is kept`)
  }
  const asRecipients = await Promise.all(strings.map((to) => outcome(accept, { to })))
  t.ok(asRecipients.every((answer) => answer === 'accepted' || answer.startsWith('invalid_recipient: to: ')))
  const asSenders = await Promise.all(strings.map((from) => outcome(accept, { from, replyTo: from })))
  t.ok(asSenders.every((answer) => answer.startsWith('invalid_request: ')))
})
