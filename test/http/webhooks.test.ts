/**
 * The routes of webhooks: what they answer, to whom, what they refuse; and the stream of events as a client reads it.
 */
import { once } from 'node:events'
import { request } from 'node:http'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import { acceptOne, claim, delivered, outcomeRecord } from '../store/store-samples.ts'
import { until } from '../support/until.ts'
import { ask, get, keyNamed, post, startApi, type ApiServer, type Got, type KeyName } from './api-server.ts'

const URL = 'https://127.0.0.1/hooks'
const NO_ENDPOINT = 'wh_01kapg6t3vq8x2m5r7w9y4c6dm'

const patch = (port: number, id: string, body: object): Promise<Got> =>
  ask(port, { method: 'PATCH', path: `/v1/webhooks/${id}`, body: JSON.stringify(body) })
const remove = (port: number, id: string): Promise<Got> => ask(port, { method: 'DELETE', path: `/v1/webhooks/${id}` })

async function register(port: number, fields: object = {}): Promise<string> {
  const { json } = await post(port, '/v1/webhooks', { url: URL, ...fields })
  return String(json.data?.['id'])
}

/** One delivered message: one event. */
async function tellOne({ store, clock, eventStreams }: ApiServer): Promise<string> {
  const { epoch } = await store.beginEpoch(clock.now(), clock.now())
  const messageId = await acceptOne(store)
  const messages = await claim(store, epoch)
  const outcomes = messages.map((message) => outcomeRecord(message, delivered))
  await store.recordOutcomes({ epoch, now: clock.now(), outcomes })
  eventStreams.wake()
  return messageId
}

t.test('an endpoint is registered, listed, changed and removed; its secret is never seen again', async (t) => {
  const { port, clock, log } = await startApi(t)
  const secret = 'correct horse battery staple'
  const made = await post(
    port,
    '/v1/webhooks',
    { url: URL, secret, include: ['tags', 'machine'], description: 'orders', events: ['*'] },
    'webhooks',
  )
  t.equal(made.status, 201)
  const id = String(made.json.data?.['id'])
  t.match(made.json.data, { include: ['tags', 'machine'], events: ['*'], status: 'enabled', pending: 0 })
  const found = await get(port, `/v1/webhooks/${id}`, 'webhooks')
  t.same(found.json.data, made.json.data)
  await clock.advance(5_000)
  const changed = await patch(port, id, {
    url: `${URL}/2`,
    events: ['email.bounced'],
    include: null,
    description: '',
    status: 'disabled',
    colour: 'red',
  })
  t.match(changed.json.data, {
    id,
    url: `${URL}/2`,
    events: ['email.bounced'],
    include: ['tags', 'machine'],
    description: '',
    status: 'disabled',
    disabled_reason: 'manual',
    updated_at: clock.now() / 1_000,
  })
  t.equal(changed.headers['x-service-warnings'], 'colour')
  t.match((await patch(port, id, { status: 'enabled' })).json.data, { status: 'enabled', disabled_reason: null })
  const newer = await register(port)
  const list = await get(port, '/v1/webhooks?limit=1')
  t.match(list.json, { has_more: true, data: [{ id: newer }] })
  const next = await get(port, `/v1/webhooks?limit=1&after=${String(Reflect.get(list.json, 'next_cursor'))}`)
  t.match(next.json, { has_more: false, data: [{ id }] })
  t.equal((await get(port, '/v1/webhooks?after=x')).status, 422)
  const removed = await remove(port, id)
  t.same(removed.json.data, { id, deleted: true })
  t.equal((await remove(port, id)).status, 404)
  for (const { text } of [made, found, changed, list, next, removed]) t.notMatch(text, secret)
  for (const what of ['registered', 'changed', 'removed']) {
    t.match(
      log.find(({ msg }) => msg === `webhook endpoint ${what}`),
      { endpoint_id: id },
    )
  }
  t.notMatch(JSON.stringify(log), secret)
})

