/**
 * The facts of a path (egress IP, route) that shaping works with. Pure.
 *
 * An override of a pool counts where it is tighter than the provider's own limit, and only there.
 */
import type { Pool } from '../../config/settings/pool-settings.ts'
import type { ProviderLimits } from '../../config/settings/provider-settings.ts'
import type { MailboxProvider } from './mailbox-provider.ts'
import type { EgressIp } from '../ips/egress-ip.ts'
import { isSlower } from './reply-limits.ts'
import type { ShapedPath } from './shaping.ts'

/** In `limits` of a pool: the hosts of those that are no provider of providers.yaml. */
const DEFAULT_LIMITS = 'default'

export function shapedPath(
  { address, poolLimits, newIpLimits }: Pick<EgressIp, 'address' | 'poolLimits' | 'newIpLimits'>,
  { provider, isp, limits, route }: MailboxProvider,
): ShapedPath {
  const override = poolLimits[provider ?? DEFAULT_LIMITS]
  return {
    key: `${address} ${route}`,
    ip: address,
    route,
    provider,
    isp,
    newIpLimits,
    limits: override === undefined ? limits : tighterLimits(limits, override),
  }
}

function tighterLimits(limits: ProviderLimits, override: Pool['limits'][string]): ProviderLimits {
  const { connections, messages_per_connection: messages, rate, connection_rate: connectionRate } = override
  return {
    ...limits,
    connections: Math.min(limits.connections, connections ?? Infinity),
    messages_per_connection: Math.min(limits.messages_per_connection, messages ?? Infinity),
    rate: rate !== undefined && isSlower(rate, limits.rate) ? rate : limits.rate,
    connection_rate:
      connectionRate !== undefined && isSlower(connectionRate, limits.connection_rate)
        ? connectionRate
        : limits.connection_rate,
  }
}
