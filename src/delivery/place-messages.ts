/**
 * Claimed messages to their paths: hosts and provider of the recipient domain, then an egress IP for each message. What
 * is captured goes to the capture server instead, whatever its domain and pool say.
 *
 * A message for which no IP can send now, or whose sending domain is gone, goes back to the queue with a time. Nothing
 * here is an attempt. One slow name does not hold up the others. Engine.md 2 (steps 5 and 7), 5.4.
 */
import { LRUCache } from 'lru-cache'
import { MINUTE, SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { ipFamily } from '../base/ip-address.ts'
import type { Logger } from '../base/logger.ts'
import type { Configuration } from '../config/load-configuration.ts'
import type { Egress, EgressIp } from '../egress/pool.ts'
import type { MailHostsFinder } from '../network/mail-hosts.ts'
import type { ClaimedMessage } from '../store/records.ts'
import type { Store } from '../store/store.ts'
import { createCaptureRoute } from './capture-route.ts'
import type { CaptureAddress } from './capture-route.ts'
import type { OutcomeRecorder } from './outcome-recorder.ts'
import { createFindRoute } from './route-message.ts'
import type { HostsRoute, NoHosts, Route } from './route-message.ts'
import type { PlacedRow } from './placed-row.ts'
import type { MailHost, PathPlan } from './try-result.ts'

export interface MessagePlacer {
  place(messages: ClaimedMessage[]): void
  /** The path a message would get now; undefined: nothing went to its domain lately. */
  locate(message: LocatedMessage): Located | undefined
  /** Resolves when every message has been placed, judged or given back. */
  settled(): Promise<void>
}

/** What the choice of a path needs. */
export type LocatedMessage =
  Pick<ClaimedMessage, 'id' | 'pool' | 'recipientDomain' | 'stickyIp' | 'pathFailures' | 'isCaptured'>

export type Located =
  | { kind: 'path'; plan: PathPlan; route: HostsRoute; ip: EgressIp | null }
  | { kind: 'no-ip' } // no IP of the pool can reach the hosts

export interface MessagePlacerOptions {
  store: Pick<Store, 'findReturnPath'>
  clock: Clock
  logger: Logger
  egress: Egress
  mailHosts: MailHostsFinder
  configuration: Configuration
  captureAddress: CaptureAddress
  recorder: OutcomeRecorder
  onPlaced: (rows: PlacedRow[]) => void
  onDnsAnswer: (answer: NoHosts, messages: ClaimedMessage[]) => void
}

/** When no IP of the pool can reach the hosts now, or the sending domain is gone: look again after this. */
const LOOK_AGAIN_AFTER = 5 * MINUTE
/** After so many path failures in a row another IP may try (engine.md 5.4). */
const PATH_FAILURES_OF_ONE_IP = 3
const MOST_RETURN_PATHS = 5_000
const MOST_LAST_ROUTES = 20_000
/** A domain that was removed and added anew may have another one. */
const RETURN_PATH_LIFETIME = SECOND

export function createMessagePlacer(options: MessagePlacerOptions): MessagePlacer {
  const { store, clock, logger, egress, configuration, recorder } = options
  const findRoute = createFindRoute({ mailHosts: options.mailHosts, providers: configuration.providers, clock })
  const capture = createCaptureRoute(options.captureAddress, configuration)
  const returnPaths = new LRUCache<string, string>({ max: MOST_RETURN_PATHS, ttl: RETURN_PATH_LIFETIME })
  const lastRoutes = new LRUCache<string, HostsRoute>({ max: MOST_LAST_ROUTES })
  const underWay = new Set<Promise<void>>()

  const giveBack = (messages: readonly ClaimedMessage[], reason: string): void => {
    logger.warn({ reason, messages: messages.length, message_id: messages[0]?.id }, 'messages can not be sent now')
    for (const message of messages) recorder.giveBack(message.key, clock.now() + LOOK_AGAIN_AFTER)
  }

  async function returnPathOf(domain: string): Promise<string | undefined> {
    const known = returnPaths.get(domain)
    if (known !== undefined) return known
    const found = await store.findReturnPath(domain)
    if (found === null) return undefined
    returnPaths.set(domain, found)
    return found
  }

  async function routeFor({ isCaptured, recipientDomain }: LocatedMessage): Promise<Route> {
    if (isCaptured) return capture.routeOf(recipientDomain)
    const route = await findRoute(recipientDomain)
    if (route.kind === 'hosts') lastRoutes.set(recipientDomain, route)
    return route
  }

  /** All of one recipient domain, and either all captured or none. */
  async function placeGroup(first: ClaimedMessage, messages: ClaimedMessage[]): Promise<void> {
    const route = await routeFor(first)
    if (route.kind !== 'hosts') return options.onDnsAnswer(route, messages)
    const placed: PlacedRow[] = []
    for (const message of messages) {
      const known = returnPaths.get(message.domain) ?? (await returnPathOf(message.domain))
      // Mail of test keys may come from a domain that this server has no record of: reports come to the server itself.
      const returnPath = known ?? (message.isCaptured ? configuration.server.domains.targets.return_path : undefined)
      const located = locateOn(route, message)
      if (returnPath === undefined) giveBack([message], `the sending domain ${message.domain} is not there`)
      else if (located.kind !== 'path') {
        giveBack([message], `no egress IP of pool ${message.pool} reaches ${message.recipientDomain}`)
      } else {
        const { failures: failuresAllowed } = route.provider.limits
        placed.push({ ...located, key: message.key, message, failuresAllowed, returnPath })
      }
    }
    options.onPlaced(placed)
  }

  function locateOn(route: HostsRoute, message: LocatedMessage): Located {
    if (message.isCaptured) return { kind: 'path', plan: capture.plan, route, ip: null }
    const ip = chooseIp(message, route)
    if (ip === undefined) return { kind: 'no-ip' }
    const plan = planPath(ip, route, configuration)
    return { kind: 'path', plan, route: { ...route, hosts: hostsFor(ip, route) }, ip }
  }

  function chooseIp(message: LocatedMessage, route: HostsRoute): EgressIp | undefined {
    return egress.choose({
      pool: message.pool, messageId: message.id, recipientDomain: message.recipientDomain,
      stickyIp: message.pathFailures < PATH_FAILURES_OF_ONE_IP ? message.stickyIp : null,
      families: familiesOf(route.hosts),
    })
  }

  return {
    place(messages) {
      const groups = Map.groupBy(messages, ({ recipientDomain, isCaptured }) => `${isCaptured} ${recipientDomain}`)
      for (const group of groups.values()) {
        const [first] = group
        if (first === undefined) continue
        const placing = placeGroup(first, group)
          .catch((thrown: unknown) => giveBack(group, errorText(thrown)))
          .finally(() => underWay.delete(placing))
        underWay.add(placing)
      }
    },
    locate(message) {
      const { isCaptured, recipientDomain } = message
      const route = isCaptured ? capture.routeOf(recipientDomain) : lastRoutes.get(recipientDomain)
      return route === undefined ? undefined : locateOn(route, message)
    },
    async settled() {
      await Promise.all(underWay)
    },
  }
}

/** Those in the family of the IP's socket. */
function hostsFor(ip: EgressIp, { hosts }: HostsRoute): MailHost[] {
  const family = ipFamily(ip.source)
  return hosts
    .map(({ name, addresses }) => ({ name, addresses: addresses.filter((address) => ipFamily(address) === family) }))
    .filter(({ addresses }) => addresses.length > 0)
}

/** The limits of the provider, lowered by those of the pool. */
function planPath(ip: EgressIp, { provider }: HostsRoute, { pools, server }: Configuration): PathPlan {
  const { limits } = provider
  const ofPool = pools.pools[ip.pool]?.limits[provider.provider ?? 'default']
  return {
    key: `${ip.address} ${provider.route}`,
    port: server.delivery.port,
    source: ip.source,
    hostname: ip.hostname,
    connections: Math.min(limits.connections, ofPool?.connections ?? Infinity),
    messagesPerConnection: Math.min(limits.messages_per_connection, ofPool?.messages_per_connection ?? Infinity),
    idleMilliseconds: limits.idle,
    requiresTls: limits.tls === 'required' || server.delivery.tls === 'required',
  }
}

function familiesOf(hosts: readonly MailHost[]): (4 | 6)[] {
  const families = new Set(hosts.flatMap(({ addresses }) => addresses.map((address) => ipFamily(address))))
  return ([4, 6] as const).filter((family) => families.has(family))
}
