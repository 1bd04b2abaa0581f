/** Times as people say them: `in 14 minutes`. Pure. */
import { DAY, HOUR, MINUTE, SECOND } from '../../base/clock.ts'

const UNITS: readonly [name: string, milliseconds: number][] = [
  ['day', DAY],
  ['hour', HOUR],
  ['minute', MINUTE],
  ['second', SECOND],
]

/** `now` for what is past, or less than a second away. */
export function timeUntil(at: number, now: number): string {
  const span = spanOf(at - now)
  return span === undefined ? 'now' : `in ${span}`
}

/** `14 minutes` */
export function timeSpan(milliseconds: number): string {
  return spanOf(milliseconds) ?? 'less than a second'
}

/** Undefined for less than a second. */
function spanOf(span: number): string | undefined {
  // Two of a unit and more: "in 90 minutes" says more than "in 1 hour".
  const unit = UNITS.find(([, milliseconds]) => span >= 2 * milliseconds) ?? UNITS.at(-1)
  const [name = '', milliseconds = 1] = unit ?? []
  const count = Math.round(span / milliseconds)
  return count <= 0 ? undefined : `${count} ${name}${count === 1 ? '' : 's'}`
}
