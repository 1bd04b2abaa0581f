/**
 * What is known of paths, lanes and IPs beyond the configuration, in memory. `saved-state.ts` brings it over a restart.
 */
import type { PaceState } from '../../base/pace.ts'
import type { Rate } from '../../config/settings/field-types.ts'
import type { PoolSettings } from '../../config/settings/pool-settings.ts'
import type { ProviderLimits, ProviderSettings } from '../../config/settings/provider-settings.ts'
import { newBackOff, type BackOff } from './back-off.ts'
import type { CarefulHost } from './careful-hosts.ts'
import { newConcurrency, type Concurrency } from './concurrency.ts'
import { newLadder, type Ladder } from './ladder.ts'
import type { ReplyLimit } from './path-limits.ts'
import type { MatchCounts } from './reply-rules.ts'
import type { Lane, ShapedPath } from './shaping.ts'

export interface PathRecord {
  kind: 'path'
  ip: string
  route: string
  provider: string | null
  isp: string
  /** As it was used last; null: loaded, and not used since. */
  limits: ProviderLimits | null
  concurrency: Concurrency
  backOff: BackOff
  ladder: Ladder
  replyLimits: Map<string, ReplyLimit>
  carefulHosts: CarefulHost[]
  counts: MatchCounts
  pace: PaceState
  /** This machine had no socket for it; null: it has had one since the start. Not kept over a restart. */
  noSocket: { until: number; reason: string } | null
}

/** A sending domain on a route, over all IPs of a pool. */
export interface LaneRecord extends Pick<PathRecord, 'route' | 'provider' | 'isp' | 'ladder' | 'counts'> {
  kind: 'lane'
  pool: string
  domain: string
}

/** An IP, over all its paths. */
export interface ShapedIpRecord {
  kind: 'ip'
  ip: string
  ladder: Ladder
  /** Suspensions by blocks within the last hour. */
  blocks: { provider: string; at: number }[]
  /** While half-open: the route whose message is under way. */
  probe: { route: string; at: number } | null
  heldProviders: Map<string, OperatorSuspension>
}

export interface OperatorSuspension {
  since: number
  /** Who did it, as the audit names it. */
  actor: string
  reason: string | null
}

export type ShapingRecord = PathRecord | LaneRecord | ShapedIpRecord

export type ShapingRecords = ReturnType<typeof createShapingRecords>

/** What all IPs of a pool may do together; null: as much as they like. */
interface PoolLimits {
  pool: string
  rate: Rate | null
  connections: number | null
}

export interface ShapingSettings {
  providers: ProviderSettings
  pools: PoolSettings
}

export function createShapingRecords(settings: () => ShapingSettings) {
  const paths = new Map<string, PathRecord>()
  const lanes = new Map<string, LaneRecord>()
  const ips = new Map<string, ShapedIpRecord>()
  const { poolOf, poolLimitsOf } = createPoolsOfIps(settings)
  return {
    paths,
    lanes,
    ips,
    poolOf,
    poolLimitsOf,
    /** Made when it is not there; takes over the facts of now. */
    pathFor(path: ShapedPath, now: number): PathRecord {
      const known = paths.get(path.key)
      if (known === undefined) {
        const record = newPathRecord(path, newConcurrency(path.newIpLimits !== null, now))
        paths.set(path.key, record)
        return record
      }
      known.provider = path.provider
      known.isp = path.isp
      known.limits = path.limits
      return known
    },
    laneFor({ ip, route, provider, isp }: ShapedPath, { domain }: Lane): LaneRecord {
      const pool = poolOf(ip)
      const key = laneKey(pool, route, domain)
      const names = { pool, route, provider, isp, domain }
      const record = lanes.get(key) ?? { kind: 'lane', ...names, ladder: newLadder(), counts: new Map() }
      lanes.set(key, record)
      return record
    },
    ipFor(ip: string): ShapedIpRecord {
      const record = ips.get(ip) ?? newIpRecord(ip)
      ips.set(ip, record)
      return record
    },
    /** Undefined: nothing is known of it. */
    findLane: (path: ShapedPath, { domain }: Lane): LaneRecord | undefined =>
      // Hardly ever is there one: no key is made for nothing.
      lanes.size === 0 ? undefined : lanes.get(laneKey(poolOf(path.ip), path.route, domain)),
  }
}

type PathFacts = Pick<PathRecord, 'ip' | 'route' | 'provider' | 'isp' | 'limits'>

export function newPathRecord({ ip, route, provider, isp, limits }: PathFacts, concurrency: Concurrency): PathRecord {
  const facts = { ip, route, provider, isp, limits, concurrency, pace: { arrivalAt: 0 } }
  const free = { backOff: newBackOff(), ladder: newLadder(), replyLimits: new Map(), counts: new Map() }
  return { kind: 'path', ...facts, ...free, carefulHosts: [], noSocket: null }
}

export function newIpRecord(ip: string): ShapedIpRecord {
  return { kind: 'ip', ip, ladder: newLadder(), blocks: [], probe: null, heldProviders: new Map() }
}

export function laneKey(pool: string, route: string, domain: string): string {
  return `${pool} ${route} ${domain}`
}

/** The limits that the path has without reply rules and without what was learnt. */
export function normalLimits({ limits, provider }: PathRecord, settings: ProviderSettings): ProviderLimits {
  return limits ?? (provider === null ? undefined : settings.providers[provider]) ?? settings.default
}

function createPoolsOfIps(settings: () => ShapingSettings) {
  let pools: PoolSettings | undefined
  const poolByIp = new Map<string, string>()
  const limitsByIp = new Map<string, PoolLimits>()

  function follow(): void {
    const { pools: current } = settings()
    if (pools === current) return
    pools = current
    poolByIp.clear()
    limitsByIp.clear()
    for (const [pool, { ips, rate, connections_max: connections }] of Object.entries(current.pools)) {
      for (const { address } of ips) {
        poolByIp.set(address, pool)
        if (rate !== null || connections !== null) limitsByIp.set(address, { pool, rate, connections })
      }
    }
  }

  return {
    /** The pool that the IP belongs to; '' when it is gone from the configuration. */
    poolOf(ip: string): string {
      follow()
      return poolByIp.get(ip) ?? ''
    },
    /** Undefined: its pool has no limits of its own. */
    poolLimitsOf(ip: string): PoolLimits | undefined {
      follow()
      return limitsByIp.size === 0 ? undefined : limitsByIp.get(ip)
    },
  }
}
