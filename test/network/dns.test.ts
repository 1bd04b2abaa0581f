/**
 * Questions to a real DNS server on loopback, with and without the cache in between.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createDnsCache, type DnsCacheSettings } from '../../src/network/cached-resolver.ts'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import { withFront, type DnsAnswer, type MxRecord, type Resolver } from '../../src/network/resolver.ts'
import { createValidatingResolver } from '../../src/network/validating-resolver.ts'
import { manualClock } from '../support/manual-clock.ts'
import { startZone, type Zone, type ZoneServer } from '../support/zone.ts'

const TRY_MILLISECONDS = 20_000
/** Where nobody answers. */
const SHORT_TRY_MILLISECONDS = 1_000
const LONG_TEXT = 'v=DKIM1; p=' + 'k'.repeat(900)

const ZONE: Zone = {
  'example.com': { MX: ['20 mx2.example.com', '10 MX1.Example.COM'], TXT: [LONG_TEXT, 'second', ''] },
  'null.example': { MX: ['0 .'] },
  'mx1.example.com': { A: ['192.0.2.1', '192.0.2.2'], AAAA: ['2001:db8::1'] },
  'www.example.com': { CNAME: 'MX1.example.com' },
  'dangling.example.com': { CNAME: 'nowhere.example' },
  'circle.example': { CNAME: 'circle.example' },
  'odd.example': { MX: ['10 bad host!.example', '20 192.0.2.5'] },
  'deep.below.example': { A: ['192.0.2.3'] },
  'selector._domainkey.example.com': { TXT: ['v=DKIM1'] },
  'broken.example': 'SERVFAIL',
  'refused.example': 'REFUSED',
  'silent.example': 'TIMEOUT',
}

/** Enough that c-ares would expect the next one as soon. */
const QUICK_ANSWERS = 20
/** It looks at its time limits once a second. */
const SLOW_MILLISECONDS = 1_500

interface Relay {
  server: string
  /** Of each question. */
  delay: number
  ports: Set<number>
}

async function startRelay(t: Test, zone: ZoneServer): Promise<Relay> {
  const front = createSocket('udp4').bind(0, '127.0.0.1')
  t.teardown(() => front.close())
  await once(front, 'listening')
  const relay: Relay = { server: `127.0.0.1:${front.address().port}`, delay: 0, ports: new Set() }
  front.on('message', (question, { port }) => {
    relay.ports.add(port)
    const back = createSocket('udp4')
      .unref()
      .once('message', (answer) => {
        front.send(answer, port, '127.0.0.1')
        back.close()
      })
    const pass = (): void => back.send(question, Number(zone.server.split(':')[1]), '127.0.0.1')
    setTimeout(pass, relay.delay).unref()
  })
  return relay
}

async function zoneFor(t: Test, zone: Zone = ZONE): Promise<ZoneServer> {
  const server = await startZone(zone)
  t.teardown(() => server.close())
  return server
}

const resolverFor = (...servers: string[]): Resolver =>
  createDnsResolver({ servers, timeoutMilliseconds: TRY_MILLISECONDS, tries: 2 })
const hastyResolverFor = (...servers: string[]): Resolver =>
  createDnsResolver({ servers, timeoutMilliseconds: SHORT_TRY_MILLISECONDS, tries: 2 })

t.test('each kind of answer is told apart', async (t) => {
  const resolver = resolverFor((await zoneFor(t)).server)
  const cases: [string, Promise<DnsAnswer<unknown>>, DnsAnswer<unknown>][] = [
    ['an unknown name', resolver.mx('unknown.example'), { kind: 'no-name' }],
    ['a name without that type', resolver.mx('mx1.example.com'), { kind: 'no-record' }],
    ['a name that only has names below it', resolver.addresses('below.example', 4), { kind: 'no-record' }],
    ['SERVFAIL', resolver.mx('broken.example'), { kind: 'no-answer', reason: 'MX broken.example: SERVFAIL' }],
    ['REFUSED', resolver.txt('refused.example'), { kind: 'no-answer', reason: 'TXT refused.example: REFUSED' }],
    ['a null MX', resolver.mx('null.example'), found({ priority: 0, exchange: '' })],
    ['IPv4', resolver.addresses('mx1.example.com', 4), found('192.0.2.1', '192.0.2.2')],
    ['IPv6', resolver.addresses('mx1.example.com', 6), found('2001:db8::1')],
    ['an address behind an alias', resolver.addresses('www.example.com', 4), found('192.0.2.1', '192.0.2.2')],
    ['the alias itself', resolver.cname('www.example.com'), found('mx1.example.com')],
    ['an alias that leads nowhere', resolver.addresses('dangling.example.com', 4), { kind: 'no-name' }],
    ['no alias', resolver.cname('mx1.example.com'), { kind: 'no-record' }],
    ['upper case and a trailing dot', resolver.addresses('DEEP.below.example.', 4), found('192.0.2.3')],
    ['an underscore', resolver.txt('selector._domainkey.example.com'), found('v=DKIM1')],
  ]
  for (const [what, asked, expected] of cases) t.same(await asked, expected, what)
  t.match(await resolver.addresses('circle.example', 4), { kind: 'no-answer' }, 'a circle of aliases')
})

