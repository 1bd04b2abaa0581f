/**
 * The two servers as processes: `serve`, and the sandbox, which is the same appliance in another outside world. Both
 * throw ConfigurationError or ProcessExit before anything is left open.
 */
import { join, relative } from 'node:path'
import { startAppliance, type Appliance } from './appliance.ts'
import { DAY, systemClock } from './base/clock.ts'
import { EXIT, ProcessExit } from './base/errors.ts'
import { createKeyRing } from './base/key-ring.ts'
import { createAdjustableLogger, linesToFile, type Logger } from './base/logger.ts'
import { packageVersion } from './base/package-version.ts'
import { receiveSockets } from './base/service/passed-sockets.ts'
import { runService, type RunningService } from './base/service/run-service.ts'
import { startWhole } from './base/service/start-whole.ts'
import type { SandboxCommandOptions, ServerStarters } from './commands/server/sandbox.ts'
import { loadConfiguration, type Configuration } from './config/load-configuration.ts'
import { bannerLine, bannerText } from './sandbox/banner.ts'
import { loopbackBinding } from './sandbox/loopback-binding.ts'
import { CAPTURE_ADDRESS } from './capture/capture-server.ts'
import {
  CAPTURE_PORT,
  choosePort,
  HTTP_PORT,
  INBOUND_PORT,
  SUBMISSION_PORT,
  sandboxBaseUrl,
  sandboxOverrides,
} from './sandbox/sandbox-settings.ts'
import { prepareDataFolder } from './sandbox/data-folder.ts'
import { openKeptClock } from './sandbox/adjustable-clock.ts'
import { createSandbox, type Sandbox } from './sandbox/sandbox.ts'
import type { Domains } from './senders/domains.ts'
import { verifySignature } from './senders/verification/lookup-records.ts'

const STARTS_TRIED = 3

export const starters: ServerStarters = {
  async serve({ folder, shippedFolder }) {
    const passed = receiveSockets(process.env, process.pid)
    const loadAgain = (): Configuration => loadConfiguration({ folder, shippedFolder })
    const configuration = loadAgain()
    const { logger, setLevel: setLogLevel } = createAdjustableLogger({ level: configuration.server.log.level })
    for (const warning of configuration.warnings) logger.warn(warning, 'configuration warning')
    const parts = { configuration, loadAgain, logger, setLogLevel, passed, configurationFolder: folder }
    await runService({
      clock: systemClock,
      logger,
      reportFolder: configuration.server.data_dir,
      start: (onFatal, notices) => startAppliance({ ...parts, onFatal, notices }),
    })
  },

  async sandbox(options) {
    prepareDataFolder({ folder: options.dataFolder, isFresh: options.isFresh })
    // The terminal belongs to the banner.
    const logFile = join(options.dataFolder, 'sternpost.log')
    const { logger } = createAdjustableLogger({ level: 'info', write: linesToFile(logFile) })
    await runService({
      clock: systemClock,
      logger,
      reportFolder: options.dataFolder,
      start: (onFatal) => tryToStart(() => startSandbox(options, logger, onFatal)),
    })
  },
}

/** A port that was free can be taken when the listener comes to it: then another one is chosen. */
async function tryToStart<Started>(start: () => Promise<Started>): Promise<Started> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await start()
    } catch (thrown) {
      const mayPass = thrown instanceof ProcessExit && thrown.exitCode === EXIT.tryAgain
      if (!mayPass || attempt === STARTS_TRIED) throw thrown
    }
  }
}

