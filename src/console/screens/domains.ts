/** Sending domains: each DNS record as it should be and as it is, asked again while somebody looks. */
import type { AuthenticationJson, DmarcSourceJson } from '../../api/authentication.ts'
import type { DnsRecordJson, DomainJson } from '../../api/domain.ts'
import { act } from '../parts/api.ts'
import { html, useCallback, useState, type VNode } from '../parts/html.ts'
import { useData, useEvery, useList } from '../parts/data.ts'
import { number, shellWord, Time } from '../parts/format.ts'
import { useForm } from '../parts/once.ts'
import { goFromHere, Link, place } from '../parts/place.ts'
import { run, runLater } from '../parts/said.ts'
import { Copy, Facts, Page, Shown, ShownList, State, Table } from '../parts/ui.ts'
import { mayAct } from '../parts/who.ts'

export default function Domains(): VNode {
  const [, name] = place.value.segments
  return name === undefined ? html`<${List} />` : html`<${One} key=${name} name=${name} />`
}

const COLUMNS = [
  { head: 'Domain', cell: ({ domain }: DomainJson) => html`<${Link} to=${`domains/${domain}`}>${domain}<//>` },
  { head: 'State', cell: ({ status }: DomainJson) => html`<${State} of=${status} />` },
  {
    head: 'Records',
    cell: ({ records }: DomainJson) =>
      `${records.filter(({ status }) => status === 'verified').length} of ${records.length} are right`,
  },
  { head: 'Pool', cell: ({ ip_pool: pool }: DomainJson) => pool },
  { head: 'Checked', cell: (domain: DomainJson) => html`<${Time} at=${domain.last_checked_at} relative />` },
]

function List(): VNode {
  // Left out, those that may not send would be missing.
  const domains = useList<DomainJson>('/domains', { status: 'all' })
  const add = useForm(async (fields, once) => {
    const domain = String(fields.get('domain')).trim()
    const goOn = goFromHere()
    await act('POST', '/domains', { domain }, once)
    goOn(`domains/${encodeURIComponent(domain)}`)
    return `${domain} was added. Its records are below.`
  })
  return html`<${Page} title="Domains" command="sternpost domain list">
    ${
      mayAct('domains') &&
      html`<form class="inline" onSubmit=${add}>
      <label>A domain of yours <input name="domain" required placeholder="acme.com" autocomplete="off" spellcheck="false" /></label>
      <button class="main">Add</button>
    </form>`
    }
    <${ShownList}
      of=${domains}
      empty="No domain yet. Add the one that your mail comes from."
      show=${(entries: DomainJson[]) => html`<${Table} caption="Sending domains" columns=${COLUMNS} rows=${entries} keyOf=${({ domain }: DomainJson) => domain} />`}
    />
  <//>`
}

const ASKED_EVERY_SECONDS = 20

function One({ name }: { name: string }): VNode {
  const path = `/domains/${encodeURIComponent(name)}`
  const domain = useData<DomainJson>(path)
  const isRight = domain.data?.records.every(({ status }) => status === 'verified') ?? true
  const check = useCallback(async () => {
    await act('POST', `${path}/verify`, {})
    domain.again()
  }, [path, domain.again])
  const checkQuietly = useCallback(() => {
    if (!isRight && mayAct('domains')) check().catch(() => undefined)
  }, [isRight, check])
  useEvery(ASKED_EVERY_SECONDS, { poll: checkQuietly })
  return html`<${Page} title=${name} command=${`sternpost domain show ${shellWord(name)}`} acts=${mayAct('domains') && html`<${Acts} path=${path} name=${name} again=${domain.again} check=${check} />`}>
    <${Shown} of=${domain} show=${(found: DomainJson) => html`<${Summary} of=${found} /> <${Records} of=${found.records} />`} />
    ${!isRight && html`<p class="quiet">The DNS is asked again every ${ASKED_EVERY_SECONDS} seconds while this page is open.</p>`}
    <p><a href=${`/v1${path}/zonefile`} target="_blank" rel="noreferrer">Zone file</a></p>
    <${Reports} path=${path} />
  <//>`
}

function Summary({ of: domain }: { of: DomainJson }): VNode {
  return html`<${Facts}
    of=${[
      ['State', html`<${State} of=${domain.status} />`],
      ['May send', domain.can_send ? 'yes' : 'not yet: see the records'],
      ['Checked', html`<${Time} at=${domain.last_checked_at} relative />`],
      ['Next check', html`<${Time} at=${domain.next_check_at} relative />`],
      ['Return path', domain.return_path],
      [
        'Tracking',
        `${domain.tracking.domain}: opens ${domain.tracking.opens ? 'on' : 'off'}, clicks ${domain.tracking.clicks ? 'on' : 'off'}`,
      ],
      ['Pool', domain.ip_pool],
    ]}
  />`
}