t.test('an alias that comes alone is followed by the asker, and not for ever', async (t) => {
  const { server } = await zoneFor(t, {
    'bounces.example.com': { CNAME: 'rp.example.net', isAliasAlone: true },
    'rp.example.net': { TXT: ['v=spf1 -all'], MX: ['10 mail.example.net'] },
    'nowhere.example.com': { CNAME: 'unknown.example', isAliasAlone: true },
    'circle.example': { CNAME: 'circle.example', isAliasAlone: true },
  })
  const resolver = resolverFor(server)
  t.same(await resolver.txt('bounces.example.com'), found('v=spf1 -all'))
  t.same(await resolver.mx('bounces.example.com'), found({ priority: 10, exchange: 'mail.example.net' }))
  t.same(await resolver.addresses('bounces.example.com', 6), { kind: 'no-record' })
  t.same(await resolver.txt('nowhere.example.com'), { kind: 'no-name' })
  t.match(await resolver.txt('circle.example'), { kind: 'no-answer', reason: /aliases/ })
})

t.test('a lookup and all aliases that it follows have the time of one', async (t) => {
  const zone = await zoneFor(t, {
    ...Object.fromEntries(
      [0, 1, 2, 3, 4, 5].map((index) => [
        `alias${index}.example`,
        { CNAME: `alias${index + 1}.example`, isAliasAlone: true },
      ]),
    ),
    'alias6.example': { A: ['192.0.2.1'] },
  })
  const relay = await startRelay(t, zone)
  t.match(await resolverFor(relay.server).addresses('alias0.example', 4), found('192.0.2.1'))
  t.equal(zone.queries.length, 13)
  zone.queries.length = 0
  relay.delay = 800
  const late = { kind: 'no-answer', reason: /no server answered in time/ }
  t.match(await hastyResolverFor(relay.server).addresses('alias0.example', 4), late)
  t.ok(zone.queries.length <= 3, 'each answer takes 800 ms, and all of them have 2 s')
})

t.test('exchanges are lower case, and odd ones arrive as they are', async (t) => {
  const resolver = resolverFor((await zoneFor(t)).server)
  t.same(sortedExchanges(await resolver.mx('example.com')), ['mx1.example.com', 'mx2.example.com'])
  t.same(sortedExchanges(await resolver.mx('odd.example')), ['192.0.2.5', 'bad host!.example'])
})

t.test('the strings of a long TXT record are joined, over TCP when UDP is too small', async (t) => {
  const zone = await zoneFor(t)
  t.same(await resolverFor(zone.server).txt('example.com'), found(LONG_TEXT, 'second', ''))
  t.same(zone.queries, ['TXT example.com', 'TXT example.com tcp'])
})

