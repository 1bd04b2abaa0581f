/**
 * Delivery status reports: who did not get the message, and why (RFC 3464, RFC 6533).
 *
 * Takes the fields from a part of their own or from the middle of a text. Groups may be split where they should not be
 * and joined where they should be split; a group without a recipient completes the one before it. Never throws.
 */
import { findAddresses } from './find-addresses.ts'
import { reportedAction, type ReportAction, type ReportedRecipient } from './report-reading.ts'
import { diagnosticText, replyCodeIn, statedStatus, stageIn } from './report-diagnostic.ts'
import { fieldOf, readFieldGroups, type FieldGroup } from './status-fields.ts'

interface DeliveryStatus {
  recipients: ReportedRecipient[]
  originalEnvelopeId: string | null
}

/** More than any real report has; RFC 5321 §4.5.3.1.8 lets a server stop at 100. */
const MOST_RECIPIENTS = 1_000

export function readDeliveryStatus(text: string): DeliveryStatus {
  const groups = joinGroups(readFieldGroups(text))
  const recipients: ReportedRecipient[] = []
  const seen = new Set<string>()
  for (const group of groups.filter(isAboutRecipient).slice(0, MOST_RECIPIENTS)) {
    const recipient = readRecipient(group)
    if (recipient === undefined || seen.has(recipient.address.toLowerCase())) continue
    seen.add(recipient.address.toLowerCase())
    recipients.push(recipient)
  }
  const envelopeId = groups.map((group) => fieldOf(group, 'original-envelope-id')).find((id) => id !== '')
  return { recipients, originalEnvelopeId: envelopeId ?? null }
}

/** Whether a text holds such fields although it is no status part. */
export function holdsDeliveryStatus(text: string): boolean {
  return /^(?:final|original)-recipient[ \t]?:/im.test(text) && /^(?:action|status|diagnostic-code)[ \t]?:/im.test(text)
}

const COMPLETING_FIELDS = ['action', 'status', 'diagnostic-code', 'remote-mta', 'will-retry-until']

function isAboutRecipient(group: FieldGroup): boolean {
  return group.has('final-recipient') || group.has('original-recipient')
}

/** Fields that a stray empty line parted from their recipient go back to it. */
function joinGroups(groups: readonly FieldGroup[]): FieldGroup[] {
  const joined: FieldGroup[] = []
  for (const group of groups) {
    const before = joined.at(-1)
    const completes = !isAboutRecipient(group) && COMPLETING_FIELDS.some((field) => group.has(field))
    if (before === undefined || !completes || !isAboutRecipient(before)) joined.push(group)
    else for (const [name, values] of group) if (!before.has(name)) before.set(name, values)
  }
  return joined
}

function readRecipient(group: FieldGroup): ReportedRecipient | undefined {
  const address = addressOf(group)
  if (address === '') return undefined
  const diagnostic = (group.get('diagnostic-code') ?? [])
    .map(diagnosticText)
    .filter((text) => text !== '')
    .join(' ')
  const status = statedStatus(fieldOf(group, 'status'), diagnostic)
  return {
    address,
    action: actionOf(group, status),
    status,
    replyCode: replyCodeIn(diagnostic) ?? replyCodeIn(fieldOf(group, 'status')),
    diagnostic,
    stage: stageIn(diagnostic),
  }
}

function actionOf(group: FieldGroup, status: string | null): ReportAction {
  const stated = reportedAction(fieldOf(group, 'action'))
  if (stated !== undefined) return stated
  return status?.startsWith('4') === true ? 'delayed' : status?.startsWith('2') === true ? 'delivered' : 'failed'
}

/** Final-Recipient is the address that was refused; Original-Recipient stands in where that one is no mailbox. */
function addressOf(group: FieldGroup): string {
  const candidates = ['final-recipient', 'original-recipient'].map((name) => cleanAddress(fieldOf(group, name)))
  return candidates.find(isMailbox) ?? candidates.find((address) => address !== '') ?? ''
}

/** Not the path of a file, a X.400 name or a source route (RFC 5321 §4.1.2). */
export function isMailbox(address: string): boolean {
  return /^[^@/|][^@]*@[^@]+$/.test(address)
}

/** Without the address type, brackets, quotes and comments around it (RFC 3464 §2.1.2); `\x{FC}` is ü (RFC 6533 §3). */
function cleanAddress(value: string): string {
  const stated = value
    .slice(value.indexOf(';') + 1)
    .trim()
    .replace(/^smtp:/i, '')
  const bare = stated.replace(/\\x\{([0-9a-f]{2,6})\}/gi, unescapeCharacter)
  if (bare.startsWith('@')) return bare
  const found = findAddresses(bare)[0]
  const isWhole = found !== undefined && found.end - found.start >= bare.replace(/[<>"\s]/g, '').length
  if (found !== undefined && (isWhole || /[<(\s]/.test(bare))) return found.address
  return bare.replace(/^<|>$/g, '')
}

function unescapeCharacter(escaped: string, digits: string): string {
  const code = Number.parseInt(digits, 16)
  return code > 0x1f && code <= 0x10_ff_ff ? String.fromCodePoint(code) : escaped
}
