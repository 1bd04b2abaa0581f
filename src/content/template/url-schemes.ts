/**
 * Placeholders that a URL in the html begins with: their values must not bring a scheme that runs or hides something,
 * such as `javascript:` (http/README.md "Variables"). What the author wrote out stays the author's matter. Pure; the
 * time is linear in the text, and a recipient costs a look at the first characters of each such URL.
 */
import type { Placeholder, Template } from './parse-template.ts'

/** Where a URL begins whose scheme the text before the placeholder has not decided. */
export interface OpenUrl {
  /** The part of the template that is a placeholder. */
  index: number
  attribute: string
  /** What stands before the placeholder in the attribute. */
  prefix: string
  /** From 1. */
  line: number
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
// What browsers leave out of a URL, and other invisible characters.
const IGNORED = /[\p{Cc}\p{Cf}\s]/gu

export function findOpenUrls(template: Template): OpenUrl[] {
  const found: OpenUrl[] = []
  let line = 1
  let before = ''
  template.forEach((part, index) => {
    if (typeof part === 'string') {
      for (let at = part.indexOf('\n'); at >= 0; at = part.indexOf('\n', at + 1)) line += 1
      before = part.trimEnd().slice(-MOST_PREFIX)
      return
    }
    const opening = before.includes('=') ? OPENING.exec(before) : null
    if (opening !== null) found.push({ index, attribute: opening[1] ?? '', prefix: opening[2] ?? '', line })
    before = ''
  })
  return found
}

/** The scheme that these values give the URL, or undefined for one that may stand there. */
export function forbiddenScheme(
  { index, prefix }: OpenUrl,
  template: Template,
  valueOf: (placeholder: Placeholder) => string,
): string | undefined {
  let url = decoded(prefix)
  for (const part of template.slice(index)) {
    if (typeof part === 'string') url += decoded(part.slice(0, MOST_LOOKED_AT))
    else {
      const value = valueOf(part).slice(0, MOST_LOOKED_AT)
      url += part.isEscaped ? value : decoded(value)
    }
    url = url.replace(IGNORED, '')
    // Up to the end of the scheme, or of what could be one.
    if (/[:/?#"'<>]/.test(url) || url.length > MOST_LOOKED_AT) break
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
