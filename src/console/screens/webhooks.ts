/** Webhook endpoints; and one with its deliveries, each with body and answer: replay, test, how to verify. */
import type {
  WebhookDeliveryDetailJson,
  WebhookDeliveryJson,
  WebhookEndpointJson,
  WebhookTrialJson,
} from '../../api/webhook.ts'
import { act } from '../parts/api.ts'
import { useData, useEvery, useList } from '../parts/data.ts'
import { number, shellWord, Time } from '../parts/format.ts'
import { html, useState, type VNode } from '../parts/html.ts'
import { useForm } from '../parts/once.ts'
import { goFromHere, Link, place } from '../parts/place.ts'
import { run, runLater, runLong } from '../parts/said.ts'
import { Copy, Dialog, Facts, Page, Shown, ShownList, State, Table } from '../parts/ui.ts'
import { mayAct } from '../parts/who.ts'
import { VERIFICATION } from './verification.ts'

export default function Webhooks(): VNode {
  const [, id] = place.value.segments
  return id === undefined ? html`<${List} />` : html`<${One} key=${id} id=${id} />`
}

const COLUMNS = [
  { head: 'Endpoint', cell: ({ id, url }: WebhookEndpointJson) => html`<${Link} to=${`webhooks/${id}`}>${url}<//>` },
  {
    head: 'State',
    cell: ({ status, disabled_reason: why }: WebhookEndpointJson) => html`<${State} of=${status} /> ${why ?? ''}`,
  },
  { head: 'Events', cell: ({ events }: WebhookEndpointJson) => events.join(', ') },
  { head: 'Pending', cell: ({ pending }: WebhookEndpointJson) => number(pending), isNumber: true },
  { head: 'Dead letters', cell: ({ dead_letters: dead }: WebhookEndpointJson) => number(dead), isNumber: true },
  {
    head: 'Last success',
    cell: (endpoint: WebhookEndpointJson) => html`<${Time} at=${endpoint.last_success_at} relative />`,
  },
]

function List(): VNode {
  const endpoints = useList<WebhookEndpointJson>('/webhooks')
  const [secret, setSecret] = useState<string | null>(null)
  const add = useForm(async (fields, once) => {
    const url = String(fields.get('url')).trim()
    const { secret: made = null } = await act<{ secret?: string }>('POST', '/webhooks', { url }, once)
    setSecret(made)
    endpoints.again()
    if (made === null) return 'The endpoint was added before, and its secret got lost: remove it, and add it anew.'
    return 'The endpoint was added.'
  })
  return html`<${Page} title="Webhooks" command="sternpost webhook list">
    ${
      mayAct('webhooks') &&
      html`<form class="inline" onSubmit=${add}>
      <label>Address of your app <input name="url" type="url" required placeholder="https://app.acme.com/hooks" /></label>
      <button class="main">Add</button>
    </form>`
    }
    ${secret !== null && html`<p class="once">Its secret, shown only now: <${Copy} text=${secret} /></p>`}
    <${ShownList}
      of=${endpoints}
      empty="No endpoint yet: events are posted to one as they happen."
      show=${(entries: WebhookEndpointJson[]) => html`<${Table} caption="Webhook endpoints" columns=${COLUMNS} rows=${entries} keyOf=${({ id }: WebhookEndpointJson) => id} />`}
    />
    <${Verification} />
  <//>`
}

function Verification(): VNode {
  const [language, setLanguage] = useState(Object.keys(VERIFICATION)[0] ?? '')
  return html`<details>
    <summary>How your app checks that an event is ours</summary>
    <p>From the body as it came, before it is parsed, and the header <code>X-Service-Signature</code>.</p>
    <p class="choice">
      ${Object.keys(VERIFICATION).map((name) => html`<button key=${name} class="plain" aria-pressed=${name === language} onClick=${() => setLanguage(name)}>${name}</button>`)}
    </p>
    <pre tabindex="0">${VERIFICATION[language]}</pre>
  </details>`
}

