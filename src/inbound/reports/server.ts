/**
 * The listener for mail that comes back (inbound/README.md "Reports"; test/README.md "Attacks", A19 to A21). 250 comes
 * after the commit of what the mail meant; while the store does not answer, the sender is asked to come again, with
 * 451. RFC 5321.
 */
import type { KeyObject } from 'node:crypto'
import type { SMTPServerSession } from 'smtp-server'
import type { Clock } from '../../base/clock.ts'
import type { KeyRing } from '../../base/key-ring.ts'
import type { Logger } from '../../base/logger.ts'
import type { Port } from '../../base/service/open-port.ts'
import type { PassedSockets } from '../../base/service/passed-sockets.ts'
import type { ProviderSettings } from '../../config/settings/provider-settings.ts'
import type { ClassifyReply } from '../../mail/reply/classify-reply.ts'
import { readReport } from '../../mail/report/read-report.ts'
import type { ReportReading } from '../../mail/report/report-reading.ts'
import type { AcceptSubmission } from '../../messages/accept/send-request.ts'
import type { Store } from '../../store/store.ts'
import type { TlsSettings } from '../door-tls.ts'
import { createMessageReceiver, type ReceivedMessage } from '../receive-message.ts'
import { createSmtpDoor, type SmtpDoor, type SmtpLimits } from '../smtp-door.ts'
import { smtpRefusal } from '../smtp-refusal.ts'
import { createApplyBounce, createApplyComplaint } from './apply-report.ts'
import { createOperatorForward } from './forward-to-operator.ts'
import { createFindInboundRecipient, type FindInboundRecipient, type InboundAddresses } from './inbound-recipient.ts'
import { createFindNamedMessage } from './named-message.ts'
import { createRouteReport, type RouteReport, type RouteReportOptions } from './route-report.ts'

export interface ReportServerOptions {
  settings: InboundAddresses & {
    inbound: { limits: SmtpLimits & { kept: number }; token_max_age: number }
    operator: { email: string | null }
    headers: { reference: string | null }
    tls: TlsSettings
  }
  providers: Pick<ProviderSettings, 'providers'>
  classify: ClassifyReply
  store: Pick<Store, 'isReturnPath' | 'lookupMessage' | 'recordReport' | 'keepUnmatchedReport'>
  keyRing: KeyRing
  /** Whether a token for unsubscribing is genuine: asked at RCPT. */
  isUnsubscribeToken(token: string): boolean
  unsubscribe(token: string): Promise<unknown>
  /** Takes what goes on to the operator. */
  acceptSubmission: AcceptSubmission
  clock: Clock
  logger: Logger
  metrics: RouteReportOptions['metrics']
  /** Events were written. */
  onEvents(): void
  /** Sockets that are open already. */
  passed?: PassedSockets | undefined
}

export interface ReportServer extends Omit<SmtpDoor, 'start'> {
  /** The bound ports, in the order of `listeners`. */
  start(listeners: readonly Port[]): Promise<number[]>
}

/** Of all connections; of each mail the first part is kept. */
const MEMORY_BYTES = 128 * 1024 * 1024

export function createReportServer(options: ReportServerOptions): ReportServer {
  const { settings, store, keyRing, clock, logger } = options
  const { limits } = settings.inbound
  const tokenKeys = { bounce: keyRing.key('bounce'), complaint: keyRing.key('complaint') }
  const findRecipient = createFindInboundRecipient({
    settings,
    tokenKeys,
    isUnsubscribeToken: (token) => options.isUnsubscribeToken(token),
    isReturnPath: (host) => store.isReturnPath(host),
  })
  const route = createRouter(options, tokenKeys)
  const door = createSmtpDoor({
    hostName: settings.hostname,
    setting: 'listen.inbound',
    limits,
    tls: settings.tls,
    passed: options.passed,
    badRecipient: NO_RECIPIENT,
    clock,
    logger,
    hooks: {
      receive: createMessageReceiver({ keptBytes: limits.kept, memoryBytes: MEMORY_BYTES }),
      logIn: null,
      async onRecipient(address) {
        if ((await findRecipient(address)) === null) throw smtpRefusal(NO_RECIPIENT.code, NO_RECIPIENT.text)
      },
      async onMessage(message, session) {
        await routeAll(message, session, { findRecipient, route })
        return '2.0.0 taken'
      },
    },
  })
  return { ...door, start: (listeners) => door.start(listeners.map((port) => ({ ...port, tls: 'starttls' }))) }
}

const NO_RECIPIENT = { code: 550, text: '5.1.1 there is no such recipient here' }

function createRouter(
  options: ReportServerOptions,
  tokenKeys: { bounce: KeyObject; complaint: KeyObject },
): RouteReport {
  const { settings, providers, classify, store, clock, logger, metrics, acceptSubmission } = options
  const providerOf = (isp: string | null): string | null =>
    Object.entries(providers.providers).find(([, block]) => block.isp === isp)?.[0] ?? null
  const { hostname, operator, inbound, headers } = settings
  return createRouteReport({
    store,
    clock,
    logger,
    metrics,
    namedMessage: createFindNamedMessage({ tokenKeys, referenceHeader: headers.reference }),
    applyBounce: createApplyBounce({ store, clock, providerOf, classify, maxAge: inbound.token_max_age }),
    applyComplaint: createApplyComplaint({ store, clock }),
    unsubscribe: (token) => options.unsubscribe(token),
    forwardToOperator: createOperatorForward({ hostname, operator: operator.email, acceptSubmission, clock }),
    providerLabel: (isp) => providerOf(isp) ?? 'other',
    onEvents: () => options.onEvents(),
  })
}

/** One after the other: what one of them fails on comes again with the whole mail, and changes nothing twice. */
async function routeAll(
  { bytes, sizeBytes }: ReceivedMessage,
  { envelope, remoteAddress }: SMTPServerSession,
  { findRecipient, route }: { findRecipient: FindInboundRecipient; route: RouteReport },
): Promise<void> {
  const sender = envelope.mailFrom === false ? '' : envelope.mailFrom.address
  let read: ReportReading | undefined
  const mail = { sender, remoteAddress, bytes, sizeBytes, reading: () => (read ??= readReport(bytes, sender)) }
  for (const { address } of envelope.rcptTo) {
    const recipient = await findRecipient(address)
    if (recipient !== null) await route({ ...mail, recipient: address }, recipient)
  }
}
