/** The IPs by pool; and one with its warmup as a picture, its mail by provider, and what can be done with it. */
import type { IpJson, IpNoteJson, IpStatisticsJson, SendDayJson, WarmupForecastJson } from '../../api/ip.ts'
import { act } from '../parts/api.ts'
import { Bars, type Bar } from '../parts/bars.ts'
import { useData, useEvery, useList } from '../parts/data.ts'
import { number, share, shellWord, Time, timeLabel } from '../parts/format.ts'
import { html, useState, type VNode } from '../parts/html.ts'
import { Link, place } from '../parts/place.ts'
import { run, runLater } from '../parts/said.ts'
import { Facts, Page, Shown, ShownList, State, Table } from '../parts/ui.ts'
import { mayAct, mayAdminister } from '../parts/who.ts'
import { Used } from './home.ts'

export default function Ips(): VNode {
  const [, ip] = place.value.segments
  return ip === undefined ? html`<${List} />` : html`<${One} key=${ip} ip=${ip} />`
}

const COLUMNS = [
  { head: 'IP', cell: ({ ip }: IpJson) => html`<${Link} to=${`ips/${encodeURIComponent(ip)}`}>${ip}<//>` },
  { head: 'Pool', cell: ({ pool }: IpJson) => pool },
  { head: 'State', cell: ({ status }: IpJson) => html`<${State} of=${status} />` },
  { head: 'Name (PTR)', cell: ({ ptr }: IpJson) => ptr.value ?? ptr.status.replaceAll('_', ' ') },
  { head: 'Blocklists', cell: ({ blocklists }: IpJson) => listedOn(blocklists) },
  { head: 'Today', cell: ({ warmup }: IpJson) => html`<${Used} of=${warmup} />` },
  { head: 'Why', cell: ({ reason, warmup }: IpJson) => reason ?? warmup?.hold_reason ?? '' },
]

function List(): VNode {
  const ips = useList<IpJson>('/ips')
  useEvery(30, ips)
  return html`<${Page} title="IPs" command="sternpost ip list">
    <${ShownList}
      of=${ips}
      empty="pools.yaml names no IP yet."
      show=${(entries: IpJson[]) => html`<${Table} caption="IPs" columns=${COLUMNS} rows=${entries} keyOf=${({ ip }: IpJson) => ip} />`}
    />
  <//>`
}

function listedOn(blocklists: IpJson['blocklists']): unknown {
  const listed = blocklists.filter((each) => each.listed === true).map(({ zone }) => zone)
  return listed.length === 0 ? 'on none' : html`<span class="state bad">✕ on ${listed.join(', ')}</span>`
}

function One({ ip }: { ip: string }): VNode {
  const path = `/ips/${encodeURIComponent(ip)}`
  const found = useData<IpJson>(path)
  return html`<${Page} title=${ip} command=${`sternpost ip show ${shellWord(ip)}`} acts=${found.data !== null && html`<${Acts} of=${found.data} again=${found.again} /> <${SuspendActs} of=${found.data} again=${found.again} />`}>
    <${Shown} of=${found} show=${(view: IpJson) => html`<${Summary} of=${view} />`} />
    ${mayAdminister() && html`<${Warmup} ip=${ip} />`}
    <${Statistics} path=${path} />
    <${Shown} of=${found} show=${({ warmup }: IpJson) => warmup !== null && html`<${Forecast} path=${path} />`} />
  <//>`
}

function Summary({ of: view }: { of: IpJson }): VNode {
  const { warmup } = view
  return html`<${Facts}
    of=${[
      ['State', html`<${State} of=${view.status} />${view.reason !== null && ` ${view.reason} (${view.changed_by})`}`],
      ['Pool', view.pool],
      ['Announces itself as', view.hostname],
      ['Name (PTR)', `${view.ptr.value ?? '–'}: ${view.ptr.status.replaceAll('_', ' ')}`],
      ['Blocklists', listedOn(view.blocklists)],
      ['Until', html`<${Time} at=${view.until} />`],
      ...(warmup === null
        ? []
        : ([
            ['Warmup', `stage ${warmup.stage} of ${warmup.stages}, curve ${warmup.curve}, ${warmup.percent} %`],
            ['Today', html`<${Used} of=${warmup} />`],
            ['Held by', warmup.hold_reason ?? 'nothing'],
            ['Complete', html`<${Time} at=${warmup.estimated_completion} />`],
          ] as const)),
    ]}
  />`
}

/** Planned and sent by day, with a mark and its sentence where a gate held the warmup. */
function Warmup({ ip }: { ip: string }): VNode {
  const days = useData<SendDayJson[]>(`/admin/ips/${encodeURIComponent(ip)}/days`, { past: 30, ahead: 14 })
  const notes = useData<IpNoteJson[]>(`/admin/ips/${encodeURIComponent(ip)}/audit`, { limit: 100 })
  return html`<section>
    <h2>Warmup</h2>
    <${Shown}
      of=${days}
      show=${(found: SendDayJson[]) => {
        const bars = found.map(({ date, sent }): Bar => ({
          label: date,
          values: [sent ?? 0],
          note: noteOf(notes.data ?? [], date),
        }))
        const line = { name: 'Planned', values: found.map(({ planned }) => planned) }
        return html`<${Bars} title="Mail by day" series=${[{ name: 'Sent', kind: 'good' }]} bars=${bars} line=${line} />`
      }}
    />
    <${Shown}
      of=${notes}
      show=${(found: IpNoteJson[]) =>
        html`<ol class="timeline">
          ${found
            .slice(0, 20)
            .map(
              ({ at, actor, action, from_state: from, to_state: to, reason }) =>
                html`<li key=${`${at} ${action}`}><${Time} at=${at} /> <strong>${action}</strong> ${from === to ? '' : `${from} → ${to}`} <span class="quiet">${reason ?? ''} (${actor})</span></li>`,
            )}
        </ol>`}
    />
  </section>`
}

