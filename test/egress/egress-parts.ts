/**
 * Egress on a store of its own in a new folder, with pools as literals and the shipped files for the rest.
 */
import { join } from 'node:path'
import type { Test } from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { createLiveConfiguration, type ReplaceableConfiguration } from '../../src/config/live-configuration.ts'
import { loadConfiguration, type Configuration } from '../../src/config/load-configuration.ts'
import type { EgressIpSettings, Pool, PoolSettings } from '../../src/config/settings/pool-settings.ts'
import { createEgress, type Egress, type EgressOptions } from '../../src/egress/egress.ts'
import type { EgressIp, IpRequest, PathState } from '../../src/egress/ips/egress-ip.ts'
import type { Warmup, WarmupStart } from '../../src/egress/moves/warmup.ts'
import type { IpRecord } from '../../src/store/records/warmup-records.ts'
import type { Store } from '../../src/store/store.ts'
import { freshLocation, openTestStore } from '../store/sqlite-support.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'

const SHIPPED = join(import.meta.dirname, '../../config')

export const shipped: Configuration = loadConfiguration({
  folder: SHIPPED,
  shippedFolder: SHIPPED,
  offline: true,
  neededSecrets: 'none',
  overrides: { 'delivery.allow_private_addresses': true, 'listen.http': [], 'listen.submission': [] },
})

/** Midnight of a UTC day. */
export const MIDNIGHT = Date.UTC(2026, 10, 21)

/** Cold, unless the changes say otherwise. */
export const ipSettings = (address: string, changes: Partial<EgressIpSettings> = {}): EgressIpSettings => ({
  address,
  source: address,
  hostname: `mta-${address}.example`,
  weight: 100,
  enabled: true,
  warmed: false,
  curve: null,
  ...changes,
})

export const warmed = (address: string, changes: Partial<EgressIpSettings> = {}): EgressIpSettings =>
  ipSettings(address, { warmed: true, ...changes })

export const poolOf = (ips: EgressIpSettings[], changes: Partial<Pool> = {}): Pool => ({
  description: '',
  overflow: 'spill',
  overflow_pool: null,
  max_defer: 86_400_000,
  require_warmup: true,
  connections_max: null,
  rate: null,
  limits: {},
  ipv6: null,
  ips,
  ...changes,
})

export function withPools(pools: Record<string, Pool>, changes: Partial<PoolSettings> = {}): Configuration {
  return {
    ...shipped,
    pools: {
      version: 1,
      default_pool: 'default',
      warmup_streams: ['transactional', 'bulk'],
      affinity: 'message',
      // As it comes from the configuration: a pool may be called `constructor`.
      pools: Object.assign(Object.create(null), pools),
      ...changes,
    },
  }
}

export interface EgressWorld {
  egress: Egress
  warmup: Warmup
  store: Store
  clock: ManualClock
  configuration: ReplaceableConfiguration
  log: string[]
  /** Addresses that the bind test finds missing. */
  missing: Set<string>
  /** A second egress on the same store, as after a restart. */
  restart(): Promise<{ egress: Egress; warmup: Warmup }>
}

export type WorldOptions = Partial<Omit<EgressOptions, 'configuration'>> & { now?: number; missing?: string[] }

export async function startEgressWorld(
  t: Test,
  configuration: Configuration,
  options: WorldOptions = {},
): Promise<EgressWorld> {
  const opened = await openTestStore(freshLocation(t))
  const { now, missing: absent = [], ...rest } = options
  const clock = manualClock(now ?? MIDNIGHT)
  const log: string[] = []
  const missing = new Set(absent)
  const live = createLiveConfiguration(configuration)
  const parts = {
    configuration: live,
    store: opened.store,
    clock,
    canBind: async (address: string) => !missing.has(address),
    logger: createLogger({ level: 'info', write: (line) => void log.push(line) }),
    lookups: null,
    ...rest,
  }
  const { egress, warmup } = createEgress(parts)
  await egress.start()
  const running = [egress]
  t.teardown(async () => {
    for (const one of running) await one.stop()
    await opened.store.close()
  })
  const restart: EgressWorld['restart'] = async () => {
    for (const one of running.splice(0)) await one.stop()
    const again = createEgress({ ...parts, configuration: createLiveConfiguration(live.current()) })
    await again.egress.start()
    running.push(again.egress)
    return again
  }
  return { egress, warmup, store: opened.store, clock, configuration: live, log, missing, restart }
}

export const startAsked = (changes: Partial<WarmupStart> = {}): WarmupStart => ({
  curve: null,
  stage: null,
  targetDailyVolume: null,
  restart: false,
  force: false,
  ...changes,
})

export const ipRequest = (changes: Partial<IpRequest> = {}): IpRequest => ({
  pool: 'default',
  messageId: 'msg_1',
  recipientDomain: 'example.com',
  stream: 'transactional',
  isp: 'gmail',
  attempts: 0,
  lastIp: null,
  keepIpUntil: null,
  avoidIps: [],
  families: [4, 6],
  ...changes,
})

export const open = (): PathState => ({ kind: 'open' })

/** The address that was chosen, or what it waits for. */
export function chosen(
  egress: Egress,
  changes: Partial<IpRequest> = {},
  pathOf: (ip: EgressIp) => PathState = open,
): string {
  const choice = egress.choose(ipRequest(changes), pathOf)
  return choice.kind === 'ip' ? choice.ip.address : choice.waitingFor
}

export const ipRecord = (changes: Partial<IpRecord> = {}): IpRecord => ({
  ip: '192.0.2.1',
  state: 'warming',
  formerState: null,
  until: null,
  reason: null,
  actor: 'cli',
  since: MIDNIGHT,
  curve: 'standard',
  stage: 1,
  targetDailyVolume: null,
  startedAt: MIDNIGHT,
  holdReason: null,
  daysHeld: 0,
  daysAtTarget: 0,
  pausedAt: [],
  closedDay: null,
  lastSentAt: null,
  version: 0,
  ...changes,
})
