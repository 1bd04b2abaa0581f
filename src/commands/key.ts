/**
 * `posthorn key create`: makes an API key over the admin socket and shows it once.
 */
import type { Command } from 'commander'
import { toUnixSeconds } from '../base/clock.ts'
import { EXIT, ProcessExit } from '../base/errors.ts'
import { callServer } from './admin-client.ts'
import { configurationFolder, collect, readSettings } from './shared-options.ts'

interface KeyCreateFlags {
  config?: string
  name: string
  scope?: string[]
  domain?: string[]
  ip?: string[]
  expires?: string
  test?: boolean
  json?: boolean
}

export function addKeyCommands(program: Command): void {
  const key = program.command('key').description('API keys')
  key
    .command('create')
    .description('make an API key; it is shown once')
    .requiredOption('--name <name>', 'what the key is for, 1 to 100 characters')
    .option('--scope <scope>', 'what it may do; repeat for several (default: send)', collect)
    .option('--domain <domain>', 'sending domain it is limited to; repeat for several', collect)
    .option('--ip <network>', 'network it may be used from, e.g. 203.0.113.0/24; repeat for several', collect)
    .option('--expires <date>', 'last day, e.g. 2027-01-31')
    .option('--test', 'a test key')
    .option('--config <dir>', 'folder of the configuration files')
    .option('--json', 'print one JSON document')
    .addHelpText('after', '\nExample:\n  posthorn key create --name shop --scope send --scope messages:read')
    .action(createKey)
}

async function createKey(flags: KeyCreateFlags): Promise<void> {
  const expiresAt = flags.expires === undefined ? null : endOfDay(flags.expires)
  const settings = readSettings(configurationFolder(flags.config))
  const created = await callServer({
    socketPath: settings.listen.admin_socket,
    method: 'POST',
    path: '/v1/keys',
    body: {
      name: flags.name,
      mode: flags.test === true ? 'test' : 'live',
      scopes: flags.scope ?? ['send'],
      domains: flags.domain ?? [],
      allowed_ips: flags.ip ?? [],
      expires_at: expiresAt,
    },
  })
  process.stdout.write(flags.json === true ? `${JSON.stringify(created)}\n` : describe(created))
}

/** Unix seconds of the last second of a UTC day. */
function endOfDay(day: string): number {
  const end = new Date(`${day}T23:59:59Z`)
  // February 30 would become March 2.
  if (Number.isNaN(end.getTime()) || !end.toISOString().startsWith(`${day}T`)) {
    throw new ProcessExit(EXIT.usage, `posthorn: --expires: "${day}" is no date; write 2027-01-31.`)
  }
  return toUnixSeconds(end.getTime())
}

function describe(created: unknown): string {
  if (typeof created !== 'object' || created === null || !('key' in created) || !('id' in created)) {
    throw new ProcessExit(EXIT.internal, 'posthorn: the answer of the server holds no key.')
  }
  return `${String(created.key)}\nThis is the only time the key ${String(created.id)} is shown.\n`
}
