/**
 * Html cut into tokens: those of htmlparser2's tokenizer, at a fraction of its cost for the html of which mails are
 * made. What is out of the ordinary (declarations but the doctype, scripts, other raw text, tags that never end, a `<`
 * in text) is left to the tokenizer, from that place to the end: between two tokens it has no memory. The tokens are
 * the same either way, but for texts, which entities do not cut. Linear; never throws.
 */
import { runTokenizer } from './run-tokenizer.ts'

/** Positions are those of the whole text. */
export interface HtmlTokens {
  text(start: number, end: number): void
  /** In lower case; `isTextOnly`: what stands in the element is text. */
  tagName(name: string, isTextOnly: boolean): void
  /** Names in lower case; of others nothing is told. */
  wantedAttributes: readonly string[]
  /** One of these; true: its value is wanted. */
  attributeName(name: string, end: number): boolean
  /** A stretch of the value that was asked for. */
  attributeValue(start: number, end: number): void
  /** A character reference in the value that was asked for. */
  attributeEntity(codePoint: number): void
  /** Behind the value, its quotation mark included. */
  attributeEnd(end: number): void
  /** Of a start tag: where its `>` stands. */
  tagEnd(end: number): void
  /** `end` is where its `>` stands; of an end tag without one nothing is told. */
  closeTag(nameStart: number, nameEnd: number, end: number): void
  /** Where a comment or declaration ends: its `>`, or the end of the text. */
  markupEnd(end: number): void
}

const TAB = 0x09
const LINE_FEED = 0x0a
const FORM_FEED = 0x0c
const CARRIAGE_RETURN = 0x0d
const SPACE = 0x20
const QUOTE = 0x22
const APOSTROPHE = 0x27
const SLASH = 0x2f
const EQUALS = 0x3d
const GREATER = 0x3e
const LETTER_A = 0x61
const LETTER_Z = 0x7a
/** Makes letters lower case. */
const LOWER = 0x20

const COMMENT = '<!--'
const DOCTYPE = '<!doctype'
/** What stands in these elements is text; null: left to the tokenizer. */
const RAW_END: ReadonlyMap<string, RegExp | null> = new Map<string, RegExp | null>([
  // It ends with their own end tag and nothing else; to the tokenizer two control characters look like it.
  ...['style', 'title'].map((name): [string, RegExp] => [name, new RegExp(`[<\x1c][/\x0f]${name}[\t\n\f\r />]`, 'gi')]),
  ...['script', 'textarea', 'iframe', 'noembed', 'noframes', 'xmp', 'plaintext'].map((name): [string, null] => [
    name,
    null,
  ]),
])
const AMPERSAND = '&amp;'
const AMPERSAND_CODE = 0x26
// What may be any other reference.
const ODD_REFERENCE = /&(?!amp;)/
/** In front of a value that the tokenizer decodes alone. */
const VALUE_PREFIX = '<a b='

export function readHtmlTokens(text: string, tokens: HtmlTokens): void {
  const rest = readOrdinary(text, tokens)
  if (rest < text.length) readWithTokenizer(text, rest, tokens)
}

/** Returns where it stopped: between two tokens. */
function readOrdinary(text: string, tokens: HtmlTokens): number {
  let position = 0
  for (;;) {
    const open = text.indexOf('<', position)
    if (open < 0) {
      if (position < text.length) tokens.text(position, text.length)
      return text.length
    }
    const end = readMarkup(text, open, position, tokens)
    if (end < 0) return position
    position = end
  }
}

/** The text in front of it is told once it is clear what comes. Returns its end, or -1: the tokenizer's. */
function readMarkup(text: string, open: number, textStart: number, tokens: HtmlTokens): number {
  const code = text.charCodeAt(open + 1)
  if (isLetter(code)) return readStartTag(text, open, textStart, tokens)
  const isEndTag = code === SLASH && isLetter(text.charCodeAt(open + 2))
  const end = isEndTag ? text.indexOf('>', open) : endOfMarkup(text, open)
  if (end < 0) return -1
  if (open > textStart) tokens.text(textStart, open)
  if (isEndTag) tokens.closeTag(open + 2, nameEndOf(text, open + 2), end)
  else tokens.markupEnd(end)
  return end + 1
}

