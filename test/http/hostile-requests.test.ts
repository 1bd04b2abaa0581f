/**
 * Hostile requests against every route that takes a body or a parameter: nothing is answered with 500, nothing hangs,
 * and memory comes back. `TEST_SCALE=full` tries every string in every field.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { Agent } from 'node:http'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { ask, get, sendOne, startApi, VALID_SEND, type Asked, type Got } from './api-server.ts'
import { describedRoutes } from '../support/response-check.ts'

const JSON_SUITE = new URL('../../../shared/corpora/json/', import.meta.url)
const NAUGHTY_STRINGS = new URL('../../../shared/corpora/strings/blns.json', import.meta.url)
const skip = existsSync(JSON_SUITE) && existsSync(NAUGHTY_STRINGS) ? false : 'the corpora are not there'
const isFull = process.env['TEST_SCALE'] === 'full'
const MEBIBYTE = 1024 * 1024
const AT_ONCE = 8
const MOST_GROWTH = 64 * MEBIBYTE

t.setTimeout(isFull ? 1_800_000 : 600_000)

/** A good body of each route that takes one, and the fields to put strings in. */
const BODIES: Record<string, { body: Record<string, unknown>; fields: string[] }> = {
  '/email/send': {
    body: VALID_SEND,
    fields: [
      'to',
      'from',
      'subject',
      'html',
      'text',
      'reply_to',
      'attachments',
      'variables',
      'cc',
      'bcc',
      'headers',
      'tags',
      'metadata',
      'send_at',
      'expires_in',
      'ip_pool',
      'stream',
      'track',
      'unsubscribe',
    ],
  },
  '/email/preview': { body: VALID_SEND, fields: ['to', 'from', 'subject', 'html', 'text', 'variables', 'headers'] },
  '/email/batch': {
    body: { ...VALID_SEND, recipients: [{ to: 'ada@example.net', name: 'Ada' }] },
    fields: ['from', 'subject', 'html', 'text', 'recipients', 'headers', 'tags'],
  },
  '/domains': {
    body: { domain: 'acme.com' },
    fields: ['domain', 'name', 'return_path', 'tracking_domain', 'dkim_selector', 'dkim_private_key', 'ip_pool'],
  },
  '/webhooks': { body: { url: 'https://127.0.0.1/hooks' }, fields: ['url', 'events', 'secret', 'description'] },
  '/suppressions': { body: { email: 'x@acme.org' }, fields: ['email', 'reason', 'scope'] },
  '/keys': {
    body: { name: 'x', mode: 'live', scopes: ['send'] },
    fields: ['name', 'mode', 'scopes', 'domains', 'allowed_ips'],
  },
}

/** Forms that a field may be given in; the string stands wherever the field could hold one. */
const FORMS: ((text: string) => unknown)[] = [
  (text) => text,
  (text) => [text],
  (text) => ({ [text]: text }),
  (text) => [{ to: text, name: text, content: text, [text]: text }],
]

/** Tells how many of which status there were. */
interface Tally {
  count: number
  statuses: Map<number, number>
  slowest: number
}

