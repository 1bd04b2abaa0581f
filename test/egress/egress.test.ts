/**
 * Pools and the choice of an IP: which pool, which states, which IP, and what moves when the set changes.
 */
import fc from 'fast-check'
import t from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import type { PoolSettings } from '../../src/config/pool-settings.ts'
import { chooseIp } from '../../src/egress/choose-ip.ts'
import type { WeightedIp } from '../../src/egress/choose-ip.ts'
import { createEgress } from '../../src/egress/pool.ts'
import type { Egress, IpRequest } from '../../src/egress/pool.ts'
import { canBind } from '../../src/network/local-addresses.ts'

type OnePool = PoolSettings['pools'][string]
type OneIp = OnePool['ips'][number]

const ip = (address: string, changes: Partial<OneIp> = {}): OneIp => ({
  address, source: address, hostname: `mta-${address}.example`, weight: 100, enabled: true, warmed: true, curve: null,
  ...changes,
})

const pool = (ips: OneIp[], changes: Partial<OnePool> = {}): OnePool => ({
  description: '', overflow: 'spill', overflow_pool: null, max_defer: 86_400_000, require_warmup: true,
  connections_max: null, rate: null, limits: {}, ipv6: null, ips, ...changes,
})

const settings = (pools: Record<string, OnePool>, changes: Partial<PoolSettings> = {}): PoolSettings => ({
  version: 1, default_pool: 'default', warmup_streams: ['transactional', 'bulk'], affinity: 'message',
  // As it comes from the configuration: a pool may be called `constructor`.
  pools: Object.assign(Object.create(null), pools), ...changes,
})

const egressFor = (pools: PoolSettings, bindable: (address: string) => boolean = () => true): Egress =>
  createEgress({ pools, canBind: async (address) => bindable(address), logger: createLogger({ level: 'silent' }) })

const request = (changes: Partial<IpRequest> = {}): IpRequest => ({
  pool: 'default', messageId: 'msg_1', recipientDomain: 'example.com', stickyIp: null, families: [4, 6], ...changes,
})

const states = (egress: Egress): Record<string, string> =>
  Object.fromEntries(egress.ips().map(({ address, state, reason }) => [address, reason ?? state]))

/** The addresses that messages 0 to `count` get. */
function chosen(egress: Egress, count: number, changes: Partial<IpRequest> = {}): (string | undefined)[] {
  return Array.from({ length: count }, (_, index) =>
    egress.choose(request({ messageId: `msg_${index}`, ...changes }))?.address,
  )
}

t.test('states follow the configuration and the machine', async (t) => {
  const egress = egressFor(
    settings({
      default: pool([
        ip('127.0.0.11'),
        ip('127.0.0.12', { warmed: false }),
        ip('127.0.0.13', { enabled: false }),
        ip('127.0.0.14'),
        ip('203.0.113.15', { source: '127.0.0.15' }),
      ]),
      lenient: pool([ip('127.0.0.21', { warmed: false })], { require_warmup: false }),
    }),
    (address) => address !== '127.0.0.14' && address !== '203.0.113.15',
  )
  await egress.start()
  t.same(states(egress), {
    '127.0.0.11': 'warmed',
    '127.0.0.12': 'cold',
    '127.0.0.13': 'disabled in pools.yaml',
    '127.0.0.14': 'unplumbed',
    '203.0.113.15': 'warmed',
    '127.0.0.21': 'warmed',
  })
  t.same(egress.ips().find(({ address }) => address === '203.0.113.15'), {
    address: '203.0.113.15', source: '127.0.0.15', hostname: 'mta-203.0.113.15.example', weight: 100, pool: 'default',
    state: 'warmed', reason: null,
  })
})

t.test('the bind test knows what this machine has', async (t) => {
  for (const address of ['127.0.0.1', '127.0.0.11']) t.equal(await canBind(address), true, address)
  const missing = ['192.0.2.1', '2001:db8::1', 'localhost', '', 'not an address', '127.1', '::1%lo', '127.0.0.1:25']
  for (const address of missing) t.equal(await canBind(address), false, JSON.stringify(address))
})

t.test('a message uses the pool of its domain, and the default pool when that is gone', async (t) => {
  const egress = egressFor(settings({ default: pool([ip('127.0.0.11')]), bulk: pool([ip('127.0.0.12')]) }))
  const cases: [string | null, string][] = [
    ['bulk', 'bulk'], ['default', 'default'], [null, 'default'], ['gone', 'default'], ['', 'default'],
    ['constructor', 'default'], ['__proto__', 'default'],
  ]
  for (const [given, expected] of cases) t.equal(egress.poolFor(given), expected, String(given))
  t.same(egress.poolNames(), ['default', 'bulk'])
})

