/**
 * Notifications of mail services that come as JSON in a mail: Amazon SES by way of SNS.
 *
 * Not every such mail is whole JSON: lines may be broken inside a string. Never throws; what is no notification is
 * undefined.
 */
import { diagnosticText, replyCodeIn, statedStatus, stageIn } from './report-diagnostic.ts'
import { reportedAction, type ReportedRecipient } from './report-reading.ts'

interface ServiceNotification {
  kind: 'bounce' | 'notice' | 'complaint'
  recipients: ReportedRecipient[]
}

// The word that every notification holds, quotes escaped or not.
const NOTIFICATION_WORD = /\\?"notificationType\\?"|\\?"eventType\\?"/

export function readServiceNotification(text: string): ServiceNotification | undefined {
  if (!NOTIFICATION_WORD.test(text)) return undefined
  // SNS appends how to unsubscribe, like a signature.
  const outer = readObject(text.split(/\n-- ?\n/, 1)[0] ?? '')
  const inner = typeof outer['Message'] === 'string' ? readObject(outer['Message']) : outer
  const type = inner['notificationType'] ?? inner['eventType']
  const part = (name: string): JsonObject => asObject(inner[name])
  if (type === 'Bounce') {
    const recipients = asList(part('bounce')['bouncedRecipients']).map((entry) => bounced(asObject(entry)))
    return { kind: 'bounce', recipients: recipients.filter(isNamed) }
  }
  if (type === 'Complaint') {
    const recipients = asList(part('complaint')['complainedRecipients']).map((entry) => bounced(asObject(entry)))
    return { kind: 'complaint', recipients: recipients.filter(isNamed) }
  }
  if (type !== 'Delivery') return undefined
  const response = textOf(part('delivery')['smtpResponse'])
  const recipients = asList(part('delivery')['recipients']).map((address) => delivered(textOf(address), response))
  return { kind: 'notice', recipients: recipients.filter(isNamed) }
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

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function asObject(value: unknown): JsonObject {
  return isObject(value) ? value : {}
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function isNamed(recipient: ReportedRecipient): boolean {
  return recipient.address !== ''
}

function bounced(entry: JsonObject): ReportedRecipient {
  const diagnostic = diagnosticText(textOf(entry['diagnosticCode']))
  return {
    address: textOf(entry['emailAddress']),
    action: reportedAction(textOf(entry['action'])) ?? 'failed',
    status: statedStatus(textOf(entry['status']), diagnostic),
    replyCode: replyCodeIn(diagnostic),
    diagnostic,
    stage: stageIn(diagnostic),
  }
}

function delivered(address: string, response: string): ReportedRecipient {
  const diagnostic = diagnosticText(response)
  const status = statedStatus('', diagnostic)
  return { address, action: 'delivered', status, replyCode: null, diagnostic, stage: 'dsn' }
}
