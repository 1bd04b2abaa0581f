/** Numbers and times as people read them, words as a shell does. Times are local; UTC stands in the title. */
import { html, type VNode } from './html.ts'

const MINUTE = 60
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

export const number = (value: number): string => value.toLocaleString()

export function share(part: number, whole: number): string {
  return whole === 0 ? '–' : `${((100 * part) / whole).toFixed(part === whole ? 0 : 1)} %`
}

const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB']

export function size(bytes: number): string {
  let value = bytes
  let unit = 0
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024
    unit += 1
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`
}

/** As one word of a command: whoever copies it runs nothing that stood in an address. */
export function shellWord(text: string): string {
  return /^[\w@.+:=-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}

/** How long, in at most two units. */
export function span(seconds: number): string {
  const whole = Math.abs(Math.round(seconds))
  if (whole < MINUTE) return `${whole} s`
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)} min`
  if (whole < DAY) return `${Math.floor(whole / HOUR)} h ${Math.floor((whole % HOUR) / MINUTE)} min`
  return `${Math.floor(whole / DAY)} d ${Math.floor((whole % DAY) / HOUR)} h`
}

/** What an answer takes on its way is no difference between clocks. */
const LEAST_DIFFERENCE = 5
let serverAhead = 0

/** `date`: of an answer. The browser's clock may be wrong, and that of a sandbox is set by hand. */
export function noteServerTime(date: string | null): void {
  const ahead = date === null ? Number.NaN : (Date.parse(date) - Date.now()) / 1000
  if (!Number.isNaN(ahead)) serverAhead = Math.abs(ahead) < LEAST_DIFFERENCE ? 0 : ahead
}

/** By the server's clock. */
export const nowSeconds = (): number => Date.now() / 1000 + serverAhead

// Made once: making one takes as long as formatting hundreds.
const exactTime = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })
const hourOfWeek = new Intl.DateTimeFormat(undefined, { weekday: 'short', hour: '2-digit', minute: '2-digit' })

/** Of Unix seconds, for the labels of bars: weekday and time of day, or a day of UTC. */
export function timeLabel(at: number, interval: 'hour' | 'day'): string {
  return interval === 'day' ? new Date(at * 1000).toISOString().slice(0, 10) : hourOfWeek.format(at * 1000)
}

interface TimeProps {
  /** Unix seconds; null: never. */
  at: number | null
  /** Says how long ago, or ahead. */
  relative?: boolean
}

export function Time({ at, relative = false }: TimeProps): VNode {
  if (at === null) return html`<span class="quiet">–</span>`
  const date = new Date(at * 1000)
  const text = relative ? relativeText(at) : exactTime.format(date)
  return html`<time datetime=${date.toISOString()} title=${`${date.toISOString()} (UTC)`}>${text}</time>`
}

function relativeText(at: number): string {
  const seconds = nowSeconds() - at
  if (Math.abs(seconds) < 5) return 'now'
  return seconds > 0 ? `${span(seconds)} ago` : `in ${span(seconds)}`
}
