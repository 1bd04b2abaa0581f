/**
 * The passing days of an IP: those that are over are closed, and an IP that was idle for long warms up again
 * (egress/README.md "Warmup days" and "Gates"). Nothing happens while the clock has just jumped. Rejects when the store
 * does.
 */
import { dayAfter, utcDay } from '../../base/utc-day.ts'
import type { IpRecord } from '../../store/records/warmup-records.ts'
import type { KnownIp } from '../ips/known-ip.ts'
import { stageWithin } from '../warmup/warmup-curve.ts'
import { closeDays, firstOpenDay } from '../warmup/warmup-days.ts'
import { canMove } from '../warmup/warmup-states.ts'
import type { IpParts } from '../ips/allowance.ts'

/** Days with mail among which the best one says where an idle IP begins again. */
const DAYS_LOOKED_AT = 30
const SHARE_OF_BEST_DAY = 0.5
/** Audit rows of the open days: more than an IP can move in them. */
const AUDIT_ROWS = 500

export function createDayClosing({ configuration, registry, store, clock, isClockSteady }: IpParts) {
  /** IP -> UTC day of the last look at its idle time. */
  const idleLooks = new Map<string, string>()

  /** Where an IP begins that was idle for long; undefined: it was not. */
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

  async function rewarm(address: string, stage: number): Promise<void> {
    await registry.move(address, ({ targetDailyVolume }, { curve }) => {
      const changes = { ...beginAt(curve.name, stage, clock.now()), targetDailyVolume }
      const reason = 'idle: no mail for so long that receivers forgot it'
      return { action: 'rewarm', actor: 'clock', reason, changes }
    })
  }

  return {
    rewarmStage,
    async close(known: KnownIp): Promise<void> {
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
    },
    async rewarmIdle(known: KnownIp): Promise<void> {
      const { address, pool } = known.ip
      const today = utcDay(clock.now())
      if (idleLooks.get(address) === today || !isClockSteady()) return
      const isLenient = configuration.current().pools.pools[pool]?.require_warmup === false
      if (canMove(known.record, 'rewarm') && !isLenient) {
        const stage = await rewarmStage(known)
        if (stage !== undefined) await rewarm(address, stage)
      }
      idleLooks.set(address, today)
    },
  }
}

/** Fields of a record that begins to warm up at this stage now. */
export function beginAt(curve: string, stage: number, now: number): Partial<IpRecord> {
  return {
    curve,
    stage,
    startedAt: now,
    holdReason: null,
    daysHeld: 0,
    daysAtTarget: 0,
    // Today is its first day; a day that was closed before stays closed.
    closedDay: dayAfter(utcDay(now), -1),
  }
}
