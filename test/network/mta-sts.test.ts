/**
 * MTA-STS policies: their texts, the fetch from a real web server under a test authority, and what outlives failures.
 */
import { once } from 'node:events'
import { createServer } from 'node:https'
import t, { type Test } from 'tap'
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import { createGuardedLookup } from '../../src/network/guarded-lookup.ts'
import { createGuardedRequest } from '../../src/network/guarded-request.ts'
import { acceptsHost, createMtaSts, type MtaSts, type StsPolicy, type StsProblem } from '../../src/network/mta-sts.ts'
import type { DnsAnswer } from '../../src/network/resolver.ts'
import { readStsPolicy, readStsRecord } from '../../src/network/mta-sts.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { missingPrograms } from '../support/programs.ts'
import { createTestAuthority } from '../support/test-authority.ts'
import { until } from '../support/until.ts'
import { startZone, type ZoneServer } from '../support/zone.ts'

const WITH_OPENSSL = { skip: missingPrograms({ openssl: ['openssl'] }) }
const policyText = (mode: string, maxAge: number = 86_400): string =>
  `version: STSv1\r\nmode: ${mode}\r\nmx: mx1.dest.test\r\nmx: *.pool.test\r\nmax_age: ${maxAge}\r\n`

t.test('the TXT record', (t) => {
  const cases: [string[], string | undefined][] = [
    [['v=STSv1; id=20260101;'], '20260101'],
    [['v=STSv1;id=a'], 'a'],
    [['v=STSv1 ; x=y; id=a1 ;'], 'a1'],
    [['v=spf1 -all', 'v=STSv1; id=1'], '1'],
    [['v=STSv1; id=1', 'v=STSv1; id=2'], undefined],
    [[], undefined],
    [['v=STSv1; id=' + 'a'.repeat(33)], undefined],
    [['v=STSv1; id=a-b'], undefined],
    [['v=STSv12; id=1'], undefined],
    [['V=STSv1; id=1'], undefined],
    [['v=STSv1;'], undefined],
  ]
  for (const [texts, id] of cases) t.equal(readStsRecord(texts), id, JSON.stringify(texts))
  t.end()
})

t.test('the policy', (t) => {
  t.same(readStsPolicy(policyText('enforce')), {
    ok: true,
    terms: { mode: 'enforce', mx: ['mx1.dest.test', '*.pool.test'], maxAgeSeconds: 86_400 },
  })
  t.same(readStsPolicy('version: STSv1\nmode: none\nmax_age: 1\nfuture: x\nmode: enforce'), {
    ok: true,
    terms: { mode: 'none', mx: [], maxAgeSeconds: 1 },
  })
  const many = Array.from({ length: 1_001 }, (_, number) => `mx: m${number}.test\n`)
  const wrong = [
    '',
    'mode: enforce',
    policyText('enforced'),
    policyText('enforce').replace('86400', '-1'),
    policyText('enforce').replace(/mx: .*\r\n/g, ''),
    policyText('enforce').replace('mx1.dest.test', 'mx1..test'),
    policyText('enforce').replace('mx1.dest.test', 'a.*.test'),
    policyText('enforce').replace('STSv1', 'STSv2'),
    '<html>',
    '\0'.repeat(60_000),
    `version: STSv1\nmode: enforce\nmax_age: 9\n${many.join('')}`,
  ]
  for (const text of wrong) t.equal(readStsPolicy(text).ok, false, JSON.stringify(text.slice(0, 40)))
  t.end()
})

t.test('which hosts a policy names', (t) => {
  const policy: StsPolicy = {
    domain: 'dest.test',
    id: '1',
    mode: 'enforce',
    mx: ['mx1.dest.test', '*.pool.test'],
    fetchedAt: 0,
    expiresAt: 1,
  }
  for (const host of ['mx1.dest.test', 'MX1.dest.test', 'a.pool.test']) t.ok(acceptsHost(policy, host), host)
  for (const host of ['mx2.dest.test', 'a.b.pool.test', 'pool.test', 'a.pool.test.evil.test', '']) {
    t.notOk(acceptsHost(policy, host), host)
  }
  t.end()
})

