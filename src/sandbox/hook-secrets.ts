/**
 * The secrets of webhook endpoints that point at the inspector, so that it can check signatures as a receiver would.
 *
 * They are noted when an endpoint is registered and kept in a file (0600) of the sandbox's data folder; in the database
 * they are sealed. A file that cannot be read throws at start: its fix is `--fresh`.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'

export const HOOKS_PATH = '/dev/hooks/'

export interface HookSecrets {
  /** Every secret of an endpoint with this name, on whatever port it was registered. */
  secretsFor(name: string): string[]
  hasEndpoint(url: string): boolean
  note(url: string, secret: string): void
}

interface NotedSecret {
  url: string
  secret: string
}

export function openHookSecrets(file: string): HookSecrets {
  const noted: NotedSecret[] = existsSync(file) ? readNoted(file) : []
  return {
    secretsFor: (name) => noted.filter(({ url }) => hookName(url) === name).map(({ secret }) => secret),
    hasEndpoint: (url) => noted.some((one) => one.url === url),
    note(url, secret) {
      noted.push({ url, secret })
      const unfinished = `${file}.new`
      writeFileSync(unfinished, JSON.stringify(noted, null, 2), { mode: 0o600 })
      renameSync(unfinished, file)
    },
  }
}

/** The name in a URL of the inspector, or undefined for any other URL. */
export function hookName(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined
  const { pathname } = new URL(url)
  return pathname.startsWith(HOOKS_PATH) ? pathname.slice(HOOKS_PATH.length) : undefined
}

function readNoted(file: string): NotedSecret[] {
  const document: unknown = JSON.parse(readFileSync(file, 'utf8'))
  if (Array.isArray(document) && document.every(isNoted)) return document
  throw new Error(`${file} is damaged; start over with --fresh`)
}

function isNoted(value: unknown): value is NotedSecret {
  if (typeof value !== 'object' || value === null || !('url' in value) || !('secret' in value)) return false
  return typeof value.url === 'string' && typeof value.secret === 'string'
}
