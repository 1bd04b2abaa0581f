/**
 * Delivery status reports: who did not get the message, and why (RFC 3464, RFC 6533). Takes the fields from a part of
 * their own or from the middle of a text. Groups may be split where they should not be and joined where they should be
 * split; a group without a recipient completes the one before it. Never throws.
 */
import { findAddresses } from './find-addresses.ts'
import { diagnosticText, factsIn, replyCodeIn } from './report-diagnostic.ts'
import { reportedAction, type ReportAction, type ReportedRecipient, type ReportReferences } from './report-reading.ts'
import { EXPIRED_SENTENCE } from './wordings.ts'

// A field name as these reports use them, then its value.
const FIELD = /^([A-Za-z][A-Za-z0-9-]{1,60})[ \t]?:[ \t]?(.*)$/
const MOST_VALUE_CHARACTERS = 4_096
const MOST_FIELDS = 5_000
const MOST_LINES = 50_000
const RECIPIENT_FIELDS = ['final-recipient', 'original-recipient']
/** Fields that are about the message and never about a recipient (RFC 3464 §2.2). */
const MESSAGE_FIELDS = ['reporting-mta', 'arrival-date', 'received-from-mta', 'original-envelope-id', 'dsn-gateway']
/** More than any real report has; RFC 5321 §4.5.3.1.8 lets a server stop at 100. */
const MOST_RECIPIENTS = 1_000

export function readDeliveryStatus(
  text: string,
): Pick<ReportReferences, 'originalEnvelopeId'> & { recipients: ReportedRecipient[] } {
  const groups = joinGroups(readFieldGroups(text))
  const recipients = new Map<string, ReportedRecipient>()
  for (const group of groups.filter(isAboutRecipient).slice(0, MOST_RECIPIENTS)) {
    const recipient = readRecipient(group)
    if (recipient === undefined) continue
    // An address that became several is the original one of them all.
    const key = `${recipient.address} ${recipient.finalRecipient ?? ''}`.toLowerCase()
    if (!recipients.has(key)) recipients.set(key, recipient)
  }
  const envelopeId = groups.map((group) => fieldOf(group, 'original-envelope-id')).find((id) => id !== '')
  return { recipients: [...recipients.values()], originalEnvelopeId: envelopeId ?? null }
}

/** Whether a text holds such fields although it is no status part. */
export function holdsDeliveryStatus(text: string): boolean {
  return /^(?:final|original)-recipient[ \t]?:/im.test(text) && /^(?:action|status|diagnostic-code)[ \t]?:/im.test(text)
}

/** What a text says beside such fields. */
export function withoutStatusFields(text: string): string {
  let isField = false
  return text
    .split('\n')
    .filter((line) => {
      const name = FIELD.exec(line.slice(0, MOST_VALUE_CHARACTERS))?.[1]?.toLowerCase()
      isField = name === undefined ? isField && /^[ \t]+\S/.test(line) : STATUS_FIELDS.has(name)
      return !isField
    })
    .join('\n')
}

const COMPLETING_FIELDS = ['action', 'status', 'diagnostic-code', 'remote-mta', 'will-retry-until']
const STATUS_FIELDS = new Set([...RECIPIENT_FIELDS, ...MESSAGE_FIELDS, ...COMPLETING_FIELDS])

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
  const { address, finalRecipient } = addressesOf(group)
  if (address === '') return undefined
  const diagnostic = (group.get('diagnostic-code') ?? [])
    .map(diagnosticText)
    .filter((text) => text !== '')
    .join(' ')
  const stated = fieldOf(group, 'status')
  const facts = factsIn(diagnostic, stated)
  // Of a temporary or a good status, where there is no action.
  const ofClass: Readonly<Record<string, ReportAction>> = { '4': 'delayed', '2': 'delivered' }
  const action = reportedAction(fieldOf(group, 'action')) ?? ofClass[facts.status?.charAt(0) ?? ''] ?? 'failed'
  const isOver = action === 'delayed' && EXPIRED_SENTENCE.test(diagnostic)
  return {
    ...facts,
    address,
    finalRecipient,
    action: isOver ? 'failed' : action,
    replyCode: facts.replyCode ?? replyCodeIn(stated),
  }
}

