/**
 * The links of contents that are being clicked on, found once for each content, however many clicks come at a time.
 * What cannot be loaded is not kept. A rejection of `load` is passed on.
 */
import { LRUCache } from 'lru-cache'
import type { HtmlTemplate } from './instrument-html.ts'

export type FoundLinks = Pick<HtmlTemplate, 'links'>

/** null: the content is not there. */
type Load = () => Promise<FoundLinks | null>

export type LinkCache = ReturnType<typeof createLinkCache>

const MOST_CHARACTERS = 16 * 2 ** 20
/** What an entry costs beside its addresses. */
const ENTRY_CHARACTERS = 100

export function createLinkCache() {
  const known = new LRUCache<number, FoundLinks, { load: Load }>({
    maxSize: MOST_CHARACTERS,
    sizeCalculation: ({ links }) => links.reduce((sum, { identity }) => sum + 2 * identity.length, ENTRY_CHARACTERS),
    // What is pushed out while it is loaded is answered all the same.
    ignoreFetchAbort: true,
    fetchMethod: async (_contentId, _stale, { context: { load } }) => (await load()) ?? undefined,
  })
  return {
    linksOf: async (contentId: number, load: Load): Promise<FoundLinks | null> =>
      (await known.fetch(contentId, { context: { load } })) ?? null,
  }
}
