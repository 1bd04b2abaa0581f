/**
 * What happens to the state of an IP by itself: days that are closed, gates that pause, pauses that end, IPs that were
 * idle for long (egress/README.md "Warmup days" and "Gates").
 *
 * A day is closed with the first grant or look of a later one. Each IP is looked after on its own: what fails for one
 * is logged and tried again with the next look.
 */
import { DAY, HOUR } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { dayAfter, utcDay } from '../../base/utc-day.ts'
import type { LiveConfiguration } from '../../config/live-configuration.ts'
import type { Store } from '../../store/store.ts'
import type { IpRecord } from '../../store/records/warmup-records.ts'
import type { Allowance } from '../ips/allowance.ts'
import type { IpRegistry, KnownIp } from '../ips/ip-registry.ts'
import { stageWithin } from '../warmup/warmup-curve.ts'
import { closeDays, firstOpenDay } from '../warmup/warmup-days.ts'
import { judgeHour } from '../warmup/warmup-gates.ts'
import { canMove, moveIp } from '../warmup/warmup-states.ts'
import type { MovedIp } from '../warmup/warmup-states.ts'

export interface BlockNote {
  ip: string
  isp: string
  reason: string
  /** A fired reply rule with `block: true`, which pauses at once; else one `ip_block` reply. */
  isRule: boolean
}

export interface Suspension {
  until: number | null
  reason: string
  actor: string
  /** Receivers brought it about: it is told. */
  isBlock: boolean
}

export interface WarmupKeeper {
  /** First look, and a timer for pauses and suspensions that end. */
  start(): Promise<void>
  stop(): Promise<void>
  /** Each minute: ends what has ended, closes days, re-warms idle IPs, tries disabled ones. */
  look(): Promise<void>
  /** Before a grant. */
  closeOpenDays(ips: readonly string[]): Promise<void>
  /** Every 5 min: the gates of the last hour. */
  checkGates(): Promise<void>
  noteBlock(block: BlockNote): void
  suspend(ip: string, suspension: Suspension): Promise<void>
  /** Fields of a record that begins to warm up at this stage now. */
  beginAt(known: KnownIp, stage: number): Partial<IpRecord>
  /** Where an IP begins that was idle for long; undefined: it was not. */
  rewarmStage(known: KnownIp): Promise<number | undefined>
}

export interface WarmupKeeperOptions {
  configuration: LiveConfiguration
  registry: IpRegistry
  allowance: Pick<Allowance, 'refresh'>
  store: Pick<Store, 'warmupDays' | 'warmupAudit' | 'ipHealth' | 'ipDays'>
  clock: Clock
  logger: Logger
  isClockSteady: () => boolean
}

/** egress/README.md "Gates": five ip_block replies within an hour pause. */
const BLOCKS_THAT_PAUSE = 5
/** Each further pause within this time doubles. */
const PAUSES_COUNT_FOR = 7 * DAY
/** Days with mail among which the best one says where an idle IP begins again. */
const DAYS_LOOKED_AT = 30
const SHARE_OF_BEST_DAY = 0.5
/** Audit rows of the open days: more than an IP can move in them. */
const AUDIT_ROWS = 500

