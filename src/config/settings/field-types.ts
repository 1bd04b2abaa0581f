/** The kinds of values of the YAML files: durations become milliseconds, sizes bytes, shares numbers from 0 to 1. */
import { DAY, HOUR, MINUTE, SECOND } from '../../base/clock.ts'
import { nearestName } from './nearest-name.ts'
import { accepted, field, refused, shown, written, type Reading } from './reading.ts'

/** Least and most of each of the five fields; Sunday is 0 or 7. */
const FIELDS = [
  { name: 'minute', min: 0, max: 59 },
  { name: 'hour', min: 0, max: 23 },
  { name: 'day of the month', min: 1, max: 31 },
  { name: 'month', min: 1, max: 12 },
  { name: 'day of the week', min: 0, max: 7 },
]

/** From January on; February once in four years. */
const LONGEST_MONTHS = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

export const cronSchedule = field((value): Reading<string> => {
  // Spaces between the fields.
  const parts = typeof value === 'string' ? value.trim().split(/ +/) : []
  if (parts.length !== FIELDS.length) return refused(`${shown(value)} is not a cron schedule of five fields`)
  const allowed: number[][] = []
  for (const [index, { name, min, max }] of FIELDS.entries()) {
    const values = valuesOf(parts[index] ?? '', min, max)
    if (values === null) return refused(`${shown(value)}: ${shown(parts[index])} is not a ${name} (${min} to ${max})`)
    allowed.push(values)
  }
  const [, , days = [], months = []] = allowed
  const comesRound = months.some((month) => days.some((day) => day <= (LONGEST_MONTHS[month - 1] ?? 0)))
  if (!comesRound) return refused(`${shown(value)} never comes round: no month in it has such a day`)
  return accepted(parts.join(' '))
})

/** So many in so long; a bucket or a counter makes its own use of it. */
export interface Rate {
  count: number
  per_milliseconds: number
}

const DURATION_UNITS: Record<string, number> = { ms: 1, s: SECOND, m: MINUTE, h: HOUR, d: DAY }

const SIZE_UNITS: Record<string, number> = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 }

const RATE_UNITS: Record<string, number> = { second: SECOND, minute: MINUTE, hour: HOUR, day: DAY }

/** Ten years: anything longer is a slip of the hand. */
const LONGEST_DURATION = 3_650 * DAY

const RATE_TITLE = 'rate, such as 100/second 6000/minute 20000/hour'

/** The last two stood in quotes. */
const BOOLEAN_WORDS: Record<string, string> = {
  yes: 'true',
  on: 'true',
  no: 'false',
  off: 'false',
  true: 'true',
  false: 'false',
}

export const boolean = field(
  (value): Reading<boolean> => {
    if (typeof value === 'boolean') return accepted(value)
    const meant = BOOLEAN_WORDS[wordOf(value).toLowerCase()]
    if (meant !== undefined) return refused(`${shown(value)} is not true or false; write ${meant}`, meant)
    return refused(`${shown(value)} is not true or false`)
  },
  { type: 'boolean' },
)

export function integer({ min, max = Number.MAX_SAFE_INTEGER }: { min: number; max?: number }) {
  return field(
    (value): Reading<number> => {
      const isWhole = typeof value === 'number' && Number.isSafeInteger(value)
      if (typeof value === 'string' && /^\d+$/.test(value)) {
        return refused(`${shown(value)} is a text; write ${value} without quotes`, value)
      }
      if (!isWhole) return refused(`${shown(value)} is not a whole number`)
      if (value < min) return refused(`${value} is too small; the least is ${min}`, String(min))
      if (value > max) return refused(`${value} is too large; the most is ${max}`, String(max))
      return accepted(value)
    },
    { type: 'integer', minimum: min, maximum: max },
  )
}

/** How many of something that there must be: a whole number from 1. */
export const count = integer({ min: 1 })

export function decimal({ min, max }: { min: number; max: number }) {
  return field(
    (value): Reading<number> => {
      if (typeof value !== 'number' || Number.isNaN(value)) return refused(`${shown(value)} is not a number`)
      return value < min || value > max ? refused(`${value} is not between ${min} and ${max}`) : accepted(value)
    },
    { type: 'number', minimum: min, maximum: max },
  )
}

