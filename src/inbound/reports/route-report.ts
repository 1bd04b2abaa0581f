/**
 * One mail that came in, for one of its recipients -> what it changes (inbound/README.md "Reports").
 *
 * Resolves after the commit of all it meant; the same mail again changes nothing. Rejects when the store does not
 * answer.
 */
import { HOUR, type Clock } from '../../base/clock.ts'
import { unreachable } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import { createRateLimit } from '../../base/rate-limit.ts'
import type { ReportReading, ReportReferences } from '../../mail/report/report-reading.ts'
import type { ReportResult } from '../../store/records/report-records.ts'
import type { Store } from '../../store/store.ts'
import type { AppliedBounce } from './apply-report.ts'
import type { ForwardResult, MailForOperator } from './forward-to-operator.ts'
import type { InboundRecipient } from './inbound-recipient.ts'

interface InboundMail extends MailForOperator {
  /** With what was not kept. */
  sizeBytes: number
  /** What it says, read when first asked for. */
  reading(): ReportReading
}

export interface RouteReportOptions {
  store: Pick<Store, 'keepUnmatchedReport'>
  namedMessage(references: ReportReferences): string | undefined
  applyBounce(messageId: string, reading: ReportReading): Promise<AppliedBounce>
  applyComplaint(messageId: string, reading: ReportReading): Promise<ReportResult | undefined>
  unsubscribe(token: string): Promise<unknown>
  forwardToOperator(mail: MailForOperator): Promise<ForwardResult>
  /** The label of metrics: a known provider, or `other`. */
  providerLabel(isp: string | null): string
  clock: Clock
  logger: Logger
  metrics: Pick<Metrics, 'inboundMessages' | 'reportsIgnored' | 'bounces' | 'complaints' | 'suppressions'>
  /** Events were written. */
  onEvents(): void
}

export type RouteReport = (mail: InboundMail, recipient: InboundRecipient) => Promise<void>

/** What one mail was and what it changed, for its log line. */
interface Routed {
  kind: string
  result: string
  messageId?: string | undefined
}

/** The sample is for looking at: a flood of junk need not be written down. */
const MOST_SAMPLES_PER_HOUR = 60
const SAMPLE_BYTES = 16 * 1024

export function createRouteReport(options: RouteReportOptions): RouteReport {
  const { logger, metrics } = options
  const apply = createApplyReport(options)
  const keepSample = createKeepSample(options)

  async function routeReading(mail: InboundMail, tokenMessageId: string | null): Promise<Routed> {
    const reading = mail.reading()
    const { kind } = reading
    const messageId = tokenMessageId ?? options.namedMessage(reading.references)
    if (kind === 'auto-reply') return { kind, result: 'auto-reply', messageId }
    if (messageId === undefined) {
      await keepSample(mail, kind)
      return { kind, result: 'unmatched' }
    }
    return { kind, result: await apply(messageId, reading), messageId }
  }

  async function route(mail: InboundMail, recipient: InboundRecipient): Promise<Routed> {
    switch (recipient.kind) {
      case 'token':
        return routeReading(mail, recipient.messageId)
      case 'reports':
        return routeReading(mail, null)
      case 'unsubscribe':
        await options.unsubscribe(recipient.token)
        return { kind: 'unsubscribe', result: 'recorded' }
      case 'operator':
        return { kind: 'operator', result: await options.forwardToOperator(mail) }
      default:
        return unreachable(recipient)
    }
  }

  return async (mail, recipient) => {
    const { kind, result, messageId } = await route(mail, recipient)
    metrics.inboundMessages.inc({ kind })
    if (!CHANGING.includes(result)) metrics.reportsIgnored.inc({ why: result })
    const { remoteAddress: remote_address, sizeBytes: bytes, sender } = mail
    const facts = { kind, result, message_id: messageId, remote_address, sender, bytes }
    // What the operator was to read and cannot is for the operator to mend.
    const level = kind === 'operator' && result !== 'forwarded' ? 'warn' : 'info'
    logger[level](facts, 'inbound mail')
  }
}

/** Records what a report says of its message, and counts what that changed; answers in one word. */
function createApplyReport(
  options: RouteReportOptions,
): (messageId: string, reading: ReportReading) => Promise<string> {
  const { metrics, providerLabel } = options

  /** `reason`: for which the address of the message is suppressed, if it is. */
  function told(result: ReportResult, reason: string): string {
    if (result.kind === 'recorded') {
      options.onEvents()
      if (result.isSuppressed) metrics.suppressions.inc({ reason })
    }
    return result.kind
  }

  return async (messageId, reading) => {
    if (reading.kind === 'bounce' || reading.kind === 'notice') {
      const { result, bounce } = await options.applyBounce(messageId, reading)
      if (bounce !== null && result.kind === 'recorded' && !result.isSimulated) {
        metrics.bounces.inc({ type: bounce.type, provider: providerLabel(result.isp) })
      }
      return told(result, 'hard_bounce')
    }
    const isComplaint = reading.kind === 'complaint'
    const result = await options.applyComplaint(messageId, reading)
    if (result === undefined) return 'no-finding'
    if (isComplaint && result.kind === 'recorded' && !result.isSimulated) {
      metrics.complaints.inc({ provider: providerLabel(result.isp) })
    }
    return told(result, isComplaint ? 'complaint' : 'unsubscribe')
  }
}

/** Keeps the start of a mail that names none of our messages. */
function createKeepSample({
  store,
  clock,
}: Pick<RouteReportOptions, 'store' | 'clock'>): (mail: InboundMail, kind: string) => Promise<void> {
  const count = MOST_SAMPLES_PER_HOUR
  const samples = createRateLimit({ clock, count, perMilliseconds: HOUR, burst: count })
  return async ({ sender, recipient, remoteAddress, bytes }, kind) => {
    if (samples.take('sample') > 0) return
    // A copy: the whole message would travel with a part of it.
    const sample = new Uint8Array(bytes.subarray(0, SAMPLE_BYTES))
    await store.keepUnmatchedReport({ at: clock.now(), kind, sender, recipient, remoteAddress, bytes: sample })
  }
}

const CHANGING = ['recorded', 'noted', 'forwarded']
