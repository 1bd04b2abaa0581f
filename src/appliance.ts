/**
 * The composition root: makes every part once, in order, hands each one what it needs, and stops them in reverse.
 *
 * This is the only place where the real clock, DNS, sockets and the store come in. The sandbox is the same appliance
 * with another outside world handed over here: a resolver, further routes, settings. Starting either succeeds as a
 * whole or throws ProcessExit or ConfigurationError after stopping what had started.
 */
import { appendFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { systemClock, toUnixSeconds } from './base/clock.ts'
import type { Clock } from './base/clock.ts'
import { createKeyRing } from './base/key-ring.ts'
import type { KeyRing } from './base/key-ring.ts'
import { createLogger } from './base/logger.ts'
import type { Logger } from './base/logger.ts'
import { createMetrics } from './base/metrics.ts'
import type { Metrics } from './base/metrics.ts'
import { packageVersion } from './base/package-version.ts'
import { runService } from './base/run-service.ts'
import type { ServerStarters } from './commands/command-line.ts'
import type { SandboxCommandOptions } from './commands/sandbox.ts'
import { loadConfiguration } from './config/load-configuration.ts'
import type { Configuration } from './config/load-configuration.ts'
import { createDispatcher } from './delivery/dispatcher.ts'
import type { Dispatcher } from './delivery/dispatcher.ts'
import { createEgress } from './egress/pool.ts'
import type { Egress } from './egress/pool.ts'
import type { HealthReport } from './http/features.ts'
import { startMetricsServer } from './http/metrics-server.ts'
import { createHttpServers } from './http/server.ts'
import type { HttpServersOptions } from './http/server.ts'
import { createAcceptMessage } from './messages/accept-message.ts'
import { createMessageLookup } from './messages/lookup-message.ts'
import { createCachedResolver } from './network/cached-resolver.ts'
import { createDnsResolver } from './network/dns-resolver.ts'
import { createGuardedRequest } from './network/guarded-request.ts'
import { canBind } from './network/local-addresses.ts'
import { createMailHosts } from './network/mail-hosts.ts'
import type { Resolver } from './network/resolver.ts'
import { bannerLine, bannerText } from './sandbox/banner.ts'
import { choosePort } from './sandbox/choose-port.ts'
import { prepareDataFolder } from './sandbox/data-folder.ts'
import { sandboxBaseUrl, sandboxOverrides } from './sandbox/sandbox-settings.ts'
import { createSandbox } from './sandbox/sandbox.ts'
import type { Sandbox } from './sandbox/sandbox.ts'
import { createSchedule } from './schedule.ts'
import { createApiKeys } from './senders/api-key.ts'
import type { ApiKeys } from './senders/api-key.ts'
import { createDomains } from './senders/domains.ts'
import type { Domains } from './senders/domains.ts'
import { verifySignature } from './senders/verify-signature.ts'
import { openStore } from './store/open-store.ts'
import type { StoreLocation } from './store/store-location.ts'
import type { Store } from './store/store.ts'
import { createWebhookEndpoints } from './webhooks/register-endpoint.ts'
import type { WebhookEndpoints } from './webhooks/register-endpoint.ts'
import { createWebhookEngine } from './webhooks/webhook-engine.ts'
import type { WebhookEngine } from './webhooks/webhook-engine.ts'

/** What may stand in for the real outside world. */
export interface Outside {
  resolver: Resolver
  /** Asked before the API. */
  handlers: NonNullable<HttpServersOptions['extraHandlers']>
  /** Sees what is registered. */
  observeWebhooks: (register: WebhookEndpoints['register']) => WebhookEndpoints['register']
}

export interface ApplianceOptions {
  configuration: Configuration
  logger: Logger
  clock?: Clock
  outside?: Outside
  /** Something happened that this process cannot go on after: a dead store, threads that keep dying. */
  onFatal: (reason: Error) => void
}

export interface Appliance {
  /** The bound HTTP ports, in the order of `listen.http`. */
  ports: number[]
  metrics: Metrics
  store: Store
  apiKeys: ApiKeys
  domains: Domains
  webhookEndpoints: WebhookEndpoints
  /** Resolves when store and delivery threads have answered; the watchdog's question. */
  isAlive(): Promise<void>
  stop(): Promise<void>
}

export async function startAppliance(options: ApplianceOptions): Promise<Appliance> {
  return startWhole(options.logger, (stops, stop) => startParts(options, stops, stop))
}

type Stops = (() => Promise<void>)[]

/** `start` notes in `stops` what it has started; when it fails, all that is stopped again, the last first. */
async function startWhole<Whole>(
  logger: Logger,
  start: (stops: Stops, stop: () => Promise<void>) => Promise<Whole>,
): Promise<Whole> {
  const stops: Stops = []
  const stop = async (): Promise<void> => {
    // One part that fails to stop must not keep the others open.
    for (const stopPart of stops.splice(0).toReversed()) {
      await stopPart().catch((thrown: unknown) => logger.error({ err: thrown }, 'a part did not stop'))
    }
  }
  try {
    return await start(stops, stop)
  } catch (thrown) {
    await stop()
    throw thrown
  }
}

/** What every part is made with. */
interface Foundation extends ApplianceOptions {
  clock: Clock
  metrics: Metrics
  store: Store
  location: StoreLocation
  /** The fence of all claims of this process. */
  epoch: number
  keyRing: KeyRing
  resolver: Resolver
  stops: Stops
}

async function startParts(options: ApplianceOptions, stops: Stops, stop: () => Promise<void>): Promise<Appliance> {
  const foundation = await openFoundation(options, stops)
  const { store, metrics } = foundation
  const egress = await startEgress(foundation)
  const webhooks = startWebhooks(foundation)
  const senders = createSenders(foundation, egress, webhooks)
  const dispatcher = await startDelivery(foundation, egress, webhooks)
  startSchedule(foundation, senders, dispatcher, webhooks)
  const ports = await startHttp(foundation, { egress, dispatcher, ...senders, ...webhooks })
  const isAlive = async (): Promise<void> => {
    await Promise.all([store.tick(), dispatcher.ticks()])
  }
  return { ports, metrics, store, ...senders, webhookEndpoints: webhooks.webhookEndpoints, isAlive, stop }
}

async function openFoundation(options: ApplianceOptions, stops: Stops): Promise<Foundation> {
  const { configuration, logger, clock = systemClock, outside, onFatal } = options
  const metrics = createMetrics()
  const location = storeLocation(configuration)
  const store = await openStore({ location, logger: logger.child({ part: 'store' }), metrics, onDeath: onFatal })
  stops.push(() => store.close())
  const { epoch, recovered } = await store.beginEpoch(clock.now())
  metrics.leasesRecovered.inc(recovered)
  logger.info({ part: 'store', epoch, recovered_messages: recovered }, 'epoch begun')
  const keyRing = createKeyRing(configuration.server.secrets.master_key)
  const resolver = outside?.resolver ?? dnsResolver(configuration)
  return { ...options, clock, metrics, store, location, epoch, keyRing, resolver, stops }
}

async function startEgress({ configuration, logger, store }: Foundation): Promise<Egress> {
  const egress = createEgress({ pools: configuration.pools, canBind, logger: logger.child({ part: 'egress' }) })
  await egress.start()
  const { default_pool: target } = configuration.pools
  const moved = await store.moveOrphans(egress.poolNames(), target)
  if (moved > 0) logger.warn({ part: 'egress', messages: moved, pool: target }, 'messages of removed pools moved')
  return egress
}

interface Senders {
  domains: Domains
  apiKeys: ApiKeys
}

function createSenders(foundation: Foundation, egress: Egress, { webhookEngine }: Webhooks): Senders {
  const { configuration, store, clock, keyRing, resolver, logger, stops, outside } = foundation
  const { hostname, domains: settings, tracking, api } = configuration.server
  const domains = createDomains({
    store, clock, keyRing, egress, resolver, hostname, settings,
    tracking: { opens: tracking.opens, clicks: tracking.clicks },
    mostDomains: api.counts_max.domains,
    onEvents: () => webhookEngine.wake(),
    logger: logger.child({ part: 'senders' }),
  })
  stops.push(() => domains.stop())
  return { domains, apiKeys: createApiKeys({ store, clock, allowsTestKeys: outside !== undefined }) }
}

interface Webhooks {
  webhookEndpoints: WebhookEndpoints
  webhookEngine: WebhookEngine
}

function startWebhooks(foundation: Foundation): Webhooks {
  const { configuration, store, clock, keyRing, metrics, logger, epoch, stops, outside } = foundation
  const { webhooks: settings, tls } = configuration.server
  const guardedRequest = createGuardedRequest({
    allowPrivateAddresses: settings.allow_private_addresses,
    allowHttp: settings.allow_http,
    caFile: tls.ca_file,
    ownAddresses: () => ownAddresses(configuration),
  })
  stops.push(() => guardedRequest.close())
  const { register } = createWebhookEndpoints({ store, clock, keyRing, guardedRequest })
  const webhookEngine = createWebhookEngine({
    store, clock, keyRing, guardedRequest, metrics, settings,
    version: packageVersion(),
    logger: logger.child({ part: 'webhooks' }),
  })
  webhookEngine.start(epoch)
  stops.push(() => webhookEngine.stop())
  return { webhookEndpoints: { register: outside?.observeWebhooks(register) ?? register }, webhookEngine }
}

async function startDelivery(foundation: Foundation, egress: Egress, { webhookEngine }: Webhooks): Promise<Dispatcher> {
  const { configuration, store, clock, metrics, logger, epoch, location, resolver, stops, onFatal } = foundation
  const { delivery, dns, secrets } = configuration.server
  const mailHosts = createMailHosts({
    resolver: createCachedResolver({ resolver, cache: dns.cache, clock }),
    allowPrivateAddresses: delivery.allow_private_addresses,
    ownAddresses: () => ownAddresses(configuration),
    mostAddresses: delivery.addresses_max,
  })
  const dispatcher = createDispatcher({
    store, clock, metrics, egress, mailHosts, configuration, epoch, onFatal,
    storeLocation: location,
    masterKey: secrets.master_key,
    logger: logger.child({ part: 'delivery' }),
    onEvents: () => webhookEngine.wake(),
  })
  stops.push(() => dispatcher.stop(delivery.drain))
  await dispatcher.start()
  return dispatcher
}

function startSchedule(
  foundation: Foundation,
  { domains }: Senders,
  dispatcher: Dispatcher,
  { webhookEngine }: Webhooks,
): void {
  const { store, clock, metrics, logger, stops } = foundation
  const schedule = createSchedule({
    store, clock, metrics, domains,
    logger: logger.child({ part: 'schedule' }),
    onQueued: () => dispatcher.wake(),
    onEvents: () => webhookEngine.wake(),
  })
  schedule.start()
  stops.push(() => schedule.stop())
}

interface HttpParts extends Senders, Webhooks {
  egress: Egress
  dispatcher: Dispatcher
}

async function startHttp(foundation: Foundation, parts: HttpParts): Promise<number[]> {
  const { configuration, store, clock, metrics, logger, stops, outside } = foundation
  const { egress, domains, apiKeys, webhookEndpoints } = parts
  const { server: settings } = configuration
  const lookup = createMessageLookup({ store })
  const http = createHttpServers({
    settings, clock, metrics, logger,
    features: {
      acceptMessage: createAcceptMessage({
        store, clock, domains, egress, metrics, settings,
        onQueued: () => parts.dispatcher.wake(),
      }),
      lookupMessage: lookup.message,
      messageEvents: lookup.events,
      domains, apiKeys, webhookEndpoints,
      health: () => health(store, clock, egress.sendingPools().length > 0),
    },
    testMode: outside !== undefined,
    extraHandlers: outside?.handlers ?? [],
  })
  stops.push(() => http.stop())
  const ports = await http.start(settings.listen.http, settings.listen.admin_socket)
  if (settings.listen.metrics === null) return ports
  const metricsServer = await startMetricsServer({ ...settings.listen.metrics, metrics, token: settings.metrics.token })
  stops.push(() => metricsServer.stop())
  return ports
}

/** Connecting to one of these would be talking to ourselves. */
function ownAddresses({ server, pools }: Configuration): string[] {
  const ips = Object.values(pools.pools).flatMap((pool) => pool.ips.flatMap((ip) => [ip.address, ip.source]))
  return [...ips, ...server.listen.http.map((listener) => listener.address)]
}

function dnsResolver({ server }: Configuration): Resolver {
  const { servers, timeout, tries } = server.dns
  return createDnsResolver({ servers, timeoutMilliseconds: timeout, tries })
}

function storeLocation({ server }: Configuration): StoreLocation {
  const { page_cache: pageCacheBytes, wal_max: walMaxBytes, commit } = server.storage
  return {
    engine: 'sqlite',
    folder: server.data_dir,
    pageCacheBytes,
    walMaxBytes,
    commitLingerMilliseconds: commit.linger,
    commitMostRows: commit.rows,
  }
}

async function health(store: Store, clock: Clock, canSend: boolean): Promise<HealthReport> {
  const now = clock.now()
  const smtpOut = canSend ? 'ok' : 'no IP can send'
  // A store that does not answer takes no mail.
  const queue = await store.queueSummary(now).catch(() => null)
  if (queue === null) {
    return { status: 'unavailable', queue_depth: 0, oldest_due_seconds: 0, db: 'no answer', smtp_out: smtpOut }
  }
  const { waiting, sending, oldestDueAt } = queue
  return {
    status: canSend ? 'ok' : 'degraded',
    queue_depth: waiting + sending,
    oldest_due_seconds: oldestDueAt === null ? 0 : toUnixSeconds(Math.max(0, now - oldestDueAt)),
    db: 'ok',
    smtp_out: smtpOut,
  }
}

/** What `main.ts` hands to the command line. */
export const starters: ServerStarters = {
  async serve({ folder, shippedFolder }) {
    const configuration = loadConfiguration({ folder, shippedFolder })
    const logger = createLogger({ level: configuration.server.log.level })
    for (const warning of configuration.warnings) logger.warn(warning, 'configuration warning')
    await runService({
      clock: systemClock,
      logger,
      start: (onFatal) => startAppliance({ configuration, logger, onFatal }),
    })
  },

  async sandbox(options) {
    prepareDataFolder({ folder: options.dataFolder, isFresh: options.isFresh })
    // The terminal belongs to the banner.
    const logFile = join(options.dataFolder, 'posthorn.log')
    const logger = createLogger({ level: 'info', write: (line) => appendFileSync(logFile, line) })
    await runService({
      clock: systemClock,
      logger,
      start: (onFatal) => startSandbox(options, logger, onFatal),
    })
  },
}

function startSandbox(
  options: SandboxCommandOptions,
  logger: Logger,
  onFatal: (reason: Error) => void,
): Promise<Pick<Appliance, 'isAlive' | 'stop'>> {
  const { dataFolder, keep, folder, shippedFolder } = options
  return startWhole(logger, async (stops, stop) => {
    const port = await choosePort(options.port)
    const baseUrl = sandboxBaseUrl(port)
    const { promise: domains, resolve: domainsAreThere } = Promise.withResolvers<Domains>()
    const sandbox = createSandbox({
      baseUrl, dataFolder, keep, logger,
      clock: systemClock,
      publishedRecords: async (name) => (await domains).publishedRecords(name),
      verifyDkim: (mail) => verifySignature(mail, sandbox.resolver),
    })
    const capturePort = await sandbox.start()
    stops.push(() => sandbox.stop())
    const overrides = sandboxOverrides({ port, capturePort, dataFolder })
    const appliance = await startAppliance({
      logger, onFatal,
      configuration: loadConfiguration({ folder, shippedFolder, overrides }),
      outside: { resolver: sandbox.resolver, handlers: [sandbox.middleware], observeWebhooks: sandbox.notingSecrets },
    })
    stops.push(() => appliance.stop(), async () => sandbox.endWaits())
    domainsAreThere(appliance.domains)
    const key = await introduce(sandbox, appliance)
    const facts = { version: packageVersion(), baseUrl, key, dataFolder: relative(process.cwd(), dataFolder) || '.' }
    process.stdout.write(options.json || !process.stdout.isTTY ? bannerLine(facts) : bannerText(facts))
    return { isAlive: appliance.isAlive, stop }
  })
}

/** Gives the sandbox what it makes at its first start; the key for the banner. */
async function introduce(sandbox: Sandbox, { domains, apiKeys, webhookEndpoints }: Appliance): Promise<string> {
  const { key } = await sandbox.firstStart({
    addDomain: (name) => domains.add({ name }),
    verifyDomain: async (name) => (await domains.verify(name)).record,
    createKey: (request) => apiKeys.create({ ...request, domains: [], allowedIps: [], expiresAt: null }),
    registerWebhook: (request) => webhookEndpoints.register(request),
  })
  return key
}