async function tryAll(port: number, requests: Iterable<Asked>, tally: Tally): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE })
  const waiting = requests[Symbol.iterator]()
  const work = async (): Promise<void> => {
    for (let next = waiting.next(); next.done !== true; next = waiting.next()) {
      const startedAt = performance.now()
      const { status } = await ask(port, { ...next.value, agent })
      tally.count += 1
      tally.statuses.set(status, (tally.statuses.get(status) ?? 0) + 1)
      tally.slowest = Math.max(tally.slowest, performance.now() - startedAt)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  agent.destroy()
}

function* jsonRequests(): Generator<Asked> {
  for (const name of readdirSync(JSON_SUITE)) {
    const text = readFileSync(new URL(encodeURIComponent(name), JSON_SUITE))
    for (const [path, { body, fields }] of Object.entries(BODIES)) {
      yield { path: `/v1${path}`, body: text }
      // As the value of a field, in a body that is otherwise good.
      const [field = ''] = fields
      const whole = JSON.stringify({ ...body, [field]: null })
      const [before = '', after = ''] = whole.split(`"${field}":null`)
      yield { path: `/v1${path}`, body: Buffer.concat([Buffer.from(`${before}"${field}":`), text, Buffer.from(after)]) }
    }
  }
}

function naughtyStrings(): string[] {
  return JSON.parse(readFileSync(NAUGHTY_STRINGS, 'utf8'))
}

function* stringRequests(): Generator<Asked> {
  const strings = [...naughtyStrings(), 'a\u0000b', '\ud800', 'a\r\nBcc: x@y.z', '\u2028']
  for (const [index, text] of strings.entries()) {
    for (const [path, { body, fields }] of Object.entries(BODIES)) {
      const tried = isFull ? fields : [fields[index % fields.length] ?? '']
      for (const [position, field] of tried.entries()) {
        const forms = isFull ? FORMS : [FORMS[(index + position) % FORMS.length] ?? String]
        for (const form of forms) yield { path: `/v1${path}`, body: JSON.stringify({ ...body, [field]: form(text) }) }
      }
    }
    const headers = { 'Content-Type': 'text/csv' }
    yield { path: '/v1/suppressions/import', headers, body: `email,scope\n${text},${text}` }
  }
}

/** Strings in paths and queries. */
function* parameterRequests(): Generator<Asked> {
  const routes = describedRoutes().filter(({ path, query }) => path.includes(':') || query !== null)
  for (const [index, text] of naughtyStrings().entries()) {
    const encoded = encodeURIComponent(text.toWellFormed())
    const tried = isFull ? routes : [routes[index % routes.length], routes[(index * 7 + 3) % routes.length]]
    for (const route of tried) {
      if (route === undefined) continue
      const query = Object.keys(route.query === null ? {} : ((route.query as { shape?: object }).shape ?? {}))
      const search = query.length === 0 ? '' : `?${query[index % query.length]}=${encoded}`
      yield { method: route.method, path: `/v1${route.path.replace(/:\w+/g, encoded === '' ? 'x' : encoded)}${search}` }
    }
  }
}

const collectGarbage = (): void => {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
}

function memory(): number {
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

t.test('hostile JSON, strings and parameters never make a 500, and memory comes back', { skip }, async (t) => {
  const { port, log, seen } = await startApi(t)
  await sendOne(port)
  const before = memory()
  const tally: Tally = { count: 0, statuses: new Map(), slowest: 0 }
  for (const requests of [jsonRequests(), stringRequests(), parameterRequests()]) await tryAll(port, requests, tally)
  // What the harness keeps is not the server's.
  for (const kept of [log, seen.sends, seen.addresses, seen.keys, seen.webhooks]) kept.length = 0
  const answered500 = tally.statuses.get(500) ?? 0
  const growth = memory() - before
  const statuses = [...tally.statuses].toSorted(([left], [right]) => left - right).map((pair) => pair.join(': '))
  const figures = [
    `${tally.count} hostile requests`,
    `${answered500} answers of 500`,
    `${(growth / MEBIBYTE).toFixed(1)} MiB more memory`,
    `slowest ${tally.slowest.toFixed(0)} ms`,
  ]
  t.comment(`${figures.join(', ')} (${statuses.join(', ')})`)
  t.equal(answered500, 0)
  t.equal(tally.statuses.get(503) ?? 0, 0)
  t.ok(growth < MOST_GROWTH, `${growth} bytes more`)
  t.equal((await get(port, '/v1/health', null)).status, 200)
})

t.test('bodies of 41 MiB and deep ones are refused, repeated keys are not, and memory comes back', async (t) => {
  const { port } = await startApi(t)
  await sendOne(port)
  const before = memory()
  const fields = JSON.stringify(VALID_SEND).slice(1, -1)
  const big = Buffer.alloc(41 * MEBIBYTE, 0x20)
  const nested = `{${fields},"metadata":${'['.repeat(100_000)}${']'.repeat(100_000)}}`
  const addresses = Array.from({ length: 9_000 }, (_, index) => `"to":"user${index}@example.net"`)
  const repeated = `{${addresses.join(',')},${fields}}`
  for (const route of ['email/send', 'email/batch', 'email/preview', 'keys', 'suppressions/import']) {
    const path = `/v1/${route}`
    const headers = { 'Content-Type': path.endsWith('import') ? 'text/csv' : 'application/json' }
    const code = path.endsWith('send') ? 'attachment_too_large' : 'payload_too_large'
    const got = await ask(port, { path, body: big, headers })
    t.match(got, { status: 413, json: { error: { code } } }, path)
    if (!path.endsWith('import')) t.equal((await ask(port, { path, body: nested, headers })).status, 400)
  }
  t.equal((await ask(port, { path: '/v1/email/send', body: repeated })).status, 200, 'the last one counts')
  t.ok(memory() - before < MOST_GROWTH)
})

t.test('batches of 0 and 1,001, and one with every third recipient bad', async (t) => {
  const { port } = await startApi(t)
  const batch = (count: number): Promise<Got> => {
    const recipients = Array.from({ length: count }, (_, index) => ({
      to: index % 3 === 2 ? `bad${index}@@x` : `user${index}@example.net`,
    }))
    return ask(port, { path: '/v1/email/batch', body: JSON.stringify({ ...VALID_SEND, to: undefined, recipients }) })
  }
  t.equal((await batch(0)).status, 422)
  t.equal((await batch(1_001)).status, 422)
  t.same((await get(port, '/v1/email')).json.data, [])
  t.match((await batch(1_000)).json, { total: 1_000, accepted: 667, rejected: 333 })
})
