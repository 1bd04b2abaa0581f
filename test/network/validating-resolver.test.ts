/**
 * Questions to a resolver that validates: unbound over zones that Knot signed, a lying server, and messages as bytes.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import t from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createDnsCache } from '../../src/network/cached-resolver.ts'
import { readAnswer, readName, writeQuestion } from '../../src/network/dns-message.ts'
import { createMailHosts } from '../../src/network/mail-hosts.ts'
import { withFront, type DnsAnswer, type ValidatingResolver } from '../../src/network/resolver.ts'
import { createValidatingResolver } from '../../src/network/validating-resolver.ts'
import { manualClock } from '../support/manual-clock.ts'
import { missingForSigning, startValidatingUnbound, type SignedZone } from '../support/signed-zones.ts'
import { startZone } from '../support/zone.ts'

const WITH_SIGNER = { skip: missingForSigning() }
const HASH = '00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'
const RECORDS = [
  '@ 300 IN MX 20 mx2',
  '@ 100 IN MX 10 MX1',
  'mx1 300 IN A 192.0.2.1',
  'mx1 300 IN AAAA 2001:db8::1',
  'mx2 300 IN CNAME mx1',
  'null 300 IN MX 0 .',
  `_25._tcp.mx1 60 IN TLSA 3 1 1 ${HASH}`,
  'text 300 IN TXT "v=STSv1; " "id=1"',
  'www 50 IN CNAME mx1',
  '1.reverse 300 IN PTR Host.example.test.',
  'dangling 300 IN CNAME nowhere',
  ...Array.from({ length: 300 }, (_, index) => `many 300 IN MX ${index} host-${index}`),
]
const ZONES: SignedZone[] = [
  { name: 'secure.test', records: RECORDS, state: 'signed' },
  { name: 'open.test', records: RECORDS, state: 'unsigned' },
  {
    name: 'bogus.test',
    records: RECORDS,
    state: 'signed',
    spoil: (text) => text.replace('TLSA	3 1 1 0011', 'TLSA	3 1 1 ff11').replace('A	192.0.2.1', 'A	192.0.2.66'),
  },
]

/** Flags of an answer, and its code. */
const SERVFAIL = 0x8182

const ask = (server: string, timeoutMilliseconds = 10_000, tries = 2): ValidatingResolver =>
  createValidatingResolver({ server, timeoutMilliseconds, tries })

t.test('answers carry whether they were validated, their time, the end of their aliases', WITH_SIGNER, async (t) => {
  const unbound = await startValidatingUnbound(ZONES)
  t.teardown(() => unbound.stop())
  const resolver = ask(unbound.server)

  const set = await resolver.mx('Secure.TEST.')
  t.match(set, { kind: 'found', facts: { isSecure: true, canonicalName: 'secure.test' } })
  t.same(set.kind === 'found' && set.records.toSorted((left, right) => left.priority - right.priority), [
    { priority: 10, exchange: 'mx1.secure.test' },
    { priority: 20, exchange: 'mx2.secure.test' },
  ])
  t.match(await resolver.mx('open.test'), { kind: 'found', facts: { isSecure: false } })
  t.match(await resolver.mx('null.secure.test'), { kind: 'found', records: [{ priority: 0, exchange: '' }] })
  t.match(await resolver.addresses('mx1.secure.test', 6), {
    kind: 'found',
    records: ['2001:db8::1'],
    facts: { isSecure: true },
  })
  const www = await resolver.addresses('www.secure.test', 4)
  t.match(www, { kind: 'found', records: ['192.0.2.1'], facts: { isSecure: true, canonicalName: 'mx1.secure.test' } })
  t.ok(www.kind === 'found' && (www.facts?.ttlMilliseconds ?? 0) <= 50 * SECOND, 'the shortest time of the chain')
  t.match(await resolver.tlsa('_25._tcp.mx1.secure.test'), {
    kind: 'found',
    records: [{ usage: 3, selector: 1, matching: 1, data: HASH }],
    facts: { isSecure: true },
  })
  t.match(await resolver.txt('text.secure.test'), { kind: 'found', records: ['v=STSv1; id=1'] })
  t.match(await resolver.cname('www.secure.test'), { kind: 'found', records: ['mx1.secure.test'] })
  t.match(await resolver.ptr('1.reverse.secure.test'), { kind: 'found', records: ['host.example.test'] })

  const none = await resolver.tlsa('_25._tcp.mx2.secure.test')
  t.match(none, { kind: 'no-name', facts: { isSecure: true } })
  t.ok(none.kind === 'no-name' && (none.facts?.ttlMilliseconds ?? Infinity) <= MINUTE, "by the zone's own word")
  t.match(await resolver.txt('mx1.secure.test'), { kind: 'no-record', facts: { isSecure: true } })
  t.match(await resolver.addresses('dangling.secure.test', 4), { kind: 'no-name' })
  t.match(await resolver.txt('nowhere.open.test'), { kind: 'no-name', facts: { isSecure: false } })

  const many = await resolver.mx('many.secure.test')
  t.equal(many.kind === 'found' && many.records.length, 100, 'a truncated answer comes by TCP')
  t.equal(many.kind === 'found' && many.facts?.isSecure, true)

  const bogus = { kind: 'no-answer', isBogus: true, reason: 'TLSA _25._tcp.mx1.bogus.test: DNSSEC validation failed' }
  t.same(await resolver.tlsa('_25._tcp.mx1.bogus.test'), bogus)
  t.match(await resolver.addresses('mx1.bogus.test', 4), { kind: 'no-answer', isBogus: true })
  t.match(await resolver.mx('bogus.test'), { kind: 'found', facts: { isSecure: true } }, 'what was not touched holds')

  const finder = createMailHosts({
    resolver,
    allowPrivateAddresses: true,
    ownAddresses: () => [],
    mostAddresses: 20,
    random: () => 0,
  })
  t.match(await finder.find('secure.test'), {
    kind: 'hosts',
    isSecure: true,
    hosts: [
      { name: 'mx1.secure.test', isSecure: true, failure: null, canonicalName: 'mx1.secure.test' },
      { name: 'mx2.secure.test', isSecure: true, failure: null, canonicalName: 'mx1.secure.test' },
    ],
  })
  t.match(await finder.find('open.test'), { kind: 'hosts', isSecure: false, hosts: [{ isSecure: false }] })
})

