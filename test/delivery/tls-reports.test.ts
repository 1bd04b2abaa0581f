/**
 * What is remembered and reported of outbound TLS: plain fallbacks, sums of connections, and the daily report of
 * RFC 8460, on a real store and a real DNS server.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import { createLogger } from '../../src/base/logger.ts'
import { loadConfiguration, type Configuration } from '../../src/config/load-configuration.ts'
import type { HostTls, TlsPolicy } from '../../src/delivery/protocol/host-tls.ts'
import { createTlsMemory, createTlsResults } from '../../src/delivery/route/tls/tls-results.ts'
import { makeTlsReport, readReportDestinations, reportMail } from '../../src/delivery/route/tls/tls-report.ts'
import { createTlsReports, type ReportMail } from '../../src/delivery/route/tls/tls-reports.ts'
import type { MailHost, ThreadConnectionNote, TlsResultNote } from '../../src/delivery/protocol/try-result.ts'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import type { GuardedPost } from '../../src/network/guarded-request.ts'
import type { Store } from '../../src/store/store.ts'
import type { TlsResult } from '../../src/store/records/tls-records.ts'
import { locationIn, openTestStore } from '../store/sqlite-support.ts'
import { manualClock } from '../support/manual-clock.ts'
import { startZone } from '../support/zone.ts'

const SHIPPED = fileURLToPath(new URL('../../config', import.meta.url))
const shipped = loadConfiguration({
  folder: SHIPPED,
  shippedFolder: SHIPPED,
  offline: true,
  neededSecrets: 'none',
  overrides: { 'delivery.allow_private_addresses': true, 'listen.http': [], 'listen.submission': [] },
})

async function storeFor(t: Test): Promise<Store> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-tls-'))
  const { store } = await openTestStore(locationIn(folder))
  t.teardown(async () => {
    await store.close()
    rmSync(folder, { recursive: true })
  })
  return store
}

const logger = createLogger({ level: 'error', write: () => {} })
const MIDNIGHT = Date.UTC(2026, 10, 21)
const IP = '192.0.2.9'
const NO_POLICY: TlsPolicy = { type: 'none', id: '' }
const STS: TlsPolicy = { type: 'sts', id: 'one' }
const hostOf = (tls: HostTls): MailHost => ({ name: 'mx.dest.test', addresses: ['192.0.2.1'], tls })
const opportunistic: HostTls = { kind: 'opportunistic', policy: NO_POLICY }
const settingsWith = (changes: Partial<Configuration['server']['delivery']>) => (): Configuration => {
  const delivery = { ...shipped.server.delivery, ...changes }
  return { ...shipped, server: { ...shipped.server, hostname: 'mta.sternpost.test', delivery } }
}

function noteOf(tls: Partial<TlsResultNote> | null, changes: Partial<ThreadConnectionNote> = {}): ThreadConnectionNote {
  return {
    pathKey: `${IP} x`,
    note: { kind: 'opened', inFlight: 1 },
    host: 'mx.dest.test',
    address: '192.0.2.1',
    domain: 'dest.test',
    tls: tls === null ? null : { policy: NO_POLICY, result: 'success', reason: null, isPlainFallback: false, ...tls },
    ...changes,
  }
}

t.test('the one plain fallback is remembered, and dropped by a success or a policy', async (t) => {
  const clock = manualClock()
  const store = await storeFor(t)
  const start = async (): Promise<ReturnType<typeof createTlsMemory>> => {
    const memory = createTlsMemory({ store, clock, settings: settingsWith({}), logger })
    await memory.start()
    return memory
  }
  const memory = await start()
  t.same(memory.apply(IP, [hostOf(opportunistic)]), [hostOf(opportunistic)])
  memory.remember(IP, 'mx.dest.test', 'the handshake failed')
  const plain = { kind: 'plain', reason: 'the handshake failed', policy: NO_POLICY }
  t.match(memory.apply(IP, [hostOf(opportunistic)]), [{ name: 'mx.dest.test', tls: plain }])
  t.match(memory.apply('192.0.2.8', [hostOf(opportunistic)]), [{ tls: opportunistic }], 'of this IP alone')
  const restarted = await start()
  t.match(restarted.apply(IP, [hostOf(opportunistic)]), [{ tls: plain }], 'over a restart')

  const verified: HostTls = { kind: 'verified', names: [], by: 'sts', policy: STS }
  t.match(restarted.apply(IP, [hostOf(verified)]), [{ tls: verified }], 'never weaker than a policy')
  t.match(restarted.apply(IP, [hostOf(opportunistic)]), [{ tls: opportunistic }], 'which drops it')
  await clock.advance(3 * DAY)
  t.match(memory.apply(IP, [hostOf(opportunistic)]), [{ tls: opportunistic }], 'three days')

  const off = createTlsMemory({ store, clock, settings: settingsWith({ remember_plain: 0 }), logger })
  off.remember(IP, 'mx.dest.test', 'x')
  t.match(off.apply(IP, [hostOf(opportunistic)]), [{ tls: opportunistic }])
})

t.test('connections are summed and stored, also after the store had failed', async (t) => {
  const store = await storeFor(t)
  const clock = manualClock(MIDNIGHT + DAY - 5 * SECOND)
  const said: string[] = []
  let failures = 1
  const results = createTlsResults({
    clock,
    logger,
    store: {
      async addTlsResults(sums) {
        if (failures-- > 0) throw new Error('disk full')
        await store.addTlsResults(sums)
      },
    },
    memory: {
      remember: (ip, host, reason) => void said.push(`remember ${ip} ${host} ${reason}`),
      forget: (ip, host) => void said.push(`forget ${ip} ${host}`),
    },
    policies: {
      describe: (_, host, { type }) => ({
        lines: type === 'sts' ? ['version: STSv1', 'mx: mx.dest.test'] : [],
        isListed: host !== 'mx2.dest.test',
      }),
    },
  })
  results.noteConnection(IP, noteOf(null))
  for (let count = 0; count < 3; count++) results.noteConnection(IP, noteOf({}))
  results.noteConnection(IP, noteOf({ result: 'starttls-not-supported', reason: 'no STARTTLS', isPlainFallback: true }))
  results.noteConnection(IP, noteOf({ policy: STS }, { host: 'mx2.dest.test' }))
  results.noteProblem({ domain: 'dest.test', host: '', policy: STS, result: 'sts-policy-fetch-error' })
  await results.flush()
  t.same(await store.tlsResults('2026-11-21'), [])
  await results.flush()
  const stored = (await store.tlsResults('2026-11-21'))
    .map(({ policyType, host, ip, result, count }) => [policyType, host, ip, result, count].join(' '))
    .toSorted()
  t.same(stored, [
    'no-policy-found mx.dest.test 192.0.2.9 starttls-not-supported 1',
    'no-policy-found mx.dest.test 192.0.2.9 success 3',
    'sts   sts-policy-fetch-error 1',
    'sts mx2.dest.test 192.0.2.9 validation-failure 1',
  ])
  t.same(said.slice(-2), ['remember 192.0.2.9 mx.dest.test no STARTTLS', 'forget 192.0.2.9 mx2.dest.test'])
  await clock.advance(6 * SECOND)
  results.noteConnection(IP, noteOf({}))
  await results.stop()
  t.match(await store.tlsResults('2026-11-22'), [{ count: 1, result: 'success' }], 'by the day of the connection')
})

t.test('results of many domains are stored some at a time, and none is lost or counted twice', async (t) => {
  const store = await storeFor(t)
  const sizes: number[] = []
  const lines: string[] = []
  const results = createTlsResults({
    clock: manualClock(MIDNIGHT),
    logger: createLogger({ level: 'info', write: (line) => lines.push(String(JSON.parse(line).msg)) }),
    store: {
      async addTlsResults(sums) {
        sizes.push(sums.length)
        if (sizes.length === 2 || sizes.length === 3) throw new Error('disk full')
        await store.addTlsResults(sums)
      },
    },
    memory: { remember: () => undefined, forget: () => undefined },
    policies: { describe: () => ({ lines: [], isListed: true }) },
  })
  const domains = Array.from({ length: 500 }, (_, index) => `d${index}.test`)
  for (const domain of domains) results.noteConnection(IP, noteOf({}, { domain }))
  await results.flush()
  t.same(sizes, [200, 200], 'the second part fails')
  await results.flush()
  await results.flush()
  t.same(sizes.slice(3), [200, 100], 'what was not stored')
  t.same(lines, ['TLS results not stored', 'TLS results are stored again'], 'each said once')
  const stored = await store.tlsResults('2026-11-21')
  t.same(
    stored.map(({ domain }) => domain),
    domains.toSorted(),
  )
  t.ok(stored.every(({ count }) => count === 1))
})

t.test('who wants reports', (t) => {
  const cases: [string[], string[]][] = [
    [['v=TLSRPTv1; rua=mailto:a@b.test'], ['a@b.test']],
    [['v=TLSRPTv1;rua=https://r.test/x,mailto:a%2Bb@b.test?subject=x;'], ['https://r.test/x', 'a+b@b.test']],
    [['v=TLSRPTv1; rua=ftp://x, mailto:%ZZ@x'], []],
    [['v=TLSRPTv1; rua=mailto:a@b', 'v=TLSRPTv1; rua=mailto:c@d'], []],
    [['v=TLSRPTv2; rua=mailto:a@b'], []],
    [['v=spf1 -all'], []],
    [['v=TLSRPTv1;'], []],
    [[], []],
  ]
  for (const [texts, expected] of cases) {
    const found = readReportDestinations(texts).map((each) => (each.kind === 'https' ? each.url : each.address))
    t.same(found, expected, JSON.stringify(texts))
  }
  t.end()
})

const resultOf = (changes: Partial<TlsResult>): TlsResult => ({
  day: '2026-11-20',
  domain: 'dest.test',
  policyType: 'no-policy-found',
  policy: [],
  host: 'mx.dest.test',
  ip: IP,
  result: 'success',
  count: 1,
  ...changes,
})
const STS_LINES = ['version: STSv1', 'mode: enforce', 'mx: *.dest.test', 'max_age: 86400']

t.test('a report says what was counted, in the form of RFC 8460', (t) => {
  const report = makeTlsReport(
    { day: '2026-11-20', domain: 'dest.test', submitter: 'mta.sternpost.test', contact: 'tls@sternpost.test' },
    [
      resultOf({ count: 5 }),
      resultOf({ policyType: 'sts', policy: STS_LINES, count: 7 }),
      resultOf({ policyType: 'sts', policy: STS_LINES, result: 'certificate-expired', count: 2 }),
      resultOf({ policyType: 'sts', policy: STS_LINES, result: 'sts-policy-fetch-error', host: '', ip: '', count: 1 }),
      resultOf({ policyType: 'tlsa', policy: ['3 1 1 ab'], result: 'tlsa-invalid', count: 3 }),
    ],
  )
  t.same(JSON.parse(gunzipSync(report.bytes).toString()), {
    'organization-name': 'mta.sternpost.test',
    'date-range': { 'start-datetime': '2026-11-20T00:00:00Z', 'end-datetime': '2026-11-20T23:59:59Z' },
    'contact-info': 'tls@sternpost.test',
    'report-id': '2026-11-20.dest.test@mta.sternpost.test',
    policies: [
      {
        policy: { 'policy-type': 'no-policy-found', 'policy-domain': 'dest.test' },
        summary: { 'total-successful-session-count': 5, 'total-failure-session-count': 0 },
        'failure-details': [],
      },
      {
        policy: {
          'policy-type': 'sts',
          'policy-string': STS_LINES,
          'policy-domain': 'dest.test',
          'mx-host': ['*.dest.test'],
        },
        summary: { 'total-successful-session-count': 7, 'total-failure-session-count': 3 },
        'failure-details': [
          {
            'result-type': 'certificate-expired',
            'sending-mta-ip': IP,
            'receiving-mx-hostname': 'mx.dest.test',
            'failed-session-count': 2,
          },
          { 'result-type': 'sts-policy-fetch-error', 'failed-session-count': 1 },
        ],
      },
      {
        policy: { 'policy-type': 'tlsa', 'policy-string': ['3 1 1 ab'], 'policy-domain': 'dest.test' },
        summary: { 'total-successful-session-count': 0, 'total-failure-session-count': 3 },
        'failure-details': [
          {
            'result-type': 'tlsa-invalid',
            'sending-mta-ip': IP,
            'receiving-mx-hostname': 'mx.dest.test',
            'failed-session-count': 3,
          },
        ],
      },
    ],
  })
  t.equal(report.fileName, 'mta.sternpost.test!dest.test!1795132800!1795219199.json.gz')
  const mail = reportMail(report, 'tls@sternpost.test', 'r@dest.test').toString()
  t.match(mail, /^Content-Type: multipart\/report; report-type="tlsrpt";\r\n boundary="([^"]+)"\r\n\r\n--\1\r\n/m)
  t.match(mail, /^TLS-Report-Domain: dest\.test\r\nTLS-Report-Submitter: mta\.sternpost\.test\r\n/m)
  const attached = /Content-Type: application\/tlsrpt\+gzip\r\n[^]*?\r\n\r\n([^]*?)\r\n--/.exec(mail)?.[1] ?? ''
  t.same(Buffer.from(attached, 'base64'), report.bytes)
  t.ok(mail.split('\r\n').every((line) => line.length <= 998))
  t.end()
})

interface Reporting {
  run(): Promise<void>
  mails: ReportMail[]
  posts: GuardedPost[]
  answers: { post: number; mail: Error | null }
}

async function startReporting(
  t: Test,
  from: string | null,
  clock = manualClock(MIDNIGHT + 5 * HOUR),
): Promise<Reporting> {
  const store = await storeFor(t)
  const zone = await startZone({
    '_smtp._tls.dest.test': { TXT: ['v=TLSRPTv1; rua=mailto:r@dest.test,https://report.dest.test/tls'] },
    '_smtp._tls.late.test': 'SERVFAIL',
  })
  t.teardown(() => zone.close())
  await store.addTlsResults([
    resultOf({ count: 5 }),
    resultOf({ domain: 'silent.test' }),
    resultOf({ domain: 'late.test' }),
    resultOf({ day: '2026-11-21' }),
  ])
  const state: Omit<Reporting, 'run'> = { mails: [], posts: [], answers: { post: 200, mail: null } }
  const reports = createTlsReports({
    store,
    clock,
    logger,
    settings: settingsWith({ tls_reports: { from } }),
    resolver: createDnsResolver({ servers: [zone.server], timeoutMilliseconds: 2_000, tries: 1 }),
    request: {
      async post(asked) {
        state.posts.push(asked)
        return { kind: 'answered', status: state.answers.post, answer: '' }
      },
    },
    async sendMail(mail) {
      if (state.answers.mail !== null) throw state.answers.mail
      state.mails.push(mail)
    },
  })
  return { ...state, run: () => reports.sendDue() }
}

t.test('a day is reported once, to everybody who was named', async (t) => {
  const { run, mails, posts } = await startReporting(t, 'tls@sternpost.test')
  await Promise.all([run(), run()])
  await run()
  t.equal(mails.length, 1)
  t.match(mails[0], {
    from: 'tls@sternpost.test',
    recipient: 'r@dest.test',
    subject: /^Report Domain: dest\.test Submitter: mta/,
  })
  t.equal(posts.length, 1)
  t.match(posts[0], { url: 'https://report.dest.test/tls', headers: { 'content-type': 'application/tlsrpt+gzip' } })
})

t.test('nothing is sent before its time, nor without a sender', async (t) => {
  const off = await startReporting(t, null)
  await off.run()
  t.equal(off.mails.length + off.posts.length, 0)
  const clock = manualClock(MIDNIGHT + MINUTE)
  const early = await startReporting(t, 'tls@sternpost.test', clock)
  await early.run()
  t.equal(early.mails.length, 0)
  await clock.advance(4 * HOUR + 5 * MINUTE)
  await early.run()
  t.equal(early.mails.length, 1)
})

t.test('what failed is tried again, and nobody gets a copy twice', async (t) => {
  const clock = manualClock(MIDNIGHT + 5 * HOUR)
  const { run, mails, posts, answers } = await startReporting(t, 'tls@sternpost.test', clock)
  answers.post = 503
  await run()
  await run()
  t.same([mails.length, posts.length], [1, 1], 'not at once')
  await clock.advance(10 * MINUTE)
  answers.post = 201
  await run()
  t.same([mails.length, posts.length], [1, 2])
  await clock.advance(HOUR)
  await run()
  t.same([mails.length, posts.length], [1, 2])
})

t.test('a mail that is refused for good is not tried again', async (t) => {
  const clock = manualClock(MIDNIGHT + 5 * HOUR)
  const { run, mails, posts, answers } = await startReporting(t, 'tls@sternpost.test', clock)
  answers.mail = new ServiceError('domain_not_verified', 'x')
  await run()
  answers.mail = null
  await clock.advance(HOUR)
  await run()
  t.same([mails.length, posts.length], [0, 1])
})
