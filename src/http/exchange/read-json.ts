/**
 * Bytes of a request body -> a JSON document (RFC 8259, http/README.md "Conventions"). What is no JSON is 400, and what
 * is nested too deep; what has too many parts is 422.
 *
 * Of a repeated key the last one wins. `__proto__` becomes an own property like any other, because JSON.parse defines
 * keys and does not assign them. U+0000 and unpaired surrogates are field problems: see `unsafeStrings`.
 */
import { createHash } from 'node:crypto'
import { TextDecoder } from 'node:util'
import { ServiceError } from '../../base/errors.ts'
import type { DecodedContent } from '../../messages/accept/send-request.ts'
import { shown } from '../../messages/accept/field-problems.ts'

/** Enough to help; `details` is short. */
const MOST_PROBLEMS = 20
/** Of html and text, which may be the longest (http/README.md "Limits"). */
const MOST_TEXT_BYTES = 5 * 1024 * 1024
/** No field has such a name, and none of its maps such a key. */
const MOST_KEY_CHARACTERS = 10_000
/** The one field that may be longer; it has a limit of its own. */
const ATTACHMENT_CONTENT = 'content'

/** One thing wrong with one field; `path` is such as `attachments[1].name`. */
export interface FieldProblem {
  path: string
  text: string
}

export interface JsonDocument {
  value: unknown
  /** Keys and texts with U+0000 or an unpaired surrogate, at most 20. */
  unsafe: FieldProblem[]
  /** SHA-256 of the canonical text, where it was made with the document. */
  digest?: Uint8Array
  /** Of the entries of `attachments`, where they were decoded with the document; their `content` is '' then. */
  contents?: (DecodedContent | undefined)[]
}

/** What the thread for large bodies is given. */
export interface LargeBody {
  bytes: Uint8Array
  /** The request has an Idempotency-Key. */
  needsDigest: boolean
}

const decoder = new TextDecoder('utf-8', { fatal: true })

/** `release` is called when the bytes are not needed any more, which may be long before the end. */
export function readJson(bytes: Uint8Array, release = (): void => {}): JsonDocument {
  const text = readText(bytes)
  const problem = structureProblem(bytes)
  release()
  if (problem !== undefined) throw new ServiceError('invalid_request', `the body ${problem.text}`, problem)
  const value = parse(text)
  refuseExtremes(value, 'the body')
  // Once the bytes are valid UTF-8, a \u escape is the only way to either of them.
  return { value, unsafe: text.includes('\\u') ? unsafeStrings(value) : [] }
}

/** A body that is no JSON. */
export function readText(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes)
  } catch (cause) {
    throw malformed('the body is not valid UTF-8', cause)
  }
}

/** Pieces are hashed together up to here: a call costs about as much as some kilobytes. */
const MOST_GATHERED_CHARACTERS = 64 * 1024

/**
 * SHA-256 of RFC 8785 in short: keys sorted by UTF-16 units, no white space. The text is never there as a whole. The
 * depth is bounded by `readJson`.
 */
export function canonicalDigest(document: unknown): Uint8Array {
  const digest = createHash('sha256')
  let gathered = ''
  const write = (text: string): void => {
    gathered += text
    if (gathered.length < MOST_GATHERED_CHARACTERS) return
    digest.update(gathered)
    gathered = ''
  }
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) {
      write('[')
      for (const [index, item] of value.entries()) {
        if (index > 0) write(',')
        visit(item)
      }
      write(']')
    } else if (typeof value === 'object' && value !== null) {
      write('{')
      const entries = Object.entries(value).toSorted(([left], [right]) => (left < right ? -1 : 1))
      for (const [index, [name, item]] of entries.entries()) {
        write(`${index > 0 ? ',' : ''}${JSON.stringify(name)}:`)
        visit(item)
      }
      write('}')
    } else {
      write(JSON.stringify(value))
    }
  }
  visit(document)
  return digest.update(gathered).digest()
}

