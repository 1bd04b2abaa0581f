/**
 * The way of mail that never leaves the host: simulated recipients and test keys (contract.md 11). It goes to the
 * capture server over loopback, with plenty of connections and no egress IP; no provider's limits hold.
 *
 * `isp` is `simulator` for simulated recipients; for others what the domain alone tells, since no DNS is asked. Pure.
 */
import { ipFamily } from '../base/ip-address.ts'
import type { Configuration } from '../config/load-configuration.ts'
import { identifyProvider } from '../egress/mailbox-provider.ts'
import { isSimulated } from '../mail/simulator.ts'
import type { HostsRoute } from './route-message.ts'
import type { PathPlan } from './try-result.ts'

/** Where the capture server listens: a loopback address. */
export interface CaptureAddress {
  address: string
  port: number
}

export interface CaptureRoute {
  plan: PathPlan
  routeOf(recipientDomain: string): HostsRoute
}

const CAPTURE = 'capture'
const SIMULATOR_ISP = 'simulator'
const MOST_CONNECTIONS = 50
const MESSAGES_PER_CONNECTION = 1_000

export function createCaptureRoute(
  { address, port }: CaptureAddress,
  { providers, server }: Configuration,
): CaptureRoute {
  const hosts = [{ name: CAPTURE, addresses: [address] }]
  return {
    plan: {
      key: CAPTURE, port, source: ipFamily(address) === 6 ? '::1' : '127.0.0.1', hostname: server.hostname,
      connections: MOST_CONNECTIONS, messagesPerConnection: MESSAGES_PER_CONNECTION,
      idleMilliseconds: providers.default.idle, requiresTls: false,
    },
    routeOf(recipientDomain) {
      const provider = identifyProvider(providers, recipientDomain, [recipientDomain])
      const isp = isSimulated(recipientDomain) ? SIMULATOR_ISP : provider.isp
      return { kind: 'hosts', hosts, siteKey: CAPTURE, provider: { ...provider, isp, limits: providers.default } }
    },
  }
}
