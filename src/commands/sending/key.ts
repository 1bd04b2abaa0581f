/**
 * `sternpost key`: API keys (http/README.md "Keys and scopes", commands/README.md "The command line"). A key is shown
 * once, when it is made.
 *
 * `revoke` and `rotate` end what uses the old key: without --yes they show when it was last used and change nothing.
 */
import type { Command } from 'commander'
import { createdKeySchema, keySchema, type CreatedKeyJson, type CreateKeyBody, type KeyJson } from '../../api/key.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { SCOPES } from '../../senders/api-key.ts'
import { ask, askAll, callServer, type ApiPath } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { collect, misuse } from '../shared/flag-values.ts'
import { printList, printNote, printResult } from '../shared/print.ts'
import { localTime, type Columns } from '../shared/text.ts'
import { addVerb, isConfirmed, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'

type CreateFlags = VerbFlags &
  Partial<Record<'scope' | 'domain' | 'ip', string[]>> & { name: string; expires?: string; test?: boolean }

const EXAMPLE = 'key_01kapg6t3vq8x2m5r7w9y4c6d0 --yes'

export function addKeyCommands(program: Command): void {
  const key = program.command('key').description('API keys')
  addVerb(key, 'create', 'make an API key; it is shown once', '--name shop --scope send --scope messages:read')
    .requiredOption('--name <name>', 'what the key is for, 1 to 100 characters')
    .option('--scope <scope>', `what it may do: ${SCOPES.join(', ')}; repeat for several (default: send)`, collect)
    .option('--domain <domain>', 'sending domain it is limited to; repeat for several', collect)
    .option('--ip <network>', 'network it may be used from, e.g. 203.0.113.0/24; repeat for several', collect)
    .option('--expires <date>', 'last day, e.g. 2027-01-31')
    .option('--test', 'a test key: its mail never leaves the server')
    .action(create)
  addVerb(key, 'list', 'list the API keys, revoked ones too').action(list)
  addVerb(key, 'revoke <id>', 'end an API key at once', EXAMPLE).option('--yes', 'do it').action(revoke)
  const replaces = 'make a new key with the same settings, show it once, and end the old one at once'
  addVerb(key, 'rotate <id>', replaces, EXAMPLE).option('--yes', 'do it').action(rotate)
}

const pathOf = (id: string): ApiPath => `/v1/keys/${encodeURIComponent(id)}`

async function create(flags: CreateFlags): Promise<void> {
  const created = await makeKey(flags, {
    name: flags.name,
    mode: flags.test === true ? 'test' : 'live',
    scopes: flags.scope ?? ['send'],
    domains: flags.domain ?? [],
    allowed_ips: flags.ip ?? [],
    expires_at: flags.expires === undefined ? null : endOfDay(flags.expires),
  })
  printKey(flags, created, created)
}

async function list(flags: VerbFlags): Promise<void> {
  const keys = await askAll(flags, keySchema, '/v1/keys')
  printList(
    flags,
    COLUMNS,
    keys,
    `No key yet. Make one: ${commandText(flags, { verb: 'key create', options: { name: 'shop' } })}`,
  )
}

async function revoke(id: string, flags: ConsentFlags): Promise<void> {
  const key = await ask(flags, keySchema, `GET ${pathOf(id)}`)
  const text = `1 key would be revoked: ${described(key)}`
  if (!isConfirmed(flags, { document: key, text, command: { verb: 'key revoke', arguments: [key.id] } })) return
  const revoked = await callServer(flags, `DELETE ${pathOf(id)}`)
  printResult(flags, revoked, () => `${described(key)}: revoked\n`)
}

async function rotate(id: string, flags: ConsentFlags): Promise<void> {
  const key = await ask(flags, keySchema, `GET ${pathOf(id)}`)
  if (key.revoked_at !== null) {
    const create = commandText(flags, { verb: 'key create', options: { name: key.name } })
    throw new ProcessExit(EXIT.failed, `sternpost: ${id} is revoked already. Make a new key: ${create}`)
  }
  const text = `1 key would be replaced, and stop working at once: ${described(key)}`
  if (!isConfirmed(flags, { document: key, text, command: { verb: 'key rotate', arguments: [key.id] } })) return
  const { name, mode, scopes, domains, allowed_ips, expires_at } = key
  const created = await makeKey(flags, { name, mode, scopes, domains, allowed_ips, expires_at })
  // Before the old one ends: whatever happens then, the new one is not lost.
  printKey(flags, created, { ...created, replaces: key.id })
  await callServer(flags, `DELETE ${pathOf(id)}`)
  printNote(flags, `${described(key)}: revoked`)
}

function makeKey(flags: VerbFlags, body: CreateKeyBody): Promise<CreatedKeyJson> {
  return ask(flags, createdKeySchema, 'POST /v1/keys', body)
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

function printKey(flags: VerbFlags, { key, id }: CreatedKeyJson, document: object): void {
  printResult(flags, document, () => `${key}\n`)
  printNote(flags, `This is the only time the key ${id} is shown.`)
}

function described({ id, name, mode, last4, last_used_at: usedAt }: KeyJson): string {
  return `${id} (${name}, ${mode}, …${last4}), last used ${localTime(usedAt)}`
}

const COLUMNS: Columns<KeyJson> = {
  ID: ({ id }) => id,
  NAME: ({ name }) => name,
  MODE: ({ mode }) => mode,
  KEY: ({ last4 }) => `…${last4}`,
  SCOPES: ({ scopes }) => scopes.join(','),
  DOMAINS: ({ domains }) => (domains.length === 0 ? 'all' : domains.join(',')),
  CREATED: (key) => localTime(key.created_at),
  EXPIRES: (key) => localTime(key.expires_at),
  'LAST USED': (key) => localTime(key.last_used_at),
  STATE({ expires_at: expiresAt, revoked_at: revokedAt }) {
    if (revokedAt !== null) return 'revoked'
    return expiresAt !== null && expiresAt <= toUnixSeconds(Date.now()) ? 'expired' : 'active'
  },
}
