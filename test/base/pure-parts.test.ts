/** Identifiers, addresses, keys, limits, errors and log lines. */
import { spawnSync } from 'node:child_process'
import fc from 'fast-check'
import t from 'tap'
import { toUnixSeconds } from '../../src/base/clock.ts'
import { ServiceError, errorCode } from '../../src/base/errors.ts'
import { identifierFromBytes, identifierToBytes, newIdentifier } from '../../src/base/identifier.ts'
import { canonicalIp, clientKey, ipFamily, isCidr, isInNetwork, isPublicUnicast } from '../../src/base/ip-address.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { createKeyedLimit } from '../../src/base/keyed-limit.ts'
import { createLogger } from '../../src/base/logger.ts'
import { shareOfMemory } from '../../src/base/share-of-memory.ts'

t.test('identifiers have the documented form and sort by time', async (t) => {
  const earlier = newIdentifier('msg', 1_795_219_200_000)
  const later = newIdentifier('msg', 1_795_219_200_001)
  t.match(earlier, /^msg_[0-9a-hjkmnp-tv-z]{26}$/)
  t.ok(earlier < later, 'later identifiers sort behind')
  t.not(newIdentifier('msg', 0), newIdentifier('msg', 0), 'the same moment gives different ones')
})

t.test('identifiers and their bytes are the same thing', async (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), (bytes) => {
      const text = identifierFromBytes('evt', bytes)
      return identifierToBytes('evt', text)?.equals(bytes) === true
    }),
  )
  const good = newIdentifier('msg', 1)
  for (const bad of [
    '',
    'msg_',
    good.toUpperCase(),
    `${good}0`,
    good.slice(0, -1),
    good.replace('msg', 'evt'),
    `msg_8${good.slice(5)}`,
    `msg_${'u'.repeat(26)}`,
  ]) {
    t.equal(identifierToBytes('msg', bad), undefined, bad)
  }
})

t.test('addresses are read in their two plain notations only', async (t) => {
  t.equal(canonicalIp('2001:DB8::1'), '2001:db8::1')
  t.equal(canonicalIp('2001:db8:0::1'), '2001:db8::1')
  t.equal(canonicalIp('::ffff:10.0.0.1'), '10.0.0.1')
  t.equal(ipFamily('127.0.0.1'), 4)
  t.equal(ipFamily('::1'), 6)
  for (const bad of ['', 'localhost', '127.1', '0x7f000001', '2130706433', '0177.0.0.1', '1.2.3.256', 'fe80::1%eth0']) {
    t.equal(canonicalIp(bad), undefined, bad)
  }
})

t.test('limits count all of a /64 of IPv6 as one client, and each address of IPv4', async (t) => {
  t.equal(clientKey('2001:db8:1:2::1'), clientKey('2001:DB8:1:2:ffff:1:2:3'))
  t.not(clientKey('2001:db8:1:2::1'), clientKey('2001:db8:1:3::1'))
  t.same(['192.0.2.1', '::ffff:192.0.2.1', '192.0.2.2', ''].map(clientKey), ['192.0.2.1', '192.0.2.1', '192.0.2.2', ''])
})

t.test('only global unicast is public', async (t) => {
  for (const address of ['9.9.9.9', '2620:fe::fe']) t.ok(isPublicUnicast(address), address)
  for (const address of [
    '127.0.0.1',
    '10.1.2.3',
    '100.64.0.1',
    '169.254.169.254',
    '192.0.2.1',
    '198.18.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '0.0.0.0',
    '::',
    '::1',
    '::ffff:127.0.0.1',
    '64:ff9b::1',
    '2001:db8::1',
    '2002::1',
    'fc00::1',
    'fe80::1',
    'ff02::1',
    'no address',
  ]) {
    t.notOk(isPublicUnicast(address), address)
  }
})

t.test('network membership', async (t) => {
  t.ok(isInNetwork('10.1.2.3', '10.0.0.0/8'))
  t.ok(isInNetwork('::ffff:10.1.2.3', '10.0.0.0/8'), 'a mapped address is the IPv4 one')
  t.ok(isInNetwork('10.1.2.3', '10.1.2.3'), 'a single address is a network')
  t.notOk(isInNetwork('11.1.2.3', '10.0.0.0/8'))
  t.notOk(isInNetwork('2001:db8::1', '10.0.0.0/8'))
  t.ok(isCidr('2001:db8::/32'))
  t.notOk(isCidr('10.0.0.0/33'))
  const misleading = ['10/8', '010.0.0.0/8', '0x0a.0.0.0/8', '::ffff:10.0.0.0/8', '::ffff:10.0.0.0/104', 'fe80::1%a/64']
  for (const text of misleading) {
    t.notOk(isCidr(text), `${text} reads as another network than it looks`)
    t.notOk(isInNetwork('::1', text))
  }
})

