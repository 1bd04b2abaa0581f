/**
 * Sending over HTTP: every form of the answer, batches, previews, and what can be done with a message afterwards.
 */
import t from 'tap'
import { readComplaintToken, readUnsubscribeToken } from '../../src/mail/message-token.ts'
import { TOKEN_KEY } from './api-features.ts'
import { ask, get, post, sendOne, startApi, VALID_SEND, type Got } from './api-server.ts'

const BATCH = {
  from: 'news@acme.com',
  subject: 'Hello {{name}}',
  html: '<p>Hello {{name}}</p>',
  recipients: [{ to: 'ada@example.net', name: 'Ada' }, { to: 'bob@@x', name: 'Bob' }, { to: 'carol@example.org' }],
}
/** The clock of these tests, in seconds, and an hour later. */
const NOW = Date.UTC(2026, 10, 21, 12) / 1_000
const SOON = NOW + 3_600

const batch = (port: number, changes: object = {}, headers: Record<string, string> = {}): Promise<Got> =>
  ask(port, { path: '/v1/email/batch', headers, body: JSON.stringify({ ...BATCH, ...changes }) })

t.test('more than three fields only off the normal path', async (t) => {
  const { port } = await startApi(t)
  const send = async (fields: object): Promise<Record<string, unknown>> =>
    JSON.parse((await post(port, '/v1/email/send', { ...VALID_SEND, ...fields })).text)
  t.same(Object.keys(await send({ send_at: NOW - 60 })), ['success', 'message_id', 'timestamp'], 'a past time is now')
  t.match(await send({ send_at: SOON }), { status: 'scheduled' })
  await post(port, '/v1/suppressions', { email: 'gone@example.net' })
  const suppressed = await send({ to: 'Gone <gone@example.net>' })
  t.same(Object.keys(suppressed), ['success', 'message_id', 'timestamp', 'status', 'reason'])
  t.match(suppressed, { status: 'suppressed', reason: 'manual' })
  const copies = await send({ cc: ['Bob <bob@example.net>'], bcc: ['gone@example.net'], send_at: SOON })
  t.match(copies, {
    status: 'scheduled',
    recipients: [
      { to: 'ada@example.net', message_id: copies['message_id'] },
      { to: 'bob@example.net', message_id: /^msg_/ },
      { to: 'gone@example.net', message_id: /^msg_/, status: 'suppressed', reason: 'manual' },
    ],
  })
  const twice = await send({
    to: 'Ada@example.net',
    cc: ['bob@example.net', 'ada@Example.net'],
    bcc: ['BOB@example.net'],
  })
  const named = [{ to: 'Ada@example.net' }, { to: 'bob@example.net' }]
  t.match(twice, { recipients: named }, 'who is named twice gets it once')
  t.equal(Object(twice['recipients']).length, named.length)
  const { json } = await get(port, `/v1/email/${String(suppressed['message_id'])}`)
  t.equal(json.data?.['state'], 'suppressed')
})

t.test('one bad address of cc or bcc refuses the whole', async (t) => {
  const { port } = await startApi(t)
  for (const fields of [{ cc: ['x@@y'] }, { bcc: ['a@b.de', 7] }, { cc: [null] }]) {
    const { status, json } = await post(port, '/v1/email/send', { ...VALID_SEND, ...fields })
    t.equal(status, 422)
    t.equal(json.error?.code, 'invalid_recipient', JSON.stringify(fields))
  }
  const many = await post(port, '/v1/email/send', { ...VALID_SEND, cc: Array.from({ length: 51 }, () => 'a@b.de') })
  t.match(many.json.error, { code: 'invalid_request', details: /^cc: 51 entries/ })
  t.same((await get(port, '/v1/email')).json.data, [])
})

t.test('a batch tells of each recipient in order', async (t) => {
  const { port } = await startApi(t)
  await post(port, '/v1/suppressions', { email: 'carol@example.org', reason: 'complaint' })
  const recipients = BATCH.recipients.map((recipient) => ({ name: 'you', ...recipient }))
  const { status, text } = await batch(port, { recipients })
  t.equal(status, 200)
  const answer = JSON.parse(text)
  t.match(answer, {
    success: true,
    batch_id: /^bat_/,
    timestamp: NOW,
    total: 3,
    accepted: 2,
    rejected: 1,
    results: [
      { index: 0, to: 'ada@example.net', success: true, message_id: /^msg_/, status: 'queued' },
      {
        index: 1,
        to: 'bob@@x',
        success: false,
        error: {
          code: 'invalid_recipient',
          message: 'The recipient address is not valid.',
          details: /^recipients\[1\]\.to: /,
        },
      },
      { index: 2, to: 'carol@example.org', success: true, status: 'suppressed', reason: 'complaint' },
    ],
  })
  const found = await get(port, `/v1/email/batch/${answer.batch_id}`)
  t.match(found.json.data, { total: 3, accepted: 2, rejected: 1, states: { queued: 1, suppressed: 1, delivered: 0 } })
  const listed = await get(port, `/v1/email?batch_id=${answer.batch_id}&state=suppressed`)
  t.match(listed.json.data, [{ message_id: answer.results[2].message_id, recipient: 'carol@example.org' }])
  const canceled = await ask(port, { path: `/v1/email/batch/${answer.batch_id}/cancel` })
  t.match(canceled.json.data, { batch_id: answer.batch_id, canceled: 1, not_canceled: 1 })
  const scheduled = await batch(port, { recipients: recipients.slice(0, 1), send_at: SOON })
  t.match(JSON.parse(scheduled.text).results, [{ status: 'scheduled' }])
})