export const text = written('text', (value) =>
  typeof value === 'string' ? accepted(value) : refused(`${shown(value)} is not a text; put it into quotes`),
)

/** What was written in the place of a word. A map or a list is none: maps have no text (they have no prototype). */
function wordOf(value: unknown): string {
  return typeof value === 'object' ? '' : String(value)
}

/** One of a closed list of words. */
export function choice<const Word extends string | number>(words: readonly Word[]) {
  return field(
    (value): Reading<Word> => {
      const found = words.find((word) => word === value)
      if (found !== undefined) return accepted(found)
      const meant = nearestName(wordOf(value), words.map(String))
      if (meant !== null) return refused(`${shown(value)} is not known here; did you mean ${meant}?`, meant)
      return refused(`${shown(value)} is not one of ${words.join(', ')}`)
    },
    { enum: words },
  )
}

/** `250ms 30s 15m 2h 1d`, as milliseconds. */
export function duration(range: { min?: number; max?: number } = {}) {
  return field((value) => readDuration(value, range), {
    title: 'duration, such as 250ms 30s 15m 2h 1d',
    type: 'string',
    pattern: '^\\d{1,9}(ms|s|m|h|d)$',
  })
}

export function readDuration(value: unknown, range: { min?: number; max?: number } = {}): Reading<number> {
  const { min = 1, max = LONGEST_DURATION } = range
  if (typeof value === 'number') return refused(...withoutUnit(value, DURATION_UNITS, { min, max }))
  // A whole number and its unit, with nothing between them.
  const match = /^(\d{1,9})(ms|s|m|h|d)$/.exec(typeof value === 'string' ? value : '')
  const unit = DURATION_UNITS[match?.[2] ?? '']
  if (match === null || unit === undefined) {
    return refused(`${shown(value)} is not a duration; write for example 250ms, 30s, 15m, 2h or 1d`)
  }
  const milliseconds = Number(match[1]) * unit
  const [least, most] = [durationText(min), durationText(max)]
  if (milliseconds < min) return refused(`${shown(value)} is too short; the least is ${least}`, least)
  if (milliseconds > max) return refused(`${shown(value)} is too long; the most is ${most}`, most)
  return accepted(milliseconds)
}

/** A number alone. Whoever wrote 90 may have meant days: of several units that fit none is proposed alone. */
function withoutUnit(
  value: number,
  units: Record<string, number>,
  { min, max }: { min: number; max: number },
): [problem: string, suggestion?: string] {
  const [smallest, ...usual] = Object.entries(units)
  const likely = value >= 100 && smallest !== undefined ? [smallest, ...usual] : usual
  const fitting = value === 0 ? [] : likely.filter(([, unit]) => value * unit >= min && value * unit <= max)
  const [first = '', ...others] = (fitting.length > 0 ? fitting : usual.slice(0, 1)).map(([name]) => `${value}${name}`)
  if (others.length === 0) return [`${value} has no unit; write ${first}`, first]
  return [`${value} has no unit; write which is meant: ${[first, ...others].join(', ')}`]
}

/** Milliseconds as they are written in a file: `600000` is `10m`. */
export function durationText(milliseconds: number): string {
  const units = Object.entries(DURATION_UNITS).reverse()
  const [name, unit] = units.find(([, unit]) => milliseconds >= unit && milliseconds % unit === 0) ?? ['ms', 1]
  return milliseconds === 0 ? '0s' : `${milliseconds / unit}${name}`
}

export function durationOr<const Word extends string>(word: Word) {
  return written(`duration such as 30d, or ${word}`, (value): Reading<number | Word> =>
    value === word ? accepted(word) : readDuration(value),
  )
}

/** `64KiB 10MiB 2GiB`, as bytes. */
export function size({ max = Infinity }: { max?: number } = {}) {
  return field(
    (value): Reading<number> => {
      // A whole number and its unit; decimal units (kB, MB) are caught below.
      const match = /^(\d{1,9})(B|KiB|MiB|GiB|TiB)$/.exec(typeof value === 'string' ? value : '')
      const unit = SIZE_UNITS[match?.[2] ?? '']
      if (match === null || unit === undefined) return refused(...sizeProblem(value, max))
      const bytes = Number(match[1]) * unit
      if (bytes <= max) return accepted(bytes)
      return refused(`${shown(value)} is too large; the most is ${max / 2 ** 20}MiB`, `${max / 2 ** 20}MiB`)
    },
    { title: 'size, such as 64KiB 10MiB 2GiB', type: 'string', pattern: '^\\d{1,9}(B|KiB|MiB|GiB|TiB)$' },
  )
}

