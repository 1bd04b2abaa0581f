/**
 * Which server a verb asks: the one on this machine by its admin socket, or one elsewhere by URL and API key. What was
 * said most plainly wins (commands/README.md "The command line"). Throws ProcessExit: 64 for half an address, 78 for a
 * file that is not as it should be; ConfigurationError when the files do not say where the server is.
 */
import { readFileSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { ConfigurationError, EXIT, ProcessExit } from '../../base/errors.ts'
import { shellWord } from '../../base/shell-word.ts'
import { readAdminSocket } from '../../config/read-parts.ts'
import { ADMIN_SOCKET } from '../../config/settings/server-settings.ts'
import { explainMistakes } from '../../config/source/explain-mistake.ts'
import { valueOf } from '../../config/source/source-tree.ts'
import { readYamlSource } from '../../config/source/yaml-source.ts'
import { misuse, configurationFolder, PRODUCTION_FOLDER, SHIPPED_FOLDER } from './flag-values.ts'

export type ServerFlags = Partial<Record<'config' | 'url' | 'apiKey', string>>

export type ServerAddress =
  | { kind: 'socket'; socketPath: string } // whoever may open it is the administrator
  | { kind: 'remote'; url: URL; apiKey: string } // `url` without the version; the key's scopes hold

interface Remote {
  url: string | undefined
  apiKey: string | undefined
}

/** The key in it may do harm in the hands of others. */
const OTHERS_AND_GROUP = 0o077
// The version segment that a base address ends in, and slashes around it.
const VERSION_SEGMENT = /\/*(?:\/api)?(?:\/v1)?\/*$/

/** A verb asks more than once. */
const toldFolders = new Set<string>()

export function serverAddress({ config, url, apiKey }: ServerFlags): ServerAddress {
  const environment: Remote = { url: given('STERNPOST_URL'), apiKey: given('STERNPOST_API_KEY') }
  if (url !== undefined || apiKey !== undefined) {
    const kept = environment.url === undefined || environment.apiKey === undefined ? readKeptRemote() : null
    return remote({ url: url ?? environment.url ?? kept?.url, apiKey: apiKey ?? environment.apiKey ?? kept?.apiKey })
  }
  if (config !== undefined) return onThisMachine(config)
  if (environment.url !== undefined) return remote(environment)
  if (given('STERNPOST_CONFIG') !== undefined) return onThisMachine(undefined)
  const kept = readKeptRemote()
  return kept === null ? onThisMachine(undefined) : remote(kept)
}

/** For messages: where the verb asked. */
export function shownAddress(server: ServerAddress): string {
  return server.kind === 'socket' ? server.socketPath : server.url.origin
}

function onThisMachine(flag: string | undefined): ServerAddress {
  const folder = configurationFolder(flag)
  const { path, mistakes } = readAdminSocket(folder, SHIPPED_FOLDER)
  // By the usual one the server of another folder could be asked.
  const socketPath = path ?? (folder === PRODUCTION_FOLDER ? ADMIN_SOCKET : null)
  if (socketPath === null) throw new ConfigurationError(mistakes)
  if (mistakes.length > 0 && !toldFolders.has(folder)) {
    toldFolders.add(folder)
    process.stderr.write(`${explainMistakes(mistakes)} The server at ${socketPath} is asked all the same.\n`)
  }
  return { kind: 'socket', socketPath }
}

function remote({ url, apiKey }: Remote): ServerAddress {
  if (url === undefined) throw misuse('--api-key needs a server: add --url https://mail.example.net/v1')
  if (apiKey === undefined) throw misuse('--url needs a key: add --api-key, or set STERNPOST_API_KEY')
  // What a header can hold: printable ASCII without blanks.
  if (!/^[!-~]+$/.test(apiKey)) throw misuse('--api-key: is no API key')
  const parsed = URL.parse(url)
  if (parsed === null || !['http:', 'https:'].includes(parsed.protocol)) {
    throw misuse(`--url: "${url}" is no http or https URL; write https://mail.example.net/v1`)
  }
  return { kind: 'remote', url: new URL(parsed.pathname.replace(VERSION_SEGMENT, '/'), parsed), apiKey }
}

/** An empty variable is not set. */
function given(name: string): string | undefined {
  const value = process.env[name]
  return value === '' ? undefined : value
}

/** null: there is no such file. */
function readKeptRemote(): Remote | null {
  const file = join(homedir(), '.config', 'sternpost', 'config.yaml')
  const status = statSync(file, { throwIfNoEntry: false })
  if (status === undefined) return null
  const refuse = (problem: string): never => {
    throw new ProcessExit(EXIT.configuration, `sternpost: ${file}: ${problem}.`)
  }
  if ((status.mode & OTHERS_AND_GROUP) !== 0) refuse(`others may read it. Fix: chmod 600 ${shellWord(file)}`)
  const reading = readYamlSource(file, readFileSync(file))
  const value = reading.kind === 'read' ? valueOf(reading.tree) : null
  if (typeof value !== 'object' || value === null) return refuse('expected the keys url and api_key')
  const { url, api_key: apiKey } = value as Record<string, unknown>
  if (typeof url !== 'string' || typeof apiKey !== 'string') return refuse('expected the keys url and api_key')
  return { url, apiKey }
}
