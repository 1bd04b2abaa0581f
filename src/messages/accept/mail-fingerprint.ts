/**
 * What a submitted mail is known again by (inbound/README.md "Submission"). A program that sends a mail once more writes
 * it anew: with another Date, another Message-ID and other boundaries. Linear; never throws.
 */
import { createHash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { readMediaType, readStrictFields, type PlacedField } from '../../mail/header-fields.ts'

/** Bytes of a mail that do not count. `multipart`: they are a boundary, of the multipart with this number. */
interface LeftOut {
  start: number
  end: number
  multipart: number | null
}

interface Multipart {
  number: number
  boundary: string
}

/** Fields that programs, and servers on the way, make anew for the same mail. */
const MADE_ANEW = new Set(['date', 'message-id', 'received', 'dkim-signature'])
const LINE_OF_HYPHENS = '\r\n--'
const HEADER_END = '\r\n\r\n'
// Behind the boundary of a delimiter line (RFC 2046 §5.1.1).
const DELIMITER_END = /^(--)?[ \t]*(?:\r\n|$)/
const MOST_LINE_BYTES = 350
const MOST_BOUNDARY_CHARACTERS = 250
/** What is beyond these counts as it is written: such a mail is another one when it is written anew. */
const MOST_DEPTH = 20
const MOST_PARTS = 500
const MOST_LINES = 20_000
const MOST_PART_HEADER_BYTES = 16 * 1024
/** Some milliseconds. */
const HASHED_AT_ONCE = 4 * 1024 * 1024

/**
 * SHA-256 of recipients and mail. Large mail is hashed in stretches, so that others have their turn between them. The
 * places of boundaries count, so that none is taken for text.
 */
export async function mailFingerprint(
  recipients: readonly string[],
  raw: Uint8Array,
  leftOut: readonly LeftOut[],
): Promise<Buffer> {
  // No address has a line break, so the list has one end.
  const hash = createHash('sha256').update(`${recipients.join('\n')}\n\n`)
  if (leftOut.length > 0) hash.update(JSON.stringify(placesOfBoundaries(leftOut)))
  let from = 0
  for (const { start, end } of [...leftOut, { start: raw.length, end: raw.length }]) {
    for (let at = from; at < start; at += HASHED_AT_ONCE) {
      if (at > from) await setImmediate()
      hash.update(raw.subarray(at, Math.min(start, at + HASHED_AT_ONCE)))
    }
    from = end
  }
  return hash.digest()
}

/** Each with its place among the bytes that count. */
function placesOfBoundaries(leftOut: readonly LeftOut[]): [number, number][] {
  let length = 0
  return leftOut.flatMap(({ start, end, multipart }): [number, number][] => {
    const place = start - length
    length += end - start
    return multipart === null ? [] : [[place, multipart]]
  })
}

/** In order, none within another. None where the header is not clear. */
export function partsMadeAnew(raw: Uint8Array): LeftOut[] {
  const bytes = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength)
  const fields = readStrictFields(bytes)
  if (typeof fields === 'string') return []
  const anew = fields
    .filter(({ name }) => MADE_ANEW.has(name))
    .map(({ start, end }) => ({ start, end, multipart: null }))
  return [...anew, ...boundariesIn(bytes, fields)].toSorted((left, right) => left.start - right.start)
}

/** Those that the header, or that of a part, declares, there and in their delimiter lines. */
function boundariesIn(bytes: Buffer, fields: readonly PlacedField[]): LeftOut[] {
  const found: LeftOut[] = []
  // From the outside in.
  let open: Multipart[] = []
  let parts = 0
  const declare = (header: readonly PlacedField[], offset: number): void => {
    const declared = open.length < MOST_DEPTH ? readBoundary(bytes, header, offset) : undefined
    if (declared === undefined) return
    const multipart = { number: parts, boundary: declared.boundary }
    open.push(multipart)
    found.push({ ...declared.place, multipart: multipart.number })
  }
  declare(fields, 0)
  let at = bytes.indexOf(LINE_OF_HYPHENS, Math.max(0, (fields.at(-1)?.end ?? 0) - 2))
  for (let lines = 0; at >= 0 && lines < MOST_LINES && open.length > 0 && parts < MOST_PARTS; lines++) {
    const start = at + LINE_OF_HYPHENS.length
    const delimiter = readDelimiter(bytes, start, open)
    if (delimiter !== undefined) {
      const { level, multipart, isLast, end } = delimiter
      found.push({ start, end: start + multipart.boundary.length, multipart: multipart.number })
      open = open.slice(0, isLast ? level : level + 1)
      parts += 1
      if (!isLast) declare(partHeader(bytes, end), end)
    }
    at = bytes.indexOf(LINE_OF_HYPHENS, start)
  }
  return found
}

/** `end`: behind the line. A line of an outer multipart ends the inner ones as well. */
function readDelimiter(bytes: Buffer, start: number, open: readonly Multipart[]) {
  const line = bytes.toString('latin1', start, start + MOST_LINE_BYTES)
  for (const [level, multipart] of [...open.entries()].toReversed()) {
    if (!line.startsWith(multipart.boundary)) continue
    const [written, closing] = DELIMITER_END.exec(line.slice(multipart.boundary.length)) ?? []
    if (written === undefined) continue
    const end = start + multipart.boundary.length + written.length
    // `$` is also where the look ends.
    if (written.endsWith('\r\n') || end === bytes.length)
      return { level, multipart, isLast: closing !== undefined, end }
  }
  return undefined
}

function partHeader(bytes: Buffer, start: number): readonly PlacedField[] {
  const look = bytes.subarray(start, start + MOST_PART_HEADER_BYTES)
  const fields = look.includes(HEADER_END) ? readStrictFields(look) : ''
  return typeof fields === 'string' ? [] : fields
}

/** Undefined where it could be in doubt what the boundary is, or where it stands. */
function readBoundary(
  bytes: Buffer,
  fields: readonly PlacedField[],
  offset: number,
): { boundary: string; place: { start: number; end: number } } | undefined {
  const [field, ...others] = fields.filter(({ name }) => name === 'content-type')
  const media = field === undefined || others.length > 0 ? undefined : readMediaType(field.value)
  const boundary = media?.parameters.get('boundary') ?? ''
  if (field === undefined || media?.type.startsWith('multipart/') !== true) return undefined
  const written = bytes.toString('latin1', offset + field.start, offset + field.end)
  const index = written.indexOf(boundary)
  const isClear = index >= 0 && written.indexOf(boundary, index + 1) < 0
  if (boundary === '' || boundary.length > MOST_BOUNDARY_CHARACTERS || !isClear) return undefined
  const start = offset + field.start + index
  return { boundary, place: { start, end: start + boundary.length } }
}
