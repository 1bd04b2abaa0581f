/**
 * Refuses words that commander takes and nobody can have meant (exit 64): an empty argument, as a variable of the shell
 * is that was never set, which would name the list in place of one of its things; and a flag for one value with two of
 * them, of which the first would be dropped, as the first recipient of `send --to a --to b`.
 */
import { InvalidArgumentError, type Command, type Option } from 'commander'
import { collect, misuse } from './flag-values.ts'

/** In all verbs of a program. */
export function refuseUnclearWords(program: Command): void {
  program.hook('preAction', (_, verb) => refuseEmptyArguments(verb))
  forEachCommand(program, ({ options }) => options.filter(takesOneValue).forEach(refuseSecondValue))
}

function refuseEmptyArguments({ registeredArguments, args }: Command): void {
  const empty = args.indexOf('')
  // One that may be repeated is the last.
  const name = registeredArguments[Math.min(empty, registeredArguments.length - 1)]?.name()
  if (empty !== -1 && name !== undefined) throw misuse(`<${name}> is empty`)
}

function forEachCommand(command: Command, act: (command: Command) => void): void {
  act(command)
  for (const child of command.commands) forEachCommand(child, act)
}

function takesOneValue({ required, optional, parseArg }: Option): boolean {
  return (required || optional) && parseArg !== collect
}

function refuseSecondValue(option: Option): void {
  const { parseArg } = option
  let given: string | null = null
  option.argParser<unknown>((value, previous) => {
    // The same again changes nothing.
    if (given !== null && given !== value) throw new InvalidArgumentError(`It takes one value, and has '${given}'.`)
    given = value
    return parseArg === undefined ? value : parseArg(value, previous)
  })
}