t.test('each purpose has its own key, and a sealed secret opens only in its place', async (t) => {
  const ring = createKeyRing(Buffer.alloc(32, 1))
  t.notOk(ring.key('bounce').equals(ring.key('complaint')))
  t.ok(ring.key('bounce').equals(createKeyRing(Buffer.alloc(32, 1)).key('bounce')), 'the same after a restart')
  const sealed = ring.seal('secret', 'row 1')
  t.equal(ring.open(sealed, 'row 1'), 'secret')
  t.notOk(sealed.includes('secret'))
  t.throws(() => ring.open(sealed, 'row 2'))
  t.throws(() => createKeyRing(Buffer.alloc(32, 2)).open(sealed, 'row 1'))
  const flipped = Buffer.from(sealed)
  flipped.writeUInt8(flipped.readUInt8(14) ^ 1, 14)
  t.throws(() => ring.open(flipped, 'row 1'))
  t.throws(() => createKeyRing(Buffer.alloc(31)))
})

t.test('a keyed limit counts each key apart', async (t) => {
  const limit = createKeyedLimit(2)
  limit.take('a')
  limit.take('a')
  t.equal(limit.free('a'), 0)
  t.equal(limit.free('b'), 2)
  limit.release('a')
  t.equal(limit.free('a'), 1)
})

t.test('a service error keeps its parts', async (t) => {
  const error = new ServiceError('conflict', 'why', { headers: { 'Retry-After': '1' } })
  t.match(error, { code: 'conflict', details: 'why', headers: { 'Retry-After': '1' } })
  t.equal(errorCode({ code: 'EACCES' }), 'EACCES')
  t.equal(errorCode('EACCES'), '')
  t.equal(toUnixSeconds(1_999), 1)
})

t.test('one fact is one line, and secrets do not get into it', async (t) => {
  const lines: string[] = []
  const logger = createLogger({ level: 'info', write: (line) => lines.push(line) }).child({ part: 'test' })
  logger.info({ reply: 'a\r\nb\u001b[0m', secret: 'hidden-1', webhook: { secret: 'hidden-2' } }, 'message deferred')
  logger.debug('not shown')
  t.equal(lines.length, 1)
  t.equal(lines[0]?.trimEnd().split('\n').length, 1)
  t.notMatch(lines[0], /hidden/)
  t.notOk(lines[0]?.includes('\u001b'))
  t.match(JSON.parse(lines[0] ?? ''), {
    level: 'info',
    part: 'test',
    msg: 'message deferred',
    reply: 'a\r\nb\u001b[0m',
  })
})

/** More than is written at once, and less than a pipe holds whose reader is slow: what it has no room for may be lost. */
const MOST = 1_200

t.test('standard output gets every line in order, however the process ends', async (t) => {
  const logger = JSON.stringify(new URL('../../src/base/logger.ts', import.meta.url))
  const endings: [how: string, statement: string, code: number][] = [
    ['by itself', '', 0],
    ['by process.exit', 'process.exit(3)', 3],
    ['by an error', 'throw new Error("fatal")', 1],
  ]
  for (const [how, statement, code] of endings) {
    const program = `
      import { createLogger } from ${logger}
      const logger = createLogger({ level: 'info' })
      for (let count = 0; count < ${MOST - 1}; count++) logger.info({ count }, 'one of many')
      await new Promise(setImmediate)
      logger.info({ count: ${MOST - 1} }, 'the last')
      ${statement}`
    const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', program], {
      encoding: 'utf8',
      maxBuffer: 2 ** 24,
    })
    const counts = stdout
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { count: number }).count)
    t.strictSame(
      counts,
      Array.from({ length: MOST }, (_, index) => index),
      `ended ${how}`,
    )
    t.equal(status, code)
  }
})

t.test('one use has an eighth of a small memory, and what it wants of a large one', async (t) => {
  t.equal(shareOfMemory(96, 800), 96)
  t.equal(shareOfMemory(96, 300), 37)
  t.equal(shareOfMemory(1), 1, 'this machine has as much')
})
