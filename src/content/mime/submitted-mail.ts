/**
 * A mail as an application submitted it, taken apart just far enough to put our fields on top and other html in place
 * of its html; every other byte stays (content/README.md "Tracking"). Where anything about its html is odd, there is
 * none. Never throws; linear in the size for each level, whatever boundaries and headers it has. RFC 2045, RFC 2046
 * §5.1.1, RFC 1847.
 */
import { fieldName, fieldValue, readMediaType, splitFields, type MediaType } from '../../mail/header-fields.ts'
import { decodePart, encodePart, readTransferEncoding, type TransferEncoding } from './transfer-encoding.ts'

export interface SubmittedMail {
  /** Header fields with their folds and CRLF; latin1. */
  fields: readonly string[]
  /** The empty line and all that follows it. */
  rest: Buffer
}

/** The html of a submitted mail, and the mail with another html in its place. */
interface SubmittedHtml {
  html: string
  replace(html: string): SubmittedMail
}

/** test/README.md "Attacks". */
const MOST_DEPTH = 20
const MOST_PARTS = 500
/** Of all parts together, and the outermost header, which has half of it at most (`readStrictFields`). */
const MOST_HEADER_BYTES = 512 * 1024
/** Lines that begin with two hyphens, as delimiters do. */
const MOST_LINES = 20_000
/** RFC 2046 §5.1.1 has 70; programs that write more are known. */
const MOST_BOUNDARY_CHARACTERS = 250
/** Nobody writes more behind a boundary. */
const MOST_TAIL_BYTES = 100
/** http/README.md "Limits": as much html as a request may have. */
const MOST_HTML_BYTES = 5 * 1024 * 1024
/** Of that much html as quoted-printable: three for each byte, and the line ends. */
const MOST_ENCODED_BYTES = 3.2 * MOST_HTML_BYTES
/** Bytes that mean the same in each of these, so that what we put in is right in all of them. */
const CHARACTER_SETS: ReadonlyMap<string, 'utf8' | 'latin1'> = new Map([
  ...['', 'utf-8', 'utf8', 'us-ascii', 'ascii'].map((name): [string, 'utf8'] => [name, 'utf8']),
  ...['iso-8859-1', 'windows-1252'].map((name): [string, 'latin1'] => [name, 'latin1']),
])
// Of a file, also of one that is shown within the mail: a body has no name.
const ATTACHED = /^attachment\b|;\s*filename\b/i
const LINE_END = '\r\n'
const LINE_OF_HYPHENS = Buffer.from('\r\n--')

/** What may still be looked at of one mail, in all its levels. */
export interface LooksLeft {
  lines: number
  headerBytes: number
}

export const createLooks = (): LooksLeft => ({ lines: MOST_LINES, headerBytes: MOST_HEADER_BYTES })

/** A mail without an empty line is all header. */
export function readSubmittedMail(raw: Uint8Array): SubmittedMail {
  const bytes = toBuffer(raw)
  const end = headerEndOf(bytes, { start: 0, end: bytes.length })
  if (end !== undefined) return { fields: splitFields(bytes.toString('latin1', 0, end)), rest: bytes.subarray(end) }
  const text = bytes.toString('latin1')
  const isOpen = text !== '' && !text.endsWith(LINE_END)
  return { fields: splitFields(isOpen ? `${text}${LINE_END}` : text), rest: Buffer.from(LINE_END) }
}

export function findSubmittedHtml(raw: Uint8Array): SubmittedHtml | undefined {
  const bytes = toBuffer(raw)
  const search = { bytes, partsLeft: MOST_PARTS, looks: createLooks() }
  const part = findPart(search, { start: 0, end: bytes.length }, 0)
  if (part === undefined || part === 'odd' || part.end - part.headerEnd > MOST_ENCODED_BYTES) return undefined
  const decoded = decodePart(bytes.subarray(part.headerEnd + LINE_END.length, part.end), part.encoding)
  const html = decoded === undefined || decoded.length > MOST_HTML_BYTES ? undefined : decode(decoded, part.charset)
  return html === undefined ? undefined : { html, replace: createReplace(bytes, part) }
}

interface Range {
  start: number
  end: number
}

interface HtmlPart extends Range {
  /** Behind its last field, in front of the empty line. */
  headerEnd: number
  fields: string[]
  encoding: TransferEncoding
  charset: 'utf8' | 'latin1'
}

interface Search {
  bytes: Buffer
  partsLeft: number
  looks: LooksLeft
}

/** odd: something has no clear meaning, so nothing that is found counts. */
function findPart(search: Search, range: Range, depth: number): HtmlPart | 'odd' | undefined {
  const { bytes, looks } = search
  const headerEnd = findHeaderEnd(bytes, range, looks)
  const fields = splitFields(bytes.toString('latin1', range.start, headerEnd ?? range.start))
  const typeField = fieldValue(fields, 'content-type')
  const media = typeField === undefined ? undefined : readMediaType(typeField)
  if (headerEnd === undefined || media === undefined || depth > MOST_DEPTH || --search.partsLeft < 0) return 'odd'
  const { type, parameters } = media
  if (type === 'text/html') return readLeaf({ ...range, headerEnd, fields }, media)
  if (!type.startsWith('multipart/') || type === 'multipart/signed' || type === 'multipart/encrypted') return undefined
  const body = { start: headerEnd + LINE_END.length, end: range.end }
  const parts = splitMultipart(bytes, body, parameters.get('boundary') ?? '', looks)
  if (parts === undefined) return 'odd'
  for (const part of parts) {
    const found = findPart(search, part, depth + 1)
    if (found !== undefined) return found
  }
  return undefined
}

