/**
 * A time table as cron writes it, in UTC: checked here, so that a slip is found by `check` and not when the job should
 * run. Names of days and months are not taken.
 */
import { accepted, field, refused, shown, type Reading } from './reading.ts'

/** Least and most of each of the five fields; Sunday is 0 or 7. */
const FIELDS = [
  { name: 'minute', min: 0, max: 59 },
  { name: 'hour', min: 0, max: 23 },
  { name: 'day of the month', min: 1, max: 31 },
  { name: 'month', min: 1, max: 12 },
  { name: 'day of the week', min: 0, max: 7 },
]

export const cronExpression = field((value): Reading<string> => {
  // Spaces between the fields.
  const parts = typeof value === 'string' ? value.trim().split(/ +/) : []
  if (parts.length !== FIELDS.length) return refused(`${shown(value)} is not a cron schedule of five fields`)
  for (const [index, { name, min, max }] of FIELDS.entries()) {
    const isField = (parts[index] ?? '').split(',').every((part) => isRange(part, min, max))
    if (!isField) return refused(`${shown(value)}: ${shown(parts[index])} is not a ${name} (${min} to ${max})`)
  }
  return accepted(parts.join(' '))
})

function isRange(part: string, min: number, max: number): boolean {
  // A star or a number or two numbers with a hyphen, and a step.
  const match = /^(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:\/(\d{1,2}))?$/.exec(part)
  if (match === null || Number(match[3] ?? 1) === 0) return false
  const first = Number(match[1] ?? min)
  const last = Number(match[2] ?? match[1] ?? max)
  return min <= first && first <= last && last <= max
}
