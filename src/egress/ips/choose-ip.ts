/**
 * The stable choice among usable IPs: weighted rendezvous hashing (egress/README.md "Stable choice"). Each IP gets the
 * share of keys that its weight is of all weights. Pure.
 */
import { hash } from 'node:crypto'

/** The first 64 bits of a digest. */
export type Seed = Record<'high' | 'low', number>

/** `weight` 0: only when no other can. `seed`: `seedOf(address)`. */
export type WeightedIp = { address: string; weight: number; seed: Seed }

export function seedOf(text: string): Seed {
  // Half the cost of a buffer.
  const digest = hash('sha256', text, 'hex')
  return { high: parseInt(digest.slice(0, 8), 16), low: parseInt(digest.slice(8, 16), 16) }
}

/** The candidates by `−weight / ln(fraction)`, best first. Those of weight 0 follow behind all others. */
export function* inOrderOfScore<Ip extends WeightedIp>(key: Seed, candidates: readonly Ip[]): Generator<Ip> {
  const [first] = candidates
  // Among equal weights the fraction alone gives the same order, without 64 logarithms.
  const isEven = candidates.every(({ weight }) => weight === first?.weight)
  const scores = candidates.map(({ seed, weight }) => {
    const fraction = fractionOf(key, seed)
    return isEven ? fraction : -(weight > 0 ? weight : 1) / Math.log(fraction)
  })
  // Most callers take the first: picking the best of what is left costs less than sorting all.
  for (;;) {
    let best: Ip | undefined
    let bestAt = -1
    for (let at = 0; at < candidates.length; at += 1) {
      const ip = candidates[at]
      const score = scores[at]
      if (ip === undefined || score === undefined || score === TAKEN) continue
      if (best !== undefined && !isBetter(ip, score, best, scores[bestAt] ?? TAKEN)) continue
      best = ip
      bestAt = at
    }
    if (best === undefined) return
    scores[bestAt] = TAKEN
    yield best
  }
}

/** No score: all are above 0. */
const TAKEN = 0

function isBetter(one: WeightedIp, score: number, other: WeightedIp, otherScore: number): boolean {
  const isWeighted = one.weight > 0
  if (isWeighted !== other.weight > 0) return isWeighted
  // The order of the file never decides, not even between equal scores.
  return score > otherScore || (score === otherScore && one.address < other.address)
}

/** 52 bits of both mixed, as a fraction of 1; never 0, which has no logarithm. */
function fractionOf(key: Seed, seed: Seed): number {
  const high = mix(key.high ^ seed.high, seed.low)
  const low = mix(key.low ^ seed.low, high)
  return (high * 2 ** 20 + (low >>> 12) + 0.5) / 2 ** 52
}

/** The 32-bit finalizer of MurmurHash3 over both words: each bit of the input turns half of the output. */
function mix(first: number, second: number): number {
  return finalize(finalize(first) ^ second)
}

function finalize(word: number): number {
  let mixed = word ^ (word >>> 16)
  mixed = Math.imul(mixed, 0x85ebca6b)
  mixed ^= mixed >>> 13
  mixed = Math.imul(mixed, 0xc2b2ae35)
  return (mixed ^ (mixed >>> 16)) >>> 0
}
