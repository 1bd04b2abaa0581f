/**
 * The webhook inspector and the rules of all `/dev` paths, over real HTTP.
 */
import { createSecretKey } from 'node:crypto'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { createAdjustableClock, type AdjustableClock } from '../../src/sandbox/adjustable-clock.ts'
import { createDevRoutes } from '../../src/sandbox/dev-routes.ts'
import { createInbox, type Inbox } from '../../src/sandbox/inbox.ts'
import { createCaptureReplies, type CaptureReplies } from '../../src/capture/replies.ts'
import { createWebhookInspector, type WebhookInspector } from '../../src/sandbox/webhook-inspector.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { devServer, type DevServer } from './dev-server.ts'

const NOW = 1_795_219_200_000
const SECRET = 'the secret of the inspector'
const BODY = '{"event":"email.delivered","timestamp":1795219207,"data":{"message_id":"msg_1"}}'
const signed = (body: string, secret = SECRET): Record<string, string> => ({
  'X-Service-Signature': createHmac('sha256', secret).update(body).digest('hex'),
  'X-Service-Attempt': '2',
})

interface World {
  dev: DevServer
  inbox: Inbox
  inspector: WebhookInspector
  clock: AdjustableClock
  replies: CaptureReplies
  /** How often the clock was changed over HTTP. */
  changes(): number
}

async function withWorld(work: (world: World) => Promise<void>): Promise<void> {
  const logger = createLogger({ level: 'silent' })
  const clock = createAdjustableClock({ speed: 1, ahead: 0 })
  const replies = createCaptureReplies()
  let changes = 0
  const verifyDkim = async () => ({ result: 'none', domain: null, selector: null })
  const inbox = createInbox({ keep: 10, logger, verifyDkim, bounceKey: async () => createSecretKey(Buffer.alloc(32)) })
  const secretsFor = (name: string): string[] => (name === 'inspector' ? ['old', SECRET] : [])
  const inspector = createWebhookInspector({ clock: manualClock(NOW), secretsFor })
  const dev = await devServer((baseUrl) =>
    createDevRoutes({ baseUrl, inbox, inspector, clock, replies, onClockChange: () => void (changes += 1) }),
  )
  try {
    await work({ dev, inbox, inspector, clock, replies, changes: () => changes })
  } finally {
    inbox.close()
    inspector.close()
    await dev.close()
  }
}

t.test('the inspector shows what it got and whether the signature is valid', async (t) => {
  await withWorld(async ({ dev }) => {
    const post = async (headers: Record<string, string>, body: string | Buffer = BODY): Promise<number> =>
      (await dev.ask('POST', '/dev/hooks/inspector', { headers, body })).status
    t.equal(await post(signed(BODY)), 200)
    t.equal(await post(signed(BODY, 'wrong')), 401, 'a receiver rejects a mismatch')
    t.equal(await post({}), 401)
    t.equal(await post(signed(`${BODY} `)), 401)
    t.equal(await post({ 'X-Service-Signature': signed(BODY)['X-Service-Signature']?.toUpperCase() ?? '' }), 401)
    t.equal(await post({}, 'no json'), 401)
    t.equal(await post({}, Buffer.alloc(1024 * 1024 + 1, 'x')), 413)
    const { data, text } = await dev.get('/dev/hooks/inspector')
    t.match(JSON.parse(text), { success: true, has_more: false, next_cursor: null })
    const deliveries = data as Record<string, unknown>[]
    const verdicts = deliveries.map(({ signature }) => signature).toReversed()
    t.same(verdicts, ['valid', 'invalid', 'missing', 'invalid', 'invalid', 'missing'])
    t.match(deliveries.at(-1), {
      received_at: NOW / 1_000,
      attempt: 2,
      answer: 200,
      body: BODY,
      event: { event: 'email.delivered', timestamp: 1_795_219_207 },
      headers: { 'x-service-signature': signed(BODY)['X-Service-Signature'] },
    })
    t.match(deliveries[0], { event: null, attempt: null, body: 'no json', answer: 401 })
    t.same((await dev.get('/dev/hooks/inspector?event=email.bounced')).data, [])
    t.equal(((await dev.get('/dev/hooks/inspector?event=email.delivered&limit=2')).data as unknown[]).length, 2)
  })
})

t.test('a name whose secret is not known takes any POST', async (t) => {
  await withWorld(async ({ dev }) => {
    t.equal((await dev.ask('POST', '/dev/hooks/mine', { body: BODY })).status, 200)
    t.match((await dev.get('/dev/hooks/mine')).data, [{ signature: 'missing', answer: 200 }])
    t.same((await dev.get('/dev/hooks/other')).data, [])
    t.equal((await dev.get('/dev/hooks/a.b')).status, 404)
  })
})

