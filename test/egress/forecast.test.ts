/**
 * Curves and what follows from them; the forecast with the examples of the design.
 */
import t from 'tap'
import { DAY, HOUR } from '../../src/base/clock.ts'
import type { WarmupCurve } from '../../src/config/settings/warmup-settings.ts'
import {
  ANY_ISP,
  forecast,
  type Forecast,
  type ForecastRamp,
  type ForecastRequest,
} from '../../src/egress/warmup/forecast.ts'
import {
  allowanceRule,
  capOf,
  hourlyLimitOf,
  providerCapOf,
  stageWithin,
  targetStageOf,
} from '../../src/egress/warmup/warmup-curve.ts'
import { burstOf, hourlyLimit, roundUp } from '../../src/store/allowance-decision.ts'
import { MIDNIGHT, shipped } from './egress-parts.ts'

function curveNamed(name: string): WarmupCurve {
  const curve = shipped.warmup.curves[name]
  if (curve === undefined) throw new Error(`the shipped files have a curve called ${name}`)
  return curve
}
const standard = curveNamed('standard')

t.test('limits of a cap', async (t) => {
  const isps = ['gmail', 'outlook', 'yahoo', 'icloud', 'example.net', 'min', 'default']
  const rows: [number, number, number, number[]][] = [
    [50, 5, 7, [25, 18, 15, 10, 18, 18, 18]],
    [500, 10, 63, [250, 175, 150, 100, 175, 175, 175]],
    [1_000, 20, 125, [500, 350, 300, 200, 350, 350, 350]],
    [10_000, 200, 1_250, [5_000, 3_500, 3_000, 2_000, 3_500, 3_500, 3_500]],
    [100_000, 500, 12_500, [50_000, 35_000, 30_000, 20_000, 35_000, 35_000, 35_000]],
    // The least of a provider is never above the cap itself.
    [4, 5, 5, [4, 4, 4, 4, 4, 4, 4]],
  ]
  for (const [cap, burst, hourly, shares] of rows) {
    t.equal(burstOf(cap, allowanceRule(standard, 1, '2026-11-21')), burst, `burst of ${cap}`)
    t.equal(hourlyLimitOf(standard, cap), hourly, `hour of ${cap}`)
    t.same(
      isps.map((isp) => providerCapOf(standard, cap, isp)),
      shares,
      `shares of ${cap}`,
    )
  }
  t.same([hourlyLimit(100, 0.07), roundUp(100 * 0.07)], [7, 7], 'fractions of ten are not exact in binary')
  const sevenPercent = { ...standard, provider_share: { ...standard.provider_share, gmail: 0.07 } }
  t.equal(providerCapOf(sevenPercent, 100, 'gmail'), 7, 'no cent of binary fractions on top')
})

t.test('stages of the shipped curves', async (t) => {
  const sums: [string, number, number][] = [
    ['standard', 30, 736_450],
    ['conservative', 45, 588_720],
    ['fast', 20, 4_478_700],
  ]
  for (const [name, stages, sum] of sums) {
    const curve = curveNamed(name)
    t.equal(curve.stages.length, stages)
    t.equal(
      curve.stages.reduce((total, stage) => total + stage, 0),
      sum,
    )
  }
  t.same(
    [0, 1, 3, 30, 31].map((stage) => capOf(standard, stage)),
    [50, 50, 200, 100_000, 100_000],
  )
  t.same(
    [0, 49, 50, 99, 100, 250, 1e9].map((volume) => stageWithin(standard, volume)),
    [1, 1, 1, 1, 2, 3, 30],
  )
  t.same(
    [1, 50, 51, 5_000, 1e9].map((target) => targetStageOf(standard, target)),
    [1, 1, 2, 12, 30],
  )
})

t.test('the rule of a day', async (t) => {
  const curve = { ...standard, active_window: { from_minute: 6 * 60, to_minute: 22 * 60 } }
  t.match(allowanceRule(curve, 3, '2026-11-21'), {
    day: '2026-11-21',
    cap: 200,
    providerCaps: { gmail: 100, outlook: 70 },
    defaultProviderCap: 70,
    windowFrom: MIDNIGHT + 6 * HOUR,
    windowTo: MIDNIGHT + 22 * HOUR,
    hourlyFraction: 0.125,
  })
})

const ramp = (changes: Partial<ForecastRamp> = {}): ForecastRamp => ({
  curve: standard,
  stage: 1,
  target: 100_000,
  daysAtTarget: 0,
  granted: new Map(),
  ...changes,
})

const forecastOf = (asked: Record<string, number>, changes: Partial<ForecastRequest> = {}): Forecast =>
  forecast({
    now: MIDNIGHT,
    ips: [{ ip: '192.0.2.1', availableFrom: 0, rate: Infinity, ramp: ramp() }],
    backlog: {},
    asked,
    startsAt: MIDNIGHT,
    ...changes,
  })

const planned = ({ days }: Forecast): number[] => days.map((day) => day.planned)
/** The day of the finish, the first one being 1. */
const finishDay = ({ finishAt }: Forecast): number => Math.ceil(((finishAt ?? NaN) - MIDNIGHT) / DAY)

