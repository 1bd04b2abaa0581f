/** Mailbox providers: how each takes our mail, and what is suspended or limited there, with the reply behind it. */
import type { PathJson } from '../../api/queue.ts'
import type { StatisticsRowJson } from '../../api/statistics.ts'
import { act } from '../parts/api.ts'
import { Bars, barsSince, daysAgo, type CountSeries } from '../parts/bars.ts'
import { useData, useEvery, useList } from '../parts/data.ts'
import { share, Time } from '../parts/format.ts'
import { html, type VNode } from '../parts/html.ts'
import { Link } from '../parts/place.ts'
import { runLater } from '../parts/said.ts'
import { Page, Shown, ShownList, State, Table } from '../parts/ui.ts'
import { mayAct } from '../parts/who.ts'

const DAYS = 14

export default function Providers(): VNode {
  const paths = useList<PathJson>('/admin/paths')
  useEvery(15, paths)
  const after = daysAgo(DAYS, 'day')
  const rows = useData<StatisticsRowJson[]>('/stats', { group_by: 'provider', interval: 'day', after })
  return html`<${Page} title="Providers" command="sternpost path list">
    <section>
      <h2>Suspended, waiting or limited</h2>
      <${ShownList}
        of=${paths}
        empty="Nothing holds mail back anywhere."
        show=${(entries: PathJson[]) => html`<${Table} caption="Paths that are held back" columns=${columnsWith(paths.again)} rows=${entries} keyOf=${keyOf} />`}
      />
    </section>
    <section>
      <h2>Acceptance by provider</h2>
      <${Shown} of=${rows} show=${(found: StatisticsRowJson[]) => html`<${Multiples} rows=${found} after=${after} />`} />
    </section>
  <//>`
}

/** A provider that is held by hand has the names of a path, if that has the whole provider for its route. */
const keyOf = ({ ip, pool, route, domain, holds }: PathJson): string =>
  `${ip} ${pool} ${route} ${domain} ${holds[0]?.scope}`

function columnsWith(again: () => void) {
  return [
    {
      head: 'To',
      cell: ({ provider, isp, route }: PathJson) =>
        html`<${Link} to=${`queue?provider=${encodeURIComponent(isp)}`}>${provider ?? isp}<//> <span class="quiet">${route}</span>`,
    },
    { head: 'From IP', cell: ({ ip, pool }: PathJson) => `${ip ?? 'all'}${pool === null ? '' : ` (${pool})`}` },
    { head: 'State', cell: ({ status }: PathJson) => html`<${State} of=${status} />` },
    {
      head: 'Why, and until when',
      cell: ({ holds }: PathJson) =>
        holds.map(
          ({ kind, cause, rule, until }) =>
            html`<p key=${`${kind} ${rule} ${cause}`}>${kind}: <q>${cause}</q> ${rule !== null && html`<span class="quiet">(rule ${rule})</span>`} until <${Time} at=${until} relative /></p>`,
        ),
    },
    { head: 'Acts', cell: (path: PathJson) => mayAct('admin') && html`<${Resume} of=${path} again=${again} />` },
  ]
}

/** A path by its IP; a lane, which has none, by its pool and sending domain: nothing else is lifted. */
function Resume({ of: { ip, pool, route, domain }, again }: { of: PathJson; again: () => void }): VNode {
  const mail = ip === null ? `mail of ${domain} from the pool ${pool}` : `mail from ${ip}`
  const resume = (): void =>
    runLater(`What holds back ${mail} to ${route} will be lifted.`, async () => {
      const { paths } = await act<{ paths: number }>('POST', '/admin/paths/resume', { ip, pool, route, domain })
      again()
      return `${paths} paths are open again.`
    })
  return html`<button onClick=${resume}>Resume</button>`
}

const SERIES: readonly CountSeries[] = [
  { name: 'Delivered', kind: 'good', counts: 'delivered' },
  { name: 'Deferred', kind: 'other', counts: 'deferred' },
  { name: 'Bounced', kind: 'bad', counts: 'bounced' },
]

/** The same picture for each provider, the largest first. */
function Multiples({ rows, after }: { rows: StatisticsRowJson[]; after: number }): VNode {
  const byName = Map.groupBy(rows, ({ key }) => key)
  const sum = (of: StatisticsRowJson[], name: 'delivered' | 'bounced'): number =>
    of.reduce((total, row) => total + row[name], 0)
  const sorted = [...byName].sort(([, left], [, right]) => sum(right, 'delivered') - sum(left, 'delivered'))
  if (sorted.length === 0) return html`<p class="empty">No mail in the last ${DAYS} days.</p>`
  return html`<div class="multiples">
    ${sorted.map(([name, of]) => {
      const delivered = sum(of, 'delivered')
      const bars = barsSince(after, 'day', of, SERIES)
      return html`<div key=${name}><${Bars} title=${`${name}: ${share(delivered, delivered + sum(of, 'bounced'))} accepted`} series=${SERIES} bars=${bars} /></div>`
    })}
  </div>`
}