/** Fewer digits are never beyond a double's whole numbers. */
const LONG_DIGITS = 16
// So many digits.
const LONG_RUN = /\d{16}/
// The same behind what stands in front of a number.
const LONG_NUMBER = /[:,[\s]-?\d{16}/
const ZERO = 0x30
const NINE = 0x39
// A whole number, with nothing behind it.
const WHOLE_NUMBER = /^-?\d+$/

/**
 * A whole number that a double does not hold, such as an order number of 19 digits, becomes the text of its digits. A
 * field of the body itself stays a number: its own error tells best what is wrong with it.
 */
function parseWithDigits(text: string): unknown {
  const changed: { holder: Record<string, unknown>; key: string; value: number }[] = []
  const document: unknown = JSON.parse(
    text,
    function withDigits(this: Record<string, unknown>, key: string, value: unknown, context?: { source?: string }) {
      const digits = context?.source ?? ''
      if (typeof value !== 'number' || Number.isSafeInteger(value) || !Number.isFinite(value)) return value
      if (!WHOLE_NUMBER.test(digits)) return value
      changed.push({ holder: this, key, value })
      return digits
    },
  )
  for (const { holder, key, value } of changed) if (holder === document) holder[key] = value
  return document
}

/** Of so many digits in a row one stands at every sixteenth place: a search through all of them takes six times as long. */
function hasLongNumber(text: string): boolean {
  for (let at = LONG_DIGITS - 1; at < text.length; at += LONG_DIGITS) {
    const code = text.charCodeAt(at)
    const isRun = code >= ZERO && code <= NINE && LONG_RUN.test(text.slice(at - LONG_DIGITS + 1, at + LONG_DIGITS))
    if (isRun) return LONG_NUMBER.test(text)
  }
  return false
}

function parse(text: string): unknown {
  try {
    return hasLongNumber(text) ? parseWithDigits(text) : JSON.parse(text)
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

/**
 * Refuses Infinity, which is what 1e999 is read as: kept as JSON it would come back as null. And a text that no field
 * has room for, before other threads copy it and walk through it.
 */
function refuseExtremes(value: unknown, key: string): void {
  if (typeof value === 'number' && !Number.isFinite(value)) throw malformed('the body has a number that is too large')
  if (typeof value === 'string' && value.length > MOST_TEXT_BYTES && key !== ATTACHMENT_CONTENT) {
    const bytes = Buffer.byteLength(value)
    const details = `${shown(key)}: has ${bytes} bytes, at most ${MOST_TEXT_BYTES} are allowed`
    throw new ServiceError('invalid_request', details)
  }
  if (typeof value !== 'object' || value === null) return
  if (Array.isArray(value)) for (const item of value) refuseExtremes(item, key)
  else for (const [name, item] of Object.entries(value)) refuseExtremes(item, withinBounds(name))
}

function withinBounds(name: string): string {
  if (name.length <= MOST_KEY_CHARACTERS) return name
  const details = `${shown(name)}: a key of ${name.length} characters, at most ${MOST_KEY_CHARACTERS} are allowed`
  throw new ServiceError('invalid_request', details)
}

function malformed(details: string, cause?: unknown): ServiceError {
  return new ServiceError('invalid_request', details, { status: 400, cause })
}

/** Keys and string values that hold U+0000 or an unpaired surrogate, with their paths. */
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
/** A batch of 1,000 recipients with 90 variables each has fewer. */
const MOST_VALUES = 100_000
/** Of one object. Objects with more keys cost a multiple of their bytes in time and memory. */
const MOST_KEYS = 10_000
/** `"":0,` */
const LEAST_BYTES_OF_KEY = 5

const QUOTE = 0x22
const COMMA = 0x2c
const BACKSLASH = 0x5c
/** Square brackets differ from curly ones by one bit, as lower case does from upper case. */
const CASE_BIT = 0x20
const OPENING = 0x7b
const CLOSING = 0x7d

/**
 * Judges depth, keys of each object and number of values before the text is parsed: some megabytes of brackets would
 * become gigabytes of objects. Linear in the bytes; most bodies are too short and have too few brackets to break a
 * limit. What is no JSON gets some verdict here, and its error from the parser. `text` goes on from "the body".
 */
export function structureProblem(bytes: Uint8Array): { text: string; status: number } | undefined {
  if (bytes.length < MOST_KEYS * LEAST_BYTES_OF_KEY && hasFewBrackets(bytes)) return undefined
  /** Of each object and list that is open here, its commas so far. */
  const commas = new Uint32Array(MOST_DEPTH + 1)
  let isObject = 0
  let depth = 0
  let values = 1
  for (let index = 0; index < bytes.length; index++) {
    const byte = bytes[index] ?? 0
    if (byte === QUOTE) index = endOfString(bytes, index)
    else if (byte === COMMA) {
      values += 1
      const count = (commas[depth] ?? 0) + 1
      commas[depth] = count
      if (count >= MOST_KEYS && ((isObject >>> (depth - 1)) & 1) === 1)
        return { text: `has an object with more than ${MOST_KEYS} keys`, status: 422 }
    } else if ((byte | CASE_BIT) === CLOSING) depth = Math.max(0, depth - 1)
    else if ((byte | CASE_BIT) === OPENING) {
      depth += 1
      values += 1
      if (depth > MOST_DEPTH) return { text: `is nested deeper than ${MOST_DEPTH}`, status: 400 }
      commas[depth] = 0
      const bit = 1 << (depth - 1)
      isObject = byte === OPENING ? isObject | bit : isObject & ~bit
    }
    if (values > MOST_VALUES) return { text: `has more than ${MOST_VALUES} values`, status: 422 }
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
