/**
 * Pools and their IPs: which pool a message uses, which of its IPs may send, which one a message gets, and what may be
 * accepted (egress/README.md).
 *
 * Without a usable IP there is no choice, and the message waits. `start`, `reserve` and `suspend` reject when the store
 * does; nothing else throws.
 */
import type { LiveConfiguration } from '../config/live-configuration.ts'
import type { Reservation } from '../store/records/warmup-records.ts'
import { createAllowance, type AllowanceAsk } from './ips/allowance.ts'
import type { EgressIp } from './ips/egress-ip.ts'
import { createIpFacts } from './ips/ip-facts.ts'
import { createIpRegistry } from './ips/ip-registry.ts'
import { createIpPicker, type IpPicker } from './ips/pick-ip.ts'
import { createPoolBacklog } from './ips/pool-backlog.ts'
import { createProjector, type Project } from './ips/projection.ts'
import { createWarmup, type Warmup } from './moves/warmup.ts'
import type { BlockNote } from './moves/gate-watch.ts'
import { createWarmupKeeper } from './moves/warmup-keeper.ts'
import type { EgressOutside, EgressQuestions } from './ips/outside.ts'

export type * from './ips/egress-ip.ts'
export type { AllowanceAsk } from './ips/allowance.ts'
export type { IpLookups } from './ips/outside.ts'
export type { BlockNote } from './moves/gate-watch.ts'

export interface Egress extends Pick<IpPicker, 'candidates' | 'choose'> {
  /** Loads states, adds records of new IPs, disables what this machine cannot bind, closes days that were missed. */
  start(): Promise<void>
  /** No timer fires any more; resolves when what was under way has ended. */
  stop(): Promise<void>
  /** In the order of pools.yaml. */
  ips(): EgressIp[]
  /** The pool of a sending domain; the default pool when it names none, or one that is gone. */
  poolFor(domainPool: string | null): string
  poolNames(): string[]
  /** Every IP that mail of this pool may leave from, now or later: its own and those of its overflow pool. */
  ipsUsedBy(pool: string): EgressIp[]
  /** Pools that have an IP which may send now or, when its pause or allowance lets it, later. */
  sendingPools(): string[]
  /** Before acceptance: whether the mail can start within policy (http/README.md "ip_not_warmed"). */
  project: Project
  /** Mail that is being accepted counts as backlog; the returned function says how that ended. */
  expect(pool: string, count: number): (wasStored: boolean) => void
  /** Takes allowance, one answer for each ask in its order. Days that are over are closed before. */
  reserve(asks: readonly AllowanceAsk[]): Promise<Reservation[]>
  /** A grant went back with an outcome: its IP may hope again. */
  noteRefund(ip: string, isp: string): void
  /** Takes an IP out, e.g. after EADDRNOTAVAIL, until a bind test succeeds again. */
  disable(address: string, reason: string): void
  /** A block of this IP; may pause its warmup. Never throws: what fails is logged. */
  noteBlock(block: BlockNote): void
  /** Nothing leaves from it until then; null: until somebody resumes it. A longer suspension stays. */
  suspend(ip: string, until: number | null, reason: string, actor: string): Promise<void>
  /** An IP, a state or a limit has changed: what waits may be able to go. */
  onChange(listener: () => void): void
}

export type EgressOptions = Omit<EgressOutside, keyof EgressQuestions> & Partial<EgressQuestions>

const NOBODY: EgressQuestions = {
  backlogOf: () => ({}),
  waitingOf: () => [],
  onEvents: () => {},
  isClockSteady: () => true,
}

export function createEgress(options: EgressOptions): { egress: Egress; warmup: Warmup } {
  const outside = { ...NOBODY, ...options }
  const { configuration } = options
  const registry = createIpRegistry(outside)
  const allowance = createAllowance({ ...outside, registry })
  const parts = { ...outside, registry, allowance }
  const picker = createIpPicker(parts)
  const keeper = createWarmupKeeper(parts)
  const backlog = createPoolBacklog(outside)
  const project = createProjector({ ...parts, picker, backlog })
  const warmup = createWarmup({ ...parts, keeper, facts: createIpFacts(parts) })

  const poolsNow = (): ReturnType<LiveConfiguration['current']>['pools'] => configuration.current().pools
  const egress: Egress = {
    async start() {
      await registry.apply()
      await keeper.start()
      configuration.onChange(() => registry.apply())
    },
    stop: keeper.stop,
    ips: () => [...registry.ips()],
    poolFor(domainPool) {
      const { pools, default_pool } = poolsNow()
      return domainPool !== null && Object.hasOwn(pools, domainPool) ? domainPool : default_pool
    },
    poolNames: () => Object.keys(poolsNow().pools),
    ipsUsedBy: (pool) => [...picker.tiersOf(pool).all],
    sendingPools: () =>
      Object.keys(poolsNow().pools).filter((pool) => {
        const { own, warming, paused, spill } = picker.tiersOf(pool)
        return [own, warming, paused, spill].some((tier) => tier.length > 0)
      }),
    project,
    expect: backlog.expect,
    candidates: picker.candidates,
    choose: picker.choose,
    async reserve(asks) {
      await keeper.closeOpenDays(asks.map(({ ip }) => ip))
      return allowance.reserve(asks)
    },
    noteRefund: allowance.noteRefund,
    disable: registry.disable,
    noteBlock: keeper.noteBlock,
    suspend: (ip, until, reason, actor) => keeper.suspend(ip, { until, reason, actor, isBlock: true }),
    onChange: registry.onChange,
  }
  return { egress, warmup }
}
