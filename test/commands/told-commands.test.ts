/**
 * What sources, configuration files and the README tell people to type is there: the verb, its flags, and no argument
 * that it does not take.
 */
import { globSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { join } from 'node:path'
import t from 'tap'
import { createProgram } from '../../src/commands/command-line.ts'
import { commandTree, type CommandNode } from '../../src/commands/command-tree.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const FILES = ['README.md', 'src/**/*.ts', 'config/**/*.yaml', 'config/*.md', 'systemd/*']
/** `sternpost` and the words behind it on the line, until something ends a command: a quote, a pipe, a bracket. */
const COMMAND = /(?<![\w./@:-])sternpost(?: +[^\s`'"|;)\\]+)+/g
/** What commander or the launcher of a verb knows everywhere. */
const EVERYWHERE = ['--help', '--version']
/** An argument that is filled in: `${id}`, `msg_…`, `IP`. */
const ARGUMENT = /^(\$\{|[A-Z]{2,}\b|[a-z]+_)/

const refuse = async (): Promise<never> => {
  throw new Error('no server is started here')
}
const tree = commandTree(await createProgram('0.0.0', refuse))

/** Empty: it can be typed, or is no command at all. */
function problemOf(command: string): string {
  const words = command.split(/ +/).slice(1)
  let verb = tree
  for (let next = childOf(verb, words[0]); next !== undefined; next = childOf(verb, words[0])) {
    verb = next
    words.shift()
  }
  if (verb === tree) return ''
  const known = [...EVERYWHERE, ...verb.options.map(({ name }) => name)]
  const flags = words.flatMap((word) => /^\[?(--[a-z][a-z-]*)/.exec(word)?.[1] ?? [])
  const unknown = flags.find((flag) => !known.includes(flag))
  if (unknown !== undefined) return `has no ${unknown}`
  const takesNone = verb.children.length === 0 && verb.argumentWords === ''
  return takesNone && ARGUMENT.test(words[0] ?? '') ? `takes no ${words[0]}` : ''
}

function childOf({ children }: CommandNode, word = ''): CommandNode | undefined {
  return children.find(({ path }) => path.at(-1) === word.replace(/[.,:]$/, ''))
}

t.test('what people are told to type is there', async (t) => {
  const told = FILES.flatMap((pattern) => globSync(pattern, { cwd: ROOT })).flatMap((file) =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(COMMAND)].map(([command]) => ({ file, command })),
  )
  t.ok(told.length > 200, `${told.length} commands`)
  t.same(
    told
      .filter(({ command }) => problemOf(command) !== '')
      .map(({ file, command }) => `${file}: ${command}: ${problemOf(command)}`),
    [],
  )
})

t.test('what is not there is found', async (t) => {
  t.equal(problemOf('sternpost webhook deliveries ${id} --status failed'), 'takes no ${id}')
  t.equal(problemOf('sternpost queue list --dead'), 'has no --dead')
  t.equal(problemOf('sternpost ip show ${ip}'), '')
  t.equal(problemOf('sternpost has begun'), '', 'no command')
})
