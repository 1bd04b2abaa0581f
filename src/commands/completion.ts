/**
 * `sternpost completion bash|zsh|fish`: the script by which a shell completes verbs and flags, made from the verbs
 * themselves. Values are not completed: they would have to be asked of a server while somebody types.
 */
import { Argument, type Command } from 'commander'
import { commandTree, everyCommand, type CommandNode } from './command-tree.ts'
import { addLocalVerb } from './shared/verb.ts'

const SHELLS = { bash: bashScript, zsh: zshScript, fish: fishScript }
type Shell = keyof typeof SHELLS

export function addCompletionCommand(program: Command): void {
  const description = 'print a script that completes verbs and flags in your shell'
  addLocalVerb(program, 'completion', description, 'bash > /etc/bash_completion.d/sternpost')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SHELLS)))
    .action((shell: Shell) => void process.stdout.write(completionScript(program, shell)))
}

export function completionScript(program: Command, shell: Shell): string {
  return SHELLS[shell](everyCommand(commandTree(program)))
}

/** The place in the tree as the scripts keep it: ` queue list`, nothing for the program itself. */
const place = ({ path }: CommandNode): string => path.map((word) => ` ${word}`).join('')

/** What may come next there, each with its description. */
function nextWords({ children, choices, options }: CommandNode): [word: string, description: string][] {
  return [
    ...children.map(({ path, description }): [string, string] => [path.at(-1) ?? '', description]),
    ...choices.map((choice): [string, string] => [choice, '']),
    ...options.map(({ name, description }): [string, string] => [name, description]),
  ]
}

/** For single quotes of a POSIX shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`

const places = (nodes: readonly CommandNode[]): string =>
  nodes
    .filter(({ path }) => path.length > 0)
    .map((node) => quoted(place(node)))
    .join('|')

function bashScript(nodes: readonly CommandNode[]): string {
  const cases = nodes.map(
    (node) =>
      `    ${quoted(place(node))}) next=${quoted(
        nextWords(node)
          .map(([word]) => word)
          .join(' '),
      )} ;;`,
  )
  return `# bash completion of sternpost
_sternpost() {
  local place= next= index
  for ((index = 1; index < COMP_CWORD; index++)); do
    case "$place \${COMP_WORDS[index]}" in
      ${places(nodes)}) place="$place \${COMP_WORDS[index]}" ;;
    esac
  done
  case "$place" in
${cases.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$next" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _sternpost sternpost
`
}

function zshScript(nodes: readonly CommandNode[]): string {
  const described = ([word, description]: [string, string]): string =>
    quoted(description === '' ? word : `${word}:${description.replaceAll(':', String.raw`\:`)}`)
  const cases = nodes.map(
    (node) => `    (${quoted(place(node))}) next=(${nextWords(node).map(described).join(' ')}) ;;`,
  )
  return `#compdef sternpost
_sternpost() {
  local place= word
  local -a next
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$place $word" in
      (${places(nodes)}) place="$place $word" ;;
    esac
  done
  case "$place" in
${cases.join('\n')}
  esac
  _describe -o sternpost next || _files
}
if [ "$funcstack[1]" = _sternpost ]; then _sternpost "$@"; else compdef _sternpost sternpost; fi
`
}

function fishScript(nodes: readonly CommandNode[]): string {
  const words = nodes
    .filter(({ path }) => path.length > 0)
    .map((node) => fishQuoted(place(node)))
    .join(' ')
  const lines = nodes.flatMap((node) =>
    nextWords(node).map(([word, description]) => {
      const what = word.startsWith('--') ? `-l ${word.slice(2)}` : `-a ${word}`
      const text = description === '' ? '' : ` -d ${fishQuoted(description)}`
      return `complete -c sternpost -n ${fishQuoted(`__sternpost_is_at "${place(node)}"`)} ${what}${text}`
    }),
  )
  return `# fish completion of sternpost
function __sternpost_is_at
  set -l place ''
  for word in (commandline -opc)[2..-1]
    if contains -- "$place $word" ${words}
      set place "$place $word"
    end
  end
  test "$place" = "$argv[1]"
end
${lines.join('\n')}
`
}

/** fish knows two escapes within single quotes. */
function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', String.raw`\\`).replaceAll("'", String.raw`\'`)}'`
}