t.test('only warmed IPs send, of the own pool before the overflow pool', async (t) => {
  const spare = pool([ip('127.0.0.21'), ip('127.0.0.22', { warmed: false })])
  const own = [ip('127.0.0.11'), ip('127.0.0.12', { warmed: false }), ip('127.0.0.13', { enabled: false })]
  const spill = egressFor(settings({ default: pool(own, { overflow_pool: 'spare' }), spare }))
  t.same(new Set(chosen(spill, 50)), new Set(['127.0.0.11']))
  spill.disable('127.0.0.11', 'EADDRNOTAVAIL')
  t.same(new Set(chosen(spill, 50)), new Set(['127.0.0.21']))
  t.equal(states(spill)['127.0.0.11'], 'EADDRNOTAVAIL')
  spill.disable('127.0.0.21', 'EADDRNOTAVAIL')
  t.same(new Set(chosen(spill, 50)), new Set([undefined]), 'never another source')
  for (const overflow of ['defer', 'reject'] as const) {
    const egress = egressFor(settings({ default: pool(own, { overflow, overflow_pool: 'spare' }), spare }))
    egress.disable('127.0.0.11', 'EADDRNOTAVAIL')
    t.equal(egress.choose(request()), undefined, overflow)
  }
  t.equal(spill.choose(request({ pool: 'gone' })), undefined)
})

t.test('weight 0 is used only when no other IP of the pool can send', async (t) => {
  const egress = egressFor(
    settings({
      default: pool(
        [ip('127.0.0.11', { weight: 0 }), ip('127.0.0.12', { weight: 0 }), ip('127.0.0.13', { weight: 1 })],
        { overflow_pool: 'spare' },
      ),
      spare: pool([ip('127.0.0.21')]),
    }),
  )
  t.same(new Set(chosen(egress, 100)), new Set(['127.0.0.13']))
  egress.disable('127.0.0.13', 'test')
  t.same(new Set(chosen(egress, 100)), new Set(['127.0.0.11', '127.0.0.12']))
})

t.test('a message keeps its IP while that can send and belongs to its pools', async (t) => {
  const egress = egressFor(
    settings({
      default: pool([ip('127.0.0.11'), ip('127.0.0.12')], { overflow_pool: 'spare' }),
      spare: pool([ip('127.0.0.21')]),
      other: pool([ip('127.0.0.31')]),
    }),
  )
  for (const stickyIp of ['127.0.0.11', '127.0.0.12', '127.0.0.21']) {
    t.same(new Set(chosen(egress, 50, { stickyIp })), new Set([stickyIp]))
  }
  const free = chosen(egress, 50)
  t.same(chosen(egress, 50, { stickyIp: '127.0.0.31' }), free, 'an IP of another pool is not kept')
  t.same(chosen(egress, 50, { stickyIp: '192.0.2.1' }), free, 'nor one that is gone')
  egress.disable('127.0.0.12', 'test')
  t.same(new Set(chosen(egress, 50, { stickyIp: '127.0.0.12' })), new Set(['127.0.0.11']), 'nor a disabled one')
})

t.test('an IP reaches hosts of its own family only', async (t) => {
  const egress = egressFor(
    settings({
      default: pool([ip('127.0.0.11')], { overflow_pool: 'spare' }),
      spare: pool([ip('::1'), ip('203.0.113.9', { source: '10.0.0.9' })]),
    }),
  )
  const cases: [(4 | 6)[], string | undefined][] = [
    [[4], '127.0.0.11'], [[6], '::1'], [[4, 6], '127.0.0.11'], [[], undefined],
  ]
  for (const [families, expected] of cases) t.equal(egress.choose(request({ families }))?.address, expected)
  t.equal(egress.choose(request({ families: [6], stickyIp: '127.0.0.11' }))?.address, '::1')
})

t.test('a refusal names each IP and what to do', async (t) => {
  const egress = egressFor(
    settings({
      default: pool([ip('127.0.0.11')]),
      cold: pool(
        [ip('127.0.0.12', { warmed: false }), ip('127.0.0.13', { enabled: false })],
        { overflow_pool: 'cold2' },
      ),
      cold2: pool([ip('127.0.0.14', { warmed: false })]),
      off: pool([ip('127.0.0.15', { enabled: false }), ip('127.0.0.16')]),
      spilling: pool([ip('127.0.0.17', { warmed: false })], { overflow_pool: 'default' }),
      empty: pool([]),
    }),
    (address) => address !== '127.0.0.16',
  )
  await egress.start()
  t.equal(egress.refusal('default'), undefined)
  t.equal(egress.refusal('spilling'), undefined)
  const cold = egress.refusal('cold')
  t.equal(cold?.code, 'ip_not_warmed')
  t.match(cold?.details, '127.0.0.12, 127.0.0.14 (pool cold2)')
  t.match(cold?.details, '"warmed: true" in pools.yaml')
  t.match(cold?.details, 'Start its warmup')
  t.same(egress.refusal('off'), {
    code: 'unavailable',
    details: 'pool off: no IP can send: 127.0.0.15 (disabled in pools.yaml), 127.0.0.16 (unplumbed)',
  })
  t.same(egress.refusal('empty'), { code: 'unavailable', details: 'pool empty: no IP can send: it has none' })
  t.match(egress.refusal('gone'), { code: 'unavailable' })
  t.same(egress.sendingPools(), ['default', 'spilling'])
})

