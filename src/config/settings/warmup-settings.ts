/**
 * `warmup.yaml`: curves, smoothing and gates (config/README.md "warmup.yaml", egress/README.md "Warmup"). Each curve
 * comes out whole: its stages, and every default it does not override.
 */
import { z } from 'zod'
import { DAY, HOUR } from '../../base/clock.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import { boolean, choice, count, decimal, duration, durationOr, integer, share } from './field-types.ts'
import { accepted, field, named, refused, section, shown, type Reading } from './reading.ts'
import { readCurveName } from './pool-settings.ts'

const MOST_STAGES = 120
/** 10,000 messages a second for a whole day: more is a slip of the hand. */
const LARGEST_STAGE = 864_000_000
const MINUTES_OF_A_DAY = 1_440

/** What holds for every curve unless the curve says otherwise. */
const settings = {
  target_daily_volume: count.default(100_000),
  active_window: field(readActiveWindow).default({ from_minute: 0, to_minute: MINUTES_OF_A_DAY }),
  smoothing: section({
    burst_fraction: share().default(0.02),
    min_burst: count.default(5),
    max_burst: count.default(500),
    hourly_fraction: share().default(0.125),
  }).prefault({}),
  provider_share: z
    .object({
      gmail: share().default(0.5),
      outlook: share().default(0.35),
      yahoo: share().default(0.3),
      icloud: share().default(0.2),
      default: share().default(0.35),
      min: integer({ min: 0 }).default(5),
    })
    .catchall(share())
    .prefault({}),
  new_ip: section({
    until_stage: integer({ min: 0, max: MOST_STAGES }).default(10),
    connections: count.default(2),
    messages_per_connection: count.default(10),
  }).prefault({}),
  advance: section({
    min_utilization: share().default(0.5),
    min_events: integer({ min: 0 }).default(20),
    min_delivery_rate: share().default(0.95),
  }).prefault({}),
  hold: section({
    hard_bounce: share().default(0.03),
    complaint: share().default(0.001),
    deferral: share().default(0.15),
    min_count: count.default(2),
  }).prefault({}),
  demote: section({
    hard_bounce: share().default(0.05),
    complaint: share().default(0.003),
    deferral: share().default(0.3),
    min_count: count.default(3),
    stages: integer({ min: 1, max: MOST_STAGES }).default(2),
  }).prefault({}),
  pause: section({
    hard_bounce: share().default(0.1),
    complaint: share().default(0.005),
    on_block: boolean.default(true),
    min_events: integer({ min: 0 }).default(50),
    min_count: count.default(3),
    for: duration().default(4 * HOUR),
    max: duration().default(24 * HOUR),
  }).prefault({}),
  idle_rewarm_after: durationOr('never').default(30 * DAY),
  stall: section({ days: count.default(10), action: choice(['hold', 'complete']).default('hold') }).prefault({}),
}

const LARGEST_FACTOR = 10

export const warmupSchema = section({
  version: choice([1]),
  curves: named(
    readCurveName,
    section({
      stages: z
        .array(integer({ min: 1, max: LARGEST_STAGE }))
        .min(1)
        .max(MOST_STAGES)
        .optional(),
      formula: section({
        start: integer({ min: 1, max: LARGEST_STAGE }),
        factor: decimal({ min: 1, max: LARGEST_FACTOR }),
        max: integer({ min: 1, max: LARGEST_STAGE }),
      }).optional(),
      ...settings,
    }),
  ),
  defaults: section({ curve: field(readCurveName).default('standard'), ...settings }).prefault({}),
})

type ParsedWarmupSettings = z.infer<typeof warmupSchema>

type ParsedCurve = ParsedWarmupSettings['curves'][string]

export interface WarmupCurve extends Omit<ParsedCurve, 'stages' | 'formula'> {
  /** Messages per UTC day and IP, one number per stage. */
  stages: number[]
}

export interface WarmupSettings extends Omit<ParsedWarmupSettings, 'curves'> {
  /** Without a prototype, so that no name finds what is not a curve. */
  curves: Record<string, WarmupCurve>
}

export function resolveWarmupSettings(parsed: ParsedWarmupSettings): WarmupSettings {
  const curves: Record<string, WarmupCurve> = Object.create(null)
  for (const [name, curve] of Object.entries(parsed.curves)) {
    const { formula, stages, ...rest } = curve
    curves[name] = { ...rest, stages: stages ?? (formula === undefined ? [] : expandFormula(formula)) }
  }
  return { ...parsed, curves }
}

/**
 * The YAML value with what `defaults` says put into each curve that does not say it itself, before the schema fills
 * what neither says. Values of any form are taken; the schema judges them.
 */
export function inheritWarmupDefaults(value: unknown): unknown {
  if (!isPlainObject(value) || !isPlainObject(value['curves']) || !isPlainObject(value['defaults'])) return value
  const inherited = Object.entries(value['defaults']).filter(([key]) => key in settings)
  const curves = Object.entries(value['curves']).map(([name, curve]) => [name, underlay(curve, inherited)])
  return { ...value, curves: Object.fromEntries(curves) }
}

function underlay(value: unknown, inherited: [string, unknown][]): unknown {
  if (!isPlainObject(value)) return value
  const whole: Record<string, unknown> = { ...value }
  for (const [key, below] of inherited) {
    whole[key] =
      key in value && isPlainObject(below) ? underlay(value[key], Object.entries(below)) : (value[key] ?? below)
  }
  return whole
}

/** The hours of a UTC day over which its allowance is spread, as minutes since midnight. */
function readActiveWindow(value: unknown): Reading<{ from_minute: number; to_minute: number }> {
  // Two times of a day with a hyphen; 24:00 is midnight at the end.
  const match = /^(\d\d):([0-5]\d)-(\d\d):([0-5]\d)$/.exec(typeof value === 'string' ? value : '')
  const [, fromHour, fromMinute, toHour, toMinute] = (match ?? []).map(Number)
  const window = {
    from_minute: (fromHour ?? NaN) * 60 + (fromMinute ?? NaN),
    to_minute: (toHour ?? NaN) * 60 + (toMinute ?? NaN),
  }
  const { from_minute, to_minute } = window
  if (from_minute < to_minute && to_minute <= MINUTES_OF_A_DAY) return accepted(window)
  return refused(`${shown(value)} is not a part of a UTC day; write for example "06:00-22:00"`)
}

/**
 * A curve from three numbers (egress/README.md "Curves"): stage n is `min(max, round(start × factor^(n−1)))`, rounded
 * to two significant digits, until `max` is reached, or MOST_STAGES.
 */
export function expandFormula({ start, factor, max }: NonNullable<ParsedCurve['formula']>): number[] {
  const stages: number[] = []
  for (let exponent = 0; exponent < MOST_STAGES; exponent++) {
    const exact = Math.round(start * factor ** exponent)
    // Rounding up may lead above the maximum.
    const stage = exact >= max ? max : Math.min(max, Number(exact.toPrecision(2)))
    stages.push(stage)
    if (stage === max) break
  }
  return stages
}
