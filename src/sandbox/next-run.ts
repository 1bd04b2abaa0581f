/**
 * When a time table in cron's form comes round next, in UTC. Pure.
 *
 * Fields: second (may be left out: 0), minute, hour, day of the month, month, day of the week (Sunday is 0 or 7); each
 * a star, a number, a range, with a step, or a list of these. When both days are restricted, either may hold, as in
 * crontab(5). Throws for a text that is no time table, or one that never comes round.
 */
import { DAY, HOUR, MINUTE, SECOND } from '../base/clock.ts'

const RANGES = [
  [0, 59],
  [0, 59],
  [0, 23],
  [1, 31],
  [1, 12],
  [0, 7],
] as const
/** The 29th of February comes round within 8 years. */
const LONGEST_SEARCH = 9 * 366 * DAY

/** The first time after `after`, both in Unix milliseconds. */
export function nextRun(timeTable: string, after: number): number {
  const fields = readFields(timeTable)
  let time = (Math.floor(after / SECOND) + 1) * SECOND
  while (time <= after + LONGEST_SEARCH) {
    const wrong = stepToNext(fields, time)
    if (wrong === null) return time
    time = wrong
  }
  throw new Error(`the time table ${JSON.stringify(timeTable)} never comes round`)
}

interface Fields {
  second: ReadonlySet<number>
  minute: ReadonlySet<number>
  hour: ReadonlySet<number>
  isDay: (date: Date) => boolean
}

/** null when the time is in the table, else the beginning of the next unit that may be. */
function stepToNext({ second, minute, hour, isDay }: Fields, time: number): number | null {
  const date = new Date(time)
  if (!isDay(date)) return nextStart(time, DAY)
  if (!hour.has(date.getUTCHours())) return nextStart(time, HOUR)
  if (!minute.has(date.getUTCMinutes())) return nextStart(time, MINUTE)
  return second.has(date.getUTCSeconds()) ? null : time + SECOND
}

/** In UTC days, hours and minutes are all equally long. */
function nextStart(time: number, unit: number): number {
  return (Math.floor(time / unit) + 1) * unit
}

function readFields(timeTable: string): Fields {
  // White space between the fields.
  const texts = timeTable.trim().split(/\s+/)
  const [second, minute, hour, day, month, weekday, ...more] = (texts.length === 5 ? ['0', ...texts] : texts).map(
    (text, index) => readField(text, RANGES[index] ?? [0, 0], timeTable),
  )
  const isWhole = second && minute && hour && day && month && weekday && more.length === 0
  if (!isWhole) throw notOne(timeTable)
  const isDay = (date: Date): boolean => {
    if (!month.values.has(date.getUTCMonth() + 1)) return false
    const isInMonth = day.values.has(date.getUTCDate())
    const isInWeek = weekday.values.has(date.getUTCDay()) || (date.getUTCDay() === 0 && weekday.values.has(7))
    return day.isStar || weekday.isStar ? isInMonth && isInWeek : isInMonth || isInWeek
  }
  return { second: second.values, minute: minute.values, hour: hour.values, isDay }
}

function readField(
  text: string,
  [least, most]: readonly [number, number],
  timeTable: string,
): { values: ReadonlySet<number>; isStar: boolean } {
  const values = new Set<number>()
  for (const part of text.split(',')) {
    // A star or a number or two numbers with a hyphen, and a step.
    const match = /^(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:\/(\d{1,2}))?$/.exec(part)
    const step = Number(match?.[3] ?? 1)
    const first = Number(match?.[1] ?? least)
    const last = Number(match?.[2] ?? match?.[1] ?? most)
    if (match === null || step === 0 || first < least || last > most) throw notOne(timeTable)
    for (let value = first; value <= last; value += step) values.add(value)
  }
  return { values, isStar: text === '*' }
}

function notOne(timeTable: string): Error {
  return new Error(`${JSON.stringify(timeTable)} is not a time table of five or six fields`)
}
