/**
 * A text part made from html: what a person would read, with link targets in brackets. What is hidden ends where a
 * browser ends it (`open-elements.ts`). Reads tokens, in linear time, whatever the html. Never throws.
 */
import { createOpenElements } from './open-elements.ts'
import { runTokenizer } from './run-tokenizer.ts'

/** Elements whose text is not shown. */
const SILENT = new Set(['script', 'style', 'template', 'noscript', 'title', 'textarea', 'select'])
/** Line ends before and after elements that stand on lines of their own. */
const LINE_BREAKS: ReadonlyMap<string, number> = new Map(
  Object.entries({
    1: 'address article center dd div dt fieldset footer form header li main nav section tr',
    2: 'blockquote dl figure h1 h2 h3 h4 h5 h6 hr ol p pre table ul',
  }).flatMap(([count, names]) => names.split(' ').map((name): [string, number] => [name, Number(count)])),
)
/** The attributes that matter here. */
const ATTRIBUTES = new Set(['alt', 'href', 'style'])
// The declaration that hides preview texts and the like.
const HIDDEN_STYLE = /display\s*:\s*none/i
// The schemes that mean something outside the html.
const SHOWN_SCHEME = /^(?:https?|mailto|tel):/i

// White space of html; the no-break space belongs to words.
const WHITE_SPACE = /[ \t\r\n\f]+/g
const LINE_ENDS_AND_TABS = /[\t\n\r]+/g
/** White space that is not one space. */
const ODD_SPACE = /[\t\r\n\f]| {2}/

const NO_ATTRIBUTES: Map<string, string> = new Map()

interface Tag {
  name: string
  attributes: Map<string, string>
}

export function plainTextOf(html: string): string {
  const reader = createReader()
  const texts = createTexts(html, reader.text)
  let tag: Tag = { name: '', attributes: NO_ATTRIBUTES }
  let attribute = ''
  const addToAttribute = (text: string): void => {
    if (!ATTRIBUTES.has(attribute)) return
    if (tag.attributes === NO_ATTRIBUTES) tag.attributes = new Map()
    tag.attributes.set(attribute, (tag.attributes.get(attribute) ?? '') + text)
  }
  const openTag = (): void => reader.open(tag)
  runTokenizer(html, {
    ontext: texts.add,
    ontextentity: (codePoint) => {
      texts.end()
      reader.text(String.fromCodePoint(codePoint))
    },
    onopentagname: (start, end) => {
      texts.end()
      tag = { name: html.slice(start, end).toLowerCase(), attributes: NO_ATTRIBUTES }
    },
    onattribname: (start, end) => {
      attribute = html.slice(start, end).toLowerCase()
      // Of two attributes with one name the first counts.
      if (tag.attributes.has(attribute)) attribute = ''
    },
    onattribdata: (start, end) => addToAttribute(html.slice(start, end)),
    onattribentity: (codePoint) => addToAttribute(String.fromCodePoint(codePoint)),
    onopentagend: openTag,
    onselfclosingtag: openTag,
    onclosetag: (start, end) => {
      texts.end()
      reader.close(html.slice(start, end).toLowerCase())
    },
  })
  texts.end()
  return reader.result()
}

/** Tells texts that stand one behind the other as one: the tokenizer cuts them at each `<`. */
function createTexts(html: string, tell: (text: string) => void) {
  let from = 0
  let to = 0
  const end = (): void => {
    if (to > from) tell(html.slice(from, to))
    from = to
  }
  return {
    add(start: number, stop: number): void {
      if (start !== to) {
        end()
        from = start
      }
      to = stop
    },
    end,
  }
}