t.test('of an answer 100 hosts, addresses or names are read, the best of the hosts; of texts all', async (t) => {
  const all = Array.from({ length: 150 }, (_, index) => index)
  const hosts = all.map((index) => ({ priority: Math.floor(index / 2), exchange: `mx${index}.example` }))
  const { server } = await zoneFor(t, {
    'wide.example': {
      MX: hosts.toReversed().map(({ priority, exchange }) => `${priority} ${exchange}`),
      A: all.map((index) => `192.0.2.${index}`),
      AAAA: all.map((index) => `2001:db8::${index + 1}`),
      PTR: all.map((index) => `host${index}.example`),
      TXT: all.map((index) => `text ${index}`),
    },
  })
  const best = hosts.slice(0, 100).toSorted((left, right) => {
    return left.priority - right.priority || (left.exchange < right.exchange ? -1 : 1)
  })
  const validating = createValidatingResolver({ server, timeoutMilliseconds: TRY_MILLISECONDS, tries: 2 })
  for (const resolver of [resolverFor(server), validating]) {
    const records = async <Item>(answer: Promise<DnsAnswer<Item>>): Promise<Item[]> => {
      const given = await answer
      return given.kind === 'found' ? given.records : []
    }
    t.same(await records(resolver.mx('wide.example')), best)
    t.equal((await records(resolver.addresses('wide.example', 4))).length, 100)
    t.equal((await records(resolver.addresses('wide.example', 6))).length, 100)
    t.equal((await records(resolver.ptr('wide.example'))).length, 100)
    t.equal((await records(resolver.txt('wide.example'))).length, 150)
  }
})

t.test('text that is no host name cannot exist, and is never asked', async (t) => {
  const zone = await zoneFor(t)
  const resolver = resolverFor(zone.server)
  const hostile = [
    '',
    '.',
    '..',
    'a..b',
    '.example.com',
    'a b.example',
    'bad host!.example',
    'ü.example',
    '\u0000',
    'a\n.example',
    '::1',
    'user@example.com',
    '*',
    `${'x'.repeat(64)}.example`,
    'x.'.repeat(127) + 'xx',
    '%65xample.com',
  ]
  for (const name of hostile) t.same(await resolver.mx(name), { kind: 'no-name' }, JSON.stringify(name))
  t.same(zone.queries, [])
})

t.test('nothing is kept between questions: a changed zone is seen at once', async (t) => {
  const zone = await zoneFor(t)
  const resolver = resolverFor(zone.server)
  t.same(await resolver.addresses('deep.below.example', 4), found('192.0.2.3'))
  zone.set('deep.below.example', { A: ['192.0.2.4'] })
  t.same(await resolver.addresses('deep.below.example', 4), found('192.0.2.4'))
  t.same(await resolver.txt('later.example'), { kind: 'no-name' })
  zone.set('later.example', { TXT: ['here'] })
  t.same(await resolver.txt('later.example'), found('here'))
  zone.set('later.example', undefined)
  t.same(await resolver.txt('later.example'), { kind: 'no-name' })
})

t.test('a lookup without an answer ends after timeout times tries, however many servers are silent', async (t) => {
  const silent = { 'silent.example': 'TIMEOUT' } as const
  const zones = await Promise.all([zoneFor(t, silent), zoneFor(t, silent), zoneFor(t, silent)])
  const startedAt = performance.now()
  t.same(await hastyResolverFor(...zones.map(({ server }) => server)).mx('silent.example'), {
    kind: 'no-answer',
    reason: 'MX silent.example: no server answered in time',
  })
  const took = performance.now() - startedAt
  t.equal(zones.flatMap(({ queries }) => queries).length, 2)
  t.ok(took < TRY_MILLISECONDS, `took ${Math.round(took)} ms`)
  t.ok(took > SHORT_TRY_MILLISECONDS, 'and it did wait')
})

t.test('a silent server is passed over, and asked last from then on', async (t) => {
  const dead = await zoneFor(t, { 'example.com': 'TIMEOUT' })
  const alive = await zoneFor(t)
  // The time of a try, after which the one that is alive has as long to answer.
  const resolver = createDnsResolver({ servers: [dead.server, alive.server], timeoutMilliseconds: 1_500, tries: 2 })
  t.match(await resolver.mx('example.com'), { kind: 'found' })
  t.equal(dead.queries.length, 1)
  t.match(await resolver.mx('example.com'), { kind: 'found' })
  t.equal(dead.queries.length, 1, 'the second lookup does not wait for it')
})

t.test('a server that was quick has as long for its next answer, and each question has its own port', async (t) => {
  const zone = await zoneFor(t)
  const relay = await startRelay(t, zone)
  const resolver = createDnsResolver({ servers: [relay.server], timeoutMilliseconds: TRY_MILLISECONDS, tries: 1 })
  for (let count = 0; count < QUICK_ANSWERS; count++) t.match(await resolver.mx('example.com'), { kind: 'found' })
  relay.delay = SLOW_MILLISECONDS
  t.match(await resolver.mx('example.com'), { kind: 'found' })
  t.equal(zone.queries.length, QUICK_ANSWERS + 1, 'each was asked, once')
  t.ok(relay.ports.size > QUICK_ANSWERS / 2, 'from ports that nobody can guess')
})