t.test('disabling is logged once', async (t) => {
  const lines: string[] = []
  const logger = createLogger({ level: 'info', write: (line) => void lines.push(line) })
  const pools = settings({ default: pool([ip('127.0.0.11')]) })
  const egress = createEgress({ pools, canBind: async () => true, logger })
  egress.disable('127.0.0.11', 'EADDRNOTAVAIL')
  egress.disable('127.0.0.11', 'EADDRNOTAVAIL')
  egress.disable('192.0.2.1', 'never ours')
  t.equal(lines.length, 1)
  t.match(lines[0], /"level":"warn".*"ip":"127\.0\.0\.11".*"reason":"EADDRNOTAVAIL".*"msg":"egress IP disabled"/)
})

t.test('affinity: by message, or by recipient domain', async (t) => {
  const ips = Array.from({ length: 8 }, (_, index) => ip(`127.0.1.${index}`))
  const byMessage = egressFor(settings({ default: pool(ips) }))
  t.ok(new Set(chosen(byMessage, 100)).size > 1)
  const byDomain = egressFor(settings({ default: pool(ips) }, { affinity: 'recipient_domain' }))
  t.equal(new Set(chosen(byDomain, 100)).size, 1)
  const domains = Array.from({ length: 100 }, (_, index) => byDomain.choose(request({ recipientDomain: `d${index}` })))
  t.ok(new Set(domains.map((found) => found?.address)).size > 1)
})

const HASHES = 20_000

t.test('each IP gets its share', async (t) => {
  const candidates = [
    { address: '192.0.2.1', weight: 100 }, { address: '192.0.2.2', weight: 100 }, { address: '192.0.2.3', weight: 300 },
    { address: '2001:db8::4', weight: 1000 }, { address: '192.0.2.5', weight: 0 },
  ]
  const counts = new Map<string, number>()
  for (let index = 0; index < HASHES; index++) {
    const address = chooseIp(`msg_${index}`, candidates)?.address ?? 'none'
    counts.set(address, (counts.get(address) ?? 0) + 1)
  }
  for (const { address, weight } of candidates) {
    const share = weight / 1500
    const got = (counts.get(address) ?? 0) / HASHES
    // Five standard deviations of a draw with this share.
    const tolerance = 5 * Math.sqrt((share * (1 - share)) / HASHES)
    t.ok(Math.abs(got - share) <= tolerance, `${address}: ${got} of ${share}`)
  }
})

t.test('the choice is the documented one, and does not change between versions', async (t) => {
  const candidates = [{ address: '192.0.2.1', weight: 100 }, { address: '192.0.2.2', weight: 100 }]
  // At equal weights the higher SHA-256 of `key‖address` wins; computed with another program.
  const expected: [string, string][] = [
    ['msg_0', '192.0.2.2'], ['msg_1', '192.0.2.2'], ['msg_2', '192.0.2.1'], ['msg_3', '192.0.2.1'],
  ]
  for (const [key, address] of expected) t.equal(chooseIp(key, candidates)?.address, address, key)
  t.equal(chooseIp('msg_0', []), undefined)
})

const ipSet = fc
  .uniqueArray(fc.tuple(fc.ipV4(), fc.integer({ min: 1, max: 1000 })), {
    selector: ([address]) => address, minLength: 2, maxLength: 12,
  })
  .map((pairs): WeightedIp[] => pairs.map(([address, weight]) => ({ address, weight })))

t.test('removing an IP moves only its messages, adding one takes only messages to itself', async () => {
  fc.assert(
    fc.property(ipSet, fc.nat(), fc.array(fc.string(), { minLength: 20, maxLength: 20 }), (ips, pick, keys) => {
      const removed = ips[pick % ips.length]
      const rest = ips.filter((candidate) => candidate !== removed)
      return keys.every((key) => {
        const before = chooseIp(key, ips)
        return before === removed || chooseIp(key, rest) === before
      })
    }),
  )
})

t.test('the order of the file and weight-0 IPs do not matter', async () => {
  fc.assert(
    fc.property(ipSet, fc.array(fc.string(), { minLength: 10, maxLength: 10 }), (ips, keys) =>
      keys.every((key) => {
        const address = chooseIp(key, ips)?.address
        const idle = ips.map((candidate, index) => ({ address: `2001:db8::${index}`, weight: 0 }))
        const others = [ips.toReversed(), [...idle, ...ips]]
        return others.every((candidates) => chooseIp(key, candidates)?.address === address)
      }),
    ),
  )
})

t.test('a higher weight never loses a message', async () => {
  fc.assert(
    fc.property(ipSet, fc.nat(), fc.array(fc.string(), { minLength: 20, maxLength: 20 }), (ips, pick, keys) => {
      const raised = ips.map((candidate, index) =>
        index === pick % ips.length ? { ...candidate, weight: candidate.weight + 500 } : candidate,
      )
      const favourite = raised[pick % ips.length]?.address
      return keys.every((key) => {
        const before = chooseIp(key, ips)?.address
        const after = chooseIp(key, raised)?.address
        return after === before || after === favourite
      })
    }),
  )
})
