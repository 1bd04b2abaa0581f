/**
 * A cache in front of a resolver, by the table of network/README.md "Cache and resolver".
 *
 * One lookup per question is under way at a time. The answers are shared: callers must not change them. Bounded by
 * names, the least used one goes first.
 */
import { MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { recentEntries } from '../base/recent-entries.ts'
import { normaliseDnsName } from './dns-resolver.ts'
import type { DnsAnswer, MxRecord, Resolver, ValidatingResolver } from './resolver.ts'
import type { TlsaRecord } from './tlsa.ts'

/** `dns.cache` of sternpost.yaml; times in milliseconds. */
export interface DnsCacheSettings {
  /** Names. */
  entries: number
  min_ttl: number
  max_ttl: number
  negative_ttl: number
  stale: number
}

interface CachedResolverOptions<Source extends Resolver = Resolver> {
  resolver: Source
  cache: DnsCacheSettings
  clock: Clock
  /** An answer came from memory. */
  onHit?: () => void
}

/** network/README.md "Cache and resolver": sets without a TTL are kept 10 min. */
const POSITIVE_TTL = 10 * MINUTE
/** RFC 8767 §5, the failure recheck timer: else each lookup would first wait for dead servers. */
const ASK_AGAIN_AFTER_FAILURE = 30 * SECOND

interface Slot<Item> {
  kept: { answer: DnsAnswer<Item>; askAgainAt: number; usableUntil: number } | undefined
  underWay: Promise<DnsAnswer<Item>> | undefined
}

/** What is known of one name, by type. */
interface NameSlots {
  mx: Slot<MxRecord>
  ipv4: Slot<string>
  ipv6: Slot<string>
  txt: Slot<string>
  cname: Slot<string>
  ptr: Slot<string>
  tlsa: Slot<TlsaRecord>
}

interface Cache {
  slotsOf(askedName: string): NameSlots
  answer<Item>(slot: Slot<Item>, ask: () => Promise<DnsAnswer<Item>>, stale?: number): Promise<DnsAnswer<Item>>
}

export function createCachedResolver(options: CachedResolverOptions): Resolver {
  return cachedQuestions(options.resolver, createCache(options))
}

/** The same in front of one that validates. */
export function createCachedValidatingResolver(options: CachedResolverOptions<ValidatingResolver>): ValidatingResolver {
  const { resolver } = options
  const cache = createCache(options)
  return {
    ...cachedQuestions(resolver, cache),
    tlsa: (name) => cache.answer(cache.slotsOf(name).tlsa, () => resolver.tlsa(name), 0),
  }
}

function cachedQuestions(resolver: Resolver, { slotsOf, answer }: Cache): Resolver {
  return {
    mx: (name) => answer(slotsOf(name).mx, () => resolver.mx(name)),
    addresses: (name, family) =>
      answer(family === 4 ? slotsOf(name).ipv4 : slotsOf(name).ipv6, () => resolver.addresses(name, family)),
    txt: (name) => answer(slotsOf(name).txt, () => resolver.txt(name)),
    cname: (name) => answer(slotsOf(name).cname, () => resolver.cname(name)),
    ptr: (name) => answer(slotsOf(name).ptr, () => resolver.ptr(name)),
  }
}

function createCache({ cache, clock, onHit }: CachedResolverOptions): Cache {
  const names = recentEntries<string, NameSlots>(cache.entries)

  const slotsOf = (askedName: string): NameSlots => {
    const name = normaliseDnsName(askedName)
    const known = names.get(name)
    if (known !== undefined) return known
    const slots = {
      mx: emptySlot(),
      ipv4: emptySlot(),
      ipv6: emptySlot(),
      txt: emptySlot(),
      cname: emptySlot(),
      ptr: emptySlot(),
      tlsa: emptySlot(),
    }
    names.set(name, slots)
    return slots
  }

  async function answer<Item>(
    slot: Slot<Item>,
    ask: () => Promise<DnsAnswer<Item>>,
    stale: number = cache.stale,
  ): Promise<DnsAnswer<Item>> {
    if (slot.kept !== undefined && clock.now() < slot.kept.askAgainAt) {
      onHit?.()
      return slot.kept.answer
    }
    slot.underWay ??= renew(slot, ask, stale).finally(() => {
      slot.underWay = undefined
    })
    return slot.underWay
  }

  async function renew<Item>(
    slot: Slot<Item>,
    ask: () => Promise<DnsAnswer<Item>>,
    stale: number,
  ): Promise<DnsAnswer<Item>> {
    const fresh = await ask()
    const now = clock.now()
    if (fresh.kind !== 'no-answer') {
      const isPositive = fresh.kind === 'found'
      const ttl = fresh.facts?.ttlMilliseconds
      const askAgainAt = now + (isPositive ? positiveTtl(ttl) : negativeTtl(ttl))
      // An old "no such name" must not count as a second confirmation of itself: negative answers never serve on.
      slot.kept = { answer: fresh, askAgainAt, usableUntil: isPositive ? askAgainAt + stale : askAgainAt }
      return fresh
    }
    const { kept } = slot
    if (kept === undefined || now >= kept.usableUntil) return fresh
    kept.askAgainAt = Math.min(now + ASK_AGAIN_AFTER_FAILURE, kept.usableUntil)
    return kept.answer
  }

  function positiveTtl(ttl: number = POSITIVE_TTL): number {
    return Math.min(Math.max(ttl, cache.min_ttl), cache.max_ttl)
  }

  function negativeTtl(ttl: number = Infinity): number {
    return Math.min(Math.max(ttl, cache.min_ttl), cache.negative_ttl)
  }

  return { slotsOf, answer }
}

function emptySlot(): { kept: undefined; underWay: undefined } {
  return { kept: undefined, underWay: undefined }
}
