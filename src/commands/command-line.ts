/**
 * The `sternpost` command: its verbs, and what their failures print and exit with (commands/README.md "Exit codes" and
 * "The command line").
 *
 * Results go to standard output, everything else to standard error. What runs a server is handed in by `main.ts`, to
 * be loaded by the verbs that need it. Never rejects: a failure becomes one clear line and an exit code.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Command, CommanderError } from 'commander'
import { ConfigurationError, errorCode, errorText, EXIT, ProcessExit } from '../base/errors.ts'
import { printProblem } from '../base/logger.ts'
import { explainMistakes } from '../config/source/explain-mistake.ts'
import type { LoadStarters } from './server/sandbox.ts'
import { configurationFolder } from './shared/flag-values.ts'
import { printableLines } from './shared/text.ts'
import { refuseUnclearWords } from './shared/unclear-words.ts'
import { addVerbs } from './verbs.ts'

const FIRST_STEPS = `No server runs here yet. The first steps:
  1  sternpost sandbox                  try everything on this machine; nothing leaves it
  2  sudo sternpost setup               on a server: configuration, DNS records, first key
  3  sternpost doctor                   what is wrong, and what to do
  4  sternpost domain add acme.com      prints the DNS records to publish
  5  sternpost key create --name shop   for the app that sends
All verbs: sternpost --help
`

/** Ready to parse words that begin with the name of a verb, or any: the program then has all verbs. */
export async function createProgram(version: string, loadStarters: LoadStarters, name?: string): Promise<Command> {
  const program = new Command('sternpost')
    .description('Self-hosted email-sending appliance')
    .version(version)
    .showHelpAfterError('(sternpost --help lists the verbs)')
    .exitOverride()
    // A verb that has verbs below it leaves them their own flags.
    .enablePositionalOptions()
  await addVerbs(program, loadStarters, name)
  refuseUnclearWords(program)
  return program
}

export async function runCommandLine(
  words: readonly string[],
  version: string,
  loadStarters: LoadStarters,
): Promise<number> {
  try {
    if (words.length === 0) await showStatusOrFirstSteps()
    else await (await createProgram(version, loadStarters, words[0])).parseAsync(words, { from: 'user' })
    return Number(process.exitCode ?? EXIT.done)
  } catch (thrown) {
    return report(thrown)
  }
}

/** `sternpost` alone. */
async function showStatusOrFirstSteps(): Promise<void> {
  try {
    await (await import('./server/status.ts')).status({})
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
