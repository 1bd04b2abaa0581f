/**
 * The options of a send: what each becomes in the store, and what is refused; nothing of a request can add a header, a
 * recipient or a tag of its own.
 */
import fc from 'fast-check'
import t from 'tap'
import { DAY, SECOND, toUnixSeconds } from '../../src/base/clock.ts'
import type { SendRequest } from '../../src/messages/accept/send-request.ts'
import {
  accepted,
  acceptanceParts,
  acceptedId,
  BULK_LIFETIME,
  callerWith,
  LIFETIME,
  sendRequest,
  TEST_DOMAIN,
  verdict,
  verified,
  type AcceptanceParts,
} from './acceptance-parts.ts'
import { renderedHeaders } from './rendered-headers.ts'

const outcome = ({ accept }: Pick<AcceptanceParts, 'accept'>, changes: Partial<SendRequest>): Promise<string> =>
  verdict(accept(sendRequest(changes), callerWith(), null))

t.test('options that are left out have their defaults, by stream', async (t) => {
  const { accept, stored, clock } = await acceptanceParts(t)
  await accept(sendRequest(), callerWith(), null)
  t.match(stored[0], {
    stream: 'transactional',
    sendAt: null,
    isTest: false,
    pool: 'default',
    batch: null,
    retryOf: null,
    content: {
      headers: [],
      metadata: {},
      unsubscribe: null,
      addressees: null,
      raw: null,
      // As the domain says: see sender-parts.ts.
      tracking: { opens: true, clicks: false },
    },
    messages: [{ expiresAt: clock.now() + LIFETIME, isCaptured: false }],
  })
  t.same({ ...stored[0]?.content.tags }, {})
  t.notOk(Object.hasOwn(stored[0]?.messages[0] ?? {}, 'simulatedSuppression'))
  await accept(sendRequest({ stream: 'bulk' }), callerWith(), null)
  t.match(stored[1], {
    stream: 'bulk',
    content: { unsubscribe: { list: 'bulk', url: null } },
    messages: [{ expiresAt: clock.now() + BULK_LIFETIME }],
  })
})

t.test('every option reaches the store', async (t) => {
  const { accept, stored, store, clock } = await acceptanceParts(t)
  const sendAt = toUnixSeconds(clock.now()) + 3_600
  const id = await acceptedId(
    accept(
      sendRequest({
        headers: { 'X-Campaign': 'Frühling', 'In-Reply-To': '<a@b.c>' },
        tags: { campaign: 'spring', 'a b': '' },
        metadata: { order: { no: 1042, lines: [1, 'ü'] } },
        sendAt,
        expiresIn: 600,
        ipPool: 'spare',
        stream: 'bulk',
        track: { opens: false, clicks: true },
        unsubscribe: { list: 'news', url: 'https://acme.com/u?id=1&x=[2]' },
      }),
      callerWith(),
      null,
    ),
  )
  t.match(stored[0], {
    pool: 'spare',
    stream: 'bulk',
    sendAt: sendAt * SECOND,
    content: {
      headers: [
        ['X-Campaign', 'Frühling'],
        ['In-Reply-To', '<a@b.c>'],
      ],
      metadata: { order: { no: 1042 } },
      tracking: { opens: false, clicks: true },
      unsubscribe: { list: 'news', url: 'https://acme.com/u?id=1&x=[2]' },
    },
    messages: [{ expiresAt: (sendAt + 600) * SECOND }],
  })
  t.match(await store.lookupMessage(id, clock.now()), {
    state: 'scheduled',
    sendAt: sendAt * SECOND,
    pool: 'spare',
    stream: 'bulk',
    tags: { campaign: 'spring', 'a b': '' },
    metadata: { order: { no: 1042, lines: [1, 'ü'] } },
  })
})

