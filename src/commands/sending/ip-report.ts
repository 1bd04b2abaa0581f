/** Dedicated IPs as text: rows of a list, one with its warmup and its daily volume, and a forecast. Pure. */
import type { IpJson, IpNoteJson, SendDayJson, WarmupForecastJson, WarmupJson } from '../../api/ip.ts'
import { utcDay } from '../../base/utc-day.ts'
import { dayChart } from './day-chart.ts'
import { localTime, preciseTime, printable, sheetText, tableText } from '../shared/print.ts'

export interface ShownIp extends IpJson {
  /** null: the key may not know. */
  days: SendDayJson[] | null
  history: IpNoteJson[] | null
}

export const IP_HEADS = ['IP', 'POOL', 'STATUS', 'STAGE', 'TODAY', 'LIMIT', 'PTR', 'HOSTNAME']

export function ipRow({ ip, pool, status, warmup, ptr, hostname }: IpJson): string[] {
  return [
    ip,
    pool,
    status,
    warmup === null ? '' : `${warmup.stage}/${warmup.stages}`,
    warmup === null || warmup.daily_limit === null ? '' : String(warmup.sent_today),
    limitText(warmup?.daily_limit),
    ptr.status,
    hostname,
  ]
}

function limitText(limit: number | null | undefined): string {
  return limit === null || limit === undefined ? '' : String(limit)
}

interface Screen {
  isTerminal: boolean
  /** Columns. */
  width: number
  /** Unix milliseconds. */
  now: number
}

export function ipReport(shown: ShownIp, screen: Screen): string {
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
    ['until', isHalted ? untilText(shown) : null],
    ['address', shown.bindable ? null : 'can not be bound on this machine'],
    ['reverse name', [ptr.status, ptr.value].filter((text) => text !== null).join(', ')],
    ['blocklists', listings.join('; ')],
    ...(warmup === null ? [] : warmupLines(warmup)),
  ])
  return [head, ...daysSection(shown.days, screen), ...historySection(shown.history)].join('')
}

function untilText({ ip, status, until }: IpJson): string {
  if (until !== null) return preciseTime(until)
  return `somebody ends it: sternpost ip ${status === 'paused' ? 'warmup ' : ''}resume ${ip}`
}

export function warmupReport(ip: string, status: string, warmup: WarmupJson | null): string {
  return sheetText(`${ip}  ${status}`, warmup === null ? [] : warmupLines(warmup))
}

function warmupLines(warmup: WarmupJson): [string, string | null][] {
  const { curve, stage, stages, percent, daily_limit: limit, sent_today: sent, remaining_today: left } = warmup
  const isLimited = limit !== null
  const day = `day ${warmup.day} since ${localTime(warmup.started_at)}`
  return [
    ['warmup', `${curve}, stage ${stage} of ${stages} (${percent} %), ${day}`],
    // What is granted is counted, and one without a limit is granted nothing.
    ['today', isLimited ? `${sent} of ${limit}, ${left ?? 0} left until ${localTime(warmup.resets_at)}` : null],
    ['hourly limit', isLimited ? limitText(warmup.hourly_limit) : null],
    ['target', `${warmup.target_daily_volume} a day`],
    ['done', warmup.estimated_completion === null ? null : `about ${localTime(warmup.estimated_completion)}`],
    ['held', warmup.hold_reason],
    ['paused until', warmup.paused_until === null ? null : preciseTime(warmup.paused_until)],
    [
      'providers',
      Object.entries(warmup.providers)
        .map(
          ([isp, { daily_limit: most, sent_today: count }]) => `${isp} ${count}${most === null ? '' : ` of ${most}`}`,
        )
        .join(', '),
    ],
  ]
}

/** Bars on a terminal; else date, allowed and sent with tabs between. */
function daysSection(days: readonly SendDayJson[] | null, { isTerminal, width, now }: Screen): string[] {
  if (days === null) return []
  if (isTerminal) return ['\n', ...dayChart(days, utcDay(now), width).map((line) => `${line}\n`)]
  const rows = days.map(({ date, planned, sent }) => [date, limitText(planned), limitText(sent)])
  return ['\n', tableText([], rows, false)]
}

function historySection(notes: readonly IpNoteJson[] | null): string[] {
  if (notes === null || notes.length === 0) return []
  const lines = notes.map(({ at, actor, action, from_stage: from, to_stage: to, reason }) => {
    const stages = from === to ? '' : `  stage ${from ?? 'none'} -> ${to ?? 'none'}`
    return `${preciseTime(at)}  ${action} by ${actor}${stages}${reason === null ? '' : `  ${reason}`}`
  })
  return ['\n', ...lines.map((line) => `${printable(line)}\n`)]
}

const FORECAST_HEADS = ['DAY', 'STAGE', 'LIMIT', 'PLANNED', 'HELD BY']

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
  const rows = days.map(({ date, stage, daily_limit: limit, planned, limit: bound }) => [
    date,
    limitText(stage),
    limitText(limit),
    String(planned),
    bound ?? '',
  ])
  return `${head}\n${tableText(FORECAST_HEADS, rows, isTerminal)}`
}

const HOUR_SECONDS = 3_600
const DAY_HOURS = 24

function hoursText(seconds: number): string {
  const hours = Math.ceil(seconds / HOUR_SECONDS)
  return hours < DAY_HOURS * 2 ? `${hours} h` : `${(hours / DAY_HOURS).toFixed(1)} days`
}
