/** The endpoints of the API as the server describes them, each with its curl, and a form that tries it with a key. */
import { problemText } from '../parts/api.ts'
import { html, useEffect, useState, type VNode } from '../parts/html.ts'
import { Copy, Page, Waiting } from '../parts/ui.ts'

interface Operation {
  summary?: string
  parameters?: { name: string; in: string; description?: string }[]
  requestBody?: { content?: Record<string, { example?: unknown; examples?: Record<string, { value: unknown }> }> }
}

interface Endpoint {
  method: string
  path: string
  operation: Operation
}

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

function exampleOf({ requestBody }: Operation): string {
  const content = requestBody?.content?.['application/json']
  const example = content?.example ?? Object.values(content?.examples ?? {})[0]?.value
  return example === undefined ? '' : JSON.stringify(example, null, 2)
}

function Described({ of: { method, path, operation } }: { of: Endpoint }): VNode {
  const example = exampleOf(operation)
  const data =
    example === '' ? '' : ` -H 'Content-Type: application/json' -d '${example.replaceAll("'", String.raw`'\''`)}'`
  const curl = `curl -s -X ${method} ${location.origin}/v1${path} -H 'Authorization: Bearer KEY'${data}`
  return html`<details>
    <summary><code>${method} ${path}</code> ${operation.summary}</summary>
    <p><${Copy} text=${curl} label="as curl" /></p>
    ${(operation.parameters ?? []).length > 0 && html`<p class="quiet">Parameters: ${operation.parameters?.map(({ name }) => name).join(', ')}</p>`}
    <${Try} method=${method} path=${path} example=${example} />
  </details>`
}

/** With a key that is typed in: what is tried here is done with what that key may do. */
function Try({ method, path, example }: { method: string; path: string; example: string }): VNode {
  const [answer, setAnswer] = useState<string | null>(null)
  const send = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault()
    const fields = new FormData(event.target as HTMLFormElement)
    const body = String(fields.get('body') ?? '')
    const init: RequestInit = {
      method,
      credentials: 'omit',
      headers: { Authorization: `Bearer ${String(fields.get('key'))}`, 'Content-Type': 'application/json' },
    }
    if (method !== 'GET' && body !== '') init.body = body
    try {
      const response = await fetch(`/v1${String(fields.get('path'))}`, init)
      setAnswer(`${response.status}\n${await response.text()}`)
    } catch (thrown) {
      setAnswer(problemText(thrown))
    }
  }
  return html`<form class="stack" onSubmit=${send}>
    <label>Path <input name="path" defaultValue=${path} /></label>
    ${method !== 'GET' && html`<label>Body <textarea name="body" rows="6" defaultValue=${example}></textarea></label>`}
    <label>Key, best a test key <input name="key" type="password" autocomplete="off" required /></label>
    <button>Send</button>
    ${answer !== null && html`<pre tabindex="0" role="status">${answer}</pre>`}
  </form>`
}