t.test('a waiting request answers as soon as a delivery comes', async (t) => {
  await withWorld(async ({ dev }) => {
    const waiting = dev.get('/dev/hooks/inspector?wait=30s&event=email.delivered')
    await dev.ask('POST', '/dev/hooks/inspector', { body: '{"event":"email.opened"}' })
    await dev.ask('POST', '/dev/hooks/inspector', { body: BODY, headers: signed(BODY) })
    t.match((await waiting).data, [{ signature: 'valid' }])
  })
})

t.test('the answer can be set: a status for some times, a closed connection, a slow answer', async (t) => {
  await withWorld(async ({ dev, inspector }) => {
    const set = (body: string) => dev.ask('PUT', '/dev/hooks/mine', { body })
    const post = async (): Promise<number> => (await dev.ask('POST', '/dev/hooks/mine', { body: BODY })).status
    t.same((await set('{"answer":500,"times":2}')).data, { answer: 500, times: 2 })
    t.same([await post(), await post(), await post()], [500, 500, 200])
    await set('{"answer":204}')
    t.same([await post(), await post()], [204, 204])
    await set('{"answer":"close","times":1}')
    await t.rejects(post())
    t.equal(await post(), 200)
    await set('{"answer":"slow","times":1}')
    let isAnswered = false
    const slow = post().finally(() => (isAnswered = true))
    await until(
      'the slow one has arrived',
      async () => (await inspector.find('mine', null, 1, 0))[0]?.answer === 'slow',
    )
    for (let turn = 0; turn < 3; turn += 1) await dev.get('/dev/hooks/mine')
    t.equal(isAnswered, false, 'it waits while others are answered')
    inspector.close()
    t.equal(await slow, 200, 'and does not hold up the end')
    const shown = (await dev.get('/dev/hooks/mine')).data as { answer: unknown }[]
    t.same(
      shown.map(({ answer }) => answer),
      ['slow', 200, 'close', 204, 204, 200, 500, 500],
    )

    for (const [body, status] of [
      ['{"answer":199}', 422],
      ['{"answer":600}', 422],
      ['{"answer":"never"}', 422],
      ['{}', 422],
      ['[]', 422],
      ['7', 422],
      ['{"answer":200,"times":0}', 422],
      ['{"answer":200,"times":1.5}', 422],
      ['{"answer":', 400],
    ] as const) {
      const answer = await set(body)
      t.equal(answer.status, status, body)
      t.match(answer.data, { success: false, error: { code: 'invalid_request', details: String } })
    }
  })
})

t.test('what the inspector holds is bounded', async (t) => {
  await withWorld(async ({ dev, inspector }) => {
    for (let index = 0; index < 1_005; index += 1) inspector.receive('busy', {}, Buffer.from(`{"n":${index}}`))
    const all = await inspector.find('busy', null, 5_000, 0)
    t.equal(all.length, 1_000)
    t.same(all.at(-1)?.event, { n: 5 }, 'the oldest went first')
    for (let index = 0; index < 99; index += 1) inspector.receive(`name-${index}`, {}, Buffer.from('{}'))
    inspector.receive('busy', {}, Buffer.from('{"n":"again"}'))
    t.equal((await dev.ask('POST', '/dev/hooks/one-more', { body: '{}' })).status, 200)
    const counts = async (...names: string[]): Promise<number[]> =>
      Promise.all(names.map(async (name) => (await inspector.find(name, null, 5_000, 0)).length))
    t.same(await counts('name-0', 'name-1', 'busy', 'one-more'), [0, 1, 1_000, 1], 'the name unused longest went')
    const large = Buffer.alloc(1024 * 1024, 'x')
    for (let index = 0; index < 130; index += 1) inspector.receive('name-0', {}, large)
    t.ok((await inspector.find('name-0', null, 5_000, 0)).length <= 128)
    t.equal((await inspector.find('busy', null, 5_000, 0)).length, 0, 'the oldest of all names make room')
    const headers = { 'x-large': 'x'.repeat(1024 * 1024) }
    for (let index = 0; index < 130; index += 1) inspector.receive('name-2', headers, Buffer.from('{}'))
    t.ok((await inspector.find('name-2', null, 5_000, 0)).length <= 128, 'headers take room as well')
  })
})

