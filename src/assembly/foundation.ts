/**
 * What every part of the appliance is made with: store, clock, keys, DNS. Opening the store begins the epoch of this
 * process. Throws ProcessExit when the database cannot be opened.
 */
import { createClockWatch, type IsClockSteady } from '../base/clock-watch.ts'
import { systemClock, type Clock } from '../base/clock.ts'
import { createKeyRing, type KeyRing } from '../base/key-ring.ts'
import type { Logger, LogLevel } from '../base/logger.ts'
import { createMetrics, type Metrics } from '../base/metrics.ts'
import type { PassedSockets } from '../base/service/passed-sockets.ts'
import type { ServiceNotices } from '../base/service/service-manager.ts'
import { stopTogether, type Stops } from '../base/service/start-whole.ts'
import { createLiveConfiguration, type ReplaceableConfiguration } from '../config/live-configuration.ts'
import type { Configuration } from '../config/load-configuration.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { HttpServersOptions } from '../http/server.ts'
import { createClassifier, type ClassifyReply } from '../mail/reply/classify-reply.ts'
import { createDnsResolver } from '../network/dns-resolver.ts'
import { createGuardedLookup } from '../network/guarded-lookup.ts'
import { createGuardedRequest, type GuardedRequest, type GuardedRequestOptions } from '../network/guarded-request.ts'
import { listeningAddresses } from '../network/local-addresses.ts'
import { measuredBy, type DnsNotes } from '../network/measured-resolver.ts'
import { withFront, type Resolver, type ValidatingResolver } from '../network/resolver.ts'
import { createValidatingResolver } from '../network/validating-resolver.ts'
import type { Domains } from '../senders/domains.ts'
import { openStore } from '../store/open/open-store.ts'
import { locationFor, type StoreLocation } from '../store/store-location.ts'
import type { Store } from '../store/store.ts'
import type { WebhookEndpoints } from '../webhooks/endpoints.ts'
import type { Nodes } from '../nodes/nodes.ts'
import { nodeIdOf, startNodes } from './nodes.ts'

interface Outside {
  resolver: Resolver
  /** Time as schedules see it. */
  clock: Clock & { speed(): number }
  /** Takes mail that never leaves the host; runs already. */
  captureAddress: { address: string; port: number }
  /** Scheme, host and port of every link in mail that leads back to us. */
  trackingUrl: string
  handlers: NonNullable<HttpServersOptions['extraHandlers']>
  /** Before the first delivery: its DNS tells their records. */
  useDomains: (domains: Domains) => void
  observeWebhooks: (endpoints: WebhookEndpoints) => WebhookEndpoints
}

export interface ApplianceOptions {
  configuration: Configuration
  /** Where the configuration files are. Left out: nowhere. */
  configurationFolder?: string
  /** Reads the configuration files again; throws ConfigurationError. Left out: there is nothing to reload. */
  loadAgain?: () => Configuration
  logger: Logger
  /** Left out: the level of the log stays as it is. */
  setLogLevel?: (level: LogLevel) => void
  clock?: Clock
  outside?: Outside
  /** Something happened that this process cannot go on after: a dead store, threads that keep dying. */
  onFatal: (reason: Error) => void
  notices?: ServiceNotices
  passed?: PassedSockets
}

export interface Foundation extends ApplianceOptions {
  /** What is in force now; `configuration` is what the server started with. */
  live: ReplaceableConfiguration
  isClockSteady: IsClockSteady
  classify: ClassifyReply
  clock: Clock
  /** For what takes real time: lookups, leases. The same one, but where application time is another. */
  realClock: Clock
  metrics: Metrics
  store: Store
  location: StoreLocation
  /** The fence of all claims of this process. */
  epoch: number
  keyRing: KeyRing
  /** Others that work with the same database. */
  nodes: Nodes
  resolver: Resolver
  stops: Stops
  /** Doors and what they feed: these end at the same time, first of all, each within its own patience. */
  working: Stops
}

