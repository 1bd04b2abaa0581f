/**
 * `sternpost serve`: runs the server until SIGTERM or SIGINT. `sternpost sandbox`: the real server with a small outside
 * world of its own, on loopback alone (sandbox/README.md "The sandbox").
 */
import { resolve } from 'node:path'
import { InvalidArgumentError, type Command } from 'commander'
import { configurationFolder, SHIPPED_FOLDER } from '../shared/flag-values.ts'
import { addLocalVerb, CONFIG_FLAG } from '../shared/verb.ts'

interface ServeOptions {
  folder: string
  shippedFolder: string
}

export function addServeCommand(program: Command, load: LoadStarters): void {
  addLocalVerb(program, 'serve', 'run the server', '--config /etc/sternpost')
    .option(...CONFIG_FLAG)
    .action(async ({ config }: { config?: string }) =>
      (await load()).serve({ folder: configurationFolder(config), shippedFolder: SHIPPED_FOLDER }),
    )
}

export interface SandboxCommandOptions extends ServeOptions {
  /** null: 8025, or the next free port. A port that was asked for and is taken is an error. */
  port: number | null
  /** The same for SMTP submission: null is 1025, or the next free port. */
  submissionPort: number | null
  /** Application seconds in one real second. */
  speed: number
  dataFolder: string
  isFresh: boolean
  /** Captured messages kept. */
  keep: number
  /** One JSON line in place of the banner. */
  json: boolean
}

/** What runs a server. Each resolves when it has stopped. */
export interface ServerStarters {
  serve: (options: ServeOptions) => Promise<void>
  sandbox: (options: SandboxCommandOptions) => Promise<void>
}

export type LoadStarters = () => Promise<ServerStarters>

interface SandboxFlags {
  port?: number
  smtpPort?: number
  speed: number
  data: string
  fresh?: boolean
  keep: number
  config?: string
  json?: boolean
}

const DEFAULT_KEEP = 500
const HIGHEST_PORT = 65_535
const REAL_TIME = 1
const EXAMPLES = `
Examples:
  sternpost sandbox --port 9000 --fresh
  sternpost sandbox --speed 1440     a day passes in a minute`
/** sandbox/README.md "The sandbox". */
const HIGHEST_SPEED = 100_000

export function addSandboxCommand(program: Command, load: LoadStarters): void {
  program
    .command('sandbox')
    .description('try everything on this machine: nothing leaves it')
    .option('--port <port>', 'port of the API and the inbox (default: 8025, or the next free one)', portNumber)
    .option('--smtp-port <port>', 'port of SMTP submission (default: 1025, or the next free one)', portNumber)
    .option('--speed <factor>', `how fast time runs, 1 to ${HIGHEST_SPEED}`, speedFactor, REAL_TIME)
    .option('--data <dir>', 'folder for database, key and captured mail', '.sandbox')
    .option('--fresh', 'start over: delete the data folder first')
    .option('--keep <count>', 'captured messages kept', wholeNumber, DEFAULT_KEEP)
    .option('--config <dir>', 'folder of the configuration files (default: the shipped ones)')
    .option('--json', 'print one JSON line instead of the banner')
    .addHelpText('after', EXAMPLES)
    .action(async (flags: SandboxFlags) =>
      (await load()).sandbox({
        port: flags.port ?? null,
        submissionPort: flags.smtpPort ?? null,
        speed: flags.speed,
        dataFolder: resolve(flags.data),
        isFresh: flags.fresh === true,
        keep: flags.keep,
        folder: flags.config ?? SHIPPED_FOLDER,
        shippedFolder: SHIPPED_FOLDER,
        json: flags.json === true,
      }),
    )
}

function wholeNumber(text: string): number {
  const number = Number(text)
  if (!Number.isInteger(number) || number < 1) throw new InvalidArgumentError('not a whole number above 0')
  return number
}

function speedFactor(text: string): number {
  const speed = wholeNumber(text)
  if (speed > HIGHEST_SPEED) throw new InvalidArgumentError(`too fast: at most ${HIGHEST_SPEED}`)
  return speed
}

function portNumber(text: string): number {
  const port = wholeNumber(text)
  if (port > HIGHEST_PORT) throw new InvalidArgumentError(`not a port: at most ${HIGHEST_PORT}`)
  return port
}
