/**
 * The queue in groups, each a link to what is in it, and acts on what is chosen. A group is named by the API as the
 * filter that means it: what a row shows is what the acts behind its link change.
 */
import type { QueueGroupJson } from '../../api/queue.ts'
import { act } from '../parts/api.ts'
import { useEvery, useList } from '../parts/data.ts'
import { number, shellWord, Time } from '../parts/format.ts'
import { html, useState, type VNode } from '../parts/html.ts'
import { Link, place } from '../parts/place.ts'
import { run, runLater } from '../parts/said.ts'
import { Dialog, Page, ShownList, Table } from '../parts/ui.ts'
import { mayAct } from '../parts/who.ts'

const GROUPINGS = {
  provider: 'Mailbox provider',
  recipient_domain: 'Recipient domain',
  domain: 'Sending domain',
  pool: 'Pool',
} as const

type Grouping = keyof typeof GROUPINGS
/** What is left out does not restrict. */
type Filter = Partial<Record<Grouping, string>>

const NAMES = Object.keys(GROUPINGS) as Grouping[]

export default function Queue(): VNode {
  const { query } = place.value
  const filter: Filter = Object.fromEntries(
    [...query].filter(([name, value]) => Object.hasOwn(GROUPINGS, name) && value !== ''),
  )
  const given = Object.entries(filter) as [Grouping, string][]
  const flags = given.map(([name, value]) => ` --${name.replace('_', '-')} ${shellWord(value)}`)
  return html`<${Page} title="Queue" command=${`sternpost queue list${flags.join('')}`}>
    <p class="quiet">
      ${given.length === 0 ? 'All waiting mail.' : html`${given.map(([name, value]) => `${GROUPINGS[name]}: ${value}. `)}<${Link} to="queue">Show all<//>`}
    </p>
    ${mayAct('admin') && html`<${Acts} key=${flags.join('')} filter=${filter} />`}
    ${NAMES.map((by) => html`<${Groups} key=${by} by=${by} title=${`By ${GROUPINGS[by].toLowerCase()}`} filter=${filter} />`)}
    ${filter.provider !== undefined && html`<p><${Link} to=${`messages?q=${encodeURIComponent(`provider:${filter.provider} status:deferred`)}`}>Show the messages that wait after an attempt<//></p>`}
  <//>`
}

interface GroupsProps {
  by: Grouping
  title: string
  filter?: Filter
}

/** What has no name yet has no link: no filter means it. */
export function Groups({ by, title, filter = {} }: GroupsProps): VNode {
  const groups = useList<QueueGroupJson>('/admin/queue', { by, ...filter })
  useEvery(10, groups)
  const linkTo = (name: string): string => `queue?${new URLSearchParams({ ...filter, [by]: name }).toString()}`
  const columns = [
    {
      head: GROUPINGS[by],
      cell: ({ name }: QueueGroupJson) =>
        name === null ? 'not known yet' : html`<${Link} to=${linkTo(name)}>${name}<//>`,
    },
    { head: 'Waiting', cell: ({ waiting }: QueueGroupJson) => number(waiting), isNumber: true },
    { head: 'Due now', cell: ({ due }: QueueGroupJson) => number(due), isNumber: true },
    { head: 'Held', cell: ({ held }: QueueGroupJson) => number(held), isNumber: true },
    { head: 'Oldest', cell: (group: QueueGroupJson) => html`<${Time} at=${group.oldest_accepted_at} relative />` },
  ]
  return html`<section>
    <h2>${title}</h2>
    <${ShownList}
      of=${groups}
      empty="No mail waits."
      show=${(entries: QueueGroupJson[]) =>
        html`<${Table} caption=${title} columns=${columns} rows=${entries} keyOf=${({ name }: QueueGroupJson) => name ?? ''} />`}
    />
  </section>`
}

const ACTS = {
  retry: { title: 'Retry now', will: 'will be tried now', done: 'are tried now' },
  hold: { title: 'Hold', will: 'will be held until somebody releases them', done: 'are held' },
  release: { title: 'Release', will: 'will be released', done: 'are released' },
  drop: { title: 'Drop', will: 'will never be sent', done: 'were dropped' },
} as const

type Action = keyof typeof ACTS

/** The count first; then ten seconds in which it can be undone. What was asked goes with the filter: each has its own. */
function Acts({ filter }: { filter: Filter }): VNode {
  const [asked, setAsked] = useState<{ action: Action; messages: number } | null>(null)
  const request = (action: Action, isDryRun: boolean): Promise<{ messages: number }> =>
    act('POST', '/admin/queue/actions', { action, filter, dry_run: isDryRun })
  const count = (action: Action): Promise<void> =>
    run(async () => {
      const { messages } = await request(action, true)
      if (messages > 0) setAsked({ action, messages })
      return messages === 0 ? 'No message is like that.' : `${number(messages)} messages.`
    })
  const confirm = ({ action, messages }: { action: Action; messages: number }): void => {
    setAsked(null)
    const { will, done } = ACTS[action]
    runLater(
      `${number(messages)} messages ${will}.`,
      async () => `${number((await request(action, false)).messages)} messages ${done}.`,
    )
  }
  return html`<div class="acts">
    ${Object.entries(ACTS).map(([action, { title }]) => html`<button key=${action} onClick=${() => count(action as Action)}>${title}</button>`)}
    ${
      asked !== null &&
      html`<${Dialog} title=${ACTS[asked.action].title} onClose=${() => setAsked(null)}>
      <p>${number(asked.messages)} messages ${ACTS[asked.action].will}.</p>
      <form method="dialog">
        <button class="main" onClick=${() => confirm(asked)}>${ACTS[asked.action].title}</button>
        <button>Leave them</button>
      </form>
    <//>`
    }
  </div>`
}
