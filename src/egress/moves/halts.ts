/** Suspensions of an IP, and the ends of pauses and suspensions: one timer on the earliest end of all IPs. */
import type { IpRecord } from '../../store/records/warmup-records.ts'
import { auditRow, canMove, moveIp, type MovedIp } from '../warmup/warmup-states.ts'
import type { IpParts } from '../ips/ip-parts.ts'

interface IpSuspension {
  /** null: until somebody resumes it. */
  until: number | null
  reason: string
  actor: string
  /** Receivers brought it about: it is told. */
  isBlock: boolean
}

export interface Halts {
  suspend(ip: string, suspension: IpSuspension): Promise<void>
  /** Ends what has ended. */
  end(): Promise<void>
  startTimer(): void
  stopTimer(): void
}

/** `onEnd`: the time of one is over, and `end` is to be called. */
export function createHalts({ registry, clock }: IpParts, onEnd: () => void): Halts {
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
    async suspend(ip, suspension) {
      await registry.change(ip, (record, { ip: { pool } }) => suspended(record, pool, suspension, clock.now()))
    },
    async end() {
      for (const { ip } of registry.known()) {
        await registry.change(ip.address, (record) => {
          if (record.until === null || record.until > clock.now()) return null
          const action = record.state === 'paused' ? 'resume' : 'unsuspend'
          if (!canMove(record, action)) return null
          return moveIp(record, ip.pool, { action, now: clock.now(), actor: 'clock', reason: null })
        })
      }
    },
    startTimer() {
      isRunning = true
      armTimer()
    },
    stopTimer() {
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
