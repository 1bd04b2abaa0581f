/**
 * Where a tracked link leads: the message and link number of a click token, and the target that the mail had there
 * (content/README.md "Tracking"). Rejects only when the store does not answer.
 */
import type { KeyObject } from 'node:crypto'
import { readKeptLinks } from '../../content/kept-links.ts'
import { createLinkCache, type FoundLinks } from '../../content/html/link-cache.ts'
import { linkTargets } from '../../content/html/instrument-html.ts'
import { messageUrls } from '../../content/message-fields.ts'
import { trackedHtmlOf } from '../../content/prepare-content.ts'
import { readClickToken } from '../../mail/message-token.ts'
import type { LinkSource } from '../../store/records/engagement-records.ts'
import type { Store } from '../../store/store.ts'

export interface FollowLinkOptions {
  store: Pick<Store, 'linkSource' | 'linkHtml' | 'keptLinks'>
  keys: { open: KeyObject; click: KeyObject; unsubscribe: KeyObject }
  /** Scheme and host of all tracked links, without a slash at the end; null: https and a tracking host. */
  trackingUrl: string | null
  /** For domains without a host of their own. */
  trackingHost: string
}

type FollowedLink =
  | { kind: 'found'; messageId: string; linkNumber: number; target: string }
  | { kind: 'gone' } // a token of ours, whose message or content is not kept any more
  | { kind: 'unknown' } // no token of ours

type FollowLink = (token: string) => Promise<FollowedLink>

export function createFollowLink({ store, keys, trackingUrl, trackingHost }: FollowLinkOptions): FollowLink {
  const cache = createLinkCache()

  const htmlOf = async (contentId: number): Promise<string | FoundLinks | null> => {
    const stored = await store.linkHtml(contentId)
    if (stored !== null) return trackedHtmlOf(stored)
    const kept = await store.keptLinks(contentId)
    return kept === null ? null : { links: readKeptLinks(kept) }
  }
  const unsubscribeUrlOf = (messageId: string, { unsubscribe, trackingHost: ownHost }: LinkSource): string | null => {
    if (unsubscribe === null || unsubscribe.url !== null) return unsubscribe?.url ?? null
    const baseUrl = trackingUrl ?? `https://${ownHost ?? trackingHost}`
    return messageUrls({ messageId, baseUrl, keys }).unsubscribe()
  }

  return async (token) => {
    const named = readClickToken(token, keys.click)
    if (named === undefined) return { kind: 'unknown' }
    const { messageId } = named
    const source = await store.linkSource(messageId)
    if (source === null) return { kind: 'gone' }
    const { contentId, hasVariables, variables } = source
    const links = await cache.linksOf(contentId, hasVariables, () => htmlOf(contentId))
    const targets = links === null ? [] : linkTargets(links, variables, unsubscribeUrlOf(messageId, source))
    const target = targets[named.linkNumber]
    // Two links whose values make them the same are one.
    return target === undefined
      ? { kind: 'gone' }
      : { kind: 'found', messageId, linkNumber: targets.indexOf(target), target }
  }
}
