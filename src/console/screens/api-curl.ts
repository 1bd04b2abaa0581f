/** An endpoint of the API as a request that can be pasted into a shell. Pure. */
export interface Operation {
  summary?: string
  parameters?: { name: string; in: string; description?: string }[]
  requestBody?: { content?: Record<string, { example?: unknown; examples?: Record<string, { value: unknown }> }> }
  responses?: Record<string, { content?: Record<string, unknown> }>
}

export interface Endpoint {
  method: string
  path: string
  operation: Operation
}

/** `text` is empty where there is no example. */
export function exampleOf({ requestBody }: Operation): { type: string; text: string } {
  const [type = 'application/json', content] = Object.entries(requestBody?.content ?? {})[0] ?? []
  const example = content?.example ?? Object.values(content?.examples ?? {})[0]?.value
  if (typeof example === 'string') return { type, text: example }
  return { type, text: example === undefined ? '' : JSON.stringify(example, null, 2) }
}

/** It ends only when somebody ends it. */
export function isStream({ responses = {} }: Operation): boolean {
  return Object.values(responses).some(({ content = {} }) => 'text/event-stream' in content)
}

/** In capitals: what is still to be filled in. */
export function curlOf(base: string, { method, path, operation }: Endpoint): string {
  const { type, text } = exampleOf(operation)
  // A name in braces, which curl would take for a pattern.
  const url = base + path.replaceAll(/\{(\w+)\}/g, (_, name: string) => name.toUpperCase())
  const data = text === '' ? '' : ` -H 'Content-Type: ${type}' -d '${text.replaceAll("'", String.raw`'\''`)}'`
  return `curl -s${isStream(operation) ? 'N' : ''} -X ${method} ${url} -H 'Authorization: Bearer KEY'${data}`
}
