/**
 * Reads the header fields of a message somebody else made, as they stand on the wire: CRLF, one character per byte.
 * Pure and linear; never throws. What has two meanings (a field twice, a parameter in pieces) has none here: undefined.
 * A report is read by a reader that forgives more (`report/mail-tree.ts`). RFC 5322 §2.2, RFC 2045 §5 and §6.
 */

export interface HeaderField {
  /** Lower case. */
  name: string
  /** Unfolded, encoded words as they are. */
  value: string
}

export interface MediaType {
  /** Lower case: `text/html`. */
  type: string
  /** By lower-case name. */
  parameters: ReadonlyMap<string, string>
}

/** Without a field: RFC 2045 §5.2. */
const DEFAULT_TYPE: MediaType = { type: 'text/plain', parameters: new Map() }
// type/subtype in front of the parameters.
const TYPE = /^\s*([\w!#$&^.+-]+\/[\w!#$&^.+-]+)/
// One parameter: name, then a quoted string or a token.
const PARAMETER = /\s*;\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))/y

/** The fields of a header, each with its folds and its CRLF. */
export function splitFields(header: string): string[] {
  // Behind a line end that no white space follows.
  return header.split(/(?<=\r\n)(?![ \t])/).filter((field) => field !== '')
}

/** Lower case; '' for a line that is no field. */
export function fieldName(field: string): string {
  return field
    .slice(0, Math.max(0, field.indexOf(':')))
    .trimEnd()
    .toLowerCase()
}

/** What stands behind the colon, unfolded. */
export function fieldBody(field: string): string {
  return unfolded(field).trim()
}

function unfolded(field: string): string {
  return field.slice(field.indexOf(':') + 1).replaceAll('\r\n', '')
}

/** The value of the only field of this name, unfolded; '' when there is none, undefined when there are several. */
export function fieldValue(fields: readonly string[], name: string): string | undefined {
  const [field = '', ...others] = fields.filter((candidate) => fieldName(candidate) === name)
  return others.length > 0 ? undefined : fieldBody(field)
}

export function readMediaType(value: string): MediaType | undefined {
  if (value === '') return DEFAULT_TYPE
  const type = TYPE.exec(value)
  if (type === null) return undefined
  const parameters = new Map<string, string>()
  PARAMETER.lastIndex = type[0].length
  for (let found = PARAMETER.exec(value); found !== null; found = PARAMETER.exec(value)) {
    const [, name = '', quoted, token = ''] = found
    // In pieces or encoded (RFC 2231), or twice.
    if (name.includes('*') || parameters.has(name.toLowerCase())) return undefined
    parameters.set(name.toLowerCase(), quoted?.replace(/\\(.)/g, '$1') ?? token)
  }
  return { type: (type[1] ?? '').toLowerCase(), parameters }
}

export interface PlacedField extends HeaderField {
  /** First byte, and the one behind its line end. */
  start: number
  end: number
}

const END_OF_HEADER = '\r\n\r\n'
/** Ours; real ones have a tenth of it. */
const MOST_HEADER_BYTES = 256 * 1024
const MOST_FIELDS = 1_000
// A field name and its colon, without white space between them.
const STRICT_NAME = /^([!-9;-~]+):/
/** RFC 5322 §2.1.1. */
const LONGEST_LINE = 998
// A fold with nothing in it.
const BLANK_FOLD = /\r\n[ \t]+(?=\r\n|$)/

/**
 * The fields of a message with their places in it, values in UTF-8; or what is wrong, in a sentence. A line that is no
 * field and goes on with none is refused, since readers of mail disagree where such a header ends.
 */
export function readStrictFields(message: Buffer): PlacedField[] | string {
  const found = message.indexOf(END_OF_HEADER)
  const length = message.indexOf('\r\n') === 0 ? 0 : found < 0 ? message.length : found + 2
  if (length > MOST_HEADER_BYTES) return `the header has more than ${MOST_HEADER_BYTES} bytes`
  const header = message.toString('latin1', 0, length)
  const fields: PlacedField[] = []
  let start = 0
  const all = splitFields(header)
  if (all.length > MOST_FIELDS) return `the header has more than ${MOST_FIELDS} fields`
  for (const field of all) {
    const name = STRICT_NAME.exec(field)?.[1]
    const blank = BLANK_FOLD.exec(field)
    if (name === undefined || blank !== null) {
      const line = header.slice(0, start + (name === undefined || blank === null ? 0 : blank.index + 2))
      const number = line.split('\r\n').length
      return `line ${number} of the header is no header field: each is Name: value, an empty line ends them`
    }
    if (field.length > LONGEST_LINE && field.split('\r\n').some((line) => line.length > LONGEST_LINE)) {
      return `${name} has a line of more than ${LONGEST_LINE} characters: fold it`
    }
    // Trimmed as characters: a byte of one may look like white space.
    const value = Buffer.from(unfolded(field), 'latin1').toString('utf8').trim()
    fields.push({ name: name.toLowerCase(), value, start, end: start + field.length })
    start += field.length
  }
  return fields
}
