/** The sandbox's inbox: mail as it arrives, shown as people would see it; its webhooks; clock and replies. */
import type { MessageJson } from '../../api/message.ts'
import { act, askPage, problemText, type Parameters } from '../parts/api.ts'
import { useData, useEvery } from '../parts/data.ts'
import { size, Time } from '../parts/format.ts'
import { html, useEffect, useState, type VNode } from '../parts/html.ts'
import { useForm } from '../parts/once.ts'
import { Link, place } from '../parts/place.ts'
import { run } from '../parts/said.ts'
import { Headers, Preview } from '../parts/mail.ts'
import { whileSeen } from '../parts/seen.ts'
import { Copy, Facts, Page, Shown, State, Table, Waiting } from '../parts/ui.ts'

interface InboxMail {
  id: string
  from: string | null
  to: string[]
  subject: string
  envelope: { from: string; to: string[] }
  received_at: number
  size: number
  /** null: it is none of ours. */
  message_id: string | null
  dkim: { result: string; domain: string | null; selector: string | null }
}

interface OpenedMail extends InboxMail {
  message_id_header: string | null
  headers: { name: string; value: string }[]
  text: string | null
  html: string | null
  transcript: string[]
  attachments: { n: number; name: string | null; content_type: string; size: number; url: string }[]
}

export default function Inbox(): VNode {
  const [, id] = place.value.segments
  return id === undefined ? html`<${List} />` : html`<${One} key=${id} id=${id} />`
}

const WAITED_SECONDS = 25
const LOST_MILLISECONDS = 5_000
/** Of one answer; a full one may have left out what lies between. */
const PAGE = 50
const MOST_SHOWN = 200

/**
 * Asks for what came behind the newest: the answer comes as soon as there is any. Begins anew when the page is seen
 * again, and after a failure.
 */
function useInbox(): { mails: InboxMail[] | null; problem: string | null; empty: () => void } {
  const [mails, setMails] = useState<InboxMail[] | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  useEffect(() => {
    const follow = async (ended: AbortSignal): Promise<never> => {
      let newest: string | null = null
      for (let isFirst = true; ; isFirst = false) {
        const wait = isFirst ? null : `${WAITED_SECONDS}s`
        const asked: Parameters = { after: newest, wait, limit: PAGE }
        const { data } = await askPage<InboxMail>('/dev/inbox', asked, ended)
        setProblem(null)
        newest = data[0]?.id ?? newest
        if (isFirst || data.length === PAGE) setMails(data)
        else if (data.length > 0) setMails((old) => [...data, ...(old ?? [])].slice(0, MOST_SHOWN))
      }
    }
    return whileSeen(() => {
      const ended = new AbortController()
      let timer: ReturnType<typeof setTimeout> | undefined
      const begin = (): void => {
        follow(ended.signal).catch((thrown: unknown) => {
          if (ended.signal.aborted) return
          setProblem(problemText(thrown))
          timer = setTimeout(begin, LOST_MILLISECONDS)
        })
      }
      begin()
      return () => {
        ended.abort()
        clearTimeout(timer)
      }
    })
  }, [])
  return { mails, problem, empty: () => setMails([]) }
}

const COLUMNS = [
  { head: 'Received', cell: (mail: InboxMail) => html`<${Time} at=${mail.received_at} relative />` },
  {
    head: 'Subject',
    cell: ({ id, subject }: InboxMail) =>
      html`<${Link} to=${`inbox/${id}`}>${subject === '' ? '(no subject)' : subject}<//>`,
  },
  { head: 'To', cell: ({ envelope }: InboxMail) => envelope.to.join(', ') },
  { head: 'From', cell: ({ from }: InboxMail) => from ?? '' },
  { head: 'DKIM', cell: ({ dkim }: InboxMail) => html`<${State} of=${dkim.result} />` },
  { head: 'Size', cell: (mail: InboxMail) => size(mail.size), isNumber: true },
]

