/**
 * Placeholders in an attribute without quotes, as in `<a href={{link}}>`: a value with a space in it would begin another
 * attribute, such as `onclick` (http/README.md "Variables"). Linear; never throws.
 */
import { QuoteType } from 'htmlparser2'
import { runTokenizer } from './run-tokenizer.ts'

/** A name, the equals sign, no quote, braces: nearly no html has that, and then alone it is read as html. */
const SUSPECT = /[\s"'/][^\s"'<>/={}]+\s*=\s*[^\s"'<>={}]*\{\{/
// What stands between the name of an attribute and its value.
const BEFORE_VALUE = /\s*=\s*/y

/** What is wrong with it and how to mend it; undefined: there is none. */
export function unquotedPlaceholder(html: string): string | undefined {
  if (!SUSPECT.test(html)) return undefined
  let name = { start: 0, end: 0 }
  let problem: string | undefined
  runTokenizer(html, {
    onattribname(start, end) {
      name = { start, end }
    },
    onattribend(quote, end) {
      if (problem !== undefined || quote !== QuoteType.Unquoted) return
      BEFORE_VALUE.lastIndex = name.end
      const valueStart = name.end + (BEFORE_VALUE.exec(html)?.[0].length ?? 0)
      const text = html.slice(valueStart, end)
      if (!text.includes('{{')) return
      const line = html.slice(0, valueStart).split('\n').length
      const mended = `${html.slice(name.start, name.end)}="${text}"`
      problem = `has a placeholder without quotes in line ${line}: write ${mended}`.slice(0, MOST_CHARACTERS)
    },
  })
  return problem
}

const MOST_CHARACTERS = 300
