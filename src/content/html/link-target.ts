/**
 * Where a link leads, and whether that is tracked (content/README.md "Tracking"). Pure, never throws. A target is in
 * the form in which a browser would take it from the html: entities decoded, U+0000 as U+FFFD (WHATWG HTML,
 * 13.2.5.36), white space around it and line ends within it dropped (WHATWG URL, 4.4). Its other characters are as they
 * were written.
 */
import { LRUCache } from 'lru-cache'
import type { Variables } from '../../mail/message.ts'
import type { FoundLink } from './find-links.ts'
import { runTokenizer } from './run-tokenizer.ts'
import type { Placeholder, Template } from '../template/parse-template.ts'
import { valueOf } from '../template/substitute-variables.ts'

/** Where a link leads. */
interface Target {
  url: string
  /** In lower case, with the port if one is written. */
  host: string
}

/** A link that may be tracked; `identity` is the same for equal targets. */
export type Link =
  | { kind: 'fixed'; identity: string; target: Target }
  | { kind: 'filled'; identity: string; value: Template; quote: FoundLink['quote'] }

const MOST_TARGET_CHARACTERS = 8_192
/** Of values whose entities were decoded: the links of a mail, and the mails of a batch, often have the same. */
const MOST_DECODED_CHARACTERS = 2 ** 20
// A scheme that is tracked, and the host behind it; without the slashes a browser may take the address as a relative
// one.
const TRACKED = /^https?:\/\/([^/?#\\]*)/i
const LINE_ENDS_AND_TABS = /[\t\n\r]/g
const SPACE = 0x20
// What a value must not hold in an attribute without quotes: it would be the end of it.
const ENDS_UNQUOTED = /[\t\n\f\r ]/
const ENDS_UNQUOTED_RAW = /[\t\n\f\r >"']/

/** undefined for what leads elsewhere, whatever the values of its placeholders are. */
export function readLink({ value, quote }: FoundLink): Link | undefined {
  if (value.some((part) => typeof part !== 'string')) {
    return canBeTracked(value) ? { kind: 'filled', identity: JSON.stringify([quote, value]), value, quote } : undefined
  }
  const target = trackedTarget(value.join(''))
  return target === undefined ? undefined : { kind: 'fixed', identity: target.url, target }
}

/** undefined: with these values it is none that is tracked. */
export function targetOf(link: Link, variables: Variables): Target | undefined {
  if (link.kind === 'fixed') return link.target
  let written = ''
  for (const part of link.value) {
    const value = typeof part === 'string' ? part : filledValue(part, variables, link.quote)
    if (value === undefined) return undefined
    written += value
    if (written.length > MOST_TARGET_CHARACTERS) return undefined
  }
  return trackedTarget(written)
}

/** Characters of its values. */
export function filledCharacters(link: Link, variables: Variables): number {
  const parts = link.kind === 'fixed' ? [] : link.value
  return parts.reduce((sum, part) => sum + (typeof part === 'string' ? 0 : (valueOf(part, variables)?.length ?? 0)), 0)
}

/** As in `Target`, without the name of a user; '' when there is none. */
export function hostOf(url: string): string {
  const written = TRACKED.exec(url)?.[1] ?? ''
  return written.slice(written.lastIndexOf('@') + 1).toLowerCase()
}

function trackedTarget(written: string): Target | undefined {
  const url = trimSpaces(written.replaceAll('\0', '\uFFFD')).replace(LINE_ENDS_AND_TABS, '')
  const isTracked = url.length <= MOST_TARGET_CHARACTERS && TRACKED.test(url)
  return isTracked ? { url, host: hostOf(url) } : undefined
}

/** Control characters count as spaces; an expression would be quadratic in those that are not at the end. */
function trimSpaces(text: string): string {
  let [start, end] = [0, text.length]
  while (start < end && text.charCodeAt(start) <= SPACE) start++
  while (end > start && text.charCodeAt(end - 1) <= SPACE) end--
  return text.slice(start, end)
}

/** Judged by what stands in front of the first placeholder. */
function canBeTracked([first]: Template): boolean {
  if (typeof first !== 'string') return true
  const start = trimSpaces(first).toLowerCase()
  return ['http://', 'https://'].some((scheme) => scheme.startsWith(start) || start.startsWith(scheme))
}

/** undefined when there is no value, and when with this one the attribute would end early. */
function filledValue(placeholder: Placeholder, variables: Variables, quote: FoundLink['quote']): string | undefined {
  const value = valueOf(placeholder, variables)
  const isTooLong = value !== undefined && value.length > MOST_TARGET_CHARACTERS
  if (value === undefined || isTooLong || endsAttribute(value, placeholder.isEscaped, quote)) return undefined
  return placeholder.isEscaped || !value.includes('&') ? value : decoded.memo(value)
}

function endsAttribute(value: string, isEscaped: boolean, quote: FoundLink['quote']): boolean {
  if (quote === '') return (isEscaped ? ENDS_UNQUOTED : ENDS_UNQUOTED_RAW).test(value)
  return !isEscaped && value.includes(quote)
}

const decoded = new LRUCache<string, string>({
  maxSize: MOST_DECODED_CHARACTERS,
  sizeCalculation: (_, text) => text.length,
  memoMethod: decodeAttribute,
})

/** An attribute's value as a browser reads it: character references decoded (WHATWG HTML, 13.2.5.73). */
function decodeAttribute(text: string): string {
  const html = `<a b="${text.replaceAll('"', '&quot;')}">`
  let value = ''
  runTokenizer(html, {
    onattribdata: (start, end) => {
      value += html.slice(start, end)
    },
    onattribentity: (codePoint) => {
      value += String.fromCodePoint(codePoint)
    },
  })
  return value
}
