/**
 * What is fixed of a path for as long as configuration and IPs stay as they are: its limits, and what its thread needs.
 * Made once for each (IP, route) and kept, because every claim asks for many. Never throws. egress/README.md "Limits of
 * a path".
 */
import { recentEntries } from '../../base/recent-entries.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import type { EgressIp } from '../../egress/ips/egress-ip.ts'
import type { MailboxProvider } from '../../egress/shaping/mailbox-provider.ts'
import { shapedPath } from '../../egress/shaping/path-limits.ts'
import type { ShapedPath } from '../../egress/shaping/shaping.ts'
import type { PathPlan } from '../protocol/try-result.ts'

export interface PathFacts {
  key: string
  route: string
  isp: string
  /** What shaping knows it by; null: the way to the capture server, which nothing limits. */
  shaped: ShapedPath | null
  /** `connections` and `messagesPerConnection` are those of the gate when a batch is made. */
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
    const { limits } = shaped
    return {
      key: shaped.key,
      route: provider.route,
      isp: provider.isp,
      shaped,
      plan: {
        key: shaped.key,
        port: server.delivery.port,
        source: ip.source,
        hostname: ip.hostname,
        connections: limits.connections,
        messagesPerConnection: limits.messages_per_connection,
        idleMilliseconds: limits.idle,
        connectionRate: limits.connection_rate,
      },
    }
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
