/**
 * The worst body of each kind at every route that takes one, and at the door for submission, while a second connection
 * asks for `/v1/health` all the time. Each answer is 200 or a clear refusal, the second connection always gets its
 * answers, memory stays within bounds, and no turn of the main thread takes long, in time of the processor. How long the
 * answers took is printed by `TEST_SCALE=full`, and not judged: it depends on the machine.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { createTransport } from 'nodemailer'
import t from 'tap'
import { startSandbox } from '../support/sandbox-process.ts'
import { describedRoutes } from '../support/response-check.ts'

const isFull = process.env['TEST_SCALE'] === 'full'
const MEBIBYTE = 1024 * 1024
/** Characters of the long texts. */
const LONG = (isFull ? 30 : 6) * MEBIBYTE
/** Beyond what the process has after its start; bodies under way alone may take half of it. */
const MOST_GROWTH = 256 * MEBIBYTE
/** Mail of 25 MiB and more is in several threads at once, and what they keep ready is no small part of this. */
const MOST_GROWTH_OF_COSTLY = 1_024 * MEBIBYTE
/**
 * Milliseconds of the processor; the goal is 50, and a busy machine lets one thread collect the garbage of all. What is
 * quadratic takes minutes.
 */
const LONGEST_TURN = 2_500
const WATCH = new URL('../support/watch-threads.ts', import.meta.url)
/** Served, or refused for what the request is. 403: an administrator's route. 429: too many requests. */
const GOOD = new Set([200, 201, 400, 403, 404, 409, 413, 415, 422, 429])

t.setTimeout(isFull ? 1_800_000 : 300_000)

const keys = (count: number): object =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, 'v']))

/** By kind; `field` is one that the route knows. */
const JSON_KINDS: Record<string, (field: string) => string> = {
  'a long text': (field) => JSON.stringify({ [field]: 'x'.repeat(LONG) }),
  'quotes, escaped': (field) => `{"${field}":"${'\\"'.repeat(LONG / 2)}"}`,
  'a text in a list': (field) => JSON.stringify({ [field]: ['x'.repeat(LONG)] }),
  'a long key': () => JSON.stringify({ ['x'.repeat(LONG)]: 1 }),
  'open braces': (field) => JSON.stringify({ [field]: '{{'.repeat(2 * MEBIBYTE), variables: { a: 1 } }),
  'many keys': (field) => JSON.stringify({ [field]: keys(300_000) }),
  'many allowed keys': (field) => JSON.stringify({ [field]: keys(9_000), ...keys(9_000) }),
  'many entries': (field) => JSON.stringify({ [field]: Array.from({ length: 90_000 }, () => 1) }),
  deep: (field) => `{"${field}":${'['.repeat(LONG)}`,
  'a long number': (field) => `{"${field}":${'1'.repeat(LONG)}}`,
  'white space': () => `{${' '.repeat(LONG)}}`,
}
const CSV_KINDS: Record<string, () => string> = {
  'an open quote': () => `email,reason,scope\n${'"'.repeat(LONG)}`,
  'bad rows': () => `email,reason,scope\n${'x\n'.repeat(isFull ? 4 * MEBIBYTE : 100_000)}`,
  'one field': () => `email,reason,scope\n${'x'.repeat(LONG)}`,
}

/**
 * Routes for mail get each kind; the others, which refuse a large body unread, one kind after the other. The full size
 * has each kind in each field of each route.
 */
function* worstBodies(): Generator<{ method: string; path: string; type: string; kind: string; body: string }> {
  const routes = describedRoutes()
  for (const [number, { method, path: pattern, body: wanted }] of routes.entries()) {
    if (wanted === null) continue
    const { contentType: type, schema, limit } = wanted
    const path = `/v1${pattern.replace(/:\w+/g, 'x')}`
    const fields = Object.keys((schema as { shape?: object }).shape ?? { html: 1, subject: 1, variables: 1 })
    const kinds = Object.entries(type === 'application/json' ? JSON_KINDS : CSV_KINDS)
    for (const [index, [kind, make]] of kinds.entries()) {
      if (!isFull && limit === null && index !== number % kinds.length) continue
      const tried = isFull ? fields : [fields[index % fields.length] ?? 'x']
      for (const field of tried) yield { method, path, type, kind: `${kind} in ${field}`, body: make(field) }
    }
  }
}

const TEXT_BYTES = 5 * MEBIBYTE
const filled = (piece: string): string => piece.repeat(TEXT_BYTES / piece.length)
const numbered = (count: number, piece: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => piece(index)).join('')
const receivers = (fields: object): object[] =>
  Array.from({ length: 1_000 }, (_, index) => ({ to: `a${index}@dest.test`, ...fields }))