t.test('times: the past is now, thirty days are the most', async (t) => {
  const parts = await acceptanceParts(t)
  const now = toUnixSeconds(parts.clock.now())
  for (const sendAt of [now - 1, now, 0, -5]) {
    const { recipients } = await accepted(parts.accept(sendRequest({ sendAt }), callerWith(), null))
    t.match(recipients, [{ status: 'queued' }], `${sendAt - now}`)
    t.equal(parts.stored.at(-1)?.sendAt, null)
  }
  const { recipients } = await accepted(parts.accept(sendRequest({ sendAt: now + 1 }), callerWith(), null))
  t.match(recipients, [{ status: 'scheduled' }])
  const most = (30 * DAY) / SECOND
  t.equal(await outcome(parts, { sendAt: now + most }), 'accepted')
  t.match(await outcome(parts, { sendAt: now + most + 1 }), /^invalid_request: send_at: is more than 30 days ahead/)
  t.match(await outcome(parts, { sendAt: now * 1_000 }), /^invalid_request: send_at: .*Unix seconds/)
  t.match(await outcome(parts, { sendAt: 1.5 }), /^invalid_request: send_at: must be a whole number/)
  for (const expiresIn of [60, 259_200]) {
    t.equal(await outcome(parts, { expiresIn }), 'accepted')
    t.equal(parts.stored.at(-1)?.messages[0]?.expiresAt, parts.clock.now() + expiresIn * SECOND)
  }
  for (const expiresIn of [59, 259_201, 60.5, -1]) {
    t.match(await outcome(parts, { expiresIn }), /^invalid_request: expires_in: must be a whole number of 60 to 259200/)
  }
})

t.test('each bad option has its answer, and queues nothing', async (t) => {
  const parts = await acceptanceParts(t)
  const many = (count: number): Record<string, string> =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`X-${index}`, 'x']))
  const long = (length: number): string => 'x'.repeat(length)
  const cases: [string, Partial<SendRequest>, RegExp][] = [
    ['31 headers', { headers: many(31) }, /^headers: 31 fields; at most 30 are allowed$/],
    ['a header with a colon', { headers: { 'X:Y': 'z' } }, /^headers\.X:Y: is no header name/],
    ['a header with a line break', { headers: { 'X\r\nBcc': 'z' } }, /^headers\.X\r\nBcc: is no header name/],
    ['an empty header name', { headers: { '': 'z' } }, /^headers\.: is no header name/],
    ['a long header name', { headers: { [long(77)]: 'z' } }, /^headers\.x+: is no header name/],
    ['a header that is no text', { headers: { 'X-A': 1 } }, /^headers\.X-A: must be a string$/],
    ['a header that is null', { headers: { 'X-A': null } }, /^headers\.X-A: must be a string$/],
    ['a header value with CRLF', { headers: { 'X-A': 'a\r\nBcc: x@y.z' } }, /^headers\.X-A: has a line break/],
    ['a header value with CR', { headers: { 'X-A': 'a\rb' } }, /^headers\.X-A: has a line break/],
    ['a header value with U+0085', { headers: { 'X-A': 'a\u0085b' } }, /^headers\.X-A: has a line break/],
    ['a header value with DEL', { headers: { 'X-A': 'a\u007f' } }, /^headers\.X-A: has a line break/],
    ['a header value with half a pair', { headers: { 'X-A': '\ud83d' } }, /^headers\.X-A: has an unpaired surrogate$/],
    ['a long header value', { headers: { 'X-A': long(999) } }, /^headers\.X-A: has more than 998 characters$/],
    ['11 tags', { tags: many(11) }, /^tags: 11 tags; at most 10 are allowed$/],
    ['an empty tag key', { tags: { '': 'x' } }, /^tags\.: a key has 1 to 64 characters of printable ASCII$/],
    ['a long tag key', { tags: { [long(65)]: 'x' } }, /^tags\.x+: a key has 1 to 64/],
    ['a tag key that is not ASCII', { tags: { ä: 'x' } }, /^tags\.ä: a key has 1 to 64/],
    ['a tag key with a line break', { tags: { 'a\nb': 'x' } }, /^tags\.a\nb: a key has 1 to 64/],
    ['a tag that is no text', { tags: { a: 1 } }, /^tags\.a: must be a string of at most 256/],
    ['a tag with a line break', { tags: { a: 'x\r\ny' } }, /^tags\.a: must be a string of at most 256/],
    ['a long tag', { tags: { a: long(257) } }, /^tags\.a: must be a string of at most 256/],
    ['large metadata', { metadata: { a: long(4_089) } }, /^metadata: has 4097 bytes as JSON; at most 4096 are/],
    ['metadata with U+0000', { metadata: { a: ['x\0'] } }, /^metadata: has the character U\+0000$/],
    ['metadata with half a pair', { metadata: { 'a\ud800': 1 } }, /^metadata: has an unpaired surrogate$/],
    ['an unknown pool', { ipPool: 'fast' }, /^ip_pool: 'fast' is no pool; the pools are default, spare, cold, off$/],
    ['a pool that every object has', { ipPool: 'constructor' }, /^ip_pool: 'constructor' is no pool/],
    ['an unknown stream', { stream: 'marketing' }, /^stream: 'marketing' is no stream; the streams are/],
    ['a list in capitals', { unsubscribe: { list: 'News', url: undefined } }, /^unsubscribe\.list: must be 1 to 64 of/],
    ['a long list', { unsubscribe: { list: long(65), url: undefined } }, /^unsubscribe\.list: must be 1 to 64 of/],
    ['the list of all', { unsubscribe: { list: 'all', url: undefined } }, /^unsubscribe\.list: 'all' stands for every/],
  ]
  const urls = [
    'http://acme.com/',
    'acme.com',
    'https://',
    'https:acme.com',
    'https://u:p@acme.com/',
    'https://acme.com/a b',
    'https://acme.com/>\r\nBcc: x@y.z',
    'https://acme.com/<x>',
    'https://acme.com/ü',
    `https://acme.com/${long(900)}`,
    'javascript:alert(1)',
    'https://acme.com/"',
    '',
    'https://[::1/',
    'https://acme.com/\u0000',
  ]
  for (const url of urls) {
    cases.push([
      url,
      { unsubscribe: { list: undefined, url } },
      /^unsubscribe\.url: must be an https address of at most 900 .*percent-encode/,
    ])
  }
  for (const [what, changes, expected] of cases) {
    const answer = await outcome(parts, changes)
    t.match(answer, /^invalid_request: /, what)
    t.match(answer.slice('invalid_request: '.length), expected, what)
  }
  t.equal(parts.stored.length, 0)
  const good: Partial<SendRequest>[] = [
    { headers: { ...many(29), [long(76)]: 'tab\tand ü' }, tags: { [long(64)]: long(256) } },
    { metadata: { a: long(4_088) } },
    { unsubscribe: { list: undefined, url: 'HTTPS://acme.com' } },
    { unsubscribe: false, stream: 'bulk' },
    { headers: {}, tags: {}, metadata: {} },
  ]
  for (const changes of good) t.equal(await outcome(parts, changes), 'accepted', JSON.stringify(changes).slice(0, 60))
  t.equal(parts.stored.at(-2)?.content.unsubscribe, null, 'bulk mail can do without')
})

