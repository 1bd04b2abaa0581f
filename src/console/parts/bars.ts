/** Bars over time as SVG, with the same figures as a table for whoever asks. At most 400 bars. */
import type { StatisticsRowJson } from '../../api/statistics.ts'
import { nowSeconds, number, timeLabel } from './format.ts'
import { html, useState, type VNode } from './html.ts'
import { Table } from './ui.ts'

export interface Bar {
  label: string
  /** One for each series, in its order. */
  values: readonly number[]
  /** Said about it, or null. */
  note?: string | null
}

/** A count of the statistics, with its name and class of colour. */
export interface CountSeries {
  name: string
  kind: string
  counts: 'delivered' | 'deferred' | 'bounced' | 'complained'
}

const STEP_SECONDS = { hour: 3_600, day: 86_400 }

/** The start of the hour or day of UTC that is `days` before now. */
export function daysAgo(days: number, interval: 'hour' | 'day'): number {
  const step = STEP_SECONDS[interval]
  return Math.floor(nowSeconds() / step) * step - days * STEP_SECONDS.day
}

/** One for each hour or day since `after`, also for those without mail, which the statistics leave out: a gap is seen. */
export function barsSince(
  after: number,
  interval: 'hour' | 'day',
  rows: readonly StatisticsRowJson[],
  series: readonly CountSeries[],
): Bar[] {
  const step = STEP_SECONDS[interval]
  const byTime = new Map(rows.map((row) => [row.at, row]))
  return Array.from({ length: Math.floor((nowSeconds() - after) / step) + 1 }, (_, index) => {
    const at = after + index * step
    const row = byTime.get(at)
    return { label: timeLabel(at, interval), values: series.map(({ counts }) => row?.[counts] ?? 0) }
  })
}

interface BarsProps {
  title: string
  /** Name and class of colour of each series. */
  series: readonly { name: string; kind: string }[]
  bars: readonly Bar[]
  /** A line above, e.g. a limit; null where there is none. */
  line?: { name: string; values: readonly (number | null)[] }
}

const WIDTH = 720
const HEIGHT = 160
const MOST_BARS = 400

export function Bars({ title, series, bars: given, line }: BarsProps): VNode {
  const [isTable, setIsTable] = useState(false)
  const bars = given.slice(-MOST_BARS)
  const limits = line?.values.slice(-MOST_BARS) ?? []
  const sums = bars.map(({ values }) => values.reduce((sum, value) => sum + value, 0))
  const most = Math.max(1, ...sums, ...limits.map((value) => value ?? 0))
  return html`<figure class="chart">
    <figcaption>
      ${title}
      ${series.map(({ name, kind }) => html`<span key=${name} class="key"><span class=${`swatch ${kind}`}></span>${name}</span>`)}
      ${line !== undefined && html`<span class="key"><span class="swatch line"></span>${line.name}</span>`}
      <button class="plain" aria-pressed=${isTable} onClick=${() => setIsTable(!isTable)}>${isTable ? 'As a picture' : 'As a table'}</button>
    </figcaption>
    ${isTable ? html`<${BarTable} title=${title} series=${series} bars=${bars} line=${line} />` : html`<${Picture} ...${{ title, series, bars, limits, most }} />`}
  </figure>`
}

interface PictureProps extends Pick<BarsProps, 'title' | 'series' | 'bars'> {
  limits: readonly (number | null)[]
  most: number
}

function Picture({ title, series, bars, limits, most }: PictureProps): VNode {
  const width = WIDTH / Math.max(1, bars.length)
  const y = (value: number): number => HEIGHT - (value / most) * (HEIGHT - 10)
  const points = limits.flatMap((value, index) => (value === null ? [] : [`${(index + 0.5) * width},${y(value)}`]))
  return html`<div class="axis">${number(most)}</div>
  <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${title} preserveAspectRatio="none">
    ${bars.map((bar, index) => html`<${Stack} key=${index} ...${{ bar, series, x: index * width, width, y }} />`)}
    ${points.length > 0 && html`<polyline class="limit" points=${points.join(' ')} />`}
  </svg>
  <div class="axis"><span>${bars[0]?.label}</span><span>${bars.at(-1)?.label}</span></div>`
}

interface StackProps {
  bar: Bar
  series: BarsProps['series']
  x: number
  width: number
  y: (value: number) => number
}

function Stack({ bar, series, x, width, y }: StackProps): VNode {
  let below = 0
  const told = series.map(({ name }, index) => `${name} ${number(bar.values[index] ?? 0)}`).join(', ')
  const note = bar.note ?? null
  return html`<g>
    <title>${`${bar.label}: ${told}${note === null ? '' : ` · ${note}`}`}</title>
    ${series.map(({ kind }, index) => {
      const value = bar.values[index] ?? 0
      const top = y(below + value)
      const height = y(below) - top
      below += value
      return html`<rect class=${kind} x=${x + width * 0.1} y=${top} width=${width * 0.8} height=${height} />`
    })}
    ${note !== null && html`<text class="mark" x=${x + width / 2} y=${Math.max(12, y(below) - 4)} text-anchor="middle">▼</text>`}
  </g>`
}

function BarTable({ title, series, bars, line }: Pick<BarsProps, 'title' | 'series' | 'bars' | 'line'>): VNode {
  const columns = [
    { head: 'Time', cell: (bar: Bar) => bar.label },
    ...series.map(({ name }, index) => ({
      head: name,
      cell: (bar: Bar) => number(bar.values[index] ?? 0),
      isNumber: true,
    })),
    ...(line === undefined
      ? []
      : [{ head: line.name, cell: (bar: Bar) => line.values[bars.indexOf(bar)] ?? '–', isNumber: true }]),
    { head: 'Note', cell: ({ note }: Bar) => note ?? '' },
  ]
  return html`<${Table} caption=${title} columns=${columns} rows=${bars} keyOf=${(bar: Bar) => String(bars.indexOf(bar))} />`
}