t.test('what is wrong is named with its field, and what is not there is 404', async (t) => {
  const { port } = await startApi(t)
  const id = await register(port)
  const cases: [body: object, details: RegExp][] = [
    [{ url: 'http://x.de/' }, /^url: must be an https URL$/],
    [{ url: 7 }, /^url: expected a string/],
    [{ events: [] }, /^events: must not be empty/],
    [{ events: ['email.sent'] }, /^events\[0\]: is no event kind; known are email.delivered, .*webhook.test$/],
    [{ include: ['tags', 'tags'] }, /^include\[1\]: tags is there twice$/],
    [{ include: ['secret'] }, /^include\[0\]: expected one of tags, metadata, ip, smtp_response, machine, category$/],
    [{ description: 'x'.repeat(201) }, /^description: must have at most 200/],
    [{ status: 'paused' }, /^status: expected one of enabled, disabled$/],
    [{ url: 'x', events: ['y'], include: ['z'] }, /^url: .*; events\[0\]: .*; include\[0\]: /],
  ]
  for (const [body, details] of cases) {
    const { status, json } = await patch(port, id, body)
    t.equal(status, 422)
    t.match(json.error, { code: 'invalid_request', details })
  }
  t.match((await post(port, '/v1/webhooks', { url: URL, include: ['z'] })).json.error, { details: /^include\[0\]/ })
  t.equal((await post(port, `/v1/webhooks/${id}/rotate-secret`, { grace_seconds: -1 })).status, 422)
  t.equal((await post(port, `/v1/webhooks/${id}/replay`, { since: 'now' })).status, 422)
  t.equal((await post(port, `/v1/webhooks/${id}/replay`, { events: ['email.sent'] })).status, 422)
  t.equal((await post(port, `/v1/webhooks/${id}/test`, { event: 'email.sent' })).status, 422)
  t.equal((await get(port, `/v1/webhooks/${id}/deliveries?status=lost`)).status, 422)
  t.equal((await get(port, `/v1/webhooks/${id}/deliveries?after=1`)).status, 422)
  for (const unknown of [NO_ENDPOINT, 'wh_x', '%00', 'x'.repeat(500)]) {
    t.equal((await get(port, `/v1/webhooks/${unknown}`)).status, 404)
    t.equal((await get(port, `/v1/webhooks/${unknown}/deliveries`)).status, 404)
    t.equal((await patch(port, unknown, { description: 'x' })).status, 404)
    for (const verb of ['test', 'replay', 'rotate-secret', 'deliveries/whd_x/replay']) {
      t.equal((await post(port, `/v1/webhooks/${unknown}/${verb}`, {})).status, 404, verb)
    }
  }
  t.equal((await get(port, `/v1/webhooks/${id}/deliveries/whd_x`)).status, 404)
})

t.test('an empty body counts as {} where all fields are optional', async (t) => {
  const { port } = await startApi(t)
  const id = await register(port)
  const bare = (verb: string): Promise<Got> => ask(port, { path: `/v1/webhooks/${id}/${verb}` })
  t.match((await bare('test')).json.data, { ok: false, status: null, error: String, answer: '' })
  t.match(await bare('replay'), { status: 202, json: { data: { queued: 0 } } })
  const rotated = await bare('rotate-secret')
  t.match(rotated.json.data, { id, secret: /^whsec_/, switch_at: Number })
  t.match((await bare('rotate-secret')).json.error, { code: 'conflict', details: /takes effect at/ })
})

t.test('there are as many endpoints as configured, and no more', async (t) => {
  const { port } = await startApi(t, { api: { counts_max: { domains: 9, webhooks: 2, keys: 20 } } })
  const id = await register(port)
  await register(port)
  t.match((await post(port, '/v1/webhooks', { url: URL })).json.error, { code: 'conflict', details: /there are 2/ })
  await remove(port, id)
  t.equal((await post(port, '/v1/webhooks', { url: URL })).status, 201, 'a removed one does not count')
})

