/**
 * The egress IPs as they are now: pools.yaml, what the store knows of each IP, and what this machine can bind.
 *
 * - The store holds state and stage, the files pool, weight and curve; a reload takes over the files, the state stays.
 * - An IP that leaves the files keeps its record and history; one that comes back goes on where it was.
 * - An IP whose source can not be bound is disabled with the reason `unplumbed` and tried again each minute: an
 *   address that comes back is used again. Another source is never taken in its place (delivery/README.md "The SMTP session"). One that is
 *   disabled for another reason, though it can be bound, is used again after half an hour.
 * - A change of state is guarded by the version that was read: of two at once, the second is decided anew.
 *
 * Rejects when the store does; what is in memory is then as before.
 */
import { MINUTE } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { dayAfter, utcDay } from '../../base/utc-day.ts'
import type { LiveConfiguration } from '../../config/live-configuration.ts'
import type { EgressIpSettings, Pool } from '../../config/settings/pool-settings.ts'
import type { WarmupCurve } from '../../config/settings/warmup-settings.ts'
import type { Store } from '../../store/store.ts'
import type { AllowanceRule, IpRecord, StoredIpState } from '../../store/records/warmup-records.ts'
import type { EgressIp, Sends } from './egress-ip.ts'
import { allowanceRule, capOf, findCurve, stageWithin } from '../warmup/warmup-curve.ts'
import type { NamedCurve } from '../warmup/warmup-curve.ts'
import { isInWarmup, moveIp } from '../warmup/warmup-states.ts'
import type { MovedIp } from '../warmup/warmup-states.ts'

export interface IpRegistryOptions {
  configuration: LiveConfiguration
  store: Pick<Store, 'ipRecords' | 'addIpRecords' | 'changeIp' | 'warmupDays'>
  clock: Clock
  canBind: (address: string) => Promise<boolean>
  logger: Logger
  /** Events were written. */
  onEvents: () => void
}

/** One IP of pools.yaml with all that is known of it. */
export interface KnownIp {
  ip: EgressIp
  record: IpRecord
  /** Of its record; before a warmup that of pools.yaml. */
  curve: NamedCurve
}

export interface IpRegistry {
  start(): Promise<void>
  /** The files have changed. */
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
  change(address: string, decide: (record: IpRecord, known: KnownIp) => MovedIp | null): Promise<KnownIp | undefined>
  onChange(listener: () => void): void
}

interface Disabled {
  reason: string
  since: number
  /** The bind test has failed since: it is free to come back as soon as one succeeds. */
  isUnplumbed: boolean
}

/** How long an IP that can be bound stays disabled. */
const DISABLED_FOR = 30 * MINUTE
/** Rounds against other changes of the same record; each of them has got on in the meantime. */
const MOST_ROUNDS = 20
/** Days whose rows tell what a curve allowed that is gone. */
const DAYS_REMEMBERED = 60
/** isp of the rows for all together. */
const TOTAL = '*'

