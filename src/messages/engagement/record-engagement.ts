/**
 * Opens and clicks as the HTTP door sees them: where a link leads, at once; what is counted, later (messages/README.md
 * "Engagement" and "Hits"; http/README.md "Tracked links", content/README.md "Tracking").
 */
import type { KeyObject } from 'node:crypto'
import { readKeptLinks } from '../../content/kept-links.ts'
import { createLinkCache, type FoundLinks } from '../../content/html/link-cache.ts'
import { followedLink } from '../../content/html/instrument-html.ts'
import { messageUrls } from '../../content/message-fields.ts'
import { readClickToken, readOpenToken } from '../../mail/message-token.ts'
import type { EngagementHit, LinkSource } from '../../store/records/engagement-records.ts'
import type { Store } from '../../store/store.ts'
import type { RequestReader } from '../accept/request-reader.ts'
import { createEngagementQueue, type EngagementQueueOptions } from './engagement-queue.ts'
import { createMachineList, networkOf, type Client } from './machine-hits.ts'

interface FollowLinkOptions {
  store: Pick<Store, 'linkSource' | 'linkHtml' | 'keptLinks'>
  reader: Pick<RequestReader, 'links'>
  keys: { open: KeyObject; click: KeyObject; unsubscribe: KeyObject }
  /** Scheme and host of all tracked links, without a slash at the end; null: https and a tracking host. */
  trackingUrl: string | null
  /** For domains without a host of their own. */
  trackingHost: string
}

export interface EngagementOptions extends EngagementQueueOptions, Omit<FollowLinkOptions, 'store'> {
  store: EngagementQueueOptions['store'] & FollowLinkOptions['store']
  /** `machines` of providers.yaml. */
  machines: readonly string[]
  /** Whether IP addresses and user agents are kept (`tracking.store_client`). */
  storesClient: boolean
}

export type ClickAnswer =
  | { kind: 'redirect'; target: string }
  | { kind: 'gone' } // a token of ours, whose message or content is not kept any more
  | { kind: 'unknown' } // no token of ours

type FollowedLink =
  { kind: 'found'; messageId: string; linkNumber: number; target: string } | Exclude<ClickAnswer, { kind: 'redirect' }>

export type Engagement = ReturnType<typeof createEngagement>

export function createEngagement(options: EngagementOptions) {
  const { clock, keys, storesClient } = options
  const followLink = createFollowLink(options)
  const machines = createMachineList(options.machines)
  const queue = createEngagementQueue(options)
  const hitOf = (facts: Pick<EngagementHit, 'messageId' | 'link' | 'isMachine'>, client: Client): EngagementHit => ({
    ...facts,
    at: clock.now(),
    client: storesClient ? client : null,
  })

  return {
    /** The pixel was fetched; null: by a request that counts nothing. */
    open(token: string, client: Client | null) {
      const messageId = readOpenToken(token, keys.open)
      if (messageId === undefined || client === null) return
      queue.addOpen(hitOf({ messageId, link: null, isMachine: machines.isMachineOpen(client) }, client))
    },
    /** A link was followed. */
    async click(token: string, client: Client | null) {
      const followed = await followLink(token)
      if (followed.kind !== 'found') return followed
      const { messageId, linkNumber, target } = followed
      if (client !== null) {
        const link = { number: linkNumber, url: target }
        const hit = hitOf({ messageId, link, isMachine: machines.isMachineClick(client) }, client)
        queue.addClick(hit, networkOf(client.address))
      }
      return { kind: 'redirect', target }
    },
    /** Stores what waits. */
    stop: () => queue.stop(),
  }
}

/** Rejects only when the store does not answer. */
export function createFollowLink({ store, reader, keys, trackingUrl, trackingHost }: FollowLinkOptions) {
  const cache = createLinkCache()

  const load = async (contentId: number, hasVariables: boolean): Promise<FoundLinks | null> => {
    const stored = await store.linkHtml(contentId)
    if (stored !== null) return { links: await reader.links(stored, hasVariables) }
    const kept = await store.keptLinks(contentId)
    return kept === null ? null : { links: readKeptLinks(kept) }
  }
  const unsubscribeUrlOf = (messageId: string, { unsubscribe, trackingHost: ownHost }: LinkSource): string | null => {
    if (unsubscribe === null || unsubscribe.url !== null) return unsubscribe?.url ?? null
    const baseUrl = trackingUrl ?? `https://${ownHost ?? trackingHost}`
    return messageUrls({ messageId, baseUrl, keys }).unsubscribe()
  }

  return async (token: string): Promise<FollowedLink> => {
    const named = readClickToken(token, keys.click)
    if (named === undefined) return { kind: 'unknown' }
    const { messageId } = named
    const source = await store.linkSource(messageId)
    if (source === null) return { kind: 'gone' }
    const { contentId, hasVariables, variables } = source
    const links = await cache.linksOf(contentId, () => load(contentId, hasVariables))
    const unsubscribeUrl = unsubscribeUrlOf(messageId, source)
    const followed = links === null ? undefined : followedLink(links, named.linkNumber, { variables, unsubscribeUrl })
    return followed === undefined ? { kind: 'gone' } : { kind: 'found', messageId, ...followed }
  }
}
