/**
 * Bytes of a request body -> a JSON document (RFC 8259, http/README.md "Conventions"). What it refuses is 400.
 *
 * Of a repeated key the last one wins. `__proto__` becomes an own property like any other, because JSON.parse defines
 * keys and does not assign them. U+0000 and unpaired surrogates are field problems: see `unsafeStrings`.
 */
import { TextDecoder } from 'node:util'
import { ServiceError } from '../../base/errors.ts'
import { shown } from '../../messages/accept/field-problems.ts'

/** Enough to help; `details` is short. */
const MOST_PROBLEMS = 20

/** One thing wrong with one field; `path` is such as `attachments[1].name`. */
export interface FieldProblem {
  path: string
  text: string
}

export interface JsonDocument {
  value: unknown
  /** The text holds a \u escape: the only way to U+0000 and unpaired surrogates once the bytes are valid UTF-8. */
  hasEscapes: boolean
}

export interface JsonReader {
  read(bytes: Uint8Array): JsonDocument
  /** A body that is no JSON. */
  text(bytes: Uint8Array): string
}

export function createJsonReader(): JsonReader {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  return {
    read(bytes) {
      const text = decode(decoder, bytes)
      const problem = structureProblem(bytes)
      if (problem !== undefined) throw malformed(`the body ${problem}`)
      const value = parse(text)
      refuseInfinity(value)
      return { value, hasEscapes: text.includes('\\u') }
    },
    text: (bytes) => decode(decoder, bytes),
  }
}

function decode(decoder: TextDecoder, bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes)
  } catch (cause) {
    throw malformed('the body is not valid UTF-8', cause)
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw malformed(`the body is not valid JSON${positionIn(cause)}`, cause)
  }
}

/** The parser's own sentence quotes the body, which may hold anything: only the position is passed on. */
function positionIn(thrown: unknown): string {
  // "… at position 17 (line 1 column 18)"
  const position = thrown instanceof Error ? /at position (\d+)/.exec(thrown.message)?.[1] : undefined
  return position === undefined ? '' : ` at character ${position}`
}

/** What 1e999 is read as: kept as JSON it would come back as null. */
function refuseInfinity(value: unknown): void {
  if (typeof value === 'number' && !Number.isFinite(value)) throw malformed('the body has a number that is too large')
  if (typeof value !== 'object' || value === null) return
  if (Array.isArray(value)) for (const item of value) refuseInfinity(item)
  else for (const item of Object.values(value)) refuseInfinity(item)
}

function malformed(details: string, cause?: unknown): ServiceError {
  return new ServiceError('invalid_request', details, { status: 400, cause })
}

/** Every key and string value that holds U+0000 or an unpaired surrogate, with its path. */
export function unsafeStrings(document: unknown): FieldProblem[] {
  const problems: FieldProblem[] = []
  const visit = (value: unknown, path: string): void => {
    if (problems.length >= MOST_PROBLEMS) return
    if (typeof value === 'string') {
      const text = unsafeStringProblem(value)
      if (text !== undefined) problems.push({ path, text })
    } else if (Array.isArray(value)) {
      value.forEach((item, index) => visit(item, `${path}[${index}]`))
    } else if (typeof value === 'object' && value !== null) {
      for (const [key, item] of Object.entries(value)) {
        const itemPath = path === '' ? shown(key) : `${path}.${shown(key)}`
        visit(key, itemPath)
        visit(item, itemPath)
      }
    }
  }
  visit(document, '')
  return problems
}

function unsafeStringProblem(text: string): string | undefined {
  if (text.includes('\u0000')) return 'holds U+0000'
  return text.isWellFormed() ? undefined : 'holds an unpaired surrogate'
}

/** http/README.md "Conventions". */
const MOST_DEPTH = 32
/** Far more than a batch of 5,000 recipients needs; as objects, some hundred MiB at the most. */
const MOST_VALUES = 2_000_000

const QUOTE = 0x22
const COMMA = 0x2c
const BACKSLASH = 0x5c
/** Square brackets differ from curly ones by one bit, as lower case does from upper case. */
const CASE_BIT = 0x20
const OPENING = 0x7b
const CLOSING = 0x7d

/**
 * Judges depth and number of values before the text is parsed: some megabytes of brackets would become gigabytes of
 * objects. Linear in the bytes; most bodies are too short and have too few brackets to break a limit. What is no JSON
 * gets some verdict here, and its error from the parser. Returns what is wrong, going on from "the body".
 */
export function structureProblem(bytes: Uint8Array): string | undefined {
  if (bytes.length < MOST_VALUES && hasFewBrackets(bytes)) return undefined
  let depth = 0
  let values = 1
  for (let index = 0; index < bytes.length; index++) {
    const byte = bytes[index] ?? 0
    if (byte === QUOTE) index = endOfString(bytes, index)
    else if (byte === COMMA) values += 1
    else if ((byte | CASE_BIT) === CLOSING) depth -= 1
    else if ((byte | CASE_BIT) === OPENING) {
      depth += 1
      values += 1
    }
    if (depth > MOST_DEPTH) return `is nested deeper than ${MOST_DEPTH}`
    if (values > MOST_VALUES) return `has more than ${MOST_VALUES} values`
  }
  return undefined
}

/** Opening ones, also those inside strings: never deeper than there are. */
function hasFewBrackets(bytes: Uint8Array): boolean {
  let count = 0
  for (const bracket of [OPENING, OPENING - CASE_BIT]) {
    for (let at = bytes.indexOf(bracket); at >= 0; at = bytes.indexOf(bracket, at + 1)) {
      count += 1
      if (count > MOST_DEPTH) return false
    }
  }
  return true
}

/** Of its closing quote, or of the text. */
function endOfString(bytes: Uint8Array, start: number): number {
  let end = bytes.indexOf(QUOTE, start + 1)
  while (end >= 0 && isEscaped(bytes, end)) end = bytes.indexOf(QUOTE, end + 1)
  return end < 0 ? bytes.length : end
}

/** Behind an odd number of backslashes. */
function isEscaped(bytes: Uint8Array, index: number): boolean {
  let before = index - 1
  while (bytes[before] === BACKSLASH) before -= 1
  return (index - before) % 2 === 0
}
