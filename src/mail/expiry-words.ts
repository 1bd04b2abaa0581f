/** What a bounce says of a message whose lifetime is over. Pure. */
import { HOUR, MINUTE, SECOND } from '../base/clock.ts'

/** `lastAnswer`: of the receiving server or of the way to it; null: there was none. */
export function expiryWords(lifetimeMilliseconds: number, lastAnswer: string | null): string {
  const sentence = `not delivered within ${lifetimeText(lifetimeMilliseconds)}`
  return lastAnswer === null ? sentence : `${sentence}; last answer: ${lastAnswer}`
}

/** In the largest unit that is at least one, so that three days read as `72 h` and not as milliseconds. */
function lifetimeText(milliseconds: number): string {
  if (milliseconds >= HOUR) return `${Math.round(milliseconds / HOUR)} h`
  if (milliseconds >= MINUTE) return `${Math.round(milliseconds / MINUTE)} min`
  return `${Math.round(milliseconds / SECOND)} s`
}