/** Where the `>` of a comment or doctype stands; -1: it is none, or an odd one. */
function endOfMarkup(text: string, open: number): number {
  if (text.startsWith(COMMENT, open)) {
    const start = open + COMMENT.length
    const end = text.indexOf('--', start)
    // `<!-->`, `<!--->` and `--!>` end a comment as well.
    if (end <= start || text.charCodeAt(start) === GREATER || text.startsWith('->', start)) return -1
    const last = text.indexOf('-->', end)
    // Only up to there: each comment would else look through all that follows.
    return last < 0 || text.slice(end, last).includes('--!>') ? -1 : last + 2
  }
  const isDoctype = text.slice(open, open + DOCTYPE.length).toLowerCase() === DOCTYPE
  return isDoctype ? text.indexOf('>', open + DOCTYPE.length) : -1
}

function readStartTag(text: string, open: number, textStart: number, tokens: HtmlTokens): number {
  const nameEnd = nameEndOf(text, open + 1)
  const name = text.slice(open + 1, nameEnd).toLowerCase()
  const rawEnd = RAW_END.get(name)
  if (rawEnd === null) return -1
  const isText = open > textStart
  tokens.tagName(name, rawEnd !== undefined)
  const end = readAttributes(text, nameEnd, tokens)
  if (end < 0) return -1
  const found = rawEnd === undefined ? undefined : findFrom(rawEnd, text, end)
  if (found === -1) return -1
  if (isText) tokens.text(textStart, open)
  tokens.tagEnd(end)
  return found ?? end + 1
}

/** Where its end tag begins; -1: it has none, or one that never ends. */
function findFrom(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from
  const found = pattern.exec(text)
  const isEndTag = found !== null && found[0].startsWith('</') && text.indexOf('>', found.index) >= 0
  return isEndTag ? found.index : -1
}

/** Returns where the tag's `>` stands, or -1. */
function readAttributes(text: string, from: number, tokens: HtmlTokens): number {
  const { length } = text
  let at = from
  while (at < length) {
    const code = text.charCodeAt(at)
    if (code === GREATER) return at
    if (code === SLASH || isSpace(code)) at++
    else at = readAttribute(text, at, tokens)
    if (at < 0) return -1
  }
  return -1
}

/** Returns what is behind it, or -1: it never ends. */
function readAttribute(text: string, start: number, tokens: HtmlTokens): number {
  const { length } = text
  // Whatever comes first belongs to the name.
  let nameEnd = start + 1
  while (nameEnd < length && !endsName(text.charCodeAt(nameEnd))) nameEnd++
  const isWanted = tellName(text, start, nameEnd, tokens)
  const equals = behindSpaces(text, nameEnd)
  if (text.charCodeAt(equals) !== EQUALS) {
    if (isWanted) tokens.attributeEnd(nameEnd)
    return equals < length ? equals : -1
  }
  const valueStart = behindSpaces(text, equals + 1)
  const quote = text.charCodeAt(valueStart)
  const isQuoted = quote === QUOTE || quote === APOSTROPHE
  const valueEnd = isQuoted ? text.indexOf(text.charAt(valueStart), valueStart + 1) : endOfUnquoted(text, valueStart)
  if (valueEnd < 0) return -1
  const end = isQuoted ? valueEnd + 1 : valueEnd
  if (isWanted) tellValue(text, valueStart, end, tokens)
  return end
}

/** Most names differ in their lengths alone. */
function tellName(text: string, start: number, end: number, tokens: HtmlTokens): boolean {
  for (const wanted of tokens.wantedAttributes) {
    if (wanted.length === end - start && text.slice(start, end).toLowerCase() === wanted) {
      return tokens.attributeName(wanted, end)
    }
  }
  return false
}

