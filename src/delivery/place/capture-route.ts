/**
 * The way of mail that never leaves the host (http/README.md "Simulated recipients"): to the capture server over
 * loopback, with plenty of connections, no egress IP and no provider's limits. `isp` is `simulator` for simulated
 * recipients; for others what the domain alone tells, since no DNS is asked.
 */
import { ipFamily } from '../../base/ip-address.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import { identifyProvider } from '../../egress/shaping/mailbox-provider.ts'
import type { OpenGate } from '../../egress/shaping/shaping.ts'
import { isSimulated } from '../../mail/simulator.ts'
import { CAPTURE_ROUTE } from '../../store/records/queue-records.ts'
import type { PathFacts } from './path-facts.ts'
import type { HostsRoute } from '../route/route-message.ts'
import type { HostTls } from '../protocol/host-tls.ts'
import type { MailHost } from '../protocol/try-result.ts'

/** Where the capture server listens: a loopback address. */
export interface CaptureAddress {
  address: string
  port: number
}

export interface CaptureRoute {
  facts: PathFacts
  routeOf(recipientDomain: string): HostsRoute
}

const SIMULATOR_ISP = 'simulator'
const MOST_CONNECTIONS = 50
const MESSAGES_PER_CONNECTION = 1_000
export const CAPTURE_GATE: OpenGate = {
  kind: 'open',
  connections: MOST_CONNECTIONS,
  messagesPerConnection: MESSAGES_PER_CONNECTION,
  mostUnderWay: Infinity,
  mostOfLane: Infinity,
}

export function createCaptureRoute({ address, port }: CaptureAddress, current: () => Configuration): CaptureRoute {
  const { server, providers } = current()
  const tls: HostTls = { kind: 'opportunistic', policy: { type: 'none', id: '' } }
  const hosts: MailHost[] = [{ name: CAPTURE_ROUTE, addresses: [address], tls }]
  return {
    facts: {
      key: CAPTURE_ROUTE,
      route: CAPTURE_ROUTE,
      isp: CAPTURE_ROUTE,
      shaped: null,
      plan: {
        key: CAPTURE_ROUTE,
        port,
        source: ipFamily(address) === 6 ? '::1' : '127.0.0.1',
        hostname: server.hostname,
        connections: MOST_CONNECTIONS,
        messagesPerConnection: MESSAGES_PER_CONNECTION,
        idleMilliseconds: providers.default.idle,
        connectionRate: null,
      },
    },
    routeOf(recipientDomain) {
      const settings = current().providers
      const provider = identifyProvider(settings, recipientDomain, [recipientDomain])
      const isp = isSimulated(recipientDomain) ? SIMULATOR_ISP : provider.isp
      const captured = { ...provider, isp, limits: settings.default, route: CAPTURE_ROUTE }
      return { kind: 'hosts', hosts, siteKey: CAPTURE_ROUTE, provider: captured }
    },
  }
}
