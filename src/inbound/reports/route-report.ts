/**
 * One mail that came in, for one of its recipients -> what it changes (inbound/README.md "Reports" and "Whose mail a
 * report is about"). Resolves after the commit of all it meant; the same mail again changes nothing. Rejects when the
 * store does not answer.
 */
import { HOUR } from '../../base/clock.ts'
import { unreachable } from '../../base/errors.ts'
import type { KeyRing } from '../../base/key-ring.ts'
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import { createRateLimit } from '../../base/rate-limit.ts'
import type { ProviderSettings } from '../../config/settings/provider-settings.ts'
import { readComplaintToken, readReturnPathToken } from '../../mail/message-token.ts'
import { shownAddress, type ShownRecipients } from '../../mail/shown-recipient.ts'
import type { ReportReading, ReportReferences } from '../../mail/report/report-reading.ts'
import type { ReportResult } from '../../store/records/report-records.ts'
import type { Store } from '../../store/store.ts'
import { createApplyAuthentication, type AuthenticationParts } from './apply-authentication.ts'
import { createApplyReport, type ApplyParts } from './apply-report.ts'
import type { AuthenticationThread } from './authentication-thread.ts'
import { createOperatorForward, type ForwardParts, type MailForOperator } from './forward-to-operator.ts'

interface InboundMail extends MailForOperator {
  /** What it says, read when first asked for. */
  reading(): ReportReading
}

/** What an address of ours means. */
export type InboundRecipient =
  | { kind: 'token'; messageId: string } // b-… and f-…: it names the message
  | { kind: 'unsubscribe'; token: string } // u-…
  | { kind: 'reports' } // of complaints: the mail itself must name the message
  | { kind: 'authentication' } // of DMARC and TLS: about domains; any other mail there as at `reports`
  | { kind: 'operator' } // postmaster and abuse

export interface RouteParts extends ApplyParts, ForwardParts, AuthenticationParts {
  settings: ApplyParts['settings'] &
    ForwardParts['settings'] &
    AuthenticationParts['settings'] & { headers: { reference: string | null } }
  providers: Pick<ProviderSettings, 'providers'>
  store: ApplyParts['store'] & AuthenticationParts['store'] & Pick<Store, 'keepUnmatchedReport'>
  keyRing: KeyRing
  unsubscribe(token: string): Promise<boolean>
  logger: Logger
  /** `log.recipients`: who writes to us got mail of ours. */
  recipients(): ShownRecipients
  metrics: Pick<Metrics, 'inboundMessages' | 'reportsIgnored' | 'bounces' | 'complaints' | 'suppressions'>
  /** Events were written. */
  onEvents(): void
}

type RouteReport = (mail: InboundMail, recipient: InboundRecipient) => Promise<void>

/** What one mail was and what it changed, for its log line. */
interface Routed {
  kind: string
  result: string
  messageId?: string | undefined
  /** Why a report does not count. */
  reason?: string | undefined
}

const CHANGING = ['recorded', 'noted', 'forwarded']

export function createRouteReport(parts: RouteParts, thread: Pick<AuthenticationThread, 'read'>): RouteReport {
  const { logger, metrics } = parts
  const applyAuthentication = createApplyAuthentication(parts)
  const namedMessage = createFindNamedMessage(parts)
  const tell = createTellReport(parts)
  const keepSample = createKeepSample(parts)
  const forwardToOperator = createOperatorForward(parts)

  async function routeReading(mail: InboundMail, tokenMessageId: string | null): Promise<Routed> {
    const reading = mail.reading()
    const { kind } = reading
    const messageId = tokenMessageId ?? namedMessage(reading.references)
    if (kind === 'auto-reply') return { kind, result: 'auto-reply', messageId }
    if (messageId !== undefined) return { kind, result: await tell(messageId, reading), messageId }
    await keepSample(mail, kind)
    return { kind, result: 'unmatched' }
  }

  async function route(mail: InboundMail, recipient: InboundRecipient): Promise<Routed> {
    switch (recipient.kind) {
      case 'token':
        return routeReading(mail, recipient.messageId)
      case 'reports':
        return routeReading(mail, null)
      case 'authentication':
        return (await applyAuthentication(await thread.read(mail.bytes))) ?? routeReading(mail, null)
      case 'unsubscribe':
        return {
          kind: 'unsubscribe',
          result: (await parts.unsubscribe(recipient.token)) ? 'recorded' : 'unknown-message',
        }
      case 'operator':
        return { kind: 'operator', result: await forwardToOperator(mail) }
      default:
        return unreachable(recipient)
    }
  }

  return async (mail, recipient) => {
    const { kind, result, messageId, reason } = await route(mail, recipient)
    metrics.inboundMessages.inc({ kind })
    if (!CHANGING.includes(result)) metrics.reportsIgnored.inc({ why: result })
    const { remoteAddress: remote_address, sizeBytes: bytes } = mail
    const sender = shownAddress(mail.sender, parts.recipients())
    const facts = { kind, result, message_id: messageId, reason, remote_address, sender, bytes }
    // What the operator was to read and cannot is for the operator to mend.
    const level = kind === 'operator' && result !== 'forwarded' ? 'warn' : 'info'
    logger[level](facts, 'inbound mail')
  }
}