function noteOf(notes: readonly IpNoteJson[], date: string): string | null {
  const note = notes.find(({ day, action, reason }) => day === date && reason !== null && action !== 'advance')
  return note === undefined ? null : `${note.action}: ${note.reason}`
}

type ByProvider = IpStatisticsJson['by_provider'][number]

const PROVIDER_COLUMNS = [
  { head: 'Provider', cell: ({ isp }: ByProvider) => isp },
  { head: 'Delivered', cell: ({ delivered }: ByProvider) => number(delivered), isNumber: true },
  {
    head: 'Accepted share',
    cell: ({ delivered, bounced }: ByProvider) => share(delivered, delivered + bounced),
    isNumber: true,
  },
  { head: 'Deferred', cell: ({ deferred }: ByProvider) => number(deferred), isNumber: true },
  { head: 'Bounced', cell: ({ bounced }: ByProvider) => number(bounced), isNumber: true },
  { head: 'Complaints', cell: ({ complained }: ByProvider) => number(complained), isNumber: true },
]

function Statistics({ path }: { path: string }): VNode {
  const found = useData<IpStatisticsJson>(`${path}/stats`, { window: '7d' })
  return html`<section>
    <h2>Mail of the last 7 days</h2>
    <${Shown}
      of=${found}
      show=${({ series, interval, by_provider: providers }: IpStatisticsJson) => {
        const bars = series.map(({ t, delivered, deferred, bounced }): Bar => ({
          label: timeLabel(t, interval),
          values: [delivered, deferred, bounced],
        }))
        const kinds = [
          { name: 'Delivered', kind: 'good' },
          { name: 'Deferred', kind: 'other' },
          { name: 'Bounced', kind: 'bad' },
        ]
        return html`<${Bars} title="Mail over time" series=${kinds} bars=${bars} />
          ${providers.length > 0 && html`<${Table} caption="By mailbox provider" columns=${PROVIDER_COLUMNS} rows=${providers} keyOf=${({ isp }: ByProvider) => isp} />`}`
      }}
    />
  </section>`
}

/** When a mailing of this size would be through. */
function Forecast({ path }: { path: string }): VNode {
  const [power, setPower] = useState(4)
  const recipients = Math.round(10 ** power)
  const forecast = useData<WarmupForecastJson>(`${path}/warmup/forecast`, { recipients })
  return html`<section>
    <h2>Forecast</h2>
    <label>
      A mailing to <strong>${number(recipients)}</strong> recipients
      <input type="range" min="2" max="6" step="0.25" value=${power} onInput=${(event: InputEvent) => setPower(Number((event.target as HTMLInputElement).value))} />
    </label>
    <${Shown}
      of=${forecast}
      show=${({ finish_at: finish, fits_max_defer: fits, days }: WarmupForecastJson) =>
        html`<p>
            ${finish === null ? 'would not be through within 400 days' : html`would be through by <${Time} at=${finish} />`}${fits ? '.' : ', later than the pool lets mail wait.'}
          </p>
          <${Bars} title="Planned by day" series=${[{ name: 'Planned', kind: 'good' }]} bars=${days.map(({ date, planned, limit }): Bar => ({ label: date, values: [planned], note: limit }))} />`}
    />
  </section>`
}

/** All mail of the IP; what its paths are held back by is lifted with it. */
function SuspendActs({ of: { ip, status }, again }: { of: IpJson; again: () => void }): VNode {
  const path = `/admin/ips/${encodeURIComponent(ip)}`
  const suspend = (): void =>
    runLater(`Nothing will leave from ${ip} until it is resumed.`, async () => {
      await act('POST', `${path}/suspend`, { reason: 'in the console' })
      again()
      return `${ip} is suspended.`
    })
  const resume = (): Promise<void> =>
    run(async () => {
      await act('POST', `${path}/resume`, {})
      again()
      return `${ip} sends again.`
    })
  if (!mayAct('admin')) return html``
  return status === 'suspended'
    ? html`<button onClick=${resume}>End the suspension</button>`
    : html`<button onClick=${suspend}>Suspend</button>`
}

function Acts({ of: { ip, status }, again }: { of: IpJson; again: () => void }): VNode {
  const path = `/ips/${encodeURIComponent(ip)}/warmup`
  const post = async (verb: string, done: string): Promise<string> => {
    await act('POST', verb === '' ? path : `${path}/${verb}`, {})
    again()
    return done
  }
  if (!mayAct('ips')) return html``
  return html`${status === 'cold' && html`<button onClick=${() => run(() => post('', 'The warmup has begun.'))}>Start the warmup</button>`}
  ${status === 'warming' && html`<button onClick=${() => run(() => post('pause', 'The warmup is paused.'))}>Pause</button>`}
  ${status === 'paused' && html`<button onClick=${() => run(() => post('resume', 'The warmup goes on.'))}>Resume</button>`}
  ${
    (status === 'warming' || status === 'paused') &&
    html`<button onClick=${() => runLater(`${ip} will send without a cap.`, () => post('complete', 'The warmup is complete.'))}>Complete</button>`
  }`
}
