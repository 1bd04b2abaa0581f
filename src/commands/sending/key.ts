/**
 * `sternpost key`: API keys (http/README.md "Keys and scopes", commands/README.md "The command line"). A key is shown
 * once, when it is made.
 *
 * `revoke` and `rotate` end what uses the old key: without --yes they show when it was last used and change nothing.
 */
import type { Command } from 'commander'
import { toUnixSeconds } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { SCOPES } from '../../senders/api-key.ts'
import { callServer, listFromServer } from '../shared/api-client.ts'
import { misuse } from '../shared/flag-values.ts'
import { isTerminal, localTime, printNote, printResult, tableText } from '../shared/print.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { collect } from '../shared/shared-options.ts'
import { addVerb, isConfirmed, readAnswer, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'

interface CreateFlags extends VerbFlags {
  name: string
  scope?: string[]
  domain?: string[]
  ip?: string[]
  expires?: string
  test?: boolean
}

/** As the API shows it; times in Unix seconds. */
interface KeyView {
  id: string
  name: string
  mode: 'live' | 'test'
  scopes: string[]
  domains: string[]
  allowed_ips: string[]
  last4: string
  created_at: number
  expires_at: number | null
  last_used_at: number | null
  revoked_at: number | null
}

type CreatedKey = KeyView & { key: string }

export function addKeyCommands(program: Command): void {
  const key = program.command('key').description('API keys')
  addVerb(key, {
    words: 'create',
    description: 'make an API key; it is shown once',
    example: 'sternpost key create --name shop --scope send --scope messages:read',
  })
    .requiredOption('--name <name>', 'what the key is for, 1 to 100 characters')
    .option('--scope <scope>', `what it may do: ${SCOPES.join(', ')}; repeat for several (default: send)`, collect)
    .option('--domain <domain>', 'sending domain it is limited to; repeat for several', collect)
    .option('--ip <network>', 'network it may be used from, e.g. 203.0.113.0/24; repeat for several', collect)
    .option('--expires <date>', 'last day, e.g. 2027-01-31')
    .option('--test', 'a test key: its mail never leaves the server')
    .action(create)
  addVerb(key, {
    words: 'list',
    description: 'list the API keys, revoked ones too',
    example: 'sternpost key list',
  }).action(list)
  addVerb(key, {
    words: 'revoke <id>',
    description: 'end an API key at once',
    example: 'sternpost key revoke key_01kapg6t3vq8x2m5r7w9y4c6d0 --yes',
  })
    .option('--yes', 'do it')
    .action(revoke)
  addVerb(key, {
    words: 'rotate <id>',
    description: 'make a new key with the same settings, show it once, and end the old one at once',
    example: 'sternpost key rotate key_01kapg6t3vq8x2m5r7w9y4c6d0 --yes',
  })
    .option('--yes', 'do it')
    .action(rotate)
}

async function create(flags: CreateFlags): Promise<void> {
  const expiresAt = flags.expires === undefined ? null : endOfDay(flags.expires)
  const created = await makeKey(serverAddress(flags), {
    name: flags.name,
    mode: flags.test === true ? 'test' : 'live',
    scopes: flags.scope ?? ['send'],
    domains: flags.domain ?? [],
    allowed_ips: flags.ip ?? [],
    expires_at: expiresAt,
  })
  printKey(flags, created, created)
}

async function list(flags: VerbFlags): Promise<void> {
  const entries = await listFromServer(serverAddress(flags), '/v1/keys')
  const keys = entries.map((entry) => readAnswer<KeyView>(entry, 'id', 'scopes', 'domains'))
  printResult(flags, keys, () => tableText(HEADS, keys.map(rowOf), isTerminal()))
  if (keys.length === 0) printNote(flags, 'No key yet. Make one: sternpost key create --name shop')
}

async function revoke(id: string, flags: ConsentFlags): Promise<void> {
  const server = serverAddress(flags)
  const key = await find(server, id)
  const would = {
    document: key,
    text: `1 key would be revoked: ${described(key)}`,
    command: `sternpost key revoke ${key.id}`,
  }
  if (!isConfirmed(flags, would)) return
  const revoked = await end(server, id)
  printResult(flags, revoked, () => `${described(key)}: revoked\n`)
}

async function rotate(id: string, flags: ConsentFlags): Promise<void> {
  const server = serverAddress(flags)
  const key = await find(server, id)
  if (key.revoked_at !== null) {
    throw new ProcessExit(EXIT.failed, `sternpost: ${id} is revoked already. Make a new key: sternpost key create`)
  }
  const would = {
    document: key,
    text: `1 key would be replaced, and stop working at once: ${described(key)}`,
    command: `sternpost key rotate ${key.id}`,
  }
  if (!isConfirmed(flags, would)) return
  const { name, mode, scopes, domains, allowed_ips: allowedIps, expires_at: expiresAt } = key
  const created = await makeKey(server, { name, mode, scopes, domains, allowed_ips: allowedIps, expires_at: expiresAt })
  // Before the old one ends: whatever happens then, the new one is not lost.
  printKey(flags, created, { ...created, replaces: key.id })
  await end(server, id)
  printNote(flags, `${described(key)}: revoked`)
}

async function makeKey(server: ServerAddress, body: object): Promise<CreatedKey> {
  return readAnswer<CreatedKey>(await callServer(server, { method: 'POST', path: '/v1/keys', body }), 'id', 'key')
}

async function find(server: ServerAddress, id: string): Promise<KeyView> {
  return readAnswer<KeyView>(await callServer(server, { method: 'GET', path: pathOf(id) }), 'id', 'scopes', 'domains')
}

function end(server: ServerAddress, id: string): Promise<unknown> {
  return callServer(server, { method: 'DELETE', path: pathOf(id) })
}

function pathOf(id: string): string {
  return `/v1/keys/${encodeURIComponent(id)}`
}

/** Unix seconds of the last second of a UTC day. */
function endOfDay(day: string): number {
  const end = new Date(`${day}T23:59:59Z`)
  // February 30 would become March 2.
  if (Number.isNaN(end.getTime()) || !end.toISOString().startsWith(`${day}T`)) {
    throw misuse(`--expires: "${day}" is no date; write 2027-01-31`)
  }
  return toUnixSeconds(end.getTime())
}

function printKey(flags: VerbFlags, { key, id }: CreatedKey, document: object): void {
  printResult(flags, document, () => `${key}\n`)
  printNote(flags, `This is the only time the key ${id} is shown.`)
}

function described({ id, name, mode, last4, last_used_at: usedAt }: KeyView): string {
  return `${id} (${name}, ${mode}, …${last4}), last used ${localTime(usedAt)}`
}

const HEADS = ['ID', 'NAME', 'MODE', 'KEY', 'SCOPES', 'DOMAINS', 'CREATED', 'EXPIRES', 'LAST USED', 'STATE']

function rowOf(key: KeyView): string[] {
  const { id, name, mode, last4, scopes, domains, expires_at: expiresAt, revoked_at: revokedAt } = key
  const isOver = expiresAt !== null && expiresAt <= toUnixSeconds(Date.now())
  const state = revokedAt !== null ? 'revoked' : isOver ? 'expired' : 'active'
  return [
    id,
    name,
    mode,
    `…${last4}`,
    scopes.join(','),
    domains.length === 0 ? 'all' : domains.join(','),
    localTime(key.created_at),
    localTime(expiresAt),
    localTime(key.last_used_at),
    state,
  ]
}
