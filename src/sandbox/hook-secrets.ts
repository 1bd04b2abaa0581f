/**
 * The secrets of webhook endpoints that point at the inspector, so that it can check signatures as a receiver would.
 *
 * They are noted when an endpoint is registered or gets a new secret, and kept in a file (0600) of the sandbox's data
 * folder; in the database they are sealed. Of each endpoint the last two are kept: during a rotation the old one still
 * signs. A file that cannot be read throws at start: its fix is `--fresh`.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'

export const HOOKS_PATH = '/dev/hooks/'

interface NotedEndpoint {
  /** `wh_…`. */
  id: string
  url: string
  secret: string
}

export type HookSecrets = ReturnType<typeof openHookSecrets>

export function openHookSecrets(file: string) {
  let noted = existsSync(file) ? readNoted(file) : []
  /** Those with this name that were registered, on whatever port. */
  const endpointsOf = (name: string): NotedEndpoint[] => noted.filter(({ url }) => hookName(url) === name)
  const others = (id: string): NotedEndpoint[] => noted.filter((endpoint) => endpoint.id !== id)
  const keep = (endpoints: NotedEndpoint[]): void => {
    noted = endpoints
    writeFileSync(`${file}.new`, JSON.stringify(noted, null, 2), { mode: 0o600 })
    renameSync(`${file}.new`, file)
  }
  return {
    /** Every secret of an endpoint with this name, on whatever port it was registered. */
    secretsFor: (name: string): string[] => endpointsOf(name).map(({ secret }) => secret),
    endpointsOf,
    note: (endpoint: NotedEndpoint) => keep([...others(endpoint.id), endpoint]),
    /** The endpoint has a new secret; one that is not known here stays unknown. */
    rotate(id: string, secret: string): void {
      const before = noted.findLast((endpoint) => endpoint.id === id)
      if (before !== undefined) keep([...others(id), before, { ...before, secret }])
    },
    /** The endpoint has another URL now. */
    move: (id: string, url: string) =>
      keep(noted.map((endpoint) => (endpoint.id === id ? { ...endpoint, url } : endpoint))),
    forget: (id: string) => keep(others(id)),
  }
}

/** The name in a URL of the inspector, or undefined for any other URL. */
export function hookName(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined
  const { pathname } = new URL(url)
  // A trailing slash is ignored, as by the routes.
  return pathname.startsWith(HOOKS_PATH) ? pathname.slice(HOOKS_PATH.length).replace(/\/+$/, '') : undefined
}

function readNoted(file: string): NotedEndpoint[] {
  const document: unknown = JSON.parse(readFileSync(file, 'utf8'))
  if (Array.isArray(document) && document.every(isNoted)) return document
  throw new Error(`${file} is damaged; start over with --fresh`)
}

function isNoted(value: unknown): value is NotedEndpoint {
  if (typeof value !== 'object' || value === null) return false
  const texts = new Map<string, unknown>(Object.entries(value))
  return ['id', 'url', 'secret'].every((name) => typeof texts.get(name) === 'string')
}