const RECORD_COLUMNS = [
  {
    head: 'State',
    cell: ({ status, required }: DnsRecordJson) => html`<${State} of=${status} />${required ? '' : ' (advised)'}`,
  },
  { head: 'For', cell: ({ purpose }: DnsRecordJson) => purpose.replace('_', ' ') },
  { head: 'Type', cell: ({ type }: DnsRecordJson) => type },
  {
    head: 'Name',
    cell: ({ host, name }: DnsRecordJson) => html`<${Copy} text=${host} /><br /><span class="quiet">${name}</span>`,
  },
  {
    head: 'Value',
    cell: ({ value, value_chunks: chunks = [] }: DnsRecordJson) =>
      html`<${Copy} text=${value} />${chunks.length > 1 && html`<${Strings} of=${chunks} />`}`,
  },
  {
    head: 'Found',
    cell: ({ found, error, hint }: DnsRecordJson) =>
      html`${found.map((text) => html`<code key=${text}>${text}</code> `)}${error !== null && html`<p>${error}</p>`}${hint !== null && html`<p class="hint">${hint}</p>`}`,
  },
]

/** As some hosters want a long value. */
function Strings({ of }: { of: readonly string[] }): VNode {
  return html`<details>
    <summary>As strings of at most 255</summary>
    <${Copy} text=${of.map((text) => `"${text}"`).join(' ')} />
  </details>`
}

function Records({ of }: { of: DnsRecordJson[] }): VNode {
  return html`<section>
    <h2>DNS records</h2>
    <${Table} caption="DNS records" columns=${RECORD_COLUMNS} rows=${of} keyOf=${({ purpose, name, value }: DnsRecordJson) => `${purpose} ${name} ${value}`} />
  </section>`
}

const SOURCE_COLUMNS = [
  { head: 'From IP', cell: ({ ip, known }: DmarcSourceJson) => `${ip ?? 'several'}${known ? '' : ' (not yours)'}` },
  { head: 'Messages', cell: ({ messages }: DmarcSourceJson) => number(messages), isNumber: true },
  { head: 'Passed', cell: ({ passed }: DmarcSourceJson) => number(passed), isNumber: true },
  { head: 'Failed', cell: ({ failed }: DmarcSourceJson) => number(failed), isNumber: true },
  { head: 'Last', cell: ({ last_day: day }: DmarcSourceJson) => day },
]

/** What receivers report. Anybody can send such a report: it is a claim. */
function Reports({ path }: { path: string }): VNode {
  const reports = useData<AuthenticationJson>(`${path}/authentication`)
  return html`<section>
    <h2>Who sends as it</h2>
    <${Shown}
      of=${reports}
      show=${({ hint, dmarc: { sources, reporters } }: AuthenticationJson) =>
        html`${hint !== null && html`<p class="hint">${hint}</p>`}
          ${
            sources.length === 0
              ? html`<p class="empty">No DMARC report has come yet.</p>`
              : html`<p class="quiet">As ${reporters.join(', ')} report.</p>
                <${Table} caption="Sources in DMARC reports" columns=${SOURCE_COLUMNS} rows=${sources} keyOf=${({ ip }: DmarcSourceJson) => ip ?? ''} />`
          }`}
    />
  </section>`
}

interface ActsProps {
  path: string
  name: string
  again: () => void
  check: () => Promise<void>
}

function Acts({ path, name, again, check }: ActsProps): VNode {
  const checkNow = (): Promise<void> =>
    run(async () => {
      await check()
      return 'The DNS was asked.'
    })
  const [link, setLink] = useState<string | null>(null)
  const makeLink = (): Promise<void> =>
    run(async () => {
      setLink((await act<{ url: string }>('POST', `${path}/link`, {})).url)
      return 'Whoever has the link sees these records for 7 days, and nothing else.'
    })
  const rotate = (): Promise<void> =>
    run(async () => {
      await act('POST', `${path}/dkim/rotate`, {})
      again()
      return 'A new DKIM key is there: publish its record, and it signs once it is seen.'
    })
  const remove = (): Promise<void> =>
    run(async () => {
      const goOn = goFromHere()
      const { queued_messages: waiting } = await act<{ queued_messages: number }>('DELETE', `${path}?dry_run=true`)
      runLater(`${name} will be removed; ${waiting} of its messages wait and stay.`, async () => {
        await act('DELETE', path)
        goOn('domains')
        return `${name} was removed.`
      })
      return `${waiting} messages of it wait.`
    })
  return html`<button onClick=${checkNow}>Check now</button> <button onClick=${rotate}>Rotate the DKIM key</button>
    <button onClick=${makeLink}>Link for whoever runs the DNS</button> <button onClick=${remove}>Remove</button>
    ${link !== null && html`<p><${Copy} text=${link} /></p>`}`
}