t.test('a server that fails at once is passed over and costs no try', async (t) => {
  const zones = await Promise.all([zoneFor(t, { 'example.com': 'SERVFAIL' }), zoneFor(t, { 'example.com': 'REFUSED' })])
  const alive = await zoneFor(t)
  const servers = [...zones, alive].map(({ server }) => server)
  const resolver = createDnsResolver({ servers, timeoutMilliseconds: TRY_MILLISECONDS, tries: 1 })
  t.match(await resolver.mx('example.com'), { kind: 'found' })
  t.same(
    zones.map(({ queries }) => queries.length),
    [1, 1],
  )
})

t.test('a single server has all tries', async (t) => {
  const zone = await zoneFor(t)
  t.match(await hastyResolverFor(zone.server).mx('silent.example'), { kind: 'no-answer' })
  t.same(zone.queries, ['MX silent.example', 'MX silent.example'])
})

t.test('a server that is not there is no answer', async (t) => {
  const zone = await startZone({})
  await zone.close()
  t.match(await resolverFor(zone.server).mx('example.com'), { kind: 'no-answer' })
})

const CACHE: DnsCacheSettings = {
  entries: 20_000,
  min_ttl: 30 * SECOND,
  max_ttl: HOUR,
  negative_ttl: MINUTE,
  stale: HOUR,
}

/** A resolver that says what it is told to, and counts. */
function spokenResolver(): { resolver: Resolver; asked: string[]; say(answer: DnsAnswer<string>): void } {
  let now: DnsAnswer<string> = found('192.0.2.1')
  const asked: string[] = []
  const answer = async (question: string): Promise<DnsAnswer<string>> => {
    asked.push(question)
    return now
  }
  const resolver: Resolver = {
    mx: async (name) => {
      const said = await answer(`mx ${name}`)
      return said.kind === 'found' ? found(...said.records.map((exchange) => ({ priority: 1, exchange }))) : said
    },
    addresses: (name, family) => answer(`${family} ${name}`),
    txt: (name) => answer(`txt ${name}`),
    cname: (name) => answer(`cname ${name}`),
    ptr: (name) => answer(`ptr ${name}`),
  }
  return { resolver, asked, say: (answer) => void (now = answer) }
}

t.test('a positive set is kept ten minutes, within the bounds', async (t) => {
  const cases: [Partial<DnsCacheSettings>, number][] = [
    [{}, 10 * MINUTE],
    [{ max_ttl: 2 * MINUTE }, 2 * MINUTE],
    [{ min_ttl: 20 * MINUTE }, 20 * MINUTE],
  ]
  for (const [settings, kept] of cases) {
    const clock = manualClock()
    const { resolver, asked } = spokenResolver()
    const cached = withFront(resolver, createDnsCache({ cache: { ...CACHE, ...settings }, clock }))
    await cached.mx('example.com')
    await clock.advance(kept - 1)
    t.same(await cached.mx('EXAMPLE.com.'), found({ priority: 1, exchange: '192.0.2.1' }))
    t.same(asked, ['mx example.com'])
    await clock.advance(1)
    await cached.mx('example.com')
    t.equal(asked.length, 2)
  }
})

t.test('types and families of one name are kept apart', async (t) => {
  const { resolver, asked } = spokenResolver()
  const cached = withFront(resolver, createDnsCache({ cache: CACHE, clock: manualClock() }))
  for (let round = 0; round < 2; round++) {
    await cached.mx('a.example')
    await cached.addresses('a.example', 4)
    await cached.addresses('a.example', 6)
    await cached.txt('a.example')
    await cached.cname('a.example')
    await cached.ptr('a.example')
  }
  t.same(asked, ['mx a.example', '4 a.example', '6 a.example', 'txt a.example', 'cname a.example', 'ptr a.example'])
})

