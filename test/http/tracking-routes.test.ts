/**
 * Pixels, links and unsubscribing over HTTP: exact answers, what counts and what does not, and targets that mean harm.
 */
import { request, type IncomingHttpHeaders } from 'node:http'
import t, { type Test } from 'tap'
import { BODY_READER_DEFAULTS, createBodyReader } from '../../src/http/exchange/body-reader.ts'
import { createTrackingRoutes } from '../../src/http/tracking/tracking-routes.ts'
import type { Client } from '../../src/messages/engagement/machine-hits.ts'
import type { ClickAnswer } from '../../src/messages/engagement/record-engagement.ts'
import { startApi } from './api-server.ts'

const TOKEN = 'a'.repeat(56)
const GONE = 'b'.repeat(56)
const PERSON = 'Mozilla/5.0 (X11; Linux x86_64)'

interface Answer {
  status: number
  headers: IncomingHttpHeaders
  body: Buffer
}

interface TrackingServer {
  ask(method: string, path: string, headers?: Record<string, string>, body?: string | Buffer): Promise<Answer>
  /** What was counted. */
  opens: { token: string; client: Client | null }[]
  clicks: { token: string; client: Client | null }[]
  unsubscribes: string[]
  /** Where TOKEN leads. */
  link: { target: string }
}

async function startTracking(t: Test): Promise<TrackingServer> {
  const [opens, clicks]: [TrackingServer['opens'], TrackingServer['clicks']] = [[], []]
  const unsubscribes: string[] = []
  const link = { target: 'https://shop.test/' }
  const answerFor = (token: string): ClickAnswer => {
    if (token === TOKEN) return { kind: 'redirect', target: link.target }
    return token === GONE ? { kind: 'gone' } : { kind: 'unknown' }
  }
  const bodies = createBodyReader(BODY_READER_DEFAULTS)
  t.teardown(() => bodies.stop())
  const tracking = createTrackingRoutes({
    bodies,
    trustedProxies: ['127.0.0.1/32'],
    abuseAddress: 'abuse@<example>.net',
    features: {
      engagement: {
        open: (token, client) => void opens.push({ token, client }),
        click: async (token, client) => {
          clicks.push({ token, client })
          return answerFor(token)
        },
      },
      unsubscribing: {
        isUnsubscribeToken: (token) => token === TOKEN || token === GONE,
        unsubscribe: async (token) => {
          unsubscribes.push(token)
          return token === TOKEN
        },
      },
    },
  })
  const { port } = await startApi(t, { extraHandlers: [tracking] })
  return { ask: (...asked) => ask(port, ...asked), opens, clicks, unsubscribes, link }
}

function ask(
  port: number,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body: string | Buffer = '',
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const allHeaders = { 'User-Agent': PERSON, ...headers }
    const asked = request({ port, host: '127.0.0.1', method, path, headers: allHeaders }, (response) => {
      const { statusCode: status = 0, headers: answered } = response
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('end', () => resolve({ status, headers: answered, body: Buffer.concat(chunks) }))
    })
    asked.on('error', reject)
    asked.end(body)
  })
}

