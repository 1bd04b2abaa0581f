/**
 * The stable choice among usable IPs: weighted rendezvous hashing (engine.md 5.3).
 *
 * Pure. The same key gives the same IP as long as it is a candidate, so a message that waits keeps its IP; adding or
 * removing one moves only the messages of that IP. Each IP gets the share of keys that its weight is of all weights.
 */
import { hash } from 'node:crypto'

export interface WeightedIp {
  address: string
  /** 0 to 1000; 0: only when no other can. */
  weight: number
}

/** The candidate with the highest score; undefined when there is none. */
export function chooseIp<Ip extends WeightedIp>(affinityKey: string, candidates: readonly Ip[]): Ip | undefined {
  const weighted = candidates.filter(({ weight }) => weight > 0)
  let best: { ip: Ip; score: number } | undefined
  for (const ip of weighted.length > 0 ? weighted : candidates) {
    const score = scoreOf(affinityKey, ip.address, ip.weight > 0 ? ip.weight : 1)
    // The order of the file never decides, not even between equal scores.
    const isBetter = best === undefined || score > best.score || (score === best.score && ip.address < best.ip.address)
    if (isBetter) best = { ip, score }
  }
  return best?.ip
}

/** `−weight / ln(h)`, h being the first 52 bits of SHA-256(affinity key ‖ ip) as a fraction of 1. */
function scoreOf(affinityKey: string, address: string, weight: number): number {
  const digest = hash('sha256', affinityKey + address, 'buffer')
  const fraction = (digest.readUInt32BE(0) * 2 ** 20 + (digest.readUInt32BE(4) >>> 12)) / 2 ** 52
  return -weight / Math.log(fraction)
}