t.test('deliveries are looked at and replayed', async (t) => {
  const api = await startApi(t)
  const { port, clock } = api
  const id = await register(port)
  const messageId = await tellOne(api)
  const filter = `status=pending&event=email.delivered&message_id=${messageId}`
  const list = await get(port, `/v1/webhooks/${id}/deliveries?${filter}`)
  const {
    data: [delivery],
  } = JSON.parse(list.text) as { data: Record<string, unknown>[] }
  t.match(delivery, { webhook_id: id, message_id: messageId, status: 'pending', attempts: 0, ended_at: null })
  const path = `/v1/webhooks/${id}/deliveries/${String(delivery?.['id'])}`
  const detail = await get(port, path)
  t.match(detail.json.data, { ...delivery, attempts: [], body: new RegExp(messageId) })
  await clock.advance(1_000)
  const replayed = await post(port, `${path}/replay`, {})
  t.equal(replayed.status, 202)
  t.match(replayed.json.data, { webhook_id: id, event_id: delivery?.['event_id'], status: 'pending', attempts: 0 })
  t.equal((await get(port, `/v1/webhooks/${id}/deliveries`)).json.data?.['length'], 2)
  await patch(port, id, { status: 'disabled' })
  t.match((await post(port, `${path}/replay`, {})).json.error, { code: 'conflict', details: /is disabled/ })
  t.match((await get(port, `/v1/webhooks/${id}`)).json.data, { pending: 2 })
  await patch(port, id, { status: 'enabled' })
  t.equal((await post(port, `/v1/webhooks/${id}/replay`, {})).status, 202)
  await post(port, '/v1/admin/log-level', { level: 'debug' })
  const acts = async (): Promise<string[]> => {
    const { text } = await get(port, '/v1/admin/audit?limit=10')
    return (JSON.parse(text) as { data: { act: string }[] }).data.map(({ act }) => act)
  }
  // What was done is noted behind its answer.
  for (const act of ['webhook delivery replayed', 'webhook deliveries replayed', 'log level raised']) {
    await until(`${act}: in the audit`, async () => (await acts()).includes(act))
  }
})

interface Stream {
  status: number
  type: string | undefined
  text(): string
  /** `id event` of what came so far. */
  events(): string[]
  isOver(): boolean
  close(): void
}

interface StreamOptions {
  query?: string
  lastId?: string
  key?: string
  /** Of a session of the console, in place of a key. */
  cookie?: string
}

function openStream(t: Test, port: number, options: StreamOptions = {}): Promise<Stream> {
  const { query = '', lastId = '', key = keyNamed('webhooks'), cookie } = options
  const caller = cookie === undefined ? { Authorization: `Bearer ${key}` } : { Cookie: cookie }
  const headers = { ...caller, ...(lastId === '' ? {} : { 'Last-Event-ID': lastId }) }
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: '127.0.0.1', port, path: `/v1/webhooks/stream${query}`, headers }, (incoming) => {
      let text = ''
      let isOver = false
      incoming.on('data', (piece) => (text += String(piece)))
      for (const event of ['end', 'close', 'error']) incoming.on(event, () => (isOver = true))
      resolve({
        status: incoming.statusCode ?? 0,
        type: incoming.headers['content-type'],
        text: () => text,
        events: () => [...text.matchAll(/^id: (\S+)\nevent: (\S+)$/gm)].map(([, id, kind]) => `${id} ${kind}`),
        isOver: () => isOver,
        close: () => outgoing.destroy(),
      })
    })
    outgoing.on('error', reject)
    t.teardown(() => void outgoing.destroy())
    outgoing.end()
  })
}

t.test('a stream that is left open is no use of its session, and ends with it', async (t) => {
  const { port, clock, features } = await startApi(t, { listener: { serve: ['api', 'console'] }, ownStore: true })
  const { logins } = features
  const link = await logins.makeLink({ name: 'ada', role: 'reader' })
  const { secret } = await logins.openWithLink(link.secret, { address: '127.0.0.1', userAgent: '' })
  const stream = await openStream(t, port, { cookie: `sternpost-${port}=${secret}` })
  t.equal(stream.status, 200)
  const openedAt = clock.now()
  clock.advance(HOUR)
  const heard = stream.text().length
  await until('heartbeats', () => stream.text().length > heard + 3 * ':\n\n'.length)
  t.match(await logins.sessions(), [{ usedAt: openedAt }])
  t.notOk(stream.isOver())
  clock.advance(11 * HOUR)
  await until('the session was idle for too long', () => stream.isOver())
})

