/**
 * A template as one text in which a single letter stands for each placeholder, so that what reads html sees every
 * placeholder as an ordinary part of what is around it; and any stretch of that text as a template again. Positions are
 * those of the masked text, in UTF-16 units. Pure, linear, never throws.
 */
import type { Placeholder, Template } from './parse-template.ts'

export interface MaskedTemplate {
  text: string
  /** What stands from `start` up to `end`, without empty strings. */
  slice(start: number, end: number): Template
}

/**
 * A letter, because after `&copy` in an attribute a value most often goes on with one, and then it is no entity (WHATWG
 * HTML, 13.2.5.73); a rare one, because no name of an entity should come about through it.
 */
const MASK = 'Q'

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
