/**
 * Complaints: feedback reports (RFC 5965, RFC 6591, RFC 6650, RFC 9477) and the forms that came before them
 * (inbound/README.md "Complaints"). A recipient may be hidden: then only our own token in the returned message can name
 * it. Never throws.
 */
import { findAddresses } from './find-addresses.ts'
import type { HeaderField } from '../header-fields.ts'
import { headerOf, type MailPart } from './mail-tree.ts'
import { factsIn } from './report-diagnostic.ts'
import type { ReportParts } from './report-parts.ts'
import type { ReportReading } from './report-reading.ts'
import { fieldOf, readFieldGroups } from './delivery-status.ts'

type FeedbackReading = Pick<ReportReading, 'kind' | 'recipients' | 'feedbackType'> &
  Pick<ReportReading['references'], 'originalEnvelopeId'> & {
    /** Header of the message, with the envelope sender that the report states (RFC 5965 §3.2). */
    returned: HeaderField[]
  }

/** Types that are about a message without being a complaint about it. */
const NO_COMPLAINT = new Set(['not-spam', 'auth-failure', 'opt-out', 'unsubscribe', 'dmarc', 'miscategorized'])
/** Fields of RFC 6591, by which a report without a type is one of failed authentication. */
const AUTHENTICATION_FIELDS = ['auth-failure', 'identity-alignment', 'dkim-selector']

// A word, comments in front of it left out (RFC 5965 §3.5).
const FEEDBACK_TYPE = /^\s*(?:\([^()]*\)\s*)?([\w-]+)/

/** Of a type in lower case: the recipient wants nothing more, and does not complain. */
export function isOptOut(type: string | null): boolean {
  return type === 'opt-out' || type === 'unsubscribe'
}

/** Of a type in lower case. */
export function kindOfFeedback(type: string): 'complaint' | 'other' {
  return NO_COMPLAINT.has(type) ? 'other' : 'complaint'
}

/** Undefined when the mail is no feedback report. */
export function readFeedbackReport(parts: ReportParts, mail: MailPart): FeedbackReading | undefined {
  const fields = new Map(parts.feedback.flatMap(readFieldGroups).flatMap((group) => [...group]))
  const isReport = fields.size > 0 || mail.parameters.get('report-type')?.toLowerCase() === 'feedback-report'
  const type = FEEDBACK_TYPE.exec(fieldOf(fields, 'feedback-type'))?.[1]?.toLowerCase() ?? ''
  // Without a wrapper the mail is the message itself.
  const returned = parts.returned ?? mail.headers
  if (type === '' && !isReport && !(isUnmarked(parts, mail) && namesComplainer(returned))) return undefined
  const isAboutAuthentication = AUTHENTICATION_FIELDS.some((name) => fields.has(name))
  const feedbackType = type !== '' ? type : isAboutAuthentication ? 'auth-failure' : 'abuse'
  const [envelopeId, mailFrom] = [fieldOf(fields, 'original-envelope-id'), fieldOf(fields, 'original-mail-from')]
  return {
    kind: kindOfFeedback(feedbackType),
    feedbackType,
    // Who complained, as far as the report tells.
    recipients: complainers(fields, returned).map((address) => ({
      ...factsIn(''),
      address,
      finalRecipient: null,
      action: 'delivered',
    })),
    originalEnvelopeId: envelopeId === '' ? null : envelopeId,
    returned: [...(mailFrom === '' ? [] : [{ name: 'return-path', value: mailFrom }]), ...returned],
  }
}

/** A bounce may return the same header: where the mail was forwarded from a mailbox of such a provider. */
function isUnmarked({ statuses }: ReportParts, { parameters }: MailPart): boolean {
  return statuses.length === 0 && parameters.get('report-type')?.toLowerCase() !== 'delivery-status'
}

/**
 * A provider's program that predates the standard returns the message with who complained in its header, wrapped or as
 * it was.
 */
const COMPLAINER_FIELDS = ['x-hmxmroriginalrecipient', 'x-complaint-recipient']

function namesComplainer(headers: readonly HeaderField[]): boolean {
  return COMPLAINER_FIELDS.some((name) => headerOf({ headers }, name) !== '')
}

/** The report's own fields first, then those of the returned message. */
function complainers(fields: ReadonlyMap<string, string[]>, returned: readonly HeaderField[]): string[] {
  const stated = ['original-rcpt-to', 'removal-recipient'].map((name) => fields.get(name) ?? [])
  const repeated = [...COMPLAINER_FIELDS, 'x-apparently-to', 'to', 'x-original-to', 'delivered-to'].map((name) => [
    headerOf({ headers: returned }, name),
  ])
  for (const values of [...stated, ...repeated]) {
    const addresses = values.flatMap((value) => findAddresses(value)).map((found) => found.address)
    if (addresses.length > 0) return [...new Set(addresses)]
  }
  return []
}
