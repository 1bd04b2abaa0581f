/**
 * The stable choice: shares by weight, and what moves when the set of IPs changes.
 */
import fc from 'fast-check'
import t from 'tap'
import { inOrderOfScore, seedOf, type WeightedIp } from '../../src/egress/ips/choose-ip.ts'

const candidate = (address: string, weight: number): WeightedIp => ({ address, weight, seed: seedOf(address) })

const inOrder = (key: string, candidates: readonly WeightedIp[]): string[] =>
  [...inOrderOfScore(seedOf(key), candidates)].map(({ address }) => address)
const first = (key: string, candidates: readonly WeightedIp[]): string | undefined => inOrder(key, candidates)[0]

const KEYS = 20_000

t.test('each IP gets its share, as first and as second', async (t) => {
  const candidates = [
    candidate('192.0.2.1', 100),
    candidate('192.0.2.2', 100),
    candidate('192.0.2.3', 300),
    candidate('2001:db8::4', 1_000),
    candidate('192.0.2.5', 0),
  ]
  const counts = new Map<string, number>()
  for (let index = 0; index < KEYS; index++) {
    const address = first(`msg_${index}`, candidates) ?? 'none'
    counts.set(address, (counts.get(address) ?? 0) + 1)
  }
  for (const { address, weight } of candidates) {
    const share = weight / 1_500
    const got = (counts.get(address) ?? 0) / KEYS
    // Five standard deviations of a draw with this share.
    const tolerance = 5 * Math.sqrt((share * (1 - share)) / KEYS)
    t.ok(Math.abs(got - share) <= tolerance, `${address}: ${got} of ${share}`)
  }
  t.equal(inOrder('msg_0', candidates).at(-1), '192.0.2.5', 'weight 0 comes last')
  t.same(inOrder('msg_0', []), [])
})

t.test('keys that follow each other are as evenly spread, over 64 IPs', async (t) => {
  const candidates = Array.from({ length: 64 }, (_, index) => candidate(`198.51.100.${index}`, 100))
  const counts = new Map<string, number>()
  for (let index = 0; index < KEYS; index++) {
    const address = first(`msg_01kapg6t3vq8x2m5r7w9y${String(index).padStart(5, '0')}`, candidates) ?? 'none'
    counts.set(address, (counts.get(address) ?? 0) + 1)
  }
  const expected = KEYS / 64
  const distance = [...counts.values()].reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0)
  t.equal(counts.size, 64)
  // Chi square with 63 degrees of freedom: above 130 once in a million.
  t.ok(distance < 130, `chi square ${distance}`)
})

t.test('the choice does not change between versions', async (t) => {
  const candidates = ['192.0.2.1', '192.0.2.2', '192.0.2.3'].map((address) => candidate(address, 100))
  const expected: [string, string[]][] = [
    ['msg_0', ['192.0.2.3', '192.0.2.2', '192.0.2.1']],
    ['msg_1', ['192.0.2.1', '192.0.2.2', '192.0.2.3']],
    ['msg_2', ['192.0.2.1', '192.0.2.3', '192.0.2.2']],
  ]
  for (const [key, order] of expected) t.same(inOrder(key, candidates), order, key)
})

const ipSet = fc
  .uniqueArray(fc.tuple(fc.ipV4(), fc.integer({ min: 1, max: 1_000 })), {
    selector: ([address]) => address,
    minLength: 2,
    maxLength: 12,
  })
  .map((pairs) => pairs.map(([address, weight]) => candidate(address, weight)))
const keys = fc.array(fc.string(), { minLength: 20, maxLength: 20 })

t.test('removing an IP leaves the order of the others: only its messages move', async () => {
  fc.assert(
    fc.property(ipSet, fc.nat(), keys, (ips, pick, some) => {
      const removed = ips[pick % ips.length]
      const rest = ips.filter((ip) => ip !== removed)
      return some.every((key) => {
        const expected = inOrder(key, ips).filter((address) => address !== removed?.address)
        return inOrder(key, rest).join() === expected.join()
      })
    }),
  )
})

t.test('the order of the file and weight-0 IPs do not matter', async () => {
  fc.assert(
    fc.property(ipSet, keys, (ips, some) =>
      some.every((key) => {
        const address = first(key, ips)
        const idle = ips.map((_, index) => candidate(`2001:db8::${index}`, 0))
        return [ips.toReversed(), [...idle, ...ips]].every((candidates) => first(key, candidates) === address)
      }),
    ),
  )
})

t.test('a higher weight never loses a message', async () => {
  fc.assert(
    fc.property(ipSet, fc.nat(), keys, (ips, pick, some) => {
      const raised = ips.map((ip, index) => (index === pick % ips.length ? { ...ip, weight: ip.weight + 500 } : ip))
      const favourite = raised[pick % ips.length]?.address
      return some.every((key) => {
        const after = first(key, raised)
        return after === first(key, ips) || after === favourite
      })
    }),
  )
})
