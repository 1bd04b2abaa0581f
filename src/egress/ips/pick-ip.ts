/**
 * Which IP a message gets, and which ones a queue key could use at all (egress/README.md "Which IP"). Tier by tier:
 * inside a tier the highest score wins, the same each time; if its path is closed, the next score. Never throws.
 */
import { SECOND } from '../../base/clock.ts'
import type { Allowance, IpParts } from './allowance.ts'
import { inOrderOfScore, seedOf, type Seed, type WeightedIp } from './choose-ip.ts'
import { familyOf, type Candidate, type EgressIp, type IpChoice, type IpRequest, type PathState } from './egress-ip.ts'
import { capOf } from '../warmup/warmup-curve.ts'

export type IpPicker = ReturnType<typeof createIpPicker>

interface Seeded extends WeightedIp {
  ip: EgressIp
  family: 4 | 6
}

/** The IPs of a pool by what they may send. */
export interface Tiers {
  /** Weight: what their stage allows a day. */
  warming: readonly Seeded[]
  own: readonly Seeded[]
  paused: readonly EgressIp[]
  suspended: readonly EgressIp[]
  spill: readonly Seeded[]
  /** Everything that mail of this pool may leave from, now or later. */
  all: readonly EgressIp[]
}

type QueueKeyFacts = Pick<IpRequest, 'pool' | 'stream' | 'isp'> & { isRetry: boolean }
type Wait = Extract<IpChoice, { kind: 'wait' }>

export function createIpPicker({ configuration, registry, allowance, clock }: IpParts) {
  const byPool = new Map<string, Tiers>()
  const byPoolAnywhere = new Map<string, Tiers>()
  registry.onChange(() => [byPool, byPoolAnywhere].forEach((known) => known.clear()))

  const tiersOf = (pool: string): Tiers => tiersIn(byPool, pool, (ip) => ip)

  function tiersIn(kept: Map<string, Tiers>, pool: string, as: (ip: EgressIp) => EgressIp): Tiers {
    const known = kept.get(pool)
    if (known !== undefined) return known
    const settings = configuration.current().pools.pools[pool]
    const spillPool = settings?.overflow === 'spill' ? settings.overflow_pool : null
    const own = registry.inPool(pool).map(as)
    const spill = spillPool === null ? [] : registry.inPool(spillPool).map(as)
    const tiers: Tiers = {
      warming: own.filter(({ sends }) => sends === 'allowance').map((ip) => seeded(ip, dailyCap(ip.address))),
      own: own.filter(({ sends }) => sends === 'all').map((ip) => seeded(ip, ip.weight)),
      paused: own.filter(({ sends }) => sends === 'retries'),
      suspended: own.filter(({ state }) => state === 'suspended'),
      spill: spill.filter(({ sends }) => sends === 'all').map((ip) => seeded(ip, ip.weight)),
      all: [...own, ...spill],
    }
    kept.set(pool, tiers)
    return tiers
  }

  function dailyCap(address: string): number {
    const known = registry.find(address)
    return known === undefined ? 0 : capOf(known.curve.curve, known.record.stage ?? 1)
  }

  /** `pathOf` is asked for each candidate in turn, best first, until one is open. */
  function choose(request: IpRequest, pathOf: (ip: EgressIp) => PathState): IpChoice {
    const { pools } = configuration.current()
    const tiers = tiersOf(request.pool)
    const mayWarm = pools.warmup_streams.includes(request.stream)
    const now = clock.now()
    const key = seedOf(pools.affinity === 'message' ? request.messageId : request.recipientDomain)
    const search = { request, tiers, pathOf, mayWarm, now, key, allowance }
    return keep(search) ?? chooseFreely(search)
  }

  return {
    choose,
    tiersOf,
    /** Also of what other nodes send from. */
    tiersAnywhere: (pool: string): Tiers => tiersIn(byPoolAnywhere, pool, registry.anywhere),
    /** The IPs that mail of a queue key could leave from, those that wait for allowance or an end included. */
    candidates({ pool, stream, isp, isRetry }: QueueKeyFacts): Candidate[] {
      const { warming, own, paused, suspended, spill } = tiersOf(pool)
      const mayWarm = isRetry || configuration.current().pools.warmup_streams.includes(stream)
      const free = { hope: Infinity, nextAt: null, waitingFor: null }
      return [
        ...(mayWarm ? warming : []).map(({ ip }): Candidate => {
          // Most retries go back to the IP that paid for them.
          if (isRetry) return { ip, tier: 1, ...free }
          const { count, nextAt, waitingFor } = allowance.hope(ip.address, isp)
          return { ip, tier: 1, hope: count, nextAt, waitingFor }
        }),
        ...own.map(({ ip }): Candidate => ({ ip, tier: 2, ...free })),
        ...spill.map(({ ip }): Candidate => ({ ip, tier: 3, ...free })),
        ...paused.map((ip): Candidate =>
          isRetry ? { ip, tier: 1, ...free } : { ip, tier: 1, hope: 0, nextAt: ip.until, waitingFor: 'ip_paused' },
        ),
        ...suspended.map((ip): Candidate => ({ ip, tier: 2, hope: 0, nextAt: ip.until, waitingFor: 'suspension' })),
      ]
    },
  }
}

