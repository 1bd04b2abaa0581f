/**
 * From a curve and a stage to what an IP may send on a day (egress/README.md "Curves" and "Provider shares"). Pure. The
 * day is the UTC date, written YYYY-MM-DD. A stage beyond the end of a curve, which a changed file can bring, counts as
 * its last one.
 */
import { MINUTE } from '../../base/clock.ts'
import { startOfUtcDay } from '../../base/utc-day.ts'
import type { WarmupCurve, WarmupSettings } from '../../config/settings/warmup-settings.ts'
import { hourlyLimit, roundUp } from '../../store/allowance-decision.ts'
import type { AllowanceRule } from '../../store/records/warmup-records.ts'

export interface NamedCurve {
  name: string
  curve: WarmupCurve
}

/** isp of the rows and counts for all together. */
export const ALL_ISPS = '*'
/** Keys of `provider_share` that name no isp. */
const OWN_SHARE_KEYS = ['default', 'min']

/** The first of these names that warmup.yaml knows; else that of its defaults. Without curves nothing is allowed. */
export function findCurve(settings: WarmupSettings, names: readonly (string | null)[]): NamedCurve {
  for (const name of [...names, settings.defaults.curve, ...Object.keys(settings.curves)]) {
    const curve = name === null ? undefined : settings.curves[name]
    if (name !== null && curve !== undefined) return { name, curve }
  }
  const { curve: name, ...defaults } = settings.defaults
  return { name, curve: { ...defaults, stages: [] } }
}

export function capOf({ stages }: WarmupCurve, stage: number): number {
  return stages[Math.min(Math.max(stage, 1), stages.length) - 1] ?? 0
}

/** The ceiling of one isp: ceilings may add up to more than the cap. */
export function providerCapOf({ provider_share: shares }: WarmupCurve, cap: number, isp: string): number {
  const share = OWN_SHARE_KEYS.includes(isp) ? undefined : shares[isp]
  return Math.min(cap, Math.max(shares.min, roundUp(cap * (share ?? shares.default))))
}

export function hourlyLimitOf({ smoothing }: WarmupCurve, cap: number): number {
  return hourlyLimit(cap, smoothing.hourly_fraction)
}

/** What the store makes the rows of a day from. */
export function allowanceRule(curve: WarmupCurve, stage: number, day: string): AllowanceRule {
  const cap = capOf(curve, stage)
  const isps = Object.keys(curve.provider_share).filter((isp) => !OWN_SHARE_KEYS.includes(isp))
  const { from, to } = windowOf(curve, day)
  const { smoothing } = curve
  return {
    day,
    cap,
    providerCaps: Object.fromEntries(isps.map((isp) => [isp, providerCapOf(curve, cap, isp)])),
    defaultProviderCap: providerCapOf(curve, cap, 'default'),
    windowFrom: from,
    windowTo: to,
    burstFraction: smoothing.burst_fraction,
    minBurst: smoothing.min_burst,
    maxBurst: smoothing.max_burst,
    hourlyFraction: smoothing.hourly_fraction,
  }
}

/** The part of the day in which allowance is given out. */
export function windowOf({ active_window }: WarmupCurve, day: string): { from: number; to: number } {
  const start = startOfUtcDay(day)
  return { from: start + active_window.from_minute * MINUTE, to: start + active_window.to_minute * MINUTE }
}

/** Where the ramp ends: what the start asked for, else the file, but no more than the curve has. */
export function targetOf(curve: WarmupCurve, asked: number | null): number {
  return asked ?? Math.min(curve.target_daily_volume, capOf(curve, curve.stages.length))
}

/** The first stage that allows the target; the last one when none does. */
export function targetStageOf(curve: WarmupCurve, target: number): number {
  const index = curve.stages.findIndex((cap) => cap >= target)
  return index === -1 ? curve.stages.length : index + 1
}

/** The highest stage whose cap is not above this volume; at least 1. */
export function stageWithin({ stages }: WarmupCurve, volume: number): number {
  const above = stages.findIndex((cap) => cap > volume)
  return Math.max(1, above === -1 ? stages.length : above)
}
