/** The bounces of messages that end while they wait: their lifetime is over, or they may have arrived. Pure. */
import { HOUR, MINUTE, SECOND } from '../base/clock.ts'
import { bounceFor } from './reply/classify-reply.ts'
import type { Bounce } from './reply/delivery-outcome.ts'

interface Expiry {
  lifetimeMilliseconds: number
  /** Of the receiving server or of the way to it; null: there was none. */
  lastAnswer: string | null
  isPossibleDuplicate: boolean
}

/** Why a message may have arrived, and nobody knows. */
export const WHY_IN_DOUBT = 'a connection was lost after its end was sent, or a backup was restored'

export function expiryBounce({ lifetimeMilliseconds, lastAnswer, isPossibleDuplicate }: Expiry): Bounce {
  const sentence = `not delivered within ${lifetimeText(lifetimeMilliseconds)}`
  const words = lastAnswer === null ? sentence : `${sentence}; last answer: ${lastAnswer}`
  return isPossibleDuplicate ? bounceInDoubt(words) : bounceFor('expired', null, words)
}

/** Of a message that may have arrived; `words`: why it is not sent again. */
export const bounceInDoubt = (words: string): Bounce =>
  bounceFor('ambiguous', null, `it may have been delivered: ${WHY_IN_DOUBT}; ${words}`)

/** In the largest unit that is at least one, so that three days read as `72 h` and not as milliseconds. */
function lifetimeText(milliseconds: number): string {
  if (milliseconds >= HOUR) return `${Math.round(milliseconds / HOUR)} h`
  if (milliseconds >= MINUTE) return `${Math.round(milliseconds / MINUTE)} min`
  return `${Math.round(milliseconds / SECOND)} s`
}
