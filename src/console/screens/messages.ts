/** Messages: one query box, new rows above a line, and a message with all that is known of it. */
import type { ListedMessageJson } from '../../api/message.ts'
import { askPage, type Parameters } from '../parts/api.ts'
import { useList } from '../parts/data.ts'
import { Time } from '../parts/format.ts'
import { html, useCallback, useEffect, useMemo, useRef, useState, type VNode } from '../parts/html.ts'
import { useLive } from '../parts/live.ts'
import { go, Link, place } from '../parts/place.ts'
import { Copy, Page, ShownList, State, Table } from '../parts/ui.ts'
import { Message } from './message.ts'
import { namedMessage, readQuery } from './message-query.ts'

/** So many are counted; whoever looks away costs nothing from then on. */
const MOST_NEWS = 100

export default function Messages(): VNode {
  const [, id] = place.value.segments
  return id === undefined ? html`<${Search} />` : html`<${Message} key=${id} id=${id} />`
}

function Search(): VNode {
  const text = place.value.query.get('q') ?? ''
  // Once for each time that somebody asks: a span before now is another time with each second.
  const [turn, setTurn] = useState(0)
  const reading = useMemo(() => readQuery(text), [text, turn])
  const parameters = 'problem' in reading ? null : reading.parameters
  const found = useList<ListedMessageJson>(parameters === null ? null : '/email', parameters ?? {})
  const { count, isFull, forget } = useNews(found.entries, parameters)
  const again = (): void => {
    forget()
    if (JSON.stringify(readQuery(text)) === JSON.stringify(reading)) found.again()
    else setTurn(turn + 1)
  }
  const submit = (event: SubmitEvent): void => {
    event.preventDefault()
    const wanted = String(new FormData(event.target as HTMLFormElement).get('q')).trim()
    const message = namedMessage(wanted)
    if (wanted === text) again()
    else if (message !== undefined) go(`messages/${message}`)
    else go(wanted === '' ? 'messages' : `messages?q=${encodeURIComponent(wanted)}`)
  }
  return html`<${Page} title="Messages" command=${`sternpost message list${'command' in reading ? reading.command : ''}`}>
    <form role="search" onSubmit=${submit}>
      <label for="query">Address, words of the subject, message id, Message-ID, or <code>to: from: subject: status: tag:key=value ip: provider: after: before:</code></label>
      <div class="row">
        <input id="query" name="q" data-query defaultValue=${text} key=${text} autocomplete="off" spellcheck="false" />
        <button class="main">Find</button>
      </div>
    </form>
    ${'problem' in reading && html`<p class="problem" role="alert">${reading.problem}</p>`}
    <p aria-live="polite">${count > 0 && html`<button onClick=${again}>${count}${isFull && ' or more'} new: show</button>`}</p>
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

/**
 * What happened to messages that are not among `entries`: told as it happens, and asked for with each opening of the
 * stream, by the same `parameters` (null: by none).
 */
function useNews(entries: readonly ListedMessageJson[] | null, parameters: Parameters | null) {
  const [news, setNews] = useState<ReadonlySet<string>>(new Set())
  const forget = useCallback(() => setNews(new Set()), [])
  useEffect(forget, [parameters])
  // null: what is known is still being asked for.
  const known = useRef<ReadonlySet<string> | null>(null)
  known.current = entries === null ? null : new Set(entries.map((each) => each.message_id))
  const note = useCallback((ids: readonly string[]) => {
    const fresh = ids.filter((id) => known.current?.has(id) !== true)
    if (fresh.length > 0) setNews((old) => new Set([...old, ...fresh]))
  }, [])
  const asked = useRef(parameters)
  asked.current = parameters
  const tell = useCallback(({ data }: { data: Record<string, unknown> }) => note([String(data['message_id'])]), [note])
  const openedUnknown = useRef(false)
  const catchUp = useCallback(() => {
    const mine = asked.current
    openedUnknown.current = known.current === null
    if (mine === null || known.current === null) return
    askPage<ListedMessageJson>('/email', mine).then(
      ({ data }) => mine === asked.current && note(data.map((each) => each.message_id)),
      () => undefined,
    )
  }, [note])
  useEffect(() => {
    if (openedUnknown.current) catchUp()
  }, [entries === null])
  const count = [...news].filter((id) => known.current?.has(id) !== true).length
  const isFull = count >= MOST_NEWS
  useLive(null, isFull ? null : tell, catchUp)
  return { count, isFull, forget }
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
