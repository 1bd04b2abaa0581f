/**
 * What a submitted mail is known again by (inbound/README.md "Submission"). A program that sends a mail once more writes
 * it anew: with other boundaries, another Date and another Message-ID. Linear; never throws.
 */
import { createHash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { readStrictFields } from '../../mail/header-fields.ts'

/** Of the bytes of a mail. */
interface Range {
  start: number
  end: number
}

/** Fields that programs, and servers on the way, make anew for the same mail. */
const MADE_ANEW = new Set(['date', 'message-id', 'received', 'dkim-signature'])
const DECLARATION = 'boundary='
const LINE_OF_HYPHENS = '\r\n--'
// What stands behind it: a quoted string or a token.
const BOUNDARY = /^(?:"([^"\r\n]+)"|([^\s;"]+))/
const MOST_BOUNDARY_CHARACTERS = 250
/** A mail with more of them is taken for another one when it is written anew. */
const MOST_BOUNDARIES = 20
const MOST_LINES = 20_000
/** Some milliseconds. */
const HASHED_AT_ONCE = 4 * 1024 * 1024

/** SHA-256 of recipients and mail. Large mail is hashed in stretches, so that others have their turn between them. */
export async function mailFingerprint(
  recipients: readonly string[],
  raw: Uint8Array,
  leftOut: readonly Range[],
): Promise<Buffer> {
  // No address has a line break, so the list has one end.
  const hash = createHash('sha256').update(`${recipients.join('\n')}\n\n`)
  const add = async (from: number, to: number): Promise<void> => {
    for (let start = from; start < to; start += HASHED_AT_ONCE) {
      if (start > from) await setImmediate()
      hash.update(raw.subarray(start, Math.min(to, start + HASHED_AT_ONCE)))
    }
  }
  let position = 0
  for (const { start, end } of leftOut) {
    await add(position, start)
    position = end
  }
  await add(position, raw.length)
  return hash.digest()
}

/** In order, none within another. */
export function partsMadeAnew(raw: Uint8Array): Range[] {
  const bytes = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength)
  const fields = readStrictFields(bytes)
  const anew = typeof fields === 'string' ? [] : fields.filter(({ name }) => MADE_ANEW.has(name))
  const { boundaries, places } = readBoundaries(bytes)
  const ranges = [...anew, ...places, ...delimitersIn(bytes, boundaries)].toSorted(
    (left, right) => left.start - right.start,
  )
  let end = 0
  return ranges.flatMap((range) => {
    if (range.start < end) return []
    end = range.end
    return [{ start: range.start, end }]
  })
}

/** The longest first: one may begin as another does. */
function readBoundaries(bytes: Buffer): { boundaries: string[]; places: Range[] } {
  const boundaries = new Set<string>()
  const places: Range[] = []
  let at = bytes.indexOf(DECLARATION)
  for (; at >= 0 && places.length < MOST_BOUNDARIES; at = bytes.indexOf(DECLARATION, at + 1)) {
    const start = at + DECLARATION.length
    const [written, quoted, token] =
      BOUNDARY.exec(bytes.toString('latin1', start, start + MOST_BOUNDARY_CHARACTERS)) ?? []
    const boundary = quoted ?? token
    if (written === undefined || boundary === undefined) continue
    boundaries.add(boundary)
    places.push({ start, end: start + written.length })
  }
  return { boundaries: [...boundaries].toSorted((left, right) => right.length - left.length), places }
}

function delimitersIn(bytes: Buffer, boundaries: readonly string[]): Range[] {
  const ranges: Range[] = []
  if (boundaries.length === 0) return ranges
  let at = bytes.indexOf(LINE_OF_HYPHENS)
  for (let lines = 0; at >= 0 && lines < MOST_LINES; lines++, at = bytes.indexOf(LINE_OF_HYPHENS, at + 1)) {
    const start = at + LINE_OF_HYPHENS.length
    const found = boundaries.find((boundary) => bytes.toString('latin1', start, start + boundary.length) === boundary)
    if (found !== undefined) ranges.push({ start, end: start + found.length })
  }
  return ranges
}
