/**
 * The doors to the outside: HTTP (API, tracking, admin socket), metrics, SMTP submission, and the listener for bounces
 * and complaints. Each throws ProcessExit when its port can not be opened.
 */
import { readServerCertificates } from '../base/service/server-certificates.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import { createMetricsRoute, startMetricsServer } from '../http/metrics-server.ts'
import type { HealthKeeper } from '../health/health-keeper.ts'
import { createHttpServers } from '../http/server.ts'
import { createReportServer } from '../inbound/reports/server.ts'
import { createSubmissionServer } from '../inbound/submission/server.ts'
import type { Backups } from '../store/open/backups.ts'
import { createAdministration } from './administration.ts'
import { createDataAdministration } from './data-administration.ts'
import type { CertificateWatch } from './certificates.ts'
import type { Foundation } from './foundation.ts'
import { healthReport, smtpOut } from './health.ts'
import type { LogLevelKeeper } from './log-level.ts'
import type { MailFeatures, MailParts } from './mail.ts'
import type { Reload } from './reload.ts'

/** The bound ports, each list in the order of its listeners. */
export interface BoundPorts {
  http: number[]
  submission: number[]
  inbound: number[]
}

export interface Doors {
  ports: BoundPorts
  /** Reads these files, once for all doors; what it returns puts them to use. Throws when one cannot be used. */
  readCertificates(files: ServerSettings['tls']['certificates']): () => void
}

interface DoorParts extends MailParts {
  mail: MailFeatures
  reload: Reload['reload']
  certificates: CertificateWatch
  logLevel: LogLevelKeeper
  health: HealthKeeper
  backups: Backups
}

interface OpenDoor {
  ports: number[]
  setCertificates(certificates: ServerCertificates | null): void
}

interface OpenWeb {
  ports: number[]
  setCertificates(certificates: ServerCertificates): void
}

export async function openDoors(foundation: Foundation, parts: DoorParts): Promise<Doors> {
  const reports = await startReports(foundation, parts)
  const apps = await startSubmission(foundation, parts)
  const web = await startHttp(foundation, parts)
  closeUnwanted(foundation)
  parts.certificates.use(foundation.configuration.server.tls.certificates)
  const [inbound, submission, http] = [reports.ports, apps.ports, web.ports]
  const { listen } = foundation.configuration.server
  const [report] = listen.inbound
  const tracking = listen.http.findIndex(({ serve }) => serve.includes('tracking'))
  const own = listen.http[tracking]
  parts.doors.inbound =
    report === undefined ? null : { address: loopback(report.address), port: inbound[0] ?? report.port }
  parts.doors.tracking =
    own === undefined ? null : { address: loopback(own.address), port: http[tracking] ?? own.port, isTls: own.tls }
  return {
    ports: { http, submission, inbound },
    readCertificates(files) {
      // The files have none any more, and what needs one is no door of theirs: it closes at the next start.
      if (files.length === 0 && needsCertificate(listen)) return () => {}
      const { min_version } = foundation.configuration.server.tls
      const read = files.length === 0 ? null : readServerCertificates(files, min_version)
      return () => {
        for (const door of [reports, apps]) door.setCertificates(read)
        if (read !== null) web.setCertificates(read)
        parts.certificates.use(files)
      }
    },
  }
}

/** A door that is open, and could not do its work without one. */
function needsCertificate({ http, submission }: ServerSettings['listen']): boolean {
  return http.some(({ tls }) => tls) || submission.some(({ tls }) => tls !== 'none')
}

/** What connects there would wait for ever, so it is said how to end that. */
function closeUnwanted({ passed, logger }: Foundation): void {
  for (const socket of passed?.closeRest() ?? []) {
    const fix = 'name it under listen in sternpost.yaml, or take its line out: systemctl edit sternpost.socket'
    logger.warn({ part: 'doors', socket, fix }, 'a socket was passed that no listener is for')
  }
}

const CLOSED: OpenDoor = { ports: [], setCertificates: () => {} }

/** Where we reach a listener of our own: one that listens on every address listens on this one too. */
function loopback(address: string): string {
  return address === '*' ? '127.0.0.1' : address
}

async function startReports(foundation: Foundation, { mail, webhookEngine }: DoorParts): Promise<OpenDoor> {
  const { configuration, store, keyRing, clock, logger, metrics, working, classify, passed } = foundation
  const { server: settings, providers } = configuration
  if (settings.listen.inbound.length === 0) return CLOSED
  const server = createReportServer({
    settings,
    providers,
    classify,
    store,
    keyRing,
    clock,
    metrics,
    passed,
    ...mail.unsubscribing,
    acceptSubmission: mail.acceptSubmission,
    logger: logger.child({ part: 'inbound' }),
    onEvents: () => webhookEngine.wake(),
  })
  working.push(() => server.stop())
  return { ports: await server.start(settings.listen.inbound), setCertificates: server.setCertificates }
}

async function startSubmission(foundation: Foundation, { mail, apiKeys }: DoorParts): Promise<OpenDoor> {
  const { configuration, clock, logger, metrics, working, passed } = foundation
  const { server: settings } = configuration
  if (settings.listen.submission.length === 0) return CLOSED
  const server = createSubmissionServer({
    settings,
    apiKeys,
    clock,
    metrics,
    passed,
    acceptSubmission: mail.acceptSubmission,
    mailRefusal: mail.mailRefusal,
    logger: logger.child({ part: 'submission' }),
  })
  working.push(() => server.stop())
  return { ports: await server.start(settings.listen.submission), setCertificates: server.setCertificates }
}

async function startHttp(foundation: Foundation, parts: DoorParts): Promise<OpenWeb> {
  const { configuration, store, clock, metrics, logger, stops, working, outside, passed } = foundation
  const { egress, warmup, domains, apiKeys, webhookEndpoints, webhookDeliveries, tryWebhook, eventStreams, mail } =
    parts
  const { server: settings } = configuration
  const administration = createAdministration({
    ...parts,
    store,
    clock,
    logger,
    data: createDataAdministration({
      store,
      clock,
      backups: parts.backups,
      budget: () => foundation.live.current().server.retention.budget,
      freeBytes: () => parts.disk.freeBytes(),
      minFree: settings.storage.min_free_accept,
      onEvents: () => parts.webhookEngine.wake(),
    }),
    live: foundation.live,
    onEvents: () => parts.webhookEngine.wake(),
  })
  const http = createHttpServers({
    settings,
    clock,
    metrics,
    logger,
    passed,
    features: {
      ...mail,
      administration,
      domains,
      warmup,
      apiKeys,
      webhookEndpoints,
      webhookDeliveries,
      tryWebhook,
      eventStreams,
      now: () => clock.now(),
      health: () => healthReport(store, clock, smtpOut(egress, parts.health)),
    },
    acmeWebroot: () => foundation.live.current().server.http.acme_webroot,
    testMode: outside !== undefined,
    // Where there is no listener of its own for them, the figures are beside the API (sandbox/README.md "The sandbox").
    extraHandlers: outside === undefined ? [] : [createMetricsRoute(metrics), ...outside.handlers],
  })
  working.push(() => http.stop())
  const ports = await http.start(settings.listen.http, settings.listen.admin_socket)
  const door = { ports, setCertificates: http.setCertificates }
  if (settings.listen.metrics === null) return door
  const metricsServer = await startMetricsServer({
    ...settings.listen.metrics,
    metrics,
    passed,
    token: settings.metrics.token,
  })
  stops.push(() => metricsServer.stop())
  return door
}
