/**
 * Placeholders in an attribute without quotes, as in `<a href={{link}}>`: a value with a space in it would begin another
 * attribute, such as `onclick` (http/README.md "Variables"). Linear; never throws.
 */
import { runTokenizer } from './run-tokenizer.ts'

/** A name, the equals sign, no quote, braces: nearly no html has that, and then alone it is read as html. */
const SUSPECT = /[\s"'/][^\s"'<>/={}]+\s*=\s*[^\s"'<>={}]*\{\{/
const QUOTE = /["']/

/** What is wrong with it and how to mend it; undefined: there is none. */
export function unquotedPlaceholder(html: string): string | undefined {
  if (!SUSPECT.test(html)) return undefined
  let name = ''
  let value: { start: number; end: number } | undefined
  let problem: string | undefined
  runTokenizer(html, {
    onattribname(start, end) {
      name = html.slice(start, end)
      value = undefined
    },
    onattribdata(start, end) {
      value = { start: value?.start ?? start, end }
    },
    onattribend() {
      if (problem !== undefined || value === undefined || QUOTE.test(html.charAt(value.start - 1))) return
      const text = html.slice(value.start, value.end)
      if (!text.includes('{{')) return
      const line = html.slice(0, value.start).split('\n').length
      problem = `has a placeholder without quotes in line ${line}: write ${name}="${text}"`.slice(0, MOST_CHARACTERS)
    },
  })
  return problem
}

const MOST_CHARACTERS = 300
