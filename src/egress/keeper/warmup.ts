/**
 * Dedicated IPs as the API and the command line handle them (http/README.md "IPs"): views, the calls that move a
 * warmup, the forecast and the statistics.
 *
 * Every call is committed with its audit row before it resolves. ServiceError not_found for an IP that is not in
 * pools.yaml, invalid_request for text that is no IP or a value that can not be, conflict for a call that its state
 * forbids; other errors are the store's.
 */
import { canonicalIp } from '../../base/ip-address.ts'
import { DAY } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { LiveConfiguration } from '../../config/live-configuration.ts'
import type { Store } from '../../store/store.ts'
import type { AuditRecord, IpRecord } from '../../store/records/warmup-records.ts'
import type { Allowance } from '../ips/allowance.ts'
import type { IpFactsKeeper } from '../ips/ip-facts.ts'
import type { IpRegistry, KnownIp } from '../ips/ip-registry.ts'
import { MOST_POINTS, pointsOf, statisticsView } from '../ips/ip-statistics.ts'
import type { StatisticsRange, StatisticsView, WaitingMail } from '../ips/ip-statistics.ts'
import { ipView } from '../ips/ip-view.ts'
import type { IpView } from '../ips/ip-view.ts'
import { capOf } from '../warmup/warmup-curve.ts'
import { forecastFor } from './warmup-forecast.ts'
import type { ForecastView } from './warmup-forecast.ts'
import type { WarmupKeeper } from './warmup-keeper.ts'
import { canMove, moveIp } from '../warmup/warmup-states.ts'
import type { IpAction, IpMove, MovedIp } from '../warmup/warmup-states.ts'

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
  /** Id of a block of providers.yaml. */
  provider: string
  reason: string | null
}

export interface Warmup {
  /** In the order of pools.yaml. */
  list(): Promise<IpView[]>
  find(ip: string): Promise<IpView>
  start(ip: string, asked: WarmupStart, actor: string): Promise<IpView>
  pause(ip: string, reason: string | null, actor: string): Promise<IpView>
  resume(ip: string, actor: string): Promise<IpView>
  complete(ip: string, actor: string): Promise<IpView>
  /** Nothing leaves from it until it is resumed. */
  suspendIp(ip: string, reason: string | null, actor: string): Promise<IpView>
  resumeIp(ip: string, actor: string): Promise<IpView>
  /** The audit row of what an operator did to its mail to one provider; none for an IP that has left pools.yaml. */
  noteProvider(ip: string, change: ProviderChange, actor: string): Promise<void>
  forecast(ip: string, asked: { recipients: number; isp: string | null; startAt: number | null }): Promise<ForecastView>
  statistics(ip: string, range: StatisticsRange): Promise<StatisticsView>
  /** Newest first. */
  audit(ip: string, limit: number): Promise<AuditRecord[]>
  /** Job, each minute. Never rejects. */
  closeDays(): Promise<void>
  /** Job, every 5 minutes: gates of the last hour, reverse names and blocklists. Never rejects. */
  checkGates(): Promise<void>
}

export interface WarmupOptions {
  configuration: LiveConfiguration
  registry: IpRegistry
  allowance: Pick<Allowance, 'today'>
  keeper: WarmupKeeper
  facts: IpFactsKeeper
  store: Pick<Store, 'ipStatistics' | 'ispMix' | 'warmupAudit'>
  clock: Clock
  backlogOf: (pool: string) => Record<string, number>
  waitingOf: (ip: string) => WaitingMail[]
}

/** egress/README.md "Forecast": the mix of the pool's last 30 days. */
const MIX_OF = 30 * DAY

