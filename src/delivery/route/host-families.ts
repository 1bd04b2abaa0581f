/**
 * Which hosts, and which address family, an egress IP is for (network/README.md "Mail hosts"; `delivery.ipv6`). Pure.
 */
import { ipFamily } from '../../base/ip-address.ts'
import type { IPV6_CHOICES } from '../../config/settings/delivery-settings.ts'
import type { EgressIp } from '../../egress/egress.ts'
import type { HostsRoute } from './route-message.ts'
import type { MailHost } from '../protocol/try-result.ts'

type Ipv6Choice = (typeof IPV6_CHOICES)[number]

/** The hosts that a socket of the IP can reach, each with the addresses of its family. */
export function hostsFor(ip: Pick<EgressIp, 'source'>, { hosts }: Pick<HostsRoute, 'hosts'>): MailHost[] {
  const family = ipFamily(ip.source)
  return hosts
    .map((host) => ({ ...host, addresses: host.addresses.filter((address) => ipFamily(address) === family) }))
    .filter(({ addresses }) => addresses.length > 0)
}

/**
 * From which families an IP may be chosen: the preferred one when hosts and pool have it, else the other. `sources`:
 * the addresses that the IPs of the pool bind.
 */
export function familiesToAsk(
  hosts: readonly Pick<MailHost, 'addresses' | 'tls'>[],
  choice: Ipv6Choice,
  sources: readonly string[],
): (4 | 6)[] {
  const usable = hosts.filter(({ tls }) => tls.kind !== 'skip').flatMap(({ addresses }) => addresses)
  const reachable = new Set(usable.map((address) => ipFamily(address)))
  const own = new Set(sources.map((source) => ipFamily(source)))
  const order = ([4, 6] as const).filter((family) => family === 4 || choice !== 'off')
  if (choice === 'prefer-v6') order.reverse()
  const possible = order.filter((family) => reachable.has(family) && own.has(family))
  return possible.slice(0, 1)
}