t.test("headers that are not the customer's are refused in any case", async (t) => {
  const parts = await acceptanceParts(t)
  const denied = [
    'From',
    'To',
    'Cc',
    'Bcc',
    'Sender',
    'Reply-To',
    'Date',
    'Subject',
    'Message-ID',
    'MIME-Version',
    'Content-Type',
    'Content-Transfer-Encoding',
    'Content-X',
    'DKIM-Signature',
    'Return-Path',
    'Delivered-To',
    'Resent-From',
    'Resent-Bcc',
    'Resent-X',
    'Received',
    'Authentication-Results',
    'ARC-Seal',
    'ARC-X',
    'List-Unsubscribe',
    'List-Unsubscribe-Post',
    'List-Unsubscribe-X',
    'Feedback-ID',
    'CFBL-Address',
    'CFBL-X',
    'X-Service-Mode',
    'X-Sternpost-Ref',
    'X-Acme-Ref',
  ]
  for (const name of denied) {
    for (const written of [name, name.toLowerCase(), name.toUpperCase()]) {
      const refusal = `invalid_request: headers.${written}: may not be set by a request`
      t.match(await outcome(parts, { headers: { [written]: 'x' } }), refusal)
    }
  }
  t.match(
    await outcome(parts, { headers: { 'List-Unsubscribe': '<https://a.b>' } }),
    /: .* the field unsubscribe\.url$/,
  )
  t.match(await outcome(parts, { headers: { 'reply-to': 'a@b.de' } }), /: .* the field reply_to$/)
  t.match(await outcome(parts, { headers: { Date: 'x' } }), /by a request$/)
  t.match(
    await outcome(parts, { headers: { References: '<a@b>', references: '<c@d>' } }),
    /headers.references: is given twice/,
  )
  for (const name of ['List-Id', 'X-From', 'Fromage', 'References', 'Precedence', 'constructor', 'X-Serviced']) {
    t.equal(await outcome(parts, { headers: { [name]: 'x' } }), 'accepted', name)
  }
})