/** What tags and texts do to the result. */
function createReader() {
  const writer = createTextWriter()
  /** Those that are hidden are marked. */
  const elements = createOpenElements()
  /** The outermost element that is hidden. */
  let hidden = ''
  let preformattedDepth = 0
  /** The lists around: how many items of a numbered one there were; null: it has no numbers. */
  const lists: (number | null)[] = []
  let link: { target: string; start: number } | undefined

  const endLink = (): void => {
    if (link !== undefined && link.target !== '') writer.link(link.target, link.start)
    link = undefined
  }
  const startItem = (): void => {
    const items = lists.at(-1) ?? null
    if (items !== null) lists[lists.length - 1] = items + 1
    writer.startItem(items === null ? '-' : `${items + 1}.`)
  }
  const show = ({ name, attributes }: Tag): void => {
    writer.breakLines(LINE_BREAKS.get(name) ?? 0)
    if (name === 'br') writer.breakLine()
    if (name === 'ol' || name === 'ul') lists.push(name === 'ol' ? 0 : null)
    if (name === 'li') startItem()
    if (name === 'td' || name === 'th') writer.space()
    if (name === 'pre') preformattedDepth++
    if (name === 'img') writer.text(attributes.get('alt') ?? '')
    if (name !== 'a') return
    endLink()
    link = { target: linkTarget(attributes.get('href') ?? ''), start: writer.wordCount() }
  }
  return {
    open(tag: Tag): void {
      const isHidden = SILENT.has(tag.name) || HIDDEN_STYLE.test(tag.attributes.get('style') ?? '')
      const wasHidden = elements.isMarked()
      if (!elements.open(tag.name, isHidden)) show(tag)
      else if (!wasHidden) hidden = tag.name
    },
    close(name: string): void {
      const wasHidden = elements.isMarked()
      elements.close(name)
      // The end of the hidden element itself shows nothing either.
      if (elements.isMarked() || (wasHidden && name === hidden)) return
      if (name === 'a') endLink()
      if (name === 'pre') preformattedDepth = Math.max(0, preformattedDepth - 1)
      if (name === 'ol' || name === 'ul') lists.pop()
      writer.breakLines(LINE_BREAKS.get(name) ?? 0)
    },
    text(text: string): void {
      if (elements.isMarked()) return
      if (preformattedDepth > 0) writer.preformatted(text)
      else writer.text(text)
    },
    result(): string {
      endLink()
      return writer.result()
    },
  }
}

function linkTarget(href: string): string {
  // As browsers do (WHATWG URL, 4.4).
  const target = href.trim().replace(LINE_ENDS_AND_TABS, '').replaceAll(' ', '%20')
  return SHOWN_SCHEME.test(target) ? target.replace(/^mailto:/i, '') : ''
}

const MOST_LINE_ENDS = 2

/**
 * Collects words, and the spaces and line ends between them, so that white space never doubles and no line ends with
 * it. Nothing is written before the first word or behind the last one.
 */
function createTextWriter() {
  const pieces: string[] = []
  let words = 0
  let lineEnds = 0
  let isSpaceDue = false
  let dueMark = ''

  const write = (word: string): void => {
    if (pieces.length > 0 && lineEnds > 0) pieces.push('\n'.repeat(lineEnds))
    else if (pieces.length > 0 && isSpaceDue) pieces.push(' ')
    if (dueMark !== '') pieces.push(`${dueMark} `)
    pieces.push(word)
    words++
    lineEnds = 0
    isSpaceDue = false
    dueMark = ''
  }
  return {
    /** Runs of white space count as one space. */
    text(text: string): void {
      const even = ODD_SPACE.test(text) ? text.replace(WHITE_SPACE, ' ') : text
      const start = even.startsWith(' ') ? 1 : 0
      const end = even.length - (even.endsWith(' ') ? 1 : 0)
      if (start > 0) isSpaceDue = true
      if (start >= end) return
      write(even.slice(start, end))
      const space = even.indexOf(' ', start)
      // How many more does not matter.
      if (space >= 0 && space < end) words++
      isSpaceDue = end < even.length
    },
    /** White space as it is. */
    preformatted(text: string): void {
      if (text !== '') write(text)
    },
    space(): void {
      isSpaceDue = true
    },
    /** One line end more, two at most. */
    breakLine(): void {
      lineEnds = Math.min(lineEnds + 1, MOST_LINE_ENDS)
    },
    /** At least so many line ends before the next word. */
    breakLines(count: number): void {
      // The first block of a list item stays behind its mark.
      if (dueMark === '') lineEnds = Math.max(lineEnds, count)
    },
    /** A hyphen or a number before the next word, wherever that comes. */
    startItem(mark: string): void {
      dueMark = mark
    },
    wordCount: () => words,
    /** The target behind its words; alone where there are none, and left out where the words are the target. */
    link(target: string, firstWord: number): void {
      const isAlone = words === firstWord
      if (words === firstWord + 1 && pieces.at(-1) === target) return
      isSpaceDue = true
      write(isAlone ? target : `[${target}]`)
      // What follows would else be a part of it.
      isSpaceDue = isAlone
    },
    result: () => pieces.join('').trim(),
  }
}
