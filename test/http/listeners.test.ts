/**
 * What each listener serves and nothing beside it: challenges of certificate authorities, the way to https, tracking
 * without the API; and what is said before a certificate ends.
 */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { createCertificateWatch, createDoorCertificates } from '../../src/operations/certificates.ts'
import { DAY } from '../../src/base/clock.ts'
import { serverCertificates, type KeyPair } from '../../src/base/service/server-certificates.ts'
import type { ServerSettings } from '../../src/config/settings/server-settings.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { ask, get, post, rawConnection, shareStore, startApi, VALID_SEND } from './api-server.ts'
import { MAIL_CERTIFICATE, MAIL_KEY, OTHER_CERTIFICATE, OTHER_KEY } from './certificates.ts'
import { manualClock } from '../support/manual-clock.ts'
import { createTestAuthority, type IssueOptions } from '../support/test-authority.ts'
import { until } from '../support/until.ts'

shareStore(t)
const folder = mkdtempSync(join(tmpdir(), 'sternpost-listeners-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const PREFIX = '/.well-known/acme-challenge'

t.test('a challenge is answered from the webroot, and nothing else of the disk', async (t) => {
  const webroot = join(folder, 'webroot')
  const challenges = join(webroot, PREFIX)
  mkdirSync(join(challenges, 'inner'), { recursive: true })
  writeFileSync(join(challenges, 'Token_-1'), 'Token_-1.thumbprint')
  writeFileSync(join(challenges, 'with.dot'), 'secret')
  writeFileSync(join(challenges, 'large'), 'x'.repeat(5_000))
  writeFileSync(join(challenges, 'inner', 'deep'), 'secret')
  writeFileSync(join(webroot, 'outside'), 'secret')
  symlinkSync(join(webroot, 'outside'), join(challenges, 'link'))
  symlinkSync('/dev/zero', join(challenges, 'endless'))
  const { port, log } = await startApi(t, { listener: { serve: ['acme'] }, http: { acme_webroot: webroot } })

  const found = await get(port, `${PREFIX}/Token_-1`, null)
  t.equal(found.status, 200)
  t.equal(found.text, 'Token_-1.thumbprint')
  t.match(found.headers['content-type'], /^text\/plain/)
  t.equal((await ask(port, { method: 'HEAD', path: `${PREFIX}/Token_-1`, key: null })).status, 200)
  const others = [
    '',
    '/',
    '/missing',
    '/with.dot',
    '/large',
    '/inner',
    '/inner/deep',
    '/link',
    '/endless',
    '/../../outside',
    '/..%2f..%2foutside',
    '/%2e%2e/%2e%2e/outside',
    '/..',
    '/.',
    '/Token_-1/',
    '/Token_-1%00',
    `/${'a'.repeat(300)}`,
  ]
  for (const path of others) {
    const { status, text } = await get(port, `${PREFIX}${path}`, null)
    t.equal(status, 404, path)
    t.notMatch(text, 'secret')
  }
  t.equal((await ask(port, { method: 'POST', path: `${PREFIX}/Token_-1`, key: null, body: '{}' })).status, 404)
  t.notOk(
    log.find(({ level }) => level === 'error'),
    'nobody can fill the log',
  )

  const moved = join(folder, 'moved')
  mkdirSync(moved)
  symlinkSync(join(webroot, '.well-known'), join(moved, '.well-known'))
  const linked = await startApi(t, { listener: { serve: ['acme'] }, http: { acme_webroot: moved } })
  const outside = await get(linked.port, `${PREFIX}/Token_-1`, null)
  t.equal(outside.status, 404, 'a link on the way leads out of the webroot')
  const elsewhere = await startApi(t, { http: { acme_webroot: webroot } })
  t.equal((await get(elsewhere.port, `${PREFIX}/Token_-1`, null)).status, 404, 'only where acme is listed')
})

/** Status and, where there is one, Location. */
async function answerTo(port: number, request: string): Promise<string> {
  const connection = await rawConnection(port)
  connection.write(`${request} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`)
  await until('the answer is there', () => connection.isClosed())
  const text = connection.text()
  const status = /^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? text
  const location = /^Location: (.*)\r$/im.exec(text)?.[1]
  return location === undefined ? status : `${status} ${location}`
}

t.test('what nothing answers goes to https, to our own name whatever was asked', async (t) => {
  const listener = { serve: ['acme', 'tracking', 'redirect'] }
  const { port } = await startApi(t, { listener, publicUrl: 'https://mail.example.net' })
  const toHttps = (path: string): string => `308 https://mail.example.net${path}`
  for (const path of ['/v1/domains?limit=1', '//evil.example/x', '/@evil.example', '/%0d%0aSet-Cookie:x']) {
    t.equal(await answerTo(port, `GET ${path}`), toHttps(path))
  }
  t.equal(await answerTo(port, 'GET http://evil.example/x'), toHttps('/x'))
  t.equal(await answerTo(port, 'HEAD /x'), toHttps('/x'))
  t.equal((await get(port, '/robots.txt', null)).status, 200, 'tracking answers first')
  t.equal((await get(port, `${PREFIX}/x`, null)).status, 404, 'and so does acme')
  t.equal((await post(port, '/v1/email/send', VALID_SEND)).status, 404, 'a body is not sent on')
  t.equal(await answerTo(port, 'GET *.evil.example'), '404', 'that would become a part of the name')

  const both = await startApi(t, { listener: { serve: ['api', 'redirect'] } })
  t.equal((await get(both.port, '/health', null)).status, 200, 'the API stays where it is served')
  t.equal((await post(both.port, '/v1/email/send', VALID_SEND)).status, 200)
  t.equal(await answerTo(both.port, 'GET /'), toHttps('/'))
})

t.test('a listener for tracking knows nothing of the API, and looks at no key', async (t) => {
  const {
    port,
    seen: { addresses },
  } = await startApi(t, { listener: { serve: ['tracking'] } })
  for (const key of [null, 'admin', 'send'] as const) {
    for (const path of ['/v1/domains', '/api/v1/email', '/health', '/v1/health', '/metrics', '/v1/nothing']) {
      t.equal((await ask(port, { path, key, method: 'GET' })).status, 404, path)
    }
    t.equal((await ask(port, { path: '/v1/email/send', key, body: JSON.stringify(VALID_SEND) })).status, 404)
  }
  t.same(addresses, [], 'no key was looked at')
  t.equal((await get(port, '/', null)).status, 200)
})

t.test('a certificate that ends is announced 14 and 3 days before, once each', async (t) => {
  const file = join(folder, 'cert.pem')
  const endsAt = Date.UTC(2126, 9, 28, 12, 18, 41)
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({ level: 'debug', write: (line) => void lines.push(JSON.parse(line)) })
  const metrics = createMetrics()
  const clock = manualClock(endsAt - 20 * DAY)
  const watch = createCertificateWatch({ clock, metrics, logger })
  watch.use([{ cert_file: file, cert: MAIL_CERTIFICATE }], [])
  t.same(lines, [])
  t.match(
    await metrics.text(),
    `sternpost_tls_certificate_expiry_timestamp_seconds{certificate="${file}"} ${endsAt / 1_000}`,
  )
  const checkAt = async (left: number): Promise<unknown[]> => {
    await clock.advance(endsAt - left - clock.now())
    watch.check()
    watch.check()
    return lines.splice(0).map(({ level, msg, days_left: left }) => [level, msg, left])
  }
  t.same(await checkAt(13.5 * DAY), [['warn', 'certificate ends soon', 13]])
  t.same(await checkAt(5 * DAY), [])
  t.same(await checkAt(2.5 * DAY), [['error', 'certificate ends soon', 2]])
  watch.use([], [])
  t.notMatch(await metrics.text(), 'certificate="')
})

t.test('of certificates for a name one that has ended is the last choice', async (t) => {
  const authority = createTestAuthority()
  t.teardown(() => authority.close())
  const pairOf = (options: IssueOptions): KeyPair => {
    const { chain: cert, key } = authority.issue(['mail.example.net'], options)
    return { cert, key }
  }
  const [ended, good] = [pairOf({ isExpired: true }), pairOf({})]
  const endOf = (...pairs: [KeyPair, ...KeyPair[]]): number =>
    serverCertificates(pairs, 'TLSv1.2').endFor('mail.example.net')
  t.equal(endOf(ended, good), endOf(good))
  t.not(endOf(ended), 0, 'better than none')
})

t.test('what an authority has issued is shown while the files are being written, and behind a reload', async (t) => {
  const [cert_file, key_file] = [join(folder, 'chain.pem'), join(folder, 'key.pem')]
  const write = (cert: string): void => writeFileSync(cert_file, cert)
  write(MAIL_CERTIFICATE)
  writeFileSync(key_file, MAIL_KEY)
  const settings = {
    listen: { http: [], submission: [] },
    tls: { certificates: [{ cert_file, key_file }], min_version: 'TLSv1.2' },
  }
  let issued: KeyPair[] = []
  const doors = createDoorCertificates({ use() {} }, settings as unknown as ServerSettings, async () => issued)
  await doors.open()
  const shows = (name: string): boolean => doors.endFor(name) > 0
  const takeOver = doors.read(settings.tls.certificates)
  write(MAIL_CERTIFICATE.slice(0, 200))
  issued = [{ cert: OTHER_CERTIFICATE, key: OTHER_KEY }]
  await doors.renew()
  t.same(['mail.example.net', 'other.example.net'].map(shows), [true, true])
  takeOver.use()
  t.same(['mail.example.net', 'other.example.net'].map(shows), [true, true], 'a reload began before it came')
  t.same(takeOver.changes, [])
  write(OTHER_CERTIFICATE)
  writeFileSync(key_file, OTHER_KEY)
  const until = /^until 2126-10-28T/
  const { changes } = doors.read(settings.tls.certificates)
  t.match(changes, [{ kind: 'changed', what: `certificate ${cert_file}`, from: until, to: until }])
})
