/**
 * The header of a submitted message as fields with their places in it, read strictly: a line that is no field and goes
 * on with none is refused, since readers of mail disagree where such a header ends. RFC 5322 §2.2.
 */
import type { HeaderField } from '../../mail/report/mail-tree.ts'

export interface PlacedField extends HeaderField {
  /** First byte, and the one behind its line end. */
  start: number
  end: number
}

type HeaderReading = { ok: true; fields: PlacedField[] } | { ok: false; problem: string }

const LINE_END = '\r\n'
const END_OF_HEADER = '\r\n\r\n'
/** Ours; real ones have a tenth of it. */
const MOST_HEADER_BYTES = 256 * 1024

// A field name and its colon, without white space between them.
const FIELD = /^([!-9;-~]+):/
// A line that goes on with the one before: white space, and something behind it.
const CONTINUATION = /^[ \t]+[^ \t]/

export function readHeaderFields(message: Buffer): HeaderReading {
  const found = message.indexOf(END_OF_HEADER)
  const length = message.indexOf(LINE_END) === 0 ? 0 : found < 0 ? message.length : found + LINE_END.length
  if (length > MOST_HEADER_BYTES) return { ok: false, problem: `the header has more than ${MOST_HEADER_BYTES} bytes` }
  // One character per byte, so that places are those of the bytes.
  const header = message.toString('latin1', 0, length)
  const fields: PlacedField[] = []
  for (let start = 0; start < length;) {
    const lineEnd = header.indexOf(LINE_END, start)
    const end = lineEnd < 0 ? length : lineEnd + LINE_END.length
    const line = header.slice(start, lineEnd < 0 ? length : lineEnd)
    const name = FIELD.exec(line)?.[1]
    const last = fields.at(-1)
    if (name !== undefined) fields.push({ name: name.toLowerCase(), value: line.slice(name.length + 1), start, end })
    else if (last !== undefined && CONTINUATION.test(line)) continueField(last, line, end)
    else return { ok: false, problem: `line ${lineNumber(header, start)} of the header is no header field` }
    start = end
  }
  for (const field of fields) field.value = Buffer.from(field.value, 'latin1').toString('utf8').trim()
  return { ok: true, fields }
}

function continueField(field: PlacedField, line: string, end: number): void {
  field.value += line
  field.end = end
}

function lineNumber(header: string, start: number): number {
  return header.slice(0, start).split(LINE_END).length
}
