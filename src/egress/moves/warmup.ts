/**
 * Dedicated IPs as the API and the command line handle them (http/README.md "IPs"): views, the acts that move a warmup,
 * the forecast and the statistics. ServiceError not_found, invalid_request, and conflict for an act that the state
 * forbids; else errors of the store.
 */
import { DAY } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { AuditRecord, IpRecord } from '../../store/records/warmup-records.ts'
import {
  MOST_POINTS,
  pointsOf,
  statisticsView,
  type StatisticsRange,
  type StatisticsView,
} from '../ips/ip-statistics.ts'
import { ipView, type IpView } from '../ips/ip-view.ts'
import type { KnownIp } from '../ips/known-ip.ts'
import { forecastFor, type ForecastView } from './warmup-forecast.ts'
import { canonicalIp } from '../../base/ip-address.ts'
import type { LiveConfiguration } from '../../config/live-configuration.ts'
import type { IpFactsKeeper } from '../ips/ip-facts.ts'
import type { IpRegistry } from '../ips/ip-registry.ts'
import { capOf } from '../warmup/warmup-curve.ts'
import { auditRow, canMove, moveIp, type IpAction, type MovedIp } from '../warmup/warmup-states.ts'
import { beginAt } from './day-closing.ts'
import type { WarmupKeeper } from './warmup-keeper.ts'
import type { IpParts } from '../ips/allowance.ts'

type AskedForecast = { recipients: number; isp: string | null; startAt: number | null }

export type Warmup = ReturnType<typeof createWarmup>

/** egress/README.md "Forecast": the mix of the pool's last 30 days. */
const MIX_OF = 30 * DAY

export function createWarmup(parts: WarmupParts) {
  const { configuration, registry, allowance, keeper, facts, store, clock, backlogOf, waitingOf } = parts
  const acts = createWarmupActs(parts)
  const require = (text: string): KnownIp => requireIp(registry, text)

  /** As the node has it that sends from it. */
  const anywhere = (known: KnownIp): KnownIp => ({ ...known, ip: registry.anywhere(known.ip) })

  function viewOf(known: KnownIp): IpView {
    const { address, pool } = known.ip
    const settings = configuration.current().pools.pools[pool]?.ips.find((ip) => ip.address === address)
    return ipView({
      known: anywhere(known),
      facts: facts.find(known.ip),
      today: allowance.today(address),
      isEnabled: settings?.enabled ?? false,
      isBindable: registry.isBindable(address),
      now: clock.now(),
    })
  }

  /** An act, with the view of the IP after it. */
  const shown =
    <Asked extends unknown[]>(act: (...asked: Asked) => Promise<KnownIp>) =>
    (...asked: Asked): Promise<IpView> =>
      act(...asked).then(viewOf)

  return {
    list: async (): Promise<IpView[]> => registry.known().map(viewOf),
    find: async (ip: string): Promise<IpView> => viewOf(require(ip)),
    start: shown(acts.start),
    pause: shown(acts.pause),
    resume: shown(acts.resume),
    complete: shown(acts.complete),
    suspendIp: shown(acts.suspendIp),
    resumeIp: shown(acts.resumeIp),
    noteProvider: acts.noteProvider,
    async forecast(text: string, asked: AskedForecast): Promise<ForecastView> {
      const known = anywhere(require(text))
      const inPool = registry
        .known()
        .filter(({ ip }) => ip.pool === known.ip.pool)
        .map(anywhere)
      const addresses = inPool.map(({ ip }) => ip.address)
      const mix = asked.isp === null ? await store.ispMix(addresses, clock.now() - MIX_OF) : { [asked.isp]: 1 }
      return forecastFor({
        known,
        inPool,
        asked,
        mix,
        now: clock.now(),
        configuration: configuration.current(),
        backlog: backlogOf(known.ip.pool),
        todayOf: allowance.today,
      })
    },
    async statistics(text: string, range: StatisticsRange): Promise<StatisticsView> {
      const { address } = require(text).ip
      if (range.from >= range.to) throw new ServiceError('invalid_request', 'from: must be before to')
      if (pointsOf(range) > MOST_POINTS) {
        const text = `interval: more than ${MOST_POINTS} points; use "day" or a shorter time`
        throw new ServiceError('invalid_request', text)
      }
      const found = await store.ipStatistics(address, range.from, range.to)
      return statisticsView(address, range, found, waitingOf(address))
    },
    audit: async (text: string, limit: number): Promise<AuditRecord[]> =>
      store.warmupAudit(require(text).ip.address, limit),
    /** Job, each minute. Never rejects. */
    closeDays: keeper.look,
    /** Job, every 5 minutes: gates of the last hour, reverse names and blocklists. Never rejects. */
    async checkGates(): Promise<void> {
      await keeper.checkGates()
      await facts.check()
    },
  }
}

