/**
 * Where html has links that may be tracked, and where its pixel goes (engine.md 17.1).
 *
 * Links are the `href` of `a` and `area`, in document order. Left out are those that carry `data-track="off"` or are
 * inside of what does, and all in comments, conditional ones included, `style`, `script`, `template` and `noscript`.
 * Nothing is judged by its scheme here. Reads htmlparser2's tokens, once and in linear time: its tree-keeping parser is
 * quadratic in nesting. Never throws, whatever the html.
 */
import { Tokenizer } from 'htmlparser2'
import type { MaskedTemplate } from './masked-template.ts'
import { createOpenElements } from './open-elements.ts'
import type { Template } from './parse-template.ts'

/** Positions are those of the masked text. */
export interface FoundLink {
  /** The attribute's value as it is written, without quotes. */
  start: number
  end: number
  quote: '"' | "'" | ''
  /** The value with its entities decoded. */
  value: Template
}

export interface FoundPlaces {
  links: FoundLink[]
  pixelAt: number
}

interface Tag {
  name: string
  attributes: Map<string, Attribute>
}

interface Attribute extends FoundLink {
  value: Template[number][]
  nameEnd: number
}

const LINK_ELEMENTS = new Set(['a', 'area'])
const ATTRIBUTES = new Set(['href', 'data-track'])
/** Elements whose content is read as html and is not always shown. */
const CONCEALING = ['template', 'noscript']
/** Elements whose content is text. */
const TEXT_ONLY = new Set([
  'script', 'style', 'textarea', 'title', 'iframe', 'noembed', 'noframes', 'xmp', 'plaintext',
])
// What is left of some tags in which html ends: text to the tokenizer, but behind it one is inside of the tag.
const BROKEN_TAG = /^<[a-z]|<\/$/i

export function findLinks(source: MaskedTemplate): FoundPlaces {
  const { text } = source
  const reader = createReader(source)
  const nothing = (): void => {}
  const tokenizer = new Tokenizer({ decodeEntities: true }, {
    ontext: (start, end) => reader.text(start, end),
    ontextentity: (_, end) => reader.text(end, end),
    onopentagname: (start, end) => reader.tagName(text.slice(start, end).toLowerCase()),
    onattribname: (start, end) => reader.attributeName(text.slice(start, end).toLowerCase(), end),
    onattribdata: (start, end) => reader.attributeValue(source.slice(start, end)),
    onattribentity: (codePoint) => reader.attributeValue([String.fromCodePoint(codePoint)]),
    onattribend: (_, end) => reader.attributeEnd(end),
    onopentagend: (end) => reader.tagEnd(end),
    onselfclosingtag: (end) => reader.tagEnd(end),
    onclosetag: (start, end) => reader.closeTag(start, end),
    oncdata: (_, end) => reader.markupEnd(end),
    oncomment: (_, end) => reader.markupEnd(end),
    ondeclaration: (_, end) => reader.markupEnd(end),
    onprocessinginstruction: nothing,
    onend: nothing,
  })
  tokenizer.write(text)
  tokenizer.end()
  return reader.result()
}

/** What the tokens come to. */
function createReader(source: MaskedTemplate) {
  const { text } = source
  const elements = createOpenElements()
  const links: FoundLink[] = []
  let tag: Tag = { name: '', attributes: new Map() }
  let attribute: Attribute | undefined
  let isTextOnly = false
  /** Where the last end tag of the body stands, or undefined. */
  let bodyEnd: number | undefined
  /** The last place that is in no tag, no comment and no element that is not shown. */
  let openPlace = 0

  const isShown = (): boolean => !isTextOnly && !CONCEALING.some((name) => elements.isOpen(name))
  const allowPixel = (at: number): void => {
    if (isShown()) openPlace = at
  }
  /** `end` is where its `>` stands; html that ends before it has none. */
  const markupEnd = (end: number): void => {
    if (end < text.length) allowPixel(end + 1)
  }
  return {
    markupEnd,
    text(start: number, end: number): void {
      if (start >= 0 && !BROKEN_TAG.test(text.slice(Math.max(0, start - 1), end))) allowPixel(end)
    },
    tagName(name: string): void {
      tag = { name, attributes: new Map() }
    },
    attributeName(name: string, nameEnd: number): void {
      // Of two attributes with one name the first counts.
      const isWanted = ATTRIBUTES.has(name) && !tag.attributes.has(name)
      attribute = isWanted ? { start: nameEnd, end: nameEnd, quote: '', value: [], nameEnd } : undefined
      if (attribute !== undefined) tag.attributes.set(name, attribute)
    },
    attributeValue(parts: Template): void {
      for (const part of parts) attribute?.value.push(part)
    },
    attributeEnd(end: number): void {
      if (attribute !== undefined && attribute.value.length > 0) locate(attribute, text, end)
      attribute = undefined
    },
    tagEnd(end: number): void {
      const { name, attributes } = tag
      const isLeftAlone = elements.open(name, CONCEALING.includes(name) || isSwitchedOff(attributes.get('data-track')))
      const href = attributes.get('href')
      if (href !== undefined && !isLeftAlone && LINK_ELEMENTS.has(name) && isWhole(href, source)) links.push(href)
      isTextOnly = TEXT_ONLY.has(name)
      markupEnd(end)
    },
    closeTag(start: number, end: number): void {
      const tagEnd = text.indexOf('>', end)
      if (tagEnd < 0) return
      const name = text.slice(start, end).toLowerCase()
      isTextOnly = false
      elements.close(name)
      if (name === 'body' && isShown()) bodyEnd = start - '</'.length
      markupEnd(tagEnd)
    },
    result: (): FoundPlaces => ({ links, pixelAt: bodyEnd ?? openPlace }),
  }
}

function locate(attribute: Attribute, text: string, end: number): void {
  // What stands between the name of an attribute and its value, a quotation mark included.
  const beforeValue = /[\t\n\f\r ]*=[\t\n\f\r ]*(["']?)/y
  beforeValue.lastIndex = attribute.nameEnd
  const [before = '', quote] = beforeValue.exec(text) ?? []
  attribute.start = attribute.nameEnd + before.length
  attribute.quote = quote === '"' || quote === "'" ? quote : ''
  attribute.end = end - attribute.quote.length
}

function isSwitchedOff(attribute: Attribute | undefined): boolean {
  return attribute?.value.join('').trim().toLowerCase() === 'off'
}

/** False without a value, and when a placeholder was read as a part of an entity. */
function isWhole({ start, end, value }: FoundLink, source: MaskedTemplate): boolean {
  const placeholdersIn = (template: Template): number => template.filter((part) => typeof part !== 'string').length
  return value.length > 0 && placeholdersIn(value) === placeholdersIn(source.slice(start, end))
}
