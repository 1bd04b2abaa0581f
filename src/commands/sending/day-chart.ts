/**
 * The daily volume of an IP as a chart of bars for a terminal: what it sent against what its warmup allows. Pure.
 *
 *   2026-11-20   98 of   100  ███████████████████
 *   2026-11-21  112 of   200  █████████████████████░░░░░░░░░░░░░░░░░  today
 *   2026-11-22        to 350  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
 */
import type { SendDayJson } from '../../api/ip.ts'

const SENT = '█'
const LEFT = '░'
/** Below this a bar says nothing. */
const LEAST_BAR = 10
const TODAY = 'today'
const GAP = '  '

/** `width`: columns of the terminal. One line for each day, none for none. */
export function dayChart(days: readonly SendDayJson[], today: string, width: number): string[] {
  const labels = labelsOf(days)
  const labelWidth = Math.max(0, ...labels.map(({ length }) => length))
  const room = Math.max(LEAST_BAR, width - labelWidth - GAP.length * 2 - TODAY.length)
  const most = Math.max(1, ...days.map(({ planned, sent }) => Math.max(planned ?? 0, sent ?? 0)))
  return days.map((day, index) => {
    const bar = barOf(day, room / most)
    const mark = day.date === today ? `${GAP}${TODAY}` : ''
    return `${labels[index] ?? ''}${GAP}${bar}${mark}`.trimEnd()
  })
}

function labelsOf(days: readonly SendDayJson[]): string[] {
  const numbers = days.flatMap(({ planned, sent }) => [planned ?? 0, sent ?? 0]).map((number) => String(number).length)
  const width = Math.max(1, ...numbers)
  const shown = (number: number | null): string => (number === null ? '' : String(number)).padStart(width)
  return days.map(({ date, planned, sent }) => {
    const word = planned === null ? '' : sent === null ? 'to' : 'of'
    return `${date}${GAP}${shown(sent)} ${word.padEnd(2)} ${shown(planned)}`
  })
}

/** What was sent, then what was left of the plan. A little is not nothing. */
function barOf({ planned, sent }: SendDayJson, columnsPerMessage: number): string {
  const columns = (count: number): number => (count === 0 ? 0 : Math.max(1, Math.round(count * columnsPerMessage)))
  const full = columns(sent ?? 0)
  return SENT.repeat(full) + LEFT.repeat(Math.max(0, columns(planned ?? 0) - full))
}
