/**
 * Looks over the bytes of a JSON text before it is parsed: some megabytes of brackets would become gigabytes of
 * objects, so depth and number of values are judged first (http/README.md "Conventions"; RFC 8259 §9 lets a reader set
 * such limits).
 *
 * Linear in the bytes, with strings passed over in native code; most bodies are too short and have too few brackets to
 * break a limit, however they stand. Syntax is the parser's business: what is no JSON gets some verdict here, and its
 * error there.
 */

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

/** What is wrong, going on from "the body"; undefined: nothing. */
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
