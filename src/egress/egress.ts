/**
 * Pools and their IPs: which pool a message uses, which of its IPs may send, which one a message gets, and what may be
 * accepted (egress/README.md). Without a usable IP there is no choice, and the message waits. `start`, `reserve` and
 * `suspend` reject when the store does; nothing else throws.
 */
import type { PoolSettings } from '../config/settings/pool-settings.ts'
import type { Reservation } from '../store/records/warmup-records.ts'
import { createAllowance, type AllowanceAsk } from './ips/allowance.ts'
import type { EgressIp } from './ips/egress-ip.ts'
import { createIpFacts } from './ips/ip-facts.ts'
import { createIpRegistry } from './ips/ip-registry.ts'
import { createIpPicker } from './ips/pick-ip.ts'
import { createPoolBacklog, createProjector } from './ips/projection.ts'
import { createWarmup } from './moves/warmup.ts'
import { createWarmupKeeper } from './moves/warmup-keeper.ts'
import type { EgressOutside, EgressQuestions } from './ips/outside.ts'

export type * from './ips/egress-ip.ts'
export type { AllowanceAsk } from './ips/allowance.ts'
export type { IpLookups } from './ips/outside.ts'

export type Egress = ReturnType<typeof createEgress>['egress']

export type EgressOptions = Omit<EgressOutside, keyof EgressQuestions> & Partial<EgressQuestions>

const NOBODY: EgressQuestions = {
  backlogOf: () => ({}),
  waitingOf: () => [],
  onEvents: () => {},
  refusalOf: () => null,
  isElsewhere: () => false,
  isClockSteady: () => true,
}

export function createEgress(options: EgressOptions) {
  const outside = { ...NOBODY, ...options }
  const { configuration } = options
  const registry = createIpRegistry(outside)
  const allowance = createAllowance({ ...outside, registry })
  const parts = { ...outside, registry, allowance }
  const picker = createIpPicker(parts)
  const keeper = createWarmupKeeper(parts)
  const backlog = createPoolBacklog(outside)
  const warmup = createWarmup({ ...parts, keeper, facts: createIpFacts(parts) })
  const poolsNow = (): PoolSettings => configuration.current().pools

  const egress = {
    /** Loads states, adds records of new IPs, disables what this machine cannot bind, closes days that were missed. */
    async start(): Promise<void> {
      await registry.apply()
      await keeper.start()
      configuration.onChange(() => registry.apply())
    },
    /** No timer fires any more; resolves when what was under way has ended. */
    stop: keeper.stop,
    /** In the order of pools.yaml. */
    ips: (): EgressIp[] => [...registry.ips()],
    /** The pool of a sending domain; the default pool when it names none, or one that is gone. */
    poolFor(domainPool: string | null): string {
      const { pools, default_pool } = poolsNow()
      return domainPool !== null && Object.hasOwn(pools, domainPool) ? domainPool : default_pool
    },
    poolNames: (): string[] => Object.keys(poolsNow().pools),
    /** Every IP that mail of this pool may leave from, now or later: its own and those of its overflow pool. */
    ipsUsedBy: (pool: string): EgressIp[] => [...picker.tiersOf(pool).all],
    /** Pools that have an IP, of whatever node, which may send now or, when its pause or allowance lets it, later. */
    sendingPools: (): string[] =>
      Object.keys(poolsNow().pools).filter((pool) => {
        const { own, warming, paused, spill } = picker.tiersAnywhere(pool)
        return [own, warming, paused, spill].some((tier) => tier.length > 0)
      }),
    /** Before acceptance: whether the mail can start within policy (http/README.md "ip_not_warmed"). */
    project: createProjector({ ...parts, picker, backlog }),
    /** Mail that is being accepted counts as backlog; the returned function says how that ended. */
    expect: backlog.expect,
    candidates: picker.candidates,
    choose: picker.choose,
    /** Takes allowance, one answer for each ask in its order. Days that are over are closed before. */
    async reserve(asks: readonly AllowanceAsk[]): Promise<Reservation[]> {
      await keeper.closeOpenDays(asks.map(({ ip }) => ip))
      return allowance.reserve(asks)
    },
    /** A grant went back with an outcome: its IP may hope again. */
    noteRefund: allowance.noteRefund,
    /**
     * Takes an IP out, e.g. after EADDRNOTAVAIL, until a bind test succeeds again. Not for a `source` that it had before
     * a reload.
     */
    disable: registry.disable,
    /** False: a bind test of this machine has failed. */
    isBindable: registry.isBindable,
    /** A block of this IP; may pause its warmup. Never throws: what fails is logged. */
    noteBlock: keeper.noteBlock,
    /** Nothing leaves from it until then; null: until somebody resumes it. A longer suspension stays. */
    suspend: (ip: string, until: number | null, reason: string, actor: string): Promise<void> =>
      keeper.suspend(ip, { until, reason, actor, isBlock: true }),
    /** Other nodes have changed states of IPs, or send from others than before: all is read again. */
    async reread(): Promise<void> {
      // At once by whose IPs are.
      registry.rebuild()
      await registry.refresh()
      await allowance.refresh()
    },
    /** An IP, a state or a limit has changed: what waits may be able to go. */
    onChange: registry.onChange,
  }
  return { egress, warmup }
}