t.test('a stream tells what happens, and goes on where it was left', async (t) => {
  const api = await startApi(t)
  const { port, clock, store, eventStreams } = api
  await tellOne(api)
  const stream = await openStream(t, port)
  t.match(stream, { status: 200, type: 'text/event-stream; charset=utf-8' })
  await until('it is open', () => stream.text() === ':\n\n')
  const messageId = await tellOne(api)
  await until('the event is there', () => stream.events().length === 1)
  const whole = /^:\n\nid: evt_[0-9a-z]{26}\nevent: email\.delivered\ndata: \{"event":"email.delivered".*\}\n\n/
  t.match(stream.text(), whole)
  t.match(stream.text(), messageId, 'from now on, and not from before')
  t.notMatch(stream.text(), 'email.attempted')
  await until('a heartbeat', () => stream.text().endsWith('\n\n:\n\n'))
  const [first = ''] = stream.events()
  stream.close()

  await tellOne(api)
  await tellOne(api)
  const resumed = await openStream(t, port, { lastId: first.split(' ')[0] ?? '' })
  await until('what was missed', () => resumed.events().length === 2)
  t.notOk(resumed.events().includes(first))
  eventStreams.tell([{ eventId: 'evt_x', kind: 'email.delivered', body: '{}', owner: { isTest: false, domains: [] } }])
  await until('a replay', () => resumed.events().at(-1) === 'evt_x email.delivered')

  const other = await openStream(t, port, { query: '?events=email.bounced,email.opened' })
  const every = await openStream(t, port, { query: '?events=*' })
  await until('both are open', () => other.text() !== '' && every.text() !== '')
  await tellOne(api)
  await until('told to one', () => every.events().length === 1)
  t.same(other.events(), [])
  await clock.advance(2 * 3_600_000)
  const late = await openStream(t, port, { lastId: first.split(' ')[0] ?? '' })
  await until('it is open', () => late.text() !== '')
  await tellOne({ ...api, store })
  await until('only the last hour', () => late.events().length === 1)
  t.match((await get(port, '/v1/webhooks/stream?events=email.sent')).json.error, { details: /^events\[0\]/ })
  const wrong = await ask(port, { method: 'GET', path: '/v1/webhooks/stream', headers: { 'Last-Event-ID': 'x' } })
  t.match(wrong.json.error, { code: 'invalid_request', details: /^Last-Event-ID/ })
})

t.test('whoever leaves before the stream began takes no place', async (t) => {
  const { port } = await startApi(t)
  const head = `GET /v1/webhooks/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${keyNamed('webhooks')}\r\n\r\n`
  for (let left = 0; left < 20; left++) {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    socket.write(head)
    if (left % 2 === 0) socket.resetAndDestroy()
    else socket.destroy()
  }
  t.equal((await get(port, '/v1/webhooks')).status, 200)
  const streams = await Promise.all(Array.from({ length: 20 }, () => openStream(t, port)))
  t.same(
    streams.map(({ status }) => status),
    Array.from({ length: 20 }, () => 200),
  )
})

t.test('whoever closes a stream gives its place back at once', async (t) => {
  const { port } = await startApi(t, { heartbeatMilliseconds: HOUR })
  const open = (): Promise<Stream[]> => Promise.all(Array.from({ length: 20 }, () => openStream(t, port)))
  for (const stream of await open()) stream.close()
  await until('a place is free', async () => (await openStream(t, port)).status === 200)
  t.equal((await openStream(t, port)).status, 200)
})

t.test('streams are limited, need the scope, and end with their key and with the server', async (t) => {
  const { port, servers } = await startApi(t)
  t.equal((await get(port, '/v1/webhooks/stream', 'send' satisfies KeyName)).status, 403)
  const made = async () => {
    const { json } = await post(port, '/v1/keys', { name: 'x', mode: 'live', scopes: ['webhooks'] })
    return { key: String(json.data?.['key']), id: String(json.data?.['id']) }
  }
  const [{ key, id }, second, third] = [await made(), await made(), await made()]
  const openMany = (count: number, options?: StreamOptions) =>
    Promise.all(Array.from({ length: count }, () => openStream(t, port, options)))
  const streams = await openMany(20)
  t.match((await get(port, '/v1/webhooks/stream', 'webhooks')).json.error, {
    details: '20 streams of this key are open',
  })
  streams.push(...(await openMany(20, second)), ...(await openMany(9, third)))
  const last = await openStream(t, port, { key })
  t.match((await get(port, '/v1/webhooks/stream')).json.error, { details: '50 streams are open' })
  await ask(port, { method: 'DELETE', path: `/v1/keys/${id}` })
  await until('the stream of the revoked key ends', () => last.isOver())
  t.equal((await ask(port, { method: 'HEAD', path: '/v1/webhooks/stream' })).status, 200)
  const again = await openStream(t, port, third)
  t.equal(again.status, 200, 'its place is free, and HEAD took none')
  const stopped = servers.stop()
  await until('all end', () => [...streams, again].every((stream) => stream.isOver()), 3_000)
  await stopped
})
