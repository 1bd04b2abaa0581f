/**
 * A mail as a tree of MIME parts, whatever its sender made of the standards (mail/README.md "Reading a report"). One
 * pass over the first MiB, linear in its length. Deeper parts than the limit are text of the part around them, later
 * ones are left out. Never throws. RFC 5322 §2, RFC 2045 §5.1, RFC 2046 §5.1.
 */
import type { HeaderField } from '../header-fields.ts'
import { decodeTransfer } from './decode-text.ts'

export interface MailPart {
  headers: readonly HeaderField[]
  /** Media type in lower case; text/plain when none is stated. */
  type: string
  /** Parameters of the Content-Type, names in lower case. */
  parameters: ReadonlyMap<string, string>
  /** As transferred, one character per byte, lines ending in LF; of a container: what stands before its first part. */
  body: string
  /** Of a multipart: its parts. Of message/rfc822 and its kin: the one message. */
  parts: MailPart[]
}

const MOST_MAIL_BYTES = 1_048_576
const MOST_PARTS = 500
const MOST_DEPTH = 20
const MOST_HEADER_FIELDS = 2_000
const MOST_FIELD_CHARACTERS = 65_536
const MOST_PARAMETER_CHARACTERS = 4_096
/** RFC 2046 §5.1.1 allows 70; some servers write far longer ones. */
const MOST_BOUNDARY_CHARACTERS = 250
/** Messages that were sent encoded: no report has more, and each one costs a decoding. */
const MOST_ENCODED_MESSAGES = 2
/** Where a separator that no header announces is looked for. */
const GUESS_CHARACTERS = 16_384

const CR = 0x0d
const LF = 0x0a

// A field name (RFC 5322 §2.2), white space before the colon allowed.
const FIELD = /^([!-9;-~]{1,76})[ \t]*:/
// The line in front of a mail in a mbox file.
const MBOX_LINE = /^>?From \S/
// Media types that hold a whole message (RFC 2046 §5.2.1, RFC 6532 §3.7).
const MESSAGE_TYPE = /^message\/(?:rfc822|global|news)$/
// A separator, followed by a header field of a part: what a mail without Content-Type still shows.
const UNANNOUNCED_SEPARATOR = /(?:^|\n)--([^\n]{1,250})\ncontent-(?:type|description|transfer-encoding|disposition):/i

export function readMailTree(bytes: Uint8Array): MailPart {
  const start = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, MOST_MAIL_BYTES))
  const text = start.toString('latin1')
  return splitMail(unifyLineEnds(text), { parts: 0, encodedMessages: 0 })
}

/** First value of a field, or an empty text. */
export function headerOf(part: Pick<MailPart, 'headers'>, name: string): string {
  return part.headers.find((field) => field.name === name)?.value ?? ''
}

/** Reads the header at a position; `end` is where the body starts. */
export function readHeader(text: string, from: number, isRoot: boolean): { headers: HeaderField[]; end: number } {
  const headers: HeaderField[] = []
  let position = from
  while (position < text.length) {
    const lineEnd = endOfLine(text, position)
    if (lineEnd === position) return { headers, end: lineEnd + 1 }
    const name = FIELD.exec(text.slice(position, Math.min(lineEnd, position + 80)))?.[1]
    if (name === undefined) {
      if (!maySkip(text, position, isRoot, headers.length === 0)) return { headers, end: position }
      position = lineEnd + 1
      continue
    }
    let end = lineEnd
    // Continuation lines.
    while (text[end + 1] === ' ' || text[end + 1] === '\t') end = endOfLine(text, end + 1)
    const raw = text.slice(text.indexOf(':', position) + 1, Math.min(end, position + MOST_FIELD_CHARACTERS))
    headers.push({ name: name.toLowerCase(), value: raw.replaceAll('\n', ' ').trim() })
    position = end + 1
    if (headers.length >= MOST_HEADER_FIELDS) {
      const blank = text.indexOf('\n\n', position)
      return { headers, end: blank === -1 ? text.length : blank + 2 }
    }
  }
  return { headers, end: Math.min(position, text.length) }
}

