/**
 * Before acceptance: whether mail can start within policy, and when. The four cases of ip_not_warmed are those of
 * egress/README.md "Overflow and refusal". A pause without an end predicts nothing: mail that waits for it is accepted,
 * but where the request named the pool or the pool rejects. All from counters in memory; never throws.
 */
import { HOUR, SECOND } from '../../base/clock.ts'
import { dayAfter, startOfUtcDay, utcDay } from '../../base/utc-day.ts'
import type { EgressIp, Projection, ProjectionRequest, RefusalDetails } from './egress-ip.ts'
import { ANY_ISP, forecast, rampOf, type Forecast, type ForecastIp } from '../warmup/forecast.ts'
import type { IpRegistry } from './ip-registry.ts'
import type { IpPicker, Tiers } from './pick-ip.ts'
import type { IpParts } from './allowance.ts'
import type { EgressOutside } from './outside.ts'

type Project = (request: ProjectionRequest) => Projection

/** Nothing is known of the time: somebody has to act. */
const RETRY_WHEN_UNKNOWN = HOUR

const RETRY_WHEN_UNAVAILABLE = 60 * SECOND

/** Plans and counts (egress/README.md "Overflow and refusal"). */
const KEPT_FOR = SECOND

const MOST_PLANS = 100

export function createProjector(parts: IpParts & { picker: IpPicker; backlog: PoolBacklog }): Project {
  const { configuration, picker, clock } = parts
  const planFor = createPlanner(parts.registry)

  function refuse(state: PoolState, text: string, retryAfter: number): Projection {
    return refusal('ip_not_warmed', state, text, retryAfter)
  }

  /** Only warming and paused IPs are there. */
  function projectWarming(request: ProjectionRequest, state: PoolState): Projection {
    const { tiers, maxDefer, now, isRejecting } = state
    const startsAt = Math.max(now, request.startsAt)
    if (request.isRequested && tiers.warming.length === 0) {
      const wait = Math.min(...tiers.paused.map(({ until }) => until ?? Infinity)) - startsAt
      const retryAfter = Number.isFinite(wait) ? wait - maxDefer : RETRY_WHEN_UNKNOWN
      if (wait > maxDefer) return refuse(state, `all its IPs are paused for longer than ${hours(maxDefer)}`, retryAfter)
    }
    if (!configuration.current().pools.warmup_streams.includes(request.stream)) {
      const text = `its warming IPs take no ${request.stream} mail (warmup_streams of pools.yaml)`
      return refuse(state, text, RETRY_WHEN_UNKNOWN)
    }
    const isNow = request.startsAt <= now && hopeOf(state, parts) >= state.backlog + request.count
    if (isNow) return { kind: 'ok', startsAt: null }
    const ips = forecastIps(state, parts)
    const planned = planFor(request, state, ips)
    if (isRejecting && (planned.lastStartAt === null || utcDay(planned.lastStartAt) !== utcDay(startsAt))) {
      const next = startOfUtcDay(dayAfter(utcDay(now), 1))
      return refuse(state, "today's allowance is used up and the pool has overflow: reject", next - now)
    }
    return ips.length === 0 ? { kind: 'ok', startsAt: null } : withinLimits(planned, state, startsAt, request.lifetime)
  }

  function withinLimits(planned: Forecast, state: PoolState, startsAt: number, lifetime: number): Projection {
    const { firstStartAt, lastStartAt } = planned
    const limit = Math.min(state.maxDefer, lifetime)
    if (lastStartAt === null) return refuse(state, 'this mail would wait for more than 400 days', RETRY_WHEN_UNKNOWN)
    const wait = lastStartAt - startsAt
    if (wait > limit || wait >= lifetime) {
      return refuse(state, `the mail could start in ${hours(wait)}, limit ${hours(limit)}`, wait - limit)
    }
    return { kind: 'ok', startsAt: firstStartAt === null || firstStartAt <= state.now ? null : firstStartAt }
  }

  return (request) => {
    const { pool } = request
    const settings = configuration.current().pools.pools[pool]
    const tiers = picker.tiersAnywhere(pool)
    if (tiers.own.length > 0 || tiers.spill.length > 0) return { kind: 'ok', startsAt: null }
    // A reload is under way: for a moment IPs that send already stand in their former pools.
    const isNamed = settings?.ips.some(({ address }) => parts.registry.find(address)?.ip.sends === 'all') ?? false
    if (tiers.all.length === 0 && isNamed) return { kind: 'ok', startsAt: null }
    const figures = figuresOf(tiers, parts)
    const backlogByIsp = parts.backlog.of(pool, figures.granted)
    const state: PoolState = {
      pool,
      tiers,
      now: clock.now(),
      maxDefer: settings?.max_defer ?? 0,
      isRejecting: settings?.overflow === 'reject',
      backlog: Object.values(backlogByIsp).reduce((sum, count) => sum + count, 0),
      backlogByIsp,
      ...figures,
    }
    if (tiers.warming.length + tiers.paused.length > 0) return projectWarming(request, state)
    const cold = tiers.all.filter((ip) => ip.state === 'cold')
    if (cold.length > 0) return refuse(state, coldText(pool, cold), RETRY_WHEN_UNKNOWN)
    return refusal('unavailable', state, `no IP can send: ${statesText(tiers.all)}`, RETRY_WHEN_UNAVAILABLE)
  }
}