t.test('a web page of another origin is refused, also one whose name was made to lead here', async (t) => {
  await withWorld(async ({ dev }) => {
    const localhost = dev.baseUrl.replace('127.0.0.1', 'localhost')
    for (const origin of ['http://evil.test', 'null', localhost, `${dev.baseUrl}0`]) {
      const answer = await dev.ask('GET', '/dev/inbox', { headers: { Origin: origin } })
      t.equal(answer.status, 403, origin)
      t.match(answer.data, { success: false, error: { code: 'forbidden' } })
    }
    t.equal((await dev.ask('GET', '/dev/inbox', { headers: { Origin: dev.baseUrl } })).status, 200)
    const { port } = new URL(dev.baseUrl)
    const socket = connect(Number(port), '127.0.0.1')
    // The name of the page leads here too: its browser sends no Origin with a GET.
    socket.write('GET /dev/inbox HTTP/1.1\r\nHost: evil.test\r\n\r\n')
    const [answer] = (await once(socket, 'data')) as [Buffer]
    t.match(answer.toString(), /^HTTP\/1\.1 403 /)
    socket.destroy()
    t.equal((await fetch(`${localhost}/dev/inbox`)).status, 200, 'localhost is the same place')
    const act = (origin: string): Promise<Response> =>
      fetch(`${localhost}/dev/inbox`, { method: 'DELETE', headers: { Origin: origin } })
    t.equal((await act(localhost)).status, 200, 'also for a page that came from there')
    t.equal((await act(dev.baseUrl)).status, 403, 'but not for one from the other name')
  })
})

t.test('other paths go on to the API; unknown ones and wrong methods below /dev are errors', async (t) => {
  await withWorld(async ({ dev }) => {
    for (const path of ['/v1/health', '/developer', '/']) t.equal((await dev.get(path)).text, 'the API', path)
    for (const path of ['/dev/', '/dev/inbox/']) t.equal((await dev.get(path)).status, 200, path)
    for (const path of ['/dev/nothing', '/dev/hooks', '/dev/clock/x', '/dev/hooks/a/b']) {
      const answer = await dev.get(path)
      t.equal(answer.status, 404, path)
      t.match(answer.data, { success: false, error: { code: 'not_found' } })
    }
    const answer = await dev.ask('PATCH', '/dev/hooks/inspector', { body: '{}' })
    t.equal(answer.status, 405)
    t.equal(answer.headers.get('allow'), 'POST, GET, PUT')
    const head = await dev.ask('HEAD', '/dev/inbox')
    t.same([head.status, head.text], [200, ''])
  })
})

t.test('/dev/clock shows application time, and makes it faster or jump, never backwards', async (t) => {
  await withWorld(async ({ dev, clock, changes }) => {
    const change = (body: unknown) => dev.ask('POST', '/dev/clock', { body: JSON.stringify(body) })
    t.match((await dev.get('/dev/clock')).data, { time: Number, iso: /Z$/, speed: 1, ahead_seconds: 0 })
    const before = clock.now()
    t.match((await change({ advance: '2h' })).data, { speed: 1, ahead_seconds: 7_200 })
    t.ok(clock.now() - before >= 7_200_000)
    t.match((await change({ speed: 60 })).data, { speed: 60 })
    t.match((await change({ speed: 1, advance: '30m' })).data, { speed: 1 })
    t.equal(changes(), 3)
    const shown = clock.now()
    for (const body of [{ advance: '-2h' }, { speed: -1 }, { speed: 60, advance: '-1s' }]) {
      const answer = await change(body)
      t.equal(answer.status, 409, JSON.stringify(body))
      t.match(answer.data, { error: { code: 'conflict', details: /never goes backwards/ } })
    }
    for (const body of [
      {},
      [],
      7,
      { speed: 'fast' },
      { speed: 0 },
      { speed: 100_001, advance: '2h' },
      { advance: '2 hours' },
      { advance: 7_200 },
      { advance: '500d' },
      { time: 0 },
    ]) {
      const answer = await change(body)
      t.equal(answer.status, 422, JSON.stringify(body))
      t.match(answer.data, { error: { code: 'invalid_request', details: String } })
    }
    const details = 'the body has no field "time"; there are speed and advance'
    t.match((await change({ time: 0 })).data, { error: { details } })
    t.equal((await dev.ask('POST', '/dev/clock', { body: '{' })).status, 400)
    t.ok(clock.now() - shown < 60_000, 'what is refused changes nothing')
    t.equal(clock.speed(), 1)
    t.equal(changes(), 3)
  })
})