t.test('a server without DNSSEC is asked as well, by UDP and TCP', async (t) => {
  const zone = await startZone({
    'example.com': { MX: ['10 mx.example.com'], TXT: ['x'.repeat(600)] },
    'broken.example': 'SERVFAIL',
    'refused.example': 'REFUSED',
    'silent.example': 'TIMEOUT',
    'circle.example': { CNAME: 'other.example', isAliasAlone: true },
    'odd.example': { MX: ['10 bad host!.example'] },
  })
  t.teardown(() => zone.close())
  const resolver = ask(zone.server, 300, 2)
  t.match(await resolver.txt('example.com'), { kind: 'found', records: ['x'.repeat(600)], facts: { isSecure: false } })
  t.same(zone.queries, ['TXT example.com', 'TXT example.com tcp'])
  t.same(await resolver.mx('broken.example'), { kind: 'no-answer', reason: 'MX broken.example: SERVFAIL' })
  t.same(await resolver.mx('refused.example'), { kind: 'no-answer', reason: 'MX refused.example: REFUSED' })
  t.same(await resolver.mx('silent.example'), {
    kind: 'no-answer',
    reason: 'MX silent.example: the validating resolver did not answer in time',
  })
  t.equal(zone.queries.filter((question) => question === 'MX silent.example').length, 2, 'both tries')
  t.match(await resolver.addresses('circle.example', 4), { kind: 'no-record' })
  t.match(await resolver.mx('odd.example'), { records: [{ exchange: 'bad\\032host\\033.example' }] })
  t.same(await resolver.mx('not a name'), { kind: 'no-name' })
  t.match(await ask('127.0.0.1:9', 300, 1).mx('example.com'), { kind: 'no-answer' }, 'nobody is there')
  const broadcast = { kind: 'no-answer', reason: /EACCES/ }
  t.match(await ask('127.255.255.255:9').mx('example.com'), broadcast, 'what no socket may connect to')
})

t.test('a lookup has one time for all that it asks', async (t) => {
  const server = createSocket('udp4')
  t.teardown(() => void server.close())
  let asked = 0
  // Silent, then SERVFAIL, then silent: the second question without validation would come behind the end.
  server.on('message', (message, { port, address }) => {
    asked += 1
    if (asked !== 2) return
    message.writeUInt16BE(SERVFAIL, 2)
    server.send(message, port, address)
  })
  server.bind(0, '127.0.0.1')
  await once(server, 'listening')
  const answer = await ask(`127.0.0.1:${server.address().port}`, 400, 2).mx('example.com')
  t.same(answer, { kind: 'no-answer', reason: 'MX example.com: SERVFAIL' })
  t.equal(asked, 3)
})