type Planner = (request: ProjectionRequest, state: PoolState, ips: ForecastIp[]) => Forecast

/** A pool that rejects needs the very count; for others a plan of the last second will do. */
function createPlanner(registry: Pick<IpRegistry, 'onChange'>): Planner {
  const plans = new Map<string, { at: number; plan: Forecast }>()
  registry.onChange(() => plans.clear())
  return ({ pool, count, startsAt }, { now, isRejecting, backlogByIsp: backlog }, ips) => {
    const key = `${pool} ${count} ${ips.length}`
    const kept = plans.get(key)
    const isUsable = !isRejecting && startsAt <= now
    if (isUsable && kept !== undefined && now >= kept.at && now < kept.at + KEPT_FOR) return kept.plan
    const asked = { [ANY_ISP]: count }
    // What `reject` asks is whether today's allowance is used up, not whether the day is long enough.
    const plan = forecast({ now, ips, backlog, asked, startsAt: Math.max(now, startsAt), isHourFree: isRejecting })
    if (plans.size >= MOST_PLANS) plans.clear()
    if (isUsable) plans.set(key, { at: now, plan })
    return plan
  }
}

interface PoolState {
  pool: string
  tiers: Tiers
  now: number
  maxDefer: number
  isRejecting: boolean
  backlog: number
  backlogByIsp: Record<string, number>
  cap: number
  granted: number
  /** Of the warming and paused ones, as the refusal says it. */
  stages: string
}

type Counts = Pick<IpParts, 'registry' | 'allowance'>

function figuresOf({ warming, paused }: Tiers, { registry, allowance }: Counts) {
  const figures = { cap: 0, granted: 0, stages: '' }
  for (const { address } of [...warming, ...paused]) {
    const today = allowance.today(address)
    figures.cap += today?.rule.cap ?? 0
    figures.granted += today?.granted ?? 0
    const known = registry.find(address)
    if (known === undefined) continue
    const halt = known.ip.state === 'paused' ? ', paused' : ''
    figures.stages += `${address} is at stage ${known.record.stage ?? 1} of ${known.curve.curve.stages.length}${halt}, `
  }
  return figures
}

/** Those that will send at some time: a pause without an end predicts nothing. */
function forecastIps({ tiers: { warming, paused }, now }: PoolState, { registry, allowance }: Counts): ForecastIp[] {
  const availableFrom = new Map(warming.map(({ address }) => [address, 0]))
  for (const { address, until } of paused) if (until !== null) availableFrom.set(address, Math.max(until, now))
  return [...availableFrom].flatMap(([address, from]) => {
    const known = registry.find(address)
    if (known === undefined) return []
    const ramp = rampOf(known.record, known.curve.curve, allowance.today(address)?.grantedByIsp)
    return [{ ip: address, availableFrom: from, rate: Infinity, ramp }]
  })
}

