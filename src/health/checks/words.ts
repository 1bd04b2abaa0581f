/** Sizes and times as findings say them. Pure. */
import { DAY, HOUR, MINUTE, SECOND } from '../../base/clock.ts'

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const
const STEP = 1_024

export function byteText(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log(bytes) / Math.log(STEP)))
  const value = bytes / STEP ** power
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[power] ?? 'B'}`
}

/** `3 h`, `2 days`: the largest unit that fits. */
export function ageText(milliseconds: number): string {
  const [size, word] = SIZES.find(([each]) => milliseconds >= each) ?? [SECOND, 's']
  const count = Math.floor(milliseconds / size)
  return `${count} ${word === 'day' && count !== 1 ? 'days' : word}`
}

const SIZES: readonly (readonly [number, string])[] = [
  [DAY, 'day'],
  [HOUR, 'h'],
  [MINUTE, 'min'],
  [SECOND, 's'],
]
