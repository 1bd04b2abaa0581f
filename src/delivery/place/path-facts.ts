/**
 * What is fixed of a path for as long as configuration and IPs stay as they are: its limits, and what its thread needs.
 * Made once for each (IP, route) and kept, because every claim asks for many. Never throws. egress/README.md "Limits of
 * a path".
 */
import { ipFamily } from '../../base/ip-address.ts'
import { recentEntries } from '../../base/recent-entries.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import type { EgressIp } from '../../egress/ips/egress-ip.ts'
import { identifyProvider, type MailboxProvider } from '../../egress/shaping/mailbox-provider.ts'
import { shapedPath } from '../../egress/shaping/path-limits.ts'
import type { OpenGate, ShapedPath } from '../../egress/shaping/shaping.ts'
import { isSimulated } from '../../mail/simulator.ts'
import { CAPTURE_ROUTE } from '../../store/records/queue-records.ts'
import type { HostTls } from '../protocol/host-tls.ts'
import type { MailHost, PathPlan } from '../protocol/try-result.ts'
import type { HostsRoute } from '../route/route-message.ts'

const SIMULATOR_ISP = 'simulator'
const CAPTURE_LIMITS = { connections: 50, messagesPerConnection: 1_000 }
export const CAPTURE_GATE: OpenGate = {
  kind: 'open',
  ...CAPTURE_LIMITS,
  carefulHosts: [],
  mostUnderWay: Infinity,
  mostOfLane: Infinity,
}

export interface PathFacts {
  key: string
  route: string
  isp: string
  /** What shaping knows it by; null: the way to the capture server, which nothing limits. */
  shaped: ShapedPath | null
  /** Its limits are those of the gate when a batch is made. */
  plan: PathPlan
}

export type PathFactsMaker = ReturnType<typeof createPathFacts>

/** 64 IPs to 1,500 destinations; about 50 MB when all are there. */
const MOST_REMEMBERED = 100_000

export function createPathFacts(configuration: () => Configuration) {
  const nothingYet = () => recentEntries<string, { facts: PathFacts; provider: MailboxProvider }>(MOST_REMEMBERED)
  let known = nothingYet()

  function make(ip: EgressIp, provider: MailboxProvider): PathFacts {
    const { server } = configuration()
    const shaped = shapedPath(ip, provider)
    const { key, limits } = shaped
    const { connections, messages_per_connection: messagesPerConnection, idle: idleMilliseconds } = limits
    const { source, hostname } = ip
    const ofHosts = { key, port: server.delivery.port, source, hostname, connectionRate: limits.connection_rate }
    const atOnce = { connections, messagesPerConnection, inFlight: limits.in_flight, carefulHosts: [] }
    const plan = { ...ofHosts, ...atOnce, idleMilliseconds }
    return { key, route: provider.route, isp: provider.isp, shaped, plan }
  }

  let generation = 0

  return {
    /** Grows with each `forget`: whoever keeps something as long compares it. */
    generation: () => generation,
    of(ip: EgressIp, provider: MailboxProvider): PathFacts {
      const key = `${ip.address} ${provider.route}`
      const found = known.get(key)
      if (found !== undefined && found.provider === provider) return found.facts
      const facts = make(ip, provider)
      known.set(key, { facts, provider })
      return facts
    },
    /** Configuration or IPs have changed. */
    forget(): void {
      // To empty it would take tens of milliseconds.
      known = nothingYet()
      generation++
    },
  }
}

/** Where the capture server listens: a loopback address. */
type CaptureAddress = { address: string; port: number }

export type CaptureRoute = { facts: PathFacts; routeOf(recipientDomain: string): HostsRoute }

/**
 * The way of mail that never leaves the host (http/README.md "Simulated recipients"): to the capture server over
 * loopback, with plenty of connections, no egress IP and no provider's limits. `isp` is `simulator` for simulated
 * recipients; for others what the domain alone tells, since no DNS is asked.
 */
export function createCaptureRoute({ address, port }: CaptureAddress, current: () => Configuration): CaptureRoute {
  const { server, providers } = current()
  const tls: HostTls = { kind: 'opportunistic', policy: { type: 'none', id: '' } }
  const hosts: MailHost[] = [{ name: CAPTURE_ROUTE, addresses: [address], tls }]
  const source = ipFamily(address) === 6 ? '::1' : '127.0.0.1'
  const times = { idleMilliseconds: providers.default.idle, connectionRate: null }
  const oneByOne = { inFlight: 1, carefulHosts: [] }
  const plan = { key: CAPTURE_ROUTE, port, source, hostname: server.hostname, ...CAPTURE_LIMITS, ...oneByOne, ...times }
  return {
    facts: { key: CAPTURE_ROUTE, route: CAPTURE_ROUTE, isp: CAPTURE_ROUTE, shaped: null, plan },
    routeOf(recipientDomain) {
      const settings = current().providers
      const provider = identifyProvider(settings, recipientDomain, [recipientDomain])
      const isp = isSimulated(recipientDomain) ? SIMULATOR_ISP : provider.isp
      const captured = { ...provider, isp, limits: settings.default, route: CAPTURE_ROUTE }
      return { kind: 'hosts', hosts, siteKey: CAPTURE_ROUTE, provider: captured }
    },
  }
}
