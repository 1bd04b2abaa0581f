/**
 * The verbs of the command line as plain data, read from commander's own tree: for whatever has to name all of them
 * (shell completion, the manual page). Pure.
 */
import type { Command } from 'commander'

export interface CommandNode {
  /** Without the program's own name: `['queue', 'list']`; empty for the program itself. */
  path: string[]
  description: string
  /** As written behind the name: `[check...]`. */
  argumentWords: string
  /** Words that the first argument may be; empty: anything. */
  choices: string[]
  options: CommandOption[]
  children: CommandNode[]
  /** What the help says below the options. */
  example: string
}

interface CommandOption {
  /** As in the help: `--url <url>`. */
  flags: string
  /** `--url`. */
  name: string
  description: string
}

export function commandTree(program: Command): CommandNode {
  return nodeOf(program, [])
}

/** All of them, each before its children. */
export function everyCommand(node: CommandNode): CommandNode[] {
  return [node, ...node.children.flatMap(everyCommand)]
}

function nodeOf(command: Command, path: string[]): CommandNode {
  const help = command.createHelp()
  return {
    path,
    description: command.description(),
    argumentWords: command.registeredArguments
      .map((argument) => {
        const words = argument.variadic ? `${argument.name()}...` : argument.name()
        return argument.required ? `<${words}>` : `[${words}]`
      })
      .join(' '),
    choices: command.registeredArguments[0]?.argChoices ?? [],
    options: help
      .visibleOptions(command)
      .map(({ flags, long, short, description }) => ({ flags, name: long ?? short ?? flags, description })),
    children: help
      .visibleCommands(command)
      .filter((child) => child.name() !== 'help')
      .map((child) => nodeOf(child, [...path, child.name()])),
    example: exampleOf(command),
  }
}

/** Commander hands out what was added to a help only together with the help itself. */
function exampleOf(command: Command): string {
  let text = ''
  const output = command.configureOutput()
  command.configureOutput({ ...output, writeOut: (part) => (text += part) })
  command.outputHelp()
  command.configureOutput(output)
  return /\nExamples?:\n([^]*)$/.exec(text)?.[1]?.replaceAll(/^ {2}/gm, '').trimEnd() ?? ''
}
