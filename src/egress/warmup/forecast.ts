/**
 * When a number of messages would have left, under caps, provider shares and the backlog before them (egress/README.md
 * "Forecast"). Pure. A day is taken to spread its mail evenly, within the hourly limit.
 */
import { DAY, HOUR } from '../../base/clock.ts'
import { dayAfter, startOfUtcDay, utcDay } from '../../base/utc-day.ts'
import type { WarmupCurve } from '../../config/settings/warmup-settings.ts'
import type { IpRecord } from '../../store/records/warmup-records.ts'
import { ALL_ISPS, capOf, hourlyLimitOf, providerCapOf, targetOf, targetStageOf, windowOf } from './warmup-curve.ts'
import { HEALTHY_DAYS_AT_TARGET } from './warmup-days.ts'

/** Of which no provider is known: bound by what holds for all together. */
export const ANY_ISP = ALL_ISPS

export interface ForecastIp {
  ip: string
  availableFrom: number
  /** Messages per millisecond once it needs no allowance. */
  rate: number
  /** null: it needs none now. */
  ramp: ForecastRamp | null
}

export interface ForecastRamp {
  curve: WarmupCurve
  stage: number
  /** Messages a day at which the ramp ends. */
  target: number
  daysAtTarget: number
  /** What is used of the first day, by isp and under ANY_ISP of all. */
  granted: ReadonlyMap<string, number>
}

export interface ForecastRequest {
  now: number
  ips: readonly ForecastIp[]
  /** By isp: goes first. */
  backlog: Readonly<Record<string, number>>
  asked: Readonly<Record<string, number>>
  startsAt: number
  /** Only what is left of the allowance counts: the hourly limit does not keep it from what is left of a day. */
  isHourFree?: boolean
}

interface ForecastDay {
  date: string
  ip: string
  /** null: no stage holds it any more. */
  stage: number | null
  /** The cap of the stage, or what the rates allow. */
  dailyLimit: number
  /** Messages, those of the backlog included. */
  planned: number
  /** What held more of them back: `cap`, `share:<isp>`, `rate`; null: nothing. */
  boundBy: string | null
}

export interface Forecast {
  days: ForecastDay[]
  /** When the first and the last of the asked ones start, and when all have left; null: not within 400 days. */
  firstStartAt: number | null
  lastStartAt: number | null
  finishAt: number | null
}

const MOST_DAYS = 400
type Demand = Map<string, number>

export function forecast(request: ForecastRequest): Forecast {
  const { startsAt } = request
  const backlog: Demand = new Map(Object.entries(request.backlog))
  const asked: Demand = new Map(Object.entries(request.asked))
  const ips = request.ips.map((ip) => ({ ...ip }))
  const result: Forecast = { days: [], firstStartAt: null, lastStartAt: null, finishAt: null }
  const today = utcDay(request.now)
  for (let count = 0; count < MOST_DAYS && sizeOf(asked) > 0; count++) {
    const day = dayAfter(today, count)
    for (const ip of ips) {
      const room = roomOf(ip, day, request)
      const early = planInto(room, backlog)
      const isOpen = startsAt < startOfUtcDay(day) + DAY
      const late = isOpen ? planInto(room, asked) : 0
      if (late > 0) noteStarts(result, room, { early, late, startsAt }, [...asked.keys()])
      const planned = early + late
      const left = sizeOf(backlog) + (isOpen ? sizeOf(asked) : 0)
      const limits = { stage: ip.ramp?.stage ?? null, dailyLimit: room.limit }
      const held = left === 0 ? null : boundBy(room, [backlog, asked])
      result.days.push({ date: day, ip: ip.ip, ...limits, planned, boundBy: held })
      ip.ramp = rampAfter(ip, room, planned)
    }
  }
  return sizeOf(asked) > 0 ? { ...result, lastStartAt: null, finishAt: null } : result
}

export function rampOf(
  { stage, targetDailyVolume, daysAtTarget }: IpRecord,
  curve: WarmupCurve,
  granted: ForecastRamp['granted'] = new Map(),
): ForecastRamp {
  return { curve, stage: stage ?? 1, target: targetOf(curve, targetDailyVolume), daysAtTarget, granted }
}

interface Room {
  from: number
  /** Milliseconds in which it is sent. */
  window: number
  /** The whole day's limit, and how much of it is there. */
  limit: number
  capacity: number
  left: number
  leftOf(isp: string): number
  take(isp: string, count: number): void
  /** How far into the window the pace of an isp's share brings what was taken, but for the last ones: 0 to 1. */
  shareUsed(isp: string, leftOut: number): number
  used: number
  /** Not the cap, but the time that is left. */
  isByRate: boolean
}