t.test('cc and bcc are messages of their own with the same headers', async (t) => {
  const { accept, stored, store, clock } = await acceptanceParts(t)
  const { recipients } = await accepted(
    accept(
      sendRequest({
        to: 'Ada <ada@example.net>',
        cc: ['Bob <bob@example.org>', 'ADA@example.net'],
        bcc: ['eve@example.com', 'bob@Example.org'],
        html: '{{name}}',
        variables: { name: 'all' },
      }),
      callerWith(),
      null,
    ),
  )
  t.same(
    recipients.map(({ to, status }) => [to, status]),
    [
      ['ada@example.net', 'queued'],
      ['bob@example.org', 'queued'],
      ['eve@example.com', 'queued'],
    ],
    'each address once',
  )
  t.equal(new Set(recipients.map(({ messageId }) => messageId)).size, 3)
  t.same(stored[0]?.content.addressees, {
    to: { name: 'Ada', address: 'ada@example.net' },
    cc: [
      { name: 'Bob', address: 'bob@example.org' },
      { name: null, address: 'ADA@example.net' },
    ],
  })
  t.same(
    stored[0]?.messages.map(({ variables }) => ({ ...variables })),
    Array(3).fill({ name: 'all' }),
  )
  for (const { messageId, to } of recipients) {
    t.match(await store.lookupMessage(messageId, clock.now()), { recipient: to, state: 'queued' })
  }
  await accept(sendRequest({ bcc: ['eve@example.com'] }), callerWith(), null)
  t.same(stored[1]?.content.addressees, { to: { name: 'Ada', address: 'ada@example.net' }, cc: [] })
})

t.test('one bad address of many refuses all, and recipients come first', async (t) => {
  const parts = await acceptanceParts(t)
  const bad = { to: undefined, cc: ['a@@b.c', 'ok@example.org'], bcc: ['', 'x@y.z\r\nX: y'], from: 'x' }
  t.equal(
    await outcome(parts, bad),
    "invalid_recipient: to: is missing; cc[0]: 'a@@b.c' has two '@' signs; bcc[0]: is empty; " +
      "bcc[1]: has the control character U+000D; from: 'x' has no '@'",
  )
  t.match(
    await outcome(parts, { cc: [''], wrongTypes: ['cc[0]: expected a string, got a number'] }),
    /^invalid_recipient: cc\[0\]: expected a string, got a number$/,
  )
  t.equal(await outcome(parts, { wrongTypes: ['cc: expected an array'] }), 'invalid_request: cc: expected an array')
  const addresses = (count: number): string[] => Array.from({ length: count }, (_, index) => `a${index}@example.org`)
  t.equal(
    await outcome(parts, { cc: addresses(30), bcc: addresses(20) }),
    'invalid_request: cc: 51 addresses with to, cc and bcc; at most 50',
  )
  t.match(await outcome(parts, { bcc: addresses(50) }), /^invalid_request: bcc: 51 addresses/)
  t.equal(parts.stored.length, 0)
  t.equal(await outcome(parts, { cc: addresses(30), bcc: addresses(19) }), 'accepted')
})

t.test("the pool is the request's, else the domain's, else the default one", async (t) => {
  const parts = await acceptanceParts(t)
  await verified(parts, 'spare.example.org', 'spare')
  const poolOf = async (changes: Partial<SendRequest>): Promise<string | undefined> => {
    await parts.accept(sendRequest(changes), callerWith(), null)
    return parts.stored.at(-1)?.pool
  }
  t.equal(await poolOf({}), 'default')
  t.equal(await poolOf({ from: 'a@spare.example.org' }), 'spare')
  t.equal(await poolOf({ from: 'a@spare.example.org', ipPool: 'default' }), 'default')
  t.match(await outcome(parts, { ipPool: 'cold' }), /^ip_not_warmed: /)
  t.match(await outcome(parts, { ipPool: 'off' }), /^unavailable: /)
})

