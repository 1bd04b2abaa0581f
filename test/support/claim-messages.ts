/**
 * Claims whatever is due in these pools, whichever keys it waits under, as tests want it that are not about keys.
 */
import type { ClaimedMessage, ClaimRequest } from '../../src/store/records/claim-records.ts'
import type { Store } from '../../src/store/store.ts'

export interface ClaimAllRequest extends Omit<ClaimRequest, 'asks'> {
  pools: string[]
  limit: number
}

/** First attempts before retries, the oldest due of each key first; unrouted rows too. */
export async function claimMessages(
  store: Pick<Store, 'queueKeys' | 'claimDue'>,
  { pools, limit, ...terms }: ClaimAllRequest,
): Promise<ClaimedMessage[]> {
  const { keys } = await store.queueKeys(null, Number.MAX_SAFE_INTEGER)
  const claimed: ClaimedMessage[] = []
  for (const key of keys) {
    if (!pools.includes(key.pool) || claimed.length === limit) continue
    const { messages } = await store.claimDue({ ...terms, asks: [{ key, limit: limit - claimed.length }] })
    claimed.push(...messages)
  }
  return claimed
}