t.test('campaigns on a fresh IP', async (t) => {
  const thousand = forecastOf({ [ANY_ISP]: 1_000 })
  t.same(planned(thousand), [50, 100, 200, 350, 300])
  t.equal(thousand.finishAt, MIDNIGHT + 4.6 * DAY)
  t.equal(thousand.firstStartAt, MIDNIGHT)
  t.same(
    thousand.days.map(({ boundBy }) => boundBy),
    ['cap', 'cap', 'cap', 'cap', null],
  )
  t.equal(finishDay(forecastOf({ [ANY_ISP]: 10_000 })), 11)
  t.equal(finishDay(forecastOf({ [ANY_ISP]: 42_000 })), 15)
  const gmail = forecastOf({ gmail: 29_400, [ANY_ISP]: 12_600 })
  t.equal(finishDay(gmail), 17)
  t.equal(gmail.days.at(-2)?.boundBy, 'share:gmail')
})

t.test('the backlog goes first, and takes nothing from another provider than its own', async (t) => {
  const behind = forecastOf({ [ANY_ISP]: 50 }, { backlog: { [ANY_ISP]: 50 } })
  t.equal(behind.firstStartAt, MIDNIGHT + DAY)
  t.equal(behind.finishAt, MIDNIGHT + 1.5 * DAY)
  const beside = forecastOf({ [ANY_ISP]: 25 }, { backlog: { gmail: 500 } })
  t.equal(beside.firstStartAt, MIDNIGHT + 0.5 * DAY, 'gmail may use half of the day')
  t.equal(beside.finishAt, MIDNIGHT + DAY)
})

t.test('what is used of today counts, and a day that used half advances', async (t) => {
  const used = (granted: number): Forecast =>
    forecastOf(
      { [ANY_ISP]: 100 },
      {
        now: MIDNIGHT + DAY / 2,
        startsAt: MIDNIGHT + DAY / 2,
        ips: [{ ip: 'a', availableFrom: 0, rate: Infinity, ramp: ramp({ granted: new Map([[ANY_ISP, granted]]) }) }],
      },
    )
  t.same(planned(used(50)), [0, 100])
  t.same(planned(used(40)), [10, 90])
  t.equal(used(50).firstStartAt, MIDNIGHT + DAY)
  t.equal(used(40).firstStartAt, MIDNIGHT + DAY / 2)
})

t.test('late on a day the hourly limit leaves less than the day does', async (t) => {
  const evening = { now: MIDNIGHT + 20 * HOUR, startsAt: MIDNIGHT + 20 * HOUR }
  const late = forecastOf({ [ANY_ISP]: 50 }, evening)
  t.same(planned(late), [28, 22], '7 an hour')
  t.match(late.days[0], { boundBy: 'rate' })
  t.same(planned(forecastOf({ [ANY_ISP]: 50 }, { ...evening, isHourFree: true })), [50])
})

t.test('pauses, windows, targets, several IPs, IPs without a cap', async (t) => {
  const one = (changes: Partial<ForecastRamp>, availableFrom = 0): ForecastRequest['ips'][number] => ({
    ip: '192.0.2.1',
    availableFrom,
    rate: Infinity,
    ramp: ramp(changes),
  })
  const paused = forecastOf({ [ANY_ISP]: 60 }, { ips: [one({}, MIDNIGHT + DAY + DAY / 4)] })
  t.same(planned(paused), [0, 50, 10], 'a day with a pause does not advance')
  t.equal(paused.firstStartAt, MIDNIGHT + 1.25 * DAY)
  t.equal(forecastOf({ [ANY_ISP]: 1 }, { ips: [one({}, Infinity)] }).finishAt, null)
  t.equal(forecastOf({ [ANY_ISP]: 1 }, { ips: [] }).finishAt, null)
  const curve = { ...standard, active_window: { from_minute: 720, to_minute: 1_440 } }
  t.equal(forecastOf({ [ANY_ISP]: 25 }, { ips: [one({ curve })] }).finishAt, MIDNIGHT + 0.75 * DAY)
  const atTarget = forecastOf({ [ANY_ISP]: 1_000 }, { ips: [one({ target: 100 })] })
  t.same(planned(atTarget), [50, 100, 100, 100, 650], 'three days at the target, then no cap')
  t.same(planned(forecastOf({ [ANY_ISP]: 120 }, { ips: [one({}), { ...one({}), ip: '192.0.2.2' }] })), [50, 50, 20, 0])
  const rated = forecastOf({ [ANY_ISP]: 150 }, { ips: [{ ...one({}), ramp: null, rate: 100 / DAY }] })
  t.same(planned(rated), [100, 50])
  t.equal(rated.days[0]?.boundBy, 'rate')
  const later = forecastOf({ [ANY_ISP]: 10 }, { startsAt: MIDNIGHT + 1.5 * DAY, backlog: { [ANY_ISP]: 30 } })
  t.equal(later.firstStartAt, MIDNIGHT + 1.5 * DAY, 'what was there before has left by then')
})