/** A parameter may stand in quotes or not, and be followed by anything. */
function readParameters(value: string): Map<string, string> {
  const parameters = new Map<string, string>()
  // ; name = "value" or ; name = value
  const PARAMETER = /;[ \t]*([^\s=;"]{1,64})[ \t]*=[ \t]*(?:"([^"]*)"|([^\s;"]+))/g
  for (const [, name = '', quoted, bare = ''] of value.slice(0, MOST_PARAMETER_CHARACTERS).matchAll(PARAMETER)) {
    const key = name.toLowerCase()
    if (!parameters.has(key)) parameters.set(key, quoted ?? bare)
  }
  return parameters
}

interface Counts {
  parts: number
  encodedMessages: number
}

/** Splits a whole message. */
function splitMail(text: string, counts: Counts): MailPart {
  const open = createOpenParts(text, counts)
  const root = open.add(skipBlankLines(text, 0))
  let position = open.enter()
  while (position < text.length) {
    const lineEnd = endOfLine(text, position)
    const separator = text.startsWith('--', position) ? open.separatorAt(position, lineEnd) : undefined
    if (separator !== undefined) open.closeDownTo(separator.level, position)
    position = lineEnd + 1
    if (separator === undefined) continue
    if (separator.isLast) {
      open.endOfParts(separator.level)
      continue
    }
    // Nothing that follows could become a part.
    if (counts.parts >= MOST_PARTS) break
    open.add(position)
    position = open.enter()
  }
  open.closeDownTo(-1, text.length)
  return root
}

/** A part whose body is not yet at its end. */
interface OpenPart {
  part: MailPart
  bodyStart: number
  /** Of a multipart that waits for more parts. */
  boundary: string | null
}

/** The way from the message (level 0) to the part that is being read. */
function createOpenParts(text: string, counts: Counts) {
  const way: OpenPart[] = []
  /** Of each multipart on the way that waits for more parts, by its boundary. */
  const levels = new Map<string, number>()

  /** Reads the header of a part, and puts the part below the newest one. */
  function add(from: number): MailPart {
    counts.parts++
    const { headers, end } = readHeader(text, from, way.length === 0)
    const part = emptyPart(headers)
    way.at(-1)?.part.parts.push(part)
    way.push({ part, bodyStart: end, boundary: null })
    return part
  }

  return {
    add,
    /** Goes into the newest part as far as it is a container that starts at once; gives where to read on. */
    enter(): number {
      for (;;) {
        const level = way.length - 1
        const newest = way[level]
        if (newest === undefined) return text.length
        const boundary = boundaryOf(newest.part, text, newest.bodyStart, level === 0)
        if (boundary !== undefined && level < MOST_DEPTH && !levels.has(boundary)) {
          newest.boundary = boundary
          levels.set(boundary, level)
          return newest.bodyStart
        }
        const isMessage = MESSAGE_TYPE.test(newest.part.type) && !isEncoded(newest.part)
        if (!isMessage || level >= MOST_DEPTH || counts.parts >= MOST_PARTS) return newest.bodyStart
        add(skipBlankLines(text, newest.bodyStart))
      }
    },
    /** The multipart that a line separates the parts of; undefined: it is text. */
    separatorAt(start: number, lineEnd: number): { level: number; isLast: boolean } | undefined {
      if (levels.size === 0) return undefined
      const line = text.slice(start + 2, Math.min(lineEnd, start + MOST_BOUNDARY_CHARACTERS + 4)).trimEnd()
      const level = levels.get(line)
      if (level !== undefined) return { level, isLast: false }
      const closing = line.endsWith('--') ? levels.get(line.slice(0, -2).trimEnd()) : undefined
      return closing === undefined ? undefined : { level: closing, isLast: true }
    },
    /** The multipart of a level has no further parts: what follows is text. */
    endOfParts(level: number): void {
      levels.delete(way[level]?.boundary ?? '')
    },
    /** Ends every part below a level, the level itself stays open. */
    closeDownTo(level: number, end: number): void {
      while (way.length > level + 1) {
        const closed = way.pop()
        if (closed === undefined) return
        if (closed.boundary !== null) levels.delete(closed.boundary)
        // The line end in front of a separator is part of it (RFC 2046 §5.1.1); the last line may have none.
        const body = text.slice(closed.bodyStart, text[end - 1] === '\n' ? end - 1 : end)
        if (closed.part.parts.length === 0) finishLeaf(closed.part, body, counts)
      }
      const parent = way[level]
      if (parent !== undefined && parent.part.parts.length === 0) parent.part.body = text.slice(parent.bodyStart, end)
    },
  }
}

function emptyPart(headers: readonly HeaderField[]): MailPart {
  const contentType = headerOf({ headers }, 'content-type')
  const type = (contentType.split(';', 1)[0] ?? '').trim().toLowerCase()
  const parameters = readParameters(contentType)
  return { headers, type: type.includes('/') ? type : 'text/plain', parameters, body: '', parts: [] }
}

/** The body of a part without parts; a message that was sent encoded is split now. */
function finishLeaf(part: MailPart, body: string, counts: Counts): void {
  part.body = body
  if (!MESSAGE_TYPE.test(part.type) || !isEncoded(part) || counts.encodedMessages >= MOST_ENCODED_MESSAGES) return
  const decoded = decodeTransfer(body, headerOf(part, 'content-transfer-encoding')).toString('latin1')
  counts.encodedMessages++
  part.parts.push(splitMail(unifyLineEnds(decoded), counts))
}

function isEncoded(part: MailPart): boolean {
  return /^(?:base64|quoted-printable)/i.test(headerOf(part, 'content-transfer-encoding'))
}

/** The boundary the part announces; at the root also one that nobody announced but that is there. */
function boundaryOf(part: MailPart, text: string, from: number, isRoot: boolean): string | undefined {
  const stated = part.type.startsWith('multipart/') ? part.parameters.get('boundary')?.trimEnd() : undefined
  const usable = stated === '' || (stated?.length ?? 0) > MOST_BOUNDARY_CHARACTERS ? undefined : stated
  if (!isRoot) return usable
  const start = text.slice(from, from + GUESS_CHARACTERS)
  if (usable !== undefined && start.includes(`--${usable}`)) return usable
  const guess = UNANNOUNCED_SEPARATOR.exec(start)
  // One that is announced below belongs to a message in the text.
  const isOfMessage = guess !== null && /\bboundary=/i.test(start.slice(0, guess.index))
  return guess === null || isOfMessage ? usable : guess[1]?.trimEnd()
}

/** A line that is no header field: of the mbox format, or a broken one in the middle of the header of a message. */
function maySkip(text: string, position: number, isRoot: boolean, isFirst: boolean): boolean {
  const line = text.slice(position, Math.min(endOfLine(text, position), position + 80))
  if (isFirst && MBOX_LINE.test(line)) return true
  if (!isRoot || line.startsWith('--')) return false
  const next = endOfLine(text, position) + 1
  return FIELD.test(text.slice(next, Math.min(endOfLine(text, next), next + 80)))
}

function endOfLine(text: string, from: number): number {
  const end = text.indexOf('\n', from)
  return end === -1 ? text.length : end
}

function skipBlankLines(text: string, from: number): number {
  let position = from
  while (text[position] === '\n') position++
  return position
}

/** A mail without any LF has CR alone; else a row of CRs before a LF is one line end, as is a lone CR. */
function unifyLineEnds(text: string): string {
  if (!text.includes('\r')) return text
  if (text.includes('\n')) return text.replace(/\r+\n?/g, '\n')
  const bytes = Buffer.from(text, 'latin1').map((byte) => (byte === CR ? LF : byte))
  return Buffer.from(bytes).toString('latin1')
}
