/**
 * Opens and clicks as the HTTP door sees them: where a link leads, at once; what is counted, later (messages/README.md
 * "Engagement" and "Hits"; http/README.md "Tracked links").
 */
import { readOpenToken } from '../../mail/message-token.ts'
import type { EngagementHit } from '../../store/records/engagement-records.ts'
import { createEngagementQueue, type EngagementQueueOptions } from './engagement-queue.ts'
import { createFollowLink, type FollowLinkOptions } from './follow-link.ts'
import { createMachineList, networkOf, type Client } from './machine-hits.ts'

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
