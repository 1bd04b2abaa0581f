/**
 * What every verb that asks a server has: its flags, an example in its help, and how a destructive one asks for consent
 * (commands/README.md "The command line").
 */
import type { Command } from 'commander'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { printNote, printResult, type OutputFlags } from './print.ts'
import type { ServerFlags } from './server-address.ts'

export type VerbFlags = OutputFlags & ServerFlags

export interface ConsentFlags extends VerbFlags {
  yes?: boolean
}

interface VerbWords {
  /** Name and arguments: `show <id>`. */
  words: string
  description: string
  /** One command, or several on lines of their own. */
  example: string
}

export function addVerb(parent: Command, { words, description, example }: VerbWords): Command {
  return parent
    .command(words)
    .description(description)
    .option('--config <dir>', 'folder of the configuration files of a server on this machine')
    .option('--url <url>', 'base address of a server elsewhere, e.g. https://mail.example.net/v1')
    .option('--api-key <key>', 'key for that server (better in STERNPOST_API_KEY: others can read a command line)')
    .option('--json', 'print JSON')
    .option('--quiet', 'print the result alone')
    .addHelpText('after', `\nExample${example.includes('\n') ? 's' : ''}:\n  ${example.replaceAll('\n', '\n  ')}`)
}

interface Consequence {
  document: unknown
  /** What would happen, with its count. */
  text: string
  /** The same command, without --yes. */
  command: string
}

/** Without --yes: shows what would happen, says how to go on, and ends with 64. No prompt. */
export function isConfirmed(flags: ConsentFlags, { document, text, command }: Consequence): boolean {
  if (flags.yes === true) return true
  printResult(flags, document, () => `${text}\n`)
  printNote(flags, `Nothing is changed yet. Do it with: ${command} --yes`)
  process.exitCode = EXIT.usage
  return false
}

/** The answer as the server of the same version makes it; only the named fields are looked for. */
export function readAnswer<Answer extends object>(answer: unknown, ...names: (keyof Answer & string)[]): Answer {
  if (hasFields<Answer>(answer, names)) return answer
  throw new ProcessExit(EXIT.internal, `sternpost: the answer of the server lacks ${names.join(', ')}.`)
}

function hasFields<Answer extends object>(answer: unknown, names: readonly string[]): answer is Answer {
  return typeof answer === 'object' && answer !== null && names.every((name) => name in answer)
}
