/**
 * What verbs have in common: their flags, the example in their help, how a destructive one asks for consent, lists up
 * to a number, and running until somebody stops it (commands/README.md "The command line").
 */
import type { Command } from 'commander'
import type { Clock } from '../../base/clock.ts'
import { EXIT } from '../../base/errors.ts'
import { commandText, type ShownCommand } from './command-text.ts'
import { countFlag } from './flag-values.ts'
import { printNote, printResult, type OutputFlags } from './print.ts'
import { columnsText, type Columns } from './text.ts'
import type { ServerFlags } from './server-address.ts'

export type VerbFlags = OutputFlags & ServerFlags

/** Flags with a text, as far as they are given. */
export type Given<Name extends string> = Partial<Record<Name, string>>

export interface ConsentFlags extends VerbFlags {
  yes?: boolean
}

export const CONFIG_FLAG = ['--config <dir>', 'folder of the configuration files'] as const

/**
 * A verb that asks a server. `words`: its name and arguments, `show <id>`. `example`: what stands behind the name in an
 * example, several on lines of their own.
 */
export function addVerb(parent: Command, words: string, description: string, example = ''): Command {
  const verb = parent
    .command(words)
    .description(description)
    .option('--config <dir>', 'folder of the configuration files of a server on this machine')
    .option('--url <url>', 'base address of a server elsewhere, e.g. https://mail.example.net/v1')
    .option('--api-key <key>', 'key for that server (better in STERNPOST_API_KEY: others can read a command line)')
  return withExample(withOutputFlags(verb), example.includes('\n') ? 'Examples' : 'Example', example)
}

/** A verb that needs no server, and has flags of its own. */
export function addLocalVerb(parent: Command, words: string, description: string, example = ''): Command {
  return withExample(parent.command(words).description(description), 'Example', example)
}

/** Of verbs that read the configuration files alone. */
export function withFileFlags(verb: Command): Command {
  const folder = 'folder of the configuration files (default: the installed ones, else the shipped ones)'
  return withOutputFlags(verb.option('--config <dir>', folder))
}

/** How the result is printed. */
export function withOutputFlags(verb: Command): Command {
  return verb.option('--json', 'print JSON').option('--quiet', 'print the result alone')
}

function withExample(verb: Command, head: string, example: string): Command {
  const lines = example.split('\n').map((behind) => `\n  ${wholeName(verb)} ${behind}`.trimEnd())
  return verb.addHelpText('after', `\n${head}:${lines.join('')}`)
}

/** `sternpost queue list` */
function wholeName(command: Command): string {
  return command.parent === null ? command.name() : `${wholeName(command.parent)} ${command.name()}`
}

interface Consequence {
  document: unknown
  /** What would happen, with its count. */
  text: string
  /** The same command, without --yes. */
  command: ShownCommand
}

/** Without --yes: shows what would happen, says how to go on, and ends with 64. No prompt. */
export function isConfirmed(flags: ConsentFlags, { document, text, command }: Consequence): boolean {
  if (flags.yes === true) return true
  printResult(flags, document, () => `${text}\n`)
  const options = { ...command.options, yes: true }
  printNote(flags, `Nothing is changed yet. Do it with: ${commandText(flags, { ...command, options })}`)
  process.exitCode = EXIT.usage
  return false
}

/** How many of a list are wanted. */
export const LIMIT_FLAG = ['--limit <count>', 'at most so many', '50'] as const

export interface LimitFlags extends VerbFlags {
  limit: string
}

/** A list up to --limit. `whenMore` says what to do where there are more. */
export async function printFirst<Row>(
  flags: LimitFlags,
  columns: Columns<Row>,
  pages: AsyncIterable<Row[]>,
  { whenNone, whenMore }: { whenNone: string; whenMore: string },
): Promise<void> {
  const most = countFlag('--limit', flags.limit)
  const found: Row[] = []
  for await (const page of pages) {
    found.push(...page)
    if (found.length > most) break
  }
  const shown = found.slice(0, most)
  printResult(flags, shown, () => columnsText(columns, shown))
  if (found.length === 0) printNote(flags, whenNone)
  if (found.length > most) printNote(flags, `There are more than these ${most}${whenMore}`)
}

/** Aborted at Ctrl-C or SIGTERM, which is no failure then; a second signal ends the process as usual. */
export function untilInterrupted(): AbortSignal {
  const controller = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => controller.abort())
  return controller.signal
}

/** Over when the time is, or at once when interrupted. */
export function pause(clock: Clock, milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      cancel()
      signal.removeEventListener('abort', end)
      resolve()
    }
    const cancel = clock.after(milliseconds, end)
    if (signal.aborted) end()
    else signal.addEventListener('abort', end)
  })
}