export interface WarmupStart {
  /** null: that of the IP in pools.yaml, else of warmup.yaml. */
  curve: string | null
  /** null: 1. */
  stage: number | null
  /** null: that of the curve. */
  targetDailyVolume: number | null
  restart: boolean
  /** Although the reverse name or the bind test speak against it. */
  force: boolean
}

export interface ProviderChange {
  action: 'suspend_provider' | 'resume_provider'
  provider: string
  reason: string | null
}

interface WarmupParts extends IpParts {
  keeper: WarmupKeeper
  facts: IpFactsKeeper
}

/**
 * Each resolves with the IP as it is then. Every call is committed with its audit row before it resolves; one that
 * finds nothing to do changes nothing.
 */
function createWarmupActs(parts: WarmupParts) {
  const { registry, keeper, clock } = parts
  const require = (text: string): KnownIp => requireIp(registry, text)

  /** `decide` may find that nothing is to do. */
  async function move(text: string, decide: Parameters<IpRegistry['move']>[1]): Promise<KnownIp> {
    return (await registry.move(require(text).ip.address, decide)) ?? require(text)
  }
  async function change(text: string, decide: Parameters<IpRegistry['change']>[1]): Promise<KnownIp> {
    return (await registry.change(require(text).ip.address, decide)) ?? require(text)
  }

  return {
    async start(text: string, asked: WarmupStart, actor: string): Promise<KnownIp> {
      const known = require(text)
      if (isAlreadyStarted(known, asked)) return known
      const curve = chosenCurve(known, asked, parts.configuration)
      if (!asked.force) await requireReady(known, parts)
      return move(text, ({ state }) => {
        const action = state === 'cold' ? 'start' : 'restart'
        // Somebody else has started it while the reverse name was looked up.
        if (action === 'restart' && !asked.restart) return null
        const begun = beginAt(curve, asked.stage ?? 1, clock.now())
        const changes = { ...begun, targetDailyVolume: asked.targetDailyVolume, pausedAt: [] }
        return { action, actor, reason: null, changes }
      })
    },
    pause: (text: string, reason: string | null, actor: string): Promise<KnownIp> =>
      change(text, (record, { ip: { pool } }) => {
        requireStarted(record)
        const by = { action: 'pause', now: clock.now(), actor, reason } as const
        if (record.state === 'paused') return takenOver(record, by)
        requireMove(record, 'pause')
        return moveIp(record, pool, { ...by, changes: { formerState: record.state } })
      }),
    async resume(text: string, actor: string): Promise<KnownIp> {
      const known = require(text)
      const idleStage = known.record.state === 'paused' ? await keeper.rewarmStage(known) : undefined
      return move(text, (record, { curve }) => {
        requireStarted(record)
        if (record.state === 'warming') return null
        requireMove(record, 'resume')
        if (idleStage === undefined) return { action: 'resume', actor, reason: null }
        const reason = `idle: goes on at ${capOf(curve.curve, idleStage)} a day`
        return { action: 'resume', actor, reason, changes: beginAt(curve.name, idleStage, clock.now()) }
      })
    },
    complete: (text: string, actor: string): Promise<KnownIp> =>
      move(text, (record) => {
        if (record.state === 'warmed') return null
        requireStarted(record)
        requireMove(record, 'complete')
        return { action: 'complete', actor, reason: null, changes: { holdReason: null, daysHeld: 0, daysAtTarget: 0 } }
      }),
    /** Nothing leaves from it until it is resumed. */
    async suspendIp(text: string, given: string | null, actor: string): Promise<KnownIp> {
      const reason = given ?? 'suspended by the operator'
      await keeper.suspend(require(text).ip.address, { until: null, reason, actor, isBlock: false })
      return require(text)
    },
    resumeIp: (text: string, actor: string): Promise<KnownIp> =>
      move(text, () => ({ action: 'unsuspend', actor, reason: null })),
    /** The audit row of what an operator did to its mail to one provider; none for an IP that has left pools.yaml. */
    async noteProvider(address: string, change: ProviderChange, actor: string): Promise<void> {
      const { action, provider } = change
      const reason = `mail to ${provider}${change.reason === null ? '' : `: ${change.reason}`}`
      await registry.move(address, () => ({ action, actor, reason, figures: { provider } }))
    },
  }
}

