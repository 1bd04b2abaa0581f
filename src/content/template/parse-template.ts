/**
 * Finds the placeholders of a template: `{{key}}`, `{{{key}}}` and `{{key|fallback}}` (http/README.md "Variables"). A
 * key has 1 to 64 characters without braces, `|`, CR and LF; spaces next to the braces are ignored. Braces that make no
 * placeholder are ordinary text, so parsing never fails. Time is linear in the text.
 */

/** What a value becomes: html escapes `& < > " '`, text leaves it as it is. */
export type TemplateKind = 'html' | 'text'

export interface Placeholder {
  key: string
  /** Stands in for a missing value; null: the value must be given. */
  fallback: string | null
  isEscaped: boolean
}

export type Template = readonly (string | Placeholder)[]

const MOST_KEY_CHARACTERS = 64
// Two or three braces around anything without braces; three are tried first.
const PLACEHOLDER = /\{\{\{([^{}]*)\}\}\}|\{\{([^{}]*)\}\}/g

export function parseTemplate(text: string, kind: TemplateKind): Template {
  const parts: (string | Placeholder)[] = []
  let end = 0
  for (const found of text.matchAll(PLACEHOLDER)) {
    const [whole, raw, escaped = ''] = found
    const placeholder = readPlaceholder(raw ?? escaped, raw === undefined && kind === 'html')
    if (placeholder === undefined) continue
    if (found.index > end) parts.push(text.slice(end, found.index))
    parts.push(placeholder)
    end = found.index + whole.length
  }
  if (end < text.length) parts.push(text.slice(end))
  return parts
}

function readPlaceholder(inner: string, isEscaped: boolean): Placeholder | undefined {
  const bar = inner.indexOf('|')
  const key = trimSpaces(bar < 0 ? inner : inner.slice(0, bar))
  const isKey = key !== '' && [...key].length <= MOST_KEY_CHARACTERS && !key.includes('\r') && !key.includes('\n')
  if (!isKey) return undefined
  return { key, fallback: bar < 0 ? null : trimSpacesAtEnd(inner.slice(bar + 1)), isEscaped }
}

function trimSpaces(text: string): string {
  let start = 0
  while (text.charAt(start) === ' ') start++
  return trimSpacesAtEnd(text.slice(start))
}

/** Only the spaces before the closing braces: those behind the bar belong to the fallback. */
function trimSpacesAtEnd(text: string): string {
  let end = text.length
  while (text.charAt(end - 1) === ' ') end--
  return text.slice(0, end)
}
