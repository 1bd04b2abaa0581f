/**
 * The doors to the outside: HTTP (API, tracking, admin socket), metrics, SMTP submission, and the listener for bounces
 * and complaints. Each throws ProcessExit when its port can not be opened.
 */
import { startMetricsServer } from '../http/metrics-server.ts'
import { createHttpServers } from '../http/server.ts'
import type { TlsSettings } from '../inbound/door-tls.ts'
import { createReportServer } from '../inbound/reports/server.ts'
import { createSubmissionServer } from '../inbound/submission/server.ts'
import { createAdministration } from './administration.ts'
import type { Foundation } from './foundation.ts'
import { healthReport } from './health.ts'
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
  /** For handshakes from now on: the files of the certificates are read again. Throws when one cannot be used. */
  readCertificates(): void
}

interface DoorParts extends MailParts {
  mail: MailFeatures
  reload: Reload['reload']
}

interface OpenDoor {
  ports: number[]
  setCertificates(tls: TlsSettings): void
}

export async function openDoors(foundation: Foundation, parts: DoorParts): Promise<Doors> {
  const reports = await startReports(foundation, parts)
  const apps = await startSubmission(foundation, parts)
  const web = await startHttp(foundation, parts)
  const [inbound, submission, http] = [reports.ports, apps.ports, web.ports]
  const { listen } = foundation.configuration.server
  const [report] = listen.inbound
  const tracking = listen.http.findIndex(({ serve }) => serve.includes('tracking'))
  const own = listen.http[tracking]
  parts.doors.inbound = report === undefined
    ? null
    : { address: loopback(report.address), port: inbound[0] ?? report.port }
  parts.doors.tracking = own === undefined
    ? null
    : { address: loopback(own.address), port: http[tracking] ?? own.port, isTls: own.tls }
  return {
    ports: { http, submission, inbound },
    readCertificates() {
      const { tls } = foundation.live.current().server
      for (const door of [reports, apps, web]) door.setCertificates(tls)
    },
  }
}

const CLOSED: OpenDoor = { ports: [], setCertificates: () => {} }

/** Where we reach a listener of our own: one that listens on every address listens on this one too. */
function loopback(address: string): string {
  return address === '*' ? '127.0.0.1' : address
}

async function startReports(foundation: Foundation, { mail, webhookEngine }: DoorParts): Promise<OpenDoor> {
  const { configuration, store, keyRing, clock, logger, metrics, stops, classify } = foundation
  const { server: settings, providers } = configuration
  if (settings.listen.inbound.length === 0) return CLOSED
  const server = createReportServer({
    settings, providers, classify, store, keyRing, clock, metrics,
    ...mail.unsubscribing,
    acceptSubmission: mail.acceptSubmission,
    logger: logger.child({ part: 'inbound' }),
    onEvents: () => webhookEngine.wake(),
  })
  stops.push(() => server.stop())
  return { ports: await server.start(settings.listen.inbound), setCertificates: server.setCertificates }
}

async function startSubmission(foundation: Foundation, { mail, apiKeys }: DoorParts): Promise<OpenDoor> {
  const { configuration, clock, logger, metrics, stops } = foundation
  const { server: settings } = configuration
  if (settings.listen.submission.length === 0) return CLOSED
  const server = createSubmissionServer({
    settings, apiKeys, clock, metrics,
    acceptSubmission: mail.acceptSubmission,
    mailRefusal: mail.mailRefusal,
    logger: logger.child({ part: 'submission' }),
  })
  stops.push(() => server.stop())
  return { ports: await server.start(settings.listen.submission), setCertificates: server.setCertificates }
}

async function startHttp(foundation: Foundation, parts: DoorParts): Promise<OpenDoor> {
  const { configuration, store, clock, metrics, logger, stops, outside } = foundation
  const { egress, warmup, domains, apiKeys, webhookEndpoints, webhookDeliveries, tryWebhook, eventStreams, mail } = parts
  const { server: settings } = configuration
  const administration = createAdministration({
    ...parts, store, clock,
    live: foundation.live,
    onEvents: () => parts.webhookEngine.wake(),
  })
  const http = createHttpServers({
    settings, clock, metrics, logger,
    features: {
      ...mail, administration, domains, warmup, apiKeys, webhookEndpoints, webhookDeliveries, tryWebhook, eventStreams,
      now: () => clock.now(),
      health: () => healthReport(store, clock, egress.sendingPools().length > 0),
    },
    testMode: outside !== undefined,
    extraHandlers: outside?.handlers ?? [],
  })
  stops.push(() => http.stop())
  const ports = await http.start(settings.listen.http, settings.listen.admin_socket)
  const door = { ports, setCertificates: http.setCertificates }
  if (settings.listen.metrics === null) return door
  const metricsServer = await startMetricsServer({ ...settings.listen.metrics, metrics, token: settings.metrics.token })
  stops.push(() => metricsServer.stop())
  return door
}
