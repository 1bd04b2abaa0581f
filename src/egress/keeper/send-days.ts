/**
 * The daily volume of an IP: what its warmup allowed or will allow, and what it sent. Pure.
 *
 * Days are UTC dates. The days ahead assume that every gate passes; a day without a limit has no plan.
 */
import { dayAfter, utcDay } from '../../base/utc-day.ts'
import type { WarmupCurve } from '../../config/settings/warmup-settings.ts'
import type { WarmupDay } from '../../store/records/warmup-records.ts'
import type { WarmupView } from '../ips/ip-view.ts'
import { capOf, targetStageOf } from '../warmup/warmup-curve.ts'

export interface SendDay {
  /** UTC date. */
  date: string
  /** Messages that the warmup allows; null: nothing limits it, or nothing was sent by then. */
  planned: number | null
  /** Messages that it sent; null: the day is still to come. */
  sent: number | null
}

export interface SendDayParts {
  /** The warmup as it is now; null: none. */
  warmup: WarmupView | null
  /** Of the warmup; null: none. */
  curve: WarmupCurve | null
  /** Rows of all isps together count. */
  warmupDays: readonly WarmupDay[]
  /** Messages by UTC date; a day that is missing had none. */
  sentDays: readonly { day: string; messages: number }[]
  now: number
  /** Days until today, itself included; at least 1. */
  past: number
  ahead: number
}

const TOGETHER = '*'

export function sendDays(parts: SendDayParts): SendDay[] {
  const { warmupDays, sentDays, now, past, ahead } = parts
  const today = utcDay(now)
  const caps = new Map(warmupDays.filter(({ isp }) => isp === TOGETHER).map(({ day, cap }) => [day, cap]))
  const sent = new Map(sentDays.map(({ day, messages }) => [day, messages]))
  const offsets = Array.from({ length: past + ahead }, (_, index) => index - past + 1)
  return offsets.map((offset) => {
    const date = dayAfter(today, offset)
    if (offset > 0) return { date, planned: plannedIn(parts, offset), sent: null }
    const planned = caps.get(date) ?? (offset === 0 ? plannedIn(parts, 0) : null)
    return { date, planned, sent: sent.get(date) ?? 0 }
  })
}

/** So many days from today on; behind the end of the ramp its last cap stands. */
function plannedIn({ warmup, curve }: SendDayParts, offset: number): number | null {
  if (warmup === null || curve === null || warmup.dailyLimit === null) return null
  const last = targetStageOf(curve, warmup.targetDailyVolume)
  return capOf(curve, Math.max(warmup.stage, Math.min(warmup.stage + offset, last)))
}
