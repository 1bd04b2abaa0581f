/** One message: why it is where it is, its timeline, each attempt, its dialogue; retry, cancel, suppress. */
import type {
  AttemptJson,
  ContentJson,
  EventJson,
  ExplanationJson,
  MessageJson,
  RetriedMessageJson,
  TranscriptJson,
} from '../../api/message.ts'
import { act, ask } from '../parts/api.ts'
import { useData, useList } from '../parts/data.ts'
import { shellWord, span, Time } from '../parts/format.ts'
import { html, useCallback, useState, type VNode } from '../parts/html.ts'
import { useLive } from '../parts/live.ts'
import { Headers, Preview } from '../parts/mail.ts'
import { goFromHere, Link } from '../parts/place.ts'
import { run, runLater } from '../parts/said.ts'
import { Copy, Facts, Page, Shown, ShownList, State, Table } from '../parts/ui.ts'
import { mayAct, maySee } from '../parts/who.ts'

export function Message({ id }: { id: string }): VNode {
  const path = `/email/${encodeURIComponent(id)}`
  const message = useData<MessageJson>(path)
  const explanation = useData<ExplanationJson>(`${path}/explain`)
  const events = useList<EventJson>(`${path}/events`)
  const again = useCallback(() => {
    message.again()
    explanation.again()
    events.again()
  }, [message.again, explanation.again, events.again])
  const catchUp = useCallback(() => {
    message.catchUp()
    explanation.catchUp()
    events.catchUp()
  }, [message.catchUp, explanation.catchUp, events.catchUp])
  useLive(id, again, catchUp)
  return html`<${Page} title="Message" command=${`sternpost message show ${shellWord(id)}`} acts=${message.data !== null && html`<${Acts} of=${message.data} again=${again} />`}>
    <${Shown} of=${explanation} show=${(found: ExplanationJson) => html`<${Why} of=${found} />`} />
    <${Shown} of=${message} show=${(found: MessageJson) => html`<${Summary} of=${found} />`} />
    <section>
      <h2>Timeline</h2>
      <${ShownList} of=${events} empty="Nothing is known of it any more." show=${(found: EventJson[]) => html`<${Timeline} of=${found} />`} />
    </section>
    <${Shown} of=${message} show=${({ attempts }: MessageJson) => html`<${Attempts} of=${attempts} />`} />
    <${Dialogues} path=${path} />
    ${maySee('admin') && html`<${Content} path=${path} />`}
  <//>`
}