function List(): VNode {
  const { mails, problem, empty } = useInbox()
  const clear = (): Promise<void> =>
    run(async () => {
      await act('DELETE', '/dev/inbox')
      empty()
      return 'The inbox is empty.'
    })
  return html`<${Page} title="Inbox" acts=${html`<button onClick=${clear}>Empty it</button>`}>
    ${problem !== null && html`<p class="problem" role="alert">${problem}</p>`}
    ${mails === null && problem === null && html`<${Waiting} />`}
    ${mails?.length === 0 && html`<${First} />`}
    <div aria-live="polite">
      ${mails !== null && mails.length > 0 && html`<${Table} caption="Captured mail, newest first" columns=${COLUMNS} rows=${mails} keyOf=${({ id }: InboxMail) => id} />`}
    </div>
    <${World} />
  <//>`
}

function First(): VNode {
  const body =
    '{"to":"clicked@simulator.sternpost.test","from": "you@sandbox.test","subject":"Hello","html":"<p>Hi</p>"}'
  const curl = `curl -s ${location.origin}/v1/email/send -H "Authorization: Bearer $(cat .sandbox/key)" -H 'Content-Type: application/json' -d '${body}'`
  return html`<div class="empty">
    <p>No mail yet. Paste this in a terminal, in the folder where the sandbox was started, and watch:</p>
    <p><${Copy} text=${curl} /></p>
  </div>`
}

interface ClockJson {
  time: number
  speed: number
  ahead_seconds: number
}

/** The sandbox's clock, and how its receiving server answers. */
function World(): VNode {
  const clock = useData<ClockJson>('/dev/clock')
  useEvery(5, clock)
  const change = (body: object): Promise<void> =>
    run(async () => {
      await act('POST', '/dev/clock', body)
      clock.again()
      return 'The clock was changed.'
    })
  const answer = useForm(async (fields) => {
    await act('PUT', '/dev/replies', [{ to: fields.get('to'), stage: 'rcpt', reply: fields.get('reply'), times: 1 }])
    return 'The next mail to it gets this reply.'
  })
  return html`<section>
    <h2>The sandbox's world</h2>
    <${Shown}
      of=${clock}
      show=${({ time, speed }: ClockJson) =>
        html`<p>
          Its clock says <${Time} at=${time} />, and runs ${speed === 1 ? 'as yours does' : `${speed} times as fast`}.
          <button onClick=${() => change({ advance: '1h' })}>1 hour ahead</button>
          <button onClick=${() => change({ advance: '1d' })}>1 day ahead</button>
          <button onClick=${() => change({ speed: speed === 1 ? 60 : 1 })}>${speed === 1 ? '60 times as fast' : 'As fast as mine'}</button>
        </p>`}
    />
    <form class="inline" onSubmit=${answer}>
      <label>Answer the next mail to <input name="to" required placeholder="ada@example.com" /></label>
      <label>with <input name="reply" required defaultValue="550 5.1.1 No such user" /></label>
      <button>Set</button>
    </form>
  </section>`
}

type View = 'html' | 'text' | 'source' | 'headers' | 'links' | 'dialogue'

function One({ id }: { id: string }): VNode {
  const path = `/dev/inbox/${encodeURIComponent(id)}`
  const mail = useData<OpenedMail>(path)
  return html`<${Page} title="Captured mail" acts=${html`<${Link} to="inbox">Back to the inbox<//>`}>
    <${Shown} of=${mail} show=${(found: OpenedMail) => html`<${Opened} path=${path} of=${found} />`} />
  <//>`
}

/** Gmail shows no more of a mail (its own help pages). */
const CLIPPED_BYTES = 102 * 1024

function Opened({ path, of: mail }: { path: string; of: OpenedMail }): VNode {
  const [view, setView] = useState<View>(mail.html === null ? 'text' : 'html')
  const views: View[] = ['html', 'text', 'source', 'headers', 'links', 'dialogue']
  const { dkim } = mail
  const htmlBytes = new TextEncoder().encode(mail.html ?? '').length
  return html`<${Facts}
      of=${[
        ['Subject', mail.subject],
        ['From', `${mail.from ?? ''} (envelope: ${mail.envelope.from})`],
        ['To', mail.envelope.to.join(', ')],
        ['Received', html`<${Time} at=${mail.received_at} />`],
        ['DKIM', html`<${State} of=${dkim.result} /> ${dkim.domain ?? ''} ${dkim.selector ?? ''}`],
        [
          'Size',
          `${size(mail.size)}${htmlBytes > CLIPPED_BYTES ? `; Gmail cuts off html behind 102 KB, this has ${size(htmlBytes)}` : ''}`,
        ],
        [
          'Attachments',
          html`${mail.attachments.length === 0 ? 'none' : mail.attachments.map(({ n, name, url, size: bytes }) => html`<a key=${n} href=${url}>${name ?? `part ${n}`}</a> (${size(bytes)}) `)}`,
        ],
      ]}
    />
    <div class="choice" role="group" aria-label="What is shown">
      ${views.map((each) => html`<button key=${each} class="plain" aria-pressed=${each === view} onClick=${() => setView(each)}>${each}</button>`)}
    </div>
    <${Shows} path=${path} mail=${mail} view=${view} />
    <${Told} of=${mail} />`
}

