/**
 * The doors to the outside: HTTP (API, tracking, admin socket), metrics, SMTP submission, and the listener for bounces
 * and complaints. Each throws ProcessExit when its port can not be opened.
 */
import { startMetricsServer } from '../http/metrics-server.ts'
import { createHttpServers } from '../http/server.ts'
import { createReportServer } from '../inbound/reports/server.ts'
import { createSubmissionServer } from '../inbound/submission/server.ts'
import type { OpenDoors } from './delivery.ts'
import type { Foundation } from './foundation.ts'
import { healthReport } from './health.ts'
import type { MailFeatures, MailParts } from './mail.ts'

/** The bound ports, each list in the order of its listeners. */
export interface BoundPorts {
  http: number[]
  submission: number[]
  inbound: number[]
}

interface DoorParts extends MailParts {
  mail: MailFeatures
  /** Told what is open. */
  doors: OpenDoors
}

export async function openDoors(foundation: Foundation, parts: DoorParts): Promise<BoundPorts> {
  const inbound = await startReports(foundation, parts)
  const submission = await startSubmission(foundation, parts)
  const http = await startHttp(foundation, parts)
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
  return { http, submission, inbound }
}

/** Where we reach a listener of our own: one that listens on every address listens on this one too. */
function loopback(address: string): string {
  return address === '*' ? '127.0.0.1' : address
}

async function startReports(foundation: Foundation, { mail, webhookEngine }: DoorParts): Promise<number[]> {
  const { configuration, store, keyRing, clock, logger, metrics, stops } = foundation
  const { server: settings, providers, bounces } = configuration
  if (settings.listen.inbound.length === 0) return []
  const server = createReportServer({
    settings, providers, bounces, store, keyRing, clock, metrics,
    ...mail.unsubscribing,
    acceptSubmission: mail.acceptSubmission,
    logger: logger.child({ part: 'inbound' }),
    onEvents: () => webhookEngine.wake(),
  })
  stops.push(() => server.stop())
  return server.start(settings.listen.inbound)
}

async function startSubmission(foundation: Foundation, { mail, apiKeys }: DoorParts): Promise<number[]> {
  const { configuration, clock, logger, metrics, stops } = foundation
  const { server: settings } = configuration
  if (settings.listen.submission.length === 0) return []
  const server = createSubmissionServer({
    settings, apiKeys, clock, metrics,
    acceptSubmission: mail.acceptSubmission,
    logger: logger.child({ part: 'submission' }),
  })
  stops.push(() => server.stop())
  return server.start(settings.listen.submission)
}

async function startHttp(foundation: Foundation, parts: DoorParts): Promise<number[]> {
  const { configuration, store, clock, metrics, logger, stops, outside } = foundation
  const { egress, domains, apiKeys, webhookEndpoints, webhookDeliveries, tryWebhook, eventStreams, mail } = parts
  const { server: settings } = configuration
  const http = createHttpServers({
    settings, clock, metrics, logger,
    features: {
      ...mail, domains, apiKeys, webhookEndpoints, webhookDeliveries, tryWebhook, eventStreams,
      health: () => healthReport(store, clock, egress.sendingPools().length > 0),
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