function readLeaf(
  place: Omit<HtmlPart, 'encoding' | 'charset'>,
  { parameters }: MediaType,
): HtmlPart | 'odd' | undefined {
  const disposition = fieldValue(place.fields, 'content-disposition')
  if (disposition !== undefined && (ATTACHED.test(disposition) || parameters.has('name'))) return undefined
  const encodingName = fieldValue(place.fields, 'content-transfer-encoding')
  const encoding = encodingName === undefined ? undefined : readTransferEncoding(encodingName)
  const charset = CHARACTER_SETS.get((parameters.get('charset') ?? '').toLowerCase())
  const isOdd = disposition === undefined || encoding === undefined || charset === undefined
  return isOdd ? 'odd' : { ...place, encoding, charset }
}

/** undefined: no empty line, so nobody knows where the body begins. */
function headerEndOf(bytes: Buffer, { start, end }: Range): number | undefined {
  const range = bytes.subarray(start, end)
  if (range.toString('latin1', 0, 2) === LINE_END) return start
  const found = range.indexOf('\r\n\r\n')
  return found < 0 ? undefined : start + found + LINE_END.length
}

/** As `headerEndOf`; also undefined when the header is longer than may still be looked at. */
export function findHeaderEnd(bytes: Buffer, { start, end }: Range, looks: LooksLeft): number | undefined {
  const headerEnd = headerEndOf(bytes, { start, end: Math.min(end, start + looks.headerBytes) })
  if (headerEnd !== undefined) looks.headerBytes -= headerEnd - start
  return headerEnd
}

/** The parts between the delimiter lines; undefined without a closing one. */
export function splitMultipart(
  whole: Buffer,
  { start, end }: Range,
  boundary: string,
  looks: LooksLeft,
): Range[] | undefined {
  if (boundary === '' || boundary.length > MOST_BOUNDARY_CHARACTERS) return undefined
  const bytes = whole.subarray(0, end)
  const delimiter = `--${boundary}`
  const parts: Range[] = []
  let partStart = -1
  for (let at = start; at >= 0; at = nextLineOfHyphens(bytes, at)) {
    if (--looks.lines < 0) return undefined
    const tailStart = at + delimiter.length
    if (bytes.toString('latin1', at, tailStart) !== delimiter) continue
    const lineEnd = endOfLine(bytes, tailStart)
    const tail = bytes.toString('latin1', tailStart, Math.min(lineEnd, tailStart + MOST_TAIL_BYTES))
    // Only white space may follow, or two hyphens at the last one.
    if (!/^(?:--)?[ \t]*$/.test(tail)) continue
    if (partStart >= 0) parts.push({ start: partStart, end: Math.max(partStart, at - 2) })
    if (tail.startsWith('--')) return parts
    if (parts.length >= MOST_PARTS) return undefined
    partStart = Math.min(lineEnd + 2, end)
  }
  return undefined
}

/** -1: there is none. A search for a boundary itself would take its length times that of the mail. */
function nextLineOfHyphens(bytes: Buffer, from: number): number {
  const found = bytes.indexOf(LINE_OF_HYPHENS, from)
  return found < 0 ? found : found + LINE_END.length
}

function endOfLine(bytes: Buffer, from: number): number {
  const found = bytes.indexOf(LINE_END, from)
  return found < 0 ? bytes.length : found
}

/** Exactly, or not at all. */
function decode(bytes: Buffer, charset: 'utf8' | 'latin1'): string | undefined {
  const text = bytes.toString(charset)
  return Buffer.from(text, charset).equals(bytes) ? text : undefined
}

function createReplace(bytes: Buffer, part: HtmlPart): SubmittedHtml['replace'] {
  const { start, end, encoding, charset } = part
  const fields = encoding === 'identity' ? withQuotedPrintable(part.fields) : part.fields
  const isWhole = start === 0
  const outer = isWhole ? { fields, rest: Buffer.alloc(0) } : readSubmittedMail(bytes.subarray(0, start))
  const ownHeader = isWhole ? '' : fields.join('')
  const before = Buffer.concat([outer.rest, Buffer.from(`${ownHeader}${LINE_END}`, 'latin1')])
  return (html) => {
    const encoded = Buffer.from(encodePart(Buffer.from(html, charset), encoding), 'latin1')
    return { fields: outer.fields, rest: Buffer.concat([before, encoded, bytes.subarray(end)]) }
  }
}

function withQuotedPrintable(fields: readonly string[]): string[] {
  const others = fields.filter((field) => fieldName(field) !== 'content-transfer-encoding')
  return [...others, `Content-Transfer-Encoding: quoted-printable${LINE_END}`]
}

function toBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