export function createWarmupKeeper(options: WarmupKeeperOptions): WarmupKeeper {
  const { configuration, registry, allowance, store, clock, logger, isClockSteady } = options
  const blocks = new Map<string, number[]>()
  /** IP -> UTC day of the last look at its idle time. */
  const idleLooks = new Map<string, string>()
  const underWay = new Set<Promise<unknown>>()
  let cancelTimer: (() => void) | undefined
  let isRunning = false

  /** Never rejects. */
  function guarded(work: () => Promise<unknown>, ip: string | null): Promise<void> {
    const done = work().then(
      () => {},
      (thrown: unknown) => {
        logger.error({ ip, err: thrown }, 'egress IP not looked after')
      },
    )
    underWay.add(done)
    return done.finally(() => underWay.delete(done))
  }

  function armTimer(): void {
    cancelTimer?.()
    cancelTimer = undefined
    if (!isRunning) return
    const ends = registry.known().flatMap(({ record }) => (record.until === null ? [] : [record.until]))
    if (ends.length === 0) return
    const delay = Math.max(0, Math.min(...ends) - clock.now())
    cancelTimer = clock.after(delay, () => void guarded(endHalts, null))
  }
  registry.onChange(armTimer)

  async function endHalts(): Promise<void> {
    for (const { ip } of registry.known()) {
      await registry.change(ip.address, (record) => {
        if (record.until === null || record.until > clock.now()) return null
        const action = record.state === 'paused' ? 'resume' : 'unsuspend'
        if (!canMove(record, action)) return null
        return moveIp(record, ip.pool, { action, now: clock.now(), actor: 'clock', reason: null })
      })
    }
  }

  async function closeDaysOf(known: KnownIp): Promise<void> {
    const { address, pool } = known.ip
    const first = firstOpenDay(known.record, clock.now())
    if (first === null || !isClockSteady()) return
    const [days, audit] = await Promise.all([
      store.warmupDays(address, dayAfter(first, -2)),
      store.warmupAudit(address, AUDIT_ROWS),
    ])
    await registry.change(address, (record, { curve }) => {
      const now = clock.now()
      if (firstOpenDay(record, now) === null) return null
      return closeDays({ record, pool, curve: curve.curve, now, days, audit })
    })
  }

  async function rewarmIdle(known: KnownIp): Promise<void> {
    const { address, pool } = known.ip
    const today = utcDay(clock.now())
    if (idleLooks.get(address) === today || !isClockSteady()) return
    if (canMove(known.record, 'rewarm') && !isLenient(pool)) {
      const stage = await rewarmStage(known)
      if (stage !== undefined) await registry.change(address, (record, current) => rewarmed(record, current, stage))
    }
    idleLooks.set(address, today)
  }

  function rewarmed(record: IpRecord, current: KnownIp, stage: number): MovedIp | null {
    if (!canMove(record, 'rewarm')) return null
    const now = clock.now()
    const changes = { ...beginAt(current, stage), targetDailyVolume: record.targetDailyVolume }
    const reason = 'idle: no mail for so long that receivers forgot it'
    return moveIp(record, current.ip.pool, { action: 'rewarm', now, actor: 'clock', reason, changes })
  }

  function isLenient(pool: string): boolean {
    return configuration.current().pools.pools[pool]?.require_warmup === false
  }

  async function rewarmStage({ ip, record, curve: { curve } }: KnownIp): Promise<number | undefined> {
    const idleAfter = curve.idle_rewarm_after
    if (idleAfter === 'never') return undefined
    // The count is in the store: grants and sends do not come by here.
    const since = record.state === 'paused' ? 0 : record.since
    const lastUse = Math.max(record.lastSentAt ?? 0, record.startedAt ?? 0, since)
    if (clock.now() - lastUse < idleAfter) return undefined
    const days = await store.ipDays(ip.address, DAYS_LOOKED_AT)
    const best = Math.max(0, ...days.map(({ messages }) => messages))
    const stage = stageWithin(curve, best * SHARE_OF_BEST_DAY)
    if (record.state === 'warmed' || record.stage === null) return stage
    // Idleness takes stages away, it never gives any.
    return stage < record.stage ? stage : undefined
  }

  function beginAt({ curve }: KnownIp, stage: number): Partial<IpRecord> {
    const now = clock.now()
    return {
      curve: curve.name,
      stage,
      startedAt: now,
      holdReason: null,
      daysHeld: 0,
      daysAtTarget: 0,
      // Today is its first day; a day that was closed before stays closed.
      closedDay: dayAfter(utcDay(now), -1),
    }
  }

  async function pause(ip: string, reason: string): Promise<void> {
    await registry.change(ip, (record, { ip: { pool }, curve: { curve } }) => {
      if (!canMove(record, 'pause')) return null
      const now = clock.now()
      const earlier = record.pausedAt.filter((at) => at > now - PAUSES_COUNT_FOR)
      const until = now + Math.min(curve.pause.max, curve.pause.for * 2 ** earlier.length)
      const changes = { formerState: record.state, until, pausedAt: [...earlier, now] }
      return moveIp(record, pool, { action: 'pause', now, actor: 'gate', reason, changes })
    })
    blocks.delete(ip)
  }

  async function checkGatesOf({ ip: { address }, record, curve: { curve } }: KnownIp): Promise<void> {
    if (record.state !== 'warming') return
    // What led to the last pause does not lead to the next one.
    const since = Math.max(clock.now() - HOUR, record.since)
    const health = await store.ipHealth(address, since)
    const reason = judgeHour(health, curve.pause)
    if (reason !== null) await pause(address, reason)
    else if (curve.pause.on_block && health.blocks >= BLOCKS_THAT_PAUSE) {
      await pause(address, `block: ${health.blocks} replies within an hour refused this IP`)
    }
  }

  async function look(): Promise<void> {
    await guarded(() => registry.refresh(), null)
    await guarded(() => registry.tryDisabled(), null)
    await guarded(endHalts, null)
    for (const known of registry.known()) {
      const { address } = known.ip
      await guarded(() => rewarmIdle(known), address)
      await guarded(async () => {
        const current = registry.find(address)
        if (current !== undefined) await closeDaysOf(current)
      }, address)
    }
    await guarded(() => allowance.refresh(), null)
  }

  return {
    async start() {
      isRunning = true
      await look()
      armTimer()
    },
    async stop() {
      isRunning = false
      cancelTimer?.()
      await Promise.all(underWay)
    },
    look,
    async closeOpenDays(ips) {
      for (const address of new Set(ips)) {
        const known = registry.find(address)
        if (known !== undefined && firstOpenDay(known.record, clock.now()) !== null) await closeDaysOf(known)
      }
    },
    async checkGates() {
      for (const known of registry.known()) await guarded(() => checkGatesOf(known), known.ip.address)
    },
    noteBlock({ ip, isp, reason, isRule }) {
      const known = registry.find(ip)
      if (known?.record.state !== 'warming' || !known.curve.curve.pause.on_block) return
      const now = clock.now()
      const recent = [...(blocks.get(ip) ?? []).filter((at) => at > now - HOUR), now].slice(-BLOCKS_THAT_PAUSE)
      blocks.set(ip, recent)
      if (!isRule && recent.length < BLOCKS_THAT_PAUSE) return
      void guarded(() => pause(ip, `block: ${isp}: ${reason}`), ip)
    },
    async suspend(ip, suspension) {
      await registry.change(ip, (record, { ip: { pool } }) => suspended(record, pool, suspension, clock.now()))
    },
    beginAt,
    rewarmStage,
  }
}

/** A suspension during a pause ends no earlier than the pause; one without an end is gone back to. */
function suspended(record: IpRecord, pool: string, suspension: Suspension, now: number): MovedIp | null {
  const { reason, actor, isBlock } = suspension
  const until = later(suspension.until, record.state === 'warmed' || record.state === 'cold' ? 0 : (record.until ?? 0))
  if (record.state === 'suspended') {
    if (record.until === null || (suspension.until !== null && suspension.until <= record.until)) return null
    const audit = {
      at: now,
      ip: record.ip,
      actor,
      action: 'suspend',
      fromState: record.state,
      toState: record.state,
      fromStage: record.stage,
      toStage: record.stage,
      day: null,
      figures: {},
      reason,
    }
    return { record: { ...record, until: suspension.until, reason, actor }, audit: [audit], events: [] }
  }
  const isEndingPause = record.state === 'paused' && record.until !== null
  const changes = { until, formerState: isEndingPause ? ('warming' as const) : record.state }
  return moveIp(record, pool, { action: 'suspend', now, actor, reason, changes, isTold: isBlock })
}

function later(one: number | null, other: number): number | null {
  return one === null ? null : Math.max(one, other)
}
