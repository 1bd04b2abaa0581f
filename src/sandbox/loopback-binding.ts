/**
 * Where the sandbox binds the IPs of its pools. Linux has all of 127.0.0.0/8; elsewhere, as on macOS, loopback is one
 * address, and every IP of it is bound there. Never throws.
 */
import { deepFreeze, type Configuration } from '../config/load-configuration.ts'
import type { Pool } from '../config/settings/pool-settings.ts'
import { canBind } from '../network/local-addresses.ts'
import { SANDBOX_ADDRESS } from './sandbox-settings.ts'

/** There where the whole network is. */
const ANOTHER_ADDRESS = '127.0.0.2'

/** Resolves with what makes of a configuration one for this machine. */
export async function loopbackBinding(): Promise<(configuration: Configuration) => Configuration> {
  return (await canBind(ANOTHER_ADDRESS)) ? (configuration) => configuration : boundToOneAddress
}

function boundToOneAddress(configuration: Configuration): Configuration {
  const pools: Record<string, Pool> = Object.create(null)
  for (const [name, pool] of Object.entries(configuration.pools.pools)) {
    const ips = pool.ips.map((ip) => (ip.source.startsWith('127.') ? { ...ip, source: SANDBOX_ADDRESS } : ip))
    pools[name] = { ...pool, ips }
  }
  return deepFreeze({ ...configuration, pools: { ...configuration.pools, pools } })
}
