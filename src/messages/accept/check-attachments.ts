/**
 * The attachments of a request (http/README.md "Attachments" and "Limits"): every problem of form, their bytes, then
 * the sizes. All of it in some milliseconds, whatever the content is: it runs beside all other requests. Never throws.
 * RFC 4648 §4.
 */
import type { Attachment } from '../../mail/message.ts'
import { attachmentType } from './attachment-type.ts'
import type { FieldProblems } from './field-problems.ts'
import type { DecodedContent, GivenAttachment } from './send-request.ts'

const MOST_ATTACHMENTS = 20
/** 10 MiB and 25 MiB, decoded. */
const MOST_ATTACHMENT_BYTES = 10_485_760
const MOST_ATTACHMENT_BYTES_TOGETHER = 26_214_400

const MOST_NAME_CHARACTERS = 255
const MOST_TYPE_CHARACTERS = 255
const MOST_SHOWN_CHARACTERS = 80

// What separates folders, on any system.
const PATH_SEPARATOR = /[/\\]/
// Every control character, and the line and paragraph separators.
const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}]/u
// type/subtype of RFC 2045 §5.1, with or without parameters in printable ASCII.
const MEDIA_TYPE = /^[A-Za-z0-9!#$&^_.+-]{1,127}\/[A-Za-z0-9!#$&^_.+-]{1,127}(?: *;[ -~]*)?$/
// A content id without its angle brackets: atoms, dots and at most one @ (RFC 2392 §2, RFC 5322 §3.2.3).
const CONTENT_ID = /^[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~.]{1,150}(?:@[A-Za-z0-9.-]{1,100})?$/
// Anything that is neither of the base64 alphabet nor padding nor a line break.
const NOT_BASE64 = /[^A-Za-z0-9+/=\r\n]/
// Padding and line breaks, nothing else.
const PADDING = /^[=\r\n]*$/
/** Real lines have 64 or 76 characters; of a short content nobody asks. */
const FEWEST_LINE_CHARACTERS = 48
const FEW_LINES = 1_000
/** The place of a wrong character is told up to here. */
const MOST_SEARCHED = 4_000_000

export function checkAttachments(given: readonly GivenAttachment[], problems: FieldProblems): Attachment[] {
  if (given.length > MOST_ATTACHMENTS) {
    problems.add('attachments', `${given.length} entries; at most ${MOST_ATTACHMENTS} are allowed`)
    return []
  }
  const contentIds = new Set<string>()
  return given.map((attachment, index) => {
    const path = `attachments[${index}]`
    const { name = '', contentType, contentId = null } = attachment
    checkName(attachment.name, `${path}.name`, problems)
    if (contentType !== undefined && !isMediaType(contentType)) {
      problems.add(`${path}.content_type`, 'is no media type such as image/png')
    }
    if (contentId !== null) {
      if (!CONTENT_ID.test(contentId)) problems.add(`${path}.content_id`, 'is no content id such as logo@example.com')
      if (contentIds.has(contentId)) problems.add(`${path}.content_id`, 'is used by another attachment')
      contentIds.add(contentId)
    }
    const content = contentOf(attachment)
    if ('problem' in content) problems.add(`${path}.content`, content.problem)
    const bytes = 'problem' in content ? NOTHING : content.bytes
    return { name, contentType: attachmentType(contentType, name, bytes), contentId, bytes }
  })
}

/** Says which limit is passed; an empty list: none. */
export function sizeProblems(attachments: readonly Attachment[]): string[] {
  const problems = attachments.flatMap(({ name, bytes: { length } }, index) => {
    if (length <= MOST_ATTACHMENT_BYTES) return []
    const shown = name.slice(0, MOST_SHOWN_CHARACTERS)
    return [`attachments[${index}] '${shown}' is ${length} bytes; limit ${MOST_ATTACHMENT_BYTES}`]
  })
  const together = attachments.reduce((sum, { bytes }) => sum + bytes.length, 0)
  if (together > MOST_ATTACHMENT_BYTES_TOGETHER) {
    problems.push(`attachments are ${together} bytes together; limit ${MOST_ATTACHMENT_BYTES_TOGETHER}`)
  }
  return problems
}

function checkName(name: string | undefined, path: string, problems: FieldProblems): void {
  if (name === undefined) {
    problems.add(path, 'is missing')
    return
  }
  if (name === '' || name.length > MOST_NAME_CHARACTERS) {
    problems.add(path, `must have 1 to ${MOST_NAME_CHARACTERS} characters`)
  }
  if (PATH_SEPARATOR.test(name)) problems.add(path, 'has a path separator')
  if (CONTROL.test(name)) problems.add(path, 'has a line break or another control character')
  if (!name.isWellFormed()) problems.add(path, 'has an unpaired surrogate')
}

function isMediaType(text: string): boolean {
  return text.length <= MOST_TYPE_CHARACTERS && MEDIA_TYPE.test(text)
}

const NOTHING = new Uint8Array(0)

function contentOf({ content }: GivenAttachment): DecodedContent {
  if (content === undefined) return { problem: 'is missing' }
  return typeof content === 'string' ? decodeContent(content) : content
}

/** Padding may be left out; where it is given it must be right. */
export function decodeContent(content: string): DecodedContent {
  const paddingStart = content.indexOf('=')
  const end = paddingStart < 0 ? content.length : paddingStart
  const breaks = lineBreaks(content)
  if (breaks === undefined) return { problem: `has lines of less than ${FEWEST_LINE_CHARACTERS} characters` }
  const isPadded = PADDING.test(content.slice(end))
  const block = Buffer.allocUnsafeSlow(Buffer.byteLength(content, 'base64'))
  const bytes = block.subarray(0, block.write(content, 'base64'))
  const breaksBehind = lineBreaks(content.slice(end)) ?? 0
  const characters = end - (breaks - breaksBehind)
  const rest = characters % 4
  // The decoder leaves out what it does not know, and takes the letters of base64url.
  const isWhole = bytes.length === Math.floor((characters * 3) / 4) && !content.includes('-') && !content.includes('_')
  if (!isWhole || rest === 1) {
    const wrong = NOT_BASE64.exec(content.slice(0, MOST_SEARCHED))
    if (wrong !== null) return { problem: `is not base64 (RFC 4648 §4) at character ${wrong.index + 1}` }
    if (!isWhole) return { problem: 'is not base64 (RFC 4648 §4)' }
  }
  if (isPadded && rest === 1) return { problem: 'is not base64: a character is missing or too many' }
  const padding = content.length - end - breaksBehind
  const isRightPadding = isPadded && (padding === 0 || (rest > 0 && padding === 4 - rest))
  return isRightPadding ? { bytes } : { problem: 'is not base64: wrong padding' }
}

/** Undefined: far more than anybody writes. To look at each of 30 million characters would take 100 ms. */
function lineBreaks(text: string): number | undefined {
  const most = Math.max(FEW_LINES, text.length / FEWEST_LINE_CHARACTERS)
  let count = 0
  for (const lineEnd of ['\n', '\r']) {
    let lines = 0
    for (let at = text.indexOf(lineEnd); at >= 0; at = text.indexOf(lineEnd, at + 1)) {
      if (++lines > most) return undefined
    }
    count += lines
  }
  return count
}