/** From its quotation mark, if it has one, to behind the other. */
function tellValue(text: string, start: number, end: number, tokens: HtmlTokens): void {
  const written = text.slice(start, end)
  const quoteLength = written.startsWith('"') || written.startsWith("'") ? 1 : 0
  if (!written.includes('&')) {
    tokens.attributeValue(start + quoteLength, end - quoteLength)
  } else if (!ODD_REFERENCE.test(written)) {
    tellAmpersands(text, start + quoteLength, end - quoteLength, tokens)
  } else {
    const shift = start - VALUE_PREFIX.length
    runTokenizer(`${VALUE_PREFIX}${written}>`, {
      onattribdata: (from, to) => tokens.attributeValue(from + shift, to + shift),
      onattribentity: (codePoint) => tokens.attributeEntity(codePoint),
    })
  }
  tokens.attributeEnd(end)
}

/** Of a value with no other character reference. */
function tellAmpersands(text: string, start: number, end: number, tokens: HtmlTokens): void {
  let position = start
  for (let at = text.indexOf(AMPERSAND, start); at >= 0 && at < end; at = text.indexOf(AMPERSAND, position)) {
    if (at > position) tokens.attributeValue(position, at)
    tokens.attributeEntity(AMPERSAND_CODE)
    position = at + AMPERSAND.length
  }
  if (end > position) tokens.attributeValue(position, end)
}

/** Without quotes: up to white space or the end of the tag; -1: there is none. */
function endOfUnquoted(text: string, start: number): number {
  for (let at = start; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === GREATER || isSpace(code)) return at
  }
  return -1
}

function behindSpaces(text: string, from: number): number {
  let at = from
  while (isSpace(text.charCodeAt(at))) at++
  return at
}

function nameEndOf(text: string, from: number): number {
  let at = from
  while (at < text.length && !endsTagName(text.charCodeAt(at))) at++
  return at
}

function endsTagName(code: number): boolean {
  // One comparison for letters.
  return code <= GREATER && (code === GREATER || code === SLASH || isSpace(code))
}

function endsName(code: number): boolean {
  return code === EQUALS || endsTagName(code)
}

function isSpace(code: number): boolean {
  return (
    code <= SPACE &&
    (code === SPACE || code === LINE_FEED || code === CARRIAGE_RETURN || code === TAB || code === FORM_FEED)
  )
}

/** One of US-ASCII. */
export function isLetter(code: number): boolean {
  const lower = code | LOWER
  return lower >= LETTER_A && lower <= LETTER_Z
}

function readWithTokenizer(text: string, from: number, tokens: HtmlTokens): void {
  let isWanted = false
  runTokenizer(from === 0 ? text : text.slice(from), {
    ontext: (start, end) => {
      // Of some tags in which the html ends it knows no start.
      if (start >= 0) tokens.text(start + from, end + from)
    },
    ontextentity: (_, end) => tokens.text(end + from, end + from),
    onopentagname: (start, end) => {
      const name = text.slice(start + from, end + from).toLowerCase()
      tokens.tagName(name, RAW_END.has(name))
    },
    onattribname: (start, end) => {
      isWanted = tellName(text, start + from, end + from, tokens)
    },
    onattribdata: (start, end) => {
      if (isWanted) tokens.attributeValue(start + from, end + from)
    },
    onattribentity: (codePoint) => {
      if (isWanted) tokens.attributeEntity(codePoint)
    },
    onattribend: (_, end) => {
      if (isWanted) tokens.attributeEnd(end + from)
      isWanted = false
    },
    onopentagend: (end) => tokens.tagEnd(end + from),
    onselfclosingtag: (end) => tokens.tagEnd(end + from),
    onclosetag: (start, end) => {
      const tagEnd = text.indexOf('>', end + from)
      if (tagEnd >= 0) tokens.closeTag(start + from, end + from, tagEnd)
    },
    oncdata: (_, end) => tokens.markupEnd(end + from),
    oncomment: (_, end) => tokens.markupEnd(end + from),
    ondeclaration: (_, end) => tokens.markupEnd(end + from),
  })
}
