/**
 * The parts of a report: what it says in prose, its machine-readable fields, and the message it returns. Reads at most
 * 64 Ki characters of prose (mail/README.md "Reading a report"). A returned message may be a part of its own, or follow
 * the prose in the same text behind a line such as `--- Below this line is a copy of the message.`
 */
import { decodeCharset, decodeTransfer, htmlToText } from './decode-text.ts'
import type { HeaderField } from '../header-fields.ts'
import { headerOf, readHeader, type MailPart } from './mail-tree.ts'
import { splitReturnedText } from './returned-text.ts'

export interface ReportParts {
  /** What the report says to people, without the returned message. */
  text: string
  /** Texts of message/delivery-status and its kin. */
  statuses: string[]
  /** Texts of message/feedback-report. */
  feedback: string[]
  /** Media types of all parts outside the returned message. */
  types: ReadonlySet<string>
  /** Header of the message that is returned, or null. */
  returned: readonly HeaderField[] | null
}

const MOST_TEXT_CHARACTERS = 65_536
/** Of one part, before it is decoded. */
const MOST_RAW_CHARACTERS = 3 * MOST_TEXT_CHARACTERS

const STATUS_TYPE = /^message\/(?:global-|x-)?delivery-status$/
const FEEDBACK_TYPE = /^message\/(?:x-)?feedback-report$/
// Only the header of the returned message (RFC 6522, RFC 6533).
const HEADER_TYPE = /^(?:text\/(?:x-)?rfc822-headers?|message\/(?:rfc822-|global-)headers?)$/
const MESSAGE_TYPE = /^message\/(?:rfc822|global|news|partial)$/

export function isStatusType(type: string): boolean {
  return STATUS_TYPE.test(type)
}

export function gatherReportParts(mail: MailPart): ReportParts {
  const texts: string[] = []
  const types = new Set<string>()
  const statuses: string[] = []
  const feedback: string[] = []
  let returned: readonly HeaderField[] | null = null
  let unread = MOST_TEXT_CHARACTERS
  gather(mail)
  return { statuses, feedback, types, returned, text: texts.join('\n\n').slice(0, MOST_TEXT_CHARACTERS) }

  function gather(part: MailPart): void {
    types.add(part.type)
    if (isStatusType(part.type)) statuses.push(textOf(part))
    else if (FEEDBACK_TYPE.test(part.type)) feedback.push(textOf(part))
    else if (HEADER_TYPE.test(part.type)) returned ??= readHeader(textOf(part).trimStart(), 0, true).headers
    else if (MESSAGE_TYPE.test(part.type)) returned ??= part.parts[0]?.headers ?? readHeader(part.body, 0, true).headers
    else if (part.type === 'multipart/alternative' && part.parts.length > 0) gatherFirstWithText(part.parts)
    else if (part.parts.length > 0) part.parts.forEach(gather)
    else if (part !== mail && isReturnedWithoutType(part)) returned ??= part.headers
    else gatherText(part)
  }

  /** The same text in several forms: the first that has words. */
  function gatherFirstWithText(alternatives: readonly MailPart[]): void {
    const before = texts.length
    for (const alternative of alternatives) {
      if (texts.length === before) gather(alternative)
    }
  }

  function gatherText(part: MailPart): void {
    if (!isProse(part) || unread <= 0) return
    const whole = textOf(part)
    unread -= whole.length
    const { text, returnedHeader } = splitReturnedText(whole)
    if (text.trim() !== '') texts.push(text)
    if (returnedHeader !== '') returned ??= readHeader(returnedHeader, 0, true).headers
  }
}

/** The decoded text of a part; HTML as its words. */
function textOf(part: MailPart): string {
  const bytes = decodeTransfer(part.body.slice(0, MOST_RAW_CHARACTERS), headerOf(part, 'content-transfer-encoding'))
  const text = decodeCharset(bytes, part.parameters.get('charset') ?? '')
    .slice(0, MOST_TEXT_CHARACTERS)
    .replace(/\r\n?/g, '\n')
  return part.type === 'text/html' ? htmlToText(text) : text
}

/** A multipart whose separators never came is prose, too. */
function isProse(part: MailPart): boolean {
  return part.type.startsWith('text/') || part.type.startsWith('multipart/')
}

/** A part that begins with the header of a mail where its own header should stand. */
function isReturnedWithoutType(part: MailPart): boolean {
  const names = new Set(part.headers.map((field) => field.name))
  return names.has('received') || (names.has('from') && (names.has('subject') || names.has('message-id')))
}
