/** Dedicated IPs as text: rows of a list, one with its warmup and its daily volume, and a forecast. Pure. */
import type { IpJson, IpNoteJson, IpWarmupJson, SendDayJson, WarmupForecastJson, WarmupJson } from '../../api/ip.ts'
import { utcDay } from '../../base/utc-day.ts'
import { columnsText, linesText, localTime, preciseTime, sheetText, type Columns } from '../shared/text.ts'
import { commandText } from '../shared/command-text.ts'
import type { VerbFlags } from '../shared/verb.ts'

export interface ShownIp extends IpJson {
  /** null: the key may not know. */
  days: SendDayJson[] | null
  history: IpNoteJson[] | null
}

export const IP_COLUMNS: Columns<IpJson> = {
  IP: ({ ip }) => ip,
  POOL: ({ pool }) => pool,
  STATUS: ({ status }) => status,
  STAGE: ({ warmup }) => (warmup === null ? null : `${warmup.stage}/${warmup.stages}`),
  TODAY: ({ warmup }) => (warmup === null || warmup.daily_limit === null ? null : warmup.sent_today),
  LIMIT: ({ warmup }) => warmup?.daily_limit ?? null,
  PTR: ({ ptr }) => ptr.status,
  HOSTNAME: ({ hostname }) => hostname,
}

interface Screen {
  isTerminal: boolean
  /** Columns. */
  width: number
  /** Unix milliseconds. */
  now: number
}

/** `given`: the flags that say which server was asked, for the command that ends a halt. */
export function ipReport(shown: ShownIp, screen: Screen, given: VerbFlags = {}): string {
  const { ip, status, ptr, blocklists, warmup } = shown
  const isHalted = status === 'paused' || status === 'suspended'
  const listings = blocklists.map(
    ({ zone, listed }) => `${zone}: ${listed === null ? 'not known' : listed ? 'LISTED' : 'not listed'}`,
  )
  const head = sheetText(`${ip}  ${status}`, [
    ['pool', `${shown.pool}, weight ${shown.weight}`],
    ['hostname', shown.hostname],
    ['reason', shown.reason],
    [isHalted ? status : 'changed', `by ${shown.changed_by} since ${preciseTime(shown.changed_at)}`],
    ['until', isHalted ? untilText(shown, given) : null],
    ['address', shown.bindable ? null : 'cannot be bound on this machine'],
    ['reverse name', [ptr.status, ptr.value].filter((text) => text !== null).join(', ')],
    ['blocklists', listings.join('; ')],
    ...(warmup === null ? [] : warmupLines(warmup)),
  ])
  return [head, ...daysSection(shown.days, screen), ...historySection(shown.history)].join('')
}

function untilText({ ip, status, until }: IpJson, given: VerbFlags): string {
  if (until !== null) return preciseTime(until)
  const verb = status === 'paused' ? 'ip warmup resume' : 'ip resume'
  return `somebody ends it: ${commandText(given, { verb, arguments: [ip] })}`
}

export function warmupReport({ ip, status, warmup }: IpWarmupJson): string {
  return sheetText(`${ip}  ${status}`, warmup === null ? [] : warmupLines(warmup))
}

function warmupLines(warmup: WarmupJson): [string, string | null][] {
  const { curve, stage, stages, percent, daily_limit: limit, sent_today: sent, remaining_today: left } = warmup
  const day = `day ${warmup.day} since ${localTime(warmup.started_at)}`
  const shares = Object.entries(warmup.providers).map(
    ([isp, { daily_limit: most, sent_today: count }]) => `${isp} ${count}${most === null ? '' : ` of ${most}`}`,
  )
  return [
    ['warmup', `${curve}, stage ${stage} of ${stages} (${percent} %), ${day}`],
    // What is granted is counted, and one without a limit is granted nothing.
    ['today', limit === null ? null : `${sent} of ${limit}, ${left ?? 0} left until ${localTime(warmup.resets_at)}`],
    ['hourly limit', limit === null ? null : String(warmup.hourly_limit ?? '')],
    ['target', `${warmup.target_daily_volume} a day`],
    ['done', warmup.estimated_completion === null ? null : `about ${localTime(warmup.estimated_completion)}`],
    ['held', warmup.hold_reason],
    ['paused until', warmup.paused_until === null ? null : preciseTime(warmup.paused_until)],
    ['providers', shares.join(', ')],
  ]
}

/** Bars on a terminal; else date, allowed and sent with tabs between. */
function daysSection(days: readonly SendDayJson[] | null, { isTerminal, width, now }: Screen): string[] {
  if (days === null) return []
  if (isTerminal) return ['\n', ...dayChart(days, utcDay(now), width).map((line) => `${line}\n`)]
  return ['\n', columnsText(DAY_COLUMNS, days, false)]
}

const DAY_COLUMNS: Columns<SendDayJson> = {
  DAY: ({ date }) => date,
  PLANNED: ({ planned }) => planned,
  SENT: ({ sent }) => sent,
}

function historySection(notes: readonly IpNoteJson[] | null): string[] {
  if (notes === null || notes.length === 0) return []
  const lines = notes.map(({ at, actor, action, from_stage: from, to_stage: to, reason }) => {
    const stages = from === to ? '' : `  stage ${from ?? 'none'} -> ${to ?? 'none'}`
    return `${preciseTime(at)}  ${action} by ${actor}${stages}${reason === null ? '' : `  ${reason}`}`
  })
  return ['\n', linesText(lines)]
}

const FORECAST_COLUMNS: Columns<WarmupForecastJson['days'][number]> = {
  DAY: ({ date }) => date,
  STAGE: ({ stage }) => stage,
  LIMIT: (day) => day.daily_limit,
  PLANNED: ({ planned }) => planned,
  'HELD BY': ({ limit }) => limit,
}

export function forecastReport(forecast: WarmupForecastJson, isTerminal: boolean): string {
  const { ip, recipients, backlog, start_at: startAt, finish_at: finishAt, days } = forecast
  const end = finishAt === null ? 'not within 400 days' : `by ${localTime(finishAt)}`
  const fits = (does: boolean): string => (does ? 'yes' : 'no')
  const head = sheetText(`${recipients} messages from ${ip}: ${end}`, [
    ['begins', localTime(startAt)],
    ['takes', finishAt === null ? null : hoursText(finishAt - startAt)],
    ['before them', backlog === 0 ? null : `${backlog} messages that wait already`],
    ['starts within max_defer', fits(forecast.fits_max_defer)],
    ['starts within its lifetime', fits(forecast.fits_lifetime)],
  ])
  return `${head}\n${columnsText(FORECAST_COLUMNS, days, isTerminal)}`
}

const HOUR_SECONDS = 3_600
const DAY_HOURS = 24

function hoursText(seconds: number): string {
  const hours = Math.ceil(seconds / HOUR_SECONDS)
  return hours < DAY_HOURS * 2 ? `${hours} h` : `${(hours / DAY_HOURS).toFixed(1)} days`
}

const SENT = '█'
const LEFT = '░'
/** Below this a bar says nothing. */
const LEAST_BAR = 10
const TODAY = 'today'
const GAP = '  '

/**
 * The daily volume of an IP as a chart of bars: what it sent against what its warmup allows. `width`: columns of the
 * terminal. One line for each day.
 *
 *   2026-11-20   98 of   100  ███████████████████
 *   2026-11-21  112 of   200  █████████████████████░░░░░░░░░░░░░░░░░  today
 *   2026-11-22        to 350  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
 */
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
  const shown = (number: number | null): string => String(number ?? '').padStart(width)
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
