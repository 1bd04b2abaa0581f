/**
 * Request bodies: what is read, what is refused unread, and what hostile JSON does.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import t, { type Test } from 'tap'
import { ServiceError } from '../../src/base/errors.ts'
import {
  BODY_READER_DEFAULTS,
  createBodyReader,
  type BodyReader,
  type BodyReaderOptions,
} from '../../src/http/exchange/body-reader.ts'
import { readJson, structureProblem } from '../../src/http/exchange/read-json.ts'
import {
  ask,
  get,
  keyNamed,
  post,
  rawConnection,
  shareStore,
  startApi,
  VALID_SEND,
  type RawConnection,
} from './api-server.ts'
import { until } from '../support/until.ts'

shareStore(t)

const SEND_HEAD = `POST /v1/email/send HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${keyNamed('send')}\r\n`
const MEBIBYTE = 1024 * 1024

t.test('a text that no field has room for is refused before other threads see it', async (t) => {
  const read = (value: unknown) => (): unknown => readJson(Buffer.from(JSON.stringify(value)))
  const long = 'x'.repeat(5 * MEBIBYTE + 1)
  const refusal = { code: 'invalid_request' }
  t.throws(read({ html: long }), { ...refusal, details: 'html: has 5242881 bytes, at most 5242880 are allowed' })
  t.throws(read({ cc: ['a', long] }), { ...refusal, details: 'cc: has 5242881 bytes, at most 5242880 are allowed' })
  t.throws(read({ variables: { ['k'.repeat(1_000)]: long } }), { ...refusal, details: /^k{80}…: has 5242881 bytes/ })
  const key = 'k'.repeat(10_001)
  t.throws(read({ variables: { [key]: 1 } }), { ...refusal, details: /^k{80}…: a key of 10001 characters, at most/ })
  t.doesNotThrow(read({ variables: { [key.slice(1)]: 1 } }), 'the longest key')
  t.doesNotThrow(read({ html: long.slice(1) }), 'the longest')
  t.doesNotThrow(read({ attachments: [{ content: long }] }), 'an attachment')
})

t.test('JSON types are taken, others are 415', async (t) => {
  const { port } = await startApi(t)
  const body = JSON.stringify(VALID_SEND)
  const good = ['application/json', 'Application/JSON; charset=iso-8859-1', 'application/vnd.a+json', 'text/x+json;v=1']
  for (const type of good) {
    t.equal((await ask(port, { path: '/v1/email/send', body, headers: { 'Content-Type': type } })).status, 200, type)
  }
  t.equal((await ask(port, { path: '/v1/email/send', body })).status, 200, 'no type')
  const form = ['application/x-www-form-urlencoded', 'multipart/form-data; boundary=application/json']
  for (const type of [...form, 'text/plain', 'application/jsonp', 'json', 'x application/json']) {
    const { status, json } = await ask(port, { path: '/v1/email/send', body, headers: { 'Content-Type': type } })
    t.equal(status, 415, type)
    t.equal(json.error?.code, 'invalid_request')
  }
  t.equal((await ask(port, { path: '/v1/email/send', body, headers: { 'Content-Encoding': 'identity' } })).status, 200)
  t.equal((await ask(port, { path: '/v1/email/send', body, headers: { 'Content-Encoding': 'gzip' } })).status, 415)
})

t.test('malformed JSON is 400 and does not quote the body', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const nested = (depth: number): string => `{"variables":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`
  const cases: [string, string | Uint8Array][] = [
    ['nothing', ''],
    ['spaces', ' \n'],
    ['cut', '{"to":"secret@example.net"'],
    ['trailing data', '{} {}'],
    ['NaN', '{"to":NaN}'],
    ['comment', '{}//x'],
    ['invalid UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])],
    ['UTF-16', Buffer.from('{}', 'utf16le')],
    ['two marks', '\ufeff\ufeff{}'],
    ['raw control', '{"to":"a\nb"}'],
    ['depth 33', nested(33)],
    ['depth 100,000', nested(100_000)],
    ['1e5 open', '['.repeat(100_000)],
    ['numbers beyond a double', '{"variables":{"a":[1e999]}}'],
    ['and below', '{"variables":{"a":-1e999}}'],
  ]
  for (const [name, body] of cases) {
    const { status, json } = await ask(port, { path: '/v1/email/send', body })
    t.equal(status, 400, name)
    t.equal(json.error?.code, 'invalid_request', name)
    t.notMatch(json.error?.details, 'secret')
  }
  const tooMuch: [RegExp, string][] = [
    [/100000 values/, `{"metadata":[${'[],'.repeat(1_000_001)}1]}`],
    [/10000 keys/, `{"variables":{${'"a":1,'.repeat(10_000)}"b":1}}`],
  ]
  for (const [details, body] of tooMuch) {
    const { status, json } = await ask(port, { path: '/v1/email/send', body })
    t.match([status, json.error?.code, json.error?.details], [422, 'invalid_request', details])
  }
  t.match(
    (await ask(port, { path: '/v1/email/send', body: nested(32) })).json.error?.details,
    /^to: /,
    'depth 32 is read',
  )
  const brackets = { '[[[["\\"': '[{'.repeat(40), quote: '"', back: '\\', both: '\\\\"[[[[' }
  const { headers, status } = await post(port, '/v1/email/send', { ...VALID_SEND, metadata: brackets })
  t.equal(status, 200, `brackets in strings do not count: ${String(headers['x-request-id'])}`)
  t.equal(sends.length, 2)
})

t.test('a short text with few brackets is let through unread, and none that breaks a limit', async (t) => {
  const problemOf = (text: string): string | undefined => structureProblem(Buffer.from(text))?.text
  for (const open of ['[', '{"a":', '[{"a":[']) {
    const depth = open.length === 7 ? 3 : 1
    for (const padding of ['', ' '.repeat(2_000_000)]) {
      t.equal(problemOf(open.repeat(Math.floor(32 / depth)) + padding), undefined, `${open}: 32 deep at most`)
      t.match(problemOf(open.repeat(Math.ceil(33 / depth)) + padding), /nested/, `${open}: more`)
    }
  }
  t.equal(problemOf('[]'.repeat(40)), undefined, 'beside each other they are read')
  t.equal(problemOf(`"${'[{'.repeat(40)}"`), undefined, 'in a string they are read')
  t.equal(problemOf(','.repeat(99_999)), undefined, '100,000 values')
  t.match(problemOf(','.repeat(100_000)), /values/, 'one more')
  t.match(problemOf(`[${','.repeat(99_999)}`), /values/, 'one more, with a bracket')
  const keys = (count: number): string => `{${'"":0,'.repeat(count - 1)}"":0}`
  t.equal(problemOf(`[${keys(10_000)},${keys(10_000)}]`), undefined, '10,000 keys, twice')
  t.match(problemOf(keys(10_001)), /keys/, 'one more')
  t.match(problemOf(`[[],${keys(10_001)}`), /keys/, 'behind a list')
  t.equal(problemOf(`{"a":[${'0,'.repeat(20_000)}0],"b":1}`), undefined, 'entries of a list are no keys')
})

t.test('a byte order mark is skipped and of a repeated key the last one wins', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const body = `\ufeff{"to":"first@example.net",${JSON.stringify(VALID_SEND).slice(1, -1)},"subject":"last"}`
  t.equal((await ask(port, { path: '/v1/email/send', body })).status, 200)
  t.equal(sends[0]?.request.to, VALID_SEND.to)
  t.equal(sends[0]?.request.subject, 'last')
})

t.test('a document that is no object is 422', async (t) => {
  const { port } = await startApi(t)
  const documents = { '[]': 'a list', null: 'null', '"x"': 'a string', 1: 'a number', true: 'true or false' }
  for (const [body, got] of Object.entries(documents)) {
    const { status, json } = await ask(port, { path: '/v1/email/send', body })
    t.equal(status, 422, body)
    t.equal(json.error?.details, `the body is ${got}; expected an object`)
  }
})

t.test('__proto__ and its like are ordinary keys', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const before = Object.getOwnPropertyNames(Object.prototype).length
  const fields = JSON.stringify(VALID_SEND).slice(1, -1)
  const hostile = '"__proto__":{"to":"x@y.z","polluted":1},"constructor":{"prototype":{"polluted":1}},"toString":1'
  const body = `{${fields},${hostile},"variables":{"__proto__":"p","constructor":"c","name":"n"}}`
  const { status, headers } = await ask(port, { path: '/v1/email/send', body })
  t.equal(status, 200)
  t.equal(headers['x-service-warnings'], '__proto__,constructor,toString')
  const variables = sends[0]?.request.variables ?? {}
  t.same(Object.keys(variables), ['__proto__', 'constructor', 'name'])
  t.equal(Object.getOwnPropertyDescriptor(variables, '__proto__')?.value, 'p')
  t.equal(Object.getPrototypeOf(variables), Object.prototype)
  const inheriting = '{"__proto__":{"to":"x@y.z","from":"x@acme.com","domain":"acme.com","url":"https://x.de"}}'
  const inherited = await ask(port, { path: '/v1/email/send', body: inheriting })
  t.equal(inherited.json.error?.code, 'invalid_recipient', 'nothing is inherited from the key __proto__')
  for (const path of ['/v1/domains', '/v1/webhooks', '/v1/keys']) {
    t.equal((await ask(port, { path, body: inheriting })).status, 422, path)
  }
  t.equal(Object.getOwnPropertyNames(Object.prototype).length, before)
  t.notOk(Reflect.has({}, 'polluted'))
})

t.test('a body of very many keys or entries is answered, and soon', async (t) => {
  const { port } = await startApi(t)
  const keys = `{${Array.from({ length: 200_000 }, (_, index) => `"k${index}":1`).join(',')}}`
  const entries = `{"attachments":[${'1,'.repeat(200_000)}1]}`
  for (const body of [keys, entries]) {
    const startedAt = performance.now()
    t.equal((await ask(port, { path: '/v1/email/send', body })).status, 422)
    t.ok(performance.now() - startedAt < 30_000)
  }
})

const SUITE = new URL('../../../shared/corpora/json/', import.meta.url)
const skip = existsSync(SUITE) ? false : 'the corpora are not there'

t.test('the JSON suite: y_ is not 400, n_ is 400, nothing is 5xx', { skip }, async (t) => {
  const { port } = await startApi(t)
  for (const name of readdirSync(SUITE)) {
    const body = readFileSync(new URL(encodeURIComponent(name), SUITE))
    const { status, json } = await ask(port, { path: '/v1/email/send', body })
    if (name.startsWith('y_')) t.equal(status, 422, name)
    else if (name.startsWith('n_')) t.equal(status, 400, name)
    else t.ok(status === 400 || status === 422, name)
    t.equal(json.success, false, name)
  }
})

t.test('CR and LF in a field arrive as given, and never in a header of the answer', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const subject = 'a\r\nBcc: evil@example.net'
  const { headers } = await post(port, '/v1/email/send', { ...VALID_SEND, subject, 'x\r\nSet-Cookie: a': 1 })
  t.equal(sends[0]?.request.subject, subject, 'refusing it is the business of acceptance')
  t.notOk(headers['set-cookie'])
})

t.test('a body of the limit is read, one byte more is refused by its length', async (t) => {
  const { port } = await startApi(t, { http: { max_body: 1_000, max_body_other: 500 } })
  const bodyOf = (bytes: number): string => `{"domain":"acme.com"${' '.repeat(bytes - 21)}}`
  t.equal((await ask(port, { path: '/v1/domains', body: bodyOf(500) })).status, 200)
  t.equal((await ask(port, { path: '/v1/domains', body: bodyOf(501) })).status, 413)
  const { status, json } = await ask(port, { path: '/v1/email/send', body: bodyOf(1_001) })
  t.equal(status, 413)
  t.equal(json.error?.code, 'attachment_too_large')
  t.equal(json.error?.details, 'the body is larger than 1000 bytes')
})

t.test('a chunked body without end is refused at the limit, and no more of it is read', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t, { http: { max_body: MEBIBYTE } })
  const connection = await rawConnection(port)
  connection.write(`${SEND_HEAD}Transfer-Encoding: chunked\r\n\r\n`)
  const written = await fill(connection)
  t.match(connection.text(), /^HTTP\/1.1 413 /)
  t.match(connection.text(), 'attachment_too_large')
  t.match(connection.text(), /Connection: close/)
  t.ok(written < 40 * MEBIBYTE, `${written} bytes fitted into buffers before the end`)
  t.equal(sends.length, 0)
})

t.test('pieces of any size are put together; a body of a great many small ones is refused', async (t) => {
  const { port, seen } = await startApi(t)
  const html = Array.from({ length: 40_000 }, (_, index) => `${index} `).join('')
  const body = JSON.stringify({ ...VALID_SEND, html })
  const sizes = [1, 2, 5_000, 1, 70_000, 300, 4_095, 4_096]
  const head = `${SEND_HEAD}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n`
  const whole = await rawConnection(port)
  whole.write(head)
  for (let at = 0, count = 0; at < body.length; count++) {
    const piece = body.slice(at, at + (sizes[count % sizes.length] ?? 1))
    whole.write(`${piece.length.toString(16)}\r\n${piece}\r\n`)
    at += piece.length
  }
  whole.write('0\r\n\r\n')
  await until('the answer', whole.isClosed)
  t.match(whole.text(), /^HTTP\/1.1 200 /)
  t.equal(seen.sends.at(-1)?.request.html, html)
  const fine = await rawConnection(port)
  fine.write(`${head}${'1\r\n \r\n'.repeat(10_000)}`)
  fine.write('1\r\n \r\n')
  await until('the refusal', () => fine.text().includes('}}'))
  t.match(fine.text(), /^HTTP\/1.1 400 [^]*pieces of a few bytes/)
})

t.test('a refused request is answered before its body, and the connection ends', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const heads: [string, number][] = [
    ['POST /v1/email/send HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n', 401],
    [`${SEND_HEAD.replace('/email/send', '/nope')}Content-Length: 1000000\r\n\r\n`, 404],
    [`${SEND_HEAD.replace('/email/send', '/keys')}Transfer-Encoding: chunked\r\n\r\n`, 403],
    [`${SEND_HEAD}Content-Type: text/html\r\nContent-Length: 1000000\r\n\r\n`, 415],
    [`${SEND_HEAD}Content-Length: 999999999\r\n\r\n`, 413],
    ['GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n', 200],
  ]
  for (const [head, status] of heads) {
    const connection = await rawConnection(port)
    connection.write(head)
    await until('the answer', () => connection.text().includes('}'))
    t.match(connection.text(), new RegExp(`^HTTP/1.1 ${status} `))
    t.match(connection.text(), /Connection: close/, `${status}`)
    await until('the end of the connection', connection.isClosed)
  }
  t.equal(sends.length, 0)
})

t.test('of a body that nobody wants no more is read than is under way', async (t) => {
  const { port } = await startApi(t)
  const connection = await rawConnection(port)
  connection.write('POST /v1/email/send HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n')
  const written = await fill(connection)
  t.match(connection.text(), /^HTTP\/1.1 401 /)
  t.ok(written < 40 * MEBIBYTE, `${written} bytes fitted into buffers before the end`)
})

/** Writes chunks as long as the other side takes them and the connection lives; returns how many bytes it took. */
async function fill(connection: RawConnection): Promise<number> {
  const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(65_536, 0x20), Buffer.from('\r\n')])
  let written = 0
  const pump = (): void => {
    while (connection.socket.writable && connection.write(chunk)) written += chunk.length
  }
  connection.socket.on('drain', pump)
  pump()
  await until('the end of the connection', () => connection.socket.destroyed)
  return written
}

