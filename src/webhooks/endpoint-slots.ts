/**
 * How many posts may be under way to each endpoint: so many, or a single one while nobody answers there.
 *
 * An endpoint is silent after a few posts in a row without any HTTP answer: then one post at a time tries whether it is
 * back, and it holds one slot in place of several. Any answer, also a refusal, ends that at once.
 */
import { createKeyedLimit } from '../base/keyed-limit.ts'

interface EndpointSlots {
  take(endpointId: string): void
  /** `isAnswered`: there was an HTTP answer, whatever it said. */
  release(endpointId: string, isAnswered: boolean): void
  /** Slots that are not free, by endpoint. */
  taken(): Record<string, number>
  isFree(endpointId: string): boolean
}

/** As many as may be under way at once by default: one bad moment is no silence. */
const UNANSWERED_UNTIL_SILENT = 4

export function createEndpointSlots(perEndpoint: number): EndpointSlots {
  const underWay = createKeyedLimit(perEndpoint)
  const unanswered = new Map<string, number>()

  const isSilent = (endpointId: string): boolean => (unanswered.get(endpointId) ?? 0) >= UNANSWERED_UNTIL_SILENT
  const taken = (): Record<string, number> => {
    const counts = underWay.counts()
    for (const endpointId of unanswered.keys()) {
      if (isSilent(endpointId)) counts[endpointId] = perEndpoint - 1 + (counts[endpointId] ?? 0)
    }
    return counts
  }
  return {
    take: underWay.take,
    release(endpointId, isAnswered) {
      underWay.release(endpointId)
      if (isAnswered) unanswered.delete(endpointId)
      else unanswered.set(endpointId, (unanswered.get(endpointId) ?? 0) + 1)
    },
    taken,
    isFree: (endpointId) => underWay.free(endpointId) > (isSilent(endpointId) ? perEndpoint - 1 : 0),
  }
}
