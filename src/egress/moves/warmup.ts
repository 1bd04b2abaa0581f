/**
 * Dedicated IPs as the API and the command line handle them (http/README.md "IPs"): views, the acts that move a warmup,
 * the forecast and the statistics.
 *
 * ServiceError not_found for an IP that is not in pools.yaml, invalid_request for text that is no IP or a value that
 * cannot be, conflict for an act that its state forbids; other errors are the store's.
 */
import { DAY } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { AuditRecord } from '../../store/records/warmup-records.ts'
import {
  MOST_POINTS,
  pointsOf,
  statisticsView,
  type StatisticsRange,
  type StatisticsView,
} from '../ips/ip-statistics.ts'
import { ipView, type IpView } from '../ips/ip-view.ts'
import type { KnownIp } from '../ips/known-ip.ts'
import { createWarmupActs, requireIp, type WarmupActsParts } from './warmup-acts.ts'
import { forecastFor, type ForecastView } from './warmup-forecast.ts'

export type { ProviderChange, WarmupStart } from './warmup-acts.ts'

type AskedForecast = { recipients: number; isp: string | null; startAt: number | null }

export type Warmup = ReturnType<typeof createWarmup>

/** egress/README.md "Forecast": the mix of the pool's last 30 days. */
const MIX_OF = 30 * DAY

export function createWarmup(parts: WarmupActsParts) {
  const { configuration, registry, allowance, keeper, facts, store, clock, backlogOf, waitingOf } = parts
  const acts = createWarmupActs(parts)
  const require = (text: string): KnownIp => requireIp(registry, text)

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

  /** An act, with the view of the IP after it. */
  const shown =
    <Asked extends unknown[]>(act: (...asked: Asked) => Promise<KnownIp>) =>
    (...asked: Asked): Promise<IpView> =>
      act(...asked).then(viewOf)

  return {
    /** In the order of pools.yaml. */
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
      const known = require(text)
      const inPool = registry.known().filter(({ ip }) => ip.pool === known.ip.pool)
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
    /** Newest first. */
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