/** Token headers of the returned message, in the order in which they are believed. */
const RETURNED_HEADERS = ['message-id', 'cfbl-feedback-id', 'return-path']
/** A header of ours is far shorter. */
const MOST_CHARACTERS = 1_000
// As many base32 characters as a token has, and no letter or digit around them but the `b-` and `f-` of addresses.
const TOKEN = /(?<![a-z0-9])[a-z2-7]{48}(?![a-z0-9])/gi

/** The message of ours that a report repeats a genuine token of; addresses and ids without our MAC name nothing. */
function createFindNamedMessage({
  keyRing,
  settings,
}: RouteParts): (references: ReportReferences) => string | undefined {
  const { reference } = settings.headers
  const headers = reference === null ? RETURNED_HEADERS : [reference.toLowerCase(), ...RETURNED_HEADERS]
  return ({ originalEnvelopeId, returned }) => {
    const texts = [originalEnvelopeId ?? '', ...headers.map((name) => returned.get(name) ?? '')]
    for (const [token] of texts.flatMap((text) => [...text.slice(0, MOST_CHARACTERS).matchAll(TOKEN)])) {
      const id =
        readReturnPathToken(token, keyRing.key('bounce')) ?? readComplaintToken(token, keyRing.key('complaint'))
      if (id !== undefined) return id
    }
    return undefined
  }
}

/** Records what a report says of its message, and counts what that changed; answers in one word. */
function createTellReport(parts: RouteParts): (messageId: string, reading: ReportReading) => Promise<string> {
  const { metrics, providers } = parts
  const providerOf = (isp: string | null): string | null =>
    Object.entries(providers.providers).find(([, block]) => block.isp === isp)?.[0] ?? null
  const { applyBounce, applyComplaint } = createApplyReport(parts, providerOf)

  /**
   * `reason`: for which the address of the message is suppressed, if it is; `count` is not called for simulated mail.
   */
  function told(result: ReportResult, reason: string, count: (provider: string) => void): string {
    if (result.kind !== 'recorded') return result.kind
    if (!result.isSimulated) count(providerOf(result.isp) ?? 'other')
    parts.onEvents()
    if (result.isSuppressed) metrics.suppressions.inc({ reason })
    return result.kind
  }

  return async (messageId, reading) => {
    if (reading.kind === 'bounce' || reading.kind === 'notice') {
      const { result, bounce } = await applyBounce(messageId, reading)
      return told(result, 'hard_bounce', (provider) => {
        if (bounce !== null) metrics.bounces.inc({ type: bounce.type, provider })
      })
    }
    const isComplaint = reading.kind === 'complaint'
    const result = await applyComplaint(messageId, reading)
    if (result === undefined) return 'no-finding'
    return told(result, isComplaint ? 'complaint' : 'unsubscribe', (provider) => {
      if (isComplaint) metrics.complaints.inc({ provider })
    })
  }
}

/** The sample is for looking at: a flood of junk need not be written down. */
const MOST_SAMPLES_PER_HOUR = 60
const SAMPLE_BYTES = 16 * 1024

/** Keeps the start of a mail that names none of our messages. */
function createKeepSample({ store, clock }: RouteParts): (mail: InboundMail, kind: string) => Promise<void> {
  const count = MOST_SAMPLES_PER_HOUR
  const samples = createRateLimit({ clock, count, perMilliseconds: HOUR, burst: count })
  return async ({ sender, recipient, remoteAddress, bytes }, kind) => {
    if (samples.take('sample') > 0) return
    // A copy: the whole message would travel with a part of it.
    const sample = new Uint8Array(bytes.subarray(0, SAMPLE_BYTES))
    await store.keepUnmatchedReport({ at: clock.now(), kind, sender, recipient, remoteAddress, bytes: sample })
  }
}