t.test('tracking is decided at acceptance: by the request, else the domain, and only for html', async (t) => {
  const { accept, stored, domains } = await acceptanceParts(t)
  const trackingOf = async (changes: Partial<SendRequest>): Promise<unknown> => {
    await accept(sendRequest(changes), callerWith(), null)
    return stored.at(-1)?.content.tracking
  }
  t.same(await trackingOf({ track: { opens: undefined, clicks: true } }), { opens: true, clicks: true })
  t.same(await trackingOf({ track: { opens: false, clicks: undefined } }), { opens: false, clicks: false })
  t.same(await trackingOf({ html: undefined, text: 'x', track: { opens: true, clicks: true } }), {
    opens: false,
    clicks: false,
  })
  await domains.update('acme.com', { tracking: { opens: false, clicks: true } })
  t.same(await trackingOf({}), { opens: false, clicks: true })
})

t.test('simulated recipients never leave the host, whoever writes to them', async (t) => {
  const { accept, stored, clock, told } = await acceptanceParts(t)
  const at = (name: string): Partial<SendRequest> => ({ to: `${name}@simulator.sternpost.test`, ipPool: 'off' })
  await accept(sendRequest(at('hard+x')), callerWith(), null)
  t.match(stored[0]?.messages, [{ isCaptured: true, simulatedSuppression: null, expiresAt: clock.now() + LIFETIME }])
  t.equal(stored[0]?.pool, 'off', 'which needs no IP')
  await accept(sendRequest({ ...at('Soft+y'), expiresIn: 600 }), callerWith(), null)
  t.match(stored[1]?.messages, [{ isCaptured: true, expiresAt: clock.now() + 10 * SECOND }])
  const { recipients } = await accepted(accept(sendRequest(at('suppressed')), callerWith(), null))
  t.match(recipients, [{ status: 'suppressed', reason: 'manual' }])
  t.equal(told.events, 1)
  const mixed = { ...at('delivered'), cc: ['ada@example.net'], ipPool: undefined }
  await accept(sendRequest(mixed), callerWith(), null)
  t.match(stored.at(-1)?.messages, [{ isCaptured: true }, { isCaptured: false }])
  t.notOk(Object.hasOwn(stored.at(-1)?.messages[1] ?? {}, 'simulatedSuppression'))
  t.match(await verdict(accept(sendRequest({ ...mixed, ipPool: 'off' }), callerWith(), null)), /^unavailable: /)
})

t.test('mail of a test key stays on the host, from a ready domain if it likes', async (t) => {
  const parts = await acceptanceParts(t)
  const test = callerWith({ mode: 'test' })
  await parts.accept(sendRequest({ ipPool: 'cold' }), test, null)
  t.match(parts.stored[0], { isTest: true, domain: 'acme.com', messages: [{ isCaptured: true }] })
  const fromReady = sendRequest({ from: `shop@${TEST_DOMAIN}` })
  await parts.accept(fromReady, test, null)
  t.match(parts.stored[1], {
    isTest: true,
    domain: TEST_DOMAIN,
    pool: 'default',
    content: { tracking: { opens: true, clicks: true } },
    messages: [{ isCaptured: true }],
  })
  t.match(await verdict(parts.accept(fromReady, callerWith(), null)), /^domain_not_verified: ready\.example\.test/)
  await verified(parts, TEST_DOMAIN, 'spare')
  await parts.accept(fromReady, test, null)
  t.match(parts.stored[2], { pool: 'spare', content: { tracking: { opens: true, clicks: false } } }, 'as it is set up')
  t.match(await verdict(parts.accept(fromReady, { ...test, domains: ['acme.com'] }, null)), /^forbidden: /)
  t.match(await verdict(parts.accept(sendRequest({ from: 'a@nope.org' }), test, null)), /^domain_not_verified: /)

  const everythingLeaves = await acceptanceParts(t, { options: { captures: 'simulated', testSendingDomain: null } })
  await everythingLeaves.accept(sendRequest(), test, null)
  t.match(everythingLeaves.stored[0], { isTest: true, messages: [{ isCaptured: false }] })
  t.match(await verdict(everythingLeaves.accept(fromReady, test, null)), /^domain_not_verified: /)
})

