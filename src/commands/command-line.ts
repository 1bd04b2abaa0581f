/**
 * The `posthorn` command: its verbs, and what their failures print and exit with (operations.md 5.4 and 6).
 *
 * Results go to standard output, everything else to standard error. The functions that run a server are handed in by
 * `main.ts`. Never rejects: a failure becomes one clear line and an exit code.
 */
import { Command, CommanderError } from 'commander'
import { ConfigurationError, errorText, EXIT, ProcessExit } from '../base/errors.ts'
import { explainMistakes } from '../config/explain-mistake.ts'
import { addCheckCommand } from './check.ts'
import { addDomainCommands } from './domain.ts'
import { addKeyCommands } from './key.ts'
import { addSandboxCommand } from './sandbox.ts'
import type { SandboxCommandOptions } from './sandbox.ts'
import { addServeCommand } from './serve.ts'
import type { ServeOptions } from './serve.ts'

export interface ServerStarters {
  /** Resolves when the server has stopped. */
  serve: (options: ServeOptions) => Promise<void>
  sandbox: (options: SandboxCommandOptions) => Promise<void>
}

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
  addKeyCommands(program)
  addDomainCommands(program)
  addCheckCommand(program)
  try {
    await program.parseAsync(words, { from: 'user' })
    return Number(process.exitCode ?? EXIT.done)
  } catch (thrown) {
    return report(thrown)
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
