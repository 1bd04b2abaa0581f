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
import { createWarmupActs, requireIp, type WarmupActs, type WarmupActsParts } from './warmup-acts.ts'
import { forecastFor, type ForecastView } from './warmup-forecast.ts'

export type { ProviderChange, WarmupStart } from './warmup-acts.ts'

type MovingAct = Exclude<keyof WarmupActs, 'noteProvider'>
/** The acts, with the view of the IP after it. */
type ShownActs = { [Act in MovingAct]: (...asked: Parameters<WarmupActs[Act]>) => Promise<IpView> }

export interface Warmup extends ShownActs, Pick<WarmupActs, 'noteProvider'> {
  /** In the order of pools.yaml. */
  list(): Promise<IpView[]>
  find(ip: string): Promise<IpView>
  forecast(ip: string, asked: { recipients: number; isp: string | null; startAt: number | null }): Promise<ForecastView>
  statistics(ip: string, range: StatisticsRange): Promise<StatisticsView>
  /** Newest first. */
  audit(ip: string, limit: number): Promise<AuditRecord[]>
  /** Job, each minute. Never rejects. */
  closeDays(): Promise<void>
  /** Job, every 5 minutes: gates of the last hour, reverse names and blocklists. Never rejects. */
  checkGates(): Promise<void>
}

/** egress/README.md "Forecast": the mix of the pool's last 30 days. */
const MIX_OF = 30 * DAY

export function createWarmup(parts: WarmupActsParts): Warmup {
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

  return {
    list: async () => registry.known().map(viewOf),
    find: async (ip) => viewOf(require(ip)),
    start: (...asked) => acts.start(...asked).then(viewOf),
    pause: (...asked) => acts.pause(...asked).then(viewOf),
    resume: (...asked) => acts.resume(...asked).then(viewOf),
    complete: (...asked) => acts.complete(...asked).then(viewOf),
    suspendIp: (...asked) => acts.suspendIp(...asked).then(viewOf),
    resumeIp: (...asked) => acts.resumeIp(...asked).then(viewOf),
    noteProvider: acts.noteProvider,
    async forecast(text, asked) {
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
    async statistics(text, range) {
      const { address } = require(text).ip
      if (range.from >= range.to) throw new ServiceError('invalid_request', 'from: must be before to')
      if (pointsOf(range) > MOST_POINTS) {
        const text = `interval: more than ${MOST_POINTS} points; use "day" or a shorter time`
        throw new ServiceError('invalid_request', text)
      }
      const found = await store.ipStatistics(address, range.from, range.to)
      return statisticsView(address, range, found, waitingOf(address))
    },
    audit: async (text, limit) => store.warmupAudit(require(text).ip.address, limit),
    closeDays: () => keeper.look(),
    async checkGates() {
      await keeper.checkGates()
      await facts.check()
    },
  }
}