t.test('a batch is refused as a whole when all or, if strict, one of its recipients is bad', async (t) => {
  const { port } = await startApi(t)
  const cases: [object, Record<string, string>, string, RegExp][] = [
    [{}, { 'X-Batch-Validation': 'strict' }, 'invalid_recipient', /^recipients\[1\]\.to: .*; .*recipients\[2\].*name/],
    [{ recipients: BATCH.recipients.slice(2) }, {}, 'invalid_request', /recipients\[0\].*name/],
    [{ recipients: [] }, {}, 'invalid_request', /^recipients: /],
    [{ recipients: undefined }, {}, 'invalid_request', /^recipients: is missing$/],
    [{ recipients: 'all' }, {}, 'invalid_request', /^recipients: expected a list/],
    [{ subject: 7 }, {}, 'invalid_request', /^subject: /],
    [
      { recipients: Array.from({ length: 1_001 }, () => ({ to: 'a@b.de' })) },
      {},
      'invalid_request',
      /^recipients: 1001 entries; at most 1000 are allowed$/,
    ],
  ]
  for (const [changes, headers, code, details] of cases) {
    const { status, json } = await batch(port, changes, headers)
    t.equal(status, 422, String(details))
    t.match(json.error, { code, details })
  }
  t.same((await get(port, '/v1/email')).json.data, [], 'nothing was queued')
  const entries = [{ to: 'a@b.de', name: 'A' }, null, 7, 'x', []]
  t.match((await batch(port, { recipients: entries })).json, { total: 5, accepted: 1, rejected: 4 })
  const misspelt = await batch(port, {}, { 'X-Batch-Validation': 'stict' })
  t.match(misspelt, { status: 400, json: { error: { details: /^X-Batch-Validation: / } } })
  const own = await batch(port, { cc: ['a@b.de'], variables: {} })
  t.equal(own.headers['x-service-warnings'], 'cc,variables')
})

t.test('a long number arrives with all of its digits', async (t) => {
  const { port } = await startApi(t)
  const body = JSON.stringify({ ...VALID_SEND, text: '{{order}} {{below}} {{short}}' }).replace(
    /}$/,
    ',"variables":{"order":1234567890123456789,"below":-12345678901234567890,"short":9007199254740991}}',
  )
  const { json } = await ask(port, { path: '/v1/email/preview', body })
  t.match(json.data, { text: '1234567890123456789 -12345678901234567890 9007199254740991' })
  const late = JSON.stringify({ ...VALID_SEND, send_at: 'x' }).replace('"x"', '1795219200000000000')
  const { details } = (await ask(port, { path: '/v1/email/send', body: late })).json.error ?? {}
  t.equal(details, 'send_at: expected a Unix time in seconds')
})

t.test('a preview shows the mail and stores nothing', async (t) => {
  const { port } = await startApi(t)
  const fields = { subject: 'Order {{no}}', html: '<p>Hi {{name}}</p>', variables: { no: 1042, name: '<Ada>' } }
  const { status, json } = await post(port, '/v1/email/preview', { ...VALID_SEND, ...fields }, 'send')
  t.equal(status, 200)
  t.match(json.data, { subject: 'Order 1042', html: /Hi &lt;Ada&gt;/, text: 'Hi', mime_bytes: Number })
  t.same((await get(port, '/v1/email')).json.data, [])
  const refused = await post(port, '/v1/email/preview', { ...VALID_SEND, from: 'x@unknown.com' })
  t.equal(refused.json.error?.code, 'domain_not_verified')
})

