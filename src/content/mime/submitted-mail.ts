/**
 * A mail as an application submitted it, taken apart just far enough to put our fields on top and other html in place
 * of its html; every other byte stays (content/README.md "Tracking"). Where anything about its html is odd, there is
 * none. Never throws; linear in the size for each level. RFC 2045, RFC 2046 §5.1.1, RFC 1847.
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
const MOST_HEADER_BYTES = 64 * 1024
/** Nobody writes more behind a boundary. */
const MOST_TAIL_BYTES = 100
/** http/README.md "Limits": as much html as a request may have. */
const MOST_HTML_BYTES = 5 * 1024 * 1024
/** Bytes that mean the same in each of these, so that what we put in is right in all of them. */
const CHARACTER_SETS: ReadonlyMap<string, 'utf8' | 'latin1'> = new Map([
  ['', 'utf8'],
  ['utf-8', 'utf8'],
  ['utf8', 'utf8'],
  ['us-ascii', 'utf8'],
  ['ascii', 'utf8'],
  ['iso-8859-1', 'latin1'],
  ['windows-1252', 'latin1'],
])
// Of a file, also of one that is shown within the mail: a body has no name.
const ATTACHED = /^attachment\b|;\s*filename\b/i
const LINE_END = '\r\n'

/** A mail without an empty line is all header. */
export function readSubmittedMail(raw: Uint8Array): SubmittedMail {
  const bytes = toBuffer(raw)
  const header = headerOf(bytes, { start: 0, end: bytes.length })
  if (header !== undefined) {
    return { fields: splitFields(bytes.toString('latin1', 0, header.end)), rest: bytes.subarray(header.end) }
  }
  const text = bytes.toString('latin1')
  const isOpen = text !== '' && !text.endsWith(LINE_END)
  return { fields: splitFields(isOpen ? `${text}${LINE_END}` : text), rest: Buffer.from(LINE_END) }
}

export function findSubmittedHtml(raw: Uint8Array): SubmittedHtml | undefined {
  const bytes = toBuffer(raw)
  const search: Search = { bytes, partsLeft: MOST_PARTS, isOdd: false }
  const part = findPart(search, { start: 0, end: bytes.length }, 0)
  if (part === undefined || search.isOdd) return undefined
  const decoded = decodePart(bytes.subarray(part.bodyStart, part.end), part.encoding)
  const html = decoded === undefined || decoded.length > MOST_HTML_BYTES ? undefined : decode(decoded, part.charset)
  return html === undefined ? undefined : { html, replace: createReplace(bytes, part) }
}

interface Range {
  start: number
  end: number
}

interface Header {
  /** Behind its last field, in front of the empty line. */
  end: number
  bodyStart: number
}

interface HtmlPart extends Range, Pick<Header, 'bodyStart'> {
  headerEnd: number
  fields: string[]
  encoding: TransferEncoding
  charset: 'utf8' | 'latin1'
}

interface Search {
  bytes: Buffer
  partsLeft: number
  /** Something had no clear meaning: nothing that was found counts. */
  isOdd: boolean
}

function findPart(search: Search, range: Range, depth: number): HtmlPart | undefined {
  const header = headerOf(search.bytes, { ...range, end: Math.min(range.end, range.start + MOST_HEADER_BYTES) })
  const fields = splitFields(search.bytes.toString('latin1', range.start, header?.end ?? range.start))
  const type = readType(fields)
  if (header === undefined || type === undefined || depth > MOST_DEPTH || --search.partsLeft < 0) {
    search.isOdd = true
    return undefined
  }
  const { end: headerEnd, bodyStart } = header
  if (type.type === 'text/html') return readLeaf(search, { ...range, headerEnd, bodyStart, fields }, type)
  if (!type.type.startsWith('multipart/')) return undefined
  return findBelow(search, type, { range: { start: bodyStart, end: range.end }, depth })
}

function findBelow(
  search: Search,
  { type, parameters }: MediaType,
  { range, depth }: { range: Range; depth: number },
): HtmlPart | undefined {
  if (type === 'multipart/signed' || type === 'multipart/encrypted') return undefined
  const parts = splitMultipart(search.bytes, range, parameters.get('boundary') ?? '')
  if (parts === undefined) search.isOdd = true
  for (const part of parts ?? []) {
    const found = findPart(search, part, depth + 1)
    if (found !== undefined || search.isOdd) return found
  }
  return undefined
}

function readLeaf(
  search: Search,
  place: Omit<HtmlPart, 'encoding' | 'charset'>,
  { parameters }: MediaType,
): HtmlPart | undefined {
  const disposition = fieldValue(place.fields, 'content-disposition')
  if (disposition !== undefined && (ATTACHED.test(disposition) || parameters.has('name'))) return undefined
  const encodingName = fieldValue(place.fields, 'content-transfer-encoding')
  const encoding = encodingName === undefined ? undefined : readTransferEncoding(encodingName)
  const charset = CHARACTER_SETS.get((parameters.get('charset') ?? '').toLowerCase())
  if (disposition === undefined || encoding === undefined || charset === undefined) {
    search.isOdd = true
    return undefined
  }
  return { ...place, encoding, charset }
}

function readType(fields: readonly string[]): MediaType | undefined {
  const value = fieldValue(fields, 'content-type')
  return value === undefined ? undefined : readMediaType(value)
}

/** undefined: no empty line, so nobody knows where the body begins. */
function headerOf(bytes: Buffer, { start, end }: Range): Header | undefined {
  const range = bytes.subarray(start, end)
  if (range.toString('latin1', 0, 2) === LINE_END) return { end: start, bodyStart: start + 2 }
  const found = range.indexOf('\r\n\r\n')
  return found < 0 ? undefined : { end: start + found + 2, bodyStart: start + found + 4 }
}

/** The parts between the delimiter lines; undefined without a closing one. */
export function splitMultipart(bytes: Buffer, { start, end }: Range, boundary: string): Range[] | undefined {
  if (boundary === '') return undefined
  const delimiter = Buffer.from(`--${boundary}`, 'latin1')
  const parts: Range[] = []
  let partStart = -1
  for (let at = bytes.indexOf(delimiter, start); at >= 0 && at < end; at = bytes.indexOf(delimiter, at + 1)) {
    if (at > start && bytes.toString('latin1', at - 2, at) !== LINE_END) continue
    const tailStart = at + delimiter.length
    const lineEnd = endOfLine(bytes, tailStart, end)
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

function endOfLine(bytes: Buffer, from: number, end: number): number {
  const found = bytes.indexOf(LINE_END, from)
  return found < 0 || found > end ? end : found
}

/** Exactly, or not at all. */
function decode(bytes: Buffer, charset: 'utf8' | 'latin1'): string | undefined {
  const text = bytes.toString(charset)
  return Buffer.from(text, charset).equals(bytes) ? text : undefined
}

function createReplace(bytes: Buffer, part: HtmlPart): SubmittedHtml['replace'] {
  const { start, end, headerEnd, bodyStart, encoding, charset } = part
  const isWhole = start === 0
  const fields = encoding === 'identity' ? withQuotedPrintable(part.fields) : part.fields
  const outer = isWhole ? { fields, rest: Buffer.alloc(0) } : readSubmittedMail(bytes.subarray(0, start))
  const ownHeader = isWhole ? Buffer.alloc(0) : Buffer.from(fields.join(''), 'latin1')
  const before = Buffer.concat([outer.rest, ownHeader, bytes.subarray(headerEnd, bodyStart)])
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