export function createWarmup(options: WarmupOptions): Warmup {
  const { configuration, registry, allowance, keeper, facts, store, clock, backlogOf, waitingOf } = options

  function require(text: string): KnownIp {
    const address = canonicalIp(text)
    if (address === undefined) throw new ServiceError('invalid_request', `ip: "${text}" is not an IP address`)
    const known = registry.find(address)
    if (known === undefined) throw new ServiceError('not_found', `no IP ${address} in pools.yaml`)
    return known
  }

  function viewOf(known: KnownIp): IpView {
    const { address, pool } = known.ip
    const settings = configuration.current().pools.pools[pool]?.ips.find((ip) => ip.address === address)
    return ipView({
      known,
      facts: facts.find(known.ip),
      today: allowance.today(address),
      isEnabled: settings?.enabled ?? false,
      isBindable: registry.isBindable(address),
      now: clock.now(),
    })
  }

  /** `decide` may find that nothing is to do. */
  async function move(
    text: string,
    decide: (record: IpRecord, known: KnownIp) => Omit<IpMove, 'now'> | null,
  ): Promise<IpView> {
    const { ip } = require(text)
    const known = await registry.change(ip.address, (record, current): MovedIp | null => {
      const decided = decide(record, current)
      return decided === null ? null : moveIp(record, ip.pool, { ...decided, now: clock.now() })
    })
    return viewOf(known ?? require(text))
  }

  async function requireReady({ ip }: KnownIp, force: boolean): Promise<void> {
    if (force) return
    if (!registry.isBindable(ip.address)) {
      const text = `${ip.source} can not be bound on this machine; force: true (--force) starts anyway`
      throw new ServiceError('conflict', text)
    }
    const { status, value } = await facts.reverseName(ip)
    if (status !== 'missing' && status !== 'mismatch') return
    const found = status === 'missing' ? 'it has none' : `it is ${value ?? ''}, or that name does not lead back`
    throw new ServiceError(
      'conflict',
      `the reverse name (PTR) of ${ip.address} must be ${ip.hostname}: ${found}; force: true (--force) starts anyway`,
    )
  }

  async function start(text: string, asked: WarmupStart, actor: string): Promise<IpView> {
    const known = require(text)
    const { state } = known.record
    const isRunning = state === 'warming' || state === 'paused'
    if (isRunning && !asked.restart) return viewOf(known)
    if (!asked.restart && state !== 'cold') {
      const { address } = known.ip
      throw new ServiceError(
        'conflict',
        `${address} is ${state}; restart: true (sternpost ip warmup restart ${address}) begins again`,
      )
    }
    const chosen = chosenCurve(known, asked)
    await requireReady(known, asked.force)
    return move(text, (record, current) => {
      const action: IpAction = record.state === 'cold' ? 'start' : 'restart'
      // Somebody else has started it while the reverse name was looked up.
      if (action === 'restart' && !asked.restart) return null
      if (!canMove(record, action)) return null
      const begun = keeper.beginAt({ ...current, curve: chosen }, asked.stage ?? 1)
      const changes = { ...begun, targetDailyVolume: asked.targetDailyVolume, pausedAt: [] }
      return { action, actor, reason: null, changes }
    })
  }

  function chosenCurve({ ip, curve }: KnownIp, asked: WarmupStart): KnownIp['curve'] {
    const { warmup, pools } = configuration.current()
    const configured = pools.pools[ip.pool]?.ips.find(({ address }) => address === ip.address)?.curve
    const name = asked.curve ?? configured ?? warmup.defaults.curve
    const found = warmup.curves[name]
    if (found === undefined) {
      const names = Object.keys(warmup.curves).join(', ')
      throw new ServiceError('invalid_request', `curve: no curve "${name}" in warmup.yaml; there are ${names}`)
    }
    const chosen = { ...curve, name, curve: found }
    if (asked.stage !== null && asked.stage > found.stages.length) {
      throw new ServiceError('invalid_request', `stage: ${name} has ${found.stages.length} stages`)
    }
    return chosen
  }

  /** What has to come first. */
  function notNow({ ip, state }: IpRecord): ServiceError {
    const first = state === 'suspended' ? `; sternpost ip resume ${ip} ends that` : ''
    return new ServiceError('conflict', `${ip} is ${state}${first}`)
  }

  function requireStarted({ stage, state }: IpRecord, ip: string): void {
    if (stage === null || state === 'cold') {
      throw new ServiceError('conflict', `no warmup of ${ip} was started; POST /v1/ips/${ip}/warmup starts one`)
    }
  }

  return {
    list: async () => registry.known().map(viewOf),
    find: async (ip) => viewOf(require(ip)),
    start,
    pause: (text, reason, actor) =>
      move(text, (record, { ip }) => {
        requireStarted(record, ip.address)
        if (record.state === 'paused') return null
        if (!canMove(record, 'pause')) throw notNow(record)
        return { action: 'pause', actor, reason, changes: { formerState: record.state } }
      }),
    async resume(text, actor) {
      const known = require(text)
      const idleStage = known.record.state === 'paused' ? await keeper.rewarmStage(known) : undefined
      return move(text, (record, current) => {
        requireStarted(record, current.ip.address)
        if (record.state === 'warming') return null
        if (!canMove(record, 'resume')) throw notNow(record)
        if (idleStage === undefined) return { action: 'resume', actor, reason: null }
        const reason = `idle: goes on at ${capOf(current.curve.curve, idleStage)} a day`
        return { action: 'resume', actor, reason, changes: keeper.beginAt(current, idleStage) }
      })
    },
    complete: (text, actor) =>
      move(text, (record, { ip }) => {
        if (record.state === 'warmed') return null
        requireStarted(record, ip.address)
        if (!canMove(record, 'complete')) throw notNow(record)
        return { action: 'complete', actor, reason: null, changes: { holdReason: null, daysHeld: 0, daysAtTarget: 0 } }
      }),
    async suspendIp(text, reason, actor) {
      const { ip } = require(text)
      const why = reason ?? 'suspended by the operator'
      await keeper.suspend(ip.address, { until: null, reason: why, actor, isBlock: false })
      return viewOf(require(text))
    },
    resumeIp: (text, actor) =>
      move(text, (record) => (canMove(record, 'unsuspend') ? { action: 'unsuspend', actor, reason: null } : null)),
    async noteProvider(address, { action, provider, reason: given }, actor) {
      const reason = `mail to ${provider}${given === null ? '' : `: ${given}`}`
      await registry.change(address, (record, { ip: { pool } }) =>
        moveIp(record, pool, { action, now: clock.now(), actor, reason, figures: { provider } }),
      )
    },
    async forecast(text, asked) {
      const known = require(text)
      const inPool = registry.known().filter(({ ip }) => ip.pool === known.ip.pool)
      const mix =
        asked.isp === null
          ? await store.ispMix(
              inPool.map(({ ip }) => ip.address),
              clock.now() - MIX_OF,
            )
          : { [asked.isp]: 1 }
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
    async statistics(text, range) {
      const known = require(text)
      if (range.from >= range.to) throw new ServiceError('invalid_request', 'from: must be before to')
      if (pointsOf(range) > MOST_POINTS) {
        const text = `interval: more than ${MOST_POINTS} points; use "day" or a shorter time`
        throw new ServiceError('invalid_request', text)
      }
      const found = await store.ipStatistics(known.ip.address, range.from, range.to)
      return statisticsView(known.ip.address, range, found, waitingOf(known.ip.address))
    },
    audit: async (text, limit) => store.warmupAudit(require(text).ip.address, limit),
    closeDays: () => keeper.look(),
    async checkGates() {
      await keeper.checkGates()
      await facts.check()
    },
  }
}
