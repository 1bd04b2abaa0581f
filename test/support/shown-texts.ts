/** Commands and files as a page of the project shows them, so that a test runs what an administrator copies. */
import { readFileSync } from 'node:fs'

const FENCED = /^```\w*\n([^]*?)^```$/gm

/** The block of the page that has this line; `values`: what stands in it by way of example, and what to write there. */
export function shownText(page: string, line: string, values: Record<string, string> = {}): string {
  const text = readFileSync(new URL(`../../${page}`, import.meta.url), 'utf8')
  const block = [...text.matchAll(FENCED)].map(([, shown = '']) => shown).find((shown) => shown.includes(line))
  if (block === undefined) throw new Error(`${page} shows no ${line}`)
  return Object.entries(values).reduce((filled, [example, value]) => {
    if (!filled.includes(example)) throw new Error(`${line} of ${page} has no ${example}`)
    return filled.replaceAll(example, value)
  }, block)
}
