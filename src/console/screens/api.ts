/** The endpoints of the API as the server describes them, each with its curl, and a form that tries it with a key. */
import { problemText } from '../parts/api.ts'
import { html, useEffect, useRef, useState, type VNode } from '../parts/html.ts'
import { Copy, Page, Waiting } from '../parts/ui.ts'
import { curlOf, exampleOf, isStream, type Endpoint, type Operation } from './api-curl.ts'

interface OpenApi {
  paths: Record<string, Record<string, Operation>>
}

export default function Api(): VNode {
  const [endpoints, setEndpoints] = useState<readonly Endpoint[] | string | null>(null)
  useEffect(() => {
    fetch('/v1/openapi.json')
      .then((response) => response.json() as Promise<OpenApi>)
      .then(
        (document) => setEndpoints(endpointsOf(document)),
        (thrown: unknown) => setEndpoints(problemText(thrown)),
      )
  }, [])
  return html`<${Page} title="API">
    <p>The base address is <${Copy} text=${`${location.origin}/v1`} />. The whole description: <a href="/v1/openapi.json">openapi.json</a>.</p>
    ${endpoints === null && html`<${Waiting} />`} ${typeof endpoints === 'string' && html`<p class="problem">${endpoints}</p>`}
    ${Array.isArray(endpoints) && endpoints.map((endpoint: Endpoint) => html`<${Described} key=${`${endpoint.method} ${endpoint.path}`} of=${endpoint} />`)}
  <//>`
}

function endpointsOf({ paths }: OpenApi): Endpoint[] {
  return Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  )
}

function Described({ of }: { of: Endpoint }): VNode {
  const { method, path, operation } = of
  return html`<details>
    <summary><code>${method} ${path}</code> ${operation.summary}</summary>
    <p><${Copy} text=${curlOf(`${location.origin}/v1`, of)} label="as curl" /></p>
    ${(operation.parameters ?? []).length > 0 && html`<p class="quiet">Parameters: ${operation.parameters?.map(({ name }) => name).join(', ')}</p>`}
    ${!isStream(operation) && html`<${Try} method=${method} path=${path} example=${exampleOf(operation)} />`}
  </details>`
}

interface TryProps {
  method: string
  path: string
  example: { type: string; text: string }
}

/** With a key that is typed in: what is tried here is done with what that key may do. */
function Try({ method, path, example }: TryProps): VNode {
  const [answer, setAnswer] = useState<string | null>(null)
  const latest = useRef(0)
  const send = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault()
    const mine = ++latest.current
    const tell = (text: string): void => {
      if (mine === latest.current) setAnswer(text)
    }
    const fields = new FormData(event.target as HTMLFormElement)
    const body = String(fields.get('body') ?? '')
    const init: RequestInit = {
      method,
      credentials: 'omit',
      headers: { Authorization: `Bearer ${String(fields.get('key'))}`, 'Content-Type': example.type },
    }
    if (method !== 'GET' && body !== '') init.body = body
    try {
      const response = await fetch(`/v1${String(fields.get('path'))}`, init)
      tell(`${response.status}\n${await response.text()}`)
    } catch (thrown) {
      tell(problemText(thrown))
    }
  }
  return html`<form class="stack" onSubmit=${send}>
    <label>Path <input name="path" defaultValue=${path} /></label>
    ${method !== 'GET' && html`<label>Body <textarea name="body" rows="6" defaultValue=${example.text}></textarea></label>`}
    <label>Key, best a test key <input name="key" type="password" autocomplete="off" required /></label>
    <button>Send</button>
    ${answer !== null && html`<pre tabindex="0" role="status">${answer}</pre>`}
  </form>`
}
