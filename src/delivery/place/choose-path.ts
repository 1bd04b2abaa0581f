/**
 * The path of one message: which egress IP it leaves from now, or why none can take it and until when. `egress` chooses
 * among the IPs; this file says what shaping and the rows before the message leave free of each path. Takes nothing and
 * changes nothing. egress/README.md "Which IP".
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { ipFamily } from '../../base/ip-address.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import type { IPV6_CHOICES } from '../../config/settings/delivery-settings.ts'
import type { Egress } from '../../egress/egress.ts'
import type { EgressIp, IpChoice, PathState } from '../../egress/ips/egress-ip.ts'
import type { Gate, Lane } from '../../egress/shaping/shaping.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { MailHost } from '../protocol/try-result.ts'
import type { HostsRoute } from '../route/route-message.ts'
import type { CaptureRoute, PathFacts, PathFactsMaker } from './path-facts.ts'
import type { PathRoom } from './paths.ts'
import type { ReadyWindow } from './ready-window.ts'
import { allBusy, triedOut } from './take-rows.ts'

export type ChosenPath =
  | { kind: 'path'; facts: PathFacts; ip: EgressIp | null; needsGrant: boolean; isProbe: boolean }
  | Extract<IpChoice, { kind: 'wait' }>

export type ChosenMessage = Pick<
  ClaimedMessage,
  | 'id'
  | 'pool'
  | 'route'
  | 'domain'
  | 'stream'
  | 'recipientDomain'
  | 'attempts'
  | 'lastIp'
  | 'keepIpUntil'
  | 'avoidIps'
  | 'isCaptured'
>

/** `before`: rows that were given this path just now, and are not on it yet. */
export type ChoosePath = (message: ChosenMessage, route: HostsRoute, before?: (pathKey: string) => number) => ChosenPath

interface ChoosePathOptions {
  clock: Clock
  configuration: () => Configuration
  egress: Pick<Egress, 'choose' | 'ipsUsedBy'>
  gateOf: (facts: PathFacts, lane: Lane | null) => Gate
  pathFacts: Pick<PathFactsMaker, 'of' | 'generation'>
  paths: Pick<PathRoom, 'hasRoom' | 'takesMore'>
  window: Pick<ReadyWindow, 'ofDomain'>
  capture: CaptureRoute
}

type AskedPath = { ip: EgressIp; facts: PathFacts; gate: Gate }

/** After so long a path with too many rows is asked again. */
const FULL_FOR = SECOND
const OPEN: PathState = { kind: 'open' }

export function createChoosePath(options: ChoosePathOptions): ChoosePath {
  const { clock, configuration, egress, gateOf, pathFacts, paths, window, capture } = options

  function stateOf({ facts, gate }: AskedPath, message: ChosenMessage, before: number): PathState {
    if (gate.kind === 'closed') return { ...gate, takesRows: gate.takesRows && paths.takesMore(facts, before) }
    const isFull = !paths.hasRoom(facts, gate)
    // The window counts this message as well.
    const isTaken = window.ofDomain(message.pool, message.route, message.domain) > gate.mostOfLane
    if (!isFull && !isTaken) return OPEN
    const isProbing = gate.mostUnderWay === 1 || isTaken
    return { kind: 'closed', until: clock.now() + FULL_FOR, ...(isProbing ? triedOut : allBusy)(facts.isp) }
  }

  /** Kept for each route and pool: to read the addresses each time would cost more than all the rest. */
  let knownFamilies = new WeakMap<HostsRoute, Map<string, (4 | 6)[]>>()
  let generation = pathFacts.generation()

  function familiesOf(pool: string, route: HostsRoute): (4 | 6)[] {
    if (generation !== pathFacts.generation()) knownFamilies = new WeakMap()
    generation = pathFacts.generation()
    const ofRoute = knownFamilies.get(route) ?? new Map<string, (4 | 6)[]>()
    knownFamilies.set(route, ofRoute)
    const known = ofRoute.get(pool)
    if (known !== undefined) return known
    const { pools, server } = configuration()
    const preference = pools.pools[pool]?.ipv6 ?? server.delivery.ipv6
    const sources = egress.ipsUsedBy(pool).map(({ source }) => source)
    const found = familiesToAsk(route.hosts, preference, sources)
    ofRoute.set(pool, found)
    return found
  }

  return (message, route, chosenBefore = () => 0) => {
    if (message.isCaptured) return { kind: 'path', facts: capture.facts, ip: null, needsGrant: false, isProbe: false }
    const { provider } = route
    const lane: Lane = { domain: message.domain, stream: message.stream }
    // Most often the last one asked for is the one that is chosen.
    let asked: AskedPath | undefined
    const ask = (ip: EgressIp): AskedPath => {
      const facts = pathFacts.of(ip, provider)
      return { ip, facts, gate: gateOf(facts, lane) }
    }
    const { id: messageId, pool, stream, recipientDomain, attempts, lastIp, keepIpUntil, avoidIps } = message
    const families = familiesOf(pool, route)
    const { isp } = provider
    const request = { pool, messageId, recipientDomain, stream, isp, attempts, lastIp, keepIpUntil, avoidIps, families }
    const choice = egress.choose(request, (ip) => {
      asked = ask(ip)
      return stateOf(asked, message, chosenBefore(asked.facts.key))
    })
    if (choice.kind === 'wait') return choice
    const { ip, needsGrant } = choice
    const { facts, gate } = asked?.ip === ip ? asked : ask(ip)
    const isProbe = gate.kind === 'open' && Math.min(gate.mostUnderWay, gate.mostOfLane) === 1
    return { kind: 'path', facts, ip, needsGrant, isProbe }
  }
}

/** The hosts that a socket of the IP can reach, each with the addresses of its family. */
export function hostsFor(ip: Pick<EgressIp, 'source'>, { hosts }: Pick<HostsRoute, 'hosts'>): MailHost[] {
  const family = ipFamily(ip.source)
  return hosts
    .map((host) => ({ ...host, addresses: host.addresses.filter((address) => ipFamily(address) === family) }))
    .filter(({ addresses }) => addresses.length > 0)
}

/**
 * From which families an IP may be chosen, the preferred one first: those that hosts and pool have (`delivery.ipv6`;
 * egress/README.md "Which IP"). `sources`: the addresses that the IPs of the pool bind.
 */
export function familiesToAsk(
  hosts: readonly Pick<MailHost, 'addresses' | 'tls'>[],
  choice: (typeof IPV6_CHOICES)[number],
  sources: readonly string[],
): (4 | 6)[] {
  const usable = hosts.filter(({ tls }) => tls.kind !== 'skip').flatMap(({ addresses }) => addresses)
  const reachable = new Set(usable.map((address) => ipFamily(address)))
  const own = new Set(sources.map((source) => ipFamily(source)))
  const order = ([4, 6] as const).filter((family) => family === 4 || choice !== 'off')
  if (choice === 'prefer-v6') order.reverse()
  return order.filter((family) => reachable.has(family) && own.has(family))
}