function startSandbox(
  options: SandboxCommandOptions,
  logger: Logger,
  onFatal: (reason: Error) => void,
): Promise<RunningService> {
  const { dataFolder, keep, folder, shippedFolder } = options
  return startWhole(logger, async (stops, stop) => {
    const { port, submissionPort, inboundPort } = await choosePorts(options)
    const { clock, ...keptClock } = openKeptClock({ folder: dataFolder, logger })
    stops.push(() => keptClock.stop())
    const baseUrl = sandboxBaseUrl(port)
    const { promise: domains, resolve: domainsAreThere } = Promise.withResolvers<Domains>()
    const { promise: loaded, resolve: isLoaded } = Promise.withResolvers<Configuration>()
    const sandbox = createSandbox({
      baseUrl,
      inboundPort,
      dataFolder,
      keep,
      clock,
      logger,
      onClockChange: () => keptClock.keep(),
      egressIps: async () => Object.values((await loaded).pools.pools).flatMap(({ ips }) => ips),
      publishedRecords: async (name) => (await domains).publishedRecords(name),
      verifyDkim: (mail) => verifySignature(mail, sandbox.resolver),
      bounceKey: async () => createKeyRing((await loaded).server.secrets.master_key).key('bounce'),
    })
    const capturePort = await sandbox.start()
    stops.push(() => sandbox.stop())
    const overrides = sandboxOverrides({ port, submissionPort, capturePort, inboundPort, dataFolder })
    const boundHere = await loopbackBinding()
    const loadAgain = (): Configuration => boundHere(loadConfiguration({ folder, shippedFolder, overrides }))
    const configuration = loadAgain()
    isLoaded(configuration)
    const appliance = await startAppliance({
      logger,
      onFatal,
      configuration,
      loadAgain,
      outside: {
        resolver: sandbox.resolver,
        handlers: [sandbox.middleware],
        clock,
        captureAddress: { address: CAPTURE_ADDRESS, port: capturePort },
        trackingUrl: baseUrl,
        useDomains: domainsAreThere,
        observeWebhooks: sandbox.notingSecrets,
      },
    })
    stops.push(
      () => appliance.stop(),
      async () => sandbox.endWaits(),
    )
    const key = await introduce(sandbox, appliance)
    // Not before: the first start is no part of what is sped up.
    clock.setSpeed(options.speed)
    const shownFolder = relative(process.cwd(), dataFolder) || '.'
    const consoleUrl = await consoleLink(appliance)
    const facts = { version: packageVersion(), baseUrl, key, consoleUrl, submissionPort, dataFolder: shownFolder }
    process.stdout.write(options.json || !process.stdout.isTTY ? bannerLine(facts) : bannerText(facts))
    return { isAlive: appliance.isAlive, describe: appliance.describe, reload: appliance.reload, stop }
  })
}

async function choosePorts({ port: http, submissionPort: submission }: SandboxCommandOptions) {
  const port = await choosePort({ wanted: http, usual: HTTP_PORT, option: '--port' })
  const mail = { wanted: submission, usual: SUBMISSION_PORT, option: '--smtp-port' }
  const submissionPort = await choosePort(mail, [port, CAPTURE_PORT, INBOUND_PORT])
  const inbound = { wanted: null, usual: INBOUND_PORT, option: '--port' }
  return { port, submissionPort, inboundPort: await choosePort(inbound, [port, submissionPort, CAPTURE_PORT]) }
}

/** Gives the sandbox what it makes at its first start; the key for the banner. */
async function introduce(sandbox: Sandbox, { domains, apiKeys, webhookEndpoints, warmup }: Appliance): Promise<string> {
  const { key } = await sandbox.firstStart({
    addDomain: (name) => domains.add({ name }),
    verifyDomain: async (name) => (await domains.verify(name)).record,
    createKey: (request) => apiKeys.create({ ...request, domains: [], allowedIps: [], expiresAt: null }),
    isKeyRevoked: (key) => apiKeys.isRevoked(key),
    registerWebhook: (request) => webhookEndpoints.register(request),
    startWarmup: (ip) => beginWarmup(ip, warmup),
    updateWebhook: (id, change) => webhookEndpoints.update(id, change),
  })
  return key
}

/** For whoever starts the sandbox; it may lie open for a day before somebody looks. */
async function consoleLink({ logins, consoleUrl }: Appliance): Promise<string> {
  const { secret } = await logins.makeLink({ name: 'developer', role: null }, DAY)
  return `${consoleUrl}login/${secret}`
}

/** At its first stage; where pools.yaml has no such IP, or it is warm already, there is nothing to begin. */
async function beginWarmup(ip: string, { list, start }: Appliance['warmup']): Promise<void> {
  const isCold = (await list()).some((view) => view.ip === ip && view.status === 'cold')
  if (!isCold) return
  await start(ip, { curve: null, stage: null, targetDailyVolume: null, restart: false, force: true }, 'cli')
}