function One({ id }: { id: string }): VNode {
  const path = `/webhooks/${encodeURIComponent(id)}`
  const endpoint = useData<WebhookEndpointJson>(path)
  const status = place.value.query.get('status')
  const deliveries = useList<WebhookDeliveryJson>(`${path}/deliveries`, { status })
  useEvery(10, deliveries)
  const columns = [
    {
      head: 'Event',
      cell: (each: WebhookDeliveryJson) => html`<${Delivery} path=${path} of=${each} again=${deliveries.again} />`,
    },
    { head: 'State', cell: (each: WebhookDeliveryJson) => html`<${State} of=${each.status} />` },
    { head: 'Attempts', cell: ({ attempts }: WebhookDeliveryJson) => attempts, isNumber: true },
    { head: 'Made', cell: (each: WebhookDeliveryJson) => html`<${Time} at=${each.created_at} relative />` },
    {
      head: 'Next attempt',
      cell: (each: WebhookDeliveryJson) => html`<${Time} at=${each.next_attempt_at} relative />`,
    },
    {
      head: 'Message',
      cell: ({ message_id: message }: WebhookDeliveryJson) =>
        message !== null && html`<${Link} to=${`messages/${message}`}>${message.slice(0, 12)}…<//>`,
    },
  ]
  return html`<${Page} title="Webhook" command=${`sternpost webhook show ${shellWord(id)}`} acts=${endpoint.data !== null && mayAct('webhooks') && html`<${Acts} path=${path} of=${endpoint.data} again=${endpoint.again} />`}>
    <${Shown} of=${endpoint} show=${(found: WebhookEndpointJson) => html`<${Summary} of=${found} />`} />
    <h2>Deliveries</h2>
    <p class="choice">
      ${['', 'pending', 'succeeded', 'failed', 'skipped'].map(
        (each) =>
          html`<${Link} key=${each} to=${`webhooks/${id}${each === '' ? '' : `?status=${each}`}`} current=${(status ?? '') === each}>${each === '' ? 'all' : each}<//> `,
      )}
    </p>
    <${ShownList}
      of=${deliveries}
      empty="No delivery."
      show=${(entries: WebhookDeliveryJson[]) => html`<${Table} caption="Webhook deliveries, newest first" columns=${columns} rows=${entries} keyOf=${(each: WebhookDeliveryJson) => each.id} />`}
    />
  <//>`
}

function Summary({ of: endpoint }: { of: WebhookEndpointJson }): VNode {
  return html`<${Facts}
    of=${[
      ['Address', endpoint.url],
      ['State', html`<${State} of=${endpoint.status} /> ${endpoint.disabled_reason ?? ''}`],
      ['Events', endpoint.events.join(', ')],
      ['Of the domains', endpoint.domains.length === 0 ? 'all' : endpoint.domains.join(', ')],
      ['Last success', html`<${Time} at=${endpoint.last_success_at} relative />`],
      ['Last failure', html`<${Time} at=${endpoint.last_failure_at} relative />`],
    ]}
  />`
}

function Delivery({ path, of, again }: { path: string; of: WebhookDeliveryJson; again: () => void }): VNode {
  const [isOpen, setIsOpen] = useState(false)
  const detail = useData<WebhookDeliveryDetailJson>(isOpen ? `${path}/deliveries/${of.id}` : null)
  const replay = (): Promise<void> =>
    run(async () => {
      await act('POST', `${path}/deliveries/${of.id}/replay`, {})
      again()
      return 'It is posted again.'
    })
  return html`<button class="link" onClick=${() => setIsOpen(true)}>${of.event}</button>
    ${
      isOpen &&
      html`<${Dialog} title=${of.event} onClose=${() => setIsOpen(false)}>
      <${Shown}
        of=${detail}
        show=${({ body, attempts }: WebhookDeliveryDetailJson) =>
          html`<pre tabindex="0">${body}</pre>
            <ol class="timeline">
              ${attempts.map(
                ({ n, at, status, duration_ms: took, error, answer }) =>
                  html`<li key=${n}><${Time} at=${at} /> <strong>${status ?? error}</strong> in ${took} ms <q>${answer}</q></li>`,
              )}
            </ol>`}
      />
      <form method="dialog">${mayAct('webhooks') && html`<button onClick=${replay}>Replay</button>`} <button>Close</button></form>
    <//>`
    }`
}

function Acts({
  path,
  of: { url, status },
  again,
}: {
  path: string
  of: WebhookEndpointJson
  again: () => void
}): VNode {
  const test = (): Promise<void> =>
    run(async () => {
      const { ok, status: answered, duration_ms: took, error } = await act<WebhookTrialJson>('POST', `${path}/test`, {})
      if (!ok) throw new Error(`The test failed: ${error ?? `it answered ${answered}`}.`)
      return `It answered ${answered} in ${took} ms.`
    })
  const replayFailed = (): Promise<void> =>
    runLong(
      'What failed is replayed.',
      async () =>
        `${number((await act<{ queued: number }>('POST', `${path}/replay`, { since: 0, status: 'failed' })).queued)} deliveries are posted again.`,
    )
  const change = (wanted: 'enabled' | 'disabled'): Promise<void> =>
    run(async () => {
      await act('PATCH', path, { status: wanted })
      again()
      return `It is ${wanted}.`
    })
  const remove = (): void => {
    const goOn = goFromHere()
    runLater(`The endpoint ${url} will be removed with its deliveries.`, async () => {
      await act('DELETE', path)
      goOn('webhooks')
      return 'The endpoint was removed.'
    })
  }
  return html`<button onClick=${test}>Send a test</button> <button onClick=${replayFailed}>Replay what failed</button>
    <button onClick=${() => change(status === 'enabled' ? 'disabled' : 'enabled')}>${status === 'enabled' ? 'Disable' : 'Enable'}</button>
    <button onClick=${remove}>Remove</button>`
}
