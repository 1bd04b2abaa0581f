/**
 * Placeholders that a URL in the html begins with: their values must not bring a scheme that runs or hides something,
 * such as `javascript:` (http/README.md "Variables"). What the author wrote out stays the author's matter. Pure; the
 * time is linear in the text, and a recipient costs a look at the first characters of each such URL that differs from
 * the others.
 */
import type { Placeholder, Template } from './parse-template.ts'

/** Where a URL begins whose scheme the text before the placeholder has not decided. */
export interface OpenUrl {
  attribute: string
  /** From 1. */
  line: number
  /** The placeholder that it begins with. */
  key: string
  /** What the URL begins with, up to a text that ends every scheme. */
  beginning: Template
}

/** An attribute that holds a URL, and the beginning of its value without anything that ends a scheme. */
const OPENING =
  /(?:^|[\s"'/])(href|src|action|formaction|background|xlink:href|poster|cite|data|longdesc)\s*=\s*["']([^"'<>:/?#]*)$/i
const MOST_PREFIX = 160
const SCHEMES = ['http', 'https', 'mailto', 'tel', 'sms', 'cid', 'webcal']
/** Longer than any scheme with what may be hidden in it. */
const MOST_LOOKED_AT = 512
/** Character references by which a scheme or its colon can be written; others make no scheme. */
const REFERENCE = /&(?:#x([0-9a-f]{1,6})|#([0-9]{1,7})|(colon|tab|newline));?/gi
/** Behind it there is no scheme. */
const ENDING = /[:/?#"'<>]/
// What browsers leave out of a URL, and other invisible characters.
const IGNORED = /[\p{Cc}\p{Cf}\s]/gu

/** The first of those that begin alike. */
export function findOpenUrls(template: Template): OpenUrl[] {
  if (template.every((part) => typeof part === 'string')) return []
  const found = new Map<string, OpenUrl>()
  let line = 1
  let before = ''
  template.forEach((part, index) => {
    if (typeof part === 'string') {
      for (let at = part.indexOf('\n'); at >= 0; at = part.indexOf('\n', at + 1)) line += 1
      before = part.trimEnd().slice(-MOST_PREFIX)
      return
    }
    const opening = before.includes('=') ? OPENING.exec(before) : null
    before = ''
    if (opening === null) return
    const beginning = beginningOf(decoded(opening[2] ?? ''), template, index)
    const name = JSON.stringify(beginning)
    if (!found.has(name)) found.set(name, { attribute: opening[1] ?? '', line, key: part.key, beginning })
  })
  return [...found.values()]
}

/** Character references written out. Another URL begins behind a quote, so that no part is looked at for two of them. */
function beginningOf(prefix: string, template: Template, index: number): Template {
  const beginning: (string | Placeholder)[] = [prefix]
  for (let at = index; at < template.length; at++) {
    const part = template[at] ?? ''
    if (typeof part !== 'string') {
      beginning.push(part)
      continue
    }
    const text = decoded(part.slice(0, MOST_LOOKED_AT))
    const end = text.search(ENDING)
    beginning.push(end < 0 ? text : text.slice(0, end + 1))
    if (end >= 0 || ENDING.test(part.slice(MOST_LOOKED_AT))) break
  }
  return beginning
}

/** The scheme that these values give the URL, or undefined for one that may stand there. */
export function forbiddenScheme(
  { beginning }: OpenUrl,
  valueOf: (placeholder: Placeholder) => string,
): string | undefined {
  let url = ''
  for (const part of beginning) {
    if (typeof part === 'string') url += part
    else {
      const value = valueOf(part).slice(0, MOST_LOOKED_AT)
      url += part.isEscaped ? value : decoded(value)
    }
    url = url.replace(IGNORED, '')
    // Up to the end of the scheme, or of what could be one.
    if (ENDING.test(url) || url.length > MOST_LOOKED_AT) break
  }
  const scheme = /^([^/?#"'<>:]*):/.exec(url)?.[1]?.toLowerCase()
  return scheme === undefined || SCHEMES.includes(scheme) ? undefined : scheme.slice(0, 32)
}

function decoded(text: string): string {
  return text.replace(REFERENCE, (_whole, hex?: string, decimal?: string, name?: string) => {
    if (name !== undefined) return name.toLowerCase() === 'colon' ? ':' : ''
    const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16)
    return code <= 0x10ffff ? String.fromCodePoint(code) : ''
  })
}
