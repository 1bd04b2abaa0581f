/**
 * The parts of a report: what it says in prose, its machine-readable fields, and the message it returns. Reads at most
 * 64 Ki characters of prose (mail/README.md "Reading a report"). A returned message may be a part of its own, or follow
 * the prose in the same text behind a line such as `--- Below this line is a copy of the message.`
 */
import type { HeaderField } from '../header-fields.ts'
import { decodeCharset, decodeTransfer, htmlToText } from './decode-text.ts'
import { headerOf, readHeader, type MailPart } from './mail-tree.ts'
import { RETURNED_BEHIND_RULER, RETURNED_SENTENCE } from './wordings.ts'

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

/** Of the part that makes a mail a report. */
export function isReportType(type: string): boolean {
  return STATUS_TYPE.test(type) || FEEDBACK_TYPE.test(type)
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
    if (STATUS_TYPE.test(part.type)) statuses.push(textOf(part))
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
    // A multipart whose separators never came is prose, too.
    if (!/^(?:text|multipart)\//.test(part.type) || unread <= 0) return
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

/** A part that begins with the header of a mail where its own header should stand. */
function isReturnedWithoutType(part: MailPart): boolean {
  const names = new Set(part.headers.map((field) => field.name))
  return names.has('received') || (names.has('from') && (names.has('subject') || names.has('message-id')))
}

const MOST_LINE_CHARACTERS = 200
// A header line, quoted or indented.
const HEADER_LINE = /^([>|\s]{0,12})([A-Za-z][A-Za-z0-9-]{1,40}):/
/** Fields that stand in the header of a mail and not in prose about one. */
const SURE_FIELDS = new Set('received return-path mime-version dkim-signature delivered-to'.split(' '))
const OTHER_FIELDS =
  'message-id from to cc date subject reply-to sender content-type user-agent content-transfer-encoding ' +
  'errors-to precedence list-id envelope-to authentication-results'
const FIELDS = new Set([...SURE_FIELDS, ...OTHER_FIELDS.split(' ')])
const FEWEST_FIELDS = 3
const MOST_BLOCK_LINES = 40
// The author of a report that somebody forwards: its header is not that of the returned message.
const REPORTER = /mailer-daemon|postmaster@/i

/**
 * Where the prose of a report ends and the message it returns begins, when both are one text. Two signs, whichever
 * comes first: a line that announces the message, and a block of lines that is the header of a mail. Both may be quoted
 * or indented. `returnedHeader` is the returned message from its first header line on, quotation marks removed; or
 * empty.
 */
function splitReturnedText(text: string): { text: string; returnedHeader: string } {
  const lines = text.split('\n')
  const header = findHeader(lines)
  const marker = lines.findIndex(isMarker)
  const cuts = [header, marker].filter((index) => index !== -1)
  if (cuts.length === 0) return { text, returnedHeader: '' }
  // Behind a marker a header may be as short as two fields.
  const behindMarker = lines.findIndex((line, index) => index > marker && HEADER_LINE.test(line))
  const start = header === -1 ? behindMarker : header
  return {
    text: lines.slice(0, Math.min(...cuts)).join('\n'),
    returnedHeader: start === -1 ? '' : unquote(lines.slice(start)),
  }
}

function isMarker(line: string): boolean {
  const short = line.slice(0, MOST_LINE_CHARACTERS)
  return RETURNED_BEHIND_RULER.test(short) || RETURNED_SENTENCE.test(short)
}

/** Line of the first block that is the header of a mail, or -1. */
function findHeader(lines: readonly string[]): number {
  let index = 0
  while (index < lines.length) {
    const block = readBlock(lines, index)
    if (block.isHeader && !block.isReport) return index
    index = block.end
  }
  return -1
}

/** Lines with fields of a mail, up to an empty one; a header has at least one of the sure ones. */
function readBlock(lines: readonly string[], from: number): { isHeader: boolean; isReport: boolean; end: number } {
  const first = HEADER_LINE.exec(lines[from] ?? '')
  const block = { isHeader: false, isReport: false, end: from + 1 }
  if (first === null || !isMailField(first[2]?.toLowerCase() ?? '')) return block
  const quote = first[1]?.length ?? 0
  const names = new Set<string>()
  let end = from
  for (; end < Math.min(lines.length, from + MOST_BLOCK_LINES); end++) {
    const line = lines[end] ?? ''
    const name = HEADER_LINE.exec(line)?.[2]?.toLowerCase()
    if (name === 'from' && REPORTER.test(line.slice(0, MOST_LINE_CHARACTERS))) block.isReport = true
    if (name !== undefined && isMailField(name)) names.add(name)
    else if (line.slice(quote).trim() === '') break
  }
  const isHeader = names.size >= FEWEST_FIELDS && [...names].some((name) => SURE_FIELDS.has(name))
  return { ...block, isHeader, end }
}

function isMailField(name: string): boolean {
  return FIELDS.has(name) || name.startsWith('x-')
}

function unquote(lines: readonly string[]): string {
  const quote = HEADER_LINE.exec(lines[0] ?? '')?.[1]?.length ?? 0
  return quote === 0 ? lines.join('\n') : lines.map((line) => line.slice(quote)).join('\n')
}
