/**
 * What happens to the state of an IP by itself: days that are closed, gates that pause, pauses that end, IPs that were
 * idle for long (egress/README.md "Warmup days" and "Gates"). A day is closed with the first grant or look of a later
 * one. Each IP is looked after on its own: what fails for one is logged and tried again with the next look.
 */
import { DAY, HOUR } from '../../base/clock.ts'
import type { IpRecord } from '../../store/records/warmup-records.ts'
import type { IpParts } from '../ips/allowance.ts'
import type { BlockNote } from '../ips/egress-ip.ts'
import type { KnownIp } from '../ips/known-ip.ts'
import { firstOpenDay } from '../warmup/warmup-days.ts'
import { judgeHour } from '../warmup/warmup-gates.ts'
import { auditRow, moveIp, type MovedIp } from '../warmup/warmup-states.ts'
import { createDayClosing } from './day-closing.ts'

export type WarmupKeeper = ReturnType<typeof createWarmupKeeper>

export function createWarmupKeeper(parts: IpParts) {
  const { registry, allowance, clock, logger } = parts
  const underWay = new Set<Promise<unknown>>()
  const days = createDayClosing(parts)
  const gates = createGateWatch(parts)
  const halts = createHalts(parts, () => void guarded(halts.end, null))

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

  async function closeOpenDays(ips: Iterable<string>): Promise<void> {
    for (const address of new Set(ips)) {
      const known = registry.find(address)
      if (known !== undefined && firstOpenDay(known.record, clock.now()) !== null) await days.close(known)
    }
  }

  /** Each minute: ends what has ended, closes days, re-warms idle IPs, tries disabled ones. */
  async function look(): Promise<void> {
    for (const work of [registry.refresh, registry.tryDisabled, halts.end]) await guarded(work, null)
    for (const known of registry.known()) {
      const { address } = known.ip
      await guarded(() => days.rewarmIdle(known), address)
      await guarded(() => closeOpenDays([address]), address)
    }
    await guarded(allowance.refresh, null)
  }

  return {
    /** First look, and a timer for pauses and suspensions that end. */
    async start(): Promise<void> {
      await look()
      halts.startTimer()
    },
    async stop(): Promise<void> {
      halts.stopTimer()
      await Promise.all(underWay)
    },
    look,
    closeOpenDays,
    /** Every 5 min: the gates of the last hour. */
    async checkGates(): Promise<void> {
      for (const known of registry.known()) await guarded(() => gates.check(known), known.ip.address)
    },
    noteBlock(block: BlockNote): void {
      const reason = gates.countBlock(block)
      if (reason !== undefined) void guarded(() => gates.pause(block.ip, reason), block.ip)
    },
    suspend: halts.suspend,
    rewarmStage: days.rewarmStage,
  }
}

interface IpSuspension {
  /** null: until somebody resumes it. */
  until: number | null
  reason: string
  actor: string
  /** Receivers brought it about: it is told. */
  isBlock: boolean
}

/**
 * Suspensions of an IP, and the ends of pauses and suspensions: one timer on the earliest end of all IPs. `onEnd`: the
 * time of one is over, and `end` is to be called.
 */
function createHalts({ registry, clock }: IpParts, onEnd: () => void) {
  let cancelTimer: (() => void) | undefined
  let isRunning = false
  registry.onChange(armTimer)

  function armTimer(): void {
    cancelTimer?.()
    cancelTimer = undefined
    if (!isRunning) return
    const ends = registry.known().flatMap(({ record }) => (record.until === null ? [] : [record.until]))
    if (ends.length === 0) return
    cancelTimer = clock.after(Math.max(0, Math.min(...ends) - clock.now()), onEnd)
  }

  return {
    async suspend(ip: string, suspension: IpSuspension): Promise<void> {
      await registry.change(ip, (record, { ip: { pool } }) => suspended(record, pool, suspension, clock.now()))
    },
    async end(): Promise<void> {
      for (const { ip } of registry.known()) {
        await registry.move(ip.address, ({ state, until }) => {
          if (until === null || until > clock.now()) return null
          return { action: state === 'paused' ? 'resume' : 'unsuspend', actor: 'clock', reason: null }
        })
      }
    },
    startTimer(): void {
      isRunning = true
      armTimer()
    },
    stopTimer(): void {
      isRunning = false
      cancelTimer?.()
    },
  }
}

/** A suspension during a pause ends no earlier than the pause; one without an end is gone back to. */
function suspended(record: IpRecord, pool: string, suspension: IpSuspension, now: number): MovedIp | null {
  const { reason, actor, isBlock } = suspension
  if (record.state === 'suspended') {
    if (record.until === null || (suspension.until !== null && suspension.until <= record.until)) return null
    const longer = { ...record, until: suspension.until, reason, actor }
    return { record: longer, audit: [auditRow(record, longer, { action: 'suspend', now, actor, reason })], events: [] }
  }
  const pausedUntil = record.state === 'paused' ? record.until : null
  const until = suspension.until === null ? null : Math.max(suspension.until, pausedUntil ?? 0)
  const changes = { until, formerState: pausedUntil === null ? record.state : ('warming' as const) }
  return moveIp(record, pool, { action: 'suspend', now, actor, reason, changes, isTold: isBlock })
}

const BLOCKS_THAT_PAUSE = 5
/** Each further pause within this time doubles. */
const PAUSES_COUNT_FOR = 7 * DAY

/** The gates within a day: figures of the last hour and blocks pause the warmup of an IP (egress/README.md "Gates"). */
function createGateWatch({ registry, store, clock }: IpParts) {
  const blocks = new Map<string, number[]>()

  async function pause(ip: string, reason: string): Promise<void> {
    await registry.move(ip, (record, { curve: { curve } }) => {
      const now = clock.now()
      const earlier = record.pausedAt.filter((at) => at > now - PAUSES_COUNT_FOR)
      const until = now + Math.min(curve.pause.max, curve.pause.for * 2 ** earlier.length)
      const changes = { formerState: record.state, until, pausedAt: [...earlier, now] }
      return { action: 'pause', actor: 'gate', reason, changes }
    })
    blocks.delete(ip)
  }

  return {
    pause,
    async check({ ip: { address }, record, curve: { curve } }: KnownIp): Promise<void> {
      if (record.state !== 'warming') return
      // What led to the last pause does not lead to the next one.
      const since = Math.max(clock.now() - HOUR, record.since)
      const health = await store.ipHealth(address, since)
      const reason = judgeHour(health, curve.pause)
      if (reason !== null) await pause(address, reason)
      else if (curve.pause.on_block && health.blocks >= BLOCKS_THAT_PAUSE) {
        await pause(address, `block: ${health.blocks} replies within an hour refused this IP`)
      }
    },
    /** The reason for a pause; undefined: these blocks are not enough. */
    countBlock({ ip, isp, reason, isRule }: BlockNote): string | undefined {
      const known = registry.find(ip)
      if (known?.record.state !== 'warming' || !known.curve.curve.pause.on_block) return undefined
      const now = clock.now()
      const recent = [...(blocks.get(ip) ?? []).filter((at) => at > now - HOUR), now].slice(-BLOCKS_THAT_PAUSE)
      blocks.set(ip, recent)
      return isRule || recent.length >= BLOCKS_THAT_PAUSE ? `block: ${isp}: ${reason}` : undefined
    },
  }
}
