/**
 * The configuration of simulated worlds: loaded once from files, then changed as a story says.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loadConfiguration, type Configuration } from '../../src/config/load-configuration.ts'
import type { Settings } from './story.ts'

export const IPS = ['127.0.0.11', '127.0.0.12', '127.0.0.13']
export const PROVIDER = 'provider'
/** Messages of the first day of a warming IP. */
export const FIRST_STAGE = 20
const RETRY_WAITS = ['1m', '2m', '5m']
/** Longest wait before a retry, in milliseconds, with its jitter. */
export const LONGEST_RETRY = 5 * 60_000 * 1.2

/** What all worlds share. */
export function loadOnce(): Configuration {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-simulation-'))
  const files: Record<string, object> = {
    sternpost: {
      version: 1,
      hostname: 'sternpost.test',
      data_dir: join(folder, 'data'),
      secrets: { master_key: { file: join(folder, 'master.key') } },
      listen: { http: [], submission: [], inbound: [], metrics: null },
      delivery: {
        allow_private_addresses: true,
        retry: RETRY_WAITS,
        greylist_retry: ['1m', '2m'],
        uncertain_retry: '1m',
        threads: 1,
        lease: '131s',
        timeouts: { final_dot: '10s' },
      },
      webhooks: { allow_http: true, allow_private_addresses: true },
    },
    pools: {
      version: 1,
      default_pool: 'default',
      pools: {
        default: {
          overflow: 'defer',
          ips: IPS.map((address, index) => ({ address, hostname: `mta${index + 1}.sternpost.test`, warmed: true })),
        },
      },
    },
    warmup: { version: 1, curves: { standard: { stages: [FIRST_STAGE, 40, 80] } } },
    providers: {
      version: 1,
      default: {},
      replies: [],
      providers: { [PROVIDER]: { domains: ['provider.test'], mx_suffixes: ['provider.test'], scope: 'provider' } },
    },
    bounces: { version: 1, rules: [] },
  }
  writeFileSync(join(folder, 'master.key'), Buffer.alloc(32, 7).toString('base64'), { mode: 0o600 })
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.yaml`), JSON.stringify(content))
  }
  try {
    return loadConfiguration({ folder, shippedFolder: folder, offline: true })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

export interface LiveLimits {
  /** Of the story's rate. */
  rateShare: number
  connections: number
}

export function configurationFor(
  base: Configuration,
  settings: Settings,
  { rateShare, connections }: LiveLimits,
): Configuration {
  const { server, pools, providers } = base
  const limits = {
    connections,
    messages_per_connection: settings.messagesPerConnection,
    in_flight: settings.inFlight,
    rate: { ...settings.rate, count: Math.max(1, Math.round(settings.rate.count * rateShare)) },
  }
  const pool = pools.pools['default']
  const block = providers.providers[PROVIDER]
  if (pool === undefined || block === undefined) throw new Error('the files of the simulator lack a block')
  const ips = pool.ips
    .slice(0, settings.ips)
    .map((ip, index) => ({ ...ip, warmed: !(settings.isWarming && index === settings.ips - 1) }))
  return {
    ...base,
    server: {
      ...server,
      delivery: { ...server.delivery, ready_window: settings.readyWindow, threads: settings.threads },
    },
    pools: { ...pools, pools: { default: { ...pool, ips, connections_max: settings.poolConnections } } },
    providers: {
      ...providers,
      default: { ...providers.default, ...limits },
      providers: { [PROVIDER]: { ...block, ...limits } },
    },
  }
}
