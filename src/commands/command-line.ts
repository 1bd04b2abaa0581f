/**
 * The `sternpost` command: its verbs, and what their failures print and exit with (commands/README.md "Exit codes" and
 * "The command line").
 *
 * Results go to standard output, everything else to standard error. The functions that run a server are handed in by
 * `main.ts`. Never rejects: a failure becomes one clear line and an exit code.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Command, CommanderError } from 'commander'
import { ConfigurationError, errorCode, errorText, EXIT, ProcessExit } from '../base/errors.ts'
import { printProblem } from '../base/logger.ts'
import { explainMistakes } from '../config/source/explain-mistake.ts'
import { addBackupCommands } from './server/backup.ts'
import { addCertificateCommands } from './server/certificate.ts'
import { addBounceCommands } from './mail/bounce.ts'
import { addCheckCommand } from './server/check.ts'
import { addCompletionCommand } from './completion.ts'
import { addConsoleCommands } from './server/console.ts'
import { addConfigCommands, addReloadCommand } from './server/config.ts'
import { addDoctorCommand } from './server/doctor.ts'
import { addDomainCommands } from './sending/domain.ts'
import { addIpCommands } from './sending/ip.ts'
import { addKeyCommands } from './sending/key.ts'
import { addListenCommand } from './mail/listen.ts'
import { addLogsCommand } from './server/logs.ts'
import { addMessageCommands } from './mail/message.ts'
import { addMigrateCommands, addRestoreCommand } from './server/database.ts'
import { addNodeCommands } from './server/node.ts'
import { addPathCommands } from './sending/path.ts'
import { addPoolCommands } from './sending/pool.ts'
import { addProviderCommands } from './sending/provider.ts'
import { addQueueCommands } from './mail/queue.ts'
import { addRecipientCommands } from './mail/recipient.ts'
import { addSandboxCommand, addServeCommand, type SandboxCommandOptions, type ServeOptions } from './server/sandbox.ts'
import { addSendCommand } from './mail/send.ts'
import { addSetupCommand } from './setup/setup.ts'
import { addStatsCommand } from './mail/stats.ts'
import { addStatusCommands, status } from './server/status.ts'
import { addSuppressionCommands } from './mail/suppression.ts'
import { addWebhookCommands } from './mail/webhook.ts'
import { configurationFolder } from './shared/flag-values.ts'
import { printResult, type OutputFlags } from './shared/print.ts'
import { printableLines } from './shared/text.ts'
import { refuseUnclearWords } from './shared/unclear-words.ts'
import { addLocalVerb } from './shared/verb.ts'

export interface ServerStarters {
  /** Resolves when the server has stopped. */
  serve: (options: ServeOptions) => Promise<void>
  sandbox: (options: SandboxCommandOptions) => Promise<void>
}

/** In the order of the help. */
const VERBS: readonly ((program: Command) => void)[] = [
  addSetupCommand,
  addStatusCommands,
  addLogsCommand,
  addCheckCommand,
  addDoctorCommand,
  addReloadCommand,
  addConfigCommands,
  addKeyCommands,
  addConsoleCommands,
  addDomainCommands,
  addSendCommand,
  addMessageCommands,
  addStatsCommand,
  addQueueCommands,
  addIpCommands,
  addPoolCommands,
  addPathCommands,
  addProviderCommands,
  addSuppressionCommands,
  addWebhookCommands,
  addListenCommand,
  addBounceCommands,
  addRecipientCommands,
  addCertificateCommands,
  addNodeCommands,
  addBackupCommands,
  addRestoreCommand,
  addMigrateCommands,
]

const FIRST_STEPS = `No server runs here yet. The first steps:
  1  sternpost sandbox                  try everything on this machine; nothing leaves it
  2  sudo sternpost setup               on a server: configuration, DNS records, first key
  3  sternpost doctor                   what is wrong, and what to do
  4  sternpost domain add acme.com      prints the DNS records to publish
  5  sternpost key create --name shop   for the app that sends
All verbs: sternpost --help
`

/** All verbs, ready to parse words. */
export function createProgram(version: string, starters: ServerStarters): Command {
  const program = new Command('sternpost')
    .description('Self-hosted email-sending appliance')
    .version(version)
    .showHelpAfterError('(sternpost --help lists the verbs)')
    .exitOverride()
    // A verb that has verbs below it leaves them their own flags.
    .enablePositionalOptions()
  addServeCommand(program, starters.serve)
  addSandboxCommand(program, starters.sandbox)
  for (const add of VERBS) add(program)
  addVersionCommand(program, version)
  addCompletionCommand(program)
  refuseUnclearWords(program)
  return program
}

export async function runCommandLine(
  words: readonly string[],
  version: string,
  starters: ServerStarters,
): Promise<number> {
  const program = createProgram(version, starters)
  try {
    if (words.length === 0) await showStatusOrFirstSteps()
    else await program.parseAsync(words, { from: 'user' })
    return Number(process.exitCode ?? EXIT.done)
  } catch (thrown) {
    return report(thrown)
  }
}

/** `sternpost` alone. */
async function showStatusOrFirstSteps(): Promise<void> {
  try {
    await status({})
  } catch (thrown) {
    const isNobodyThere = thrown instanceof ProcessExit && thrown.exitCode === EXIT.unreachable
    // A server that is installed and does not answer is no first step.
    const isInstalled = existsSync(join(configurationFolder(undefined), 'sternpost.yaml'))
    if (isInstalled || (!isNobodyThere && !(thrown instanceof ConfigurationError))) throw thrown
    process.stdout.write(FIRST_STEPS)
  }
}

function report(thrown: unknown): number {
  // Commander has printed its sentence already; help and version end with 0.
  if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? EXIT.done : EXIT.usage
  if (thrown instanceof ProcessExit) {
    printProblem(`${printableLines(thrown.message)}\n`)
    return thrown.exitCode
  }
  if (thrown instanceof ConfigurationError) {
    printProblem(`${explainMistakes(thrown.mistakes)} Exit ${EXIT.configuration}.\n`)
    return EXIT.configuration
  }
  // Whoever read what is printed has gone (`sternpost … | head`).
  if (errorCode(thrown) === 'EPIPE') return EXIT.failed
  if (isFileError(thrown)) {
    printProblem(`sternpost: ${thrown.message}\n`)
    return EXIT.disk
  }
  printProblem(`sternpost: ${errorText(thrown)}\n${thrown instanceof Error ? (thrown.stack ?? '') : ''}\n`)
  return EXIT.failed
}

/** A folder or file that cannot be made, read or written: the sentence of the system names it, but a folder that is read. */
function isFileError(thrown: unknown): thrown is Error {
  return thrown instanceof Error && 'syscall' in thrown && ('path' in thrown || errorCode(thrown) === 'EISDIR')
}

function addVersionCommand(program: Command, version: string): void {
  addLocalVerb(program, 'version', 'print the versions of Sternpost and of the Node.js it runs on', '--json')
    .option('--json', 'print JSON')
    .action((flags: OutputFlags) => {
      const { versions, platform, arch } = process
      const document = { version, node: versions.node, platform: `${platform}-${arch}` }
      printResult(flags, document, () => `sternpost ${version} (Node.js ${versions.node}, ${document.platform})\n`)
    })
}
