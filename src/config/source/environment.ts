/**
 * What a first start needs, from `STERNPOST_…` variables (config/README.md "Variables"). In sternpost.yaml
 * they have the last word, after all drop-ins; in place of a pools.yaml stands STERNPOST_IPS. Each value has its variable
 * as its place. A variable that nothing reads is a warning.
 */
import type { Mistake } from '../../base/errors.ts'
import { nearestName } from '../settings/nearest-name.ts'
import { didYouMean } from './explain-mistake.ts'
import { treeOf, withValueAt, type Position, type SourceNode } from './source-tree.ts'

export type Environment = Readonly<Record<string, string | undefined>>

interface Variable {
  /** In sternpost.yaml. */
  path: readonly string[]
  /** The text as YAML would give it; itself when left out. */
  read?: (text: string) => unknown
  /** What goes with it. */
  also?: { path: readonly string[]; value: string }
}

const DATABASE_URL = 'STERNPOST_DATABASE_URL'

const VARIABLES: Readonly<Record<string, Variable>> = {
  STERNPOST_HOSTNAME: { path: ['hostname'] },
  STERNPOST_PUBLIC_URL: { path: ['public_url'] },
  STERNPOST_DATA_DIR: { path: ['data_dir'] },
  STERNPOST_ADMIN_SOCKET: { path: ['listen', 'admin_socket'] },
  STERNPOST_MASTER_KEY_FILE: { path: ['secrets', 'master_key'], read: (file) => ({ file }) },
  STERNPOST_OPERATOR_EMAIL: { path: ['operator', 'email'] },
  STERNPOST_TLS_FOLDER: { path: ['tls', 'certificates'], read: certificateIn },
  STERNPOST_ACME_DIRECTORY: { path: ['tls', 'acme', 'directory'] },
  STERNPOST_TRUSTED_PROXIES: { path: ['http', 'trusted_proxies'], read: listOf },
  STERNPOST_DNS_SERVERS: { path: ['dns', 'servers'], read: listOf },
  [DATABASE_URL]: {
    path: ['storage', 'url'],
    read: databaseUrl,
    also: { path: ['storage', 'engine'], value: 'postgres' },
  },
  STERNPOST_LOG_LEVEL: { path: ['log', 'level'] },
}
const HOSTNAME = 'STERNPOST_HOSTNAME'
const IPS = 'STERNPOST_IPS'
/** Read elsewhere: by the command line, and by scripts. */
const OTHERS = ['STERNPOST_CONFIG', 'STERNPOST_URL', 'STERNPOST_API_KEY', 'STERNPOST_NODE']
const PREFIX = 'STERNPOST_'

/**
 * What stands in place of a file that is not there; undefined: no variable says it. `hostname`: that of sternpost.yaml,
 * from which the IPs have their names.
 */
export function standInFor(file: string, environment: Environment, hostname = ''): SourceNode | undefined {
  if (file === 'sternpost' && given(environment, HOSTNAME) !== undefined) return treeOf({ version: 1 }, place(HOSTNAME))
  const ips = given(environment, IPS)
  if (file !== 'pools' || ips === undefined) return undefined
  const entries = listOf(ips).map((text, index) => {
    const [address, source = null] = text.split('=')
    return { address, source, hostname: egressName(hostname, index) }
  })
  return treeOf({ version: 1, default_pool: 'default', pools: { default: { ips: entries } } }, place(IPS))
}

/** sternpost.yaml with what the variables say. */
export function withVariables(tree: SourceNode, environment: Environment): SourceNode {
  return Object.entries(VARIABLES).reduce((changed, [name, { path, read = (text: string): unknown => text, also }]) => {
    const text = given(environment, name)
    if (text === undefined) return changed
    const set = withValueAt(changed, path, treeOf(read(text), place(name)))
    return also === undefined ? set : withValueAt(set, also.path, treeOf(also.value, place(name)))
  }, tree)
}

export function unknownVariables(environment: Environment): Mistake[] {
  const known = [...Object.keys(VARIABLES), IPS, ...OTHERS]
  return Object.keys(environment)
    .filter((name) => name.startsWith(PREFIX) && !known.includes(name))
    .map((name) => {
      const suggestion = nearestName(name, known)
      const message = `is no variable of Sternpost, and is not used${didYouMean(suggestion)}`
      return { ...place(name), path: '', severity: 'warning', message, suggestion }
    })
}

/** The EHLO name of an IP for which nobody has said one. With one IP there is one name, that of the server. */
export function egressName(hostname: string, index: number): string {
  return index === 0 ? hostname : `mta${index + 1}.${hostname}`
}

/** An empty variable is not set. */
function given(environment: Environment, name: string): string | undefined {
  const text = environment[name]?.trim()
  return text === '' ? undefined : text
}

/** Whether a value stands in a variable, not in a file. */
export function isVariable({ file }: Position): boolean {
  return file.startsWith(`$${PREFIX}`)
}

function place(name: string): Position {
  return { file: `$${name}`, line: 1, column: 1 }
}

/** With commas or white space between. */
function listOf(text: string): string[] {
  return text.split(/[\s,]+/).filter((part) => part !== '')
}

/** It may hold a password, so the value stays where it is; a path is that of a file with the URL. */
function databaseUrl(text: string): unknown {
  return text.startsWith('/') ? { file: text } : { variable: DATABASE_URL }
}

/** By the names that certbot and others give them. */
function certificateIn(folder: string): unknown {
  return [{ cert_file: `${folder}/fullchain.pem`, key_file: `${folder}/privkey.pem` }]
}
