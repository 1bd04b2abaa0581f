/**
 * Notifications of mail services that come as JSON in a mail: Amazon SES by way of SNS. Not every such mail is whole
 * JSON: lines may be broken inside a string. Never throws; what is no notification is undefined.
 */
import { kindOfFeedback } from './feedback-report.ts'
import { diagnosticText, factsIn } from './report-diagnostic.ts'
import { reportedAction, type ReportedRecipient, type ReportReading } from './report-reading.ts'

// The word that every notification holds, quotes escaped or not.
const NOTIFICATION_WORD = /\\?"notificationType\\?"|\\?"eventType\\?"/

type Notification = Pick<ReportReading, 'kind' | 'recipients'> & Partial<Pick<ReportReading, 'feedbackType'>>

export function readServiceNotification(text: string): Notification | undefined {
  if (!NOTIFICATION_WORD.test(text)) return undefined
  // SNS appends how to unsubscribe, like a signature.
  const outer = readObject(text.split(/\n-- ?\n/, 1)[0] ?? '')
  const inner = typeof outer['Message'] === 'string' ? readObject(outer['Message']) : outer
  const recipientsOf = (part: string, list: string, read: (entry: unknown) => ReportedRecipient) => {
    const entries = asObject(inner[part])[list]
    return (Array.isArray(entries) ? entries : []).map(read).filter(({ address }) => address !== '')
  }
  switch (inner['notificationType'] ?? inner['eventType']) {
    case 'Bounce':
      return { kind: 'bounce', recipients: recipientsOf('bounce', 'bouncedRecipients', bounced) }
    case 'Complaint': {
      // Of RFC 5965, where the provider told one.
      const type = textOf(asObject(inner['complaint'])['complaintFeedbackType']).trim().toLowerCase()
      const recipients = recipientsOf('complaint', 'complainedRecipients', bounced)
      return { kind: kindOfFeedback(type), recipients, feedbackType: type === '' ? null : type }
    }
    case 'Delivery': {
      const diagnostic = diagnosticText(textOf(asObject(inner['delivery'])['smtpResponse']))
      const told = { ...factsIn(diagnostic), action: 'delivered', replyCode: null, stage: 'dsn' } as const
      const delivered = (address: unknown): ReportedRecipient => ({
        ...told,
        address: textOf(address),
        finalRecipient: null,
      })
      return { kind: 'notice', recipients: recipientsOf('delivery', 'recipients', delivered) }
    }
    default:
      return undefined
  }
}

function bounced(given: unknown): ReportedRecipient {
  const entry = asObject(given)
  return {
    address: textOf(entry['emailAddress']),
    finalRecipient: null,
    action: reportedAction(textOf(entry['action'])) ?? 'failed',
    ...factsIn(diagnosticText(textOf(entry['diagnosticCode'])), textOf(entry['status'])),
  }
}

type JsonObject = Readonly<Record<string, unknown>>

/** The first object of a text; an empty one when there is none. */
function readObject(text: string): JsonObject {
  const start = text.indexOf('{')
  const end = text.lastIndexOf('}')
  // A line break inside a string is not JSON; outside it means nothing.
  const json = text.slice(Math.max(start, 0), end + 1).replace(/\n[ \t]?/g, ' ')
  try {
    return asObject(JSON.parse(json))
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return {}
    throw thrown
  }
}

function asObject(value: unknown): JsonObject {
  return typeof value === 'object' && value !== null ? { ...value } : {}
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
