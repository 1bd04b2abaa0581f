/**
 * Commands that a verb prints for people to copy. What is pasted into a shell asks the same server as the verb that
 * printed it, and no value in it, wherever it came from, is run: values may come from the network.
 */
import { shellWord } from '../../base/shell-word.ts'
import type { OutputFlags } from './print.ts'
import { printable } from './text.ts'
import type { ServerFlags } from './server-address.ts'

type Options = Readonly<Record<string, string | boolean | undefined>>

export interface ShownCommand {
  /** `queue hold` */
  verb: string
  arguments?: readonly string[]
  /** By name, `recipient-domain`; what is undefined or false is left out. */
  options?: Options
}

/** A key is not printed: the server refuses this and says so. */
const HIDDEN_KEY = '<key>'

/** On one line, with the flags of the verb that say which server is meant. */
export function commandText(given: ServerFlags & OutputFlags, shown: ShownCommand): string {
  const { verb, arguments: values = [], options = {} } = shown
  const written = optionWords({ ...options, ...serverOptions(given), json: given.json })
  // Behind two hyphens a value that begins with one is no flag.
  const words = values.some((value) => value.startsWith('-')) ? [...written, '--', ...values] : [...values, ...written]
  return printable(['sternpost', verb, ...words.map(shellWord)].join(' '))
}

/** The flags that say which server was meant, for commands of somebody else's text; empty: none was given. */
export function serverWords(given: ServerFlags): string {
  return printable(optionWords(serverOptions(given)).map(shellWord).join(' '))
}

function serverOptions({ config, url, apiKey }: ServerFlags): Options {
  return { config, url, 'api-key': apiKey === undefined ? undefined : HIDDEN_KEY }
}

function optionWords(options: Options): string[] {
  return Object.entries(options).flatMap(([name, value]) => {
    if (value === undefined || value === false) return []
    return value === true ? [`--${name}`] : [`--${name}`, value]
  })
}

/**
 * For mail that is held until somebody decides; the last two commands say how many there are before they do anything.
 * `heldBefore`: of these an operator held as many, which nobody can tell from the others any more.
 */
export function heldMailCommands(
  given: ServerFlags & OutputFlags,
  { acceptedBefore, heldBefore }: { acceptedBefore?: string; heldBefore: number },
): string[] {
  const held = { held: true, 'accepted-before': acceptedBefore }
  const warning = `${heldBefore} of them were held before: a release without a further filter sends these, too.`
  return [
    `  see it:   ${commandText(given, { verb: 'queue list', options: { held: true } })}`,
    `  send it:  ${commandText(given, { verb: 'queue release', options: { held: true } })}`,
    `  or not:   ${commandText(given, { verb: 'queue drop', options: held })}`,
    ...(heldBefore === 0 ? [] : [warning]),
  ]
}
