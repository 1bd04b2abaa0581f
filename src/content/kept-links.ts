/**
 * The links of a content as text, for the time when its html is not kept any more: a list in the order of their
 * numbers, fixed targets as strings, others with their placeholders. Pure; `readKeptLinks` throws for text that
 * `keptLinksText` has not written.
 */
import type { StoredContent } from '../mail/message.ts'
import { instrumentHtml } from './html/instrument-html.ts'
import { hostOf, type Link } from './html/link-target.ts'
import { trackedHtmlOf } from './prepare-content.ts'

type KeptLink = string | Pick<Extract<Link, { kind: 'filled' }>, 'value' | 'quote'>

/** By number; of a large html that takes up to a second. */
export function linksIn(stored: Pick<StoredContent, 'raw' | 'html'>, hasVariables: boolean): readonly Link[] {
  const html = trackedHtmlOf(stored)
  return html === null ? [] : instrumentHtml(html, hasVariables).links
}

/** null: there are none. */
export function keptLinksText(links: readonly Link[]): string | null {
  if (links.length === 0) return null
  return JSON.stringify(
    links.map((link): KeptLink => (link.kind === 'fixed' ? link.target.url : { value: link.value, quote: link.quote })),
  )
}

export function readKeptLinks(text: string): Link[] {
  return (JSON.parse(text) as KeptLink[]).map((kept): Link => {
    if (typeof kept === 'string') return { kind: 'fixed', identity: kept, target: { url: kept, host: hostOf(kept) } }
    return { kind: 'filled', identity: JSON.stringify([kept.quote, kept.value]), ...kept }
  })
}