/** Requests that nothing is wrong with but what they cost, and neighbours of theirs that are refused. */
const COSTLY_REQUESTS: [path: string, kind: string, make: () => object][] = [
  ['send', 'placeholders', () => ({ html: filled('{{a}}'), variables: { a: 'x' } })],
  ['send', 'placeholders that differ', () => ({ text: numbered(400_000, (n) => `{{a${n}|}}`), variables: {} })],
  ['send', 'allowed placeholders', () => ({ html: `${'x'.repeat(500)}{{a}}`.repeat(10_000), variables: { a: 1 } })],
  ['send', 'a long placeholder', () => ({ html: `{{${'x'.repeat(TEXT_BYTES - 4)}}}`, variables: {} })],
  ['send', 'URLs of values', () => ({ html: filled('<a href="{{a}}">'), variables: { a: 'x' } })],
  ['send', 'attachments', () => ({ text: 'x', attachments: [attachment('a'), attachment('b')] })],
  ['preview', 'allowed placeholders', () => ({ html: '{{a}}'.repeat(10_000), variables: { a: 'x' } })],
  ['preview', 'links', () => ({ html: filled('<a href="https://a.test/x">y</a>') })],
  ['preview', 'tags', () => ({ html: filled('<b>y</b>') })],
  ['preview', 'open tags', () => ({ html: filled('<') })],
  ['preview', 'attachments', () => ({ text: 'x', attachments: [attachment('a'), attachment('b')] })],
  [
    'batch',
    'URLs of values',
    () => ({ html: '<a href="{{a}}">'.repeat(10_000), recipients: receivers({ a: 'https://x.test/' }) }),
  ],
  [
    'batch',
    'URLs that differ',
    () => ({ html: numbered(660, (n) => `<a href="{{a${n}|}}">`), recipients: receivers({ a: 'x' }) }),
  ],
  ['batch', 'missing values', () => ({ text: numbered(9_000, (n) => `{{a${n}}}`), recipients: receivers({}) })],
  ['batch', 'long values', () => ({ text: '{{a}}', recipients: receivers({ a: 'y'.repeat(30_000) }) })],
  ['batch', 'large html', () => ({ html: filled('x'), recipients: receivers({}) })],
]

function attachment(name: string): object {
  return { name: `${name}.bin`, content: 'QUFB'.repeat(10 * 1024 * 341) }
}

/** Behind From and To; submitted mail may have 40 MiB. */
const MAIL_KINDS: Record<string, () => string> = {
  'many fields': () => `${'X-A: b\r\n'.repeat(isFull ? 2 * MEBIBYTE : 200_000)}\r\n.`,
  'one long field': () => `X-A: ${'b '.repeat(LONG / 2)}\r\n\r\n.`,
  'many parts': () => `${MULTIPART}\r\n\r\n${'--b\r\n\r\n'.repeat(LONG / 8)}--b--\r\n`,
  'nested parts': () =>
    Array.from(
      { length: 20_000 },
      (_, index) => `Content-Type: multipart/mixed; boundary=b${index}\r\n\r\n--b${index}\r\n`,
    ).join(''),
  'escapes of html': () =>
    `Content-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n` +
    `${'=3D'.repeat(24)}=\r\n`.repeat(LONG / 78),
  'links of html': () =>
    `Content-Type: text/html\r\n\r\n${'<a href="https://acme.test/x">x</a>\r\n'.repeat(LONG / 40)}`,
  'open tags': () =>
    `Content-Type: text/html\r\n\r\n${'<b '
      .repeat(300)
      .concat('\r\n')
      .repeat(LONG / 900)}`,
  'dots alone': () => `\r\n${'..\r\n'.repeat(LONG / 4)}`,
  'base64 of single characters': () =>
    `Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n${'A\r\n'.repeat(LONG / 3)}`,
}
const MULTIPART = 'Content-Type: multipart/mixed; boundary=b'

/** A thread of its own, so that making bodies does not count. Answers each message with the waits since the last one. */
const ASKING = `
  const { parentPort, workerData } = require('node:worker_threads')
  let waits = [], failures = 0
  parentPort.on('message', () => { parentPort.postMessage({ waits, failures }); waits = []; failures = 0 })
  const run = async () => {
    for (;;) {
      const startedAt = performance.now()
      await fetch(workerData).then((answer) => answer.arrayBuffer()).catch(() => { failures += 1 })
      waits.push(performance.now() - startedAt)
    }
  }
  run()
`

