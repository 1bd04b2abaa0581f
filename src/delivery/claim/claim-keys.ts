/**
 * One claim: asks the store for due rows of some queue keys, and tells directory and holder what came.
 *
 * Rejects when the store does; then every key may be asked for again. store/README.md "Verbs and transactions",
 * delivery/README.md "From the table to the wire".
 */
import type { Clock } from '../../base/clock.ts'
import type { ClaimedMessage } from '../../store/records/records.ts'
import type { Store } from '../../store/store.ts'
import type { KeyAsk } from './order-places.ts'
import type { QueueDirectory } from './queue-directory.ts'

export interface ClaimKeysOptions {
  store: Pick<Store, 'claimDue'>
  clock: Clock
  directory: Pick<QueueDirectory, 'beginClaim' | 'endClaim' | 'failClaim'>
  hold: (messages: readonly ClaimedMessage[]) => void
  /** What every claim shows. */
  lease: () => { epoch: number; leaseUntil: number }
}

/** Resolves with the rows that are ours now. */
export type ClaimKeys = (asks: readonly KeyAsk[]) => Promise<ClaimedMessage[]>

export function createClaimKeys({ store, clock, directory, hold, lease }: ClaimKeysOptions): ClaimKeys {
  return async (asks) => {
    for (const { key } of asks) directory.beginClaim(key)
    try {
      const { messages, earliestAt } = await store.claimDue({ now: clock.now(), ...lease(), asks: [...asks] })
      const claimed = countByKey(messages)
      asks.forEach(({ key }, index) => {
        directory.endClaim(key, claimed.get(nameOf(key)) ?? 0, earliestAt[index] ?? null)
      })
      // Also a row that an older claim still has in hand, since its lease lapsed or its return was not heard of yet:
      // what comes of the older claim is refused by the store, its dot mark too.
      hold(messages)
      return messages
    } catch (thrown) {
      for (const { key } of asks) directory.failClaim(key)
      throw thrown
    }
  }
}

function countByKey(messages: readonly ClaimedMessage[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const message of messages) {
    const name = nameOf({ ...message, isRetry: message.attempts > 0 })
    counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  return counts
}

function nameOf({ pool, route, domain, stream, isRetry }: KeyAsk['key']): string {
  return `${pool} ${route} ${domain} ${stream} ${isRetry}`
}