/** What no answer on these paths has, and what every page has. */
function checkPage(t: Test, { headers, body }: Answer): void {
  t.equal(headers['content-type'], 'text/html; charset=utf-8')
  t.match(headers['content-security-policy'], /^default-src 'none'/)
  t.equal(headers['cache-control'], 'no-store')
  t.equal(headers['set-cookie'], undefined)
  t.notMatch(body.toString(), /<script|<style|style=|https?:\/\//i)
}

t.test('the pixel is a picture of 43 bytes for whatever token', async (t) => {
  const { ask: get, opens } = await startTracking(t)
  for (const path of [`/o/${TOKEN}`, `/o/${TOKEN}/`, `/o/${TOKEN}?x=1`, '/o/bad', '/o/']) {
    const { status, headers, body } = await get('GET', path)
    t.equal(status, 200, path)
    t.match(headers, { 'content-type': 'image/gif', 'content-length': '43', 'cache-control': 'no-store, private' })
    t.equal(body.toString('latin1', 0, 6), 'GIF89a')
  }
  const client = { address: '127.0.0.1', userAgent: PERSON }
  t.same(
    opens,
    [TOKEN, TOKEN, TOKEN, 'bad', ''].map((token) => ({ token, client })),
  )
})

t.test('a link is a redirect, or a page that says why not', async (t) => {
  const { ask: get, clicks } = await startTracking(t)
  const found = await get('GET', `/c/${TOKEN}`, { 'X-Forwarded-For': '198.51.100.7' })
  t.match(found, { status: 302, headers: { location: 'https://shop.test/', 'cache-control': 'no-store' } })
  t.equal(found.body.length, 0)
  t.same(clicks, [{ token: TOKEN, client: { address: '198.51.100.7', userAgent: PERSON } }])
  const [unknown, gone] = [await get('GET', '/c/bad'), await get('GET', `/c/${GONE}`)]
  t.same([unknown.status, gone.status], [404, 410])
  for (const answer of [unknown, gone]) {
    checkPage(t, answer)
    t.equal(answer.headers.location, undefined)
  }
})

t.test('HEAD and what only fetches in advance count nothing', async (t) => {
  const { ask: get, opens, clicks } = await startTracking(t)
  for (const path of [`/o/${TOKEN}`, `/c/${TOKEN}`, '/c/bad', `/u/${TOKEN}`, '/', '/robots.txt']) {
    const [head, full] = [await get('HEAD', path), await get('GET', path, { Purpose: 'prefetch' })]
    t.equal(head.status, full.status, path)
    t.equal(head.body.length, 0)
    const { 'x-request-id': _, date: __, ...same } = full.headers
    t.match(head.headers, same, path)
  }
  for (const headers of [{ 'Sec-Purpose': 'prefetch;prerender' }, { 'X-Moz': 'prefetch' }, { Purpose: 'Prefetch' }]) {
    await get('GET', `/o/${TOKEN}`, headers)
    await get('GET', `/c/${TOKEN}`, headers)
  }
  t.ok([...opens, ...clicks].every(({ client }) => client === null))
  await get('GET', `/c/${TOKEN}`, { Purpose: 'other' })
  t.not(clicks.at(-1)?.client, null)
})

t.test('the target reaches the header as a browser would ask for it, and nothing else does', async (t) => {
  const { ask: get, link } = await startTracking(t)
  const targets: [target: string, location: string][] = [
    ['https://x.test/?a=1&b=%20%zz;{}|\\^`<>"\'#x', 'https://x.test/?a=1&b=%20%zz;{}|\\^`<>"\'#x'],
    ['HTTP://user:secret@X.test:80/a b?c d', 'HTTP://user:secret@X.test:80/a%20b?c%20d'],
    ['https://grüße.test/ü?😀=\uD800', 'https://xn--gre-6ka8l.test/%C3%BC?%F0%9F%98%80=%EF%BF%BD'],
    ['https://ü@BÜCHER.test:81?x=@ü', 'https://%C3%BC@xn--bcher-kva.test:81?x=@%C3%BC'],
    ['https://kein host ü.test/', 'https://kein%20host%20%C3%BC.test/'],
    ['https://x.test/\r\nSet-Cookie: a=b\0\x7f\x85', 'https://x.test/%0D%0ASet-Cookie:%20a=b%00%7F%C2%85'],
    [`https://x.test/${'a'.repeat(8_177)}`, `https://x.test/${'a'.repeat(8_177)}`],
  ]
  for (const [target, location] of targets) {
    link.target = target
    const { status, headers } = await get('GET', `/c/${TOKEN}`)
    t.equal(status, 302)
    t.equal(headers.location, location)
    t.equal(headers['set-cookie'], undefined)
  }
})

t.test('other methods and other paths', async (t) => {
  const { ask: get, opens, clicks, unsubscribes } = await startTracking(t)
  for (const [path, allow] of [
    ['/o/x', 'GET, HEAD'],
    ['/c/x', 'GET, HEAD'],
    ['/u/x', 'GET, HEAD, POST'],
    ['/', 'GET, HEAD'],
    ['/robots.txt', 'GET, HEAD'],
  ] as const) {
    for (const method of ['PUT', 'DELETE', 'OPTIONS', 'PATCH', ...(allow.includes('POST') ? [] : ['POST'])]) {
      const answer = await get(method, path)
      t.match([answer.status, answer.headers.allow], [405, allow], `${method} ${path}`)
    }
  }
  for (const path of ['/o', '/c', '/o/x/y', '/x/y', '/O/x', '/constructor', '/__proto__/x', '/o%2Fx']) {
    t.match((await get('GET', path)).body.toString(), /^\{"success":false/, `${path} goes on to the API`)
  }
  t.same([...opens, ...clicks, ...unsubscribes], [])
})

t.test('a host says what it is and what may be indexed', async (t) => {
  const { ask: get } = await startTracking(t)
  const robots = await get('GET', '/robots.txt')
  t.equal(robots.body.toString(), 'User-agent: *\nDisallow: /\n')
  const about = await get('GET', '/')
  checkPage(t, about)
  t.match(about.body.toString(), 'Report abuse to abuse@&lt;example&gt;.net.')
})

const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' }
const ONE_CLICK = 'List-Unsubscribe=One-Click'
const multipart = (name: string, value: string): string =>
  `--x\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n--x--\r\n`
const MULTIPART = { 'Content-Type': 'multipart/form-data; boundary="x"' }

t.test('unsubscribing takes a POST of the form, and never a GET', async (t) => {
  const { ask: get, unsubscribes } = await startTracking(t)
  const form = await get('GET', `/u/${TOKEN}`)
  t.equal(form.status, 200)
  checkPage(t, form)
  t.match(form.body.toString(), '<form method="post"><input type="hidden" name="List-Unsubscribe" value="One-Click">')
  t.equal((await get('GET', '/u/bad')).status, 404)
  t.same(unsubscribes, [])

  const good: [headers: Record<string, string>, body: string][] = [
    [FORM, ONE_CLICK],
    [FORM, `a=b&${ONE_CLICK}&c`],
    [FORM, `${ONE_CLICK}\r\n`],
    [{}, ONE_CLICK],
    [{ 'Content-Type': `${FORM['Content-Type']}; charset=utf-8` }, ONE_CLICK],
    [MULTIPART, multipart('List-Unsubscribe', 'One-Click')],
    [{ 'Content-Type': 'multipart/form-data; charset=utf-8; boundary=x' }, multipart('List-Unsubscribe', 'One-Click')],
  ]
  for (const [headers, body] of good) {
    const answer = await get('POST', `/u/${TOKEN}`, headers, body)
    t.equal(answer.status, 200, body)
    checkPage(t, answer)
    t.equal(answer.headers.location, undefined)
  }
  t.equal(unsubscribes.length, good.length)
  const bad: [headers: Record<string, string>, body: string][] = [
    [FORM, ''],
    [FORM, 'List-Unsubscribe=no'],
    [FORM, 'x=List-Unsubscribe=One-Click'],
    [MULTIPART, ONE_CLICK],
    [MULTIPART, multipart('Other', 'One-Click')],
    [MULTIPART, multipart('List-Unsubscribe', 'no')],
    [{ 'Content-Type': 'multipart/form-data' }, '--x'],
  ]
  for (const [headers, body] of bad) t.equal((await get('POST', `/u/${TOKEN}`, headers, body)).status, 400, body)
  t.equal((await get('POST', `/u/${TOKEN}`, FORM, `${ONE_CLICK}&a=${'b'.repeat(4_096)}`)).status, 413)
  t.equal((await get('POST', '/u/bad', FORM, ONE_CLICK)).status, 404)
  t.equal(unsubscribes.length, good.length, 'nothing changed')
  t.equal((await get('POST', `/u/${GONE}`, FORM, ONE_CLICK)).status, 404, 'its mail is not kept any more')
})