/** A pause that would end by itself is the operator's from now on, and ends by a resume alone. */
function takenOver(record: IpRecord, by: Parameters<typeof auditRow>[2]): MovedIp | null {
  if (record.until === null) return null
  const longer = { ...record, until: null, actor: by.actor, reason: by.reason ?? record.reason }
  return { record: longer, audit: [auditRow(record, longer, by)], events: [] }
}

function requireIp(registry: Pick<IpRegistry, 'find'>, text: string): KnownIp {
  const address = canonicalIp(text)
  if (address === undefined) throw new ServiceError('invalid_request', `ip: "${text}" is not an IP address`)
  const known = registry.find(address)
  if (known === undefined) throw new ServiceError('not_found', `no IP ${address} in pools.yaml`)
  return known
}

/** Throws when only `restart` would begin again. */
function isAlreadyStarted({ ip: { address }, record: { state } }: KnownIp, { restart }: WarmupStart): boolean {
  if (restart || state === 'cold') return false
  if (state === 'warming' || state === 'paused') return true
  const text = `${address} is ${state}; restart: true (sternpost ip warmup restart ${address}) begins again`
  throw new ServiceError('conflict', text)
}

function chosenCurve({ ip }: KnownIp, asked: WarmupStart, configuration: LiveConfiguration): string {
  const { warmup, pools } = configuration.current()
  const configured = pools.pools[ip.pool]?.ips.find(({ address }) => address === ip.address)?.curve
  const name = asked.curve ?? configured ?? warmup.defaults.curve
  const found = warmup.curves[name]
  if (found === undefined) {
    const names = Object.keys(warmup.curves).join(', ')
    throw new ServiceError('invalid_request', `curve: no curve "${name}" in warmup.yaml; there are ${names}`)
  }
  if (asked.stage !== null && asked.stage > found.stages.length) {
    throw new ServiceError('invalid_request', `stage: ${name} has ${found.stages.length} stages`)
  }
  return name
}

async function requireReady({ ip }: KnownIp, { registry, facts }: WarmupParts): Promise<void> {
  const anyway = 'force: true (--force) starts anyway'
  if (!registry.isBindable(ip.address)) {
    throw new ServiceError('conflict', `${ip.source} cannot be bound on this machine; ${anyway}`)
  }
  const { status, value } = await facts.reverseName(ip)
  if (status !== 'missing' && status !== 'mismatch') return
  const found = status === 'missing' ? 'it has none' : `it is ${value ?? ''}, or that name does not lead back`
  const text = `the reverse name (PTR) of ${ip.address} must be ${ip.hostname}: ${found}; ${anyway}`
  throw new ServiceError('conflict', text)
}

function requireStarted({ ip, stage, state }: IpRecord): void {
  if (stage !== null && state !== 'cold') return
  throw new ServiceError('conflict', `no warmup of ${ip} was started; POST /v1/ips/${ip}/warmup starts one`)
}

function requireMove(record: IpRecord, action: IpAction): void {
  if (canMove(record, action)) return
  const { ip, state } = record
  const first = state === 'suspended' ? `; sternpost ip resume ${ip} ends that` : ''
  throw new ServiceError('conflict', `${ip} is ${state}${first}`)
}