/** Original-Recipient is the address that was mailed; Final-Recipient what it had become where it was refused. */
function addressesOf(group: FieldGroup): Pick<ReportedRecipient, 'address' | 'finalRecipient'> {
  const [original = '', final = ''] = ['original-recipient', 'final-recipient'].map((name) =>
    cleanAddress(fieldOf(group, name)),
  )
  const address = [original, final].find(isMailbox) ?? (final === '' ? original : final)
  const isRewritten = isMailbox(final) && final.toLowerCase() !== address.toLowerCase()
  return { address, finalRecipient: isRewritten ? final : null }
}

/** Not the path of a file, a X.400 name or a source route (RFC 5321 §4.1.2). */
export function isMailbox(address: string): boolean {
  return /^[^@/|][^@]*@[^@]+$/.test(address)
}

// Kinds of addresses that gateways write in front, such as `dda:SMTP=`; those of X.400 and Exchange hold none of ours.
const ADDRESS_TYPE = /^\s*(?:(?:dda|rfc-?822|smtp|internet|e-?mail)\s*[:;=]\s*)+/i

/** Without the address type, brackets, quotes and comments around it (RFC 3464 §2.1.2); `\x{FC}` is ü (RFC 6533 §3). */
function cleanAddress(value: string): string {
  const stated = value
    .slice(value.indexOf(';') + 1)
    .replace(ADDRESS_TYPE, '')
    .trim()
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

type FieldGroup = Map<string, string[]>

/**
 * Groups of `Name: value` lines, as delivery status and feedback reports hold them (RFC 3464 §2.1, RFC 5965 §3), in
 * their order; names in lower case, every value of a name that comes more than once. A line of white space ends a
 * group; folded values are joined, also where the fold lost its white space.
 */
export function readFieldGroups(text: string): FieldGroup[] {
  const groups: FieldGroup[] = []
  let group: FieldGroup | undefined
  let values: string[] | undefined
  let fields = 0
  for (const line of text.split('\n', MOST_LINES)) {
    const isFolded = line.startsWith(' ') || line.startsWith('\t')
    const field = isFolded ? null : FIELD.exec(line.slice(0, MOST_VALUE_CHARACTERS))
    if (line.trim() === '') {
      group = undefined
      values = undefined
    } else if (field === null) {
      appendToLast(values, line)
    } else if (fields < MOST_FIELDS) {
      const key = field[1]?.toLowerCase() ?? ''
      if (group === undefined || startsGroup(group, key)) groups.push((group = new Map()))
      values = group.get(key) ?? []
      values.push(field[2]?.trim() ?? '')
      group.set(key, values)
      fields++
    }
  }
  return groups
}

/** First value of a field, or an empty text. */
export function fieldOf(group: FieldGroup, name: string): string {
  return group.get(name)?.[0] ?? ''
}

/** The empty line in front of a recipient is missing: the field is there already, or the group is the message's. */
function startsGroup(group: FieldGroup, name: string): boolean {
  if (!RECIPIENT_FIELDS.includes(name)) return false
  const isOfMessage = MESSAGE_FIELDS.some((field) => group.has(field)) && !group.has('action') && !group.has('status')
  return group.has(name) || (isOfMessage && !RECIPIENT_FIELDS.some((field) => group.has(field)))
}

function appendToLast(values: string[] | undefined, line: string): void {
  const last = values?.at(-1)
  if (values === undefined || last === undefined || last.length > MOST_VALUE_CHARACTERS) return
  values[values.length - 1] = `${last} ${line.slice(0, MOST_VALUE_CHARACTERS).trim()}`
}
