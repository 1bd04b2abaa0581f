/**
 * Pools and their IPs: which pool a message uses, which of its IPs may send, and which one a message gets.
 *
 * | state    | enters when                                                             | sends   |
 * | -------- | ----------------------------------------------------------------------- | ------- |
 * | cold     | configured without `warmed: true`, in a pool with `require_warmup`      | nothing |
 * | warmed   | `warmed: true`, or the pool has `require_warmup: false`                 | yes     |
 * | disabled | `enabled: false`, or the source address can not be bound on this machine | nothing |
 *
 * A disabled IP stays so until the next start. No other source address is ever taken in place of a missing one
 * (engine.md 10.1): without a usable IP there is no choice, and the message waits. Never throws.
 */
import type { Logger } from '../base/logger.ts'
import type { PoolSettings } from '../config/pool-settings.ts'
import { chooseIp } from './choose-ip.ts'

export interface EgressIp {
  address: string
  /** What the socket is bound to: differs from `address` behind 1:1 NAT. */
  source: string
  /** The EHLO name. */
  hostname: string
  weight: number
  pool: string
  state: 'warmed' | 'cold' | 'disabled'
  /** Why it is disabled, else null. */
  reason: string | null
}

export interface IpRequest {
  pool: string
  messageId: string
  recipientDomain: string
  /** The IP of the attempts before. */
  stickyIp: string | null
  /** Families in which the receiving hosts have an address. */
  families: readonly (4 | 6)[]
}

export interface Egress {
  /** Disables every IP that this machine can not bind. */
  start(): Promise<void>
  /** In the order of pools.yaml. */
  ips(): EgressIp[]
  /** The pool of a sending domain; the default pool when it names none, or one that is gone. */
  poolFor(domainPool: string | null): string
  poolNames(): string[]
  /** Every IP that mail of this pool may leave from, now or later: its own and those of its overflow pool. */
  ipsUsedBy(pool: string): EgressIp[]
  /** Pools that can send now. */
  sendingPools(): string[]
  /** Why no IP of this pool can take a message, for the answer at acceptance; undefined when one can. */
  refusal(pool: string): { code: 'ip_not_warmed' | 'unavailable'; details: string } | undefined
  /** Undefined: no IP of the pool can send to these hosts now. */
  choose(request: IpRequest): EgressIp | undefined
  /** Takes an IP out until the next start, e.g. after EADDRNOTAVAIL. */
  disable(address: string, reason: string): void
}

export interface EgressOptions {
  pools: PoolSettings
  canBind: (address: string) => Promise<boolean>
  logger: Logger
}

export function createEgress({ pools: settings, canBind, logger }: EgressOptions): Egress {
  const ips = new Map(configuredIps(settings).map((ip) => [ip.address, ip]))

  const ipsOf = (pool: string): EgressIp[] => [...ips.values()].filter((ip) => ip.pool === pool)
  const spillPoolOf = (pool: string): string | null => {
    const found = settings.pools[pool]
    return found?.overflow === 'spill' ? found.overflow_pool : null
  }
  /** The pool's own IPs, then those of its overflow pool (engine.md 5.2, tiers 2 and 3). */
  const tiersOf = (pool: string): EgressIp[][] => {
    const spillPool = spillPoolOf(pool)
    return spillPool === null ? [ipsOf(pool)] : [ipsOf(pool), ipsOf(spillPool)]
  }

  function disable(address: string, reason: string): void {
    const ip = ips.get(address)
    if (ip === undefined || ip.state === 'disabled') return
    ips.set(address, { ...ip, state: 'disabled', reason })
    logger.warn({ ip: address, source: ip.source, pool: ip.pool, reason }, 'egress IP disabled')
  }

  function refusal(pool: string): ReturnType<Egress['refusal']> {
    const candidates = tiersOf(pool).flat()
    if (candidates.some((ip) => ip.state === 'warmed')) return undefined
    const cold = candidates.filter((ip) => ip.state === 'cold')
    if (cold.length > 0) return { code: 'ip_not_warmed', details: coldDetails(pool, cold) }
    return { code: 'unavailable', details: disabledDetails(pool, candidates) }
  }

  return {
    async start() {
      const enabled = [...ips.values()].filter((ip) => ip.state !== 'disabled')
      const bound = await Promise.all(enabled.map((ip) => canBind(ip.source)))
      enabled.forEach((ip, index) => {
        if (bound[index] !== true) disable(ip.address, 'unplumbed')
      })
    },
    ips: () => [...ips.values()],
    poolFor: (domainPool) =>
      domainPool !== null && Object.hasOwn(settings.pools, domainPool) ? domainPool : settings.default_pool,
    poolNames: () => Object.keys(settings.pools),
    ipsUsedBy: (pool) => tiersOf(pool).flat(),
    sendingPools: () => Object.keys(settings.pools).filter((pool) => refusal(pool) === undefined),
    refusal,
    choose({ pool, messageId, recipientDomain, stickyIp, families }) {
      const affinityKey = settings.affinity === 'message' ? messageId : recipientDomain
      const tiers = tiersOf(pool).map((tier) => tier.filter((ip) => ip.state === 'warmed' && reaches(ip, families)))
      const sticky = tiers.flat().find((ip) => ip.address === stickyIp)
      if (sticky !== undefined) return sticky
      const tier = tiers.find((candidates) => candidates.length > 0) ?? []
      return chooseIp(affinityKey, tier)
    },
    disable,
  }
}

function configuredIps(settings: PoolSettings): EgressIp[] {
  return Object.entries(settings.pools).flatMap(([pool, { require_warmup: requireWarmup, ips }]) =>
    ips.map(({ address, source, hostname, weight, enabled, warmed }): EgressIp => {
      const ip = { address, source, hostname, weight, pool }
      if (!enabled) return { ...ip, state: 'disabled', reason: 'disabled in pools.yaml' }
      return { ...ip, state: warmed || !requireWarmup ? 'warmed' : 'cold', reason: null }
    }),
  )
}

/** A socket bound to an address of one family can not reach a host of the other. */
function reaches(ip: EgressIp, families: readonly (4 | 6)[]): boolean {
  return families.includes(ip.source.includes(':') ? 6 : 4)
}

function coldDetails(pool: string, cold: readonly EgressIp[]): string {
  const names = cold.map((ip) => (ip.pool === pool ? ip.address : `${ip.address} (pool ${ip.pool})`)).join(', ')
  const fix = 'Start its warmup, or set "warmed: true" in pools.yaml for an IP that is warm already'
  return `pool ${pool}: no IP is warmed; cold: ${names}. ${fix}`
}

function disabledDetails(pool: string, disabled: readonly EgressIp[]): string {
  const reasons = disabled.map((ip) => `${ip.address} (${ip.reason ?? 'disabled'})`).join(', ')
  return `pool ${pool}: no IP can send: ${reasons === '' ? 'it has none' : reasons}`
}