function hopeOf({ tiers }: PoolState, { allowance }: Counts): number {
  return tiers.warming.reduce((sum, { address }) => sum + allowance.hope(address, ANY_ISP).count, 0)
}

type Refused = Extract<Projection, { kind: 'refused' }>

function refusal(code: Refused['code'], state: PoolState, text: string, retryAfter: number): Refused {
  const { pool, cap, granted, backlog, stages } = state
  const retryAfterSeconds = Math.max(1, Math.ceil(retryAfter / SECOND))
  const details: RefusalDetails = { cap, granted, backlog, retry_after: retryAfterSeconds }
  const figures = `cap=${cap} granted=${granted} backlog=${backlog}`
  const sentence = `pool '${pool}': ${stages}${figures}; ${text}; retry_after=${retryAfterSeconds}`
  return { kind: 'refused', code, text: sentence, details, retryAfterSeconds }
}

function coldText(pool: string, cold: readonly EgressIp[]): string {
  const names = cold.map((ip) => (ip.pool === pool ? ip.address : `${ip.address} (pool ${ip.pool})`)).join(', ')
  return `no IP is warmed, cold: ${names}. Start its warmup with POST /v1/ips/${cold[0]?.address}/warmup`
}

function statesText(ips: readonly EgressIp[]): string {
  const reasons = ips.map(({ address, state, reason }) => `${address} (${reason ?? state})`).join(', ')
  return reasons === '' ? 'it has none' : reasons
}

function hours(milliseconds: number): string {
  const count = milliseconds / HOUR
  return count >= 1 ? `${Math.round(count)} h` : `${Math.ceil(count * 60)} min`
}

type PoolBacklog = ReturnType<typeof createPoolBacklog>

interface Count {
  takenAt: number
  byIsp: Record<string, number>
  unknown: number
  grantedThen: number
  arrived: number
}

/**
 * How much mail of a pool waits for its first attempt, cheap enough to be asked for each request. The queue is counted
 * at most once a second; in between, what was accepted is added and what was granted is taken away. Mail whose
 * acceptance is under way counts as well, so that requests at the same moment do not share one place.
 */
export function createPoolBacklog({ clock, backlogOf }: EgressOutside) {
  const counts = new Map<string, Count>()
  const arriving = new Map<string, number>()

  function countOf(pool: string, granted: number): Count {
    const now = clock.now()
    const known = counts.get(pool)
    // A new day begins with nothing granted.
    const isFresh = known !== undefined && granted >= known.grantedThen
    if (isFresh && now >= known.takenAt && now < known.takenAt + KEPT_FOR) return known
    const { '': unknown = 0, ...byIsp } = backlogOf(pool)
    const count = { takenAt: now, byIsp, unknown, grantedThen: granted, arrived: 0 }
    counts.set(pool, count)
    return count
  }

  return {
    /** By isp; ANY_ISP: of which no provider is known yet. `granted`: what the pool's IPs were granted today. */
    of(pool: string, granted: number): Record<string, number> {
      const { byIsp, unknown, grantedThen, arrived } = countOf(pool, granted)
      const added = arrived + (arriving.get(pool) ?? 0)
      return less({ ...byIsp, [ANY_ISP]: unknown + added }, granted - grantedThen)
    },
    /** Mail that is being accepted; the returned function says whether it was. */
    expect(pool: string, count: number): (wasStored: boolean) => void {
      arriving.set(pool, (arriving.get(pool) ?? 0) + count)
      return (wasStored) => {
        arriving.set(pool, (arriving.get(pool) ?? 0) - count)
        const known = counts.get(pool)
        if (wasStored && known !== undefined) known.arrived += count
      }
    },
  }
}

/** Which isps the grants were for is not asked: the total is what decides. */
function less(backlog: Record<string, number>, granted: number): Record<string, number> {
  let left = granted
  const entries = Object.entries(backlog).map(([isp, count]): [string, number] => {
    const taken = Math.min(left, count)
    left -= taken
    return [isp, count - taken]
  })
  return Object.fromEntries(entries)
}