export function createIpRegistry(options: IpRegistryOptions): IpRegistry {
  const { configuration, store, clock, canBind, logger } = options
  const records = new Map<string, IpRecord>()
  const disabled = new Map<string, Disabled>()
  const bound = new Set<string>()
  const listeners: (() => void)[] = []
  let known = new Map<string, KnownIp>()
  let ips: EgressIp[] = []
  let byPool = new Map<string, EgressIp[]>()
  let curvesInForce = new Map<string, string | null>()
  /** What the stage of an IP allows a day, by the curve it was started with. */
  const lastCaps = new Map<string, number>()

  function rebuild(): void {
    arrange()
    for (const listener of listeners) listener()
  }

  function arrange(): void {
    const { pools, warmup } = configuration.current()
    const entries = configuredIps(pools.pools).map(({ pool, settings, poolSettings }): KnownIp => {
      const record = records.get(settings.address) ?? firstRecord(settings, clock.now())
      const curve = findCurve(warmup, [record.curve, settings.curve])
      if (record.stage !== null && curve.name === record.curve) {
        lastCaps.set(record.ip, capOf(curve.curve, record.stage))
      }
      const halt = disabled.get(settings.address)?.reason ?? null
      return { ip: egressIp({ pool, settings, poolSettings, record, curve: curve.curve, halt }), record, curve }
    })
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

  /** Records for new IPs, bind tests for those that were not tested. */
  async function takeOver(): Promise<void> {
    const entries = configuredIps(configuration.current().pools.pools)
    const fresh = entries.filter(({ settings }) => !records.has(settings.address))
    if (fresh.length > 0) await store.addIpRecords(fresh.map(({ settings }) => firstRecord(settings, clock.now())))
    const untested = entries.filter(({ settings }) => !bound.has(settings.source) && !disabled.has(settings.address))
    const answers = await Promise.all(untested.map(({ settings }) => canBind(settings.source)))
    untested.forEach(({ settings }, index) => {
      if (answers[index] === true) bound.add(settings.source)
      else setDisabled(settings.address, { reason: 'unplumbed', since: clock.now(), isUnplumbed: true })
    })
    await refresh()
    rebuild()
    await keepCurves()
    await keepCaps()
    await tryDisabled()
  }

  async function tryDisabled(): Promise<void> {
    let isChanged = false
    await Promise.all(
      [...disabled].map(async ([address, entry]) => {
        const source = known.get(address)?.ip.source
        // It left the files: tested anew when it comes back.
        if (source === undefined) return void disabled.delete(address)
        if (!(await canBind(source))) entry.isUnplumbed = true
        else if (entry.isUnplumbed || clock.now() - entry.since >= DISABLED_FOR) {
          disabled.delete(address)
          isChanged = true
          bound.add(source)
          logger.info({ ip: address, reason: entry.reason }, 'egress IP used again')
        }
      }),
    )
    if (isChanged) rebuild()
  }

  /**
   * Another curve in pools.yaml, or a curve that is gone: the IP goes on at the stage of the new one that allows no
   * more than it had. Another one is only seen while running: after a start the curve it was started with holds on.
   */
  async function keepCurves(): Promise<void> {
    const { pools, warmup } = configuration.current()
    const configured = configuredIps(pools.pools)
    for (const { settings } of configured) {
      const before = curvesInForce.get(settings.address)
      const isOther = before !== undefined && before !== settings.curve
      const isGone = isCurveGone(known.get(settings.address)?.record)
      const lastCap = isGone ? await lastCapOf(settings.address) : 0
      if (!isOther && !isGone) continue
      await change(settings.address, (record, { ip }) => {
        if (!isInWarmup(record)) return null
        const next = findCurve(warmup, [settings.curve])
        if (next.name === record.curve) return null
        const earlier = record.curve === null ? undefined : warmup.curves[record.curve]
        const cap = earlier === undefined ? lastCap : capOf(earlier, record.stage ?? 1)
        const reason = `curve ${record.curve ?? ''} -> ${next.name}`
        const changes = { curve: next.name, stage: stageWithin(next.curve, cap) }
        return moveIp(record, ip.pool, { action: 'stage', now: clock.now(), actor: 'config', reason, changes })
      })
    }
    curvesInForce = new Map(configured.map(({ settings }) => [settings.address, settings.curve]))
  }

  function isCurveGone(record: IpRecord | undefined): boolean {
    const name = record?.curve ?? null
    return name !== null && configuration.current().warmup.curves[name] === undefined
  }

  /** What its stage allowed when its curve was there; 0: nobody knows, and it begins at stage 1. */
  async function lastCapOf(address: string): Promise<number> {
    const remembered = lastCaps.get(address)
    if (remembered !== undefined) return remembered
    const days = await store.warmupDays(address, dayAfter(utcDay(clock.now()), -DAYS_REMEMBERED))
    return days.findLast(({ isp }) => isp === TOTAL)?.cap ?? 0
  }

  /**
   * Other numbers for a stage, or other shares: today's rows follow at once, with an audit row (egress/README.md
   * "Audit").
   */
  async function keepCaps(): Promise<void> {
    for (const {
      ip: { address },
      record,
    } of known.values()) {
      if (!isInWarmup(record)) continue
      const today = utcDay(clock.now())
      const rows = (await store.warmupDays(address, today)).filter(({ day }) => day === today)
      await change(address, (current, { ip, curve }) => {
        if (!isInWarmup(current)) return null
        const rule = allowanceRule(curve.curve, current.stage ?? 1, today)
        const other = rows.find(({ isp, cap, granted }) => cap !== Math.max(granted, capIn(rule, isp)))
        if (other === undefined) return null
        const whose = other.isp === TOTAL ? '' : ` to ${other.isp}`
        const reason = `curve ${curve.name}: ${other.cap} -> ${capIn(rule, other.isp)} a day${whose}`
        return moveIp(current, ip.pool, { action: 'stage', now: clock.now(), actor: 'config', reason })
      })
    }
  }

  function setDisabled(address: string, entry: Disabled): void {
    disabled.set(address, entry)
    logger.warn({ ip: address, reason: entry.reason }, 'egress IP disabled')
  }

  async function change(
    address: string,
    decide: (record: IpRecord, known: KnownIp) => MovedIp | null,
  ): Promise<KnownIp | undefined> {
    for (let round = 0; round < MOST_ROUNDS; round++) {
      const current = known.get(address)
      if (current === undefined) return undefined
      const moved = decide(current.record, current)
      if (moved === null || moved.audit.length === 0) return current
      const { record, audit, events } = moved
      const isDone = await store.changeIp({ record, audit, events, caps: capsOf(current.record, moved) })
      await refresh()
      if (!isDone) continue
      for (const { action, actor, fromState, toState, fromStage, toStage, reason } of audit) {
        const fields = { from_state: fromState, to_state: toState, from_stage: fromStage, to_stage: toStage }
        logger.info({ ip: address, action, actor, ...fields, reason }, 'egress IP moved')
      }
      if (events.length > 0) options.onEvents()
      return known.get(address)
    }
    throw new Error(`the state of ${address} changes too often`)
  }

  /** Today's rows follow a new stage. */
  function capsOf(before: IpRecord, { record: after, audit }: MovedIp): Parameters<Store['changeIp']>[0]['caps'] {
    const isOtherRule = audit.some(({ action }) => action === 'stage')
    const isSame = before.stage === after.stage && before.curve === after.curve && !isOtherRule
    if (isSame || after.stage === null || after.state === 'warmed') return null
    const { curve } = findCurve(configuration.current().warmup, [after.curve])
    const { day, cap, providerCaps, defaultProviderCap } = allowanceRule(curve, after.stage, utcDay(clock.now()))
    return { day, cap, providerCaps, defaultProviderCap }
  }

  return {
    start: takeOver,
    apply: takeOver,
    ips: () => ips,
    known: () => [...known.values()],
    find: (address) => known.get(address),
    inPool: (pool) => byPool.get(pool) ?? [],
    isBindable: (address) => disabled.get(address)?.isUnplumbed !== true,
    disable(address, reason) {
      if (!known.has(address) || disabled.has(address)) return
      setDisabled(address, { reason, since: clock.now(), isUnplumbed: false })
      rebuild()
    },
    tryDisabled,
    refresh,
    change,
    onChange: (listener) => void listeners.push(listener),
  }
}

function capIn({ cap, providerCaps, defaultProviderCap }: AllowanceRule, isp: string): number {
  return isp === TOTAL ? cap : (providerCaps[isp] ?? defaultProviderCap)
}

interface ConfiguredIp {
  pool: string
  poolSettings: Pool
  settings: EgressIpSettings
}

function configuredIps(pools: Record<string, Pool>): ConfiguredIp[] {
  return Object.entries(pools).flatMap(([pool, poolSettings]) =>
    poolSettings.ips.map((settings) => ({ pool, poolSettings, settings })),
  )
}

/** `warmed: true` is read here alone: when an IP is seen for the first time. */
function firstRecord({ address, warmed }: EgressIpSettings, now: number): IpRecord {
  return {
    ip: address,
    state: warmed ? 'warmed' : 'cold',
    formerState: null,
    until: null,
    reason: null,
    actor: 'config',
    since: now,
    curve: null,
    stage: null,
    targetDailyVolume: null,
    startedAt: null,
    holdReason: null,
    daysHeld: 0,
    daysAtTarget: 0,
    pausedAt: [],
    closedDay: null,
    lastSentAt: null,
    version: 0,
  }
}

interface IpParts extends ConfiguredIp {
  record: IpRecord
  curve: WarmupCurve
  /** Why it is disabled, or null. */
  halt: string | null
}

function egressIp({ pool, poolSettings, settings, record, curve, halt }: IpParts): EgressIp {
  const { address, source, hostname, weight, enabled } = settings
  const { limits: poolLimits } = poolSettings
  const newIpLimits = newIpLimitsOf(record, curve)
  const ip = { address, source, hostname, weight, pool, newIpLimits, poolLimits }
  const reason = enabled ? halt : 'disabled in pools.yaml'
  if (reason !== null) return { ...ip, state: 'disabled', sends: 'nothing', reason, until: null }
  const { state, until } = record
  return { ...ip, state, sends: sendsOf(state, poolSettings), reason: record.reason, until }
}

function newIpLimitsOf({ state, stage }: IpRecord, { new_ip: limits }: WarmupCurve): EgressIp['newIpLimits'] {
  if (stage === null || state === 'warmed' || stage >= limits.until_stage) return null
  return { connections: limits.connections, messagesPerConnection: limits.messages_per_connection }
}

function sendsOf(state: StoredIpState, pool: Pool): Sends {
  switch (state) {
    case 'warmed':
      return 'all'
    case 'warming':
      return 'allowance'
    case 'paused':
      return 'retries'
    case 'cold':
      return pool.require_warmup ? 'nothing' : 'all'
    case 'suspended':
      return 'nothing'
  }
}