t.test('a request behind a refused one on the same connection is not handled', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const connection = await rawConnection(port)
  const body = JSON.stringify(VALID_SEND)
  connection.write('POST /v1/email/send HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n')
  await until('the answer', () => connection.text().includes('}}'))
  connection.write(`${' '.repeat(20)}${SEND_HEAD}Content-Length: ${body.length}\r\n\r\n${body}`)
  for (let count = 0; count < 20; count += 1) await get(port, '/health')
  t.equal(sends.length, 0)
  connection.socket.destroy()
  t.equal(connection.text().match(/HTTP\/1.1/g)?.length, 1)
})

t.test('a refused request whose small body is there already keeps the connection', async (t) => {
  const { port } = await startApi(t)
  const connection = await rawConnection(port)
  connection.write('POST /v1/email/send HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}')
  await until('the first answer', () => connection.text().includes('}}'))
  connection.write('GET /health HTTP/1.1\r\nHost: x\r\n\r\n')
  await until('the second answer', () => connection.text().includes('queue_depth'))
  connection.socket.destroy()
})

t.test('Expect: 100-continue is answered only after the checks', async (t) => {
  const {
    port,
    seen: { sends },
  } = await startApi(t)
  const body = JSON.stringify(VALID_SEND)
  const refused = await rawConnection(port)
  const expecting = `Expect: 100-continue\r\nContent-Length: ${body.length}\r\n\r\n`
  refused.write(`POST /v1/email/send HTTP/1.1\r\nHost: x\r\n${expecting}`)
  await until('the refusal', () => refused.text().includes('}}'))
  t.match(refused.text(), /^HTTP\/1.1 401 /)
  const taken = await rawConnection(port)
  taken.write(`${SEND_HEAD}${expecting}`)
  await until('the invitation', () => taken.text().includes('\r\n\r\n'))
  t.equal(taken.text(), 'HTTP/1.1 100 Continue\r\n\r\n')
  t.equal(sends.length, 0)
  taken.write(body)
  await until('the answer', () => taken.text().includes('message_id'))
  refused.socket.destroy()
  taken.socket.destroy()
})

