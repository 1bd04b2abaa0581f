/** Messages: one query box, new rows above a line, and a message with all that is known of it. */
import type { ListedMessageJson } from '../../api/message.ts'
import { useList } from '../parts/data.ts'
import { Time } from '../parts/format.ts'
import { html, useCallback, useRef, useState, type VNode } from '../parts/html.ts'
import { useLive } from '../parts/live.ts'
import { go, Link, place } from '../parts/place.ts'
import { Copy, Page, ShownList, State, Table } from '../parts/ui.ts'
import { Message } from './message.ts'
import { readQuery } from './message-query.ts'

/** So many are counted; whoever looks away costs nothing from then on. */
const MOST_NEWS = 100

export default function Messages(): VNode {
  const [, id] = place.value.segments
  return id === undefined ? html`<${Search} />` : html`<${Message} key=${id} id=${id} />`
}

function Search(): VNode {
  const text = place.value.query.get('q') ?? ''
  const reading = readQuery(text)
  const found = useList<ListedMessageJson>(
    'problem' in reading ? null : '/email',
    'problem' in reading ? {} : reading.parameters,
  )
  const [news, setNews] = useState<ReadonlySet<string>>(new Set())
  const known = useRef<ListedMessageJson[]>([])
  known.current = found.entries ?? []
  const note = useCallback(({ data }: { data: Record<string, unknown> }) => {
    const id = String(data['message_id'])
    if (!known.current.some((each) => each.message_id === id)) setNews((old) => new Set([...old, id]))
  }, [])
  const isFull = news.size >= MOST_NEWS
  useLive(null, isFull ? null : note)
  const again = (): void => {
    setNews(new Set())
    found.again()
  }
  const submit = (event: SubmitEvent): void => {
    event.preventDefault()
    const wanted = String(new FormData(event.target as HTMLFormElement).get('q')).trim()
    if (/^msg_\w+$/.test(wanted)) go(`messages/${wanted}`)
    else go(wanted === '' ? 'messages' : `messages?q=${encodeURIComponent(wanted)}`)
    setNews(new Set())
  }
  return html`<${Page} title="Messages" command=${`sternpost message list${'command' in reading ? reading.command : ''}`}>
    <form role="search" onSubmit=${submit}>
      <label for="query">Address, words of the subject, message id, or <code>to: from: subject: status: tag:key=value ip: provider: after: before:</code></label>
      <div class="row">
        <input id="query" name="q" data-query defaultValue=${text} key=${text} autocomplete="off" spellcheck="false" />
        <button class="main">Find</button>
      </div>
    </form>
    ${'problem' in reading && html`<p class="problem" role="alert">${reading.problem}</p>`}
    <p aria-live="polite">${news.size > 0 && html`<button onClick=${again}>${news.size}${isFull && ' or more'} new: show</button>`}</p>
    ${
      !('problem' in reading) &&
      html`<${ShownList}
      of=${found}
      empty=${html`<${NoMessages} isSearch=${text !== ''} />`}
      show=${(entries: ListedMessageJson[]) =>
        html`<${Table} caption="Messages, newest first" columns=${COLUMNS} rows=${entries} keyOf=${(each: ListedMessageJson) => each.message_id} />`}
    />`
    }
  <//>`
}

const COLUMNS = [
  { head: 'Accepted', cell: (each: ListedMessageJson) => html`<${Time} at=${each.created_at} relative />` },
  {
    head: 'To',
    cell: ({ message_id: id, recipient }: ListedMessageJson) => html`<${Link} to=${`messages/${id}`}>${recipient}<//>`,
  },
  { head: 'Subject', cell: ({ subject }: ListedMessageJson) => subject },
  { head: 'State', cell: ({ state }: ListedMessageJson) => html`<${State} of=${state} />` },
  { head: 'From', cell: ({ from }: ListedMessageJson) => from },
  { head: 'Provider', cell: ({ isp }: ListedMessageJson) => isp ?? '' },
]

function NoMessages({ isSearch }: { isSearch: boolean }): VNode {
  if (isSearch) return html`<p>No message is like that.</p>`
  const curl = `curl -s ${location.origin}/v1/email/send -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' -d '{"to":"you@example.com","from": "you@your-domain","subject":"Hello","text":"Hi"}'`
  return html`<p>No message yet. This sends the first one:</p>
    <p><${Copy} text=${curl} /></p>`
}