function sizeProblem(value: unknown, max: number): [problem: string, suggestion?: string] {
  if (typeof value === 'number') return withoutUnit(value, SIZE_UNITS, { min: 0, max })
  // A number with a unit of ten (kB, MB, G) or with other letters: the binary unit is meant.
  const match = /^(\d+) ?([KMGT])i?B?$/i.exec(typeof value === 'string' ? value : '')
  if (match === null) return [`${shown(value)} is not a size; write for example 64KiB, 10MiB or 2GiB`]
  const meant = `${match[1]}${match[2]?.toUpperCase()}iB`
  return [`${shown(value)} is not a size; write ${meant}`, meant]
}

/** `100/second 6000/minute 20000/hour 50000/day`. */
export const rate = field(readRate, {
  title: RATE_TITLE,
  type: 'string',
  pattern: '^\\d{1,9}/(second|minute|hour|day)$',
})

/** A rate as it is written in a file. */
export function rateText({ count, per_milliseconds: milliseconds }: Rate): string {
  const unit = Object.entries(RATE_UNITS).find(([, length]) => length === milliseconds)
  return unit === undefined ? `${count} in ${milliseconds} ms` : `${count}/${unit[0]}`
}

/** A rate, or a bare 0 that stands for "no limit" and becomes null. */
export const rateOrUnlimited = field(
  (value): Reading<Rate | null> => (value === 0 ? accepted(null) : readRate(value)),
  { title: `${RATE_TITLE}; 0 for no limit` },
)

function readRate(value: unknown): Reading<Rate> {
  const meant = typeof value === 'number' ? `${value}/second` : undefined
  if (meant !== undefined) return refused(`${value} has no unit; write ${meant} or ${value}/minute`, meant)
  // A whole number, a slash and the name of the unit.
  const match = /^(\d{1,9})\/(second|minute|hour|day)$/.exec(typeof value === 'string' ? value : '')
  const unit = RATE_UNITS[match?.[2] ?? '']
  const count = Number(match?.[1])
  if (unit === undefined) {
    return refused(`${shown(value)} is not a rate; write for example 100/second, 6000/minute, 20000/hour or 50000/day`)
  }
  if (count === 0) return refused(`${shown(value)} would send nothing; the least is 1/day`, '1/day')
  return accepted({ count, per_milliseconds: unit })
}

/** `0.05` or `5%`, as a number from 0 to 1. */
export function share({ max = 1 }: { max?: number } = {}) {
  return field(
    (value): Reading<number> => {
      // A decimal number and a per cent sign.
      const percent = /^(\d{1,3}(?:\.\d{1,6})?)%$/.exec(typeof value === 'string' ? value : '')?.[1]
      const number = percent === undefined ? value : Number(percent) / 100
      if (typeof number !== 'number' || Number.isNaN(number)) {
        return refused(`${shown(value)} is not a share; write for example 0.05 or 5%`)
      }
      if (number < 0 || number > max) return refused(`${shown(value)} is not between 0 and ${max}`)
      return accepted(number)
    },
    { title: 'share, such as 0.05 or 5%' },
  )
}

/** What a field of cron allows; null: it is none. */
function valuesOf(text: string, min: number, max: number): number[] | null {
  const values: number[] = []
  for (const part of text.split(',')) {
    // A star or two numbers with a hyphen, which may have a step, or a number.
    const match = /^(?:(?:\*|(\d{1,2})-(\d{1,2}))(?:\/(\d{1,2}))?|(\d{1,2}))$/.exec(part)
    const [first, last] = [Number(match?.[1] ?? match?.[4] ?? min), Number(match?.[2] ?? match?.[4] ?? max)]
    const step = Number(match?.[3] ?? 1)
    if (match === null || step === 0 || first < min || last < first || last > max) return null
    for (let value = first; value <= last; value += step) values.push(value)
  }
  return values
}
