/**
 * A cache to put in front of a resolver, by the table of network/README.md "Cache and resolver". One lookup per
 * question is under way at a time. The answers are shared: callers must not change them.
 */
import { MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { recentEntries } from '../base/recent-entries.ts'
import { normaliseDnsName } from './dns-resolver.ts'
import type { DnsAnswer, Front, QuestionType, RecordTypes } from './resolver.ts'

interface DnsCacheOptions {
  cache: DnsCacheSettings
  clock: Clock
  onHit?: () => void
}

/** `dns.cache` of sternpost.yaml: names, and times in milliseconds. */
export interface DnsCacheSettings {
  entries: number
  min_ttl: number
  max_ttl: number
  negative_ttl: number
  stale: number
}

/** network/README.md "Cache and resolver": sets without a TTL are kept 10 min. */
const POSITIVE_TTL = 10 * MINUTE
/** RFC 8767 §5, the failure recheck timer: else each lookup would first wait for dead servers. */
const ASK_AGAIN_AFTER_FAILURE = 30 * SECOND

interface Slot<Item> {
  kept?: { answer: DnsAnswer<Item>; bytes: number; askAgainAt: number; usableUntil: number }
  underWay?: Promise<DnsAnswer<Item>> | undefined
}

type NameSlots = { [Type in QuestionType]: Slot<RecordTypes[Type]> }

export function createDnsCache({ cache, clock, onHit }: DnsCacheOptions): Front {
  const names = recentEntries<string, NameSlots>(cache.entries, bytesOf)

  function slotsOf(name: string): NameSlots {
    const slots = names.get(name) ?? { MX: {}, A: {}, AAAA: {}, TXT: {}, CNAME: {}, PTR: {}, TLSA: {} }
    names.set(name, slots)
    return slots
  }

  async function renew<Item>(
    slot: Slot<Item>,
    ask: () => Promise<DnsAnswer<Item>>,
    stale: number,
  ): Promise<DnsAnswer<Item>> {
    const fresh = await ask()
    const now = clock.now()
    const { kept } = slot
    if (fresh.kind !== 'no-answer') {
      const isPositive = fresh.kind === 'found'
      const askAgainAt = now + ttlOf(fresh.facts?.ttlMilliseconds, isPositive, cache)
      // An old "no such name" must not count as a second confirmation of itself: negative answers never serve on.
      const usableUntil = isPositive ? askAgainAt + stale : askAgainAt
      slot.kept = { answer: fresh, bytes: JSON.stringify(fresh).length, askAgainAt, usableUntil }
      return fresh
    }
    if (kept === undefined || now >= kept.usableUntil) return fresh
    kept.askAgainAt = Math.min(now + ASK_AGAIN_AFTER_FAILURE, kept.usableUntil)
    return kept.answer
  }

  return async (type, askedName, ask) => {
    const name = normaliseDnsName(askedName)
    const slots = slotsOf(name)
    const slot: Slot<RecordTypes[typeof type]> = slots[type]
    if (slot.kept !== undefined && clock.now() < slot.kept.askAgainAt) {
      onHit?.()
      return slot.kept.answer
    }
    slot.underWay ??= renew(slot, ask, type === 'TLSA' ? 0 : cache.stale).finally(() => {
      slot.underWay = undefined
      // Another object, so that it is measured anew.
      names.set(name, { ...slots })
    })
    return slot.underWay
  }
}

function bytesOf(slots: NameSlots): number {
  return Object.values(slots).reduce((bytes, { kept }) => bytes + (kept?.bytes ?? 0), 0)
}

function ttlOf(ttl: number | undefined, isPositive: boolean, cache: DnsCacheSettings): number {
  const known = ttl ?? (isPositive ? POSITIVE_TTL : Infinity)
  return Math.min(Math.max(known, cache.min_ttl), isPositive ? cache.max_ttl : cache.negative_ttl)
}