interface World {
  zone: ZoneServer
  clock: ManualClock
  sts: MtaSts
  /** The same memory, and nothing else known. */
  restart(): MtaSts
  kept: Map<string, StsPolicy>
  problems: (StsProblem & { domain: string })[]
  web: WebServer
}

interface WebServer {
  answer: { status: number; type: string; body: string; location?: string }
  fetched: string[]
  /** Gives the first byte, and the rest when `finish` is called. */
  isSlow: boolean
  finish: () => void
}

interface WorldOptions {
  allowPrivateAddresses?: boolean
  certificateFor?: string[]
  patienceMilliseconds?: number
}

async function startWorld(t: Test, options: WorldOptions = {}): Promise<World> {
  const { allowPrivateAddresses = true, certificateFor = ['mta-sts.dest.test'] } = options
  const { patienceMilliseconds = MINUTE } = options
  const authority = createTestAuthority()
  t.teardown(() => authority.close())
  const { key, chain } = authority.issue(certificateFor)
  const web: WebServer = {
    answer: { status: 200, type: 'text/plain', body: policyText('enforce') },
    fetched: [],
    isSlow: false,
    finish: () => {},
  }
  const server = createServer({ key, cert: chain }, (request, response) => {
    web.fetched.push(`${request.headers.host?.split(':')[0]}${request.url}`)
    const { status, type, body, location } = web.answer
    response.writeHead(status, { 'content-type': type, ...(location === undefined ? {} : { location }) })
    if (web.isSlow) response.write(body.slice(0, 1))
    else response.end(body)
    web.finish = () => response.end(body.slice(1))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const bound = server.address()
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0
  const zone = await startZone({
    '_mta-sts.dest.test': { TXT: ['v=STSv1; id=one'] },
    'mta-sts.dest.test': { A: ['127.0.0.1'] },
  })
  const resolver = createDnsResolver({ servers: [zone.server], timeoutMilliseconds: 2_000, tries: 1 })
  const request = createGuardedRequest({
    allowPrivateAddresses,
    allowHttp: false,
    caFile: authority.file,
    lookup: createGuardedLookup(resolver),
  })
  t.teardown(async () => {
    await request.close()
    server.closeAllConnections()
    server.close()
    await zone.close()
  })
  const clock = manualClock()
  const kept = new Map<string, StsPolicy>()
  const problems: World['problems'] = []
  const memory = {
    find: async (domain: string) => kept.get(domain) ?? null,
    keep: async (policy: StsPolicy) => void kept.set(policy.domain, policy),
    fetchedBefore: async (before: number) => [...kept.values()].filter(({ fetchedAt }) => fetchedAt < before),
  }
  const restart = (): MtaSts =>
    createMtaSts({
      resolver,
      request,
      memory,
      clock,
      port,
      patienceMilliseconds,
      onProblem: (domain, problem) => void problems.push({ domain, ...problem }),
    })
  return { zone, clock, sts: restart(), restart, kept, problems, web }
}

t.test('a policy is fetched once, kept, and fetched again for a new id', WITH_OPENSSL, async (t) => {
  const { sts, restart, web, zone, kept, clock, problems } = await startWorld(t)
  const [first, second] = await Promise.all([sts.policyFor('dest.test'), sts.policyFor('dest.test')])
  t.match(first, { domain: 'dest.test', id: 'one', mode: 'enforce', mx: ['mx1.dest.test', '*.pool.test'] })
  t.same(second, first)
  t.same(web.fetched, ['mta-sts.dest.test/.well-known/mta-sts.txt'])
  t.same(kept.get('dest.test'), first)
  t.match(await restart().policyFor('dest.test'), { id: 'one' }, 'after a restart')
  t.equal(web.fetched.length, 1)

  web.answer.body = policyText('testing', 1)
  zone.set('_mta-sts.dest.test', { TXT: ['v=STSv1; id=two'] })
  const renewed = await sts.policyFor('dest.test')
  t.match(renewed, { id: 'two', mode: 'testing' })
  t.equal((renewed?.expiresAt ?? 0) - clock.now(), HOUR, 'at least an hour')
  web.answer.body = policyText('none')
  zone.set('_mta-sts.dest.test', { TXT: ['v=STSv1; id=three'] })
  t.equal(await sts.policyFor('dest.test'), null, 'mode none takes it away')
  t.equal(await sts.policyFor('other.test'), null)
  t.same(problems, [])
})

t.test('a policy in force outlives every failure until its end', WITH_OPENSSL, async (t) => {
  const { sts, zone, clock, web, problems } = await startWorld(t)
  t.match(await sts.policyFor('dest.test'), { id: 'one' })
  for (const state of ['SERVFAIL', undefined, { TXT: ['v=STSv1; id=one', 'v=STSv1; id=two'] }] as const) {
    zone.set('_mta-sts.dest.test', state)
    t.match(await sts.policyFor('dest.test'), { id: 'one', mode: 'enforce' })
  }
  zone.set('_mta-sts.dest.test', { TXT: ['v=STSv1; id=two'] })
  web.answer.status = 500
  t.match(await sts.policyFor('dest.test'), { id: 'one' })
  t.match(await sts.policyFor('dest.test'), { id: 'one' }, 'not fetched again at once')
  t.equal(web.fetched.length, 2)
  t.same(problems, [{ domain: 'dest.test', result: 'sts-policy-fetch-error', reason: 'the web server answered 500' }])
  await clock.advance(5 * MINUTE)
  await sts.policyFor('dest.test')
  t.equal(web.fetched.length, 3)
  await clock.advance(DAY)
  t.equal(await sts.policyFor('dest.test'), null, 'its max_age is over')
})

t.test('what is wrong with a policy is named, and there is none', WITH_OPENSSL, async (t) => {
  const good = { status: 200, type: 'text/plain', body: policyText('enforce') }
  const cases: [WebServer['answer'], StsProblem['result']][] = [
    [{ ...good, status: 302, location: 'https://mta-sts.dest.test/elsewhere' }, 'sts-policy-fetch-error'],
    [{ ...good, status: 404 }, 'sts-policy-fetch-error'],
    [{ ...good, type: 'text/html' }, 'sts-policy-invalid'],
    [{ ...good, body: 'hello' }, 'sts-policy-invalid'],
    [{ ...good, body: `${policyText('enforce')}${'x'.repeat(65_536)}` }, 'sts-policy-fetch-error'],
  ]
  const { restart, web, problems } = await startWorld(t)
  for (const [answer, result] of cases) {
    web.answer = answer
    t.equal(await restart().policyFor('dest.test'), null, result)
    t.equal(problems.pop()?.result, result)
  }
  t.equal(web.fetched.length, cases.length, 'no redirect was followed')
  web.answer = { ...good, type: 'text/plain; charset=utf-8' }
  t.match(await restart().policyFor('dest.test'), { id: 'one' })
})

t.test('the certificate of the web server must be right, and it must not be inside', WITH_OPENSSL, async (t) => {
  const other = await startWorld(t, { certificateFor: ['dest.test'] })
  t.equal(await other.sts.policyFor('dest.test'), null)
  t.match(other.problems, [{ result: 'sts-webpki-invalid' }])
  const inside = await startWorld(t, { allowPrivateAddresses: false })
  t.equal(await inside.sts.policyFor('dest.test'), null)
  t.match(inside.problems, [{ result: 'sts-policy-fetch-error', reason: 'the address is private, local or reserved' }])
  t.same([...other.web.fetched, ...inside.web.fetched], [])
})

t.test('policies are refreshed daily, also with the same id', WITH_OPENSSL, async (t) => {
  const { sts, kept, clock, web } = await startWorld(t)
  web.answer.body = policyText('enforce', 7 * 86_400)
  const first = await sts.policyFor('dest.test')
  await sts.refresh()
  t.equal(web.fetched.length, 1)
  await clock.advance(DAY + 1)
  await sts.refresh()
  t.equal(web.fetched.length, 2)
  t.equal(kept.get('dest.test')?.expiresAt, (first?.expiresAt ?? 0) + DAY + 1)
  await clock.advance(DAY + 1)
  web.answer.status = 500
  await sts.refresh()
  await sts.refresh()
  t.equal(web.fetched.length, 3, 'one that fails is left alone for hours')
  t.match(await sts.policyFor('dest.test'), { id: 'one' })
})

t.test('mail does not wait for ever for a policy, which comes to those after it', WITH_OPENSSL, async (t) => {
  const { sts, web } = await startWorld(t, { patienceMilliseconds: 50 })
  web.isSlow = true
  t.equal(await sts.policyFor('dest.test'), null)
  await until('the request is there', () => web.fetched.length === 1)
  web.isSlow = false
  web.finish()
  t.match(await until('the policy is there', () => sts.policyFor('dest.test')), { id: 'one' })
  t.equal(web.fetched.length, 1, 'one fetch was enough')
})

t.test('long policies take the place of several in what is known without the memory', async (t) => {
  const asked: string[] = []
  const mx = Array.from({ length: 1_000 }, (_, index) => `${'x'.repeat(50)}${index}.example`)
  const sts = createMtaSts({
    resolver: { txt: async () => ({ kind: 'found', records: ['v=STSv1; id=1'] }) },
    request: { get: async () => ({ kind: 'failed', reason: 'nothing is fetched', isCertificateProblem: false }) },
    memory: {
      async find(domain) {
        asked.push(domain)
        return { domain, id: '1', mode: 'enforce', mx, fetchedAt: 0, expiresAt: Infinity }
      },
      keep: async () => {},
      fetchedBefore: async () => [],
    },
    clock: manualClock(),
    onProblem: () => t.fail('no fetch fails'),
  })
  for (let count = 0; count < 1_000; count++) await sts.policyFor(`${count}.test`)
  await sts.policyFor('999.test')
  t.equal(asked.length, 1_000, 'the last is known')
  await sts.policyFor('0.test')
  t.equal(asked.length, 1_001, '1,000 policies of 60 KiB are too many')
})

t.test('a policy that was fetched while the memory was read is not forgotten for what was there before', async (t) => {
  const { promise: slow, resolve: answerSlowly } = Promise.withResolvers<null>()
  const reads = [slow]
  const silent = { kind: 'no-answer' as const, reason: 'SERVFAIL' }
  const answers: DnsAnswer<string>[] = [silent, { kind: 'found', records: ['v=STSv1; id=1'] }]
  const bytes = Buffer.from(policyText('enforce'))
  const sts = createMtaSts({
    resolver: { txt: async () => answers.shift() ?? silent },
    request: { get: async () => ({ kind: 'document', status: 200, contentType: 'text/plain', bytes }) },
    memory: { find: () => reads.shift() ?? Promise.resolve(null), keep: async () => {}, fetchedBefore: async () => [] },
    clock: manualClock(Date.UTC(2026, 10, 21)),
    onProblem: () => t.fail('no fetch fails'),
  })
  const first = sts.policyFor('dest.test')
  t.match(await sts.policyFor('dest.test'), { mode: 'enforce' })
  answerSlowly(null)
  t.match(await first, { mode: 'enforce' })
  t.match(await sts.policyFor('dest.test'), { mode: 'enforce' }, 'and the DNS is silent')
})
