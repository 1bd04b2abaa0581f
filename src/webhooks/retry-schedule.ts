/**
 * When a webhook delivery is tried again (http/README.md "Events", webhooks/README.md "Deliveries"). Pure.
 *
 * Each delay counts from the end of the failed attempt, plus up to 1 %, so that what failed together does not come back
 * together. Never early; the contract allows 2 %, the rest is for the engine. The share is drawn from the delivery's
 * identifier: the same delivery gets the same times.
 */
import { createHash } from 'node:crypto'
import { HOUR, MINUTE } from '../base/clock.ts'

/** The five delays of the specification, in its order. */
export const RETRY_DELAYS: readonly number[] = [1 * MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 24 * HOUR]

/** Half of what webhooks/README.md "Deliveries" allows. */
const MOST_JITTER = 0.01
const HASH_RANGE = 2 ** 32

interface FailedAttempt {
  deliveryId: string
  /** Attempts that failed so far, this one included: 1 to 6. */
  failedAttempts: number
  /** When this attempt ended, Unix milliseconds. */
  endedAt: number
}

/** The time of the next attempt, or null after the last: the delivery is then a dead letter. */
export function nextRetryAt({ deliveryId, failedAttempts, endedAt }: FailedAttempt): number | null {
  const delay = RETRY_DELAYS[failedAttempts - 1]
  if (delay === undefined) return null
  return endedAt + delay + Math.ceil(delay * MOST_JITTER * shareOf(`${deliveryId} ${failedAttempts}`))
}

/** An even share from 0 to 1 for a text. */
function shareOf(text: string): number {
  return createHash('sha256').update(text).digest().readUInt32BE(0) / HASH_RANGE
}
