/**
 * Where html has links that may be tracked, and where its pixel goes (content/README.md "Tracking"); schemes are not
 * judged here. Reads tokens, in linear time. Never throws.
 */
import { isLetter, readHtmlTokens, type HtmlTokens } from './html-tokens.ts'
import type { MaskedTemplate, Template } from '../template/parse-template.ts'
import { createOpenElements, type OpenElements } from './open-elements.ts'

/** Positions are those of the masked text. */
export interface FoundLink {
  /** The attribute's value as it is written, without quotes. */
  start: number
  end: number
  quote: '"' | "'" | ''
  /** The value with its entities decoded. */
  value: Template
}

interface Attribute extends FoundLink {
  value: Template[number][]
  nameEnd: number
}

const LINK_ELEMENTS = new Set(['a', 'area'])
/** Of links, the same one several times included: each takes some hundred bytes. Real mail has a hundredth of them. */
const MOST_PLACES = 10_000
const HREF = 'href'
const TRACK = 'data-track'
/** Elements whose content is read as html and is not always shown. */
const CONCEALING = ['template', 'noscript']
// What stands between the name of an attribute and its value, a quotation mark included.
const BEFORE_VALUE = /[\t\n\f\r ]*=[\t\n\f\r ]*(["']?)/y
const LESS = 0x3c
const SLASH = 0x2f

/** Most html neither conceals anything nor switches it off: then it does not matter what is inside of what. */
export function findLinks(source: MaskedTemplate): { links: FoundLink[]; pixelAt: number } {
  const places = readPlaces(source, null)
  return places.isMissed ? readPlaces(source, createOpenElements()) : places
}

/** `isMissed`: something is marked, and no `elements` were given to keep it, so the places are not to be used. */
function readPlaces(source: MaskedTemplate, elements: OpenElements | null) {
  const { text } = source
  const tag: Tag = { name: '', isTextOnly: false, href: undefined, track: undefined }
  const pixel = createPixelPlace(text, elements)
  const links: FoundLink[] = []
  let isMissed = false

  /** Whether the element is marked, by itself or by one around it. */
  const openElement = (name: string, marks: boolean): boolean => {
    if (elements !== null) return elements.open(name, marks)
    isMissed ||= marks
    return marks
  }
  readHtmlTokens(text, {
    ...createTagTokens(source, tag),
    text: pixel.text,
    markupEnd: pixel.markupEnd,
    tagEnd(end) {
      const { name, href, track } = tag
      const isSwitchedOff = track?.value.join('').trim().toLowerCase() === 'off'
      const isLeftAlone = openElement(name, CONCEALING.includes(name) || isSwitchedOff)
      const isLink = href !== undefined && !isLeftAlone && LINK_ELEMENTS.has(name) && links.length < MOST_PLACES
      if (isLink && isWhole(href, source)) links.push(href)
      pixel.tagEnd(tag.isTextOnly, end)
    },
    closeTag(start, nameEnd, end) {
      const name = text.slice(start, nameEnd).toLowerCase()
      elements?.close(name)
      pixel.closeTag(name, start, end)
    },
  })
  return { links, pixelAt: pixel.at(), isMissed }
}

/** The start tag that is being read, as far as it matters. */
interface Tag {
  name: string
  isTextOnly: boolean
  href: Attribute | undefined
  track: Attribute | undefined
}

/** Fills the tag. */
function createTagTokens(
  source: MaskedTemplate,
  tag: Tag,
): Omit<HtmlTokens, 'text' | 'markupEnd' | 'tagEnd' | 'closeTag'> {
  let attribute: Attribute | undefined
  const add = (parts: Template): void => {
    for (const part of parts) attribute?.value.push(part)
  }
  return {
    wantedAttributes: [HREF, TRACK],
    tagName(name, isTextOnly) {
      tag.name = name
      tag.isTextOnly = isTextOnly
      tag.href = tag.track = undefined
    },
    attributeName(name, nameEnd) {
      const key = name === HREF ? 'href' : 'track'
      // Of two attributes with one name the first counts.
      const isFirst = tag[key] === undefined
      attribute = isFirst ? { start: nameEnd, end: nameEnd, quote: '', value: [], nameEnd } : undefined
      if (isFirst) tag[key] = attribute
      return isFirst
    },
    attributeValue: (start, end) => add(source.slice(start, end)),
    attributeEntity: (codePoint) => add([String.fromCodePoint(codePoint)]),
    attributeEnd(end) {
      if (attribute !== undefined && attribute.value.length > 0) locate(attribute, source.text, end)
      attribute = undefined
    },
  }
}

/** Where the pixel may go; `tagEnd` and `closeTag` come when the element is open, or closed. */
function createPixelPlace(text: string, elements: OpenElements | null) {
  let isTextOnly = false
  /** Where the last end tag of the body stands, or undefined. */
  let bodyEnd: number | undefined
  /** The last place that is in no tag, no comment and no element that is not shown. */
  let openPlace = 0

  // What conceals is marked as well.
  const isShown = (): boolean =>
    !isTextOnly && !(elements?.isMarked() === true && CONCEALING.some((name) => elements.isOpen(name)))
  const allow = (at: number): void => {
    if (isShown()) openPlace = at
  }
  /** `end` is where its `>` stands; html that ends before it has none. */
  const markupEnd = (end: number): void => {
    if (end < text.length) allow(end + 1)
  }
  return {
    markupEnd,
    text(start: number, end: number): void {
      if (!isBrokenTag(text, Math.max(0, start - 1), end)) allow(end)
    },
    tagEnd(holdsText: boolean, end: number): void {
      isTextOnly = holdsText
      markupEnd(end)
    },
    closeTag(name: string, nameStart: number, end: number): void {
      isTextOnly = false
      if (name === 'body' && isShown()) bodyEnd = nameStart - '</'.length
      markupEnd(end)
    },
    at: () => bodyEnd ?? openPlace,
  }
}

function locate(attribute: Attribute, text: string, end: number): void {
  BEFORE_VALUE.lastIndex = attribute.nameEnd
  const [before = '', quote] = BEFORE_VALUE.exec(text) ?? []
  attribute.start = attribute.nameEnd + before.length
  attribute.quote = quote === '"' || quote === "'" ? quote : ''
  attribute.end = end - attribute.quote.length
}

/** What is left of some tags in which html ends: text to the tokenizer, but behind it one is inside of the tag. */
function isBrokenTag(text: string, start: number, end: number): boolean {
  if (end - start < 2) return false
  const isEndTag = text.charCodeAt(end - 1) === SLASH && text.charCodeAt(end - 2) === LESS
  return isEndTag || (text.charCodeAt(start) === LESS && isLetter(text.charCodeAt(start + 1)))
}

/** False without a value, and when a placeholder was read as a part of an entity. */
function isWhole({ start, end, value }: FoundLink, source: MaskedTemplate): boolean {
  const placeholdersIn = (template: Template): number => template.filter((part) => typeof part !== 'string').length
  return value.length > 0 && placeholdersIn(value) === placeholdersIn(source.slice(start, end))
}