t.test('no body stops the server', async (t) => {
  const watched = mkdtempSync(join(tmpdir(), 'sternpost-turns-'))
  t.teardown(() => rmSync(watched, { recursive: true, force: true }))
  const { banner, ask } = await startSandbox(t, {
    environment: { NODE_OPTIONS: `--import=${WATCH.href}`, WATCH_FOLDER: watched },
  })
  // What the sandbox's receiving server does with mail is no part of this.
  await ask('PUT', '/dev/replies', [{ to: '*', stage: 'rcpt', reply: '550 5.1.1 nobody', times: 100_000 }])
  const asking = new Worker(ASKING, { eval: true, workerData: new URL('/v1/health', banner.base_url).href })
  t.teardown(() => asking.terminate())
  const answers = async (): Promise<{ waits: number[]; failures: number }> => {
    asking.postMessage(null)
    const [given] = await once(asking, 'message')
    return given
  }
  const pid = Number(readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8').trim().split(' ')[0])
  const idle = residentBytes(pid)
  const all: number[] = []
  await answers()
  let most = 0
  let tried = 0
  for (const { method, path, type, kind, body } of worstBodies()) {
    const headers = { Authorization: `Bearer ${banner.key}`, 'Content-Type': type, Connection: 'close' }
    const answer = await fetch(new URL(path, banner.base_url), { method, headers, body }).catch(() => null)
    // Who goes on sending after a 413 may lose the answer with the connection.
    const status = answer?.status ?? (body.length > MEBIBYTE ? 413 : 0)
    await answer?.text()
    if (!GOOD.has(status)) t.fail(`${method} ${path}, ${kind}: ${status}`)
    const { waits, failures } = await answers()
    if (failures > 0) t.fail(`${method} ${path}, ${kind}: the second connection lost ${failures} answers`)
    all.push(...waits)
    most = Math.max(most, residentBytes(pid))
    tried += 1
    if (isFull) t.comment(`${method} ${path}, ${kind}: ${status}, longest wait ${Math.max(0, ...waits).toFixed(0)} ms`)
  }
  const { smtp } = banner as unknown as { smtp: string }
  const [host = '', port] = smtp.split(':')
  const auth = { user: 'apikey', pass: banner.key }
  const transport = createTransport({ host, port: Number(port), ignoreTLS: true, auth })
  for (const [kind, make] of Object.entries(MAIL_KINDS)) {
    const raw = `From: shop@sandbox.test\r\nTo: ada@dest.test\r\nSubject: x\r\nMIME-Version: 1.0\r\n${make()}`
    const envelope = { from: 'shop@sandbox.test', to: ['ada@dest.test'] }
    const answer = await transport.sendMail({ envelope, raw }).then(({ response }) => response, String)
    if (!/\b(?:250|552|554) /.test(answer)) t.fail(`submission, ${kind}: ${answer}`)
    const { waits, failures } = await answers()
    if (failures > 0) t.fail(`submission, ${kind}: the second connection lost ${failures} answers`)
    all.push(...waits)
    most = Math.max(most, residentBytes(pid))
    t.comment(`submission, ${kind}: ${answer.slice(0, 60)}, longest wait ${Math.max(0, ...waits).toFixed(0)} ms`)
  }
  const grown = most - idle
  const common = { from: 'shop@sandbox.test', subject: 'x' }
  for (const [path, kind, make] of COSTLY_REQUESTS) {
    const headers = { Authorization: `Bearer ${banner.key}`, 'Content-Type': 'application/json' }
    const to = path === 'batch' ? {} : { to: 'ada@dest.test' }
    const body = JSON.stringify({ ...common, ...to, ...make() })
    const { status } = await fetch(new URL(`/v1/email/${path}`, banner.base_url), { method: 'POST', headers, body })
    if (!GOOD.has(status)) t.fail(`${path}, ${kind}: ${status}`)
    const { waits, failures } = await answers()
    if (failures > 0) t.fail(`${path}, ${kind}: the second connection lost ${failures} answers`)
    all.push(...waits)
    most = Math.max(most, residentBytes(pid))
    tried += 1
    t.comment(`${path}, ${kind}: ${status}, longest wait ${Math.max(0, ...waits).toFixed(0)} ms`)
  }
  const sorted = all.toSorted((left, right) => left - right)
  const p99 = sorted[Math.floor(sorted.length * 0.99)] ?? 0
  t.comment(
    `${tried} bodies; waits for /v1/health: p99 ${p99.toFixed(0)} ms, longest ${(sorted.at(-1) ?? 0).toFixed(0)} ms`,
  )
  t.comment(`memory ${(idle / MEBIBYTE).toFixed(0)} MiB idle, at most ${(most / MEBIBYTE).toFixed(0)} MiB`)
  const turns = readdirSync(watched).map((name) => readFileSync(join(watched, name), 'utf8'))
  t.comment(`longest turns (goal 50 ms): ${turns.join(', ')}`)
  const longest = Number(/^main (\d+)$/m.exec(turns.join('\n'))?.[1])
  t.ok(longest < LONGEST_TURN, `the longest turn of the main thread took ${longest} ms of the processor`)
  t.ok(tried > 50, 'the routes that take a body were tried')
  t.ok(grown < MOST_GROWTH, 'memory stays within bounds')
  t.ok(most - idle < MOST_GROWTH_OF_COSTLY, 'also when what it reads is accepted, and goes through all threads')
  t.equal((await fetch(new URL('/v1/health', banner.base_url))).status, 200, 'and it still runs')
})

function residentBytes(pid: number): number {
  const kibibytes = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Number(kibibytes) * 1024
}
