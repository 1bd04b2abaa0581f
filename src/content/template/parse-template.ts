/**
 * Finds the placeholders of a template: `{{key}}`, `{{{key}}}` and `{{key|fallback}}` (http/README.md "Variables"). A
 * key has 1 to 64 characters without braces, `|`, CR and LF; spaces next to the braces are ignored. Braces that make no
 * placeholder are ordinary text, so parsing never fails. Time is linear in the text.
 */

/**
 * A letter, because after `&copy` in an attribute a value most often goes on with one, and then it is no entity (WHATWG
 * HTML, 13.2.5.73); a rare one, because no name of an entity should come about through it.
 */
const MASK = 'Q'

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

/** What is behind `most` placeholders stays text. */
export function parseTemplate(text: string, kind: TemplateKind, most = Number.POSITIVE_INFINITY): Template {
  const parts: (string | Placeholder)[] = []
  let end = 0
  let count = 0
  for (const found of text.matchAll(PLACEHOLDER)) {
    const [whole, raw, escaped = ''] = found
    const placeholder = readPlaceholder(raw ?? escaped, raw === undefined && kind === 'html')
    if (placeholder === undefined) continue
    if (++count > most) break
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
  // In UTF-16 a character has one unit or two.
  const isShort = key.length <= 2 * MOST_KEY_CHARACTERS && [...key].length <= MOST_KEY_CHARACTERS
  const isKey = key !== '' && isShort && !key.includes('\r') && !key.includes('\n')
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

/**
 * A template as one text in which a single letter stands for each placeholder, so that what reads html sees every
 * placeholder as an ordinary part of what is around it. Positions are those of this text, in UTF-16 units.
 */
export interface MaskedTemplate {
  text: string
  /** What stands from `start` up to `end` as a template again, without empty strings. */
  slice(start: number, end: number): Template
}

export function maskTemplate(template: Template): MaskedTemplate {
  const text = template.map((part) => (typeof part === 'string' ? part : MASK)).join('')
  const starts: number[] = []
  let position = 0
  for (const part of template) {
    starts.push(position)
    position += typeof part === 'string' ? part.length : MASK.length
  }
  return {
    text,
    slice(start, end) {
      const parts: (string | Placeholder)[] = []
      for (let index = lastUpTo(starts, start); index < template.length; index++) {
        const [part, partStart] = [template[index], starts[index] ?? 0]
        if (part === undefined || partStart >= end) break
        const piece = typeof part === 'string' ? part.slice(Math.max(0, start - partStart), end - partStart) : part
        if (piece !== '') parts.push(piece)
      }
      return parts
    },
  }
}

/** Index of the last number that is not above `most`, by bisection; 0 when there is none. */
function lastUpTo(ascending: readonly number[], most: number): number {
  let [low, high] = [0, ascending.length]
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if ((ascending[middle] ?? 0) <= most) low = middle
    else high = middle
  }
  return low
}
