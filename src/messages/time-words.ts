/**
 * Times as people say them: `in 14 minutes`. Pure.
 */
import { DAY, HOUR, MINUTE, SECOND } from '../base/clock.ts'

const UNITS: readonly [name: string, milliseconds: number][] = [
  ['day', DAY], ['hour', HOUR], ['minute', MINUTE], ['second', SECOND],
]

/** `now` for what is past, or less than a second away. */
export function timeUntil(at: number, now: number): string {
  const left = at - now
  // Two of a unit and more: "in 90 minutes" says more than "in 1 hour".
  const unit = UNITS.find(([, milliseconds]) => left >= 2 * milliseconds) ?? UNITS.at(-1)
  const [name = '', milliseconds = 1] = unit ?? []
  const count = Math.round(left / milliseconds)
  return count <= 0 ? 'now' : `in ${count} ${name}${count === 1 ? '' : 's'}`
}
