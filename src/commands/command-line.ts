/**
 * The `posthorn` command: its verbs, and what their failures print and exit with (operations.md 5.4 and 6).
 *
 * Results go to standard output, everything else to standard error. The functions that run a server are handed in by
 * `main.ts`. Never rejects: a failure becomes one clear line and an exit code.
 */
import { Command, CommanderError } from 'commander'
import { ConfigurationError, errorCode, errorText, EXIT, ProcessExit } from '../base/errors.ts'
import { explainMistakes } from '../config/explain-mistake.ts'
import { addBounceCommands } from './bounce.ts'
import { addCheckCommand } from './check.ts'
import { addConfigCommands } from './config.ts'
import { addDomainCommands } from './domain.ts'
import { addIpCommands } from './ip.ts'
import { addKeyCommands } from './key.ts'
import { addListenCommand } from './listen.ts'
import { addMessageCommands } from './message.ts'
import { addPathCommands } from './path.ts'
import { addPoolCommands } from './pool.ts'
import { addProviderCommands } from './provider.ts'
import { addQueueCommands } from './queue.ts'
import { addReloadCommand } from './reload.ts'
import { addSandboxCommand } from './sandbox.ts'
import type { SandboxCommandOptions } from './sandbox.ts'
import { addSendCommand } from './send.ts'
import { addServeCommand } from './serve.ts'
import type { ServeOptions } from './serve.ts'
import { addStatusCommand, status } from './status.ts'
import { addSuppressionCommands } from './suppression.ts'
import { addWebhookCommands } from './webhook.ts'

export interface ServerStarters {
  /** Resolves when the server has stopped. */
  serve: (options: ServeOptions) => Promise<void>
  sandbox: (options: SandboxCommandOptions) => Promise<void>
}

/** In the order of the help. */
const VERBS: readonly ((program: Command) => void)[] = [
  addStatusCommand, addCheckCommand, addReloadCommand, addConfigCommands, addKeyCommands, addDomainCommands,
  addSendCommand, addMessageCommands, addQueueCommands, addIpCommands, addPoolCommands, addPathCommands,
  addProviderCommands, addSuppressionCommands, addWebhookCommands, addListenCommand, addBounceCommands,
]

const FIRST_STEPS = `No server runs here yet. The first steps:
  1  posthorn sandbox                  try everything on this machine; nothing leaves it
  2  posthorn check                    once posthorn.yaml and pools.yaml are in /etc/posthorn
  3  posthorn serve                    run the server
  4  posthorn domain add acme.com      prints the DNS records to publish
  5  posthorn key create --name shop   for the app that sends
All verbs: posthorn --help
`

export async function runCommandLine(
  words: readonly string[],
  version: string,
  starters: ServerStarters,
): Promise<number> {
  const program = new Command('posthorn')
    .description('Self-hosted email-sending appliance')
    .version(version)
    .showHelpAfterError('(posthorn --help lists the verbs)')
    .exitOverride()
  addServeCommand(program, starters.serve)
  addSandboxCommand(program, starters.sandbox)
  for (const add of VERBS) add(program)
  try {
    if (words.length === 0) await showStatusOrFirstSteps()
    else await program.parseAsync(words, { from: 'user' })
    return Number(process.exitCode ?? EXIT.done)
  } catch (thrown) {
    return report(thrown)
  }
}

/** `posthorn` alone. */
async function showStatusOrFirstSteps(): Promise<void> {
  try {
    await status({})
  } catch (thrown) {
    const isNobodyThere = thrown instanceof ProcessExit && thrown.exitCode === EXIT.unreachable
    if (!isNobodyThere && !(thrown instanceof ConfigurationError)) throw thrown
    process.stdout.write(FIRST_STEPS)
  }
}

function report(thrown: unknown): number {
  // Commander has printed its sentence already; help and version end with 0.
  if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? EXIT.done : EXIT.usage
  if (thrown instanceof ProcessExit) {
    process.stderr.write(`${thrown.message}\n`)
    return thrown.exitCode
  }
  if (thrown instanceof ConfigurationError) {
    process.stderr.write(`${explainMistakes(thrown.mistakes)} Exit ${EXIT.configuration}.\n`)
    return EXIT.configuration
  }
  // Whoever read what is printed has gone (`posthorn … | head`).
  if (errorCode(thrown) === 'EPIPE') return EXIT.failed
  if (isFileError(thrown)) {
    process.stderr.write(`posthorn: ${thrown.message}\n`)
    return EXIT.disk
  }
  process.stderr.write(`posthorn: ${errorText(thrown)}\n${thrown instanceof Error ? (thrown.stack ?? '') : ''}\n`)
  return EXIT.failed
}

/** A folder or file that cannot be made, read or written: the sentence of the system names it. */
function isFileError(thrown: unknown): thrown is Error {
  return thrown instanceof Error && 'syscall' in thrown && 'path' in thrown
}