export async function openFoundation(options: ApplianceOptions, stops: Stops): Promise<Foundation> {
  const { configuration, logger, outside, onFatal, passed } = options
  // Of a start that fails: open sockets keep a process alive.
  stops.push(async () => void passed?.closeRest())
  const live = createLiveConfiguration(configuration)
  let classify = createClassifier(configuration.bounces.rules)
  live.onChange(() => {
    classify = createClassifier(live.current().bounces.rules)
  })
  const clock = outside?.clock ?? options.clock ?? systemClock
  const realClock = outside === undefined ? clock : systemClock
  const metrics = createMetrics()
  const location = storeLocation(configuration)
  const store = await openStore({ location, logger: logger.child({ part: 'store' }), metrics, onDeath: onFatal })
  stops.push(() => store.close())
  // For a start that fails half way; otherwise they have ended before.
  const working: Stops = []
  stops.push(() => stopTogether(working, logger))
  const now = clock.now()
  const { server } = configuration
  const uncertainAt = now + server.delivery.uncertain_retry
  const begun = await store.beginEpoch(now, uncertainAt, nodeIdOf(location))
  const { epoch, recovered, uncertain, newestAt } = begun
  metrics.leasesRecovered.inc(recovered + uncertain)
  metrics.uncertainDeliveries.inc(uncertain)
  const found = { recovered_messages: recovered, uncertain_messages: uncertain }
  logger.info({ part: 'store', epoch, ...found }, 'epoch begun')
  await endWaits(store, now, logger)
  const keyRing = createKeyRing(server.secrets.master_key)
  const parts = { ...options, live, clock, realClock, metrics, store, location, epoch, keyRing, stops }
  const nodes = await startNodes(parts)
  const resolver = withFront(outside?.resolver ?? dnsResolver(configuration), measuredBy(dnsNotes(metrics)))
  return {
    ...parts,
    nodes,
    resolver,
    working,
    classify: (...reply) => classify(...reply),
    isClockSteady: startClockWatch(clock, newestAt, { logger, stops, onFatal }),
  }
}

/** So many in a transaction: a moment for who waits for it. */
const ENDED_AT_ONCE = 10_000

async function endWaits(store: Store, now: number, logger: Logger): Promise<void> {
  let messages: number
  do {
    messages = await store.endWaitsAhead(now, ENDED_AT_ONCE)
    if (messages > 0) logger.warn({ part: 'store', messages }, 'messages that waited for a time far ahead are due')
  } while (messages >= ENDED_AT_ONCE)
}

export function dnsNotes({ dnsLookupSeconds, dnsFailures }: Metrics): DnsNotes {
  return {
    onAnswer: (type, seconds) => dnsLookupSeconds.observe({ type }, seconds),
    onFailure: (kind) => dnsFailures.inc({ kind }),
  }
}

/** Any other clock than that of the machine is moved on purpose. */
function startClockWatch(
  clock: Clock,
  newestAt: number | null,
  { logger, stops, onFatal }: { logger: Logger; stops: Stops; onFatal: (reason: Error) => void },
): IsClockSteady {
  if (clock !== systemClock) return () => true
  const watch = createClockWatch({
    clock,
    monotonic: () => performance.now(),
    logger: logger.child({ part: 'clock' }),
    onSetBack: onFatal,
  })
  watch.start(newestAt)
  stops.push(async () => watch.stop())
  return watch.isSteady
}

/** Connecting to one of these would be talking to ourselves: to the API by a request, to the listener by mail. */
export function ownAddresses({ server, pools }: Configuration, door: 'http' | 'inbound'): string[] {
  const ips = Object.values(pools.pools).flatMap((pool) => pool.ips.flatMap((ip) => [ip.address, ip.source]))
  return [...ips, ...listeningAddresses(server.listen[door])]
}

function dnsResolver({ server }: Configuration): Resolver {
  const { validating_resolver: validating } = server.dns
  return validating === null ? plainResolver(server) : validatingResolver(validating, server.dns)
}

/** The real DNS, not cached, whatever world mail goes to. */
function plainResolver({ dns }: ServerSettings, servers = dns.servers): Resolver {
  return createDnsResolver({ servers, timeoutMilliseconds: dns.timeout, tries: dns.tries })
}

export function validatingResolver(server: string, dns: ServerSettings['dns']): ValidatingResolver {
  return createValidatingResolver({ server, timeoutMilliseconds: dns.timeout, tries: dns.tries })
}

/**
 * Who is asked about blocklists: they refuse public resolvers, so they may have one of their own
 * (`health.blocklist_servers`, of the start).
 */
export function blocklistResolver({ configuration, resolver, outside }: Foundation): Resolver {
  const { server } = configuration
  const { blocklist_servers: servers } = server.health
  return servers.length === 0 || outside !== undefined ? resolver : plainResolver(server, servers)
}

/** Requests to names that others chose; closed with the server. */
export function startGuardedRequest(
  { configuration, stops }: Foundation,
  rules: Omit<GuardedRequestOptions, 'caFile' | 'lookup'>,
  resolver = plainResolver(configuration.server),
): GuardedRequest {
  const { ca_file: caFile } = configuration.server.tls
  const request = createGuardedRequest({ ...rules, caFile, lookup: createGuardedLookup(resolver) })
  stops.push(() => request.close())
  return request
}

function storeLocation({ server }: Configuration): StoreLocation {
  return { ...locationFor(server), erasureKey: createKeyRing(server.secrets.master_key).key('erasure').export() }
}