function roomOf(ip: ForecastIp, day: string, { now, isHourFree = false }: ForecastRequest): Room {
  const { ramp } = ip
  const whole = ramp === null ? { from: startOfUtcDay(day), to: startOfUtcDay(day) + DAY } : windowOf(ramp.curve, day)
  const from = Math.min(whole.to, Math.max(whole.from, now, ip.availableFrom))
  const window = whole.to - from
  const rated = window === 0 ? 0 : Math.floor(ip.rate * window)
  const limit = ramp === null ? rated : capOf(ramp.curve, ramp.stage)
  const isFirst = day === utcDay(now)
  const grantedOf = (isp: string): number => (isFirst ? (ramp?.granted.get(isp) ?? 0) : 0)
  // Late on a day the rolling hour leaves less than the day does.
  const hourly = ramp === null || isHourFree ? Infinity : Math.ceil((hourlyLimitOf(ramp.curve, limit) * window) / HOUR)
  const capacity = Math.max(0, Math.min(rated, hourly, limit - grantedOf(ANY_ISP)))
  const taken = new Map<string, number>()
  /** Of the isp at the beginning. */
  const shareOf = (isp: string): number =>
    ramp === null || isp === ANY_ISP ? capacity : providerCapOf(ramp.curve, limit, isp) - grantedOf(isp)
  const room: Room = {
    from,
    window,
    limit,
    capacity,
    left: capacity,
    used: grantedOf(ANY_ISP),
    isByRate: ramp === null || capacity < limit - grantedOf(ANY_ISP),
    leftOf: (isp) => Math.max(0, Math.min(room.left, shareOf(isp) - (taken.get(isp) ?? 0))),
    take(isp, count) {
      taken.set(isp, (taken.get(isp) ?? 0) + count)
      room.left -= count
    },
    shareUsed: (isp, leftOut) => (isp === ANY_ISP ? 0 : ((taken.get(isp) ?? 0) - leftOut) / Math.max(1, shareOf(isp))),
  }
  return room
}

/** Each isp gets its part of what it wants; what is left goes to those that want more. Returns how many. */
function planInto(room: Room, demand: Demand): number {
  const wants = [...demand].map(([isp, count]) => ({ isp, count: Math.min(count, room.leftOf(isp)) }))
  const sum = wants.reduce((total, { count }) => total + count, 0)
  const share = sum === 0 ? 0 : Math.min(1, room.left / sum)
  let planned = 0
  const give = (isp: string, count: number): void => {
    if (count <= 0) return
    room.take(isp, count)
    demand.set(isp, (demand.get(isp) ?? 0) - count)
    planned += count
  }
  for (const { isp, count } of wants) give(isp, Math.floor(count * share))
  for (const [isp, count] of demand) give(isp, Math.min(count, room.leftOf(isp)))
  return planned
}

/** A day spreads the mail of each isp over its window too: it may leave later than the cap of all says. */
function noteStarts(
  result: Forecast,
  room: Room,
  { early, late, startsAt }: { early: number; late: number; startsAt: number },
  isps: readonly string[],
): void {
  const { from, window, capacity } = room
  const timeAt = (part: number): number => Math.max(startsAt, Math.round(from + window * part))
  /** When all of them but the last ones have left. */
  const without = (leftOut: number): number =>
    timeAt(Math.max((early + late - leftOut) / capacity, ...isps.map((isp) => room.shareUsed(isp, leftOut))))
  result.firstStartAt = Math.min(result.firstStartAt ?? Infinity, timeAt(early / capacity))
  result.lastStartAt = Math.max(result.lastStartAt ?? 0, without(1))
  result.finishAt = Math.max(result.finishAt ?? 0, without(0))
}

function boundBy(room: Room, demands: readonly Demand[]): string | null {
  if (room.left <= 0) return room.isByRate ? 'rate' : 'cap'
  const held = demands.flatMap((demand) => [...demand]).find(([isp, count]) => count > 0 && room.leftOf(isp) === 0)
  return held === undefined ? null : `share:${held[0]}`
}

function rampAfter({ ramp, availableFrom }: ForecastIp, room: Room, planned: number): ForecastRamp | null {
  if (ramp === null) return null
  const sent = room.used + planned
  const { min_utilization, min_events } = ramp.curve.advance
  // A pause within the day holds the stage.
  const isPaused = room.window === 0 || availableFrom >= room.from
  const isAdvancing = !isPaused && sent >= room.limit * min_utilization && sent >= min_events
  const isLast = ramp.stage >= ramp.curve.stages.length
  if (isLast && isAdvancing) return null
  if (isLast || ramp.stage >= targetStageOf(ramp.curve, ramp.target)) {
    const daysAtTarget = ramp.daysAtTarget + (sent > 0 && !isPaused ? 1 : 0)
    return daysAtTarget >= HEALTHY_DAYS_AT_TARGET ? null : { ...ramp, daysAtTarget }
  }
  return isAdvancing ? { ...ramp, stage: ramp.stage + 1 } : ramp
}

function sizeOf(demand: Demand): number {
  return [...demand.values()].reduce((sum, count) => sum + count, 0)
}
