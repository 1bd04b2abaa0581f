/** Home: what needs somebody, how the mail goes, the IPs today. */
import type { ChecksJson } from '../../api/health.ts'
import type { IpJson } from '../../api/ip.ts'
import type { StatisticsRowJson } from '../../api/statistics.ts'
import { act, send } from '../parts/api.ts'
import { Bars, barsSince, daysAgo, type CountSeries } from '../parts/bars.ts'
import { useData, useEvery, useList } from '../parts/data.ts'
import { number, share, Time } from '../parts/format.ts'
import { html, useState, type VNode } from '../parts/html.ts'
import { useForm } from '../parts/once.ts'
import { goFromHere, Link, place } from '../parts/place.ts'
import { run } from '../parts/said.ts'
import { Copy, Page, Shown, ShownList, State, Table } from '../parts/ui.ts'
import { mayAct } from '../parts/who.ts'
import { Groups } from './queue.ts'

const SPANS = {
  '24h': { title: '24 hours', days: 1 },
  '7d': { title: '7 days', days: 7 },
  '30d': { title: '30 days', days: 30 },
}
type Span = keyof typeof SPANS

export default function Home(): VNode {
  return html`<${Page} title="Home" command="sternpost status" acts=${mayAct('send') && html`<${TestMail} />`}>
    <${NeedsYou} />
    <${Figures} />
    <${Groups} by="provider" title="Waiting mail" />
    <${IpsToday} />
  <//>`
}

type Check = ChecksJson['checks'][number]

/** What the checks found, what fails before what only warns. */
function NeedsYou(): VNode {
  const checks = useData<ChecksJson>('/admin/checks')
  useEvery(30, checks)
  const isRunning = mayAct('admin')
  const check = (): Promise<void> =>
    run(async () => {
      await act('POST', '/admin/checks', {})
      checks.again()
      return 'All checks ran.'
    })
  return html`<section>
    <h2>Needs you</h2>
    <${Shown}
      of=${checks}
      show=${({ ran_at: ranAt, checks: found }: ChecksJson) => {
        const open = found.filter(({ result }) => result === 'fail' || result === 'warn')
        const sorted = [...open].sort((left, right) => left.result.localeCompare(right.result))
        const fine = ranAt === null ? 'No check has run yet.' : `Nothing. ${found.length} checks are fine.`
        return html`${sorted.length === 0 && html`<p class=${ranAt === null ? 'quiet' : 'good'}>${fine}</p>`}
          <ul class="findings">
            ${sorted.map((each) => html`<${Finding} key=${`${each.check} ${each.subject}`} of=${each} />`)}
          </ul>
          <p class="quiet">
            ${ranAt !== null && html`Checked <${Time} at=${ranAt} relative />. `}${isRunning && html`<button class="plain" onClick=${check}>Check now</button>`}
          </p>`
      }}
    />
  </section>`
}

function Finding({ of: { check, subject, result, seen, why, fix } }: { of: Check }): VNode {
  return html`<li>
    <${State} of=${result} /> <strong>${check}${subject === null ? '' : ` ${subject}`}</strong>: ${seen}
    <br /><span class="quiet">${why}</span> ${fix !== null && html`<br />Fix: <${Copy} text=${fix} />`}
  </li>`
}