function Why({ of: { summary, rule, reply, advice } }: { of: ExplanationJson }): VNode {
  return html`<section class="why">
    <p>${summary}</p>
    ${reply !== null && html`<p>The last reply: <q>${reply}</q>${rule !== null && html` <span class="quiet">(rule ${rule})</span>`}</p>`}
    ${advice.length > 0 && html`<ul>${advice.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`}
  </section>`
}

const curlOf = (id: string): string => `curl -s ${location.origin}/v1/email/${id} -H 'Authorization: Bearer KEY'`

/** It has not ended. */
const OPEN_STATES = ['queued', 'scheduled', 'sending', 'deferred']

function Summary({ of: message }: { of: MessageJson }): VNode {
  const tags = Object.entries(message.tags).map(([name, value]) => `${name}=${value}`)
  const opened = `${message.opens} by people, ${message.machine_opens} by machines`
  const clicked = `${message.clicks} by people, ${message.machine_clicks} by machines`
  return html`<${Facts}
    of=${[
      ['State', html`<${State} of=${message.state} />`],
      ['To', html`<${Link} to=${`messages?q=${encodeURIComponent(message.recipient)}`}>${message.recipient}<//>`],
      ['From', message.from],
      ['Subject', message.subject],
      [
        'Id',
        html`<${Copy} text=${message.message_id} /> <${Copy} text=${curlOf(message.message_id)} label="as curl" />`,
      ],
      ['Accepted', html`<${Time} at=${message.created_at} />`],
      ...(OPEN_STATES.includes(message.state)
        ? ([
            ['Next attempt', html`<${Time} at=${message.next_attempt_at} relative />`],
            ['Given up', html`<${Time} at=${message.expires_at} relative />`],
          ] as const)
        : []),
      ['Provider', message.isp ?? '–'],
      ['IP and pool', `${message.ip ?? '–'} · ${message.ip_pool}`],
      ['Opens, clicks', `${opened}; ${clicked}`],
      ['Tags', tags.length === 0 ? '–' : tags.join(', ')],
      ...(message.bounce === null
        ? []
        : [['Bounce', `${message.bounce.type} ${message.bounce.code}: ${message.bounce.description}`] as const]),
    ]}
  />`
}

function Timeline({ of }: { of: EventJson[] }): VNode {
  return html`<ol class="timeline">
    ${of.map(
      ({ id, event, timestamp, data }) =>
        html`<li key=${id}><${Time} at=${timestamp} /> <strong>${event.replace('email.', '')}</strong> <span class="quiet">${told(data)}</span></li>`,
    )}
  </ol>`
}

/** What an event says beside what stands above. */
function told(data: Record<string, unknown>): string {
  const known = ['message_id', 'recipient']
  const rest = Object.entries(data).filter(([name, value]) => !known.includes(name) && value !== null && value !== '')
  return rest
    .map(
      ([name, value]) =>
        `${name.replaceAll('_', ' ')}: ${typeof value === 'object' ? JSON.stringify(value) : String(value)}`,
    )
    .join(' · ')
}

const ATTEMPT_COLUMNS = [
  { head: 'Attempt', cell: ({ n }: AttemptJson) => n, isNumber: true },
  { head: 'When', cell: ({ at }: AttemptJson) => html`<${Time} at=${at} />` },
  { head: 'Result', cell: ({ result }: AttemptJson) => html`<${State} of=${result} />` },
  { head: 'Reply', cell: ({ reply }: AttemptJson) => reply },
  { head: 'From IP', cell: ({ ip }: AttemptJson) => ip ?? '–' },
  { head: 'To host', cell: ({ mx }: AttemptJson) => mx ?? '–' },
  { head: 'TLS', cell: ({ tls }: AttemptJson) => tls ?? 'none' },
  {
    head: 'Took',
    cell: ({ duration_ms: milliseconds }: AttemptJson) =>
      milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : span(milliseconds / 1000),
  },
]

function Attempts({ of }: { of: AttemptJson[] }): VNode {
  if (of.length === 0) return html``
  return html`<section>
    <h2>Attempts</h2>
    <${Table} caption="Delivery attempts" columns=${ATTEMPT_COLUMNS} rows=${of} keyOf=${({ n }: AttemptJson) => String(n)} />
  </section>`
}

function Dialogues({ path }: { path: string }): VNode {
  const dialogues = useList<TranscriptJson>(`${path}/transcript`)
  return html`<section>
    <h2>SMTP dialogue</h2>
    <${ShownList}
      of=${dialogues}
      empty="Nobody has spoken of it yet."
      show=${(found: TranscriptJson[]) =>
        found.map(
          ({ n, ip, mx, dialogue }) =>
            html`<details key=${n} open=${found.length === 1}>
              <summary>Attempt ${n}${mx === null ? '' : `, ${ip ?? ''} to ${mx}`}</summary>
              <pre tabindex="0">${dialogue ?? 'Not kept any more.'}</pre>
            </details>`,
        )}
    />
  </section>`
}

const VIEWS = ['html', 'text', 'source', 'headers'] as const

/** Asked for when somebody wants to see it: it may be private. */
function Content({ path }: { path: string }): VNode {
  const [view, setView] = useState<(typeof VIEWS)[number] | null>(null)
  const content = useData<ContentJson>(view === null ? null : `${path}/content`)
  return html`<section>
    <h2>Content</h2>
    <div class="choice" role="group" aria-label="What is shown">
      ${VIEWS.map((each) => html`<button key=${each} class="plain" aria-pressed=${each === view} onClick=${() => setView(each)}>${each}</button>`)}
    </div>
    ${view !== null && html`<${Shown} of=${content} show=${(found: ContentJson) => html`<${ContentView} path=${path} of=${found} view=${view} />`} />`}
  </section>`
}

interface ContentViewProps {
  path: string
  of: ContentJson
  view: (typeof VIEWS)[number]
}

function ContentView({ path, of, view }: ContentViewProps): VNode {
  if (view === 'html' && of.html !== null) return html`<${Preview} url=${`/v1${path}/content`} />`
  if (view === 'headers') return html`<${Headers} of=${of.headers} />`
  if (view === 'source') return html`<pre tabindex="0">${of.source}</pre>`
  return html`<pre tabindex="0">${(view === 'text' ? of.text : null) ?? `It has no ${view} part of its own; see its source.`}</pre>`
}

/** A retry of these makes another message. */
const ENDED_STATES = ['bounced', 'expired']

/** Each with the same checks and errors as the command line. */
function Acts({
  of: { message_id: id, state, recipient, uncertain },
  again,
}: {
  of: MessageJson
  again: () => void
}): VNode {
  const path = `/email/${id}`
  const retry = (): Promise<void> =>
    run(async () => {
      const goOn = goFromHere()
      // What has ended is sent anew: once, however many people press, and what they see then is the new message. It may
      // have ended since this page was shown.
      const { state: stateNow } = await ask<MessageJson>(path)
      const once = ENDED_STATES.includes(stateNow) ? `console retry ${id}` : undefined
      const { message_id: tried, retry_of: original } = await act<RetriedMessageJson>('POST', `${path}/retry`, {}, once)
      if (original === null) again()
      else goOn(`messages/${tried}`)
      return original === null ? 'It is tried again.' : 'This message is sent in its place.'
    })
  const cancel = (): void =>
    runLater('1 message will be canceled.', async () => {
      await act('POST', `${path}/cancel`, {})
      again()
      return 'It is canceled.'
    })
  const suppress = (): void =>
    runLater(`Nothing more will be sent to ${recipient}.`, async () => {
      await act('POST', '/suppressions', { email: recipient })
      return `${recipient} is on the suppression list.`
    })
  const canRetry = ['deferred', 'bounced', 'expired', 'queued'].includes(state)
  const canCancel = ['queued', 'scheduled', 'deferred'].includes(state) && !uncertain
  return html`${mayAct('send') && canRetry && html`<button onClick=${retry}>Retry</button>`}
  ${mayAct('send') && canCancel && html`<button onClick=${cancel}>Cancel</button>`}
  ${mayAct('suppressions') && html`<button onClick=${suppress}>Suppress the address</button>`}`
}
