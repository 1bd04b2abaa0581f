/**
 * The attachments of a request (http/README.md "Attachments" and "Limits"): every problem of form, then the sizes, then
 * their bytes, which are made only for a request that nothing else refuses. Never throws. RFC 4648 §4.
 */
import type { Attachment } from '../../mail/message.ts'
import { attachmentType } from './attachment-type.ts'
import type { FieldProblems } from './field-problems.ts'
import type { GivenAttachment } from './send-request.ts'

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
const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d

/** A checked attachment whose bytes are still text. */
export interface CheckedAttachment {
  name: string
  contentType: string
  contentId: string | null
  /** Checked; may have line breaks. */
  base64: string
  sizeBytes: number
}

export function checkAttachments(given: readonly GivenAttachment[], problems: FieldProblems): CheckedAttachment[] {
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
    const content = readBase64(attachment.content)
    if ('problem' in content) problems.add(`${path}.content`, content.problem)
    const { base64, sizeBytes } = 'problem' in content ? NO_CONTENT : content
    return { name, contentType: contentType ?? attachmentType(name), contentId, base64, sizeBytes }
  })
}

/** Says which limit is passed; an empty list: none. */
export function sizeProblems(attachments: readonly CheckedAttachment[]): string[] {
  const problems = attachments.flatMap(({ name, sizeBytes }, index) => {
    if (sizeBytes <= MOST_ATTACHMENT_BYTES) return []
    const shown = name.slice(0, MOST_SHOWN_CHARACTERS)
    return [`attachments[${index}] '${shown}' is ${sizeBytes} bytes; limit ${MOST_ATTACHMENT_BYTES}`]
  })
  const together = attachments.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)
  if (together > MOST_ATTACHMENT_BYTES_TOGETHER) {
    problems.push(`attachments are ${together} bytes together; limit ${MOST_ATTACHMENT_BYTES_TOGETHER}`)
  }
  return problems
}

export function decodeAttachments(attachments: readonly CheckedAttachment[]): Attachment[] {
  return attachments.map(({ name, contentType, contentId, base64 }) => ({
    name,
    contentType,
    contentId,
    bytes: Buffer.from(base64, 'base64'),
  }))
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

interface Base64Content {
  base64: string
  sizeBytes: number
}

const NO_CONTENT: Base64Content = { base64: '', sizeBytes: 0 }

/** Padding may be left out; where it is given it must be right. */
function readBase64(content: string | undefined): Base64Content | { problem: string } {
  if (content === undefined) return { problem: 'is missing' }
  const wrong = NOT_BASE64.exec(content)
  if (wrong !== null) return { problem: `is not base64 (RFC 4648 §4) at character ${wrong.index + 1}` }
  const paddingStart = content.indexOf('=')
  const end = paddingStart < 0 ? content.length : paddingStart
  if (!PADDING.test(content.slice(end))) return { problem: 'is not base64: wrong padding' }
  const characters = end - lineBreaks(content, 0, end)
  const padding = content.length - end - lineBreaks(content, end, content.length)
  const rest = characters % 4
  if (rest === 1) return { problem: 'is not base64: a character is missing or too many' }
  const isRightPadding = padding === 0 || (rest > 0 && padding === 4 - rest)
  if (!isRightPadding) return { problem: 'is not base64: wrong padding' }
  return { base64: content, sizeBytes: Math.floor((characters * 3) / 4) }
}

/** Counted, not removed: 14 million characters with a break after each would cost half a second to copy. */
function lineBreaks(text: string, start: number, end: number): number {
  if (!text.includes('\n') && !text.includes('\r')) return 0
  let count = 0
  for (let index = start; index < end; index++) {
    const code = text.charCodeAt(index)
    if (code === LINE_FEED || code === CARRIAGE_RETURN) count++
  }
  return count
}