/** How it went over time, from the counters of the statistics. */
function Figures(): VNode {
  const chosen = place.value.query.get('span') ?? '24h'
  const span: Span = Object.hasOwn(SPANS, chosen) ? (chosen as Span) : '24h'
  const { days } = SPANS[span]
  const interval = days === 1 ? 'hour' : 'day'
  const after = daysAgo(days, interval)
  const rows = useData<StatisticsRowJson[]>('/stats', { group_by: 'all', interval, after })
  useEvery(60, rows)
  return html`<section>
    <h2>Mail of the last ${SPANS[span].title}</h2>
    <p class="choice">
      ${Object.entries(SPANS).map(
        ([name, { title }]) =>
          html`<${Link} key=${name} to=${`home?span=${name}`} current=${name === span}>${title}<//> `,
      )}
    </p>
    <${Shown} of=${rows} show=${(found: StatisticsRowJson[]) => html`<${FigureBars} rows=${found} interval=${interval} after=${after} />`} />
  </section>`
}

const SERIES: readonly CountSeries[] = [
  { name: 'Delivered', kind: 'good', counts: 'delivered' },
  { name: 'Deferred', kind: 'other', counts: 'deferred' },
  { name: 'Bounced', kind: 'bad', counts: 'bounced' },
  { name: 'Complained', kind: 'worst', counts: 'complained' },
]

interface FigureBarsProps {
  rows: StatisticsRowJson[]
  interval: 'hour' | 'day'
  after: number
}

function FigureBars({ rows, interval, after }: FigureBarsProps): VNode {
  const sum = (name: 'accepted' | 'delivered' | 'bounced' | 'complained'): number =>
    rows.reduce((total, row) => total + row[name], 0)
  return html`<p class="figures">
      <span><strong>${number(sum('accepted'))}</strong> accepted</span>
      <span><strong>${number(sum('delivered'))}</strong> delivered</span>
      <span><strong>${number(sum('bounced'))}</strong> bounced (${share(sum('bounced'), sum('delivered') + sum('bounced'))})</span>
      <span><strong>${number(sum('complained'))}</strong> complaints</span>
    </p>
    ${
      rows.length === 0
        ? html`<p class="empty">No mail in this time.</p>`
        : html`<${Bars} title=${`Messages by ${interval}`} series=${SERIES} bars=${barsSince(after, interval, rows, SERIES)} />`
    }`
}

function IpsToday(): VNode {
  const ips = useList<IpJson>('/ips')
  useEvery(30, ips)
  const columns = [
    { head: 'IP', cell: ({ ip }: IpJson) => html`<${Link} to=${`ips/${encodeURIComponent(ip)}`}>${ip}<//>` },
    { head: 'State', cell: ({ status }: IpJson) => html`<${State} of=${status} />` },
    { head: 'Today', cell: ({ warmup }: IpJson) => html`<${Used} of=${warmup} />` },
  ]
  return html`<section>
    <h2>IPs today</h2>
    <${ShownList}
      of=${ips}
      empty="pools.yaml has no IP."
      show=${(entries: IpJson[]) =>
        html`<${Table} caption="IPs today" columns=${columns} rows=${entries} keyOf=${({ ip }: IpJson) => ip} />`}
    />
  </section>`
}

/** Today's use of the cap. */
export function Used({ of: warmup }: { of: IpJson['warmup'] }): VNode {
  if (warmup === null) return html`<span class="quiet">–</span>`
  const { sent_today: sent, daily_limit: limit } = warmup
  if (limit === null) return html`${number(sent)}, no cap`
  return html`<meter min="0" max=${Math.max(limit, 1)} value=${sent} aria-label=${`${sent} of ${limit}`}></meter> ${number(sent)} of ${number(limit)}`
}

/** Sends one mail from a verified domain, and goes to it. */
function TestMail(): VNode {
  const [isOpen, setIsOpen] = useState(false)
  const submit = useForm(async (fields, once) => {
    const [from, to] = ['from', 'to'].map((name) => String(fields.get(name)).trim())
    const mail = { from, to, subject: 'Test from Sternpost', text: 'It works.' }
    const goOn = goFromHere()
    goOn(`messages/${await send(mail, once)}`)
    return 'The test mail was accepted.'
  })
  if (!isOpen) return html`<button onClick=${() => setIsOpen(true)}>Send a test</button>`
  return html`<form class="inline" onSubmit=${submit}>
    <label>From <input name="from" inputmode="email" required placeholder="you@your-domain" /></label>
    <label>To <input name="to" inputmode="email" required /></label>
    <button class="main">Send</button>
  </form>`
}