t.test('negative answers are kept for their own time, and failures not at all', async (t) => {
  const clock = manualClock()
  const { resolver, asked, say } = spokenResolver()
  const cached = withFront(resolver, createDnsCache({ cache: CACHE, clock }))
  for (const kind of ['no-name', 'no-record'] as const) {
    say({ kind })
    t.same(await cached.txt(`${kind}.example`), { kind })
    await clock.advance(MINUTE - 1)
    say(found('now there'))
    t.same(await cached.txt(`${kind}.example`), { kind })
    await clock.advance(1)
    t.same(await cached.txt(`${kind}.example`), found('now there'))
  }
  const before = asked.length
  const failure = { kind: 'no-answer', reason: 'SERVFAIL' } as const
  say(failure)
  t.same(await cached.txt('failing.example'), failure)
  t.same(await cached.txt('failing.example'), failure)
  t.equal(asked.length, before + 2)
  say(found('back'))
  t.same(await cached.txt('failing.example'), found('back'))
})

t.test('while no server answers, a positive set serves on for the stale time', async (t) => {
  const clock = manualClock()
  const { resolver, asked, say } = spokenResolver()
  const cached = withFront(resolver, createDnsCache({ cache: CACHE, clock }))
  const failure = { kind: 'no-answer', reason: 'timeout' } as const
  await cached.txt('a.example')
  await clock.advance(10 * MINUTE)
  say(failure)
  t.same(await cached.txt('a.example'), found('192.0.2.1'))
  t.same(await cached.txt('a.example'), found('192.0.2.1'))
  t.equal(asked.length, 2, 'dead servers are not asked for each message')
  await clock.advance(30 * SECOND)
  t.same(await cached.txt('a.example'), found('192.0.2.1'))
  t.equal(asked.length, 3, 'but every 30 seconds')
  await clock.advance(HOUR - 30 * SECOND - 1)
  t.same(await cached.txt('a.example'), found('192.0.2.1'))
  await clock.advance(1)
  t.same(await cached.txt('a.example'), failure, 'and no longer than the stale time')
  say(found('back'))
  t.same(await cached.txt('a.example'), found('back'))
})

t.test('an old "no such name" is no answer once its time is over', async (t) => {
  const clock = manualClock()
  const { resolver, say } = spokenResolver()
  const cached = withFront(resolver, createDnsCache({ cache: CACHE, clock }))
  say({ kind: 'no-name' })
  await cached.mx('a.example')
  await clock.advance(MINUTE)
  say({ kind: 'no-answer', reason: 'timeout' })
  t.same(await cached.mx('a.example'), { kind: 'no-answer', reason: 'timeout' })
})

t.test('one lookup per question is under way, and all who wait get its answer', async (t) => {
  const zone = await zoneFor(t)
  const cached = withFront(resolverFor(zone.server), createDnsCache({ cache: CACHE, clock: manualClock() }))
  const answers = await Promise.all(Array.from({ length: 50 }, () => cached.addresses('deep.below.example', 4)))
  t.ok(answers.every((answer) => answer.kind === 'found'))
  t.same(zone.queries, ['A deep.below.example'])
})

t.test('the cache is bounded, and the least used name goes first', async (t) => {
  const { resolver, asked } = spokenResolver()
  const cached = withFront(resolver, createDnsCache({ cache: { ...CACHE, entries: 2 }, clock: manualClock() }))
  for (const name of ['a', 'b', 'a', 'c', 'a', 'b']) await cached.txt(name)
  t.same(asked, ['txt a', 'txt b', 'txt c', 'txt b'])
})

t.test('a long answer takes the place of several in the cache', async (t) => {
  const { resolver, asked, say } = spokenResolver()
  const cached = withFront(resolver, createDnsCache({ cache: { ...CACHE, entries: 5 }, clock: manualClock() }))
  await cached.txt('a')
  await cached.txt('b')
  say(found('x'.repeat(7_000)))
  for (const name of ['long', 'long', 'b', 'a']) await cached.txt(name)
  t.same(asked, ['txt a', 'txt b', 'txt long', 'txt a'], 'four places for 7,000 bytes')
  say(found('x'.repeat(15_000)))
  for (const name of ['longest', 'longest']) await cached.txt(name)
  t.same(asked.slice(4), ['txt longest', 'txt longest'], 'one that takes more than all is not kept')
})

function found<Item>(...records: Item[]): { kind: 'found'; records: Item[] } {
  return { kind: 'found', records }
}

function sortedExchanges(answer: DnsAnswer<MxRecord>): string[] {
  return answer.kind === 'found' ? answer.records.map(({ exchange }) => exchange).toSorted() : []
}