interface Search {
  request: IpRequest
  tiers: Tiers
  pathOf: (ip: EgressIp) => PathState
  mayWarm: boolean
  now: number
  key: Seed
  allowance: Pick<Allowance, 'hope'>
}

/** Undefined: free choice. */
function keep({ request, tiers, pathOf, now, allowance }: Search): IpChoice | undefined {
  const { lastIp, keepIpUntil, avoidIps, families, attempts, isp } = request
  if (lastIp === null || keepIpUntil === null || avoidIps.includes(lastIp)) return undefined
  const isBound = keepIpUntil > now
  if (keepIpUntil !== 0 && !isBound) return undefined
  const ip = tiers.all.find(({ address }) => address === lastIp)
  if (ip === undefined || !families.includes(familyOf(ip))) return undefined
  const isOwnRetry = attempts > 0
  const canSend = ip.sends === 'all' || ip.sends === 'allowance' || (ip.sends === 'retries' && isOwnRetry)
  const needsGrant = ip.sends === 'allowance' && !isOwnRetry
  if (!canSend) return isBound ? endingBy(keepIpUntil, stateWait(ip)) : undefined
  if (needsGrant && allowance.hope(ip.address, isp).count === 0) return undefined
  const path = pathOf(ip)
  if (path.kind === 'open' || path.takesRows === true) return { kind: 'ip', ip, needsGrant }
  const { until, waitingFor, text } = path
  const wait = { kind: 'wait' as const, until, waitingFor, text, keptTo: ip.address }
  if (isBound) return endingBy(keepIpUntil, wait)
  return waitingFor === 'suspension' ? undefined : wait
}

function endingBy(end: number, wait: Wait): Wait {
  return { ...wait, until: Math.min(wait.until ?? Infinity, end) }
}

function chooseFreely(search: Search): IpChoice {
  const { request, tiers, now, pathOf } = search
  const offered = tiersFor(search)
  const isAvoided = (address: string): boolean => request.avoidIps.includes(address)
  // When all that could send it are avoided nothing is: the ladder decides (egress/README.md "Keep or rotate").
  const hasOther =
    request.avoidIps.length > 0 &&
    offered
      .flatMap(({ candidates }) => candidates)
      .some(
        ({ ip, address, family }) => request.families.includes(family) && !isAvoided(address) && !isHeld(pathOf(ip)),
      )
  const waits: Closed[] = []
  for (const family of request.families) {
    const isFit = (one: Seeded): boolean => one.family === family && !(hasOther && isAvoided(one.address))
    const found = tryTiers(search, offered, isFit, waits)
    if (found !== undefined) return found
    // The other family is for what the preferred one cannot send, not for what is merely busy there.
    if (waits.some(isBusy)) break
  }
  const taker = waits.find(({ takes }) => takes !== null)?.takes
  if (taker != null) return taker
  if (request.attempts === 0 || waits.length === 0) waits.push(...tiers.paused.map(stateWait))
  waits.push(...tiers.suspended.map(stateWait))
  return earliest(waits, now) ?? nobody(search)
}

/** What closed candidates wait for is added to `waits`. */
function tryTiers(
  search: Search,
  offered: readonly Tier[],
  isFit: (candidate: Seeded) => boolean,
  waits: Closed[],
): IpChoice | undefined {
  for (const tier of offered) {
    if (tier.isOverflow && waits.some(isBusy)) break
    const found = tryTier(search, tier, isFit, waits)
    if (found !== undefined) return found
  }
  return undefined
}

interface Tier {
  candidates: readonly Seeded[]
  costs: boolean
  isOverflow: boolean
}

