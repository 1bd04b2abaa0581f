/**
 * Deliveries that were claimed and wait in memory for a slot of their endpoint, in their order.
 *
 * An endpoint may have as many as it answered since it was asked last, so that what waits is gone in about one round: a
 * slow endpoint has none. What waits for too long all the same (it fell silent meanwhile) is let go, and is due again
 * when its lease is over. Never throws.
 */
import { SECOND } from '../base/clock.ts'
import type { ClaimedWebhookDelivery } from '../store/records/webhook-records.ts'

export interface ClaimedAhead {
  /** One that waits already goes on waiting: the clock has leapt beyond its lease. */
  add(delivery: ClaimedWebhookDelivery): void
  /** The next one of this endpoint that is still ours. */
  take(endpointId: string): ClaimedWebhookDelivery | undefined
  /** Those that have any. */
  endpoints(): string[]
  noteAnswered(endpointId: string): void
  /** By endpoint, how many it may have beyond its slots; counting begins anew. */
  allowances(): Record<string, number>
  /** These counts and what waits. */
  addedTo(counts: Record<string, number>): Record<string, number>
}

interface Waiting {
  delivery: ClaimedWebhookDelivery
  /** In milliseconds of the monotonic clock: a post takes real time. */
  since: number
}

const MOST_AHEAD = 64
/** Far below the lease, which the post needs as well. */
const LONGEST_WAIT = 20 * SECOND

export function createClaimedAhead(): ClaimedAhead {
  const waiting = new Map<string, Waiting[]>()
  const answered = new Map<string, number>()

  return {
    add(delivery) {
      const { endpointId } = delivery
      const queue = waiting.get(endpointId) ?? []
      if (queue.some((other) => other.delivery.id === delivery.id)) return
      queue.push({ delivery, since: performance.now() })
      waiting.set(endpointId, queue)
    },
    take(endpointId) {
      const queue = waiting.get(endpointId)
      if (queue === undefined) return undefined
      const oldest = performance.now() - LONGEST_WAIT
      let next = queue.shift()
      while (next !== undefined && next.since < oldest) next = queue.shift()
      if (queue.length === 0) waiting.delete(endpointId)
      return next?.delivery
    },
    endpoints: () => [...waiting.keys()],
    noteAnswered: (endpointId) => void answered.set(endpointId, (answered.get(endpointId) ?? 0) + 1),
    allowances() {
      const counts = [...answered].map(([endpointId, count]) => [endpointId, Math.min(count, MOST_AHEAD)])
      answered.clear()
      return Object.fromEntries(counts)
    },
    addedTo(counts) {
      const sums = { ...counts }
      for (const [endpointId, { length }] of waiting) sums[endpointId] = (sums[endpointId] ?? 0) + length
      return sums
    },
  }
}
