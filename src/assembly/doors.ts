/**
 * The doors to the outside: HTTP (API, tracking, admin socket), metrics, SMTP submission, and the listener for bounces
 * and complaints. Each throws ProcessExit when its port cannot be opened.
 */
import type { AcmeChallenges } from '../http/acme-handshake.ts'
import { consoleAddress } from '../http/console/console-address.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import type { CertificateAdministration } from '../http/exchange/operator-features.ts'
import type { HttpFeatures } from '../http/exchange/features.ts'
import { createMetricsRoute, startMetricsServer } from '../http/metrics-server.ts'
import type { HealthKeeper } from '../health/health-keeper.ts'
import { createHttpServers } from '../http/server.ts'
import { createReportServer } from '../inbound/reports/server.ts'
import { createSubmissionServer } from '../inbound/submission/server.ts'
import type { Backups } from '../store/open/backups.ts'
import type { DoorCertificates } from '../operations/certificates.ts'
import type { LogLevelKeeper } from '../operations/log-level.ts'
import { createLogins } from '../operations/logins.ts'
import { createPasskeys } from '../operations/passkeys.ts'
import { createAdministration } from '../operations/operator-actions.ts'
import type { Reload } from '../operations/reload.ts'
import type { ServiceStatus } from '../operations/service-status.ts'
import { createDataAdministration } from '../operations/stored-data.ts'
import type { OwnListeners } from './delivery.ts'
import type { Foundation } from './foundation.ts'
import type { MailFeatures, MailParts } from './mail.ts'

/** The bound ports, each list in the order of its listeners. */
export interface BoundPorts {
  http: number[]
  submission: number[]
  inbound: number[]
}

interface DoorParts extends MailParts {
  mail: MailFeatures
  reload: Reload['reload']
  doorCertificates: DoorCertificates
  firstCertificates: ServerCertificates | null
  acmeChallenges: AcmeChallenges | null
  certificateAdministration: CertificateAdministration
  logLevel: LogLevelKeeper
  health: HealthKeeper
  status: ServiceStatus
  backups: Backups
}

type ConsoleParts = Pick<HttpFeatures, 'logins' | 'passkeys' | 'consoleUrl'>

export async function openDoors(foundation: Foundation, parts: DoorParts) {
  const inbound = await startReports(foundation, parts)
  const submission = await startSubmission(foundation, parts)
  const { server: settings } = foundation.configuration
  const logins = createLogins({ ...foundation, ...parts, idle: settings.console.session })
  const passkeys = createPasskeys({ ...foundation, openFor: logins.openFor })
  const consoleUrl = consoleAddress(settings.listen.http, settings)
  const http = await startHttp(foundation, { ...parts, logins, passkeys, consoleUrl })
  closeUnwanted(foundation)
  const { listen } = settings
  const [report] = listen.inbound
  const tracking = listen.http.findIndex(({ serve }) => serve.includes('tracking'))
  const own = listen.http[tracking]
  const ports: BoundPorts = { http, submission, inbound }
  const listeners: OwnListeners = {
    inbound: report === undefined ? null : { address: loopback(report.address), port: inbound[0] ?? report.port },
    tracking:
      own === undefined ? null : { address: loopback(own.address), port: http[tracking] ?? own.port, isTls: own.tls },
  }
  return { ports, listeners, logins, consoleUrl }
}

/** What connects there would wait for ever, so it is said how to end that. */
function closeUnwanted({ passed, logger }: Foundation): void {
  for (const socket of passed?.closeRest() ?? []) {
    const fix = 'name it under listen in sternpost.yaml, or take its line out: systemctl edit sternpost.socket'
    logger.warn({ part: 'doors', socket, fix }, 'a socket was passed that no listener is for')
  }
}

/** Where we reach a listener of our own: one that listens on every address listens on this one too. */
function loopback(address: string): string {
  return address === '*' ? '127.0.0.1' : address
}

async function startReports(foundation: Foundation, parts: DoorParts): Promise<number[]> {
  const { server: settings, providers } = foundation.configuration
  if (settings.listen.inbound.length === 0) return []
  const server = createReportServer({
    ...foundation,
    ...parts.mail.unsubscribing,
    certificates: parts.firstCertificates,
    settings,
    providers,
    acceptSubmission: parts.mail.acceptSubmission,
    logger: foundation.logger.child({ part: 'inbound' }),
    recipients: () => foundation.live.current().server.log.recipients,
    onEvents: parts.webhookEngine.wake,
  })
  foundation.working.push(() => server.stop())
  parts.doorCertificates.serve(server.setCertificates)
  return server.start(settings.listen.inbound)
}

async function startSubmission(foundation: Foundation, { mail, apiKeys, ...tls }: DoorParts) {
  const { server: settings } = foundation.configuration
  if (settings.listen.submission.length === 0) return []
  const server = createSubmissionServer({
    ...foundation,
    ...mail,
    certificates: tls.firstCertificates,
    settings,
    apiKeys,
    logger: foundation.logger.child({ part: 'submission' }),
  })
  foundation.working.push(() => server.stop())
  tls.doorCertificates.serve(server.setCertificates)
  return server.start(settings.listen.submission)
}

async function startHttp(foundation: Foundation, parts: DoorParts & ConsoleParts): Promise<number[]> {
  const { configuration, live, clock, metrics, stops, working, outside, passed } = foundation
  const { server: settings } = configuration
  const onEvents = parts.webhookEngine.wake
  const data = createDataAdministration({
    ...foundation,
    backups: parts.backups,
    backupFolders() {
      const { dir, folders } = live.current().server.backup
      return [dir, ...folders]
    },
    budget: () => live.current().server.retention.budget,
    freeBytes: parts.disk.freeBytes,
    minFree: settings.storage.engine === 'sqlite' ? settings.storage.min_free_accept : null,
    onEvents,
  })
  const http = createHttpServers({
    ...foundation,
    settings,
    thread: parts.thread,
    features: {
      ...parts.mail,
      ...parts,
      administration: createAdministration({ ...foundation, ...parts, data, onEvents }),
      now: () => clock.now(),
      health: parts.status.report,
    },
    certificates: parts.firstCertificates,
    acmeWebroot: () => live.current().server.http.acme_webroot,
    acmeChallenges: parts.acmeChallenges,
    testMode: outside !== undefined,
    // Where there is no listener of its own for them, the figures are beside the API (sandbox/README.md "The sandbox").
    extraHandlers: outside === undefined ? [] : [createMetricsRoute(metrics), ...outside.handlers],
  })
  working.push(() => http.stop())
  const ports = await http.start(settings.listen.http, settings.listen.admin_socket)
  parts.doorCertificates.serve((read) => read !== null && http.setCertificates(read))
  if (settings.listen.metrics === null) return ports
  const { token } = settings.metrics
  const metricsServer = await startMetricsServer({ ...settings.listen.metrics, metrics, passed, token })
  stops.push(() => metricsServer.stop())
  return ports
}