function tiersFor({ request, tiers, mayWarm }: Search): Tier[] {
  const own = { candidates: tiers.own, costs: false, isOverflow: false }
  const spill = { candidates: tiers.spill, costs: false, isOverflow: true }
  const warming = { candidates: mayWarm ? tiers.warming : [], costs: true, isOverflow: false }
  if (request.attempts === 0) return [warming, own, spill]
  const isLast = ({ address }: { address: string }): boolean => address === request.lastIp
  const last = [...tiers.warming.filter(isLast), ...tiers.paused.filter(isLast).map((ip) => seeded(ip, 1))]
  const others = warming.candidates.filter((ip) => !isLast(ip))
  return [own, { candidates: last, costs: false, isOverflow: false }, spill, { ...warming, candidates: others }]
}

interface Closed extends Wait {
  /** The choice that it is when none is open; null: it takes nothing. */
  takes: Extract<IpChoice, { kind: 'ip' }> | null
}

/** What closed candidates wait for is added to `waits`. */
function tryTier(
  { key, request, pathOf, allowance }: Search,
  { candidates, costs }: Tier,
  isFit: (candidate: Seeded) => boolean,
  waits: Closed[],
): IpChoice | undefined {
  const own: Closed[] = []
  for (const candidate of inOrderOfScore(key, candidates)) {
    if (!isFit(candidate)) continue
    const { ip, weight } = candidate
    // Weight 0 is for when no other can, and one that is busy can.
    if (weight === 0 && own.some(isBusy)) break
    const hope = costs ? allowance.hope(ip.address, request.isp) : undefined
    if (hope?.count === 0) {
      const waitingFor = hope.waitingFor ?? 'warmup_day'
      const text = allowanceText(ip, waitingFor, request.isp)
      own.push({ kind: 'wait', until: hope.nextAt, waitingFor, text, takes: null })
      continue
    }
    const path = pathOf(ip)
    const choice = { kind: 'ip' as const, ip, needsGrant: costs }
    if (path.kind === 'open') return choice
    const { until, waitingFor, text, takesRows } = path
    own.push({ kind: 'wait', until, waitingFor, text, takes: takesRows === true ? choice : null })
  }
  waits.push(...own)
  return undefined
}

/** By an operator: no time ends it, so it is as good as an IP that is suspended altogether. */
function isHeld(path: PathState): boolean {
  return path.kind === 'closed' && path.waitingFor === 'suspension' && path.until === null
}

function isBusy({ waitingFor }: Wait): boolean {
  return waitingFor === 'rate' || waitingFor === 'connections' || waitingFor === 'sockets'
}

function allowanceText({ address }: EgressIp, waitingFor: string, isp: string): string {
  if (waitingFor === 'provider_share') return `The warmup share of ${isp} on ${address} is used up.`
  if (waitingFor === 'warmup_hour') return `${address} sends its warmup allowance at an even pace.`
  return `Today's warmup allowance of ${address} is used up.`
}

function stateWait(ip: EgressIp): Closed {
  const waitingFor = ip.state === 'suspended' ? 'suspension' : 'ip_paused'
  const reason = ip.reason === null ? '' : `: ${ip.reason}`
  return { kind: 'wait', until: ip.until, waitingFor, text: `${ip.address} is ${ip.state}${reason}.`, takes: null }
}

/** Never a time that has passed: a state that should have ended is looked at again in a second. */
function earliest(waits: readonly Wait[], now: number): Wait | undefined {
  const [first] = waits.toSorted((one, other) => (one.until ?? Infinity) - (other.until ?? Infinity))
  if (first === undefined) return undefined
  const { kind, until, waitingFor, text } = first
  return { kind, until: until === null ? null : Math.max(until, now + SECOND), waitingFor, text }
}

function nobody({ request: { pool, families, stream }, tiers: { all, warming }, mayWarm }: Search): Wait {
  const usable = all.filter(({ sends }) => sends === 'all' || sends === 'allowance')
  const states = all.map(({ address, state }) => `${address} is ${state}`).join(', ')
  const wait = (text: string): Wait => ({ kind: 'wait', until: null, waitingFor: 'ip_paused', text })
  if (usable.length === 0) {
    // Paused and suspended ones are waited for before this: what is left here is no candidate, for whatever mail.
    return { ...wait(`No IP of pool ${pool} may send: ${states === '' ? 'it has none' : states}.`), hasNoIp: true }
  }
  if (!mayWarm && warming.length === usable.length) {
    return wait(`Pool ${pool} has warming IPs alone, and warmup_streams of pools.yaml keeps ${stream} mail from them.`)
  }
  return wait(`No IP of pool ${pool} can reach hosts with IPv${families.join(' or IPv') || '4'} addresses.`)
}

/** Seeds are made once per change of the pool, not per message. */
function seeded(ip: EgressIp, weight: number): Seeded {
  return { ip, address: ip.address, weight, seed: seedOf(ip.address), family: familyOf(ip) }
}