t.test('what does not answer this question is passed over', async (t) => {
  const liar = createSocket('udp4')
  liar.bind(0, '127.0.0.1')
  await once(liar, 'listening')
  t.teardown(() => liar.close())
  liar.on('message', (question, { port, address }) => {
    const send = (change: (bytes: Buffer) => void): void => {
      const bytes = Buffer.from(question)
      bytes.writeUInt16BE(0x8180, 2)
      bytes.writeUInt16BE(0, 10)
      change(bytes)
      liar.send(bytes, port, address)
    }
    send((bytes) => bytes.writeUInt16BE((bytes.readUInt16BE(0) + 1) & 0xffff, 0)) // another id
    send((bytes) => bytes.write('evil', 13, 'latin1')) // another name
    send((bytes) => bytes.writeUInt16BE(0, 2)) // no response
    liar.send(Buffer.alloc(5), port, address)
    send((bytes) => bytes.writeUInt16BE(0x8183, 2)) // the right one: NXDOMAIN
  })
  const { port } = liar.address()
  t.match(await ask(`127.0.0.1:${port}`).mx('good.example'), { kind: 'no-name' })
})

t.test('no bytes make the reader throw or run on', (t) => {
  const question = writeQuestion({ id: 7, name: 'a.example', type: 'MX', isCheckingDisabled: false })
  const response = Buffer.from(question)
  response.writeUInt16BE(0x8180, 2)
  response.writeUInt16BE(0, 10)
  t.match(readAnswer(response), { id: 7, code: 0, question: { name: 'a.example', type: 15 }, answers: [] })
  t.equal(readAnswer(question), undefined, 'a question is no answer')

  const pointing = Buffer.from(response)
  pointing.writeUInt16BE(0xc00c, 12) // a name that points at itself
  t.equal(readAnswer(pointing), undefined)
  const chained = Buffer.alloc(500)
  for (let at = 2; at < chained.length; at += 2) chained.writeUInt16BE(0xc000 + at - 2, at) // each at the one before
  t.same(readName(chained, 256), { name: '', end: 258 }, '128 pointers')
  t.throws(() => readName(chained, 258), RangeError, 'and no more')
  const many = Buffer.from(response)
  many.writeUInt16BE(0xffff, 6) // more records than there are bytes
  t.equal(readAnswer(many), undefined)

  let seed = 1
  const random = (below: number): number => {
    seed = (seed * 48_271) % 2_147_483_647
    return seed % below
  }
  for (let round = 0; round < 20_000; round++) {
    const bytes = Buffer.concat([response, Buffer.alloc(random(60))])
    for (let change = 0; change < 12; change++) bytes.writeUInt8(random(256), random(bytes.length))
    bytes.writeUInt8(bytes.readUInt8(2) | 0x80, 2)
    readAnswer(bytes)
  }
  t.end()
})

t.test('real times rule the cache, and no old TLSA set stands in for a validation that fails', async (t) => {
  const clock = manualClock()
  let asked = 0
  let isDown = false
  const facts = { isSecure: true, ttlMilliseconds: 2 * MINUTE, canonicalName: 'a' }
  const answer = async <Item>(records: Item[]): Promise<DnsAnswer<Item>> => {
    asked += 1
    return isDown ? { kind: 'no-answer', reason: 'down' } : { kind: 'found', records, facts }
  }
  const resolver: ValidatingResolver = {
    mx: () => answer([]),
    addresses: () => answer(['192.0.2.1']),
    txt: () => answer([]),
    cname: () => answer([]),
    ptr: () => answer([]),
    tlsa: () => answer([{ usage: 3, selector: 1, matching: 1, data: HASH }]),
  }
  const cache = { entries: 10, min_ttl: 30 * SECOND, max_ttl: HOUR, negative_ttl: MINUTE, stale: HOUR }
  const cached = withFront(resolver, createDnsCache({ cache, clock }))
  await cached.tlsa('a')
  await cached.addresses('a', 4)
  await clock.advance(2 * MINUTE - 1)
  t.match(await cached.tlsa('a'), { kind: 'found' })
  t.equal(asked, 2)
  await clock.advance(1)
  isDown = true
  t.match(await cached.tlsa('a'), { kind: 'no-answer' })
  t.match(await cached.addresses('a', 4), { kind: 'found', facts: { isSecure: true } }, 'an address serves on')
})
