/**
 * Before acceptance: whether mail can start within policy, and when. The four cases of ip_not_warmed are those of
 * egress/README.md "Overflow and refusal".
 *
 * A pause without an end predicts nothing: mail that waits for it is accepted, but where the request named the pool or
 * the pool rejects. All from counters in memory; never throws.
 */
import { HOUR, SECOND } from '../../base/clock.ts'
import { dayAfter, startOfUtcDay, utcDay } from '../../base/utc-day.ts'
import type { EgressIp, Projection, ProjectionRequest, RefusalDetails } from './egress-ip.ts'
import { ANY_ISP, forecast, rampOf, type Forecast, type ForecastIp } from '../warmup/forecast.ts'
import type { IpRegistry } from './ip-registry.ts'
import type { IpPicker, Tiers } from './pick-ip.ts'
import type { PoolBacklog } from './pool-backlog.ts'
import type { IpParts } from './ip-parts.ts'

export type Project = (request: ProjectionRequest) => Projection

interface ProjectorParts extends IpParts {
  picker: IpPicker
  backlog: PoolBacklog
}

/** Nothing is known of the time: somebody has to act. */
const RETRY_WHEN_UNKNOWN = HOUR
const RETRY_WHEN_UNAVAILABLE = 60 * SECOND
/** egress/README.md "Overflow and refusal": counters at most a second old. */
const PLANS_KEPT_FOR = SECOND
const MOST_PLANS = 100

export function createProjector(options: ProjectorParts): Project {
  const { configuration, registry, picker, clock } = options
  const planFor = createPlanner(registry)

  function refuse(state: PoolState, text: string, retryAfter: number): Projection {
    return refusal('ip_not_warmed', state, text, retryAfter)
  }

  /** Only warming and paused IPs are there. */
  function projectWarming(request: ProjectionRequest, state: PoolState): Projection {
    const { tiers, maxDefer, now, isRejecting } = state
    const { startsAt, lifetime, count } = request
    if (request.isRequested && tiers.warming.length === 0) {
      const ends = tiers.paused.map(({ until }) => until ?? Infinity)
      const wait = Math.min(...ends) - Math.max(now, startsAt)
      const retryAfter = Number.isFinite(wait) ? wait - maxDefer : RETRY_WHEN_UNKNOWN
      if (wait > maxDefer) return refuse(state, `all its IPs are paused for longer than ${hours(maxDefer)}`, retryAfter)
    }
    if (!configuration.current().pools.warmup_streams.includes(request.stream)) {
      const text = `its warming IPs take no ${request.stream} mail (warmup_streams of pools.yaml)`
      return refuse(state, text, RETRY_WHEN_UNKNOWN)
    }
    const ips = forecastIps(state, options)
    const isNow = startsAt <= now && hopeOf(state, options) >= state.backlog + count
    if (isNow) return { kind: 'ok', startsAt: null }
    const planned = planFor(request, state, ips)
    if (isRejecting) {
      const firstDay = utcDay(Math.max(now, startsAt))
      if (planned.lastStartAt === null || utcDay(planned.lastStartAt) !== firstDay) {
        const next = startOfUtcDay(dayAfter(utcDay(now), 1))
        return refuse(state, "today's allowance is used up and the pool has overflow: reject", next - now)
      }
    }
    if (ips.length === 0) return { kind: 'ok', startsAt: null }
    return withinLimits(planned, { state, startsAt: Math.max(now, startsAt), lifetime })
  }

  function withinLimits(
    { firstStartAt, lastStartAt }: Forecast,
    { state, startsAt, lifetime }: { state: PoolState; startsAt: number; lifetime: number },
  ): Projection {
    const limit = Math.min(state.maxDefer, lifetime)
    if (lastStartAt === null) return refuse(state, 'this mail would wait for more than 400 days', RETRY_WHEN_UNKNOWN)
    const wait = lastStartAt - startsAt
    if (wait > limit || wait >= lifetime) {
      const text = `the mail could start in ${hours(wait)}, limit ${hours(limit)}`
      return refuse(state, text, wait - limit)
    }
    return { kind: 'ok', startsAt: firstStartAt === null || firstStartAt <= state.now ? null : firstStartAt }
  }

  return (request) => {
    const { pool } = request
    const settings = configuration.current().pools.pools[pool]
    const tiers = picker.tiersOf(pool)
    if (tiers.own.length > 0 || tiers.spill.length > 0) return { kind: 'ok', startsAt: null }
    const figures = figuresOf(tiers, options)
    const backlogByIsp = options.backlog.of(pool, figures.granted)
    const state: PoolState = {
      pool,
      tiers,
      now: clock.now(),
      maxDefer: settings?.max_defer ?? 0,
      isRejecting: settings?.overflow === 'reject',
      backlog: Object.values(backlogByIsp).reduce((sum, count) => sum + count, 0),
      backlogByIsp,
      ...figures,
      stages: stagesOf(tiers, options),
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
    if (isUsable && kept !== undefined && now >= kept.at && now < kept.at + PLANS_KEPT_FOR) return kept.plan
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
  stages: string
}

type Counts = Pick<IpParts, 'registry' | 'allowance'>

function figuresOf({ warming, paused }: Tiers, { allowance }: Counts): { cap: number; granted: number } {
  let cap = 0
  let granted = 0
  for (const { address } of [...warming, ...paused]) {
    const today = allowance.today(address)
    cap += today?.rule.cap ?? 0
    granted += today?.granted ?? 0
  }
  return { cap, granted }
}

function stagesOf({ warming, paused }: Tiers, { registry }: Counts): string {
  const ips = [...warming, ...paused].flatMap(({ address }) => registry.find(address) ?? [])
  return ips
    .map(({ ip, record, curve: { curve } }) => {
      const halt = ip.state === 'paused' ? ', paused' : ''
      return `${ip.address} is at stage ${record.stage ?? 1} of ${curve.stages.length}${halt}, `
    })
    .join('')
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