t.test('bodies that are only announced take no room from others', async (t) => {
  const { port } = await startApi(t)
  const announced: RawConnection[] = []
  for (let count = 0; count < 10; count += 1) {
    const connection = await rawConnection(port)
    connection.write(`${SEND_HEAD}Expect: 100-continue\r\nContent-Length: ${40 * MEBIBYTE}\r\n\r\n`)
    announced.push(connection)
  }
  await until('all invitations', () => announced.every((connection) => connection.text().startsWith('HTTP/1.1 100 ')))
  t.equal((await post(port, '/v1/email/send', VALID_SEND)).status, 200)
  for (const { socket } of announced) socket.destroy()
})

/**
 * A server with a body reader alone; answers with the bytes read or the code and status of the refusal. It begins to
 * read where `isDue` says so, and keeps each outcome with the first bytes.
 */
async function startReader(
  t: Test,
  options: Partial<BodyReaderOptions>,
  isDue = (_request: IncomingMessage): boolean => true,
): Promise<{ port: number; reader: BodyReader; outcomes: string[] }> {
  const reader = createBodyReader({ ...BODY_READER_DEFAULTS, ...options })
  const outcomes: string[] = []
  const server = createServer(async (request, response) => {
    if (!isDue(request)) await until('the time to read', () => isDue(request))
    try {
      const bytes = await reader.read(request, response, { bytes: MEBIBYTE, code: 'payload_too_large' })
      outcomes.push(`${request.url}: ${bytes.length} ${bytes.toString('latin1', 0, 4)}`)
      response.end(`read ${bytes.length};`)
    } catch (thrown) {
      if (!(thrown instanceof ServiceError)) throw thrown
      outcomes.push(`${request.url}: ${thrown.code} ${thrown.details}`)
      response.end(`${thrown.code} ${thrown.status};`)
    }
  })
  server.on('checkContinue', (request, response) => void server.emit('request', request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(async () => {
    reader.stop()
    server.closeAllConnections()
    server.close()
  })
  const bound = server.address()
  return { port: typeof bound === 'object' && bound !== null ? bound.port : 0, reader, outcomes }
}

t.test('a body that is there before anybody reads is read whole, also when its client has gone', async (t) => {
  const isDue = ({ url, complete, destroyed }: IncomingMessage): boolean =>
    url === '/left' || url === '/cut' ? destroyed : complete
  const { port, reader, outcomes } = await startReader(t, { mostBytesUnderWay: 100_000 }, isDue)
  const post = (path: string, body: string, length = body.length, fields = ''): string =>
    `POST ${path} HTTP/1.1\r\nHost: x\r\n${fields}Content-Length: ${length}\r\n\r\n${body}`
  const send = async (text: string, outcome: string): Promise<RawConnection> => {
    const connection = await rawConnection(port)
    t.teardown(() => void connection.socket.destroy())
    const isEnding = text.includes('/left') || text.includes('/cut')
    connection.socket.write(text, () => void (isEnding && connection.socket.end()))
    await until(outcome, () => outcomes.includes(outcome))
    return connection
  }
  await send(`${post('/one', 'abc')}${post('/behind', 'defg')}`, '/behind: 4 defg')
  await send(post('/pieces', 'p'.repeat(50_000)), '/pieces: 50000 pppp')
  const expecting = await send(post('/expecting', 'exp', 3, 'Expect: 100-continue\r\n'), '/expecting: 3 exp')
  await until('the answer', () => expecting.text().includes(';'))
  t.match(expecting.text(), /^HTTP\/1\.1 200 /, 'nobody is asked to go on')
  const chunked = 'POST /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n'
  await send(`${chunked}2\r\nch\r\n2\r\nun\r\n0\r\n\r\n`, '/chunked: 4 chun')
  await send(post('/left', 'left'), '/left: 4 left')
  await send(post('/cut', 'cut', 9), '/cut: invalid_request the body ended early')
  await send(post('/full', 'f'.repeat(50_000)), '/full: unavailable too many large requests at once')
  reader.release(3 + 4 + 50_000 + 3 + 4 + 4)
  await send(post('/room', 'r'.repeat(50_000)), '/room: 50000 rrrr')
  await send(post('/rest', 's'.repeat(50_000)), '/rest: 50000 ssss')
  t.equal(outcomes[0], '/one: 3 abc')
  t.equal(outcomes.length, 10, 'each request is answered once')
})

t.test('a body that trickles is refused with 408, a slow one within the rate is read', async (t) => {
  const { port } = await startReader(t, { slowAfterMilliseconds: 60, leastBytesPerSecond: 1024 })
  const slow = await rawConnection(port)
  slow.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc')
  await until('the refusal', () => slow.text().includes(';'))
  t.match(slow.text(), 'invalid_request 408;')
  const steady = await rawConnection(port)
  steady.write(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n${'a'.repeat(100_000)}`)
  const started = performance.now()
  await until('several looks at the rate', () => performance.now() - started > 200)
  t.equal(steady.text(), '')
  steady.write('a')
  await until('the answer', () => steady.text().includes(';'))
  t.match(steady.text(), 'read 100001;')
  slow.socket.destroy()
  steady.socket.destroy()
})

t.test('bodies under way have a bound together; room comes back', async (t) => {
  const { port, reader } = await startReader(t, { mostBytesUnderWay: 1_000 })
  const first = await rawConnection(port)
  first.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n')
  const second = await rawConnection(port)
  await until('no room for a second body', async () => {
    second.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n')
    await until('an answer', () => second.text().includes(';'))
    return second.text().includes('unavailable')
  })
  first.socket.destroy()
  await until('room after the first one left', async () => {
    const third = await rawConnection(port)
    third.write(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n${'a'.repeat(1_000)}`)
    await until('an answer', () => third.text().includes(';'))
    third.socket.destroy()
    return third.text().includes('read 1000')
  })
  const full = await rawConnection(port)
  full.write(`POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n`)
  await until('an answer', () => full.text().includes(';'))
  t.match(full.text(), 'unavailable', 'what was read counts until it is released')
  reader.release(1_000)
  const free = await rawConnection(port)
  free.write(`POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n`)
  await until('an answer', () => free.text().includes(';'))
  t.match(free.text(), 'read 3;')
  for (const { socket } of [second, full, free]) socket.destroy()
})

t.test('a long number is found wherever it stands, and a short one is none', async (t) => {
  const read = (text: string) => readJson(Buffer.from(text)).value
  for (let before = 0; before < 16; before += 1) {
    const start = `{${' '.repeat(before)}"a":{"n":`
    t.strictSame(
      read(`${start}9007199254740993}}`),
      { a: { n: '9007199254740993' } },
      `behind ${start.length} characters`,
    )
    t.strictSame(read(`${start}900719925474099}}`), { a: { n: 900719925474099 } })
    t.strictSame(read(`${start}"x1234567890123456","m":-9007199254740993}}`), {
      a: { n: 'x1234567890123456', m: '-9007199254740993' },
    })
  }
})
