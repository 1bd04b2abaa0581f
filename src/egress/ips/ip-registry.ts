/**
 * The egress IPs as they are now: pools.yaml, what the store knows of each IP, and what this machine can bind.
 *
 * The store holds state and stage, the files pool, weight and curve; a reload takes over the files, the state stays. An
 * IP that leaves the files keeps its record and history; one that comes back goes on where it was. A change of state is
 * guarded by the version that was read: of two at once, the second is decided anew. Rejects when the store does; what
 * is in memory is then as before.
 */
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { utcDay } from '../../base/utc-day.ts'
import type { LiveConfiguration } from '../../config/live-configuration.ts'
import type { IpRecord } from '../../store/records/warmup-records.ts'
import type { Store } from '../../store/store.ts'
import { allowanceRule, findCurve } from '../warmup/warmup-curve.ts'
import type { MovedIp } from '../warmup/warmup-states.ts'
import { createCurveChanges } from './curve-changes.ts'
import { createDisabledIps } from './disabled-ips.ts'
import type { EgressIp } from './egress-ip.ts'
import { configuredIps, egressIp, firstRecord, type ConfiguredIp, type DecideMove, type KnownIp } from './known-ip.ts'
import type { EgressOutside } from './outside.ts'

export interface IpRegistry {
  /** Reads files and records; again when the files have changed. */
  apply(): Promise<void>
  /** In the order of pools.yaml. */
  ips(): readonly EgressIp[]
  known(): readonly KnownIp[]
  find(address: string): KnownIp | undefined
  inPool(pool: string): readonly EgressIp[]
  disable(address: string, reason: string): void
  /** Disabled IPs that can be bound again are used again. */
  tryDisabled(): Promise<void>
  isBindable(address: string): boolean
  /** Reads the records again. */
  refresh(): Promise<void>
  /**
   * Decides on the record as it is in the store, and stores what was decided with audit and events; null: nothing.
   * Undefined when there is no such IP.
   */
  change(address: string, decide: DecideMove): Promise<KnownIp | undefined>
  onChange(listener: () => void): void
}

/** Rounds against other changes of the same record; each of them has got on in the meantime. */
const MOST_ROUNDS = 20

export function createIpRegistry(options: EgressOutside): IpRegistry {
  const { configuration, store, clock } = options
  const records = new Map<string, IpRecord>()
  const disabled = createDisabledIps(options)
  const listeners: (() => void)[] = []
  let known = new Map<string, KnownIp>()
  let ips: EgressIp[] = []
  let byPool = new Map<string, EgressIp[]>()
  const configured = (): ConfiguredIp[] => configuredIps(configuration.current().pools.pools)

  const registry: IpRegistry = {
    apply,
    ips: () => ips,
    known: () => [...known.values()],
    find: (address) => known.get(address),
    inPool: (pool) => byPool.get(pool) ?? [],
    isBindable: disabled.isBindable,
    disable(address, reason) {
      if (!known.has(address) || disabled.reasonOf(address) !== null) return
      disabled.disable(address, reason)
      rebuild()
    },
    async tryDisabled() {
      const isOneBack = await disabled.tryAgain((address) => known.get(address)?.ip.source)
      if (isOneBack) rebuild()
    },
    refresh,
    change: createIpChange(options, (address) => known.get(address), refresh),
    onChange: (listener) => void listeners.push(listener),
  }
  const curves = createCurveChanges(options, registry)
  return registry

  /** Records for new IPs, bind tests for those that were not tested. */
  async function apply(): Promise<void> {
    const settings = configured().map((entry) => entry.settings)
    const fresh = settings.filter(({ address }) => !records.has(address))
    if (fresh.length > 0) await store.addIpRecords(fresh.map((ip) => firstRecord(ip, clock.now())))
    await disabled.test(settings)
    await refresh()
    rebuild()
    await curves.follow()
    await registry.tryDisabled()
  }

  function rebuild(): void {
    arrange()
    for (const listener of listeners) listener()
  }

  function arrange(): void {
    const { warmup } = configuration.current()
    const entries = configured().map((entry): KnownIp => {
      const { address, curve: wanted } = entry.settings
      const record = records.get(address) ?? firstRecord(entry.settings, clock.now())
      const curve = findCurve(warmup, [record.curve, wanted])
      return { ip: egressIp(entry, record, curve.curve, disabled.reasonOf(address)), record, curve }
    })
    entries.forEach(curves.remember)
    known = new Map(entries.map((entry) => [entry.ip.address, entry]))
    ips = entries.map(({ ip }) => ip)
    byPool = Map.groupBy(ips, ({ pool }) => pool)
  }

  async function refresh(): Promise<void> {
    const found = await store.ipRecords()
    const isNews = found.some(({ ip, version }) => records.get(ip)?.version !== version)
    for (const record of found) records.set(record.ip, record)
    // The time of the last grant alone changes nothing for anybody.
    if (isNews) rebuild()
    else arrange()
  }
}

/** `refresh` reads the records again. */
function createIpChange(
  { configuration, store, clock, logger, onEvents }: EgressOutside,
  find: IpRegistry['find'],
  refresh: () => Promise<void>,
): IpRegistry['change'] {
  return async (address, decide) => {
    for (let round = 0; round < MOST_ROUNDS; round++) {
      const current = find(address)
      if (current === undefined) return undefined
      const moved = decide(current.record, current)
      if (moved === null || moved.audit.length === 0) return current
      const { record, audit, events } = moved
      const caps = capsOf(current.record, moved, configuration, clock)
      const isDone = await store.changeIp({ record, audit, events, caps })
      await refresh()
      if (!isDone) continue
      logMoves(logger, moved)
      if (events.length > 0) onEvents()
      return find(address)
    }
    throw new Error(`the state of ${address} changes too often`)
  }
}

function logMoves(logger: Logger, { record, audit }: MovedIp): void {
  for (const { action, actor, fromState, toState, fromStage, toStage, reason } of audit) {
    const fields = { from_state: fromState, to_state: toState, from_stage: fromStage, to_stage: toStage }
    logger.info({ ip: record.ip, action, actor, ...fields, reason }, 'egress IP moved')
  }
}

/** Today's rows follow a new stage. */
function capsOf(
  before: IpRecord,
  { record: after, audit }: MovedIp,
  configuration: LiveConfiguration,
  clock: Clock,
): Parameters<Store['changeIp']>[0]['caps'] {
  const isOtherRule = audit.some(({ action }) => action === 'stage')
  const isSame = before.stage === after.stage && before.curve === after.curve && !isOtherRule
  if (isSame || after.stage === null || after.state === 'warmed') return null
  const { curve } = findCurve(configuration.current().warmup, [after.curve])
  const { day, cap, providerCaps, defaultProviderCap } = allowanceRule(curve, after.stage, utcDay(clock.now()))
  return { day, cap, providerCaps, defaultProviderCap }
}