function Shows({ path, mail, view }: { path: string; mail: OpenedMail; view: View }): VNode {
  if (view === 'html')
    return mail.html === null
      ? html`<p class="empty">It has no html part.</p>`
      : html`<${Preview} url=${`${path}/html`} />`
  if (view === 'text') return html`<pre tabindex="0">${mail.text ?? 'It has no text part.'}</pre>`
  if (view === 'dialogue') return html`<pre tabindex="0">${mail.transcript.join('\n')}</pre>`
  if (view === 'source') return html`<${Source} path=${path} />`
  if (view === 'links') return html`<${Links} of=${mail.html ?? ''} />`
  return html`<${Headers} of=${mail.headers} />`
}

function Source({ path }: { path: string }): VNode {
  const [text, setText] = useState<string | null>(null)
  useEffect(() => {
    fetch(`${path}/raw`)
      .then((response) => response.text())
      .then(setText, (thrown: unknown) => setText(problemText(thrown)))
  }, [path])
  return text === null ? html`<${Waiting} />` : html`<pre tabindex="0">${text}</pre>`
}

/** An anchor: its target, quoted or not, and what stands in it. */
const ANCHOR = /<a\b[^>]*?\bhref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))[^>]*>([\s\S]*?)<\/a/gi
const ENTITIES: Readonly<Record<string, string>> = { amp: '&', quot: '"', lt: '<', gt: '>', '#39': "'", nbsp: ' ' }

const decoded = (text: string): string => text.replaceAll(/&(\w+|#39);/g, (all, name: string) => ENTITIES[name] ?? all)

/** Where each link leads. Read as text: nothing of the mail becomes a document of ours. */
function Links({ of }: { of: string }): VNode {
  const links = [...of.matchAll(ANCHOR)].map(([, quoted, single, plain, inner = '']) => ({
    text: decoded(inner.replaceAll(/<[^>]*>/g, '')).trim() || '(no text)',
    href: decoded(quoted ?? single ?? plain ?? ''),
  }))
  const columns = [
    { head: 'Text', cell: ({ text }: { text: string }) => text },
    { head: 'Leads to', cell: ({ href }: { href: string }) => html`<code>${href}</code>` },
  ]
  return links.length === 0
    ? html`<p class="empty">It has no links.</p>`
    : html`<${Table} caption="Links" columns=${columns} rows=${links} keyOf=${({ text, href }: { text: string; href: string }) => text + href} />`
}

interface Hook {
  received_at: number
  event: string | null
  signature: string
  body: string
}

/** The message behind the mail, and the webhooks about it. */
function Told({ of: { message_id: id } }: { of: OpenedMail }): VNode {
  const message = useData<MessageJson>(id === null ? null : `/email/${id}`)
  const hooks = useData<Hook[]>('/dev/hooks/inspector')
  useEvery(2, hooks)
  useEvery(2, message)
  const about = (hooks.data ?? []).filter(({ body }) => id !== null && body.includes(id))
  return html`<section>
    <h2>What became of it</h2>
    ${message.data !== null && html`<p><${State} of=${message.data.state} /> <${Link} to=${`messages/${id}`}>The message with its timeline<//></p>`}
    <h3>Webhooks</h3>
    ${about.length === 0 && html`<p class="empty">None yet.</p>`}
    ${about.map(({ received_at: at, signature, body }) => html`<div key=${at + body}><p><${Time} at=${at} /> signature <${State} of=${signature} /></p><pre tabindex="0">${body}</pre></div>`)}
  </section>`
}