t.test('a suppressed recipient is accepted, and said to be suppressed', async (t) => {
  const { accept, store, clock, told } = await acceptanceParts(t)
  const entry = { messageId: null, createdAt: clock.now() }
  await store.addSuppression({
    ...entry,
    id: 'sup_01kapg6t3vq8x2m5r7w9y4c6dq',
    email: 'ada@example.net',
    reason: 'hard_bounce',
    scope: 'all',
    domain: null,
    owners: [],
    isTest: false,
  })
  await store.addSuppression({
    ...entry,
    id: 'sup_01kapg6t3vq8x2m5r7w9y4c6dr',
    email: 'bob@example.net',
    reason: 'unsubscribe',
    scope: 'news',
    domain: null,
    owners: [],
    isTest: false,
  })
  const send = async (changes: Partial<SendRequest>, mode: 'live' | 'test' = 'live') =>
    (await accepted(accept(sendRequest(changes), callerWith({ mode }), null))).recipients
  t.match(await send({}), [{ status: 'suppressed', reason: 'hard_bounce' }])
  t.equal(told.events, 1)
  t.match(await send({ to: 'bob@EXAMPLE.net' }), [{ status: 'queued', reason: null }], 'of no list')
  const news = { to: 'carol@example.net', cc: ['bob@example.net'], unsubscribe: { list: 'news', url: undefined } }
  t.match(await send(news), [{ status: 'queued' }, { status: 'suppressed', reason: 'unsubscribe' }])
  t.match(await send({}, 'test'), [{ status: 'queued' }], 'test keys have a list of their own')
})

// Any text, with what could end a line, a field or an address more often than by chance.
const hostile = fc.string({
  unit: fc.oneof(
    fc.string({ minLength: 1, maxLength: 3, unit: 'binary' }),
    fc.constantFrom('\r\n', '\n', '\r', ':', '<', '>', ',', '"', '\0', '\u2028', 'Bcc: x@y.z', '=?', '?=', ' ', '\t'),
  ),
  maxLength: 20,
})

t.test('property: no header value adds a field, a recipient or a body', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const property = fc.asyncProperty(hostile, hostile, hostile, async (value, subject, name) => {
    const from = `"${name.replace(/["\\]/g, '')}" <orders@acme.com>`
    const unsubscribe = { list: 'news', url: `https://acme.com/${value}` }
    const before = stored.length
    const requests = [{ headers: { 'X-Hostile': value } }, { subject }, { from }, { unsubscribe }, { replyTo: from }]
    const answers = await Promise.all(requests.map((each) => outcome({ accept }, each)))
    if (!answers.every((answer) => answer === 'accepted' || answer.startsWith('invalid_request: '))) return false
    const rendered = await Promise.all(stored.slice(before).map(renderedHeaders))
    return rendered.every(({ names }) => {
      return new Set(names).size === names.length && names.every((each) => EXPECTED_FIELDS.includes(each))
    })
  })
  await fc.assert(property, { numRuns: process.env['TEST_SCALE'] === 'full' ? 1_000 : 40 })
})

const EXPECTED_FIELDS = [
  'from',
  'to',
  'subject',
  'date',
  'message-id',
  'x-sternpost-ref',
  'feedback-id',
  'mime-version',
  'content-type',
  'content-transfer-encoding',
  'x-hostile',
  'reply-to',
  'list-unsubscribe',
  'list-unsubscribe-post',
]

t.test('property: a tag is stored as it is or refused', async (t) => {
  const { accept, stored } = await acceptanceParts(t)
  const property = fc.asyncProperty(fc.dictionary(hostile, hostile, { maxKeys: 3 }), async (tags) => {
    const answer = await outcome({ accept }, { tags })
    // Printable ASCII, a key of at least one character.
    const isGood = Object.entries(tags).every(
      ([key, value]) => /^[ -~]{1,64}$/.test(key) && /^[ -~]{0,256}$/.test(value),
    )
    if (!isGood) return answer.startsWith('invalid_request: tags.')
    return answer === 'accepted' && JSON.stringify(stored.at(-1)?.content.tags) === JSON.stringify(tags)
  })
  await fc.assert(property, { numRuns: process.env['TEST_SCALE'] === 'full' ? 1_000 : 60 })
  const named: unknown = JSON.parse('{"__proto__":"x","constructor":"y"}')
  const tags = typeof named === 'object' && named !== null ? { ...named } : {}
  t.equal(await outcome({ accept }, { tags }), 'accepted')
  t.equal(JSON.stringify(stored.at(-1)?.content.tags), '{"__proto__":"x","constructor":"y"}')
  t.equal(Reflect.get({}, 'x'), undefined)
})