t.test('a message is canceled once and for all, and only a failed or deferred one is tried again', async (t) => {
  const { port, log } = await startApi(t)
  const id = await sendOne(port)
  for (let count = 0; count < 2; count += 1) {
    const { status, json } = await ask(port, { path: `/v1/email/${id}/cancel`, key: 'send' })
    t.equal(status, 200)
    t.same(json.data, { message_id: id, state: 'canceled' })
  }
  t.match(
    log.find(({ msg }) => msg === 'message canceled'),
    { message_id: id, api_key: 'send …9f3a' },
  )
  const again = await ask(port, { path: `/v1/email/${id}/retry`, key: 'send' })
  t.match(again, { status: 409, json: { error: { code: 'conflict', details: /canceled/ } } })
  const explained = await get(port, `/v1/email/${id}/explain`)
  t.match(explained.json.data, { message_id: id, state: 'canceled', waiting_for: null })
  t.same((await get(port, `/v1/email/${id}/transcript`)).json.data, [])
})

t.test('administrators see what a message looks like, without what would count as an open', async (t) => {
  const { port } = await startApi(t)
  const links = '<p>Hi {{name}} <a href="https://a.example/x">x</a></p>'
  const id = await sendOne(port, {
    subject: 'Order {{no}}',
    html: links,
    variables: { no: 1042, name: '<Ada>' },
    track: { opens: true, clicks: true },
  })
  const path = `/v1/email/${id}/content`
  t.match((await get(port, path, 'read')).json.error, { code: 'forbidden' })
  const { json } = await get(port, path)
  t.match(json.data, {
    subject: 'Order 1042',
    html: 'Hi &lt;Ada&gt; <a href="https://a.example/x">x</a>',
    text: 'Hi',
    source: /^Message-ID: /im,
    mime_bytes: Number,
  })
  t.notMatch(json.data?.['html'], '<img', 'no pixel')
  const shown = await ask(port, { method: 'GET', path, headers: { accept: 'text/html,*/*' } })
  t.match(shown.headers, { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': /^sandbox; / })
  t.equal(shown.text, json.data?.['html'])
  t.notMatch(shown.headers['content-security-policy'], 'https:')
  const withImages = await ask(port, { method: 'GET', path: `${path}?images=remote`, headers: { accept: 'text/html' } })
  t.match(withImages.headers['content-security-policy'], /img-src data: https: http:;/)
})

t.test('what a message looks like lets nobody report or unsubscribe as its recipient', async (t) => {
  const { port } = await startApi(t)
  const id = await sendOne(port, {
    html: `<p>${'long '.repeat(20)}<a href="{{unsubscribe_url}}">leave</a></p>`,
    variables: {},
    unsubscribe: { list: 'news' },
  })
  const { data } = (await get(port, `/v1/email/${id}/content`)).json
  t.match(data?.['html'], 'href="https://t.acme.com/u/…"')
  t.match(data?.['source'], /^Message-ID: <…@/im)
  const shown = JSON.stringify(data) + String(data?.['source']).replaceAll('=\r\n', '')
  for (const token of shown.match(/[a-z2-7]{48,}/g) ?? []) {
    t.equal(readComplaintToken(token, TOKEN_KEY), undefined)
    t.equal(readUnsubscribeToken(token, TOKEN_KEY), undefined)
  }
})

t.test('messages are searched for, page by page', async (t) => {
  const { port } = await startApi(t)
  const ids: string[] = []
  for (let index = 0; index < 3; index += 1) {
    ids.unshift(await sendOne(port, { to: `user${index}@example.net`, tags: { order: `${index % 2}:x` } }))
  }
  const search = async (query: string): Promise<{ ids: string[]; next: string | null }> => {
    const { status, text } = await get(port, `/v1/email?${query}`, 'read')
    t.equal(status, 200, `${query}: ${text}`)
    const { data, next_cursor: next } = JSON.parse(text)
    return { ids: data.map((message: { message_id: string }) => message.message_id), next }
  }
  t.same((await search('')).ids.toSorted(), ids.toSorted())
  t.same((await search('recipient=USER1@example.net')).ids, [ids[1]], 'in any capitals')
  t.same((await search('recipient=user1@EXAMPLE.net')).ids, [ids[1]])
  t.same((await search('tag=order:1%3Ax')).ids, [ids[1]])
  t.same((await search('from=orders@acme.com&state=queued')).ids.length, 3)
  t.same((await search(`since=${NOW + 1}`)).ids, [])
  const walked: string[] = []
  for (let after: string | null = ''; after !== null;) {
    const page = await search(`limit=1${after === '' ? '' : `&after=${encodeURIComponent(after)}`}`)
    walked.push(...page.ids)
    after = page.next
  }
  t.same(walked.toSorted(), ids.toSorted())
  for (const query of [
    'state=gone',
    'tag=x',
    'ip=1.2.3',
    'since=yesterday',
    'batch_id=7',
    'after=nonsense',
    'limit=0',
    'recipient=x',
  ]) {
    const { status, json } = await get(port, `/v1/email?${query}`, 'read')
    t.equal(status, 422, query)
    t.match(json.error?.details, query.split('=')[0] ?? '')
  }
})
