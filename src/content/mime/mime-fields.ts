/**
 * Reads header fields of a message somebody else made: raw fields, media types with parameters, transfer encodings.
 *
 * Pure and linear; never throws. What has two meanings (a field twice, a parameter in pieces) has none here: undefined.
 * RFC 5322 §2.2, RFC 2045 §5 and §6.
 */

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

/** The fields of a header, each with its folds and its CRLF; latin1. */
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

/** The value of the only field of this name, unfolded; '' when there is none, undefined when there are several. */
export function fieldValue(fields: readonly string[], name: string): string | undefined {
  const found = fields.filter((field) => fieldName(field) === name)
  if (found.length > 1) return undefined
  const field = found[0] ?? ''
  return field
    .slice(field.indexOf(':') + 1)
    .replace(/\r\n/g, '')
    .trim()
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
